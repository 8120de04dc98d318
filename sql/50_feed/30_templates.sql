-- The statements of imports are generated for each entity, when it is registered, from the templates of the files that follow:
-- functions of the schema bds_import, such as match_products.  Those that return rows are one query each, which the planner
-- inlines: fields that a document does not have ($2, given) cost a large import nothing, and the plans of a small one are cached.
-- `\sf bds_import.matched_products` shows one.
--
-- In all of them $1 is the import or its company and $2 the columns for which at least one staged row has a value.  Rows of the
-- company are read with company_id = (select $1), which hides the company from the planner: for a company that is missing in the
-- statistics it would expect one row, for which any index costs the same.
--
-- `offset 0` keeps a subquery apart.  Under row level security an index can be searched for the result of an expression, but not
-- for one that calls functions; and a value that is both compared and selected is computed once.
--
-- A template is text with holes and blocks (sql/05_impl/1_fill.sql), which are filled with the result of bds_feed.scope_of.

create table bds_feed.templates (
    signature text primary key,
    of        text,
    result    text not null,
    purpose   text not null,
    body      text not null
);
comment on table bds_feed.templates is 'Functions of the schema bds_import, and the tables over which they run';
comment on column bds_feed.templates.signature is 'Name and parameters; of a table the name';
comment on column bds_feed.templates.of is
    'Null: one for each entity. A set, such as keys: one for each member. Anything else: one if the entity has it';
comment on column bds_feed.templates.result is
    'The type of the result, or the table whose rows it returns: a query if it is a table, else a body in PL/pgSQL; "a table" '
    'for tables';
comment on column bds_feed.templates.purpose is 'What it does';
comment on column bds_feed.templates.body is 'The template';

create function bds_feed.make(template bds_feed.templates, scope jsonb, member jsonb)
    returns void
    language plpgsql
as $$
declare
    name   text := bds_impl.expand(split_part(template.signature, '(', 1), scope, member);
    body   text := bds_impl.expand(template.body, scope, member);
    result text := bds_impl.expand(template.result, scope, member);
    rows   text;
begin
    if template.result = 'a table' then
        insert into bds_feed.tables values (scope ->> 'entity', name, body);
        return;
    end if;
    select format(E'table (%s\n)', replace(t.definition, '{storage}', '')) into rows from bds_feed.tables t where t.name = result;
    execute bds_impl.fill(
        $sql$
create or replace function bds_import.{name:I}{parameters} returns {result} language {language} as $function$
{body}
$function$;
comment on function bds_import.{name:I}{parameters} is {purpose:L};
alter function bds_import.{name:I}{parameters} owner to bds_owner
        $sql$,
        'name', name, 'parameters', substr(template.signature, strpos(template.signature, '(')), 'result', coalesce(rows, result),
        'language', case when coalesce(rows, result) ^@ 'table' then 'sql stable' else 'plpgsql' end, 'body', body,
        'purpose', (scope ->> 'entity') || ': ' || bds_impl.expand(template.purpose, scope, member)
    );
end
$$;
comment on function bds_feed.make(bds_feed.templates, jsonb, jsonb) is
    'Makes a function of bds_import, or a table of bds_feed.tables';

create table bds_feed.versions (
    entity       text collate "C" primary key,
    version      text not null,
    functions    jsonb not null,
    spelled_out  jsonb not null,
    stamp        text not null
);
comment on table bds_feed.versions is 'What is generated for each entity: an import works with one version of each of its entities';
comment on column bds_feed.versions.entity is 'The entity';
comment on column bds_feed.versions.version is
    'A hash of the templates and of what fills them; equal for an entity that was registered again as it was';
comment on column bds_feed.versions.functions is
    'The functions of bds_import that were made, each with a hash: bds.problems lists what differs';
comment on column bds_feed.versions.spelled_out is
    'What they spell out of the table: imports are refused while it differs (bds_feed.require_unaltered)';
comment on column bds_feed.versions.stamp is
    'That of the table then (bds_feed.stamp): as long as it is the same, so is what is spelled out';

create function bds_feed.oids_of(entity_name text)
    returns setof oid
    language sql
    stable
as $$
    select p.oid
    from pg_proc p join pg_description d on d.objoid = p.oid and d.classoid = 'pg_proc'::regclass and d.objsubid = 0
    where p.pronamespace = 'bds_import'::regnamespace and d.description ^@ (entity_name || ':');
$$;
comment on function bds_feed.oids_of(text) is 'The functions of imports of an entity, which its name in their comment marks';

create function bds_feed.functions_of(entity_name text)
    returns jsonb
    language sql
    stable
