-- One import, from its turn to its end: everything is compared before anything is written.  Written are upserts in the order of
-- dependency, then mass updates, then deletes and removals; all in one transaction, so that a crash leaves nothing.
--
-- An error that only the writing raises (by a rule of a table that no check covers) rolls back what was written.  Its records are
-- found by halving, they fail, and everything is compared again without them.

create function bds_feed.run(import bds.imports, raise_on_failure boolean)
    returns json
    language plpgsql
    -- To look a row up takes four microseconds, to read one in a scan a third of one.  The defaults, made for disks, are a ratio of
    -- a hundred and more; these are seventeen.
    set seq_page_cost = 0.1
    set random_page_cost = 0.1
    set cpu_operator_cost = 0.001
    set work_mem = '96MB'
    -- values are read, and conditions evaluated, as in the service's sessions (SETTINGS of app/database/pool/pools.py)
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set intervalstyle = 'iso_8601'
    set bytea_output = 'hex'
    set extra_float_digits = 1
    set standard_conforming_strings = on
    set transform_null_equals = off
as $$
declare
    patience text := current_setting('lock_timeout');
    records  bigint;
    report   json;
    context  text;
begin
    perform bds.set_context(import.company_id, import.actor, import.id);
    if not import.is_small then
        perform set_config('lock_timeout', '0', true);  -- a large import waits for its turn without a limit
    end if;
    perform bds.lock_company(import.company_id);
    perform set_config('lock_timeout', patience, true);
    if bds_feed.is_undo(import) then
        import := bds_revert.read(import);
        records := import.records;
        import.records := 0;
    elsif not import.is_small then  -- its tables are open
        perform bds_feed.open_staged(import);
    end if;
    begin
        import := bds_feed.compare_and_write(import);
        perform bds_feed.set_constraints(import, 'deferred');  -- for what the caller's transaction still does
        perform bds_feed.require_versions();
        perform bds_feed.require_stamps();
    exception when others then
        get stacked diagnostics context = pg_exception_context;
        perform bds_feed.refuse_cause(sqlstate, sqlerrm, context);
        raise;
    end;
    import.records := coalesce(records, import.records);
    report := bds_feed.finish(import);
    if raise_on_failure and import.state <> 'completed' then
        perform bds_feed.raise_failure(report);
    end if;
    return report;
end
$$;
comment on function bds_feed.run(bds.imports, boolean) is
    'Runs an import that is staged; returns the report, or raises BD008 if records failed';

create function bds_feed.raise_failure(report json)
    returns void
    language plpgsql
as $$
begin
    raise exception using
        errcode = 'BD008',
        message = (
            select format('the import failed at %s: %s: %s', e ->> 'path', e ->> 'code', e ->> 'message')
            from json_extract_path(report, 'errors', '0') e
        ) || case when report ->> 'errorCount' <> '1'
            then format(' (and %s more errors)', (report ->> 'errorCount')::bigint - 1) else '' end,
        detail = report::text,
        hint = 'the transaction is undone, records without errors included: raise_on_failure => false reports errors '
            'and keeps what could be written';
end
$$;
comment on function bds_feed.raise_failure(json) is 'Raises BD008 with the first error of a report';

create function bds_feed.function_of(context text)
    returns text
    language sql
    stable
as $$
    -- SQL functions stand there without their schema
    select case
        when exists (select from pg_proc p where p.pronamespace = 'bds_import'::regnamespace and p.proname = f.name)
            then 'bds_import.' || f.name
        else f.name
    end
    from (select (regexp_match(context, e'(?:PL/pgSQL|SQL) function "?([^"\n]+?)"? (?:line|statement|during) '))[1]) f (name);
$$;
comment on function bds_feed.function_of(text) is 'The innermost function in the context of an error';

create function bds_feed.refuse_unusable(context text, state text)
    returns void
    language plpgsql
    stable
as $$
declare
    failed text := bds_feed.function_of(context);
    rule   record;
begin
    if failed !~ '^bds[_.]' then
        raise exception using
            errcode = 'BD004', message = format('the function %s fails with SQLSTATE %s', failed, state);
    end if;
    select e.table_name, r.rulename into rule
    from pg_temp.feed_entities f join bds.entities e on e.name = f.name
    join pg_rewrite r on r.ev_class = e.table_name limit 1;
    if found then
        raise exception using
            errcode = 'BD004',
            message = format('%s has the rule %I, under which nothing can be imported', rule.table_name, rule.rulename),
            hint = format('drop rule %I on %s', rule.rulename, rule.table_name);
    end if;
