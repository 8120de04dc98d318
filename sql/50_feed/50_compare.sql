-- Imports, the comparison: which stored row each staged row means, what is wrong with it, and how the two differ.
--
-- Entities are compared in families, a root with its children, those first on which others depend.  For each entity temporary tables
-- hold the answer:
--     map_<entity>    ordinal, parent, position, phase, operation, target (the row's id, taken ahead for new rows), is_new, is_same,
--                     failed, key_<unique field>...; phase 1 writes, 2 are mass updates, 3 deletes
--     lookup_<entity>_<reference>   lookup, kind, value: the distinct lookups of one reference
--     ref_<entity>_<reference>   lookup, kind, id: what they name; of a large feed staging.i<number>_@<entity>_<reference>
--     diff_<entity>   @ordinal, @new, id, and every column: the rows that are to be written

create function bds_feed.import_prepare(company text, import_id uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0  -- imports queue without a limit
as $$
declare
    import      bds.imports := bds.open_import(company, import_id, 'running');
    ordered     text[] := bds_feed.import_order(import.number);
    members     text[];
begin
    perform bds.set_context(company, import.actor, import_id);
    perform bds.lock_company(company);
    perform bds_feed.import_drop_comparison(import.number);
    execute format('delete from %s where not is_kept', bds_feed.staging_table(import.number, 'errors'));
    perform bds_feed.plan_for(import.number);
    create temporary table family_ as
    select o.name, o.n as place, f.family, null::text[] as columns, 0::bigint as rows, 0::bigint as failed, 0::bigint as writes, 0::bigint as updates, 0::bigint as deletes
    from unnest(ordered) with ordinality as o (name, n) join bds_feed.families() f on f.name = o.name;
    for members in execute 'select array_agg(f.name order by f.place) from pg_temp.family_ f group by f.family order by f.family' loop
        raise notice 'comparing %: 0 of % rows done', members[1], import.records;
        perform bds_feed.import_prepare_family(company, import, members);
        perform bds_feed.count_map(m.name) from unnest(members) as m (name);
    end loop;
end
$$;
comment on function bds_feed.import_prepare(text, uuid) is 'Compares all that was staged with what is stored; holds the company''s lock from here on';

create function bds_feed.import_prepare_family(company text, import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name    text;
    given          text[];  -- its columns
    is_valid       boolean;
    rows           bigint;
    refers_outside boolean;
    compare        boolean;
begin
    foreach entity_name in array members loop
        select * into given, is_valid, rows from bds_feed.look_through(import.number, entity_name);
        perform bds_feed.note_columns(entity_name, given);
        if not is_valid then
            perform bds_feed.check_values(import.number, entity_name, given);
        end if;
        refers_outside := bds_feed.refers_outside(entity_name, members, given);
        if refers_outside then
            perform bds_feed.resolve_references(company, import.number, entity_name, given);
        end if;
        if bds_feed.has_keys(entity_name) then
            -- where its parent's rows are not mapped yet, it is not known either whether it has moved to another
            compare := refers_outside and (bds_feed.mapped_parent(entity_name) is not null or bds_feed.parent_of(entity_name) = any (members) is not true);
            perform bds_feed.map_by_keys(company, import.number, entity_name, given, compare, rows);
            perform bds_feed.check_names(import.number, entity_name, given);
            perform bds_feed.check_operations(import.number, entity_name, given);
            perform bds_feed.check_required(import.number, entity_name);
        end if;
    end loop;
    perform bds_feed.mark_known(import.number, members);  -- what a record that is refused says of itself is no name for others
    foreach entity_name in array members loop
        given := bds_feed.noted_columns(entity_name);
        if not bds_feed.refers_outside(entity_name, members, given) then
            perform bds_feed.resolve_references(company, import.number, entity_name, given);
        end if;
        if not bds_feed.has_keys(entity_name) then
            perform bds_feed.map_by_linkage(company, import.number, entity_name, given);
            perform bds_feed.check_operations(import.number, entity_name, given);
            perform bds_feed.check_required(import.number, entity_name);
        end if;
        perform bds_feed.check_nesting(import.number, entity_name, given);
        perform bds_feed.make_diff(company, import.number, entity_name, given);
        perform bds_feed.check_constraints(company, import.number, entity_name, 'diff_' || entity_name);
    end loop;
    perform bds_feed.mark_failed(import, members);
end
$$;
comment on function bds_feed.import_prepare_family(text, bds.imports, text[]) is 'Compares the staged rows of a family';

create function bds_feed.make_diff(
    company text, import_number bigint, entity_name text, columns text[], map_name text default null, diff_name text default null
)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set join_collapse_limit = 1  -- what is the same goes first: often little is left then
    set enable_nestloop = off
as $$
declare
    this   bds.entities;
    parent text := bds_feed.mapped_parent(entity_name);
    joins  text;
    values_ text;
    differs text;
    names  text;
    is_checked boolean;
    rest    bigint;
    stored  text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    is_checked := bds_feed.all_valid(import_number, entity_name);

    select
        string_agg(bds_feed.reference_join(import_number, entity_name, c.name, format('s.%I', c.name)), E'\n')
            filter (where c.target is not null and c.name = any (columns)),
        string_agg(format('%s as %I, t.%I as %I', v.expression, c.column_name, c.column_name, 'stored ' || c.column_name), E',\n' order by c.ordinal),
        string_agg(format('v.%I is distinct from v.%I', c.column_name, 'stored ' || c.column_name), E'\n or ' order by c.ordinal)
            filter (where v.is_given),
        string_agg(format('v.%I', c.column_name), ', ' order by c.ordinal)
    into joins, values_, differs, names
    from bds.import_columns c
    cross join lateral (select
        c.name = any (columns) or (c.is_unique and '@id' = any (columns)) or (c.is_parent and parent is not null),
        -- what a row that does not give the column keeps or gets
        case when c.default_expression is null then format('t.%I', c.column_name)
            else format('case when m.is_new then %s else t.%I end', c.default_expression, c.column_name) end
    ) as b (is_given, otherwise)
    cross join lateral (select b.is_given, case
        when not b.is_given then b.otherwise
        when c.is_parent and parent is not null then format(
            'coalesce(p.target, %s t.%I)',
            case when c.name = any (columns) then format('%I.id,', bds_feed.reference_alias(entity_name, c.name)) else '' end, c.column_name)
        else bds_feed.written_value(c, format('s.%I', c.name), b.otherwise, format('m.%I', 'key_' || c.name), bds_feed.reference_alias(entity_name, c.name), is_checked)
    end) as v (is_given, expression)
    where c.entity = entity_name;

    execute format('select count(*) from pg_temp.%I m where m.phase = 1 and not m.is_same', coalesce(map_name, 'map_' || entity_name)) into rest;
    stored := bds_feed.stored_join(this.table_name, 't', 'id', 'm.target', bds_feed.finds_few(rest, this.table_name, company));
    execute format(
        $sql$
        create temporary table %1$I as
        select v."@ordinal", v.id, v."@new", %2$s
        from (
            select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new",
                %3$s
            from %4$s s
            join pg_temp.%5$I m on m.ordinal = s."@ordinal" and m.phase = 1 and not m.is_same
            %6$s
            %7$s
            %8$s
            offset 0
        ) v
        where v."@new" or %9$s
        %10$s
        $sql$,
        coalesce(diff_name, 'diff_' || entity_name), names, values_, bds_feed.staging_table(import_number, entity_name),
        coalesce(map_name, 'map_' || entity_name), stored,
        case when parent is not null then format('left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || parent) else '' end,
        coalesce(joins, ''), coalesce(differs, 'false'),
        case when rest = 0 then 'with no data' else '' end  -- what is staged need not be read for that
    ) using company;
end
$$;
comment on function bds_feed.make_diff(text, bigint, text, text[], text, text) is 'Keeps the rows that are new or differ from what is stored, as they are to become';
