-- Imports as a SQL API: begin, stage rows with COPY, run.
--
--     begin; select bds.set_context('acme', 'me'); select bds.import_begin('acme'); commit;           -- the import's id
--     select bds.import_stage('acme', <id>, 'products');                                              -- a table to copy into
--     \copy staging.i1_products (code, name, price) from products.csv csv
--     begin; select bds.import_run('acme', <id>); commit;                                             -- the report
--
-- A staged row holds text by the names of the import document: absent is null, the document's null is chr(1), a reference or the
-- row's own "@id" is a lookup such as code:X.  "@operation" is create, update, upsert or delete; "@where", with update or delete, is a
-- condition in SQL over the entity's view that says which rows are meant.
--
-- What is staged belongs to the role bds_importer, and the functions that touch it run as that role, under the row level security of
-- whoever writes: callers may put rows in, of the company that they have named, and no more.

create or replace view bds.import_columns as
select f.entity, coalesce(f.reference, f.name) as name, f.column_name, f.type, format_type(a.atttypid, a.atttypmod) as sql_type,
    f.required, pg_get_expr(d.adbin, d.adrelid) as default_expression, f.is_unique, n.target,
    f.reference is not null and f.reference = e.parent_navigation as is_parent, f.ordinal
from bds.fields f
join bds.entities e on e.name = f.entity
join pg_attribute a on a.attrelid = e.table_name and a.attname = f.column_name
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join bds.navigations n on n.entity = f.entity and n.name = f.reference and not n.many
where f.name not in ('id', 'updatedAt') and not f.generated;
comment on view bds.import_columns is 'What an import may say of an entity: fields, and references by the name of their navigation';

create or replace function bds.staging_table(import_number bigint, entity text)
    returns text
    language sql
    immutable
    return format('staging.%I', 'i' || import_number || '_' || entity);
comment on function bds.staging_table(bigint, text) is 'Name of the table that holds an import''s rows of one entity';

create or replace function bds.enter_company(company text)
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
comment on function bds.enter_company(text) is 'Raises BD001 as bds.require_company does; names the company until the end of the transaction where the operator has not';

create or replace function bds.find_import(company text, import_id uuid, wanted_state text default null)
    returns bds.imports
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_import bds.imports;
begin
    if current_user = 'bds_importer' then
        perform bds.enter_company(company);
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
comment on function bds.find_import(text, uuid, text) is
    'The import; raises BD002 if there is none, BD004 if its state is not the wanted one, and ends one that goes on although it was cancelled';

create or replace function bds.import_begin(company text, actor text default null, dry_run boolean default false)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import_id     uuid;
    import_number bigint;
begin
    perform bds.enter_company(company);
    insert into bds.imports (company_id, actor, dry_run)
    values (company, coalesce(actor, nullif(current_setting('bds.actor', true), ''), session_user), dry_run)
    returning id, number into import_id, import_number;
    -- what is wrong with which row: both the reader of the document and the comparison write here; what is kept outlives a comparison
    execute format(
        'create unlogged table %s (entity text not null, ordinal bigint, field text, code text not null, message text not null, '
        'path text, record text, is_late boolean not null default false, is_kept boolean not null default true) with (autovacuum_enabled = off)',
        bds.staging_table(import_number, 'errors')
    );
    perform bds.open_staging(company, bds.staging_table(import_number, 'errors'));
    return import_id;
end
$$;
comment on function bds.import_begin(text, text, boolean) is 'Begins an import and returns its id';

create or replace function bds.import_stage(company text, import_id uuid, entity_name text)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import  bds.imports := bds.find_import(company, import_id, 'receiving');
    target  text := bds.staging_table(import.number, entity_name);
    columns text;
