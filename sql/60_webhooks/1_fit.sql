-- What a hook may watch under the model as it is, and which hooks watch what it no longer has.

create or replace view bds.hook_columns as
select f.entity, f.name, f.name as key from bds.fields f
union
select n.entity, n.name, n.field from bds.navigations n where not n.many
union
select n.entity, n.name, n.name from bds.navigations n where n.child;
comment on view bds.hook_columns is 'The names that a hook may watch in an entity, and under which key the change log has each';

create or replace function bds.misfit(entity text, columns text[])
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return case
        when entity is not null and not exists (select from bds.entities e where e.name = entity) then
            format('there is no entity %s', entity)
        else (
            select format('%s a column %s', coalesce(entity || ' has not', 'no entity has'), quote_nullable(c.name))
            from unnest(columns) with ordinality as c (name, n)
            where not exists (select from bds.hook_columns k where k.name = c.name and k.entity = coalesce(misfit.entity, k.entity))
            order by c.n
            limit 1
        )
    end;
comment on function bds.misfit(text, text[]) is 'Why no hook can watch these columns of an entity (null: of any); null if one can';

create or replace view bds.unfit_hooks as
select h.company_id, h.id, bds.misfit(h.entity, h.columns) as problem
from bds.hooks h
where not h.disabled and h.deleted_at is null and bds.misfit(h.entity, h.columns) is not null;
comment on view bds.unfit_hooks is 'Hooks whose entity or columns the model no longer has, and which of them; the worker disables them';
comment on column bds.unfit_hooks.company_id is 'The company';
comment on column bds.unfit_hooks.id is 'The hook';
comment on column bds.unfit_hooks.problem is 'What the model no longer has';

create function bds_webhooks.check_hook(entity text, url text, columns text[])
    returns void
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    problem text := bds.misfit(entity, columns);
begin
    if problem is null and coalesce(url !~* '^https?://[^/?#[:space:]]+([/?][^#[:space:]]*)?$', true) then
        problem := format('%s is no http or https address', coalesce(quote_literal(url), 'null'));
    end if;
    if problem is not null then
        raise exception using errcode = 'BD005', message = problem;
    end if;
end
$$;
comment on function bds_webhooks.check_hook(text, text, text[]) is 'Raises BD005 unless a hook may be stored with this entity, url and these columns';
