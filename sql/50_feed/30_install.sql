-- Generates the statements of imports for an entity, when it is registered: functions of the schema bds_import, called <step>_<entity>.
-- Those that return rows are one query each, which the planner takes into the statement that calls them; so what a document does not
-- give ($2, given) costs a large import nothing, and a small one finds every plan ready.  `\sf bds_import.matched_products` shows one.
--
-- In all of them $1 is the import or its company and $2 the columns that at least one staged row gives.  Rows of the company are read
-- with company_id = (select $1): of a company that its statistics do not know the planner expects one row, and then every index seems
-- as good as the right one; so it is not told which company it is.

create function bds_feed.install(entity_name text default null)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set check_function_bodies = off  -- the tables are made by the first import
as $$
declare
    touched text;
begin
    perform bds_feed.note_entities();
    update bds_feed.state set version = left(md5(random()::text), 8);
    delete from bds_feed.tables t where t.entity <> '*' and t.entity not in (select e.name from bds_feed.entities e);
    for touched in  -- those whose statements name the entity, too
        select e.name from bds_feed.entities e
        where entity_name is null or e.name = entity_name
            or exists (select from bds.navigations n where n.entity = e.name and n.target = entity_name)
            or e.family = (select f.family from bds_feed.entities f where f.name = entity_name)
    loop
        perform bds_feed.uninstall(touched);
        -- of an entity without a column that can be imported there is the map alone, which others read
        insert into bds_feed.tables select touched, t.name, t.definition from bds_feed.tables_of(touched) t
        where exists (select from bds.import_columns c where c.entity = touched) or t.name ^@ 'map_';
        continue when not exists (select from bds.import_columns c where c.entity = touched);
        perform bds_feed.make_stage(touched), bds_feed.make_look_at(touched), bds_feed.make_refer(touched), bds_feed.make_check(touched),
            bds_feed.make_diff(touched), bds_feed.make_compare(touched), bds_feed.make_write(touched), bds_feed.make_mass(touched), bds_feed.make_remove(touched);
        if bds_feed.has_keys(touched) then
            perform bds_feed.make_match(touched), bds_feed.make_check_keys(touched);
        else
            perform bds_feed.make_linkage(touched);
        end if;
    end loop;
    revoke all on all functions in schema bds_import from public;
    grant execute on all functions in schema bds_import to bds_importer;
end
$$;
comment on function bds_feed.install(text) is
    'Generates the functions of imports for an entity, and anew those of entities that it has to do with; without a name for all';

create function bds_feed.uninstall(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
begin
    for made in
        select p.oid from pg_proc p where p.pronamespace = 'bds_import'::regnamespace and obj_description(p.oid, 'pg_proc') ^@ (entity_name || ':')
    loop
        execute format('drop function %s', made);
    end loop;
    delete from bds_feed.tables t where t.entity = entity_name;
end
$$;
comment on function bds_feed.uninstall(text) is 'Drops the functions of imports of an entity';

create function bds_feed.make(entity_name text, signature text, result text, purpose text, body text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute bds_impl.fill(
        $sql$
create or replace function bds_import.{signature} returns {result} language {language} {volatility} as $function$
{body}
$function$;
comment on function bds_import.{signature} is {purpose:L}
        $sql$,
        'signature', signature, 'result', result, 'purpose', entity_name || ': ' || purpose, 'body', body,
        'language', case when result ^@ 'table' then 'sql' else 'plpgsql' end,
        'volatility', case when result ^@ 'table' then 'stable' else 'volatile' end
    );
end
$$;
comment on function bds_feed.make(text, text, text, text, text) is 'Makes a function of bds_import: a query if it returns rows, else a body in PL/pgSQL';

create function bds_feed.gives(variadic columns text[])
    returns text
    language sql
    immutable
    return (select string_agg(format('%L = any ($2)', c), ' or ') from unnest(columns) as c);
comment on function bds_feed.gives(text[]) is 'SQL that tells whether the document gives one of these columns';

create function bds_feed.reference_joins(entity_name text, given text, condition text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return coalesce((
        select string_agg(format(E'left join pg_temp.%1$I %2$I on %3$s and (%4$s) and %2$I.lookup = %5$s',
            'ref_' || bds_feed.reference_name(entity_name, c.name), 'ref_' || c.name, condition, bds_feed.gives(c.name), format(given, c.name)),
            E'\n' order by c.ordinal)
        from bds.import_columns c where c.entity = entity_name and c.target is not null
    ), '');
comment on function bds_feed.reference_joins(text, text, text) is
    'SQL that joins what the lookups of a row name, as ref_<reference>; given is a format for the staged column';

create function bds_feed.parent_join(entity_name text, given text, condition text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return coalesce((
        select format('left join pg_temp.%I p on %s and p.ordinal = %s', 'map_' || e.parent, condition, given)
        from bds_feed.entities e where e.name = entity_name and e.parent is not null
    ), '');
comment on function bds_feed.parent_join(text, text, text) is 'SQL that joins the record in which a record stands, as p';
