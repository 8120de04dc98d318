-- The feed's view of the registry: columns, keys, parents, children and families of entities.

create or replace view bds.import_columns as
select f.entity, coalesce(n.name, f.name) as name, f.column_name, f.stored as type,
    format_type(a.atttypid, a.atttypmod) as sql_type, f.required,
    case
        when a.attidentity <> '' then format(
            'nextval(%L)::%s', pg_get_serial_sequence(e.table_name::text, a.attname), format_type(a.atttypid, a.atttypmod))
        else coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(y.typdefaultbin, 0))
    end as default_expression, f.is_unique, n.target,
    n.name is not null and n.name = e.parent_navigation as is_parent, f.ordinal,
    case when f.stored = 'enum' then 'text' when y.typtype <> 'd' then format_type(a.atttypid, a.atttypmod) else (
        with recursive under (base, typmod) as (
            select y.typbasetype, y.typtypmod
            union all
            select t.typbasetype, t.typtypmod from under u join pg_type t on t.oid = u.base where t.typtype = 'd'
        )
        select format_type(u.base, u.typmod) from under u join pg_type t on t.oid = u.base and t.typtype <> 'd'
    ) end as base_type
from bds.fields f
join bds.entities e on e.name = f.entity
join pg_attribute a on a.attrelid = e.table_name and a.attname = f.column_name
join pg_type y on y.oid = a.atttypid
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
-- without the table that it referred to, a column is a plain field, as bds.register and bds.unregister make it
left join (bds.navigations n join bds.entities t on t.name = n.target join pg_class s on s.oid = t.table_name)
    on n.entity = f.entity and n.name = f.reference and not n.many
where f.name not in ('id', 'updatedAt') and not f.generated;
comment on view bds.import_columns is
    'What an import can write of an entity: fields, and references by the name of their navigation';
comment on column bds.import_columns.entity is 'The entity';
comment on column bds.import_columns.name is 'The name in the import document: a field, or a reference by its navigation';
comment on column bds.import_columns.column_name is 'The column';
comment on column bds.import_columns.type is 'The type of the column, as bds_impl.types names it';
comment on column bds.import_columns.sql_type is 'The type in SQL, with its precision';
comment on column bds.import_columns.required is 'Whether the column is not null';
comment on column bds.import_columns.default_expression is
    'The default of the column or its domain, or of an identity column the next number';
comment on column bds.import_columns.is_unique is 'Unique within the company, and therefore a kind of lookup';
comment on column bds.import_columns.target is 'For a reference the entity that it names';
comment on column bds.import_columns.is_parent is 'Whether the reference is to the parent';
comment on column bds.import_columns.ordinal is 'The column''s number in the table';
comment on column bds.import_columns.base_type is
    'The type below all domains, with its precision; text of an enum. Temporary tables have it, because a domain may refuse null, '
    'and columns of the owner''s types would block ALTER DOMAIN and DROP TYPE while a session is idle';

create function bds_feed.navigations()
    returns setof bds.navigations
    language sql
    stable
    begin atomic
        select n.* from bds.navigations n join bds.entities t on t.name = n.target join pg_class c on c.oid = t.table_name;
    end;
comment on function bds_feed.navigations() is 'Navigations to entities whose tables were not dropped';

create function bds_feed.children_of(entity_name text)
    returns table (collection text, target text, table_name regclass, column_name name)
    language sql
    stable
    begin atomic
        select n.name, n.target, e.table_name, f.column_name
        from bds_feed.navigations() n
        join bds.entities e on e.name = n.target
        join bds.fields f on f.entity = n.target and f.name = n.field
        where n.entity = entity_name and n.child
        order by n.ordinal;
    end;
comment on function bds_feed.children_of(text) is
    'The child collections of an entity, with their tables and the columns that lead to the parent';

-- What imports read of each entity.  It is stored because finding the families takes longer than a small import.

