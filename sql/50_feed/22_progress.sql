-- Counts of an import under way, and what it has noted about its columns.

create function bds_feed.family_members()
    returns setof text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute 'select array_agg(f.name order by f.place) from pg_temp.family_ f group by f.family order by f.family desc';
end
$$;
comment on function bds_feed.family_members() is 'The staged entities of each family, those first that refer to others';

create function bds_feed.add_counts(counts jsonb, entity_name text, more jsonb)
    returns jsonb
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    return case when more is null then counts else counts || jsonb_build_object(entity_name, coalesce(counts -> entity_name, '{}') || (
        select coalesce(jsonb_object_agg(m.key, m.value::bigint + coalesce((counts -> entity_name ->> m.key)::bigint, 0)), '{}')
        from jsonb_each_text(more) m
    )) end;
comment on function bds_feed.add_counts(jsonb, text, jsonb) is 'Adds {created: 1, ...} to the counts of an entity';

create function bds_feed.count_map(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        update pg_temp.family_ f
        set rows = m.rows, failed = m.failed, writes = m.writes, updates = m.updates, deletes = m.deletes
        from (
            select count(*) as rows, count(*) filter (where failed) as failed, count(*) filter (where phase = 1 and not failed) as writes,
                count(*) filter (where phase = 2 and not failed) as updates, count(*) filter (where phase = 3 and not failed) as deletes
            from pg_temp.%I
        ) m
        where f.name = $1
        $sql$, 'map_' || entity_name
    ) using entity_name;
end
$$;
comment on function bds_feed.count_map(text) is 'Counts once what there is to do for an entity; to be called when records have failed';

create function bds_feed.counted(entity_name text, what text)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    counted bigint;
begin
    execute format('select f.%I from pg_temp.family_ f where f.name = $1', what) into counted using entity_name;
    return counted;
end
$$;
comment on function bds_feed.counted(text, text) is 'What count_map has counted: rows, failed, writes, updates (by condition), deletes';

create function bds_feed.count_failed(import_number bigint, counts jsonb)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    kept        bigint;
begin
    foreach entity_name in array bds_feed.import_order(import_number) loop
        -- rows that could not be removed
        execute format('select count(*) from %s e where e.entity = $1 and e.ordinal is null', bds_feed.staging_table(import_number, 'errors'))
            into kept using entity_name;
        counts := bds_feed.add_counts(counts, entity_name, jsonb_build_object('failed', bds_feed.counted(entity_name, 'failed') + kept));
    end loop;
    return counts;
end
$$;
comment on function bds_feed.count_failed(bigint, jsonb) is 'The counts, with those of the records that failed';

create function bds_feed.import_outcome(import_number bigint, counts jsonb)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    failed  bigint;
    kept    bigint;
    records bigint;
    deleted bigint := (select sum((c.value ->> 'deleted')::bigint) from jsonb_each(counts) c);
begin
    execute format(
        'select coalesce(sum(f.failed), 0), (select count(*) from %s where ordinal is null), sum(f.rows) from pg_temp.family_ f',
        bds_feed.staging_table(import_number, 'errors')
    ) into failed, kept, records;
    return case
        when failed + kept = 0 then 'completed'
        when failed > 0 and failed = records and coalesce(deleted, 0) = 0 then 'failed'
        else 'partial'
    end;
end
$$;
comment on function bds_feed.import_outcome(bigint, jsonb) is 'The state in which an import that has written ends';

create function bds_feed.note_columns(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute 'update pg_temp.family_ set columns = $1 where name = $2' using columns, entity_name;
end
$$;
comment on function bds_feed.note_columns(text, text[]) is 'Keeps which columns the staged rows of an entity give, for which all of them were read';

create function bds_feed.noted_columns(entity_name text)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    columns text[];
begin
    execute 'select f.columns from pg_temp.family_ f where f.name = $1' into columns using entity_name;
    return columns;
end
$$;
comment on function bds_feed.noted_columns(text) is 'What note_columns has kept';

create function bds_feed.mapped_parent(entity_name text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (select p.name from bds_feed.parent_of(entity_name) as p (name) where to_regclass('pg_temp.' || quote_ident('map_' || p.name)) is not null);
comment on function bds_feed.mapped_parent(text) is
    'The entity in whose records those of this one may stand, if its rows are mapped; null if not, or if they stand at the top level alone';
