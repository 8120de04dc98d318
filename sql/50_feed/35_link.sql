-- Record linkage: the stored row of each staged item without a unique field, or with null in all of them, among the rows that
-- have none either.
--
-- Fellegi and Sunter, within one parent and one to one, in three steps:
--     order    the n-th item of a parent and its n-th row are linked if they agree in all fields of the item, as in a document
--              that is sent again
--     equals   items and rows that are left, of one parent, are linked if they agree in all fields of the item: as many as
--              possible, by augmenting paths
--     weights  pairs of the others are scored: a field that agrees adds log2(m/u), one that differs log2((1-m)/(1-u)), one that
--              the item lacks adds nothing; pairs that are the best of both sides are linked, until none weighs more than 0; then
--              the same again, with more weight for products and texts that are rare among the parent's rows
--
-- Where rows without an item stay (home_.keeps), a wrong link would overwrite a row, and a missing one only adds a row: there the
-- weights link only pairs that agree in all fields of the item, in its product or in a text.  Rows stay in merge mode, beside an
-- array with @removeAll false, and under items at the top of the document, unless the collection is given whole.
--
-- home is the id of the parent's row.  Values are compared by hashes of home and value, h1, h2 ... in the order of the fields.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('link_{entity}(import bds.imports, given text[], is_valid boolean)', 'linked', 'void', 'maps items to stored rows', $sql$
begin
    {if fallible}
    loop begin
    {end fallible}
    if '@id' = any ($2) then
        perform bds_import."link_named_{entity}"(import);
    end if;
    insert into pg_temp."map_{entity}" select * from bds_import."in_order_{entity}"(import.company_id, $2, $3);
    perform bds_feed.filled(import, 'map_{entity}');
    {if has_keys}
    {else has_keys}
    if '@id' = any ($2) then
        perform bds_import."check_keys_{entity}"(import, $2, false, false);
    end if;
    {end has_keys}
    if exists (select from pg_temp."map_{entity}" m where m.is_new and m.home is not null) then
        perform bds_import."link_equals_{entity}"(import, $2, $3);
        update pg_temp."map_{entity}" m set target = i.target, is_new = i.target is null, is_same = false
        from pg_temp."item_{entity}" i where i.ordinal = m.ordinal and i.target is distinct from m.target;
    end if;
    {if fallible}
        exit;
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) or not bds_import."fail_cleared_{entity}"(import) then
            raise;
        end if;
    end; end loop;
    {end fallible}
    update pg_temp."map_{entity}" m set target = n.id  -- ids follow the document
    from (
        select o.ordinal, nextval({sequence:L}) as id
        from (select o.ordinal from pg_temp."map_{entity}" o where o.target is null and o.phase = 1 order by o.ordinal) o
    ) n
    where n.ordinal = m.ordinal;
end$sql$),

('in_order_{entity}(company text, given text[], is_valid boolean)', 'linked', 'map_{entity}',
'the n-th row of the parent for its n-th item, if they agree', $sql$
select i."@ordinal", i."@parent", coalesce(i."@position", i."@ordinal"),
    case when i."@operation" = 'delete' then 3 when i."@where" is not null then 2 else 1 end, coalesce(i."@operation", 'upsert'),
    coalesce(n.id, r.id, i."@id of new"), n.id is null and r.id is null and i."@where" is null, false,
    r.id is not null and i."@operation" is distinct from 'delete', false, i."@id", bds_feed.lookup_kind(i."@id")
    {each keys}, null::{type}{end keys}
    , i."@home", 0::bigint{each links} | case when i."{name}" is null then 0 else {flag} end{end links}
from (
    -- an item of a new parent is new and gets its id here, in the order of the document
    select s.*, h.id as "@home", row_number() over (partition by h.id order by s."@ordinal") as "@nth",
        case
            when u.id is null and s."@id" is null and s."@where" is null and s."@operation" is distinct from 'delete'
                then nextval({sequence:L})
        end as "@id of new"
        {each links}
        , case when h.id is not null then {linked} end as "={column}"
        {end links}
    from pg_temp."staged_{entity}" s
    {if parent}
    left join pg_temp."map_{parent}" p on p.ordinal = s."@parent"
    {end parent}
    {each references}
    left join pg_temp."ref_{ref}" "ref_{name}" on '{name}' = any ($2) and "ref_{name}".lookup = {given}
    {end references}
    cross join lateral (select {if parent}{each upward}coalesce(case when not p.is_new then p.target end, "ref_{name}".id)
        {end upward}{else parent}null::bigint{end parent} as id) u
    -- an item that creates, has an id or is a condition is not compared
    cross join lateral (
        select case when s."@id" is null and s."@where" is null and s."@operation" is distinct from 'create' then u.id end as id
    ) h
    {if has_keys}
    where {unnamed}
    {end has_keys}
) i
left join (
    select t.*, row_number() over (partition by t.{parent_column:I} order by t.id) as "@nth"
    from (
        {if parent}
        select p.target as id from pg_temp."map_{parent}" p
        where not p.is_new and p.ordinal in (select s."@parent" from pg_temp."staged_{entity}" s)
        {each upward}
        union
        select r.id from pg_temp."ref_{ref}" r where r.id is not null
        {end upward}
        {else parent}
        select null::bigint as id where false
        {end parent}
    ) h
    join {table} t on t.company_id = (select $1) and t.{parent_column:I} = h.id
    where not exists (select from pg_temp."named_{entity}" n where n.id = t.id){each keys} and t.{column:I} is null{end keys}
-- + 0: both sides are sorted by parent, and a merge would compare each item of a parent with all of its rows
) r on r.{parent_column:I} + 0 = i."@home" and r."@nth" = i."@nth"
    {each links}
    and (i."{name}" is null or {is_listed})
    {end links}
left join pg_temp."named_{entity}" n on '@id' = any ($2) and n.ordinal = i."@ordinal"$sql$),

