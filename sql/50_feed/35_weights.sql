-- Record linkage by weights, the third step of 35_link.sql: items and rows that do not agree in all fields of the item.

create function bds_feed.weights_of(entity_name text, fields text[])
    returns table (field bigint, u float8, agrees float8, differs float8)
    language sql
    stable
    begin atomic
        select distinct on (f.n) f.n, w.u, ln(w.m / w.u) / ln(2), ln((1 - w.m) / (1 - w.u)) / ln(2)
        from unnest(fields) with ordinality as f (name, n)
        join bds.linkage_weights w on w.entity in (entity_name, '*') and w.field in (f.name, '*')
        order by f.n, w.field = '*', w.entity = '*';
    end;
comment on function bds_feed.weights_of(text, text[]) is
    'The weights of fields, which are numbered, when they agree and when they differ; u is that of bds.linkage_weights';

insert into bds_feed.templates (signature, of, result, purpose, body) values
('link_weights_{entity}(import bds.imports)', 'linked', 'void', 'links the others by weight', $sql$
begin
    -- an item with a part of the fields of another, which still has no row, is scored again: its row may fit the other better
    update pg_temp."item_{entity}" i set target = null, was = i.target
    where i.target is not null and exists (
        select from pg_temp."item_{entity}" o
        where o.home = i.home and o.target is null and o.shape & i.shape = i.shape and o.shape <> i.shape
            and not exists (select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = o.ordinal)
    );
    perform bds_import."weigh_{entity}"(import);
    perform bds_import."link_pairs_{entity}"(import);
    if exists (select from pg_temp."pair_{entity}") then
        perform bds_import."weigh_rare_{entity}"(import);
        perform bds_import."link_pairs_{entity}"(import);
    end if;
end$sql$),

('weigh_{entity}(import bds.imports)', 'linked', 'void',
'scores pairs of an item and a row that are not linked, by the table of weights', $sql$
declare
    agrees  float8[];
    differs float8[];
begin
    select array_agg(w.agrees order by w.field), array_agg(w.differs order by w.field) into agrees, differs
    from bds_feed.weights_of('{entity}', array[{each links|, }'{name}'{end links}]::text[]) w;
    insert into pg_temp."pair_{entity}"
    with i as materialized (
        select i.*, h.keeps, row_number() over (partition by i.home order by i.ordinal) - 1 as nth
        from pg_temp."item_{entity}" i join pg_temp."home_{entity}" h on h.id = i.home where i.target is null
    ),
    r as materialized (
        select r.*, row_number() over (partition by r.home order by r.id) - 1 as nth
        from pg_temp."row_{entity}" r
        where (r.is_free or r.id in (select i.was from i))
            and r.id not in (select i.target from pg_temp."item_{entity}" i where i.target is not null)
    ),
    crowded as materialized (select i.home from i where i.nth >= 32 union select r.home from r where r.nth >= 32)
    select s.ordinal, s.id, s.weight,
        case when s.was = s.id then -2 when s.nth = s.nth_row then -1 else abs(hashint8extended(s.ordinal, s.id) / 2) end
    from (
        select p.*, case when p.shape = 0 then 1e-9 else 0 end  -- an item without fields fits any row
            {each links}
            + case p.h{n} = p.r{n} when true then agrees[{n}] when false then differs[{n}] else 0 end
            {end links}
            as weight, 0{each telling} + case when p.h{n} = p.r{n} then 3 else 0 end{end telling} as if_rare
        from (
            -- pairs with similar numbers in their parent, and those that agree in a rare value
            select i.ordinal, i.was, i.shape, i.keeps, i.nth, r.id, r.nth as nth_row
                {each links}, i.h{n}, r.h{n} as r{n}{end links}{each telling}, i.t{n}{end telling}
            from i cross join (values (-1), (0), (1)) as d (part) join r on r.home = i.home and r.nth / 32 = i.nth / 32 + d.part
            union all
            select distinct i.ordinal, i.was, i.shape, i.keeps, i.nth, r.id, r.nth
                {each links}, i.h{n}, r.h{n}{end links}{each telling}, i.t{n}{end telling}
            from (
                select i.*, v.hash from i cross join lateral (values (null::bigint){each links}, (i.h{n}){end links}) as v (hash)
                where i.home in (select c.home from crowded c)
            ) i
            join (
                select r.*, v.hash, count(*) over (partition by v.hash) as others
                from r cross join lateral (values (null::bigint){each links}, (r.h{n}){end links}) as v (hash)
                where r.home in (select c.home from crowded c)
            ) r on r.hash = i.hash and r.others <= 100
            where abs(r.nth / 32 - i.nth / 32) > 1
        ) p
        where not p.keeps
            or true{each links} and coalesce(p.h{n} = p.r{n}, true){end links}
            {each telling}
            or p.t{n} = p.r{n}
            {end telling}
    ) s
    where s.weight + s.if_rare > 0;
    perform bds_feed.filled(import, 'pair_{entity}');
end$sql$),

