-- Imports as a SQL API.  Rows are staged in any number of transactions, and the import runs in another one:
--
--     select bds.import_begin('acme', 'me');                                       -- the import's id
--     select bds.import_stage('acme', <id>, 'products');                           -- a table to copy into
--     \copy staging.i1_products (code, name, price) from products.csv csv
--     begin; select bds.import_run('acme', <id>); commit;                          -- the report
--
-- A few rows are staged, compared and written by one statement, bds.import_rows.
--
-- A staged row holds text by the names of the import document: absent is null, the document's null is chr(1), a reference or the
-- row's own "@id" is a lookup such as code:X.  "@operation" is create, update, upsert or delete; "@where", with update or delete,
-- is a condition in SQL over the entity's view that selects the rows.
--
-- Staging tables belong to the role bds_importer, and the functions that use them run as that role, under the row level security of
-- the caller's company: callers can only insert rows, of the company that they have named.

create function bds_feed.enter_company(company text)
    returns void
    language plpgsql
    stable
as $$
begin
    perform bds.require_company(company);
    if company is distinct from bds.current_company() then  -- an operator may not have named it, and row level security needs it
        perform set_config('bds.company', company, true);
    end if;
end
$$;
comment on function bds_feed.enter_company(text) is
    'Raises BD001 as bds.require_company does; names the company until the end of the transaction where the operator has not';

create function bds_feed.open_import(company text, import_id uuid, wanted_state text default null)
    returns bds.imports
    language plpgsql
    stable
as $$
declare
    found_import bds.imports;
begin
    perform bds_feed.enter_company(company);
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
comment on function bds_feed.open_import(text, uuid, text) is
    'The import; raises BD002 if there is none, BD004 if its state is not the wanted one, 57014 if it should run and was cancelled';

create or replace function bds.import_begin(
    company text, actor text default null, dry_run boolean default false, undoes jsonb default null, force boolean default false,
    file text default null, mapper text default null, claimed_id uuid default null
)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports;
begin
    perform bds_feed.enter_company(company);
    perform bds_impl.require_resident(company);
    actor := bds_impl.actor(actor);
    perform bds_feed.require_claim(company, claimed_id);
    if undoes is not null then
        return bds_revert.open(company, actor, dry_run, undoes, force, claimed_id);
    end if;
    insert into bds.imports (company_id, id, actor, dry_run, file, mapper)
    values (company, coalesce(claimed_id, gen_random_uuid()), actor, dry_run, left(file, 255), mapper)
    returning * into import;
    perform bds_feed.make_staging(import, bds_feed.staging_table(import.number, 'errors'), t.definition)
    from bds_feed.tables t where t.name = 'feed_errors';
    return import.id;
end
$$;
comment on function bds.import_begin(text, text, boolean, jsonb, boolean, text, text, uuid) is
    'Begins an import and returns its id; with what it undoes ({"changeSet": ...}) an undo, which needs only bds.import_run. File '
    'and mapper are names for its report; claimed_id is for the service, which has claimed a key for an import of this id';

create or replace function bds.import_stage(company text, import_id uuid, entity_name text)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import     bds.imports := bds_feed.open_import(company, import_id, 'receiving');
    target     text := bds_feed.staging_table(import.number, entity_name);
    definition text := (
        select t.definition from bds_feed.tables t where t.entity = entity_name and t.name = 'staged_' || entity_name
    );
begin
    if definition is null then
        raise exception using errcode = 'BD002', message = format('no such entity: %L', entity_name), table = entity_name;
    elsif to_regclass(target) is not null then
        return target;
    end if;
    -- a session that ends the import waits, or tries again, until this transaction commits, and then drops the table
    perform 1 from bds.imports i where i.company_id = company and i.id = import_id and i.finished_at is null for key share;
    if not found then
        raise exception using errcode = 'BD004', message = format('import %s has ended', import_id);
    end if;
    perform bds_feed.make_staging(import, target, definition);
    execute format('comment on table %s is %L', target, bds_feed.model_of(entity_name));
    return target;
