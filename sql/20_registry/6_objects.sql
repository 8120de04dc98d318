-- The objects of an entity as the system catalogs show them.  Their definitions are stored when they are made; bds.problems lists
-- the objects whose definition has changed since.

create function bds_registry.steps()
    returns text[]
    language sql
    immutable
    return array['check', 'stamp', 'insert', 'update', 'delete'];
comment on function bds_registry.steps() is 'What the functions are for that the triggers of an entity''s table call';

create function bds_registry.function_of(entity text, step text)
    returns name
    language sql
    immutable
    -- In lower case, for names without quotes in messages and in psql.  PostgreSQL cuts names at 63 bytes.
    return (
        select case when octet_length(n.snake) <= 55 then n.snake else left(n.snake, 22) || '_' || md5(entity) end || '_' || step
        from lower(regexp_replace(entity, '([A-Z])', '_\1', 'g') collate "C") as n (snake)
    );
comment on function bds_registry.function_of(text, text) is
    'The name of an entity''s function in bds_log: check, stamp, insert, update or delete; productVariants -> '
    'product_variants_stamp';

create function bds_registry.function_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
as $$
    select 'function', p.oid::regprocedure::text, p.proowner::regrole || ' ' || f.definition
    from bds_impl.functions(array(
        select p.oid
        from pg_proc p
        where p.pronamespace = 'bds_log'::regnamespace and p.pronargs = 0
            and p.proname in (select bds_registry.function_of(this.name, step) from unnest(bds_registry.steps()) step)
    )) f
    join pg_proc p on p.oid = f.function;
$$;
comment on function bds_registry.function_objects(bds.entities) is 'The functions of an entity''s triggers';

