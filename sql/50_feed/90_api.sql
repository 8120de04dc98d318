-- Imports as a SQL API.  A small document is staged, compared and written in one transaction:
--
--     begin;
--     select bds.import_begin('acme', 'me', entities => '{products}');             -- the import's id
--     \copy pg_temp."staged_products" (code, name, price) from products.csv csv
--     select bds.import_run('acme', <id>);                                         -- the report
--     commit;
--
-- One of any size is staged in as many transactions as it takes, and run in another:
--
--     select bds.import_begin('acme', 'me');
--     select bds.import_stage('acme', <id>, 'products');                           -- a table to copy into
--     \copy staging.i1_products (code, name, price) from products.csv csv
--     begin; select bds.import_run('acme', <id>); commit;
--
-- A staged row holds text by the names of the import document: absent is null, the document's null is chr(1), a reference or the
-- row's own "@id" is a lookup such as code:X.  "@operation" is create, update, upsert or delete; "@where", with update or delete, is a
-- condition in SQL over the entity's view that says which rows are meant.
--
-- What is staged belongs to the role bds_importer, and the functions that touch it run as that role, under the row level security of
-- the caller's company: callers may put rows in, of the company that they have named, and no more.

create function bds_feed.enter_company(company text)
    returns void
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    if company is distinct from bds.current_company() then  -- the operator need not have named it: row level security wants it named
        perform set_config('bds.company', company, true);
    end if;
end
$$;
comment on function bds_feed.enter_company(text) is 'Raises BD001 as bds.require_company does; names the company until the end of the transaction where the operator has not';

create or replace function bds.open_import(company text, import_id uuid, wanted_state text default null)
    returns bds.imports
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_import bds.imports;
begin
    if current_user = 'bds_importer' then
        perform bds_feed.enter_company(company);
    else
        perform bds.require_company(company);
    end if;
    select * into found_import from bds.imports i where i.company_id = company and i.id = import_id;
    if not found then
        raise exception using errcode = 'BD002', message = format('company %s has no import %s', company, import_id);
    end if;
    if found_import.state <> wanted_state then
        raise exception using
            errcode = 'BD004',
            message = format('import %s is %s, not %s', import_id, found_import.state, wanted_state);
    elsif wanted_state = 'running' and found_import.is_cancelled then
        raise exception using errcode = 'query_canceled', message = format('import %s was cancelled', import_id);
    end if;
    return found_import;
end
$$;
comment on function bds.open_import(text, uuid, text) is
    'The import; raises BD002 if there is none, BD004 if its state is not the wanted one, and ends one that goes on although it was cancelled';

create or replace function bds.import_begin(company text, actor text default null, dry_run boolean default false, entities text[] default null)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports;
begin
    perform bds_feed.enter_company(company);
    insert into bds.imports (company_id, actor, dry_run, is_small)
    values (company, coalesce(actor, nullif(current_setting('bds.actor', true), ''), session_user), dry_run, entities is not null)
    returning * into import;
    if import.is_small then
        perform bds_feed.open_small(import, entities);
    else
        perform bds_feed.make_staging(import, bds_feed.staging_table(import.number, 'errors'), t.definition)
        from bds_feed.tables t where t.name = 'feed_errors';
    end if;
    return import.id;
end
$$;
comment on function bds.import_begin(text, text, boolean, text[]) is
    'Begins an import and returns its id; with the names of entities a small one, whose records go into pg_temp."staged_<entity>" in the same transaction';

