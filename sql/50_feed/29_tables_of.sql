-- Every table of an entity in an import (see 12_tables.sql).

create function bds_feed.tables_of(entity_name text)
    returns table (name text, definition text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select 'staged_' || entity_name, bds_feed.staged_definition(entity_name)
        union all
        select 'map_' || entity_name, bds_feed.map_definition(entity_name)
        union all
        select 'diff_' || entity_name, bds_feed.diff_definition(entity_name)
        union all
        select t.prefix || bds_feed.reference_name(entity_name, c.name), t.definition
        from bds.import_columns c
        cross join (values
            ('lookup_', 'lookup text {storage}, kind text {storage}, value text {storage}'),
            ('ref_', 'lookup text {storage}, kind text {storage}, id bigint')
        ) as t (prefix, definition)
        where c.entity = entity_name and c.target is not null
        union all
        select l.name, l.definition from bds_feed.linkage_tables(entity_name) l where not bds_feed.has_keys(entity_name);
    end;
comment on function bds_feed.tables_of(text) is 'The tables of one entity in an import, with the definitions of their columns';

