-- The objects of an entity as the system catalogs show them.  Their definitions are stored when they are made; bds.problems lists
-- the objects whose definition has changed since.

create function bds_registry.function_of(entity text, step text)
    returns name
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    -- In lower case, for names without quotes in messages and in psql.  PostgreSQL cuts names at 63 bytes.
    return (
        select case when octet_length(n.snake) <= 55 then n.snake else left(n.snake, 22) || '_' || md5(entity) end || '_' || step
        from lower(regexp_replace(entity, '([A-Z])', '_\1', 'g') collate "C") as n (snake)
    );
comment on function bds_registry.function_of(text, text) is
    'The name of an entity''s function in bds_log: check, stamp, insert, update or delete; productVariants -> product_variants_stamp';

create function bds_registry.function_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'function', p.oid::regprocedure::text, md5(p.proowner::regrole::text || pg_get_functiondef(p.oid))
    from pg_proc p
    where p.pronamespace = 'bds_log'::regnamespace and p.pronargs = 0
        and p.proname = any (array(
            select bds_registry.function_of(this.name, step) from unnest(array['check', 'stamp', 'insert', 'update', 'delete']) step
        ));
$$;
comment on function bds_registry.function_objects(bds.entities) is 'The functions of an entity''s triggers';

create function bds_registry.view_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    -- without the columns: an altered table is a problem of its own
    select 'view', c.oid::regclass::text,
        concat_ws(' ', c.relowner::regrole, c.reloptions::text, substring(pg_get_viewdef(c.oid) from '\mFROM\M.*'))
    from pg_class c
    where c.oid in (select v from bds_registry.views_of(this.name) v);
$$;
comment on function bds_registry.view_objects(bds.entities) is 'The views of an entity: owner, options, and which rows they show';

create function bds_registry.storage_of(table_name regclass)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return concat_ws(' ', pg_relation_filenode(table_name), (
        select string_agg(pg_relation_filenode(p.relid)::text, ' ' order by p.relid) from pg_partition_tree(table_name) p
    ));
comment on function bds_registry.storage_of(regclass) is 'The files of a table and its partitions: others after it was rewritten';

create function bds_registry.is_rewritten(this bds.entities)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    -- VACUUM FULL and CLUSTER rewrite a table as well.  ALTER TYPE is possible only without the views.
    return to_regclass(format('api.%I', this.name)) is null and exists (
        select from bds.generated g
        where g.entity = this.name and g.part = 'table' and g.objects ->> 'storage:' <> bds_registry.storage_of(this.table_name)
    );
comment on function bds_registry.is_rewritten(bds.entities) is
    'Whether ALTER TABLE may have changed values of an entity''s table since it was registered: its views are gone and its files are others';

create function bds_registry.table_objects(this bds.entities, out type text, out name text, out definition text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'trigger', t.tgname, pg_get_triggerdef(t.oid)
    from pg_trigger t
    where t.tgrelid = this.table_name and t.tgname ~ '^bds_' and not t.tgisinternal
    union all
    -- a restrictive policy that a DBA has added gives access to nothing
    select 'policy', p.polname, concat_ws(
        ' ', p.polpermissive, p.polcmd, p.polroles::regrole[]::text, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
    )
    from pg_policy p
    where p.polrelid = this.table_name and (p.polpermissive or p.polname in ('own_company', 'every_company'))
    union all
    select 'primary key', '', pg_get_constraintdef(k.oid) from pg_constraint k where k.conrelid = this.table_name and k.contype = 'p'
    union all
    select o.type, '', o.definition
    from pg_class c cross join lateral (
        values ('row security', c.relrowsecurity::text), ('owner', c.relowner::regrole::text), ('storage', bds_registry.storage_of(c.oid))
    ) o (type, definition)
    where c.oid = this.table_name;
$$;
comment on function bds_registry.table_objects(bds.entities) is
    'The objects that protect an entity''s table and log its rows: triggers, policies, row level security, owner, primary key';

create function bds_registry.objects(this bds.entities, part text)
    returns jsonb
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        -- without the name of the table: a table under another name is logged as before
        select jsonb_object_agg(o.type || ':' || o.name, replace(o.definition, this.table_name::regclass::text, '{table}'))
        from (
            select * from bds_registry.function_objects(this) where part = 'functions'
            union all
            select * from bds_registry.view_objects(this) where part = 'views'
            union all
            select * from bds_registry.table_objects(this) where part = 'table'
            union all  -- another major version may print definitions differently
            select 'server', '', current_setting('server_version_num')::int / 10000 || ''
        ) o
    );
comment on function bds_registry.objects(bds.entities, text) is
    'The objects of a part of an entity with their definitions: {"trigger:bds_1_lock": "CREATE TRIGGER ...", ...}';
