-- The tables of an import.  A small import has them all as temporary tables of its session, which stay for the next one and are
-- emptied by the commit: after the first import of a session no catalog row is written.  A large one has them anew, and what it
-- stages, in many transactions, lies in unlogged tables of the schema staging, of which the temporary views show it under the same
-- names.  For an entity E:
--
--     staged_E   "@ordinal" numbers the records, "@parent" is the parent record's number, "@position" the place in its array
--                ("@ordinal" if null), "@id" the record's own lookup, "@operation", "@where" with its "@lookups" ([[entity, field,
--                value], ...]); then text under the names of the document: absent is null, the document's null is chr(1);
--                "<array>@present": true if the array is given whole
--     lookup_E_R the distinct lookups in the reference R: lookup, kind, value
--     ref_E_R    what they name: lookup, kind, id
--     map_E      which row each record means: ordinal, parent, position; phase (1 writes, 2 updates by a condition, 3 deletes),
--                operation; target (the row's id, taken ahead for a new row), is_new, is_ambiguous, is_same (changes nothing),
--                failed; id and id_kind (the record's own lookup), key_<unique field>;
--                without unique fields home (the id of the parent's row), place (among the items of it), shape (a bit for each field given)
--     diff_E     the rows to be written: "@ordinal", "@new", id, every column as it is to become
--
-- and for the import as a whole:
--
--     feed_entities  the staged entities: place, family, columns (that a record gives), is_valid (every value is one of its type),
--                    rows, and of them failed, writes, updates, deletes
--     feed_errors    errors of records (path and record if there is none); is_late if found while writing; is_kept if it outlives a
--                    comparison
--     feed_done      what was done to the rows of an entity, step by step: created, updated, deleted, unchanged
--     feed_gone      rows that go: entity, id; kind, cause and ticket, why they go (62_delete.sql); along if a foreign key takes them
--                    along; n numbers the tickets when they are tried singly
--     feed_use       what has to stay after all: kind, cause, ticket, code, message

create table bds_feed.tables (
    entity      text collate "C" not null,
    name        text collate "C" not null,
    definition  text not null,

    primary key (entity, name)
);
comment on table bds_feed.tables is 'What bds_feed.tables_of gives, kept because a small import asks for it; the entity of common tables is *';
comment on column bds_feed.tables.entity is 'The entity; * for the common tables';
comment on column bds_feed.tables.name is 'The table''s name';
comment on column bds_feed.tables.definition is 'Its columns; {storage} stands where a small import stores values plainly';

create function bds_feed.rows_of(table_name text)
    returns text
    language sql
    stable
    return (select format('table (%s)', replace(t.definition, '{storage}', '')) from bds_feed.tables t where t.name = table_name);
comment on function bds_feed.rows_of(text) is 'The result of a function that returns rows of a table';

create function bds_feed.staging_table(import_number bigint, entity text)
    returns text
    language sql
    immutable
    return format('staging.%I', 'i' || import_number || '_' || entity);
comment on function bds_feed.staging_table(bigint, text) is 'Name of the table that holds what a large import has staged of one entity';

create table bds_feed.state (version text primary key);
comment on table bds_feed.state is 'One row: changes whenever an entity is installed, so that no session keeps tables of the entity as it was';
comment on column bds_feed.state.version is 'Part of the name of a table by which a session knows that its tables are of this version';
insert into bds_feed.state values ('');

create function bds_feed.open_common_tables(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    -- tables of another kind of import, or of entities as they were, are of no use
    mark text := (select format('feed_%s_%s', case when import.is_small then 'small' else 'large' end, s.version) from bds_feed.state s);
begin
    if not bds_feed.is_open(mark) then
        perform bds_feed.drop_tables();
        execute format('create temporary table %I ()', mark);
        perform bds_feed.open_table(import, t) from bds_feed.tables t where t.entity = '*';
    end if;
end
$$;
comment on function bds_feed.open_common_tables(bds.imports) is 'Sees to the tables that every import needs, and that no others are in their way';

create function bds_feed.open_tables(import bds.imports, entity_names text[])
    returns void
    language plpgsql
as $$
declare
    wanted bds_feed.tables;
begin
    for wanted in
        select t.* from bds_feed.tables t
        where (t.entity = any (entity_names) or t.name = 'map_' || t.entity and t.entity in (
                select b.name from bds_feed.entities e cross join lateral unnest(e.beside) as b (name) where e.name = any (entity_names)))
            and not bds_feed.is_open(t.name)
    loop
        perform bds_feed.open_table(import, wanted);
    end loop;
end
$$;
comment on function bds_feed.open_tables(bds.imports, text[]) is
    'Sees to the tables of these entities; BD004 if a temporary table of somebody else''s has one of their names';

create function bds_feed.is_open(table_name text)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relname = table_name and c.relowner = to_regrole('bds_importer')
    );
comment on function bds_feed.is_open(text) is 'Whether this session has a table of imports of this name';

create function bds_feed.open_table(import bds.imports, wanted bds_feed.tables)
    returns void
    language plpgsql
as $$
declare
    -- where what is staged lies; the records that could contain those of the document need not be staged
    stage regclass := case
        when import.is_small then null
        when wanted.name = 'feed_errors' then to_regclass(bds_feed.staging_table(import.number, 'errors'))
        when wanted.name ^@ 'staged_' then to_regclass(bds_feed.staging_table(import.number, wanted.entity))
    end;
begin
    if to_regclass(format('pg_temp.%I', wanted.name)) is not null then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I, a name that the import needs', wanted.name),
            hint = 'drop or rename it, or run the import in another session';
    elsif stage is not null then
        execute format('create temporary view %I as select * from %s', wanted.name, stage);
        return;
    end if;
    -- To empty a table that can hold long values takes a commit forty times as long.  A small import has none: rows that do not fit
    -- into a page without them raise 54000, and the document is imported as a large one.
    execute format('create temporary table %I (%s) on commit delete rows', wanted.name,
        replace(wanted.definition, '{storage}', case when import.is_small then 'storage plain' else '' end));
end
$$;
comment on function bds_feed.open_table(bds.imports, bds_feed.tables) is 'Makes a temporary table of an import, or the view of what it has staged';

create function bds_feed.drop_tables()
    returns void
    language plpgsql
as $$
declare
    dropped record;
begin
    for dropped in
        select format('pg_temp.%I', c.relname) as name, case c.relkind when 'v' then 'view' else 'table' end as kind from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind in ('r', 'v') and c.relowner = 'bds_importer'::regrole
    loop
        execute format('drop %s %s', dropped.kind, dropped.name);
    end loop;
end
$$;
comment on function bds_feed.drop_tables() is 'Drops the tables of imports that this session has';

create function bds_feed.empty_tables(entity_names text[], all_tables boolean)
    returns void
    language plpgsql
as $$
declare
    name text;
begin
    for name in
        select t.name from bds_feed.tables t
        where t.entity = any (entity_names) and not t.name ^@ 'staged_' or all_tables and t.entity = any (entity_names || '*'::text)
    loop
        execute format('delete from pg_temp.%I', name);
    end loop;
    delete from pg_temp.feed_errors where not is_kept;
    delete from pg_temp.feed_done;
    delete from pg_temp.feed_gone;
end
$$;
comment on function bds_feed.empty_tables(text[], boolean) is
    'Forgets an earlier comparison of the same import; with all_tables an earlier import of the same transaction';

create function bds_feed.filled(import bds.imports, table_name text)
    returns void
    language plpgsql
as $$
begin
    if not import.is_small then
        execute format('analyze pg_temp.%I', table_name);
    end if;
end
$$;
comment on function bds_feed.filled(bds.imports, text) is
    'To be called when a temporary table has got its rows: a large import is planned by statistics, a small one has its plans already';

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

create function bds_feed.make_staging(import bds.imports, table_name text, definition text)
    returns void
    language plpgsql
as $$
begin
    -- an autovacuum at work would make the drop wait a second until it is cancelled, table by table
    execute format('create unlogged table %s (%s) with (autovacuum_enabled = off)', table_name, replace(definition, '{storage}', ''));
    execute format(
        'create trigger own_company before insert on %s for each statement execute function bds_log.check_staging_company(%L)',
        table_name, import.company_id
    );
    -- rows go in, and nothing comes out: what another company stages is nobody's to read
    execute format('grant insert on %s to bds_writer, bds_operator', table_name);
end
$$;
comment on function bds_feed.make_staging(bds.imports, text, text) is 'Makes a table of the schema staging, into which sessions of the import''s company may put rows';

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
    language plpgsql
    stable
as $$
begin
    if import.is_small then
        return array(select f.name from pg_temp.feed_entities f order by f.place);
    end if;
    return array(
        select e.name from bds_feed.entities e where to_regclass(bds_feed.staging_table(import.number, e.name)) is not null order by e.place);
end
$$;
comment on function bds_feed.staged_entities(bds.imports) is 'The entities of which records may be staged, each after those that it refers to';

create function bds_feed.count_staged(import bds.imports, of_all boolean default false)
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
        execute format('select count(*) from %s where "@parent" is null or $1', bds_feed.staging_table(import.number, entity_name))
            into staged using of_all;
        total := total + staged;
    end loop;
    return total;
end
$$;
comment on function bds_feed.count_staged(bds.imports, boolean) is 'How many records of a large import are staged, those at the top level alone unless told of_all; none when the database has crashed since';

create function bds_feed.tables_of(entity_name text)
    returns table (name text, definition text)
    language sql
    stable
    begin atomic
        select t.name || '_' || entity_name, t.definition || coalesce(t.columns, t.otherwise, '')
        from (
            select 'staged' as name, '"@ordinal" bigint generated by default as identity (minvalue 0), "@parent" bigint, "@position" bigint, '
                '"@id" text {storage}, "@operation" text {storage}, "@where" text {storage}, "@lookups" text {storage}' as definition, concat(
                (select string_agg(format(', %I text {storage}', c.name), '' order by c.ordinal) from bds.import_columns c where c.entity = entity_name),
                (select string_agg(format(', %I boolean', n.name || '@present'), '' order by n.ordinal)
                from bds.navigations n where n.entity = entity_name and n.child)
            ) as columns, null as otherwise
            union all
            select 'map', 'ordinal bigint, parent bigint, "position" bigint, phase int, operation text {storage}, target bigint, is_new boolean, '
                'is_ambiguous boolean, is_same boolean, failed boolean, id text {storage}, id_kind text {storage}', (
                select string_agg(format(', %I %s {storage}', 'key_' || c.name, c.sql_type), '' order by c.ordinal)
                from bds.import_columns c where c.entity = entity_name and c.is_unique
            ), ', home bigint, place bigint, shape bigint'
            union all
            select 'diff', '"@ordinal" bigint, id bigint, "@new" boolean', (
                select string_agg(format(', %I %s {storage}', c.column_name, c.sql_type), '' order by c.ordinal)
                from bds.import_columns c where c.entity = entity_name
            ), null
            union all
            select w.name, w.definition, (
                select string_agg(format(w.hashes, n), '' order by n)
                from generate_series(1, (select count(*) from bds.import_columns c where c.entity = entity_name and not c.is_parent)) as n
            ), null
            from (values
                ('named', 'ordinal bigint, id bigint', ''),  -- items that carry the id of a row
                -- items without a row, of homes with rows left, and where they may want another's row all items of the home.  key: equal
                -- for items that agree with the same rows; was: a target that another may want more
                ('item', 'ordinal bigint, home bigint, place bigint, shape bigint, key bigint, target bigint, was bigint', ', h%1$s bigint'),
                -- all rows of the homes of such items.  filled: a bit for each field that is not as null leaves it
                ('row', 'id bigint, home bigint, place bigint, is_free boolean, filled bigint', ', h%s bigint'),
                ('fit', 'key bigint, id bigint, more int', ''),  -- rows that agree with items of the key; more: fields they fill beside those given
                ('way', 'key bigint, level int', ''),  -- keys of rows that can be had: of a free one at level 0, or that of an item of one level less
                ('term', 'hash bigint, n bigint, total bigint, gain float8', ''),  -- values of items; n of the home's total rows have it
                ('pair', 'ordinal bigint, id bigint, weight float8, tie bigint', '')
            ) as w (name, definition, hashes)
            where not exists (select from bds.import_columns c where c.entity = entity_name and c.is_unique)
        ) t
        union all
        select t.prefix || bds_feed.reference_name(entity_name, c.name), t.definition
        from bds.import_columns c
        cross join (values
            ('lookup_', 'lookup text {storage}, kind text {storage}, value text {storage}'),
            ('ref_', 'lookup text {storage}, kind text {storage}, id bigint')
        ) as t (prefix, definition)
        where c.entity = entity_name and c.target is not null;
    end;
comment on function bds_feed.tables_of(text) is 'The tables of one entity in an import, with the definitions of their columns';

insert into bds_feed.tables (entity, name, definition) values
    ('*', 'feed_entities', 'name text {storage}, place int, family int, columns text[] {storage}, is_valid boolean, rows bigint default 0, '
        'failed bigint default 0, writes bigint default 0, updates bigint default 0, deletes bigint default 0'),
    ('*', 'feed_errors', 'entity text {storage}, ordinal bigint, field text {storage}, code text {storage}, message text {storage}, '
        'path text {storage}, record text {storage}, is_late boolean default false, is_kept boolean default false'),
    ('*', 'feed_done', 'entity text {storage}, created bigint, updated bigint, deleted bigint, unchanged bigint'),
    ('*', 'feed_gone', 'entity text {storage}, id bigint, kind text {storage}, cause text {storage}, ticket bigint, along boolean default false, n bigint'),
    ('*', 'feed_use', 'kind text {storage}, cause text {storage}, ticket bigint, code text {storage}, message text {storage}');
