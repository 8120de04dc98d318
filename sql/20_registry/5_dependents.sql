-- What depends on the views of an entity: bds.register refuses what would drop it.

create function bds_registry.dependents_of(entity_name text)
    returns text
    language sql
    stable
    return (
        with inside (classid, objid) as (
            select 'pg_class'::regclass, v::oid from bds_registry.views_of(entity_name) v
            union all
            select 'pg_rewrite'::regclass, r.oid from bds_registry.views_of(entity_name) v join pg_rewrite r on r.ev_class = v
            union all
            select 'pg_type'::regclass, t.id
            from bds_registry.views_of(entity_name) v join pg_class c on c.oid = v join pg_type y on y.oid = c.reltype
            cross join lateral unnest(array[y.oid, y.typarray]) t (id)
        )
        select string_agg(distinct pg_describe_object(o.classid, o.objid, 0), ', ')
        from pg_depend d
        join inside i on i.classid = d.refclassid and i.objid = d.refobjid
        left join pg_rewrite r on d.classid = 'pg_rewrite'::regclass and r.oid = d.objid
        cross join lateral (
            -- a view depends by its rule
            select case when r.oid is null then d.classid else 'pg_class'::regclass end, coalesce(r.ev_class, d.objid)
        ) o (classid, objid)
        where not exists (select from inside x where x.classid = d.classid and x.objid = d.objid)
    );
comment on function bds_registry.dependents_of(text) is
    'Objects of others that depend on the views of an entity, such as a view over one of them; null without any';

create function bds_registry.refuse_dependents(entity_name text)
    returns void
    language plpgsql
    stable
as $$
declare
    dependents text := bds_registry.dependents_of(entity_name);
begin
    if dependents is not null then
        raise exception using
            errcode = 'BD005',
            message = format('the views of %s have to be dropped, and %s depends on them', entity_name, dependents),
            hint = 'drop that first, and create it again afterwards';
    end if;
end
$$;
comment on function bds_registry.refuse_dependents(text) is 'Raises BD005 if objects of others depend on the views of an entity';
