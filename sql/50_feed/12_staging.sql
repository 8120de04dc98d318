-- Staging tables: their names, what is staged, and the checks of everybody who uses them.

create function bds_feed.staging_table(import_number bigint, entity text)
    returns text
    language sql
    immutable
    return format('staging.%I', 'i' || import_number || '_' || entity);
comment on function bds_feed.staging_table(bigint, text) is 'Name of the table that holds an import''s rows of one entity';

create function bds_feed.is_staged(import_number bigint, more_than bigint default 0)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    found_any   boolean;
begin
    for entity_name in select e.name from bds.entities e where to_regclass(bds_feed.staging_table(import_number, e.name)) is not null loop
        execute format('select exists (select from %s offset $1)', bds_feed.staging_table(import_number, entity_name)) into found_any using more_than;
        exit when found_any;
    end loop;
    return coalesce(found_any, false);
end
$$;
comment on function bds_feed.is_staged(bigint, bigint) is
    'Whether more rows of an entity are staged than so many, those inside others included; not one is when the database has crashed';

create function bds_feed.count_staged(import_number bigint)
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
    for entity_name in select e.name from bds.entities e where to_regclass(bds_feed.staging_table(import_number, e.name)) is not null loop
        execute format('select count(*) from %s where "@parent" is null', bds_feed.staging_table(import_number, entity_name)) into staged;
        total := total + staged;
    end loop;
    return total;
end
$$;
comment on function bds_feed.count_staged(bigint) is 'How many top-level records are staged';

create function bds_feed.open_staging(company text, target text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'create trigger own_company before insert on %s for each statement execute function bds_log.check_staging_company(%L)', target, company
    );
    -- rows go in, and nothing comes out: what another company stages is nobody's to read
    execute format('grant insert on %s to bds_writer, bds_operator', target);
end
$$;
comment on function bds_feed.open_staging(text, text) is 'Lets sessions of a company put rows into a staging table';

create or replace function bds_log.check_staging_company()
    returns trigger
    language plpgsql
as $$
begin
    perform bds.require_company(tg_argv[0]);
    return null;
end
$$;
comment on function bds_log.check_staging_company() is 'Statement trigger: rows are staged by sessions of the import''s company alone';

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

create function bds_feed.import_order(import_number bigint)
    returns text[]
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return array(
        select f.name
        from bds_feed.families() f join bds.entities e on e.name = f.name
        join bds.entities r on r.name = bds_feed.root_of(f.name)
        join (select n.name, count(*) as needed from bds_feed.reach(true) n group by n.name) n on n.name = r.name
        where to_regclass(bds_feed.staging_table(import_number, f.name)) is not null
        -- in a circle what is required comes first: what is not can wait
        order by f.family, n.needed, r.ordinal, f.depth, e.ordinal
    );
comment on function bds_feed.import_order(bigint) is 'The staged entities of an import, each after those that it refers to';

create function bds_feed.import_drop_staging(import_number bigint)
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
    perform bds_feed.import_drop_comparison(import_number);
end
$$;
comment on function bds_feed.import_drop_staging(bigint) is 'Drops every table of an import';

create function bds_feed.import_drop_comparison(import_number bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    names constant text := '^((family|gone|use)_$|(map|lookup|ref|diff|mass|cook|link|candidate|open|rest)_)';
    name  text;
begin
    -- those of this role are of an earlier comparison; others are somebody's own
    for name in
        select format('pg_temp.%I', c.relname) from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind = 'r' and c.relname ~ names and c.relowner = 'bds_importer'::regrole
    loop
        execute 'drop table ' || name;
    end loop;
    for name in
        select format('staging.%I', c.relname) from pg_class c
        where c.relnamespace = 'staging'::regnamespace and c.relkind = 'r' and c.relname ^@ ('i' || import_number || '_') and strpos(c.relname, '@') > 0
    loop
        execute 'drop table ' || name;
    end loop;
    select c.relname into name from pg_class c
    where c.relnamespace = pg_my_temp_schema() and c.relname ~ names
        and exists (select from bds.entities e where strpos(c.relname, '_' || e.name) > 0 or c.relname ~ '_$');
    if found then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I, a name that the import needs', name),
            hint = 'drop or rename it, or run the import in another session';
    end if;
end
$$;
comment on function bds_feed.import_drop_comparison(bigint) is
    'Drops the tables of an earlier comparison, the temporary ones of this session; BD004 if one of somebody else''s is in the way';