('weigh_rare_{entity}(import bds.imports)', 'linked', 'void',
'raises the weights of pairs whose common values are rare among the rows of the home', $sql$
begin
    update pg_temp."home_{entity}" h set is_whole = true
    where h.id in (select i.home from pg_temp."pair_{entity}" p join pg_temp."item_{entity}" i on i.ordinal = p.ordinal);
    perform bds_import."link_rows_{entity}"(import);
    with agreed as materialized (
        select p.ordinal, p.id, i.home, v.field, v.hash
        from pg_temp."pair_{entity}" p
        join pg_temp."item_{entity}" i on i.ordinal = p.ordinal
        join pg_temp."row_{entity}" r on r.id = p.id
        cross join lateral (values
            (0, 0::bigint, null::bigint){each telling}, ({n}, i.h{n}, r.h{n}){end telling}
        ) as v (field, hash, of_row)
        where v.hash = v.of_row
    ),
    term as (
        select v.hash, count(*) as n
        from pg_temp."row_{entity}" r cross join lateral (values (null::bigint){each telling}, (r.h{n}){end telling}) as v (hash)
        where v.hash in (select a.hash from agreed a) group by v.hash
    ),
    home as (select r.home, count(*) as total from pg_temp."row_{entity}" r group by r.home)
    update pg_temp."pair_{entity}" p set weight = p.weight + g.bits
    from (
        select a.ordinal, a.id,
            -- in place of u: how many of the other rows have the value, at most u and at least an eighth of it
            sum(-ln(greatest(0.125, least(1, coalesce((t.n - 1) / nullif(h.total - 1, 0)::float8, 0) / w.u))) / ln(2)) as bits
        from agreed a
        join term t on t.hash = a.hash
        join home h on h.home = a.home
        join bds_feed.weights_of('{entity}', array[{each links|, }'{name}'{end links}]::text[]) w on w.field = a.field
        group by a.ordinal, a.id
    ) g
    where g.ordinal = p.ordinal and g.id = p.id;
end$sql$),

('link_pairs_{entity}(import bds.imports)', 'linked', 'void', 'links the pairs that are the best of both sides', $sql$
begin
    loop
        update pg_temp."item_{entity}" i set target = b.id
        from (
            select p.*, row_number() over (partition by p.ordinal order by p.weight desc, p.tie, p.id) as of_item,
                row_number() over (partition by p.id order by p.weight desc, p.tie, p.ordinal) as of_row
            from pg_temp."pair_{entity}" p where p.weight > 0
        ) b
        where b.of_item = 1 and b.of_row = 1 and i.ordinal = b.ordinal;
        exit when not found;
        delete from pg_temp."pair_{entity}" p using pg_temp."item_{entity}" i where i.ordinal = p.ordinal and i.target is not null;
        delete from pg_temp."pair_{entity}" p using pg_temp."item_{entity}" i where i.target = p.id;
        perform bds_feed.filled(import, 'pair_{entity}');
    end loop;
end$sql$);