('link_named_{entity}(import bds.imports)', 'linked', 'void', 'finds the rows of items with an id', $sql$
begin
    insert into pg_temp."named_{entity}"
    select n.ordinal, t.id
    from (
        select s."@ordinal" as ordinal, bds_feed.lookup_id(s."@id") as id
        from pg_temp."staged_{entity}" s where s."@id" is not null offset 0
    ) n
    join {table} t on t.company_id = (select import.company_id) and t.id = n.id;
    perform bds_feed.filled(import, 'named_{entity}');
end$sql$),

('link_equals_{entity}(import bds.imports, given text[], is_valid boolean)', 'linked', 'void',
'links items to rows that agree in all fields of the item', $sql$
begin
    -- among items with the same fields, equal ones agree with the same rows: exchanging their rows changes nothing
    insert into pg_temp."home_{entity}"
    select m.home, min(m.shape) <> max(m.shape), not '{entity}' = any (import.remove_all)
    from pg_temp."map_{entity}" m where m.home is not null
    group by m.home having bool_or(m.is_new);
    perform bds_feed.filled(import, 'home_{entity}');
    {if parent}
    if bds_feed.is_open('staged_{parent}') then  -- closed if the document has only items at the top
        update pg_temp."home_{entity}" h set keeps = false
        from pg_temp."map_{parent}" p join pg_temp."staged_{parent}" s on s."@ordinal" = p.ordinal
        where p.target = h.id and s.{parent_whole:I};
    end if;
    {end parent}
    perform bds_import."link_rows_{entity}"(import);
    if not exists (select from pg_temp."row_{entity}" r where r.is_free) then
        return;
    end if;
    perform bds_import."link_items_{entity}"(import, $2, $3);
    perform bds_import."link_paths_{entity}"(import);
    if exists (select from pg_temp."item_{entity}" i where i.target is null) then
        perform bds_import."link_weights_{entity}"(import);
    end if;
end$sql$),

('link_rows_{entity}(import bds.imports)', 'linked', 'void', 'reads the free rows of homes, and of whole homes all others', $sql$
begin
    insert into pg_temp."row_{entity}"
    select t.id, h.id, m.target is null, 0
        {each links}
        {if is_constant}
        | case when {stored} is distinct from {cleared} then {flag} else 0 end
        {end is_constant}
        {end links}
        {each links}
        , coalesce({hash}({stored}, h.id * 64 + {n}), hashint8extended({n}, -h.id))
        {end links}
    from pg_temp."home_{entity}" h
    join {table} t on t.company_id = (select import.company_id) and t.{parent_column:I} = h.id
    left join pg_temp."map_{entity}" m on m.target = t.id
    where (m.target is null or h.is_whole){each keys} and t.{column:I} is null{end keys}
        and not exists (select from pg_temp."named_{entity}" n where n.id = t.id)
        and not exists (select from pg_temp."row_{entity}" r where r.id = t.id);
    perform bds_feed.filled(import, 'row_{entity}');
end$sql$),