begin
    if to_regclass(target) is not null then
        return target;
    end if;
    select string_agg(format('%I text', c.name), ', ' order by c.ordinal) into columns
    from bds.import_columns c where c.entity = entity_name;
    if columns is null then
        raise exception using errcode = 'BD002', message = format('there is no entity %L', entity_name);
    end if;
    -- whoever ends the import waits, or comes back, until the table is there to be dropped
    perform from bds.imports i where i.company_id = company and i.id = import_id and i.finished_at is null for key share;
    if not found then
        raise exception using errcode = 'BD004', message = format('import %s has ended', import_id);
    end if;
    columns := columns || coalesce((
        select string_agg(format(', %I boolean', n.name || '@present'), '' order by n.ordinal)
        from bds.navigations n where n.entity = entity_name and n.child
    ), '');
    execute format(
        'create unlogged table %s ('
        '"@ordinal" bigint generated by default as identity (minvalue 0), "@parent" bigint, "@position" bigint, "@id" text, '
        '"@operation" text, "@where" text, %s) '
        -- an autovacuum at work would make the drop wait a second until it is cancelled, table by table
        'with (autovacuum_enabled = off)',
        target, columns
    );
    perform bds.open_staging(company, target);
    return target;
end
$$;
comment on function bds.import_stage(text, uuid, text) is
    'Makes the staging table of an entity and returns its name: "@ordinal" numbers the rows, "@parent" is the parent row''s number, '
    '"@position" the place in its array, "@ordinal" if it is null, "@id" the row''s own lookup';

create or replace function bds.open_staging(company text, target text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'create trigger own_company before insert on %s for each statement execute function bds.check_staging_company(%L)', target, company
    );
    -- rows go in, and nothing comes out: what another company stages is nobody's to read
    execute format('grant insert on %s to bds_writer, bds_operator', target);
end
$$;
comment on function bds.open_staging(text, text) is 'Lets sessions of a company put rows into a staging table';

create or replace function bds.check_staging_company()
    returns trigger
    language plpgsql
as $$
begin
    perform bds.require_company(tg_argv[0]);
    return null;
end
$$;
comment on function bds.check_staging_company() is 'Statement trigger: rows are staged by sessions of the import''s company alone';

