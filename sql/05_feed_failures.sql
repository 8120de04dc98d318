-- Imports, the failures: a record that is wrong takes along what cannot be without it, and in batch mode its batch.

create or replace function bds.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    errors      text := bds.staging_table(import.number, 'errors');
    entity_name text;
    has_errors  boolean;
begin
    execute format('select exists (select from %s where entity = any ($1))', errors) into has_errors using members;
    if not has_errors then
        return;
    end if;
    loop
        foreach entity_name in array members loop
            execute format(
                'update pg_temp.%I m set failed = true from %s e where e.entity = %L and e.ordinal = m.ordinal and not m.failed',
                'map_' || entity_name, errors, entity_name
            );
        end loop;
        perform bds.spread_failures(import, members);
        -- rows of the same family that refer to a new row which will not come to be
        exit when not bds.fail_orphans(import.number, members);
    end loop;
    foreach entity_name in array members loop
        execute format(
            'delete from pg_temp.%1$I d using pg_temp.%2$I m where m.ordinal = d."@ordinal" and m.failed',
            'diff_' || entity_name, 'map_' || entity_name
        );
    end loop;
end
$$;
comment on function bds.mark_failed(bds.imports, text[]) is 'Marks the rows of a family that fail, with those that fail because of them';

create or replace function bds.spread_failures(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child text;
    pairs constant text := 'update pg_temp.%1$I a set failed = true from pg_temp.%2$I b where %3$s and b.failed and not a.failed';
begin
    -- a failing child fails its parent: from the leaves up
    for child in select m.name from unnest(members) with ordinality as m (name, n) where m.n > 1 order by m.n desc loop
        execute format(pairs, 'map_' || bds.parent_of(child), 'map_' || child, 'a.ordinal = b.parent');
    end loop;
    if import.atomic = 'batch' then
        perform bds.fail_batches(import.number, m.name) from unnest(members) as m (name);
    end if;
    -- and a failing parent its children: from the root down
    for child in select m.name from unnest(members) with ordinality as m (name, n) where m.n > 1 order by m.n loop
        execute format(pairs, 'map_' || child, 'map_' || bds.parent_of(child), 'a.parent = b.ordinal');
    end loop;
end
$$;
comment on function bds.spread_failures(bds.imports, text[]) is 'A failing child fails its parent, that its other children, and in batch mode its batch';

create or replace function bds.parent_of(entity_name text)
    returns text
    language sql
    stable
    return (
        select n.target from bds.entities e
        join bds.navigations n on n.entity = e.name and n.name = e.parent_navigation and not n.many
        where e.name = entity_name
    );
comment on function bds.parent_of(text) is 'The entity that a child entity''s rows are nested in, or null';

create or replace function bds.fail_batches(import_number bigint, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    batch record;
begin
    for batch in execute format(
        $sql$
        select m.position / 10000 as number, min(m.ordinal) as first, count(*) as records, count(*) filter (where m.failed) as failures
        from pg_temp.%I m where m.parent is null group by 1 having bool_or(m.failed)
        order by 1
        $sql$, 'map_' || entity_name)
    loop
        execute format(
            'update pg_temp.%I m set failed = true where m.parent is null and m.position / 10000 = $1 and not m.failed',
            'map_' || entity_name
        ) using batch.number;
        execute format(
            'insert into %1$s (entity, ordinal, code, message) select $1, $2, ''batch_failed'', $3 '
            'where not exists (select from %1$s where entity = $1 and ordinal = $2 and code = ''batch_failed'')',
            bds.staging_table(import_number, 'errors')
        ) using entity_name, batch.first, format(
            'the batch %s[%s..%s] was not written, because of %s in it that failed',
            entity_name, batch.number * 10000, batch.number * 10000 + batch.records - 1,
            case batch.failures when 1 then 'a record' else batch.failures || ' records' end
        );
    end loop;
end
$$;
comment on function bds.fail_batches(bigint, text) is 'Fails every batch of 10,000 top-level records in which one fails';

create or replace function bds.fail_orphans(import_number bigint, members text[])
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
        select c.entity, c.name, c.target
        from bds.import_columns c
        where c.entity = any (members) and c.target = any (members)
            and to_regclass(format('pg_temp.%I', 'ref_' || c.entity || '_' || c.name)) is not null
    loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, s."@ordinal", %3$L, 'lookup_not_found', format('%%s has no row %%s: the record of this document failed', %4$L, r.lookup)
            from %5$s s
            join pg_temp.%6$I r on r.lookup = s.%3$I
            join pg_temp.%7$I t on t.target = r.id and t.failed and t.is_new
            join pg_temp.%8$I m on m.ordinal = s."@ordinal" and not m.failed
            $sql$,
            bds.staging_table(import_number, 'errors'), reference.entity, reference.name, reference.target,
            bds.staging_table(import_number, reference.entity), 'ref_' || reference.entity || '_' || reference.name,
            'map_' || reference.target, 'map_' || reference.entity
        );
        get diagnostics changed = row_count;
        found_any := found_any or changed > 0;
    end loop;
    return found_any;
end
$$;
comment on function bds.fail_orphans(bigint, text[]) is 'Fails rows that refer to a failed new row of the same family; true if there were any';

create or replace function bds.import_may_write(company text, import_id uuid)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import     bds.imports := bds.find_import(company, import_id, 'running');
    has_errors boolean;
begin
    if import.atomic <> 'true' then
        return true;
    end if;
    execute format('select exists (select from %s)', bds.staging_table(import.number, 'errors')) into has_errors;
    return not has_errors;
end
$$;
comment on function bds.import_may_write(text, uuid) is 'False when all or nothing was asked for and something fails';