('link_items_{entity}(import bds.imports, given text[], is_valid boolean)', 'linked', 'void',
'reads the items without a row, of whole homes all others too, and finds the rows that agree with them', $sql$
begin
    insert into pg_temp."item_{entity}"
        (ordinal, target, home, shape{each links}, h{n}{end links}{each telling}, t{n}{end telling}, key)
    select i."@ordinal", i."@target", i."@home", i."@shape"
        {each links}
        , h{n}
        {end links}
        {each telling}
        , case when says{n} then h{n} end
        {end telling}
        , hashint8extended(i."@shape", i."@home"){each links} # coalesce(h{n}, 0){end links}
    from (
        select x."@ordinal", x."@target", x."@home", x."@shape"
            {each links}
            , case
                when x."{name}" is not null
                    then coalesce({hash}(x."={column}", x."@home" * 64 + {n}), hashint8extended({n}, -x."@home"))
            end as h{n}
            {end links}
            {each telling}
            , {says} as says{n}
            {end telling}
        from (
            select s.*, m.target as "@target", m.home as "@home", m.shape as "@shape"
                {each links}
                , {linked} as "={column}"
                {end links}
            from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
            {each references}
            left join pg_temp."ref_{ref}" "ref_{name}" on '{name}' = any ($2) and "ref_{name}".lookup = {given}
            {end references}
            where m.home in (select r.home from pg_temp."row_{entity}" r where r.is_free)
                and (m.is_new or m.home in (select h.id from pg_temp."home_{entity}" h where h.is_whole))
        ) x
    ) i;
    perform bds_feed.filled(import, 'item_{entity}');
    insert into pg_temp."fit_{entity}"
    select k.key, r.id, bit_count((r.filled & ~s.shape)::bit(64))
    from (select distinct i.home, i.shape from pg_temp."item_{entity}" i) s join pg_temp."row_{entity}" r on r.home = s.home
    cross join lateral (
        select hashint8extended(s.shape, s.home)
            {each links}
            # case when s.shape & {flag} <> 0 then r.h{n} else 0 end
            {end links}
            as key
    ) k
    where k.key in (select i.key from pg_temp."item_{entity}" i);
    perform bds_feed.filled(import, 'fit_{entity}');
end$sql$),

('link_paths_{entity}(import bds.imports)', 'linked', 'void',
'links as many items as possible to rows that agree, by augmenting paths', $sql$
declare
    deepest int;  -- the number of items that get another row for one to get its first
begin
    <<search>> loop
        delete from pg_temp."way_{entity}";
        insert into pg_temp."way_{entity}"
        select distinct f.key, 0 from pg_temp."fit_{entity}" f
        where not exists (select from pg_temp."item_{entity}" i where i.target = f.id);
        deepest := 0;
        loop
            perform bds_feed.filled(import, 'way_{entity}');
            -- count, because the planner would expect exists to end early
            exit when (
                select count(*) from pg_temp."way_{entity}" w join pg_temp."item_{entity}" i on i.key = w.key
                where i.target is null and w.level = deepest) > 0;
            insert into pg_temp."way_{entity}"
            select distinct f.key, deepest + 1
            from pg_temp."way_{entity}" w
            join pg_temp."item_{entity}" i on i.key = w.key
            join pg_temp."fit_{entity}" f on f.id = i.target
            where w.level = deepest and not exists (select from pg_temp."way_{entity}" w where w.key = f.key);
            exit search when not found;
            deepest := deepest + 1;
        end loop;
        for depth in reverse deepest .. 0 loop  -- an item that loses its row at one level gets one of the next
            with taken as (
                select distinct on (o.id) i.ordinal, o.id
                from (
                    select i.ordinal, i.key, row_number() over (partition by i.key order by i.ordinal) as n
                    from pg_temp."item_{entity}" i join pg_temp."way_{entity}" w on w.key = i.key
                    where i.target is null and w.level = depth
                ) i
                join (
                    select f.*, row_number() over (partition by f.key order by f.more, hashint8extended(f.id, f.key)) as n
                    from pg_temp."fit_{entity}" f left join pg_temp."item_{entity}" i on i.target = f.id
                    left join pg_temp."way_{entity}" w on w.key = i.key
                    where case when i.target is null then 0 else w.level + 1 end = depth
                ) o on o.key = i.key and o.n = i.n
                order by o.id, o.more, i.ordinal
            ),
            evicted as (update pg_temp."item_{entity}" i set target = null from taken t where i.target = t.id)
            update pg_temp."item_{entity}" i set target = t.id from taken t where i.ordinal = t.ordinal;
        end loop;
    end loop;
end$sql$);
