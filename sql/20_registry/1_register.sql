-- The registry: bds.register makes a table an entity.  It reads the table's columns, keys and foreign keys from the catalog, stores
-- them in bds.entities, bds.fields and bds.navigations, and makes the view, the policies and the triggers from those.  After ALTER
-- TABLE a table is registered again, which is cheap and leaves correct objects alone.

create or replace function bds.register(
    table_name regclass,
    entity     text default null,
    parent     text default null,
    collection text default null,
    singular   text default null
)
    returns text
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_registry.patiently(
        'select bds_registry.register_now($1[1]::oid::regclass, $1[2], $1[3], $1[4], $1[5])',
        array[table_name::oid::text, entity, parent, collection, singular]
    );
$$;
comment on function bds.register(regclass, text, text, text, text) is
    'Makes a table an entity of the API, and returns the entity''s name: bds.register(''data.products''); with parent, its rows '
    'are children of another entity''s rows: bds.register(''data.order_items'', parent => ''order_id'', collection => ''items''). '
    'entity names it and singular one row of it (null: made from the table''s name). After ALTER TABLE call it again, with the '
    'same parameters: until then writes to the table raise BD007, whose hint is the call';

create function bds_registry.register_now(
    table_name regclass,
    entity     text default null,
    parent     text default null,
    collection text default null,
    singular   text default null
)
    returns text
    language plpgsql
as $$
#variable_conflict use_variable
declare
    name        text := coalesce(entity, bds_registry.camel_case((select relname from pg_class where oid = table_name)));
    parent_name text := bds_registry.camel_case(regexp_replace(parent, '_id$', ''));
    previous    regclass;
    parents     jsonb;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator registers entities';
    end if;
    -- two registrations at the same time would overwrite each other's navigations
    lock table bds.entities in share row exclusive mode;
    perform bds_registry.check_table(table_name, name);
    singular := coalesce(singular, bds_registry.singular_of(name));
    perform bds_registry.check_names(name, singular, collection);
    perform bds_registry.lock_views(name);
    if bds_shards.number_of_shards() is not null then
        table_name := bds_shards.divide(table_name);
    end if;
    execute format('alter table %s owner to bds_owner', table_name);
    execute format('alter table %s alter column company_id set default current_setting(''bds.company'', true)', table_name);

    collection := coalesce(collection, case when parent is not null then name end);
    previous := (select e.table_name from bds.entities e where e.name = name);
    parents := bds_registry.parents();
    if previous <> table_name and exists (select from pg_class c where c.oid = previous) then
        perform bds_registry.uninstall_table(previous);  -- its changes would be logged as those of the table that takes its place
    end if;
    insert into bds.entities as e (name, singular, table_name, parent_navigation, collection)
    values (name, singular, table_name, parent_name, collection)
    on conflict on constraint entities_pkey do update
    set (singular, table_name, parent_navigation, collection)
        = (excluded.singular, excluded.table_name, excluded.parent_navigation, excluded.collection);

    perform bds_registry.check_references(table_name, name, parent_name);
    perform bds_registry.describe_fields(name, table_name);
    perform bds_registry.describe_columns(name, table_name, is_another => previous is distinct from table_name);
    perform bds_registry.describe_navigations(name);
    perform bds_registry.note_parents(parents);
    perform bds_registry.install_entity(name);
    perform bds_feed.install(name);
    -- functions of its children name the table
    perform bds_registry.install_part(n.target, 'functions')
    from bds.navigations n
    where n.entity = name and n.child and n.many;
    perform pg_notify('bds_catalog', '');
    return name;
end
$$;
comment on function bds_registry.register_now(regclass, text, text, text, text) is
    'Does what bds.register promises, once it has the locks';

create function bds_registry.kind_of(relation regclass)
    returns text
    language sql
    stable
as $$
        select case
            when bds_shards.is_divided(c.oid) then null
            when c.relkind = 'p' then 'a partitioned table'
            when c.relkind = 'v' then 'a view'
            when c.relkind = 'm' then 'a materialized view'
            when c.relkind = 'f' then 'a foreign table'
            when c.relkind = 'S' then 'a sequence'
            when c.relkind = 'c' then 'a composite type'
            when c.relkind in ('i', 'I') then 'an index'
            when c.relkind <> 'r' then 'a system relation'
            when c.relpersistence = 't' then 'a temporary table'
            when c.relpersistence = 'u' then 'an unlogged table'
            when c.relispartition then format('a partition of %s', parent.name)
            when parent.name is not null then format('a child table of %s', parent.name)
            when child.name is not null then format('the parent table of %s', child.name)
        end
        from pg_class c
        left join lateral (
            select i.inhparent::regclass as name from pg_inherits i where i.inhrelid = c.oid order by i.inhseqno limit 1
        ) as parent on true
        left join lateral (
            select i.inhrelid::regclass as name from pg_inherits i where i.inhparent = c.oid order by i.inhrelid limit 1
        ) as child on true
        where c.oid = relation;
