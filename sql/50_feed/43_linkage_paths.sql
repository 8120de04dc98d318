-- Record linkage, the second look: a row that finds every row like it taken may have one all the same, if who has it can do with another.
--
-- Without this a document that is sent again could change something: where items give different fields, the first of them may take
-- the row that the second was, although another would do as well.  So links are moved along augmenting paths until no row of a set of
-- fields can get one (Hopcroft and Karp), many at once: a search begins at all open rows together, and what each finds is no other's.
--     room_parent  parent_id, work, is_new: parents whose rows are looked at
--     room_item    ordinal, key: staged rows; room_row  id, key: stored ones, under each set of fields; equal keys agree
--     room_link    ordinal, id: who has which row
--     room_way     ordinal, depth, origin, of: a search; who has a row that `of` could do with, beginning at `origin`
--     room_seen    key: whose rows it has come to; room_end  origin, of, id: the free rows that it has found
--     room_layer   key, ordinals: those of room_way that are as far from their origin, equal ones together

create function bds_feed.make_room(entity_name text, columns text[], shape bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    work    bigint := 0;
    done    bigint;
    has_any boolean := false;
begin
    if not bds_feed.find_crowded(entity_name, columns, shape) then
        return false;
    end if;
    if to_regclass('pg_temp.room_parent') is null then
        perform bds_feed.open_rooms();
    end if;
    perform bds_feed.index_crowded(entity_name, columns);
    loop
        done := bds_feed.search_room(1000000 - work);
        exit when done is null;  -- it has found nothing
        has_any := true;
        perform bds_feed.move_links();
        work := work + done;
    end loop;
    if has_any then
        execute format('update pg_temp.%1$I l set id = r.id, is_same = false from pg_temp.room_link r where r.ordinal = l.ordinal and r.id <> l.id', 'link_' || entity_name);
        execute format(
            'insert into pg_temp.%1$I (ordinal, id) select r.ordinal, r.id from pg_temp.room_link r join pg_temp.room_root o on o.ordinal = r.ordinal',
            'link_' || entity_name);
    end if;
    drop table pg_temp.room_root;
    return has_any;
end
$$;
comment on function bds_feed.make_room(text, text[], bigint) is
    'Links staged rows of a shape that are open, although stored rows agree with them in all they give, but are taken; whether any was linked';

create function bds_feed.open_rooms()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    create temporary table room_parent (parent_id bigint primary key, work bigint not null, is_new boolean not null);
    create temporary table room_item (ordinal bigint primary key, key bigint not null);
    create temporary table room_row (id bigint not null, key bigint not null);
    create index on pg_temp.room_row (key);
    create temporary table room_link (ordinal bigint primary key, id bigint not null);
    create index on pg_temp.room_link (id);
    create temporary table room_way (ordinal bigint primary key, depth int not null, origin bigint not null, of bigint);
    create temporary table room_seen (key bigint primary key);
    create temporary table room_end (origin bigint primary key, of bigint not null, id bigint not null);
    create index on pg_temp.room_end (id);
    create temporary table room_layer (key bigint not null, ordinals bigint[] not null);
end
$$;
comment on function bds_feed.open_rooms() is 'Makes the tables of the second look, empty';

create function bds_feed.close_rooms()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if to_regclass('pg_temp.room_parent') is not null then
        drop table pg_temp.room_parent, pg_temp.room_item, pg_temp.room_row, pg_temp.room_link, pg_temp.room_way, pg_temp.room_seen, pg_temp.room_end, pg_temp.room_layer;
    end if;
end
$$;
comment on function bds_feed.close_rooms() is 'Drops the tables of the second look, if it was taken';

create function bds_feed.find_crowded(entity_name text, columns text[], shape bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    content text := bds_feed.linkage_content(entity_name, columns, shape);
    has_any boolean;
begin
    -- who has the row must give other fields: whoever gives these, too, can do with no row but those that are taken
    execute format(
        $sql$
        create temporary table room_root as
        with open as materialized (
            select r.ordinal, r.parent_id, hash_record_extended(row(%1$s), 0) as hash from pg_temp.%2$I r where r.shape = $1
        ),
        taken as (
            select distinct r.parent_id, r.hash
            from (
                select r.id, r.parent_id, hash_record_extended(row(%1$s), 0) as hash from pg_temp.%3$I r
                where r.parent_id in (select o.parent_id from open o)
            ) r
            join pg_temp.%4$I l on l.id = r.id
            join pg_temp.%5$I c on c.ordinal = l.ordinal and c.shape & $1 <> $1
        )
        select o.ordinal, o.parent_id from open o join taken t on t.parent_id = o.parent_id and t.hash = o.hash
        $sql$,
        content, 'open_' || entity_name, 'candidate_' || entity_name, 'link_' || entity_name, 'cook_' || entity_name
    ) using shape;
    select exists (select from pg_temp.room_root) into has_any;
    if not has_any then
        drop table pg_temp.room_root;
    end if;
    return has_any;
end
$$;
comment on function bds_feed.find_crowded(text, text[], bigint) is
    'Makes room_root: staged rows of a shape that are open, although a stored row, which another has, agrees with them in all they give; whether any is';

create function bds_feed.index_crowded(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    content text := (
        select string_agg(format(', case when s.shape & %s <> 0 then r.%I end', 1::bigint << l.n::int, '=' || l.column_name), '' order by l.n)
        from bds_feed.linkage_columns(entity_name, columns) l
    );
begin
    -- those parents whose rows are indexed already stay so, of the others the small ones come first
    execute format(
        $sql$
        insert into pg_temp.room_parent (parent_id, work, is_new)
        select w.parent_id, w.work, true
        from (
            select t.parent_id, t.rows * s.shapes as work, sum(t.rows * s.shapes) over (order by t.rows * s.shapes, t.parent_id) as till
            from (select r.parent_id, count(*) as rows from pg_temp.%1$I r where r.parent_id in (select o.parent_id from pg_temp.room_root o) group by 1) t
            join (select c.parent_id, count(distinct c.shape) as shapes from pg_temp.%2$I c where c.name is null group by 1) s on s.parent_id = t.parent_id
            where not exists (select from pg_temp.room_parent p where p.parent_id = t.parent_id)
        ) w
        where w.till <= 2000000 - (select coalesce(sum(p.work), 0) from pg_temp.room_parent p)
        $sql$,
        'candidate_' || entity_name, 'cook_' || entity_name
    );
    execute format(
        $sql$
        with item as materialized (
            select s.ordinal, s.parent_id, s.shape, %1$s as key
            from pg_temp.%2$I s join pg_temp.room_parent p on p.parent_id = s.parent_id
            cross join lateral (select s.*) r  -- whose fields the key is made of, as of those of a stored row
            where s.name is null and p.is_new
        ),
        indexed as (
            insert into pg_temp.room_row (id, key)
            select r.id, %1$s
            from (select distinct i.parent_id, i.shape from item i) s join pg_temp.%3$I r on r.parent_id = s.parent_id
        )
        insert into pg_temp.room_item (ordinal, key) select i.ordinal, i.key from item i
        $sql$,
        format('hash_record_extended(row(s.parent_id, s.shape%s), 0)', content), 'cook_' || entity_name, 'candidate_' || entity_name
    );
    update pg_temp.room_parent set is_new = false where is_new;
    delete from pg_temp.room_root o where not exists (select from pg_temp.room_parent p where p.parent_id = o.parent_id);
    truncate pg_temp.room_link;
    execute format(
        'insert into pg_temp.room_link select l.ordinal, l.id from pg_temp.%1$I l join pg_temp.%2$I c on c.ordinal = l.ordinal join pg_temp.room_parent p on p.parent_id = c.parent_id '
        'where c.name is null', 'link_' || entity_name, 'cook_' || entity_name);
end
$$;
comment on function bds_feed.index_crowded(text, text[]) is 'Makes what a search among the parents of room_root needs, as far as it is not there yet';

create function bds_feed.search_room(most bigint)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_seqscan = off
as $$
declare
    layer   int := 0;
    work    bigint := 0;
    has_any boolean := false;
    found   bigint;
begin
    truncate pg_temp.room_way, pg_temp.room_seen, pg_temp.room_end;
    insert into pg_temp.room_way (ordinal, depth, origin)
    select o.ordinal, 0, o.ordinal from pg_temp.room_root o where not exists (select from pg_temp.room_link l where l.ordinal = o.ordinal);
    loop
        -- those of this layer, by what they agree with: equal ones share the rows that agree with them
        truncate pg_temp.room_layer;
        insert into pg_temp.room_layer (key, ordinals)
        select i.key, array_agg(w.ordinal order by w.ordinal)
        from pg_temp.room_way w join pg_temp.room_item i on i.ordinal = w.ordinal
        where w.depth = layer and not exists (select from pg_temp.room_seen s where s.key = i.key)
        group by i.key;
        get diagnostics found = row_count;
        work := work + 1000 + found;
        exit when found = 0 or work > most;
        insert into pg_temp.room_end (origin, of, id)
        select distinct on (w.origin) w.origin, e.of, e.id
        from (
            select distinct on (f.id) f.id, y.ordinals[1 + (f.n - 1) % cardinality(y.ordinals)] as of
            from pg_temp.room_layer y
            cross join lateral (
                select r.id, row_number() over (order by r.id) as n
                from pg_temp.room_row r
                where r.key = y.key and not exists (select from pg_temp.room_link l where l.id = r.id) and not exists (select from pg_temp.room_end e where e.id = r.id)
            ) f
            order by f.id, 2
        ) e
        join pg_temp.room_way w on w.ordinal = e.of
        order by w.origin, e.of, e.id;
        get diagnostics found = row_count;
        work := work + found;
        if found > 0 then
            -- who has found a row goes no further
            has_any := true;
            update pg_temp.room_layer y set ordinals = array(
                select w.ordinal from unnest(y.ordinals) as o (ordinal) join pg_temp.room_way w on w.ordinal = o.ordinal
                where not exists (select from pg_temp.room_end e where e.origin = w.origin) order by w.ordinal);
            delete from pg_temp.room_layer y where cardinality(y.ordinals) = 0;
        end if;
        insert into pg_temp.room_way (ordinal, depth, origin, of)
        select distinct on (h.ordinal) h.ordinal, layer + 1, w.origin, w.ordinal
        from (
            select t.ordinal, y.ordinals[1 + (t.n - 1) % cardinality(y.ordinals)] as of
            from pg_temp.room_layer y
            cross join lateral (
                select l.ordinal, row_number() over (order by r.id) as n
                from pg_temp.room_row r join pg_temp.room_link l on l.id = r.id
                where r.key = y.key and not exists (select from pg_temp.room_way v where v.ordinal = l.ordinal)
            ) t
        ) h
        join pg_temp.room_way w on w.ordinal = h.of
        order by h.ordinal, w.ordinal;
        get diagnostics found = row_count;
        work := work + found;
        insert into pg_temp.room_seen select y.key from pg_temp.room_layer y;
        layer := layer + 1;
    end loop;
    return case when has_any then work end;
end
$$;
comment on function bds_feed.search_room(bigint) is
    'Fills room_end with free rows that open ones of room_root come to, each another and no way crossing another, and returns how much work it was; '
    'null if there are none, or none that take no more work than this';

create function bds_feed.move_links()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- each takes what the one before it had; the last takes the row that is free
    with recursive way (ordinal, id) as (
        select e.of, e.id from pg_temp.room_end e
        union all
        select v.of, l.id
        from way w
        join pg_temp.room_way v on v.ordinal = w.ordinal and v.of is not null
        join pg_temp.room_link l on l.ordinal = w.ordinal
    )
    insert into pg_temp.room_link as l (ordinal, id) select w.ordinal, w.id from way w
    on conflict (ordinal) do update set id = excluded.id;
end
$$;
comment on function bds_feed.move_links() is 'Gives the rows of room_end to those who have come to them, and theirs to those before them';