create function bds_feed.open_small(import bds.imports, entity_names text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    unknown text := (select n from unnest(entity_names) n where not exists (select from bds_feed.tables t where t.name = 'staged_' || n) limit 1);
begin
    if unknown is not null then
        raise exception using errcode = 'BD002', message = format('no such entity: %L', unknown);
    end if;
    perform bds_feed.open_tables(import, entity_names);
    if exists (select from pg_temp.feed_entities) then  -- of an earlier import of this transaction
        perform bds_feed.empty_tables(array(select f.name from pg_temp.feed_entities f), true);
    end if;
    insert into pg_temp.feed_entities (name, place, family) select e.name, e.place, e.family from bds_feed.entities e where e.name = any (entity_names);
end
$$;
comment on function bds_feed.open_small(bds.imports, text[]) is 'Makes the temporary tables of an import ready; BD002 for an unknown entity';

create or replace function bds.import_stage(company text, import_id uuid, entity_name text)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import     bds.imports := bds.open_import(company, import_id, 'receiving');
    target     text := bds_feed.staging_table(import.number, entity_name);
    definition text := (select t.definition from bds_feed.tables t where t.entity = entity_name and t.name = 'staged_' || entity_name);
begin
    if definition is null then
        raise exception using errcode = 'BD002', message = format('no such entity: %L', entity_name);
    elsif import.is_small then
        perform bds_feed.open_tables(import, array[entity_name]);
        insert into pg_temp.feed_entities (name, place, family)
        select e.name, e.place, e.family from bds_feed.entities e
        where e.name = entity_name and not exists (select from pg_temp.feed_entities f where f.name = entity_name);
        return format('pg_temp.%I', 'staged_' || entity_name);
    elsif to_regclass(target) is not null then
        return target;
    end if;
    -- a session that ends the import waits, or tries again, until the table is there to be dropped
    perform from bds.imports i where i.company_id = company and i.id = import_id and i.finished_at is null for key share;
    if not found then
        raise exception using errcode = 'BD004', message = format('import %s has ended', import_id);
    end if;
    perform bds_feed.make_staging(import, target, definition);
    return target;
end
$$;
comment on function bds.import_stage(text, uuid, text) is
    'Makes the staging table of an entity and returns its name: "@ordinal" numbers the rows, "@parent" is the parent row''s number, '
    '"@position" the place in its array, "@ordinal" if it is null, "@id" the row''s own lookup';

create or replace function bds.import_received(
    company text, import_id uuid, atomic text, bytes bigint, records bigint, remove_all text[] default '{}'
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.open_import(company, import_id, 'receiving');
begin
    -- staging tables are not logged: a database that crashed and came back has lost what was in them
    if bds_feed.count_staged(import) < records then
        raise exception using errcode = 'BD003', message = 'the database was restarted while the document arrived: send it again';
    end if;
    perform bds.import_stage(company, import_id, e.name) from unnest(remove_all) as e (name);
    update bds.imports i
    set state = 'running', atomic = import_received.atomic, bytes = import_received.bytes, records = import_received.records,
        remove_all = import_received.remove_all, heartbeat_at = clock_timestamp()
    where i.company_id = company and i.id = import_id;
end
$$;
comment on function bds.import_received(text, uuid, text, bigint, bigint, text[]) is 'The whole document is staged: the import may run';

create or replace function bds.import_progress(
    company text, import_id uuid, bytes bigint, records bigint, done bigint, waiting_for text default null
)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
    begin atomic
        select bds_feed.enter_company(company);
        update bds.imports i
        set bytes = greatest(i.bytes, import_progress.bytes), records = greatest(i.records, import_progress.records),
            done = greatest(i.done, import_progress.done), waiting_for = import_progress.waiting_for,
            heartbeat_at = clock_timestamp()
        where i.company_id = company and i.id = import_id and i.finished_at is null;
    end;
comment on function bds.import_progress(text, uuid, bigint, bigint, bigint, text) is
    'Shows how far an import is, what it waits for, and that it lives: without a sign of life for 20 seconds it is taken for dead';

create or replace function bds.import_cancel(company text, import_id uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.open_import(company, import_id);
begin
    update bds.imports i set is_cancelled = true
    where i.company_id = company and i.id = import_id and i.finished_at is null;
    if not found then
        import := bds.open_import(company, import_id);  -- it may have ended while this waited for it
        raise exception using errcode = 'BD004', message = format('import %s has ended: it is %s', import_id, import.state);
    end if;
end
$$;
comment on function bds.import_cancel(text, uuid) is
    'Asks for the end of an import: whoever runs it sees to that, and nothing of it is written. BD004 if it has ended';

-- The run: everything is compared before anything is written.  Written are upserts in the order of dependency, then mass updates, then
-- deletes against that order, then removals; all in one transaction, so that a crash leaves nothing.
--
-- What only the writing shows (a rule of a table that no check knows) undoes what was written, is found by halving, becomes an error
-- of the records that cause it, and everything is compared again without them.

create or replace function bds.import_run(company text, import_id uuid, atomic text default 'batch', remove_all text[] default '{}')
    returns json
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.open_import(company, import_id);
    result record;
begin
    if import.state = 'receiving' then
        perform bds.import_received(company, import_id, atomic, 0, bds_feed.count_staged(import), remove_all);
    elsif import.records > 0 and bds_feed.count_staged(import, true) = 0 then
        -- it waited, and the database crashed meanwhile
        raise exception using errcode = 'BD003', message = 'the database was restarted while the import waited: send it again';
    end if;
    import := bds.open_import(company, import_id, 'running');
    perform bds.set_context(company, import.actor, import_id);
    if import.is_small then
        perform bds.lock_company(company);  -- as long as the session waits for locks
    else
        perform bds_feed.take_turn(company);
    end if;
    perform bds_feed.begin_run(import);
    result := bds_feed.run(import);
    return bds_feed.finish(import, result.counts, result.outcome);
end
$$;
comment on function bds.import_run(text, uuid, text, text[]) is
    'Compares the staged rows with the stored ones, writes what differs, returns the report; rows of the entities in remove_all that the document lacks go';

create function bds_feed.take_turn(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0  -- imports queue without a limit
as $$
begin
    perform bds.lock_company(company);
end
$$;
comment on function bds_feed.take_turn(text) is 'Waits for the company''s turn, however long';

create function bds_feed.run(import bds.imports, out counts jsonb, out outcome text)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb;
begin
    loop
        perform bds_feed.compare(import);
        if import.atomic = 'true' and bds_feed.has_errors() then
            counts := bds_feed.count_failed('{}');
            outcome := 'failed';
            return;
        end if;
        begin
            counts := bds_feed.apply(import);
            outcome := bds_feed.outcome(counts);
            exit when not import.dry_run;
            problems := bds_feed.late_errors();
            raise exception using errcode = 'BDF02', message = 'dry run';
        exception
            when sqlstate 'BDF02' then  -- what was written is undone, what was found out is kept
                perform bds_feed.keep_errors(problems);
                return;
            when sqlstate 'BDF01' then
                get stacked diagnostics problems = pg_exception_detail;
            when others then
                problems := case when bds_feed.is_fault_of_rows(sqlstate) then bds_feed.find_culprits(import) end;
                if problems is null then
                    raise;
                end if;
        end;
        perform bds_feed.empty_tables(array(select f.name from pg_temp.feed_entities f), false);
        perform bds_feed.keep_errors(problems);
    end loop;
end
$$;
comment on function bds_feed.run(bds.imports) is 'Compares and writes, again as long as the writing finds records that it refuses; returns the counts and the state in which the import ends';

create function bds_feed.finish(import bds.imports, counts jsonb, outcome text)
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems bigint := case when bds_feed.has_errors() then bds_feed.collect_errors(import) else 0 end;
begin
    -- every entity with every count
    select coalesce(jsonb_object_agg(c.key, '{"created": 0, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 0}'::jsonb || c.value), '{}')
    into counts from jsonb_each(counts) c;
    perform bds_feed.analyze_changed(counts);
    perform bds_feed.drop_staging(import);
    update bds.imports i
    set finished_at = clock_timestamp(), state = outcome, entities = counts, error_count = i.error_count + problems, done = i.records,
        position = (select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = import.company_id)
    where i.company_id = import.company_id and i.id = import.id and not i.is_cancelled;
    if not found then
        perform bds.open_import(import.company_id, import.id, 'running');  -- says that it was cancelled
    end if;
    return bds.import_report(import.company_id, import.id);
end
$$;
comment on function bds_feed.finish(bds.imports, jsonb, text) is 'Ends an import that has run, keeps its errors, drops what it staged; returns the report';

create or replace function bds.import_fail(
    company text, import_id uuid, new_state text default 'failed', code text default null, message text default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.open_import(company, import_id);
begin
    if import.finished_at is not null then
        return;
    end if;
    perform from bds.imports i where i.company_id = company and i.id = import_id for update;
    perform bds_feed.drop_staging(import);
    insert into bds.import_errors (company_id, import_id, n, path, code, message)
    select company, import_id, import.error_count + 1, 'document', import_fail.code, import_fail.message
    where import_fail.code is not null;
    update bds.imports i
    set state = new_state, finished_at = clock_timestamp(), error_count = i.error_count + (import_fail.code is not null)::int
    where i.company_id = company and i.id = import_id;
end
$$;
comment on function bds.import_fail(text, uuid, text, text, text) is 'Ends an import without a result, notes why, and drops what it staged';

create or replace function bds.import_report(company text, import_id uuid, with_errors boolean default true)
    returns json
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    import bds.imports := bds.open_import(company, import_id);
begin
    return json_object(
        'importId': import.id,
        'changeSetId': import.id,
        'state': import.state,
        'atomic': case import.atomic when 'batch' then to_json('batch'::text) else import.atomic::json end,
        'dryRun': import.dry_run,
        'startedAt': bds.api_time(import.started_at),
        'finishedAt': bds.api_time(import.finished_at),
        'position': import.position,
        'progress': json_object(
            'bytes': import.bytes, 'records': import.records, 'done': import.done,
            'waitingFor': case when import.state = 'running' then import.waiting_for end
        ),
        'entities': (
            select coalesce(json_object_agg(e.name, json_object(
                'created': c.value -> 'created', 'updated': c.value -> 'updated', 'deleted': c.value -> 'deleted',
                'unchanged': c.value -> 'unchanged', 'failed': c.value -> 'failed' returning json) order by e.ordinal), '{}')
            from jsonb_each(import.entities) c join bds.entities e on e.name = c.key
        ),
        'errorCount': import.error_count,
        'errors': case when with_errors then (
            select coalesce(json_agg(json_object('path': e.path, 'record': e.record, 'code': e.code, 'message': e.message) order by e.n), '[]')
            from bds.import_errors e
            where e.company_id = company and e.import_id = import_report.import_id and e.n <= 1000
        ) else '[]' end
    );
end
$$;
comment on function bds.import_report(text, uuid, boolean) is 'What an import has done: state, counts by entity, the first 1,000 errors';

create or replace function bds.reap_imports(silence interval default '20 seconds')
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '1s'
as $$
declare
    dead   bds.imports;
    reaped bigint := 0;
begin
    for dead in
        select * from bds.imports i
        where i.finished_at is null and i.heartbeat_at < clock_timestamp() - silence
        for update skip locked
    loop
        begin
            perform bds_feed.drop_staging(dead);
            insert into bds.import_errors (company_id, import_id, n, path, code, message)
            values (dead.company_id, dead.id, dead.error_count + 1, 'document', 'aborted', 'the process that ran the import stopped responding');
            update bds.imports i
            set state = case when i.is_cancelled then 'cancelled' else 'failed' end, finished_at = clock_timestamp(),
                error_count = i.error_count + 1
            where i.company_id = dead.company_id and i.id = dead.id;
            reaped := reaped + 1;
        exception when lock_not_available then
            null;  -- it lives after all, or dies more slowly: the next call sees
        end;
    end loop;
    return reaped;
end
$$;
comment on function bds.reap_imports(interval) is 'Ends imports that have given no sign of life for a while: their process is gone';

create or replace function bds.forget_imports(age interval)
    returns bigint
    language sql
    volatile
    security definer
    set search_path = pg_catalog, pg_temp
    begin atomic
        with forgotten as (
            delete from bds.imports i where i.finished_at < clock_timestamp() - age returning i.id
        )
        select count(*) from forgotten;
    end;
comment on function bds.forget_imports(interval) is 'Drops what is kept of imports that ended so long ago; what they wrote stays, and so does the change log';
