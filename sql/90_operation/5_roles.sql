-- Who may act as the roles of the service, and what these roles have beyond their rights in this database; a part of bds.problems.

create function bds_operation.memberships()
    returns table (role text, member text)
    language sql
    immutable
as $$
    -- as app/database/roles.py grants them
    values
        ('bds_operator', 'bds_owner'), ('bds_reader', 'bds_owner'), ('bds_writer', 'bds_owner'), ('bds_importer', 'bds_owner'),
        ('bds_dispatcher', 'bds_owner'), ('bds_analyst', 'bds_owner'), ('bds_writer', 'bds_importer'),
        ('bds_reader', 'bds_dispatcher'), ('bds_reader', 'bds_worker');
$$;
comment on function bds_operation.memberships() is 'Which roles of the service are members of others';

create function bds_operation.people()
    returns table (object text)
    language sql
    stable
as $$
    select format('%s to %I', r.name, m.rolname)
    from pg_roles m
    cross join lateral (
        select pg_has_role(m.oid, 'bds_owner', 'member'), pg_has_role(m.oid, 'bds_operator', 'member'),
            pg_has_role(m.oid, 'bds_service', 'member'), pg_has_role(m.oid, 'bds_worker', 'member'),
            pg_has_role(m.oid, 'bds_reader', 'member') and pg_has_role(m.oid, 'bds_writer', 'member')
    ) i (is_owner, is_operator, is_service, is_worker, is_reader_and_writer)
    cross join lateral (values
        ('bds_owner', i.is_owner),
        ('bds_operator', i.is_operator and not i.is_owner),
        -- the login of the service is both, and a reader and writer
        ('bds_service', i.is_service and not i.is_owner and not (i.is_worker and i.is_reader_and_writer)),
        ('bds_worker', i.is_worker and not i.is_owner and not (i.is_service and i.is_reader_and_writer)),
        -- they reach the log, clocks and secrets without a right in this database
        ('pg_read_all_data', pg_has_role(m.oid, 'pg_read_all_data', 'member')),
        ('pg_write_all_data', pg_has_role(m.oid, 'pg_write_all_data', 'member'))
    ) r (name, may)
    where r.may and not m.rolsuper and m.rolname <> all (bds_impl.roles()) and m.rolname !~ '^pg_'
        and m.rolname not in (select l.role_name from bds.company_logins l)
        -- where a role of the service has PostgreSQL's, that is the problem
        and not (r.name ^@ 'pg_' and exists (
            select from unnest(bds_impl.roles()) o where pg_has_role(m.oid, o, 'member') and pg_has_role(o, r.name, 'member')
        ))
        and has_database_privilege(m.oid, current_database(), 'connect');
$$;
comment on function bds_operation.people() is
    'Roles that may connect and act as one of the powerful roles, or as PostgreSQL''s that read or write everything, directly or '
    'by way of others: "bds_owner to anna". Left out are superusers, the service''s roles, its login, and logins of companies, '
    'whose memberships bds_operation.role_problems examines';

create function bds_operation.role_problems()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    with members as (
        select a.roleid::regrole::text as role, a.member::regrole::text as member, a.grantor::regrole::text as grantor,
            a.member = any (bds_impl.roles()::regrole[]) as is_ours
        from pg_auth_members a
        -- a membership with ADMIN alone, as that of the login that has created it, gives nothing else
        where a.set_option or a.inherit_option
    ),
    unknown as (
        select m.* from members m
        where (
                m.is_ours and (m.role, m.member) <> ('pg_read_all_stats', 'bds_owner')
                or m.role in ('bds_importer', 'bds_dispatcher')
            )
            and not exists (select from bds_operation.memberships() w where (w.role, w.member) = (m.role, m.member))
        union
        -- a login that is bound to a company, by each of its roles that leads to rows of others
        select m.* from bds.company_logins l join members m on m.member = quote_ident(l.role_name)
        cross join unnest(bds_impl.roles() || array['pg_read_all_data', 'pg_write_all_data']) r (role)
        where r.role <> 'bds_analyst' and pg_has_role(m.role::regrole, r.role, 'member')
    )
    select 'unknown member', null::text, u.member, format('it is a member of %s, which it should not be', u.role),
        string_agg(format('revoke %s from %s granted by %s', u.role, u.member, u.grantor), '; ' order by u.grantor)
    from unknown u
    group by u.role, u.member
    union all
    select 'missing member', null, w.member, format('it is not a member of %s, which it should be', w.role),
        format('grant %s to %s', w.role, w.member)
    from bds_operation.memberships() w
    where not exists (select from members m where (m.role, m.member) = (w.role, w.member));
