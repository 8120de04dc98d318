-- Removing: rows that an array or a collection, given whole, no longer contains.

create function bds_feed.remove_children(import bds.imports, parent_name text, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    removed jsonb;
    child   record;
begin
    execute format('select bds_import.%I($1)', 'find_removed_' || parent_name) using import.company_id;
    if exists (select from pg_temp.feed_gone) then
        perform bds_feed.filled(import, 'feed_gone');
        execute format('select bds_import.%I($1, 0, $2)', 'remove_' || parent_name) into removed using import.company_id, 9223372036854775807;
        for child in select r.key as name, r.value as rows from jsonb_each(removed) r where r.value <> '0' loop
            counts := bds_feed.add_counts(counts, child.name, jsonb_build_object('deleted', child.rows));
        end loop;
        delete from pg_temp.feed_gone;
    end if;
    return counts;
end
$$;
comment on function bds_feed.remove_children(bds.imports, text, jsonb) is
    'Deletes the children that their parents'' arrays no longer contain; returns the counts with theirs';

create function bds_feed.hides_rows(entity_name text)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    is_so boolean;
begin
    -- all of them failed, or what says which row is meant is itself what is wrong
    execute bds_impl.fill(
        $sql$
        select f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp.{map:I} m join pg_temp.feed_errors e on e.entity = $1 and e.ordinal = m.ordinal
            where m.failed and (e.code = 'lookup_ambiguous' or (m.is_new and (e.field = any ($2) or {nameless})))
        ))
        from pg_temp.feed_entities f where f.name = $1
        $sql$,
        'map', 'map_' || entity_name, 'nameless', coalesce((
            select string_agg(format('m.%I is null', 'key_' || c.name), ' and ')
            from bds.import_columns c where c.entity = entity_name and c.is_unique
        ), 'true')
    ) into is_so using entity_name, bds_feed.lookup_kinds(entity_name);
    return is_so;
end
$$;
comment on function bds_feed.hides_rows(text) is 'Whether records of an entity failed that may mean any row: none may then be removed';

create function bds_feed.remove_all(import bds.imports, members text[], counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
begin
    foreach entity_name in array members loop
        continue when entity_name <> all (import.remove_all);
        if bds_feed.hides_rows(entity_name) then
            insert into pg_temp.feed_errors (entity, path, code, message, is_late)
            values (entity_name, entity_name || '@removeAll', 'batch_failed', 'nothing was removed: the rows of failed records are unknown', true);
            continue;
        end if;
        perform bds_feed.show_progress(import, 'removing', entity_name);
        execute format(
            'insert into pg_temp.feed_gone (entity, id, cause, ticket) select $2, t.id, $2, t.id from %s t '
            'where t.company_id = $1 and not exists (select from pg_temp.%I m where m.target = t.id)',
            (select e.table_name from bds_feed.entities e where e.name = entity_name), 'map_' || entity_name
        ) using import.company_id, entity_name;
    end loop;
    return bds_feed.delete_gone(import, true, counts);
end
$$;
comment on function bds_feed.remove_all(bds.imports, text[], jsonb) is
    'Deletes the rows that the document does not have, of those entities of a family that it gives whole; returns the counts with theirs';

create function bds_feed.note_kept(import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute (
        select bds_impl.fill(
            $sql$
            insert into pg_temp.feed_errors (entity, path, record, code, message, is_late)
            select {entity:L}, {path:L}, coalesce({record}), u.code, u.message, true
            from (select distinct on (u.ticket) u.* from pg_temp.feed_use u where u.cause = {entity:L} order by u.ticket, u.message) u
            join {table} t on t.company_id = $1 and t.id = u.ticket
            $sql$,
            'entity', entity_name, 'path', entity_name || '@removeAll', 'table', e.table_name::text,
            'record', concat_ws(', ', (
                select string_agg(format($f$%L || t.%I$f$, f.name || ':', f.column_name), ', ' order by f.ordinal)
                from bds.fields f where f.entity = entity_name and f.is_unique), $f$'id:' || t.id$f$))
        from bds_feed.entities e where e.name = entity_name
    ) using import.company_id;
    delete from pg_temp.feed_gone g using pg_temp.feed_use u where g.cause = entity_name and u.cause = entity_name and u.ticket = g.ticket;
end
$$;
comment on function bds_feed.note_kept(bds.imports, text) is 'Notes as errors of a collection why rows of feed_use stay, and takes them out of feed_gone';