create materialized view bds_feed.entities as
with recursive nested (name, parent) as materialized (
    select e.name, n.target from bds.entities e
    left join bds_feed.navigations() n on n.entity = e.name and n.name = e.parent_navigation and not n.many
),
up (name, ancestor, depth) as (
    select n.name, n.name, 0 from nested n
    union all
    select up.name, n.parent, up.depth + 1 from up join nested n on n.name = up.ancestor
    where n.parent is not null and up.depth < 10
),
root (entity, name, depth) as materialized (
    select distinct on (up.name) up.name, up.ancestor, up.depth from up order by up.name, up.depth desc
),
link (name, target, is_required) as materialized (
    select r.name, t.name, bool_or(coalesce(c.required, false))
    from bds_feed.navigations() v join root r on r.entity = v.entity join root t on t.entity = v.target
    left join bds.import_columns c on c.entity = v.entity and c.name = v.name
    where not v.many
    group by r.name, t.name
),
-- the roots that a root's references reach, directly or over other roots
reach (name, target, is_required) as (
    select r.entity, r.entity, true from root r where r.entity = r.name
    union
    select reach.name, link.target, reach.is_required and link.is_required
    from reach join link on link.name = reach.target
),
-- an entity reaches more than those to which it refers; in a circle all reach the same
ranked (name, circle, reached, required) as (
    select r.name, min(e.ordinal) filter (where exists (select from reach b where b.name = r.target and b.target = r.name)),
        count(distinct r.target), count(distinct r.target) filter (where r.is_required)
    from reach r join bds.entities e on e.name = r.target
    group by r.name
),
ordered as (
    select e.name,
        -- in a circle entities with required references come first: other references can be written later
        row_number() over (order by k.reached, k.circle, k.required, r.ordinal, u.depth, e.ordinal)::int as rank,
        dense_rank() over (order by k.reached, k.circle)::int as family, u.name as root, u.depth, n.parent, e.table_name,
        array(
            select v.target from bds_feed.navigations() v where v.entity = e.name and (v.child or not v.many) group by v.target
        ) as beside,
        array_prepend('id', i.keys) as kinds, i.keys <> '{}' as has_keys,
        i.keys = '{}' or n.parent is not null and not i.always as is_linked,
        exists (select from bds_feed.navigations() v where v.entity = e.name and v.child) as children
    from bds.entities e
    join nested n on n.name = e.name
    join root u on u.entity = e.name
    join bds.entities r on r.name = u.name
    join ranked k on k.name = u.name
    cross join lateral (
        select array_remove(array_agg(c.name order by c.ordinal), null) as keys,
            coalesce(bool_or(c.required or c.is_parent), false) as always
        from (select) as one left join bds.import_columns c on c.entity = e.name and c.is_unique
    ) i
    where exists (select from pg_class c where c.oid = e.table_name)
)
select e.*, array(
    select distinct o.name from bds.import_columns c join ordered o on o.name = c.target
    where c.entity = e.name and not c.required and o.family = e.family and o.rank > e.rank
) as waits
from ordered e;
create unique index on bds_feed.entities (name);
comment on materialized view bds_feed.entities is
    'Entities for imports: order, families, parents; bds_feed.install refreshes it';
comment on column bds_feed.entities.name is 'The entity';
comment on column bds_feed.entities.rank is 'In the order of writing: each after those that it refers to';
comment on column bds_feed.entities.family is
    'Entities of one family are compared together: a root with its children, and roots that refer to one another in a circle';
comment on column bds_feed.entities.root is 'The entity whose records contain those of this one, itself if there is none';
comment on column bds_feed.entities.depth is 'Levels below the root';
comment on column bds_feed.entities.parent is 'The entity that it is a child of';
comment on column bds_feed.entities.table_name is 'The table';
comment on column bds_feed.entities.beside is 'Entities whose map_ its statements read';
comment on column bds_feed.entities.kinds is 'The kinds of lookup that name its rows: id and unique fields';
comment on column bds_feed.entities.has_keys is 'Whether it has a unique field, which identifies its rows';
comment on column bds_feed.entities.is_linked is
    'Whether there may be records and rows without a value in any unique field: records are linked to rows of their parent';
comment on column bds_feed.entities.children is 'Whether others are nested in it';
comment on column bds_feed.entities.waits is
    'Entities of a circle that are written later: references to their new rows are null at first';