end
$$;
comment on function bds_feed.refuse_unusable(text, text) is
    'Raises BD004 that names the cause of an error of a statement, if it is a function of the owner''s or a rule; context: of the '
    'error, the innermost first';

create function bds_feed.refuse_denied(context text, message text)
    returns void
    language plpgsql
    stable
as $$
declare
    denied text := bds_feed.function_of(context);
begin
    if denied !~ '^bds[_.]' then
        raise exception using
            errcode = 'BD004',
            message = format(
                'bds_importer may not do what the function %s of a trigger does: make the function security definer, or grant '
                'bds_importer what it needs', denied
            );
    elsif denied ^@ 'bds_import.' then  -- the statement is that of the import, with the expressions of the table
        raise exception using
            errcode = 'BD004',
            message = format(
                'bds_importer may not do what a default or a rule of the table does (%s): grant bds_importer what it needs', message
            );
    end if;
end
$$;
comment on function bds_feed.refuse_denied(text, text) is
    'Raises BD004 that names the function which lacked a right, if it is one of the owner''s, or has the message of a default or '
    'rule that lacked one; context: of the error, the innermost first';

create function bds_feed.refuse_cause(state text, message text, context text)
    returns void
    language plpgsql
as $$
begin
    perform bds_feed.require_versions();  -- an altered table may be the cause, registered again or not
    perform bds_change_log.require_unaltered(f.name) from pg_temp.feed_entities f;
    perform bds_feed.require_unaltered(array(select f.name from pg_temp.feed_entities f));
    if state ^@ '42' then  -- and so may the tables of its references
        perform bds_change_log.require_unaltered(n.target)
        from pg_temp.feed_entities f join bds.navigations n on n.entity = f.name and not n.many;
    end if;
    perform bds_feed.refuse_denied(context, message) where state = '42501';
    perform bds_feed.refuse_unusable(context, state) where state ^@ '42' or state = '0A000';
end
$$;
comment on function bds_feed.refuse_cause(text, text, text) is
    'Raises what has caused an error of an import, if that is an altered table, or something of the owner''s';

create function bds_feed.compare_and_write(import bds.imports)
    returns bds.imports
    language plpgsql
as $$
declare
    is_undo  boolean := bds_feed.is_undo(import);
    problems jsonb;
    extent   text := '';  -- all: with these problems nothing is written
begin
    loop
        if is_undo then
            perform bds_revert.compare(import);
        else
            perform bds_feed.compare(import);
        end if;
        begin
            if (import.atomic = 'true' or extent = 'all') and exists (select from pg_temp.feed_errors) then
                update pg_temp.feed_entities f set created = 0, updated = 0, unchanged = 0;
            elsif is_undo then
                perform bds_revert.apply(import);
            else
                perform bds_feed.apply(import);
            end if;
            problems := (select jsonb_agg(to_jsonb(e)) from pg_temp.feed_errors e where e.is_late and not e.is_kept);
            if import.atomic = 'true' and problems is not null then
                raise exception using errcode = 'BDF01', message = 'all or nothing', detail = problems;
            end if;
            import := bds_feed.result(import);
            if extent = 'all' then
                import.state := 'failed';
            elsif is_undo then
                perform bds_revert.verify(import);
            else
                perform bds_feed.fire_deferred(import);
            end if;
            if not import.dry_run then
                return import;
            end if;
            if is_undo then
                import.preview := bds_revert.preview(import);
            end if;
            raise exception using errcode = 'BDF02', message = 'dry run';
        exception
            when sqlstate 'BDF02' then  -- the writes are rolled back, the errors kept
                perform bds_feed.add_errors(problems, '{"is_kept": true}');
                return import;
            when sqlstate 'BDF01' then
                get stacked diagnostics problems = pg_exception_detail, extent = pg_exception_hint;
            when sqlstate 'BDF03' then  -- a deferred check refuses rows: now it raises in the statement that writes them
                perform bds_feed.set_constraints(import, 'immediate');
                problems := null;
        end;
        perform bds_feed.empty_tables(array(select f.name from pg_temp.feed_entities f), false);
        perform bds_feed.add_errors(problems, '{"is_kept": true}');
    end loop;
end
$$;
comment on function bds_feed.compare_and_write(bds.imports) is
    'Compares and writes, again and again while records are refused; returns the import with its counts and its final state';

create function bds_feed.set_constraints(import bds.imports, mode text)
    returns void
    language plpgsql
