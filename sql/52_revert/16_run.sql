-- Reverting: the run, which is listed and ends as that of an import.  All is written in one transaction.

create function bds_revert.open(company text, actor text, dry_run boolean, change_set uuid, force boolean)
    returns uuid
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import_id uuid;
begin
    perform bds_revert.require(company, change_set);
    insert into bds.imports (company_id, actor, dry_run, state, atomic, reverts, is_forced)
    values (company, actor, dry_run, 'running', 'false', change_set, force)
    returning id into import_id;
    return import_id;
end
$$;
comment on function bds_revert.open(text, text, boolean, uuid, boolean) is 'Lists the revert of a change set among the imports; raises as bds_revert.require';

create function bds_revert.run(import bds.imports)
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    since timestamptz := bds_revert.require(import.company_id, import.reverts);
    this  record;
    rows  bigint;
begin
    perform bds_revert.make_tables();
    raise notice 'reading the log: % of % rows done', 0, 1;
    rows := bds_revert.read_log(import.company_id, import.reverts, coalesce(since, 'infinity'));
    perform bds_revert.read_later(import.company_id, import.reverts);
    perform bds_revert.note_entities();
    perform bds_revert.note_referrers();
    for this in select * from pg_temp.revert_entities e order by e.rank loop
        raise notice 'comparing %: % of % rows done', this.name, 0, rows;
        perform bds_change_log.require_unaltered(this.name);
        perform bds_revert.compare(import.company_id, this, import.is_forced);
    end loop;
    return bds_revert.finish(import, rows, bds_revert.undo(import));
end
$$;
comment on function bds_revert.run(bds.imports) is 'Runs a revert that has the company''s turn; returns its report';

create function bds_revert.undo(import bds.imports)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    counts  jsonb;
    odd     jsonb;
    detail  text;
    guarded boolean := true;
begin
    loop
        perform bds_revert.check(import.company_id);
        begin
            perform bds_revert.write(import.company_id, guarded);
            counts := bds_revert.counts();  -- what is written once more is not counted again
            odd := bds_revert.correct(import.company_id, guarded);
            if odd is null and not import.dry_run then
                return counts;
            end if;
            raise exception using errcode = 'BDF02', message = 'nothing stays';
        exception
            when sqlstate 'BDF02' then
                if odd is null then
                    return counts;
                end if;
                perform bds_revert.fail_all(odd);
                return bds_revert.counts();
            when others then
                get stacked diagnostics detail = pg_exception_detail;
                if not bds_feed.is_fault_of_rows(sqlstate) then
                    raise;
                elsif not bds_revert.find_refused(import.company_id) then
                    if detail <> 'guard' then
                        raise;
                    end if;
                    guarded := false;  -- no row takes others along: a trigger of the owner has written them
                end if;
        end;
    end loop;
end
$$;
comment on function bds_revert.undo(bds.imports) is
    'Writes what can be undone, again as long as the database refuses rows, or nothing if rows are not as wanted then; of a dry run nothing '
    'stays. Returns bds_revert.counts';

create function bds_revert.counts()
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    this   record;
    tally  jsonb;
    counts jsonb := '{}';
begin
    for this in select * from pg_temp.revert_entities e order by e.rank loop
        execute format(
            $sql$
            select jsonb_build_object(
                'created', count(*) filter (where not u."@failed" and u."@action" = 'create'),
                'updated', count(*) filter (where not u."@failed" and u."@action" = 'update'),
                'deleted', count(*) filter (where not u."@failed" and u."@action" = 'delete'),
                'unchanged', count(*) filter (where not u."@failed" and u."@action" is null),
                'failed', (select count(*) from pg_temp.revert_errors x where x.entity = $1)
            )
            from pg_temp.%I u
            $sql$,
            'revert_' || this.name
        ) into tally using this.name;
        counts := counts || jsonb_build_object(this.name, tally);
    end loop;
    return counts;
end
$$;
comment on function bds_revert.counts() is 'What was undone and what was not: {entity: {created, updated, deleted, unchanged, failed}}';

create function bds_revert.finish(import bds.imports, rows bigint, counts jsonb)
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    failed  bigint := bds_revert.keep_errors(import);
    now_at  timestamptz := clock_timestamp();
    is_done boolean := exists (
        select from jsonb_each(counts) e cross join lateral jsonb_each_text(e.value) c where c.key <> 'failed' and c.value <> '0'
    );
begin
    update bds.imports i
    set finished_at = now_at, entities = counts, error_count = failed, records = rows, done = rows,
        state = case when failed = 0 then 'completed' when is_done then 'partial' else 'failed' end,
        position = (select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = import.company_id)
    where i.company_id = import.company_id and i.id = import.id and not i.is_cancelled;
    if not found then
        perform bds_feed.open_import(import.company_id, import.id, 'running');  -- raises, because it was cancelled
    end if;
    perform bds_feed.drop_tables();
    return bds.import_report(import.company_id, import.id);
end
$$;
comment on function bds_revert.finish(bds.imports, bigint, jsonb) is 'Ends a revert that has run, keeps its errors; returns the report';

create function bds_revert.keep_errors(import bds.imports)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    failed record;
    added  bigint;
    total  bigint := 0;
begin
    for failed in
        select x.entity, min(x.n) as first, e.name is not null as is_compared, (
            select string_agg(format('%L || u.%I::text', c.field || ':', c.column_name), ', ') from bds_revert.columns_of(e.name) c where c.is_unique
        ) as lookups
        from pg_temp.revert_errors x left join pg_temp.revert_entities e on e.name = x.entity
        group by x.entity, e.name
        order by first
    loop
        execute bds_impl.fill(
            $sql$
            insert into bds.import_errors (company_id, import_id, n, path, record, code, message)
            select $1, $2, $3 + row_number() over (order by x.n), format('%s/%s%s', x.entity, r.id, '.' || x.field),
                coalesce({lookups}), x.code, x.message
            from pg_temp.revert_errors x join pg_temp.revert_rows r on r.n = x.n {rows}
            where x.entity = {entity:L}
            $sql$,
            'entity', failed.entity, 'lookups', concat_ws(', ', case when failed.is_compared then failed.lookups end, '''id:'' || r.id'),
            'rows', case when failed.is_compared then format('left join pg_temp.%I u on u."@n" = x.n', 'revert_' || failed.entity) else '' end
        ) using import.company_id, import.id, total;
        get diagnostics added = row_count;
        total := total + added;
    end loop;
    return total;
end
$$;
comment on function bds_revert.keep_errors(bds.imports) is 'Keeps the errors of a revert; returns how many';

create or replace function bds.revert(
    company text, change_set uuid, dry_run boolean default false, force boolean default false, actor text default null
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    named_actor      text := current_setting('bds.actor', true);
    named_change_set text := current_setting('bds.change_set', true);
    report           jsonb;
begin
    if change_set is null then
        raise exception using errcode = 'BD002', message = 'no such change set: null';
    end if;
    report := bds.import_run(company, bds.import_begin(company, actor, dry_run, reverts => change_set, force => force));
    perform set_config('bds.actor', coalesce(named_actor, ''), true), set_config('bds.change_set', coalesce(named_change_set, ''), true);
    return report;
end
$$;
comment on function bds.revert(text, uuid, boolean, boolean, text) is
    'Undoes a change set, in a change set of its own: what it created goes, what it deleted comes back under its id, what it changed gets '
    'its old values. Rows that were changed later stay, unless force, and so do rows that are referred to. Returns a report as an import''s';