create function bds_registry.relation_objects(relation regclass, label text, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
as $$
    select 'right', format('on %s', label), bds_impl.rights(coalesce(c.relacl, acldefault('r', c.relowner)), c.relowner)::text
    from pg_class c
    where c.oid = relation
    union all
    select 'right', format('(%I) on %s', a.attname, label), bds_impl.rights(a.attacl, c.relowner)::text
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where a.attrelid = relation and a.attacl is not null and not a.attisdropped
    union all
    select 'rule', format('%I on %s', r.rulename, label), ''
    from pg_rewrite r
    where r.ev_class = relation and r.rulename <> '_RETURN';
$$;
comment on function bds_registry.relation_objects(regclass, text) is
    'Who has rights on a table or view and its columns, and the rules that rewrite statements over it; label: what it is called '
    'there';

create function bds_registry.view_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
as $$
    -- without the columns: an altered table is a problem of its own
    select 'view', c.oid::regclass::text,
        concat_ws(' ', c.relowner::regrole, c.reloptions::text, substring(pg_get_viewdef(c.oid) from '[[:<:]]FROM[[:>:]].*'))
    from pg_class c
    where c.oid in (select v from bds_registry.views_of(this.name) v)
    union all
    select o.* from bds_registry.views_of(this.name) v cross join lateral bds_registry.relation_objects(v, 'table ' || v) o;
$$;
comment on function bds_registry.view_objects(bds.entities) is
    'The views of an entity: owner, options, which rows they show, rights and rules';

create function bds_registry.storage_of(table_name regclass)
    returns text
    language sql
    stable
    return concat_ws(' ', pg_relation_filenode(table_name), (
        select string_agg(pg_relation_filenode(p.relid)::text, ' ' order by p.relid) from pg_partition_tree(table_name) p
    ));
comment on function bds_registry.storage_of(regclass) is 'The files of a table and its partitions: others after it was rewritten';

create function bds_registry.is_rewritten(this bds.entities)
    returns boolean
    language sql
    stable
    -- VACUUM FULL and CLUSTER rewrite a table as well.  ALTER TYPE is possible only without the views.
    return to_regclass(format('api.%I', this.name)) is null and exists (
        select from bds.generated g
        where g.entity = this.name and g.part = 'table' and g.objects ->> 'storage:' <> bds_registry.storage_of(this.table_name)
    );
comment on function bds_registry.is_rewritten(bds.entities) is
    'Whether ALTER TABLE may have changed values of an entity''s table since it was registered: its views are gone and its files '
    'are others';

create function bds_registry.sequence_of(table_name regclass)
    returns regclass
    language sql
    stable
    -- by number: its schema may be closed, its name another one
    return (
        select d.objid::regclass
        from pg_attribute a
        join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid = a.attnum
            and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        join pg_sequence s on s.seqrelid = d.objid
        where a.attrelid = table_name and a.attname = 'id' and not a.attisdropped
        order by d.deptype desc, d.objid
        limit 1
    );
comment on function bds_registry.sequence_of(regclass) is 'The sequence that gives the ids of a table''s rows';

create function bds_registry.other_sequences(table_name regclass)
    returns setof regclass
    language sql
    stable
as $$
    select s.seqrelid::regclass
    from pg_sequence s
    where s.seqrelid is distinct from bds_registry.sequence_of(table_name)
        and (
            exists (  -- of an identity column, or owned by a column
                select from pg_depend d
                where d.classid = 'pg_class'::regclass and d.objid = s.seqrelid and d.deptype in ('a', 'i')
                    and d.refclassid = 'pg_class'::regclass and d.refobjid = table_name
            )
            or exists (
                select from pg_attrdef f join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = f.oid
                where f.adrelid = table_name and d.refclassid = 'pg_class'::regclass and d.refobjid = s.seqrelid
            )
            or exists (  -- of the default of a domain
                select from pg_attribute a join pg_depend d on d.classid = 'pg_type'::regclass and d.objid = a.atttypid
                where a.attrelid = table_name and d.refclassid = 'pg_class'::regclass and d.refobjid = s.seqrelid
            )
        )
    order by s.seqrelid;
$$;
comment on function bds_registry.other_sequences(regclass) is
    'The sequences of a table''s other identity columns, and of the defaults of its columns and their domains';

create function bds_registry.table_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
as $$
    select 'trigger', t.tgname, pg_get_triggerdef(t.oid)
    from pg_trigger t
    where t.tgrelid = this.table_name and t.tgname ~ '^~?bds_' and not t.tgisinternal
    union all
    -- a restrictive policy of the owner gives access to nothing, but it may hide rows from roles of the service
    select 'policy', p.polname, concat_ws(
        ' ', p.polpermissive, p.polcmd, p.polroles::regrole[]::text, pg_get_expr(p.polqual, p.polrelid),
        pg_get_expr(p.polwithcheck, p.polrelid)
    )
    from pg_policy p
    where p.polrelid = this.table_name
        and (
            p.polpermissive or p.polname in ('own_company', 'every_company') or p.polqual is not null and exists (
                select from unnest(bds_impl.roles()) s, unnest(p.polroles) r where r = 0 or pg_has_role(s, r, 'usage')
            )
        )
    union all
    select 'primary key', '', pg_get_constraintdef(k.oid)
    from pg_constraint k where k.conrelid = this.table_name and k.contype = 'p'
    union all
    select * from bds_registry.relation_objects(this.table_name, 'table {table}')
    union all
    select 'right', 'on sequence {sequence}', bds_impl.rights(coalesce(c.relacl, acldefault('s', c.relowner)), c.relowner)::text
    from pg_class c
    where c.oid = bds_registry.sequence_of(this.table_name)
    union all
    select o.type, '', o.definition
    from pg_class c cross join lateral (
        values
            ('row security', c.relrowsecurity::text), ('owner', c.relowner::regrole::text),
            ('storage', bds_registry.storage_of(c.oid))
    ) o (type, definition)
    where c.oid = this.table_name;
$$;
comment on function bds_registry.table_objects(bds.entities) is
    'The objects that protect an entity''s table and log its rows: triggers, policies, row level security, owner, primary key, '
    'rights';

create function bds_registry.objects(this bds.entities, part text)
    returns jsonb
    language sql
    stable
as $$
    -- without the name of the table: a table under another name is logged as before
    select jsonb_object_agg(o.type || ':' || o.name, replace(o.definition, this.table_name::regclass::text, '{table}'))
    from (
        select * from bds_registry.function_objects(this) where part = 'functions'
        union all
        select * from bds_registry.view_objects(this) where part = 'views'
        union all
        select * from bds_registry.table_objects(this) where part = 'table'
        union all  -- another major version may print definitions differently
        select 'server', '', bds_impl.server()
    ) o;
$$;
comment on function bds_registry.objects(bds.entities, text) is
    'The objects of a part of an entity with their definitions: {"trigger:bds_1_lock": "CREATE TRIGGER ...", ...}';

create function bds_registry.made_objects(this bds.entities, part text, statements text)
    returns jsonb
    language sql
    stable
as $$
    -- What others have added stays a problem: triggers and policies that the statements do not make, rights of other roles, rules.
    select jsonb_object_agg(
            o.key,
            case when o.type = 'right' then to_jsonb(bds_impl.rights_of_service((o.value #>> '{}')::jsonb)::text) else o.value end
        )
        -- the name that another table may take; bds.register forgets it
        || case part when 'table' then jsonb_build_object('name:', coalesce(
            (select g.objects -> 'name:' from bds.generated g where g.entity = this.name and g.part = made_objects.part),
            to_jsonb(this.table_name::regclass::text)
        )) else '{}' end
        -- what every table has to have, though it is upgraded without it
        || case when part = 'table' and not bds_registry.has_key(this.table_name)
            then '{"primary key:": "PRIMARY KEY (company_id, id)"}' else '{}' end::jsonb
    from (
        select p.key, p.value, split_part(p.key, ':', 1) as type, substr(p.key, strpos(p.key, ':') + 1) as name
        from jsonb_each(bds_registry.objects(this, part)) p
    ) o
    where o.type <> 'rule'
        and not (o.type = 'right' and o.name ^@ '(')
        and not (o.type in ('trigger', 'policy') and strpos(statements, format('%s %I ', o.type, o.name)) = 0);
$$;
comment on function bds_registry.made_objects(bds.entities, text, text) is
    'The objects of a part of an entity that its statements have made, as they are now';
