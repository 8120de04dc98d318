-- Imports, the deleting: what the feed says is to go, and what it no longer contains.  A row that others refer to stays.

create or replace function bds.import_delete(company text, import_id uuid, entity_name text, counts jsonb, ordinals bigint[] default null)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.find_import(company, import_id, 'running');
    gone   text := format('pg_temp.%I', 'gone_' || entity_name);
    mass   record;
begin
    if bds.counted(entity_name, 'deletes') = 0 then
        return counts;
    end if;
    raise notice 'deleting %: 1 of 1 rows done', entity_name;
    execute format(
        'create temporary table %s as select m.ordinal, m.target as id from pg_temp.%I m '
        'where m.phase = 3 and m.target is not null and not m.failed and ($1 is null or m.ordinal = any ($1))',
        gone, 'map_' || entity_name
    ) using ordinals;
    for mass in execute format(
        'select m.ordinal from pg_temp.%I m join %s s on s."@ordinal" = m.ordinal '
        'where m.phase = 3 and s."@where" is not null and not m.failed and ($1 is null or m.ordinal = any ($1)) order by m.ordinal',
        'map_' || entity_name, bds.staging_table(import.number, entity_name)) using ordinals
    loop
        perform bds.find_hits(company, import.number, entity_name, mass.ordinal);
        execute format(
            'insert into %1$s select h.ordinal, h.target from pg_temp.%2$I h where not exists (select from %1$s g where g.id = h.target)', gone, 'hit_' || entity_name
        );
        execute format('drop table pg_temp.%I', 'hit_' || entity_name);
    end loop;
    perform bds.keep_in_use(company, import, entity_name);
    counts := bds.delete_gone(company, entity_name, counts);
    execute 'drop table ' || gone;
    return counts;
end
$$;
comment on function bds.import_delete(text, uuid, text, jsonb, bigint[]) is 'Deletes the rows that records say are to go; returns the counts with theirs';

create or replace function bds.delete_gone(company text, entity_name text, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    bds.entities;
    child   record;
    deleted bigint;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    -- children go along by their foreign key: deleting them first would be a change of the parent as well
    for child in select * from bds.children_of(entity_name) loop
        execute format(
            'select count(*) from %s t join pg_temp.%I g on t.%I = g.id where t.company_id = $1', child.table_name, 'gone_' || entity_name, child.column_name
        ) into deleted using company;
        counts := case when deleted > 0 then bds.add_counts(counts, child.target, jsonb_build_object('deleted', deleted)) else counts end;
    end loop;
    execute format('delete from %s t using pg_temp.%I g where t.company_id = $1 and t.id = g.id', this.table_name, 'gone_' || entity_name)
        using company;
    get diagnostics deleted = row_count;
    return bds.add_counts(counts, entity_name, jsonb_build_object('deleted', deleted));
end
$$;
comment on function bds.delete_gone(text, text, jsonb) is 'Deletes the rows of gone_<entity> with their children; returns the counts with theirs';

create or replace function bds.children_of(entity_name text)
    returns table (collection text, target text, table_name regclass, column_name name)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select n.name, n.target, e.table_name, f.column_name
        from bds.navigations n
        join bds.entities e on e.name = n.target
        join bds.fields f on f.entity = n.target and f.name = n.field
        where n.entity = entity_name and n.child
        order by n.ordinal;
    end;
comment on function bds.children_of(text) is 'The child collections of an entity, with their tables and the columns that lead to the parent';

create or replace function bds.uses_of(entity_name text)
    returns table (user_name text, user_table regclass, column_name name)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        -- by foreign keys that would refuse the delete; what goes along by itself is no hindrance
        select u.name, u.table_name, a.attname
        from bds.entities e
        join pg_constraint k on k.contype = 'f' and k.confrelid = e.table_name and k.confdeltype in ('a', 'r')
        join bds.entities u on u.table_name = k.conrelid
        cross join lateral unnest(k.conkey, k.confkey) as c (attnum, of_target)
        join pg_attribute t on t.attrelid = k.confrelid and t.attnum = c.of_target and t.attname = 'id'
        join pg_attribute a on a.attrelid = k.conrelid and a.attnum = c.attnum
        where e.name = entity_name
        order by u.ordinal, a.attnum;
    end;
comment on function bds.uses_of(text) is 'The columns that refer to rows of an entity';

create or replace function bds.keep_in_use(company text, import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    errors    text := bds.staging_table(import.number, 'errors');
    gone      text := format('pg_temp.%I', 'gone_' || entity_name);
    use       record;
    kept      bigint;
    found_any boolean;
begin
    loop
        found_any := false;
        for use in select * from bds.uses_of(entity_name) loop
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, code, message, is_late)
                select $2, g.ordinal, 'in_use', format('row %%s is referred to by %%s %%s', min(g.id), %3$L, min(t.id)), true
                from %2$s g join %4$s t on t.company_id = $1 and t.%5$I = g.id
                where %6$s and not exists (
                    select from %1$s e where e.entity = $2 and e.ordinal = g.ordinal and e.code = 'in_use'
                )
                group by g.ordinal
                $sql$,
                errors, gone, use.user_name, use.user_table, use.column_name,
                case when use.user_name = entity_name then format('not exists (select from %s o where o.id = t.id)', gone) else 'true' end
            ) using company, entity_name;
            get diagnostics kept = row_count;
            found_any := found_any or kept > 0;
        end loop;
        exit when not found_any;
        execute format(
            'update pg_temp.%I m set failed = true from %s e where e.entity = $1 and e.ordinal = m.ordinal and not m.failed', 'map_' || entity_name, errors
        ) using entity_name;
        if import.atomic = 'batch' then
            perform bds.fail_batches(import.number, entity_name, true);
        end if;
        perform bds.count_map(entity_name);
        -- without these, others may be in use
        execute format('delete from %s g using pg_temp.%I m where m.ordinal = g.ordinal and m.failed', gone, 'map_' || entity_name);
    end loop;
