-- Imports, the removing: rows that an array or a collection, given whole, no longer contains.

create function bds_feed.import_remove(company text, import_id uuid, parent_name text, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    import  bds.imports := bds.open_import(company, import_id, 'running');
    child   record;
    whole   bigint;
    deleted bigint;
begin
    for child in select * from bds_feed.children_of(parent_name) loop
        whole := bds_feed.count_whole(import.number, parent_name, child.collection);
        continue when whole = 0;
        perform bds_feed.make_gone();
        deleted := bds_feed.find_removed(company, import.number, parent_name, child.collection, whole);
        if deleted > 0 then
            deleted := bds_feed.delete_removed(company, child.table_name, deleted);
            counts := bds_feed.add_counts(counts, child.target, jsonb_build_object('deleted', deleted));
        end if;
        drop table pg_temp.gone_, pg_temp.use_;
    end loop;
    return counts;
end
$$;
comment on function bds_feed.import_remove(text, uuid, text, jsonb) is
    'Deletes the children that their parents'' arrays no longer contain; returns the counts with theirs';

create function bds_feed.given_whole(import_number bigint, parent_name text, collection text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return format(
        'pg_temp.%I p join %s s on s."@ordinal" = p.ordinal where s.%I and p.phase = 1 and not p.failed and not p.is_new',
        'map_' || parent_name, bds_feed.staging_table(import_number, parent_name), collection || '@present');
comment on function bds_feed.given_whole(bigint, text, text) is 'SQL for the stored parents p whose array of this name is given whole';

create function bds_feed.count_whole(import_number bigint, parent_name text, collection text)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    whole bigint;
begin
    execute 'select count(*) from ' || bds_feed.given_whole(import_number, parent_name, collection) into whole;
    return whole;
end
$$;
comment on function bds_feed.count_whole(bigint, text, text) is 'How many arrays of this name are given whole';

create function bds_feed.find_removed(company text, import_number bigint, parent_name text, collection text, whole bigint)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child      record;
    found_rows bigint;
begin
    select * into strict child from bds_feed.children_of(parent_name) c where c.collection = find_removed.collection;
    execute format(
        -- all children first: the planner, who expects few, would look for each parent's through the whole document
        'insert into pg_temp.gone_ (entity, id, cause, ticket) select %L, c.id, %L, c.ordinal '
        'from (select t.id, p.ordinal from (select p.* from %s) p %s where t.id is not null offset 0) c%s',
        child.target, parent_name, bds_feed.given_whole(import_number, parent_name, collection),
        bds_feed.stored_join(child.table_name, 't', child.column_name, 'p.target', bds_feed.finds_few(whole, child.table_name, company, child.column_name)),
        case when to_regclass(format('pg_temp.%I', 'map_' || child.target)) is not null then
            -- a record that failed protects its row, too
            format(' where not exists (select from pg_temp.%I m where m.target = c.id)', 'map_' || child.target)
        else '' end
    ) using company;
    get diagnostics found_rows = row_count;
    return found_rows;
end
$$;
comment on function bds_feed.find_removed(text, bigint, text, text, bigint) is
    'Puts the children that their parents'' arrays no longer contain, which are given whole so often, into gone_, by the parent; returns how many';

create function bds_feed.delete_removed(company text, table_name regclass, rows bigint)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
    set enable_hashjoin = on
    set enable_mergejoin = off
    set enable_material = on
as $$
declare
    deleted bigint;
begin
    if bds_feed.finds_few(rows, table_name, company) then
        perform bds_feed.plan_for_ranges();
        execute bds_feed.range_statement(table_name, '(select g.id from pg_temp.gone_ g)', 'delete') using company;
    else
        execute format('delete from %s t using pg_temp.gone_ g where t.company_id = $1 and t.id = g.id', table_name) using company;
    end if;
    get diagnostics deleted = row_count;
    return deleted;
end
$$;
comment on function bds_feed.delete_removed(text, regclass, bigint) is 'Deletes the rows of gone_, which are so many; returns how many it has deleted';

create function bds_feed.hides_rows(import_number bigint, entity_name text)
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
        'map_' || entity_name, bds_feed.staging_table(import_number, 'errors'),
        coalesce((
            select string_agg(format('m.%I is null', 'key_' || c.name), ' and ')
            from bds.import_columns c where c.entity = entity_name and c.is_unique
        ), 'true')
    ) into is_so using entity_name, keys;
    return is_so;
end
$$;
comment on function bds_feed.hides_rows(bigint, text) is 'Whether records of an entity failed that may mean any row: none may then be removed';

create function bds_feed.import_remove_all(company text, import_id uuid, members text[], counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    import      bds.imports := bds.open_import(company, import_id, 'running');
    entity_name text;
begin
    if not members && import.remove_all then
        return counts;
    end if;
    perform bds_feed.make_gone();
    foreach entity_name in array members loop
        continue when entity_name <> all (import.remove_all);
        if bds_feed.hides_rows(import.number, entity_name) then
            execute format(
                'insert into %s (entity, path, code, message, is_late) values ($1, $2, ''batch_failed'', $3, true)', bds_feed.staging_table(import.number, 'errors')
            ) using entity_name, entity_name || '@removeAll', 'nothing was removed: the rows of failed records are unknown';
            continue;
        end if;
        raise notice 'removing %: 1 of 1 rows done', entity_name;
        execute format(
            'insert into pg_temp.gone_ (entity, id, cause, ticket) select $2, t.id, $2, t.id from %s t '
            'where t.company_id = $1 and not exists (select from pg_temp.%I m where m.target = t.id)',
            (select e.table_name from bds.entities e where e.name = entity_name), 'map_' || entity_name
        ) using company, entity_name;
    end loop;
    counts := bds_feed.delete_gone(company, import, true, counts);
    drop table pg_temp.gone_, pg_temp.use_;
    return counts;
end
$$;
comment on function bds_feed.import_remove_all(text, uuid, text[], jsonb) is
    'Deletes the rows that the document does not have, of those entities of a family that it gives whole; returns the counts with theirs';

create function bds_feed.note_kept(company text, import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds.entities;
    own  text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    select string_agg(format($sql$%L || t.%I$sql$, f.name || ':', f.column_name), ', ' order by f.ordinal) into own
    from bds.fields f where f.entity = entity_name and f.is_unique;
    execute format(
        $sql$
        insert into %1$s (entity, path, record, code, message, is_late)
        select %2$L, %3$L, coalesce(%4$s), u.code, u.message, true
        from (select distinct on (u.ticket) u.* from pg_temp.use_ u where u.cause = %2$L order by u.ticket, u.message) u
        join %5$s t on t.company_id = $1 and t.id = u.ticket
        $sql$,
        bds_feed.staging_table(import.number, 'errors'), entity_name, entity_name || '@removeAll', concat_ws(', ', own, $sql$'id:' || t.id$sql$), this.table_name
    ) using company;
    execute 'delete from pg_temp.gone_ g using pg_temp.use_ u where g.cause = $1 and u.cause = $1 and u.ticket = g.ticket' using entity_name;
end
$$;
comment on function bds_feed.note_kept(text, bds.imports, text) is 'Notes as errors of a collection why rows of use_ stay, and takes them out of gone_';