end
$$;
comment on function bds.import_stage(text, uuid, text) is
    'Makes the staging table of an entity and returns its name: "@ordinal" numbers the rows, "@parent" is the parent row''s '
    'number, "@position" the number in its array, "@ordinal" if it is null, "@id" the row''s own lookup';

create or replace function bds_service.import_received(
    company text, import_id uuid, atomic text, bytes bigint, records bigint, remove_all text[] default '{}'
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds_feed.open_import(company, import_id, 'receiving');
    now_at timestamptz;
begin
    perform bds.import_stage(company, import_id, e.name) from unnest(remove_all) as e (name);
    now_at := clock_timestamp();
    update bds.imports i
    set state = 'running', atomic = import_received.atomic, bytes = import_received.bytes, records = import_received.records,
        remove_all = import_received.remove_all, heartbeat_at = now_at
    where i.company_id = company and i.id = import_id;
end
$$;
comment on function bds_service.import_received(text, uuid, text, bigint, bigint, text[]) is
    'The whole document is staged: the import may run';

create or replace function bds.import_run(
    company text, import_id uuid, atomic text default 'batch', remove_all text[] default '{}',
    raise_on_failure boolean default false
)
    returns json
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds_feed.open_import(company, import_id);
begin
    if import.state = 'receiving' then
        perform bds_service.import_received(company, import_id, atomic, 0, bds_feed.count_staged(import), remove_all);
    end if;
    import := bds_feed.open_import(company, import_id, 'running');
    -- staging tables are unlogged: a crash of the database empties them
    if bds_feed.count_staged(import) < import.records then
        raise exception using errcode = 'BD003', message = 'the database was restarted before the import ran: send it again';
    end if;
    return bds_feed.run(import, raise_on_failure);
end
$$;
comment on function bds.import_run(text, uuid, text, text[], boolean) is
    'Compares the staged rows with the stored ones, writes what differs, returns the report; deletes rows of the entities in '
    'remove_all that the document lacks. With raise_on_failure it raises BD008 if any record failed, and nothing is written';

create or replace function bds.import_rows(
    company text, rows jsonb, errors jsonb default null, actor text default null, dry_run boolean default false,
    atomic text default 'batch', remove_all text[] default '{}', bytes bigint default 0, records bigint default 0,
    file text default null, mapper text default null, claimed_id uuid default null
)
    returns json
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports;
    member record;
begin
    perform bds_feed.enter_company(company);
    perform bds_feed.require_claim(company, claimed_id);
    import := bds_feed.small_import(jsonb_build_object(
        'id', coalesce(claimed_id, gen_random_uuid()), 'company_id', company, 'actor', bds_impl.actor(actor),
        'dry_run', dry_run, 'atomic', atomic, 'remove_all', remove_all, 'bytes', bytes, 'records', records,
        'file', left(file, 255), 'mapper', mapper
    ), array(select jsonb_object_keys(rows)) || remove_all);
    for member in select m.key as entity, m.value as rows from jsonb_each(rows) m loop
        execute format('select bds_import.%I($1)', 'stage_' || member.entity) using member.rows;
    end loop;
    if errors is not null then
        perform bds_feed.add_errors(errors, '{"is_kept": true}');
    end if;
    return bds_feed.run(import, false);
end
$$;
comment on function bds.import_rows(text, jsonb, jsonb, text, boolean, text, text[], bigint, bigint, text, text, uuid) is
    'Imports a few rows, {entity: [{"@ordinal": 0, "code": "X"}, ...]}, staged as bds.import_stage says, and errors that were '
    'found in them '
    'before, in one statement; returns the report. The temporary tables of the session that it uses stay for the next import. '
    'BD003 if the '
    'turn of the company does not come within lock_timeout, 54000 if a row is too long for these tables. '
    'Claimed_id: as of bds.import_begin';