end
$$;
comment on function bds.keep_in_use(text, bds.imports, text) is
    'Fails the records that would delete a row to which others refer, and takes what they name out of gone_<entity>';

-- Removals -----------------------------------------------------------------------------------------------------------------------

create or replace function bds.import_remove(company text, import_id uuid, parent_name text, counts jsonb, ordinals bigint[] default null)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import  bds.imports := bds.find_import(company, import_id, 'running');
    child   record;
    deleted bigint;
begin
    for child in select * from bds.children_of(parent_name) loop
        execute format(
            $sql$
            delete from %1$s t
            using pg_temp.%2$I p join %3$s s on s."@ordinal" = p.ordinal
            where t.company_id = $1 and t.%4$I = p.target and s.%5$I and p.phase = 1 and not p.failed and not p.is_new
                and ($2 is null or p.ordinal = any ($2))%6$s
            $sql$,
            child.table_name, 'map_' || parent_name, bds.staging_table(import.number, parent_name), child.column_name,
            child.collection || '@present',
            case when to_regclass(format('pg_temp.%I', 'map_' || child.target)) is not null then
                -- a record that failed protects its row, too
                format(' and not exists (select from pg_temp.%I m where m.target = t.id)', 'map_' || child.target)
            else '' end
        ) using company, ordinals;
        get diagnostics deleted = row_count;
        counts := case when deleted > 0 then bds.add_counts(counts, child.target, jsonb_build_object('deleted', deleted)) else counts end;
    end loop;
    return counts;
end
$$;
comment on function bds.import_remove(text, uuid, text, jsonb, bigint[]) is
    'Deletes the children that their parents'' arrays no longer contain; returns the counts with theirs';

create or replace function bds.hides_rows(import_number bigint, entity_name text)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    keys    text[] := array(select 'id' union all select c.name from bds.import_columns c where c.entity = entity_name and c.is_unique);
    is_so   boolean;
begin
    -- all of them failed, or what says which row is meant is itself what is wrong
    execute format(
        $sql$
        select f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp.%1$I m join %2$s e on e.entity = $1 and e.ordinal = m.ordinal
            where m.failed and (e.code = 'lookup_ambiguous' or (m.is_new and (e.field = any ($2) or %3$s)))
        ))
        from pg_temp.family_ f where f.name = $1
        $sql$,
        'map_' || entity_name, bds.staging_table(import_number, 'errors'),
        coalesce((
            select string_agg(format('m.%I is null', 'key_' || c.name), ' and ')
            from bds.import_columns c where c.entity = entity_name and c.is_unique
        ), 'true')
    ) into is_so using entity_name, keys;
    return is_so;
end
$$;
comment on function bds.hides_rows(bigint, text) is 'Whether records of an entity failed that may mean any row: none may then be removed';

create or replace function bds.import_remove_all(company text, import_id uuid, entity_name text, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.find_import(company, import_id, 'running');
    this   bds.entities;
    gone   text := format('pg_temp.%I', 'gone_' || entity_name);
    use    record;
    own    text;
    kept   bigint;
begin
    if bds.hides_rows(import.number, entity_name) then
        execute format(
            'insert into %s (entity, path, code, message, is_late) values ($1, $2, ''batch_failed'', $3, true)', bds.staging_table(import.number, 'errors')
        ) using entity_name, entity_name || '@removeAll', 'nothing was removed: of records that failed it is not known which rows they mean';
        return counts;
    end if;
    select * into strict this from bds.entities e where e.name = entity_name;
    raise notice 'removing %: 1 of 1 rows done', entity_name;
    execute format(
        'create temporary table %s as select null::bigint as ordinal, t.id from %s t '
        'where t.company_id = $1 and not exists (select from pg_temp.%I m where m.target = t.id)',
        gone, this.table_name, 'map_' || entity_name
    ) using company;
    select string_agg(format($sql$%L || t.%I$sql$, f.name || ':', f.column_name), ', ' order by f.ordinal) into own
    from bds.fields f where f.entity = entity_name and f.is_unique;
    loop
        kept := 0;
        for use in select * from bds.uses_of(entity_name) loop
            execute format(
                $sql$
                with kept as (
                    delete from %1$s g using %2$s u
                    where u.company_id = $1 and u.%3$I = g.id%4$s
                    returning g.id
                ),
                noted as (
                    insert into %5$s (entity, path, record, code, message, is_late)
                    select %6$L, %7$L, coalesce(%8$s), 'in_use', format('row %%s is not in the feed, but %%s refer to it', t.id, %9$L), true
                    from (select distinct k.id from kept k) k join %10$s t on t.company_id = $1 and t.id = k.id
                    returning 1
                )
                select $2 + count(*) from noted
                $sql$,
                gone, use.user_table, use.column_name,
                case when use.user_name = entity_name then format(' and not exists (select from %s o where o.id = u.id)', gone) else '' end,
                bds.staging_table(import.number, 'errors'), entity_name, entity_name || '@removeAll',
                concat_ws(', ', own, $sql$'id:' || t.id$sql$), use.user_name, this.table_name
            ) into kept using company, kept;
        end loop;
        exit when kept = 0;
    end loop;
    counts := bds.delete_gone(company, entity_name, counts);
    execute 'drop table ' || gone;
    return counts;
end
$$;
comment on function bds.import_remove_all(text, uuid, text, jsonb) is
    'Deletes the rows of an entity that the document does not have; returns the counts with theirs';