$$;
comment on function bds_registry.kind_of(regclass) is
    'The kind of a relation, in words, if triggers cannot log each change of its rows; null for an ordinary table';

create function bds_registry.has_key(table_name regclass)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_index i
        where i.indrelid = table_name and i.indisprimary
            and (select array_agg(a.attname order by k.n) from unnest(i.indkey::int2[]) with ordinality k (attnum, n)
                join pg_attribute a on a.attrelid = table_name and a.attnum = k.attnum) = array['company_id', 'id']::name[]
    );
comment on function bds_registry.has_key(regclass) is 'Whether the primary key of a table is (company_id, id)';

create function bds_registry.check_table(table_name regclass, name text)
    returns void
    language plpgsql
as $$
declare
    problem text;
begin
    -- The triggers of a table do not see writes to its partitions or child tables, and a crash empties an unlogged table.
    if table_name is null then
        problem := 'expected a table, got null';
    elsif bds_registry.kind_of(table_name) is not null then
        problem := format('%s is %s: expected an ordinary table', table_name, bds_registry.kind_of(table_name));
    elsif name !~ '^[a-z][A-Za-z0-9]{0,39}$' then
        problem := format('%L is not a valid entity name: expected camelCase, at most 40 letters and digits', name);
    elsif not exists (select from bds.entities e where e.name = check_table.name)  -- a later version may reserve a word
        and (bds_impl.is_reserved(name) or exists (select 1 from bds.companies c where c.id = name))
    then
        problem := format('entity name %L is taken: it is the id of a company or a word of the URLs', name);
    elsif exists (select from bds.entities e where e.table_name = check_table.table_name and e.name <> check_table.name) then
        problem := format('%s is already registered, as entity %s', table_name, (
            select e.name from bds.entities e where e.table_name = check_table.table_name
        ));
    end if;
    if problem is not null then
        raise exception using errcode = 'BD005', message = problem;
    end if;
    perform bds_registry.check_common_columns(table_name);
    perform bds_registry.check_columns(table_name);
    perform bds_registry.check_constraints(table_name);
    if not bds_registry.has_key(table_name) then
        raise exception using errcode = 'BD005', message = format('%s has no primary key (company_id, id)', table_name);
    end if;
    perform bds_registry.check_rights(table_name);
end
$$;
comment on function bds_registry.check_table(regclass, text) is 'Raises BD005 unless the table can be an entity of that name';

create function bds_registry.check_names(name text, singular text, collection text)
    returns void
    language plpgsql
as $$
declare
    problem text;
begin
    if singular !~ '^[a-z][A-Za-z0-9]{0,39}$' then
        problem := format('%L is not a valid name of one row: expected camelCase, at most 40 letters and digits', singular);
    elsif collection !~ '^[a-z][A-Za-z0-9]{0,39}$' then
        problem := format('%L is not a valid name of a collection: expected camelCase, at most 40 letters and digits', collection);
    else
        select format('one row of %s is already called %L', e.name, e.singular) into problem
        from bds.entities e
        where e.singular = check_names.singular and e.name <> check_names.name;
    end if;
    if problem is not null then
        raise exception using
            errcode = 'BD005', message = problem,
            hint = 'give another one: bds.register(..., singular => ''...'', collection => ''...'')';
    end if;
end
$$;
comment on function bds_registry.check_names(text, text, text) is
    'Raises BD005 for the name of one row, or of the rows inside a parent, that is malformed or taken';

create function bds_registry.missing_rights(table_name regclass)
    returns text
    language sql
    stable
    return (
        select format('grant usage on schema %I to %s', n.nspname, string_agg(r.name, ', ' order by r.name))
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        cross join unnest(array['bds_importer', 'bds_operator', 'bds_owner', 'bds_writer']) as r (name)
        where c.oid = table_name and n.nspname <> 'data'  -- which 99_grants grants
            and not has_schema_privilege(r.name, n.oid, 'usage')
        group by n.nspname
    );
comment on function bds_registry.missing_rights(regclass) is
    'The statement that lets the service''s roles use the schema of a table; null if they may';

create function bds_registry.check_rights(table_name regclass)
    returns void
    language plpgsql
as $$
begin
    if bds_registry.missing_rights(table_name) is not null then
        raise exception using
            errcode = 'BD005', message = format('roles of the service may not use the schema of %s', table_name),
            hint = bds_registry.missing_rights(table_name);
    end if;
end
$$;
comment on function bds_registry.check_rights(regclass) is 'Raises BD005 if roles of the service may not use the schema of a table';
