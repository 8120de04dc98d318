-- What a large import has staged: unlogged tables of the schema staging, one for each entity.

create function bds_feed.staging_table(import_number bigint, entity text)
    returns text
    language sql
    immutable
    return format('staging.%I', 'i' || import_number || '_' || entity);
comment on function bds_feed.staging_table(bigint, text) is
    'Name of the table that holds what a large import has staged of one entity';

create function bds_feed.model_of(entity_name text)
    returns text
    language sql
    stable
    -- the session that stages and the one that runs the import print the defaults of columns alike
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set intervalstyle = 'iso_8601'
    set bytea_output = 'hex'
    set extra_float_digits = 1
    set quote_all_identifiers = off
as $$
    select md5(t.definition || (
        select jsonb_agg(to_jsonb(c) - 'ordinal' order by c.name) from bds.import_columns c where c.entity = entity_name
    )::text)
    from bds_feed.tables t where t.entity = entity_name and t.name = 'staged_' || entity_name;
$$;
comment on function bds_feed.model_of(text) is
    'A hash of the columns and the staging table of an entity: an import continues after an upgrade if it is the same';

create or replace function bds_log.check_staging_company()
    returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(tg_argv[0]);
    return null;
end
$$;
comment on function bds_log.check_staging_company() is
    'Statement trigger: rows are staged by sessions of the import''s company alone';

create function bds_feed.make_staging(import bds.imports, table_name text, definition text)
    returns void
    language plpgsql
as $$
begin
    -- the drop would wait a second for each table until a running autovacuum is cancelled
    execute format(
        E'create unlogged table %s (%s\n) with (autovacuum_enabled = off)', table_name, replace(definition, '{storage}', '')
    );
    execute format(
        'create trigger own_company before insert on %s for each statement execute function bds_log.check_staging_company(%L)',
        table_name, import.company_id
    );
    -- sessions cannot read the rows: they may be of another company
    execute format('grant insert on %s to bds_writer, bds_operator', table_name);
end
$$;
comment on function bds_feed.make_staging(bds.imports, text, text) is
    'Makes a table of the schema staging, into which sessions of the import''s company may put rows';

create function bds_feed.drop_staging(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    name text;
begin
    perform bds_feed.drop_tables();
    for name in
        select format('staging.%I', c.relname) from pg_class c
        where c.relnamespace = 'staging'::regnamespace and c.relkind = 'r' and c.relname ^@ ('i' || import.number || '_')
    loop
        execute 'drop table ' || name;
    end loop;
end
$$;
comment on function bds_feed.drop_staging(bds.imports) is 'Drops every table of a large import';

create function bds_feed.staged_entities(import bds.imports)
    returns text[]
    language sql
    stable
as $$
    select array(
        select e.name from bds_feed.entities e where to_regclass(bds_feed.staging_table(import.number, e.name)) is not null);
$$;
comment on function bds_feed.staged_entities(bds.imports) is 'The entities of which a large import may have staged records';

create function bds_feed.count_staged(import bds.imports)
    returns bigint
    language plpgsql
    stable
as $$
declare
    entity_name text;
    staged      bigint;
    total       bigint := 0;
begin
    foreach entity_name in array bds_feed.staged_entities(import) loop
        execute format('select count(*) from %s where "@parent" is null', bds_feed.staging_table(import.number, entity_name))
            into staged;
        total := total + staged;
    end loop;
    return total;
end
$$;
comment on function bds_feed.count_staged(bds.imports) is
    'How many records of a large import are staged, at the top level; 0 after a crash of the database';
