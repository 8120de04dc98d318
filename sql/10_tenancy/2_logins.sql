-- Logins that are bound to one company: they read schema my, whose views filter by session_user, which no session can choose.

create or replace function bds.grant_company(role name, company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    login pg_roles;
    other record;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator binds a login to a company';
    elsif not exists (select 1 from bds.companies c where c.id = company) then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
    select * into login from pg_roles r where r.rolname = role;
    if not found then
        raise exception using
            errcode = 'BD002', message = format('no such role: %s', coalesce(quote_literal(role), 'null')),
            hint = format('create role %s login password ''...''', coalesce(quote_ident(role), '...'));
    elsif not login.rolcanlogin then
        raise exception using
            errcode = 'BD005',
            message = format('role %I cannot log in: expected a login', role),
            hint = format('alter role %I login', role);
    end if;
    select r.rolname, c.oid::regclass as relation into other
    from pg_roles r, pg_class c
    where pg_has_role(role, r.oid, 'member') and has_table_privilege(r.oid, c.oid, 'select, insert, update, delete')
        and c.relkind in ('r', 'p', 'v')
        and c.relnamespace in (select n.oid from pg_namespace n where n.nspname in ('api', 'bds', 'data', 'past', 'staging'))
    order by (r.rolname = role), r.rolname, c.oid
    limit 1;
    if found then
        raise exception using
            errcode = 'BD004',
            message = format('role %I may use %s, which has rows of every company', role, other.relation),
            hint = case
                when login.rolsuper then 'it is a superuser: take another role'
                when other.rolname <> role then format('revoke %I from %I', other.rolname, role)
                else format('revoke all on %s from %I', other.relation, role)
            end;
    end if;
    insert into bds.company_logins (role_name, company_id) values (role, company)
    on conflict (role_name) do update set company_id = excluded.company_id where company_logins.company_id = excluded.company_id;
    if not found then
        raise exception using
            errcode = 'BD004', message = format('role %I is already bound to another company', role),
            hint = format('select bds.revoke_company(%L)', role);
    end if;
    execute format('grant bds_analyst to %I', role);
end
$$;
comment on function bds.grant_company(name, text) is
    'Binds a login to one company: it reads the views of schema my, which show that company alone';

create or replace function bds.revoke_company(role name)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator binds a login to a company';
    end if;
    delete from bds.company_logins l where l.role_name = role;
    if not found then
        raise exception using
            errcode = 'BD002', message = format('role %s is not bound to a company', coalesce(quote_ident(role), 'null'));
    end if;
    if exists (select from pg_roles r where r.rolname = role) then
        execute format('revoke bds_analyst from %I', role);
    end if;
end
$$;
comment on function bds.revoke_company(name) is 'Ends the binding of a login to a company: schema my then shows it nothing';
