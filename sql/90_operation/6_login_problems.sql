-- Logins that reach more than they should, or less; a part of bds.problems.  Services of one cluster share their roles, so that a
-- login which may connect to two databases with the service acts as the same roles in both.

create function bds_operation.login_problems()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    with here as (
        select d.* from pg_database d where d.datname = current_database()
    ),
    others as (
        -- bds_owner may create there; a place of this service has its rows
        select d.*
        from pg_database d, here h
        where d.oid <> h.oid
            and exists (
                select from aclexplode(d.datacl) a
                where a.grantee = to_regrole('bds_owner') and a.privilege_type = 'CREATE'
            )
            and not exists (
                select from bds.places p
                where p.url ~ format(
                    '(^|[[:space:]])dbname[[:space:]]*=[[:space:]]*''?%1$s''?([[:space:]]|$)|^[a-z]+://[^?]*/%1$s([?]|$)', d.datname
                )
            )
            and exists (select from bds.settings s where s.place = 'home')
    ),
    logins as (
        select r.oid, r.rolname as name
        from pg_roles r, unnest(bds_impl.roles()) s
        where r.rolcanlogin and not r.rolsuper and pg_has_role(r.oid, s, 'member')
        group by r.oid, r.rolname
    )
    select 'shared login', null::text, l.name::text,
        format('it may connect to database %I, too, which has the service, with the same roles', o.datname),
        case
            when pg_has_role(l.oid, o.datdba, 'usage') then null  -- it owns the other one: a person gives that another owner
            when a.grantee = 0 then format('revoke connect on database %I from public', o.datname)
            else format('revoke connect on database %I from %I', o.datname, pg_get_userbyid(a.grantee))
        end
    from here h
    cross join others o
    join logins l on has_database_privilege(l.oid, h.oid, 'connect') and has_database_privilege(l.oid, o.oid, 'connect')
    left join lateral (
        select a.grantee
        from aclexplode(coalesce(o.datacl, acldefault('d', o.datdba))) a
        where a.privilege_type = 'CONNECT' and (a.grantee = 0 or pg_has_role(l.oid, a.grantee, 'usage'))
        order by a.grantee = 0 desc, a.grantee = l.oid desc
        limit 1
    ) a on true
    union all
    select 'shut out login', null, b.role_name::text,
        format('it is bound to company %s, and may not connect to the database', b.company_id),
        format('grant connect on database %I to %I', h.datname, b.role_name)
    from here h join bds.company_logins b on true join pg_roles r on r.rolname = b.role_name
    where not has_database_privilege(r.oid, h.oid, 'connect');
$$;
comment on function bds_operation.login_problems() is
    'Problems of logins that may connect to more databases than they should, or not to this one';
