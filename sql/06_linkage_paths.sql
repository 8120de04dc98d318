-- Record linkage, the second look: a row that finds every row like it taken may have one all the same, if who has it can do with another.
--
-- Without this a document that is sent again could change something: where items give different fields, the first of them may take
-- the row that the second was, although another would do as well.  What is tried is bounded; rows beyond that stay as they were linked.

create or replace function bds.make_room(entity_name text, columns text[], shape bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    crowded  record;
    is_first boolean := true;
    has_any  boolean := false;
begin
    for crowded in select * from bds.find_crowded(entity_name, columns, shape) loop
        if is_first then
            execute format('create index if not exists %I on pg_temp.%I (ordinal)', 'cook_of_' || entity_name, 'cook_' || entity_name);
            execute format('create index if not exists %I on pg_temp.%I (parent_id)', 'candidates_of_' || entity_name, 'candidate_' || entity_name);
            execute format('create index if not exists %I on pg_temp.%I (parent_id)', 'rest_of_' || entity_name, 'rest_' || entity_name);
            execute format('create index if not exists %I on pg_temp.%I (id)', 'linked_of_' || entity_name, 'link_' || entity_name);
            execute format('create index if not exists %I on pg_temp.%I (ordinal)', 'links_of_' || entity_name, 'link_' || entity_name);
            is_first := false;
        end if;
        has_any := bds.make_room_for(entity_name, columns, crowded.ordinal, greatest(10, 20000 / crowded.rows)) or has_any;
    end loop;
    return has_any;
end
$$;
comment on function bds.make_room(text, text[], bigint) is
    'Links staged rows of a shape that are open, although stored rows agree with them in all they give, but are taken; whether any was linked';

create or replace function bds.find_crowded(entity_name text, columns text[], shape bigint)
    returns table (ordinal bigint, rows bigint)
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    content text := (
        select string_agg(format('r.%I', '=' || l.column_name), ', ' order by l.n) from bds.linkage_columns(entity_name, columns) l
        where shape & (1::bigint << l.n::int) <> 0
    );
begin
    -- a row of a document that is sent again is among them, one that has changed is not
    return query execute format(
        $sql$
        with open as materialized (
            select r.ordinal, r.parent_id, hash_record_extended(row(%1$s), 0) as hash from pg_temp.%2$I r where r.shape = $1
        ),
        taken as materialized (
            select r.id, r.parent_id, hash_record_extended(row(%1$s), 0) as hash from pg_temp.%3$I r
            where r.parent_id in (select o.parent_id from open o)
        )
        select c.ordinal, c.rows
        from (
            select o.ordinal, p.rows, sum(p.rows) over (order by o.ordinal) as work
            from open o
            join (select distinct t.parent_id, t.hash from taken t join pg_temp.%4$I l on l.id = t.id) t on t.parent_id = o.parent_id and t.hash = o.hash
            join (select t.parent_id, count(*) as rows from taken t group by t.parent_id) p on p.parent_id = o.parent_id
        ) c
        where c.work <= 200000
        order by c.ordinal
        limit 200
        $sql$,
        content, 'open_' || entity_name, 'candidate_' || entity_name, 'link_' || entity_name
    ) using shape;
end
$$;
comment on function bds.find_crowded(text, text[], bigint) is
    'Staged rows of a shape that are open, although a stored row, which another has, agrees with them in all they give; with how many rows their parent has';

create or replace function bds.make_room_for(entity_name text, columns text[], ordinal bigint, most bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_seqscan = off
as $$
declare
    agrees   text := coalesce((
        select string_agg(format('(c.shape & %s = 0 or r.%2$I is not distinct from c.%2$I)', 1::bigint << l.n::int, '=' || l.column_name), ' and ' order by l.n)
        from bds.linkage_columns(entity_name, columns) l
    ), 'true');
    reached  jsonb := jsonb_build_object(ordinal, null);  -- {ordinal: {of, id}}: who could take over the row that it has
    frontier bigint[] := array[ordinal];
    layer    jsonb;
    last     bigint;
    row_id   bigint;
    step     jsonb;
begin
    for steps in 1..8 loop
        execute format(
            'select c.ordinal, r.id from pg_temp.%1$I c join pg_temp.%2$I r on r.parent_id = c.parent_id '
            'where c.ordinal = any ($1) and %3$s and not exists (select from pg_temp.%4$I l where l.id = r.id) order by 1, 2 limit 1',
            'cook_' || entity_name, 'rest_' || entity_name, agrees, 'link_' || entity_name
        ) into last, row_id using frontier;
        exit when last is not null;
        execute format(
            $sql$
            select jsonb_object_agg(n.ordinal, jsonb_build_object('of', n.of, 'id', n.id))
            from (
                select distinct on (l.ordinal) l.ordinal, c.ordinal as of, r.id
                from pg_temp.%1$I c
                join pg_temp.%2$I r on r.parent_id = c.parent_id and %3$s
                join pg_temp.%4$I l on l.id = r.id
                where c.ordinal = any ($1) and not $2 ? l.ordinal::text
                order by l.ordinal, c.ordinal
            ) n
            $sql$,
            'cook_' || entity_name, 'candidate_' || entity_name, agrees, 'link_' || entity_name
        ) into layer using frontier, reached;
        reached := reached || layer;
        if layer is null or (select count(*) from jsonb_object_keys(reached)) > most then
            return false;
        end if;
        frontier := array(select k::bigint from jsonb_object_keys(layer) k);
    end loop;
    if last is null then
        return false;
    end if;
    -- each takes what the next one had; the last takes the row that is free
    while last <> ordinal loop
        execute format('update pg_temp.%I l set id = $1, is_same = false where l.ordinal = $2', 'link_' || entity_name) using row_id, last;
        step := reached -> last::text;
        row_id := (step ->> 'id')::bigint;
        last := (step ->> 'of')::bigint;
    end loop;
    execute format('insert into pg_temp.%I (ordinal, id) values ($1, $2)', 'link_' || entity_name) using ordinal, row_id;
    return true;
end
$$;
comment on function bds.make_room_for(text, text[], bigint, bigint) is
    'Links an open staged row by letting others change their rows for ones that agree with them as well, in as few steps as can be; false if they '
    'cannot, if that takes more than seven, or if more of them than so many would have to be asked';
