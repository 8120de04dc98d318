-- Record linkage: which stored row a staged item without a unique field means.
--
-- Fellegi and Sunter, within one parent and one to one, in three steps, generated for each entity:
--     places   the n-th item of a parent and its n-th row are linked if all that the item gives agrees, as in a document that is sent again
--     equals   of parents with items and rows left, items take rows that agree in all that they give; an item that finds them taken gets
--              one whose item can do with another (augmenting paths), so that as many as possible have such a row
--     weights  of the others pairs are scored: a field that agrees adds log2(m/u), one that differs log2((1-m)/(1-u)), one that the item
--              does not give nothing; pairs that are the best of both sides are linked, until none weighs more than 0
--
-- home is the id of the parent's row.  Values are compared by hashes of home and value, h1, h2 ... in the order of the fields.

create function bds_feed.linkage_fields(entity_name text)
    returns table (n bigint, name text, column_name name, flag bigint, value text, cleared text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select c.n, c.name, c.column_name, 1::bigint << (least(c.n, 63) - 1)::int, case when c.target is not null then format('%I.id', 'ref_' || c.name)
            else format($sql$case when s.%I = e'\x01' then %s else %s end$sql$, c.name, d.cleared, bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type)) end, d.cleared
        from (select f.*, row_number() over (order by f.ordinal) as n from bds.import_columns f where f.entity = entity_name and not f.is_parent) c
        cross join lateral (select format('(%s)::%s', case when c.required then coalesce(c.default_expression, 'null') else 'null' end, c.sql_type)) as d (cleared);
    end;
comment on function bds_feed.linkage_fields(text) is 'The fields that are compared; value is SQL for that of a staged row s, cleared for what null makes of it';

