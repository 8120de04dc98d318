-- Logins that reach more than they should, or less; a part of bds.problems.  Services of one cluster share their roles, so that a
-- login which may connect to two databases with the service acts as the same roles in both.

create or replace view bds.login_problems as
with here as (
    select d.* from pg_database d where d.datname = current_database()
),
others as (
    -- bds_owner may create there; a place of this service has its rows
    select d.*
    from pg_database d, here h
    where d.oid <> h.oid
        and exists (select from aclexplode(d.datacl) a where a.grantee = to_regrole('bds_owner') and a.privilege_type = 'CREATE')
        and not exists (select from bds.places p where p.url is not null and strpos(p.url, d.datname) > 0)
        and exists (select from bds.settings s where s.place = 'home')
),
logins as (
    select r.oid, r.rolname as name
    from pg_roles r, unnest(array[
        'bds_owner', 'bds_operator', 'bds_reader', 'bds_writer', 'bds_importer', 'bds_analyst', 'bds_service', 'bds_worker',
        'bds_dispatcher'
    ]::name[]) s
    where r.rolcanlogin and not r.rolsuper and pg_has_role(r.oid, s, 'member')
    group by r.oid, r.rolname
)
select 'shared login' as kind, null::text as company_id, null::text as entity, l.name::text collate "default" as object,
    format('it may connect to database %I, too, which has the service, with the same roles', o.datname) as detail,
    case
        when pg_has_role(l.oid, o.datdba, 'usage') then
            format('create role %2$I login; alter database %1$I owner to %2$I', o.datname, o.datname || '_owner')
        when a.grantee = 0 then format('revoke connect on database %I from public', o.datname)
        else format('revoke connect on database %I from %I', o.datname, pg_get_userbyid(a.grantee))
    end as mend
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
select 'shut out login', b.company_id, null, b.role_name::text collate "default", 'it is bound to the company, and may not connect to the database',
    format('grant connect on database %I to %I', h.datname, b.role_name)
from here h join bds.company_logins b on true join pg_roles r on r.rolname = b.role_name
where not has_database_privilege(r.oid, h.oid, 'connect');
comment on view bds.login_problems is 'Problems of logins; a part of bds.problems';
comment on column bds.login_problems.kind is 'The kind of problem';
comment on column bds.login_problems.company_id is 'The company; null: of all';
comment on column bds.login_problems.entity is 'Null: no problem of an entity';
comment on column bds.login_problems.object is 'The login that has it';
comment on column bds.login_problems.detail is 'What was found';
comment on column bds.login_problems.mend is 'The statement that mends it';