as $$
    select coalesce(jsonb_object_agg(f.function::regprocedure::text, f.definition), '{}')
    from bds_impl.functions(array(select bds_feed.oids_of(entity_name))) f;
$$;
comment on function bds_feed.functions_of(text) is 'The functions of imports of an entity, each with a hash';

create function bds_feed.note_functions(entity_name text)
    returns void
    language plpgsql
as $$
declare
    names text;
begin
    update bds_feed.versions v set functions = bds_feed.functions_of(entity_name) where v.entity = entity_name
    returning (select string_agg(f, ', ') from jsonb_object_keys(v.functions) f) into names;
    if names is not null then
        execute format('revoke all on function %1$s from public; grant execute on function %1$s to bds_importer', names);
    end if;
end
$$;
comment on function bds_feed.note_functions(text) is
    'Notes the functions of imports of an entity that were made, and lets bds_importer alone call them';

create function bds_feed.install(entity_name text default null)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set check_function_bodies = off  -- the tables are made by the first import
    -- defaults and rules are printed as imports read them, whatever the session has set
    set datestyle = 'ISO, MDY' set timezone = 'UTC' set intervalstyle = 'postgres' set bytea_output = 'hex'
    set extra_float_digits = 1 set quote_all_identifiers = off
as $$
declare
    templates text := (select md5(string_agg(t::text, '' order by t.signature)) from bds_feed.templates t);
    ranks     constant text[] := '{rank, family}';  -- no statement depends on them
    before    jsonb[] := array(select to_jsonb(e) - ranks from bds_feed.entities e);
    this      bds_feed.entities;
    scope     jsonb;
    made      text;
begin
    refresh materialized view concurrently bds_feed.entities;
    delete from bds_feed.tables t where t.entity <> '*' and t.entity not in (select e.name from bds_feed.entities e);
    perform bds_feed.uninstall(v.entity) from bds_feed.versions v where v.entity not in (select e.name from bds_feed.entities e);
    delete from bds_feed.versions v where v.entity not in (select e.name from bds_feed.entities e);
    for this in
        -- statements of an entity name its parent, its children and its references; when those change, so does its row
        select e.* from bds_feed.entities e
        where entity_name is null or e.name = entity_name or entity_name = any (e.beside) or to_jsonb(e) - ranks <> all (before)
            or e.name not in (select v.entity from bds_feed.versions v)
    loop
        scope := bds_feed.scope_of(this);
        made := md5(templates || scope);
        if not exists (
            select from bds_feed.versions v
            where v.entity = this.name and v.version = made
                and (entity_name is null or this.name <> entity_name or v.functions = bds_feed.functions_of(this.name))
        ) then
            perform bds_feed.uninstall(this.name);
        elsif this.name <> entity_name then
            continue;
        end if;
        -- A running import continues if its functions are made again unchanged.
        insert into bds_feed.versions as v values (this.name, made, '{}', bds_feed.spelled_out(this), bds_feed.stamp(this))
        on conflict on constraint versions_pkey do update
        set (version, spelled_out, stamp) = (excluded.version, excluded.spelled_out, excluded.stamp)
        where (v.version, v.spelled_out, v.stamp) <> (excluded.version, excluded.spelled_out, excluded.stamp);
        delete from bds_feed.tables t where t.entity = this.name;
        perform bds_feed.make(t, scope, m.member)
        from (select * from bds_feed.templates order by result <> 'a table') t
        cross join lateral (
            select '{}' where t.of is null or jsonb_typeof(scope -> t.of) <> 'array' and scope -> t.of not in ('null', 'false')
            union all
            select e from jsonb_array_elements(case jsonb_typeof(scope -> t.of) when 'array' then scope -> t.of end) e
        ) as m (member)
        -- an entity without a column that can be imported has only the map, which statements of others read
        where scope -> 'columns' <> 'null' or t.signature = 'map_{entity}';
        perform bds_feed.note_functions(this.name);
    end loop;
    update bds_feed.state s set version = v.version
    from (select coalesce(left(md5(string_agg(v.version, '' order by v.entity)), 8), '') as version from bds_feed.versions v) v
    where s.version is distinct from v.version;
end
$$;
comment on function bds_feed.install(text) is
    'Generates what imports need of an entity, and of those whose statements have changed with it; without a name for all entities';

create function bds_feed.uninstall(entity_name text)
    returns void
    language plpgsql
as $$
declare
    made regprocedure;
begin
    for made in select bds_feed.oids_of(entity_name) loop
        execute format('drop function %s', made);
    end loop;
end
$$;
comment on function bds_feed.uninstall(text) is 'Drops the functions of imports of an entity';
