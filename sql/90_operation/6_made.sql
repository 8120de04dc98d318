-- What bds migrate has made, as the catalog showed it afterwards: tables, functions, views, and who has rights on them.
-- bds.problems lists what differs.  What belongs to an entity is in bds.generated, functions of imports are in bds_feed.versions.

create table bds_operation.made (
    type        text collate "C" not null,
    object      text collate "C" not null,
    parent      text collate "C" not null,
    definition  text not null,
    is_printed  boolean not null,

    primary key (type, object)
);
comment on table bds_operation.made is 'What bds migrate has made';
comment on column bds_operation.made.type is 'function, view, table, right, owner, member, ...';
comment on column bds_operation.made.object is 'The object''s name, as statements need it';
comment on column bds_operation.made.parent is 'The table or view that it belongs to; empty for others';
comment on column bds_operation.made.definition is 'Its definition, or a hash of it';
comment on column bds_operation.made.is_printed is 'Whether another version of PostgreSQL may write the definition differently';

create function bds_operation.relations()
    returns table (relation oid, name text, kind text, parent text)
    language sql
    stable
as $$
    -- months of the log are not recorded: nobody else has rights on them, and they have nothing that their table does not have
    with months (relation, parent) as (
        select t.relid, l.log from unnest(array['bds.change_log', 'bds.change_archive']) l (log)
        cross join lateral pg_partition_tree(l.log::regclass) t
        where t.level > 0
        union all
        select c.oid, 'bds.change_log' from pg_class c
        where c.relnamespace = 'bds'::regnamespace and c.relname ~ '^change_log_[0-9]{4}_[0-9]{2}$' and c.relkind = 'r'
            and not c.relispartition
    )
    select c.oid, c.oid::regclass::text,
        case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'view' else 'table' end,
        coalesce(m.parent, c.oid::regclass::text)
    from pg_class c
    left join bds_impl.schemas() s on s.schema = c.relnamespace
    left join months m on m.relation = c.oid
    where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
        and (m.relation is not null or not c.relispartition and s.has_program or c.oid in (
            to_regclass('public.bds_migrations'), to_regclass('my.changes')
        ));
$$;
comment on function bds_operation.relations() is
    'The tables, views and sequences of the service but those of entities; months of the log with the log as their parent';

create function bds_operation.routines()
    returns setof oid
    language sql
    stable
as $$
    select p.oid
    from pg_proc p join bds_impl.schemas() s on s.schema = p.pronamespace
    where (s.has_program and s.name <> 'bds_import' or s.name = 'past')
        and not (s.name = 'bds_log' and p.oid::regprocedure::text in (
            select format('bds_log.%I()', bds_registry.function_of(e.name, step))
            from bds.entities e cross join unnest(bds_registry.steps()) step
        ));
$$;
comment on function bds_operation.routines() is
    'The functions that bds migrate makes: those of the service but what bds.register generates';

create function bds_operation.owned()
    returns table (target text, owner oid, acl aclitem[], parent text, is_month boolean)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'schema ' || n.oid::regnamespace, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)), '', false
    from bds_impl.schemas() s join pg_namespace n on n.oid = s.schema
    union all
    select case r.kind when 'sequence' then 'sequence ' else 'table ' end || r.name, c.relowner,
        coalesce(c.relacl, acldefault(case r.kind when 'sequence' then 's' else 'r' end::"char", c.relowner)), r.parent,
        r.parent <> r.name
    from bds_operation.relations() r join pg_class c on c.oid = r.relation
    union all
    select 'routine ' || p.oid::regprocedure, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)),
        p.oid::regprocedure::text, false
    from bds_operation.routines() r join pg_proc p on p.oid = r;
$$;
comment on function bds_operation.owned() is
    'The schemas, relations and functions of the service with owner and rights, named as statements name them';

create function bds_operation.protections()
    returns table (type text, object text, parent text, definition text, is_printed boolean, is_month boolean)
    language sql
    stable
as $$
    with relations as (
        select r.*, c.relrowsecurity, c.relkind, c.relpersistence, c.reloptions, r.parent <> r.name as is_month
        from bds_operation.relations() r join pg_class c on c.oid = r.relation
    )
    select o.type, o.object, r.parent, o.definition, o.is_printed, r.is_month
    from relations r
    cross join lateral (
        select case r.kind when 'view' then 'view' else 'table' end as type, r.name as object,
            case when r.kind = 'view' then md5(concat_ws(' ', r.reloptions::text, bds_impl.printed(pg_get_viewdef(r.relation))))
                else format('%s %s', r.relkind, r.relpersistence) end as definition,
            r.kind = 'view' as is_printed
        where not r.is_month
        union all
        select 'table', r.name, 'unlogged', false where r.is_month and r.relpersistence = 'u'
        union all
        select 'row security', r.name, 'enable', false where r.relrowsecurity
        union all
        select 'rule', format('%I on %s', w.rulename, r.name), '', false
        from pg_rewrite w where w.ev_class = r.relation and w.rulename <> '_RETURN'
        union all
        select 'trigger', format('%I on %s', t.tgname, r.name), pg_get_triggerdef(t.oid), true
        from pg_trigger t where t.tgrelid = r.relation and not t.tgisinternal and t.tgparentid = 0
        union all
        select 'disabled trigger', format('%I on %s', t.tgname, r.name), '', false
        from pg_trigger t where t.tgrelid = r.relation and not t.tgisinternal and t.tgenabled in ('D', 'R')
        union all
        select 'policy', format('%I on %s', p.polname, r.name),
            format(
                'create policy %I on %s as %s for %s to %s%s%s', p.polname, r.name,
                case when p.polpermissive then 'permissive' else 'restrictive' end,
                case p.polcmd
                    when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete' else 'all'
                end,
                (
                    select string_agg(r.name, ', ' order by r.name)
                    from unnest(p.polroles) u
                    cross join lateral (select case u when 0 then 'public' else u::regrole::text end) r (name)
                ),
                ' using (' || pg_get_expr(p.polqual, p.polrelid) || ')',
                ' with check (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')'
            ), true
        from pg_policy p where p.polrelid = r.relation
        union all
        select 'constraint', format('%I on %s', k.conname, r.name), pg_get_constraintdef(k.oid), true
        from pg_constraint k
        where k.conrelid = r.relation and k.contype in ('p', 'u', 'c', 'f', 'x') and k.conparentid = 0 and not r.is_month
    ) o;
