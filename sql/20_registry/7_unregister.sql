-- The end of an entity.

create or replace function bds.unregister(entity text)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_registry.patiently('select bds_registry.unregister_now($1[1])', array[entity]);
$$;
comment on function bds.unregister(text) is
    'Removes an entity from the API: the reverse of bds.register. The table, its rows and its change log stay';

create function bds_registry.unregister_now(entity text)
    returns void
    language plpgsql
as $$
declare
    this     bds.entities;
    child    text;
    referrer text;
    step     text;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator unregisters entities';
    end if;
    lock table bds.entities in share row exclusive mode;
    select e.* into this from bds.entities e where e.name = entity;
    if not found then
        raise exception using errcode = 'BD002', message = format('no such entity: %s', coalesce(quote_literal(entity), 'null'));
    end if;
    select n.target into child from bds.navigations n where n.entity = unregister_now.entity and n.child and n.many limit 1;
    if found then
        raise exception using
            errcode = 'BD004',
            message = format('%s is a child of %s', child, entity),
            hint = format('call bds.unregister(%L) first', child);
    end if;
    perform bds_registry.lock_views(entity);
    perform bds_registry.drop_views(entity);
    if exists (select from pg_class c where c.oid = this.table_name) then
        perform bds_registry.uninstall_table(this.table_name);
    end if;
    foreach step in array bds_registry.steps() loop
        execute format('drop function if exists bds_log.%I', bds_registry.function_of(entity, step));
    end loop;
    perform bds_feed.uninstall(entity);
    delete from bds.entities e where e.name = entity;
    -- references to it become plain fields
    for referrer in
        select e.name from bds.entities e
        where exists (
            select from bds.fields f
            where f.entity = e.name and f.reference is not null
                and not exists (select from bds.navigations n where n.entity = e.name and n.name = f.reference and not n.many)
        )
    loop
        perform bds_registry.describe_fields(e.name, e.table_name), bds_registry.describe_navigations(e.name)
        from bds.entities e where e.name = referrer;
    end loop;
    perform bds_feed.install(entity);
    perform pg_notify('bds_catalog', '');
end
$$;
comment on function bds_registry.unregister_now(text) is 'Does what bds.unregister promises, once it has the locks';