create function bds_feed.make_linkage(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    upward bds.import_columns;  -- the reference to the parent
    holes  record;
    steps  text[];
begin
    select * into upward from bds.import_columns c where c.entity = entity_name and c.is_parent;
    select entity_name as entity, e.table_name::text as table, coalesce(upward.column_name, 'id') as parent,
        bds_feed.lookup_kind('s."@id"') as kind, bds_feed.lookup_id(format('(%s)', bds_feed.lookup_value('s."@id"'))) as id, bds_feed.staged_text('s."@id"') as shown,
        -- what is to be created, carries an id or is a condition is like no row
        case when upward is null then 'null::bigint' else format($sql$case when s."@id" is null and s."@where" is null and s."@operation" is distinct from 'create'
            then coalesce(case when not p.is_new then p.target end, %I.id) end$sql$, 'ref_' || upward.name) end as home,
        case when upward is null then 'false' else format('exists (select from pg_temp.%I p where not p.is_new) or exists (select from pg_temp.%I r where r.id is not null)',
            'map_' || p.name, 'ref_' || bds_feed.reference_name(entity_name, upward.name)) end as stored,
        case when upward is null then 'select null::bigint as id where false' else format(
            'select p.target as id from pg_temp.%I p where not p.is_new and p.ordinal in (select s."@parent" from pg_temp.%I s) union select r.id from pg_temp.%I r where r.id is not null',
            'map_' || p.name, 'staged_' || entity_name, 'ref_' || bds_feed.reference_name(entity_name, upward.name)) end as homes,
        case when p.name is not null then format(E'\n        left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || p.name) end as parents, (
            select string_agg(format(E'\n        left join pg_temp.%I %I on %L = any ($2) and %2$I.lookup = s.%3$I',
                'ref_' || bds_feed.reference_name(entity_name, c.name), 'ref_' || c.name, c.name), '' order by c.ordinal)
            from bds.import_columns c where c.entity = entity_name and c.target is not null) as refs,
        f.*
    into holes
    from bds.entities e
    cross join bds_feed.parent_of(entity_name) as p (name)
    cross join lateral (
        select string_agg(format(', %s as %I', c.value, '=' || c.column_name), E'\n        ' order by c.n) as values,
            string_agg(format('and (i.%I is null or i.%I is not distinct from r.%I)', c.name, '=' || c.column_name, c.column_name), E'\n        ' order by c.n) as agree,
            string_agg(format(' | case when i.%I is null then 0 else %s end', c.name, c.flag), '' order by c.n) as shape,
            string_agg(format('| case when t.%I is distinct from %s then %s else 0 end', c.column_name, c.cleared, c.flag), E'\n        ' order by c.n)
                filter (where regexp_replace(c.cleared, '::[a-z ]+\([0-9, ]+\)', '', 'g') !~ '\w\(') as filled,  -- what a function gives now is not what it gave then
            string_agg(format(', case when x.%I is not null then hash_record_extended(row(x."@home", x.%I), %s) end as h%3$s', c.name, '=' || c.column_name, c.n), E'\n            ' order by c.n) as given,
            string_agg(format(', hash_record_extended(row(h.id, t.%I), %s)', c.column_name, c.n), E'\n        ' order by c.n) as held,
            string_agg(format(', h%s', c.n), '' order by c.n) as hashes,
            string_agg(format(', case when s.shape & %s <> 0 then r.h%s end', c.flag, c.n), '' order by c.n) as masked,
            string_agg(format(', (%1$s, x.h%1$s)', c.n), '' order by c.n) as terms,
            string_agg(format(E'\n        union all select min(r.home), %1$s, r.h%1$s, count(*) from pg_temp.%2$I r'
                ' where r.h%1$s in (select i.h%1$s from pg_temp.%3$I i where i.target is null) group by r.h%1$s',
                c.n, 'row_' || entity_name, 'item_' || entity_name), '' order by c.n) as counts,
            string_agg(format(', t%1$s.gain as g%1$s', c.n), '' order by c.n) as gains,
            string_agg(format(E'\n        left join pg_temp.%2$I t%1$s on t%1$s.hash = i.h%1$s', c.n, 'term_' || entity_name), '' order by c.n) as gained,
            string_agg(format(' + case when i.shape & %s <> 0 then w.differs[%s] else 0 end', c.flag, c.n), '' order by c.n) as differs,
            string_agg(format(' + case when i.h%1$s = r.h%1$s then i.g%1$s else 0 end', c.n), '' order by c.n) as weight,
            coalesce(array_agg(c.name order by c.n), '{}')::text as fields
        from bds_feed.linkage_fields(entity_name) c
    ) f
    where e.name = entity_name;
    steps := string_to_array(bds_impl.fill(
        concat_ws('----', bds_feed.linkage_places(), bds_feed.linkage_equals(), bds_feed.linkage_paths(), bds_feed.linkage_weights(), bds_feed.linkage_pairs()),
        variadic array(select unnest(array[h.key, coalesce(h.value, '')]) from jsonb_each_text(to_jsonb(holes)) h)), '----');
    perform bds_feed.make(entity_name, format('%I(import bds.imports, given text[])', s.name || '_' || entity_name), 'void', s.purpose, s.body)
    from (values ('link', 'maps items to stored rows', steps[1]), ('link_equals', 'links items to rows that agree in all that they give', steps[2]),
        ('link_paths', 'links as many as can be', steps[3]), ('link_weights', 'scores pairs of the others', steps[4]),
        ('link_pairs', 'links the pairs that are the best of both sides', steps[5])) as s (name, purpose, body);
end
$$;
comment on function bds_feed.make_linkage(text) is 'Generates link_<entity> and its steps';

create function bds_feed.linkage_places()
    returns text
    language sql
    immutable
    return $sql$
declare
    is_fresh boolean := not ({stored});  -- whether no parent has rows
begin
    if '@id' = any ($2) then
        insert into pg_temp."named_{entity}"
        select n.ordinal, t.id
        from (select s."@ordinal" as ordinal, case when {kind} = 'id' then {id} end as id from pg_temp."staged_{entity}" s where s."@id" is not null offset 0) n
        join {table} t on t.company_id = (select import.company_id) and t.id = n.id;
        perform bds_feed.filled(import, 'named_{entity}');
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', s."@ordinal", 'id', case when s.id is null then 'invalid_value' when s.n > 1 then 'duplicate_record' else 'not_found' end,
            case when s.id is null then format('expected a lookup (id:...), got %L', left({shown}, 100))
                when s.n > 1 then 'an earlier record of this document names the same row' else format('no such row: %s', s."@id") end
        from (
            select s.*, row_number() over (partition by s.id order by s."@ordinal") as n
            from (select s."@ordinal", s."@id", s."@operation", case when {kind} = 'id' then {id} end as id from pg_temp."staged_{entity}" s where s."@id" is not null) s
        ) s
        where s.n > 1 or (s.id is null or s."@operation" is distinct from 'delete')
            and not exists (select from pg_temp."named_{entity}" n where n.ordinal = s."@ordinal");
    end if;
    insert into pg_temp."map_{entity}" (ordinal, parent, position, phase, operation, target, is_new, is_ambiguous, is_same, failed, id, home, place, shape)
    select i."@ordinal", i."@parent", coalesce(i."@position", i."@ordinal"),
        case when i."@operation" = 'delete' then 3 when i."@where" is not null then 2 else 1 end, coalesce(i."@operation", 'upsert'),
        coalesce(n.id, r.id), n.id is null and r.id is null and i."@where" is null, false, r.id is not null and i."@operation" is distinct from 'delete', false, i."@id",
        i."@home", i."@place", 0{shape}
    from (
        select s.*, {home} as "@home", row_number() over (partition by {home} order by s."@ordinal") as "@place"
        {values}
        from pg_temp."staged_{entity}" s{parents}{refs}
    ) i
    left join (
        select t.*, row_number() over (partition by t.{parent:I} order by t.id) as "@place"
        from ({homes}) h
        join {table} t on t.company_id = (select import.company_id) and t.{parent:I} = h.id
        where not exists (select from pg_temp."named_{entity}" n where n.id = t.id)
    -- + 0: both sides are sorted by parent, and a merge would compare each item of a parent with all of its rows
    ) r on r.{parent:I} + 0 = i."@home" and r."@place" = i."@place"
        {agree}
    left join pg_temp."named_{entity}" n on n.ordinal = i."@ordinal";
    perform bds_feed.filled(import, 'map_{entity}');
    if not is_fresh and exists (select from pg_temp."map_{entity}" m where m.is_new) then
        perform bds_import."link_equals_{entity}"(import, $2);
        update pg_temp."map_{entity}" m set target = i.target, is_new = i.target is null, is_same = false
        from pg_temp."item_{entity}" i where i.ordinal = m.ordinal and i.target is distinct from m.target;
    end if;
    perform case when import.is_small then bds_import."number_{entity}"() else bds_feed.number_new_rows('{entity}') end;
end$sql$;
comment on function bds_feed.linkage_places() is 'The template of link_<entity>';

create function bds_feed.linkage_equals()
    returns text
    language sql
    immutable
    return $sql$
declare
    is_rest boolean;
begin
    insert into pg_temp."row_{entity}"
    select t.id, h.id, row_number() over (partition by h.id order by t.id), m.target is null, 0
        {filled}
        {held}
    from (select distinct m.home as id from pg_temp."map_{entity}" m where m.is_new) h
    join {table} t on t.company_id = (select import.company_id) and t.{parent:I} = h.id
    left join pg_temp."map_{entity}" m on m.target = t.id
    where not exists (select from pg_temp."named_{entity}" n where n.id = t.id);
    if not exists (select from pg_temp."row_{entity}" r where r.is_free) then
        return;
    end if;
    perform bds_feed.filled(import, 'row_{entity}');
    foreach is_rest in array '{f,t}'::boolean[] loop
        insert into pg_temp."item_{entity}" (ordinal, target, home, place, shape{hashes}, key)
        select i.*, hash_record_extended(row(i."@home", i."@shape"{hashes}), 0)
        from (
            select x."@ordinal", x."@target", x."@home", x."@place", x."@shape"
            {given}
            from (
                select s.*, m.target as "@target", m.home as "@home", m.place as "@place", m.shape as "@shape"
                {values}
                from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal{refs}
                where m.is_new <> is_rest and case when is_rest then m.home in (
                    -- an item may want the row of one that gives the same, or that gives less
                    select i.home from pg_temp."item_{entity}" i
                    join pg_temp."fit_{entity}" f on f.key = i.key join pg_temp."row_{entity}" r on r.id = f.id where not r.is_free
                    union all
                    select i.home from (select distinct i.home, i.shape from pg_temp."item_{entity}" i) i
                    join pg_temp."map_{entity}" o on o.home = i.home and o.shape & i.shape = o.shape and o.shape <> i.shape where not o.is_new
                ) else m.home in (select r.home from pg_temp."row_{entity}" r where r.is_free) end
            ) x
        ) i;
        exit when not found;
        perform bds_feed.filled(import, 'item_{entity}');
        insert into pg_temp."fit_{entity}"
        select k.key, r.id, bit_count((r.filled & ~s.shape)::bit(64))
        from (select distinct i.home, i.shape from pg_temp."item_{entity}" i) s join pg_temp."row_{entity}" r on r.home = s.home
        cross join lateral (select hash_record_extended(row(s.home, s.shape{masked}), 0) as key) k
        where k.key in (select i.key from pg_temp."item_{entity}" i) and k.key not in (select f.key from pg_temp."fit_{entity}" f);
        perform bds_feed.filled(import, 'fit_{entity}');
    end loop;
    perform bds_import."link_paths_{entity}"(import, $2);
    if exists (select from pg_temp."item_{entity}" i where i.target is null) then
        perform bds_import."link_weights_{entity}"(import, $2);
    end if;
end$sql$;
comment on function bds_feed.linkage_equals() is 'The template of link_equals_<entity>';

create function bds_feed.linkage_paths()
    returns text
    language sql
    immutable
    return $sql$
declare
    deepest int;  -- so many items have to move for one
begin
    <<search>> loop
        delete from pg_temp."way_{entity}";
        insert into pg_temp."way_{entity}"
        select distinct f.key, 0 from pg_temp."fit_{entity}" f where not exists (select from pg_temp."item_{entity}" i where i.target = f.id);
        deepest := 0;
        loop
            perform bds_feed.filled(import, 'way_{entity}');
            -- not exists, for which the planner would hope to find one soon
            exit when (select count(*) from pg_temp."way_{entity}" w join pg_temp."item_{entity}" i on i.key = w.key where i.target is null and w.level = deepest) > 0;
            insert into pg_temp."way_{entity}"
            select distinct f.key, deepest + 1
            from pg_temp."way_{entity}" w join pg_temp."item_{entity}" i on i.key = w.key join pg_temp."fit_{entity}" f on f.id = i.target
            where w.level = deepest and not exists (select from pg_temp."way_{entity}" w where w.key = f.key);
            exit search when not found;
            deepest := deepest + 1;
        end loop;
        for depth in reverse deepest .. 0 loop  -- an item that loses its row at one level takes one of the next
            with taken as (
                select distinct on (o.id) i.ordinal, o.id
                from (
                    select i.ordinal, i.key, row_number() over (partition by i.key order by i.ordinal) as n
                    from pg_temp."item_{entity}" i join pg_temp."way_{entity}" w on w.key = i.key where i.target is null and w.level = depth
                ) i
                join (
                    select f.*, row_number() over (partition by f.key order by f.more, hashint8extended(f.id, f.key)) as n
                    from pg_temp."fit_{entity}" f left join pg_temp."item_{entity}" i on i.target = f.id left join pg_temp."way_{entity}" w on w.key = i.key
                    where case when i.target is null then 0 else w.level + 1 end = depth
                ) o on o.key = i.key and o.n = i.n
                order by o.id, o.more, i.ordinal
            ),
            evicted as (update pg_temp."item_{entity}" i set target = null from taken t where i.target = t.id)
            update pg_temp."item_{entity}" i set target = t.id from taken t where i.ordinal = t.ordinal;
        end loop;
    end loop;
end$sql$;
comment on function bds_feed.linkage_paths() is 'The template of link_paths_<entity>';

create function bds_feed.weights_of(entity_name text, fields text[])
    returns table (field bigint, m float8, u float8)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select distinct on (f.n) f.n, w.m, w.u
        from unnest(fields) with ordinality as f (name, n)
        join bds.linkage_weights w on w.entity in (entity_name, '*') and w.field in (f.name, '*')
        order by f.n, w.field = '*', w.entity = '*';
    end;
comment on function bds_feed.weights_of(text, text[]) is 'The weights of fields, which are numbered';

create function bds_feed.linkage_weights()
    returns text
    language sql
    immutable
    return $sql$
begin
    -- an item that gives less than another, which still has no row, is open with it: that one may want the row more
    update pg_temp."item_{entity}" i set target = null, was = i.target
    where i.target is not null and exists (
        select from pg_temp."item_{entity}" o
        where o.home = i.home and o.target is null and o.shape & i.shape = i.shape and o.shape <> i.shape
            and not exists (select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = o.ordinal)
    );
    insert into pg_temp."term_{entity}"
    select v.hash, v.n, h.total,
        -- u: how many of the other rows have the value; at most what the table says, at least an eighth of it
        ln(w.m * (1 - w.u) / (1 - w.m) / greatest(w.u / 8, least(w.u, coalesce((v.n - 1) / nullif(h.total - 1, 0)::float8, 0)))) / ln(2)
    from (
        select null::bigint as home, 0 as field, null::bigint as hash, 0 as n{counts}
    ) v
    join (select r.home, count(*) as total from pg_temp."row_{entity}" r group by r.home) h on h.home = v.home
    join bds_feed.weights_of('{entity}', '{fields}') w on w.field = v.field;
    perform bds_feed.filled(import, 'term_{entity}');
    insert into pg_temp."pair_{entity}"
    with i as materialized (
        select i.*, case when i.shape = 0 then 1e-9 else 0 end{differs} as base{gains}  -- an item that gives nothing may be any row
        from pg_temp."item_{entity}" i cross join (
            select array_agg(ln((1 - w.m) / (1 - w.u)) / ln(2) order by w.field) as differs from bds_feed.weights_of('{entity}', '{fields}') w) w{gained}
        where i.target is null
    ),
    r as materialized (
        select * from pg_temp."row_{entity}" r
        where (r.is_free or r.id in (select i.was from i)) and r.id not in (select i.target from pg_temp."item_{entity}" i where i.target is not null)
    )
    select s.ordinal, s.id, s.weight, case when s.was = s.id then -2 when s.is_placed then -1 else abs(hashint8extended(s.ordinal, s.id) / 2) end
    from (
        -- rows about the same place, and those that agree in a value that few rows of the parent have
        select i.ordinal, r.id, i.was, i.place = r.place as is_placed, i.base{weight} as weight
        from i cross join (values (-1), (0), (1)) as d (part) join r on r.home = i.home and (r.place - 1) / 32 = (i.place - 1) / 32 + d.part
        union all
        select distinct i.ordinal, r.id, i.was, i.place = r.place, i.base{weight}
        from (select * from i x cross join lateral (values (0, null::bigint){terms}) as v (field, hash)) i
        join pg_temp."term_{entity}" t on t.hash = i.hash and t.n <= 100 and t.total > 32
        join (select * from r x cross join lateral (values (0, null::bigint){terms}) as v (field, hash)) r on r.hash = i.hash
        where abs((r.place - 1) / 32 - (i.place - 1) / 32) > 1
    ) s
    where s.weight > 0;
    perform bds_import."link_pairs_{entity}"(import, $2);
end$sql$;
comment on function bds_feed.linkage_weights() is 'The template of link_weights_<entity>';

create function bds_feed.linkage_pairs()
    returns text
    language sql
    immutable
    return $sql$
begin
    loop
        perform bds_feed.filled(import, 'pair_{entity}');
        update pg_temp."item_{entity}" i set target = b.id
        from (
            select p.*, row_number() over (partition by p.ordinal order by p.weight desc, p.tie, p.id) as of_item,
                row_number() over (partition by p.id order by p.weight desc, p.tie, p.ordinal) as of_row
            from pg_temp."pair_{entity}" p
        ) b
        where b.of_item = 1 and b.of_row = 1 and i.ordinal = b.ordinal;
        exit when not found;
        delete from pg_temp."pair_{entity}" p using pg_temp."item_{entity}" i where i.ordinal = p.ordinal and i.target is not null;
        delete from pg_temp."pair_{entity}" p using pg_temp."item_{entity}" i where i.target = p.id;
    end loop;
end$sql$;
comment on function bds_feed.linkage_pairs() is 'The template of link_pairs_<entity>';
