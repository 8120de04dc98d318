-- Imports, the failures: a record that is wrong takes along what cannot be without it, and in batch mode its batch.

create function bds_feed.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
begin
    if not bds_feed.has_errors(import.number, members) then
        return;
    end if;
    loop
        perform bds_feed.mark_known(import.number, members);
        perform bds_feed.spread_failures(import, members);
        -- rows of the same family that refer to what will not come to be
        exit when not bds_feed.fail_orphans(import.number, members);
    end loop;
    foreach entity_name in array members loop
        execute format(
            'delete from pg_temp.%1$I d using pg_temp.%2$I m where m.ordinal = d."@ordinal" and m.failed',
            'diff_' || entity_name, 'map_' || entity_name
        );
    end loop;
end
$$;
comment on function bds_feed.mark_failed(bds.imports, text[]) is 'Marks the rows of a family that fail, with those that fail because of them';

create function bds_feed.spread_failures(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child text;
    pairs constant text := 'update pg_temp.%1$I a set failed = true from pg_temp.%2$I b where %3$s and b.failed and not a.failed';
begin
    -- a failing child fails its parent: from the leaves up
    for child in select m.name from unnest(members) with ordinality as m (name, n) where bds_feed.parent_of(m.name) = any (members) order by m.n desc loop
        execute format(pairs, 'map_' || bds_feed.parent_of(child), 'map_' || child, 'a.ordinal = b.parent');
    end loop;
    if import.atomic = 'batch' then
        perform bds_feed.fail_batches(import.number, m.name) from unnest(members) as m (name);
    end if;
    -- and a failing parent its children: from the root down
    for child in select m.name from unnest(members) with ordinality as m (name, n) where bds_feed.parent_of(m.name) = any (members) order by m.n loop
        execute format(pairs, 'map_' || child, 'map_' || bds_feed.parent_of(child), 'a.parent = b.ordinal');
    end loop;
end
$$;
comment on function bds_feed.spread_failures(bds.imports, text[]) is 'A failing child fails its parent, that its other children, and in batch mode its batch';

create function bds_feed.fail_orphans(import_number bigint, members text[])
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    reference record;
    found_any boolean := false;
    changed   bigint;
begin
    for reference in
        select c.entity, c.name, c.target, e.table_name
        from bds.import_columns c join bds.entities e on e.name = c.target
        where c.entity = any (members) and c.target = any (members)
            and to_regclass(bds_feed.reference_table(import_number, c.entity, c.name)) is not null
    loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, s."@ordinal", %3$L, 'lookup_not_found', format('%%s has no row %%s: the record of this document failed', %4$L, r.lookup)
            from %5$s s
            join %6$s r on r.lookup = s.%3$I
            join pg_temp.%7$I t on t.target = r.id and t.failed
            join pg_temp.%8$I m on m.ordinal = s."@ordinal" and not m.failed
            where (t.is_new or not exists (select from %9$s x where x.id = t.target and case r.kind when 'id' then true %10$s end))
                -- a second record of the row, which is refused, takes no name from the first
                and not exists (select from pg_temp.%7$I o where o.target = t.target and not o.failed and case r.kind when 'id' then true %11$s end)
            $sql$,
            bds_feed.staging_table(import_number, 'errors'), reference.entity, reference.name, reference.target,
            bds_feed.staging_table(import_number, reference.entity), bds_feed.reference_table(import_number, reference.entity, reference.name),
            'map_' || reference.target, 'map_' || reference.entity, reference.table_name, (
                select string_agg(format('when %L then x.%I = %s',
                    c.name, c.column_name, bds_feed.named_value(bds_feed.lookup_value('r.lookup'), c.type, c.sql_type)), ' ' order by c.ordinal)
                from bds.import_columns c where c.entity = reference.target and c.is_unique
            ), (
                select string_agg(format('when %L then o.%I = %s',
                    c.name, 'key_' || c.name, bds_feed.named_value(bds_feed.lookup_value('r.lookup'), c.type, c.sql_type)), ' ' order by c.ordinal)
                from bds.import_columns c where c.entity = reference.target and c.is_unique
            )
        );
        get diagnostics changed = row_count;
        found_any := found_any or changed > 0;
    end loop;
    return found_any;
end
$$;
comment on function bds_feed.fail_orphans(bigint, text[]) is
    'Fails rows that refer to a failed row of the same family by a name that it would only have got; true if there were any';