$$;
comment on function bds_operation.protections() is
    'The views of the service, and what keeps rows of its tables as they should be: persistence, row level security, policies, '
    'constraints, triggers, rules';

create function bds_operation.present()
    returns table (type text, object text, parent text, definition text, is_printed boolean, is_month boolean)
    language sql
    stable
as $$
    with owned as materialized (select * from bds_operation.owned())
    select 'function', f.function::regprocedure::text, '', f.definition, f.is_printed, false
    from bds_impl.functions(array(select bds_operation.routines())) f
    union all
    select * from bds_operation.protections()
    union all
    select 'owner', o.target, o.parent, o.owner::regrole::text, false, o.is_month
    from owned o
    where not o.is_month or o.parent = 'bds.change_log' and o.target ^@ 'table bds.' and o.owner <> 'bds_owner'::regrole
    union all
    select 'right', 'on ' || o.target, o.parent, r.rights::text, false, o.is_month
    from owned o
    cross join lateral bds_impl.rights(o.acl, o.owner) r (rights)
    where not o.is_month
    union all
    -- Citus makes shards of the log, whose maintenance is its own
    select 'right', 'on ' || o.target, o.parent, bds_impl.rights(o.others, o.owner)::text, false, true
    from (
        select m.*, array(
            select makeaclitem(a.grantee, a.grantor, a.privilege_type, a.is_grantable)
            from aclexplode(m.acl) a where a.grantee <> m.owner and a.privilege_type <> 'MAINTAIN'
        ) as others
        from owned m
        where m.is_month
    ) o
    where o.others <> '{}'
    union all
    select 'right', format('(%I) on table %s', a.attname, r.name), r.parent, bds_impl.rights(a.attacl, c.relowner)::text, false,
        r.parent <> r.name
    from bds_operation.relations() r
    join pg_class c on c.oid = r.relation
    join pg_attribute a on a.attrelid = c.oid
    where a.attacl is not null and not a.attisdropped
    union all
    select 'server', '', '', bds_impl.server(), false, false
    union all
    select 'member', m.object, '', '', false, false from bds_operation.people() m;
$$;
comment on function bds_operation.present() is
    'What bds_operation.made records, as it is now; is_month: of a month of the log, which has none of it but what others have '
    'added';

create function bds_operation.differences()
    returns table (type text, object text, made text, present text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with present as materialized (select * from bds_operation.present()),
    known as (select m.definition = bds_impl.server() as is_comparable from bds_operation.made m where m.type = 'server')
    select type, object, m.definition, p.definition
    from known k cross join (bds_operation.made m full join present p using (type, object))
    where m.definition is distinct from p.definition
        and (k.is_comparable or not coalesce(m.is_printed, p.is_printed))
        -- what belongs to a table, view or function is compared where that is known and there
        and (p.type is null or p.parent in ('', object) or exists (
            select from bds_operation.made t where t.object = p.parent and t.type in ('table', 'view', 'function')
        ))
        and (m.type is null or m.parent in ('', object) or exists (
            select from present t where t.object = m.parent and t.type in ('table', 'view', 'function')
        ));
$$;
comment on function bds_operation.differences() is 'What is not as bds migrate has made it; nothing before it has recorded that';

create function bds_operation.record_made(standing jsonb)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    delete from bds_operation.made;
    -- What was a problem before and is as it was stays one: it was not made anew, and is not what was wanted.  The functions were.
    insert into bds_operation.made (type, object, parent, definition, is_printed)
    select p.type, p.object, p.parent, d.definition, p.is_printed
    from bds_operation.present() p
    left join jsonb_to_recordset(standing) s (type text, object text, made text, present text)
        on s.type = p.type and s.object = p.object and s.present = p.definition and p.type <> 'server'
        and not (p.type = 'function' and s.made is not null)
        and not (p.type = 'member' and p.object = 'bds_owner to ' || quote_ident(session_user))
    cross join lateral (
        select case
            when p.type = 'right' then bds_impl.rights_of_service(p.definition::jsonb)::text
            when s.type is not null then s.made
            else p.definition
        end
    ) d (definition)
    where d.definition is not null and not p.is_month and p.type not in ('rule', 'disabled trigger')
        and not (p.type = 'right' and p.object ^@ '(' and d.definition = '{}');
    delete from bds_operation.made m
    where m.parent not in ('', m.object)
        and not exists (select from bds_operation.made t where t.object = m.parent and t.type in ('table', 'view', 'function'));
$$;
comment on function bds_operation.record_made(jsonb) is
    'Records what bds migrate has made. standing: bds_operation.differences() before that, without the functions that it has made';