$$;
comment on function bds_operation.role_problems() is 'Problems of who is a member of which role';

create function bds_operation.altered_roles()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    select 'altered role', null, r.rolname, format('it has %s, which it should not have', a.names), null
    from pg_roles r
    cross join lateral (
        select string_agg(a.name, ', ') from (values
            ('SUPERUSER', r.rolsuper), ('CREATEROLE', r.rolcreaterole), ('CREATEDB', r.rolcreatedb),
            ('REPLICATION', r.rolreplication), ('BYPASSRLS', r.rolbypassrls), ('LOGIN', r.rolcanlogin)
        ) a (name, has) where a.has
    ) a (names)
    where r.rolname = any (bds_impl.roles()) and a.names is not null
    union all
    select 'altered role', null, l.role_name, 'it is bound to a company and a superuser', null
    from bds.company_logins l join pg_roles r on r.rolname = l.role_name
    where r.rolsuper;
$$;
comment on function bds_operation.altered_roles() is 'Problems of roles that may do more than their rights allow';

create function bds_operation.other_rights()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    -- with it a session passes over the triggers that write the log
    select 'altered rights', null, 'parameter session_replication_role',
        format(
            '%s may set it, and so write unlogged: a superuser revokes that',
            string_agg(case a.grantee when 0 then 'public' else a.grantee::regrole::text end, ', ')
        ),
        null
    from pg_parameter_acl p cross join lateral aclexplode(p.paracl) a
    left join pg_roles r on r.oid = a.grantee
    where p.parname = 'session_replication_role' and r.rolname is distinct from 'bds_owner' and r.rolsuper is not true
    having count(*) > 0
    union all
    select 'altered rights', null, 'database ' || quote_ident(d.datname), r.detail, r.mend
    from pg_database d
    cross join lateral bds_impl.rights(coalesce(d.datacl, acldefault('d', d.datdba)), d.datdba) p (present)
    -- who may connect is the administrator's affair; and rights in a database are not in its dump
    cross join lateral (
        select coalesce(jsonb_object_agg(e.key, jsonb_build_array('create')), '{}')
        from jsonb_each(bds_impl.rights_of_service(p.present)) e
        where e.key <> 'bds_owner' and e.value ?| array['create', 'create*']
    ) u (present)
    cross join lateral bds_impl.rights_differ('on database ' || quote_ident(d.datname), '{}', u.present) r
    where d.datname = current_database() and r.detail is not null
    union all
    select 'altered rights', null,
        format('objects to come of %s%s', d.defaclrole::regrole, ' in schema ' || nullif(d.defaclnamespace, 0)::regnamespace),
        string_agg(
            format('%s may %s %s', g.grantee, lower(a.privilege_type collate "C"), t.name), '; '
            order by g.grantee, a.privilege_type
        ),
        string_agg(
            format(
                'alter default privileges for role %s%s revoke %s on %s from %s', d.defaclrole::regrole,
                ' in schema ' || nullif(d.defaclnamespace, 0)::regnamespace, lower(a.privilege_type collate "C"), t.name, g.grantee
            ), '; ' order by g.grantee, a.privilege_type
        )
    from pg_default_acl d
    cross join lateral aclexplode(d.defaclacl) a
    cross join lateral (select case a.grantee when 0 then 'public' else a.grantee::regrole::text end) g (grantee)
    cross join lateral (
        select case d.defaclobjtype
            when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'functions' when 'T' then 'types' when 'n' then 'schemas'
            else 'large objects'
        end
    ) t (name)
    where d.defaclrole::regrole::text = any (bds_impl.roles()) and a.grantee <> d.defaclrole
        and not (d.defaclnamespace = 0 and exists (
            select from aclexplode(acldefault(d.defaclobjtype, d.defaclrole)) w
            where (w.grantee, w.privilege_type) = (a.grantee, a.privilege_type)
        ))
    group by d.oid, d.defaclrole, d.defaclnamespace;
$$;
comment on function bds_operation.other_rights() is
    'Problems of rights that are not those in an object of the service: in the database, a setting, objects to come';