create or replace function bds.import_received(
    company text, import_id uuid, atomic text, bytes bigint, records bigint, remove_all text[] default '{}'
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.find_import(company, import_id, 'receiving');
begin
    -- staging tables are not logged: a database that crashed and came back has lost what was in them
    if bds.count_staged(import.number) < records then
        raise exception using errcode = 'BD003', message = 'the database was restarted while the document arrived: send it again';
    end if;
    perform bds.import_stage(company, import_id, e.name) from unnest(remove_all) as e (name);
    execute format('alter table %s alter column is_kept set default false', bds.staging_table(import.number, 'errors'));
    update bds.imports i
    set state = 'running', atomic = import_received.atomic, bytes = import_received.bytes, records = import_received.records,
        remove_all = import_received.remove_all, heartbeat_at = clock_timestamp()
    where i.company_id = company and i.id = import_id;
end
$$;
comment on function bds.import_received(text, uuid, text, bigint, bigint, text[]) is 'The whole document is staged: the import may run';

create or replace function bds.import_progress(company text, import_id uuid, bytes bigint, records bigint, done bigint)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    begin atomic
        update bds.imports i
        set bytes = greatest(i.bytes, import_progress.bytes), records = greatest(i.records, import_progress.records),
            done = greatest(i.done, import_progress.done), heartbeat_at = clock_timestamp()
        where i.company_id = company and i.id = import_id and i.finished_at is null;
    end;
comment on function bds.import_progress(text, uuid, bigint, bigint, bigint) is
    'Shows how far an import is, and that it lives: without a sign of life for 20 seconds it is taken for dead';

create or replace function bds.import_cancel(company text, import_id uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.find_import(company, import_id);
begin
    update bds.imports i set is_cancelled = true
    where i.company_id = company and i.id = import_id and i.finished_at is null;
    if not found then
        import := bds.find_import(company, import_id);  -- it may have ended while this waited for it
        raise exception using errcode = 'BD004', message = format('import %s has ended: it is %s', import_id, import.state);
    end if;
end
$$;
comment on function bds.import_cancel(text, uuid) is
    'Asks for the end of an import: whoever runs it sees to that, and nothing of it is written. BD004 if it has ended';

create or replace function bds.count_staged(import_number bigint)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    staged      bigint;
    total       bigint := 0;
begin
    for entity_name in select e.name from bds.entities e where to_regclass(bds.staging_table(import_number, e.name)) is not null loop
        execute format('select count(*) from %s where "@parent" is null', bds.staging_table(import_number, entity_name)) into staged;
        total := total + staged;
    end loop;
    return total;
end
$$;
comment on function bds.count_staged(bigint) is 'How many top-level records are staged';

create or replace function bds.is_staged(import_number bigint, more_than bigint default 0)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    found_any   boolean;
begin
    for entity_name in select e.name from bds.entities e where to_regclass(bds.staging_table(import_number, e.name)) is not null loop
        execute format('select exists (select from %s offset $1)', bds.staging_table(import_number, entity_name)) into found_any using more_than;
        exit when found_any;
    end loop;
    return coalesce(found_any, false);
end
$$;
comment on function bds.is_staged(bigint, bigint) is
    'Whether more rows of an entity are staged than so many, those inside others included; not one is when the database has crashed';

create or replace function bds.import_drop_staging(import_number bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in
        select format('staging.%I', c.relname) from pg_class c
        where c.relnamespace = 'staging'::regnamespace and c.relkind = 'r' and c.relname ^@ ('i' || import_number || '_')
    loop
        execute 'drop table ' || name;
    end loop;
    perform bds.import_drop_comparison(import_number);
end
$$;
comment on function bds.import_drop_staging(bigint) is 'Drops every table of an import';

create or replace function bds.import_fail(
    company text, import_id uuid, new_state text default 'failed', code text default null, message text default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.find_import(company, import_id);
begin
    if import.finished_at is not null then
        return;
    end if;
    perform from bds.imports i where i.company_id = company and i.id = import_id for update;
    perform bds.import_drop_staging(import.number);
    insert into bds.import_errors (company_id, import_id, n, path, code, message)
    select company, import_id, import.error_count + 1, 'document', import_fail.code, import_fail.message
    where import_fail.code is not null;
    update bds.imports i
    set state = new_state, finished_at = clock_timestamp(), error_count = i.error_count + (import_fail.code is not null)::int
    where i.company_id = company and i.id = import_id;
end
$$;
comment on function bds.import_fail(text, uuid, text, text, text) is 'Ends an import without a result, notes why, and drops what it staged';

create or replace function bds.import_finish(company text, import_id uuid, counts jsonb, outcome text)
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.find_import(company, import_id, 'running');
    problems bigint;
begin
    -- every entity with every count
    select coalesce(jsonb_object_agg(c.key, '{"created": 0, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 0}'::jsonb || c.value), '{}')
    into counts from jsonb_each(counts) c;
    problems := bds.import_collect_errors(company, import_id);
    perform bds.analyze_changed(counts);
    perform bds.import_drop_staging(import.number);
    update bds.imports i
    set finished_at = clock_timestamp(), state = outcome, entities = counts, error_count = i.error_count + problems, done = i.records
    where i.company_id = company and i.id = import_id and not i.is_cancelled;
    if not found then
        perform bds.find_import(company, import_id, 'running');  -- says that it was cancelled
    end if;
    return bds.import_report(company, import_id);
end
$$;
comment on function bds.import_finish(text, uuid, jsonb, text) is 'Ends an import that has run, keeps its errors, drops what it staged; returns the report';

create or replace function bds.analyze_changed(counts jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    changed regclass;
begin
    for changed in
        select e.table_name from jsonb_each(counts) c join bds.entities e on e.name = c.key
        where (c.value ->> 'created')::bigint + (c.value ->> 'updated')::bigint > 10000
    loop
        execute 'analyze (skip_locked) ' || changed;  -- another import may be at it, and keeps the table until it commits
    end loop;
end
$$;
comment on function bds.analyze_changed(jsonb) is 'Refreshes the statistics of tables that an import has filled: readers come before autovacuum does';

create or replace function bds.import_report(company text, import_id uuid, with_errors boolean default true)
    returns json
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    import bds.imports := bds.find_import(company, import_id);
begin
    return json_object(
        'importId': import.id,
        'changeSetId': import.id,
        'state': import.state,
        'atomic': case import.atomic when 'batch' then to_json('batch'::text) else import.atomic::json end,
        'dryRun': import.dry_run,
        'startedAt': to_char(import.started_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'finishedAt': to_char(import.finished_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'progress': json_object('bytes': import.bytes, 'records': import.records, 'done': import.done),
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
            perform bds.import_drop_staging(dead.number);
            insert into bds.import_errors (company_id, import_id, n, path, code, message)
            values (dead.company_id, dead.id, dead.error_count + 1, 'document', 'aborted', 'the process that ran it gave no more sign of life');
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
