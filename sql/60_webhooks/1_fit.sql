-- The columns that a hook may watch in the present model, and the hooks whose entity or columns the model no longer has.

create or replace view bds.hook_columns as
select f.entity, f.name, f.name as key from bds.fields f
union
select n.entity, n.name, n.field from bds.navigations n where not n.many
union
select n.entity, n.name, n.name from bds.navigations n where n.child;
comment on view bds.hook_columns is 'The names that a hook may watch in an entity, and the key of each in the change log';
comment on column bds.hook_columns.entity is 'The entity''s API name';
comment on column bds.hook_columns.name is 'The name of a field, a reference or a child collection';
comment on column bds.hook_columns.key is 'The key of its old value in the change log, or the child collection';

create or replace function bds_service.misfit(entity text, columns text[])
    returns text
    language sql
    stable
    return case
        when entity is not null and not exists (select from bds.entities e where e.name = entity) then
            format('no such entity: %s', entity)
        else (
            select format('%s column %s', coalesce(entity || ' has no', 'no entity has a'), quote_nullable(c.name))
            from unnest(columns) with ordinality as c (name, n)
            where not exists (select from bds.hook_columns k where k.name = c.name and k.entity = coalesce(misfit.entity, k.entity))
            order by c.n
            limit 1
        )
    end;
comment on function bds_service.misfit(text, text[]) is
    'The reason why a hook cannot watch these columns of an entity (null: of any entity); null if it can';

create or replace view bds.unfit_hooks as
select h.company_id, h.id, h.updated_at, bds_service.misfit(h.entity, h.columns) as problem
from bds.hooks h join bds.residents r on r.company_id = h.company_id
where not h.disabled and h.deleted_at is null and bds_service.misfit(h.entity, h.columns) is not null;
comment on view bds.unfit_hooks is 'Enabled hooks whose entity or columns the model no longer has; the worker disables them';
comment on column bds.unfit_hooks.company_id is 'The company';
comment on column bds.unfit_hooks.id is 'The hook';
comment on column bds.unfit_hooks.updated_at is 'Time of its last change';
comment on column bds.unfit_hooks.problem is 'The entity or column that the model no longer has';

create function bds_webhooks.check_hook(entity text, url text, columns text[])
    returns void
    language plpgsql
    stable
as $$
declare
    problem text := bds_service.misfit(entity, columns);
begin
    if problem is null and coalesce(url collate "C" !~* '^https?://[^/?#[:space:]]+([/?][^#[:space:]]*)?$', true) then
        problem := format('%s is not a valid http or https address', coalesce(quote_literal(url), 'null'));
    end if;
    if problem is not null then
        raise exception using errcode = 'BD005', message = problem;
    end if;
end
$$;
comment on function bds_webhooks.check_hook(text, text, text[]) is
    'Raises BD005 unless a hook may have this entity, url and columns';