as $$
declare
    names text := case when bds_feed.is_undo(import) then case mode when 'immediate' then 'all' end else (
        select string_agg(distinct format('%I.%I', n.nspname, k.conname), ', ')
        from pg_constraint k join pg_namespace n on n.oid = k.connamespace
        where k.condeferred and k.conparentid = 0 and has_schema_privilege(n.oid, 'usage')
            and n.nspname <> 'bds'  -- the audit numbers its records at the commit, chain by chain
            -- a name stands for all constraints of its schema that have it
            and (mode = 'immediate' or not exists (
                select from pg_constraint o
                where o.connamespace = k.connamespace and o.conname = k.conname and not o.condeferrable
            ))
    ) end;
begin
    if names is not null then
        execute format('set constraints %s %s', names, mode);
    end if;
end
$$;
comment on function bds_feed.set_constraints(bds.imports, text) is
    'Makes the constraints and triggers that are initially deferred immediate, which fires those that wait, or deferred again; '
    'after an undo all stay immediate';

create function bds_feed.fire_deferred(import bds.imports)
    returns void
    language plpgsql
as $$
begin
    perform bds_feed.set_constraints(import, 'immediate');
exception when others then
    if not bds_feed.is_fault_of_rows(import, sqlstate) then
        raise;
    end if;
    raise exception using errcode = 'BDF03', message = 'what waited for the end is refused';
end
$$;
comment on function bds_feed.fire_deferred(bds.imports) is
    'Runs the deferred triggers and checks of the written rows; raises BDF03 if one refuses a row';

create function bds_feed.count_rows(import bds.imports)
    returns jsonb
    language plpgsql
    -- counted by an index, whatever the statistics of the company are
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    this    record;
    counted bigint;
    counts  jsonb := '{}';
begin
    if import.dry_run or import.is_small then
        return null;
    end if;
    for this in
        select e.name, e.table_name,
            (select sum(v.value::bigint) from jsonb_each_text(c.value) v where v.key <> 'failed') as records
        from jsonb_each(import.entities) c join bds.entities e on e.name = c.key
    loop
        continue when this.records < 5000 or bds_impl.estimated_rows(this.table_name, import.company_id) > 20 * this.records;
        execute format('select count(*) from %s r where r.company_id = $1', this.table_name) into counted using import.company_id;
        counts := counts || jsonb_build_object(this.name, counted);
    end loop;
    return nullif(counts, '{}');
end
$$;
comment on function bds_feed.count_rows(bds.imports) is
    'The number of rows of each entity of which an import had a large part, so that counting takes a small part of its time';

create function bds_feed.finish(import bds.imports)
    returns json
    language plpgsql
as $$
begin
    import.done := import.records;
    import.position := (select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = import.company_id);
    import.error_count := (select count(*) from pg_temp.feed_errors);
    import.row_counts := bds_feed.count_rows(import);
    import.finished_at := clock_timestamp();
    if import.is_small then  -- its row is written once
        insert into bds.imports overriding user value select import.*;
    else
        update bds.imports i
        set finished_at = import.finished_at, state = import.state, entities = import.entities,
            error_count = import.error_count, records = import.records, done = import.done, position = import.position,
            notices = import.notices, preview = import.preview, row_counts = import.row_counts
        where i.company_id = import.company_id and i.id = import.id and not i.is_cancelled;
        if not found then
            perform bds_feed.open_import(import.company_id, import.id, 'running');  -- raises that it was cancelled
        end if;
    end if;
    perform bds_change_log.note_change_set(
        import.company_id, import.id, case when bds_feed.is_undo(import) then 'revert' else 'import' end);
    if import.error_count > 0 then
        perform bds_feed.collect_errors(import);
    end if;
    if not import.is_small then
        perform bds_feed.drop_staging(import);
    end if;
    return bds_feed.report(import, true);
end
$$;
comment on function bds_feed.finish(bds.imports) is
    'Ends an import that has run, keeps its errors, drops what it staged; returns the report';

-- A small import: temporary tables of the session, and no row of bds.imports before its end.

create function bds_feed.small_import(given jsonb, entity_names text[])
    returns bds.imports
    language plpgsql
as $$
declare
    import bds.imports := jsonb_populate_record(null::bds.imports, jsonb_build_object(
        'id', gen_random_uuid(), 'state', 'running', 'is_small', true,
        'started_at', clock_timestamp(), 'heartbeat_at', clock_timestamp(), 'bytes', 0, 'records', 0, 'error_count', 0,
        'is_forced', false, 'notices', '{}', 'is_cancelled', false) || given);
begin
    perform bds_feed.begin_tables(import);
    perform bds_feed.open_tables(import, entity_names);
    return import;
end
$$;
comment on function bds_feed.small_import(jsonb, text[]) is
    'An import that is staged and run in the transaction that calls this';
