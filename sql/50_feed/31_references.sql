-- Imports, the references: which row each lookup names, in the document and in the database.

create function bds_feed.reference_table(import_number bigint, entity_name text, reference text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    -- processes that read for one session do not see its temporary tables
    return case when bds_feed.is_divisible(import_number, entity_name) then bds_feed.staging_table(import_number, '@' || bds_feed.reference_name(entity_name, reference))
        else format('pg_temp.%I', bds_feed.reference_alias(entity_name, reference)) end;
comment on function bds_feed.reference_table(bigint, text, text) is 'Name of the table that holds what the lookups of a reference name';

create function bds_feed.reference_join(import_number bigint, entity_name text, reference text, given text)
    returns text
    language sql
    stable
    return format('left join %1$s %2$I on %2$I.lookup = %3$s',
        bds_feed.reference_table(import_number, entity_name, reference), bds_feed.reference_alias(entity_name, reference), given);
comment on function bds_feed.reference_join(bigint, text, text, text) is 'SQL that joins what the lookup in a staged column names, its id';

create function bds_feed.resolve_references(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    reference  record;
    joins      text;
    ids        text;
    kinds      text[];  -- that name a row of the target
    used       text[];  -- that the document uses: each costs a join with the whole target
    is_few     boolean;
    mapped     boolean;
    unresolved boolean;
    distinct_lookups bigint;
    lookups    text;
    resolved   text;
begin
    for reference in
        select c.name, c.target, e.table_name
        from bds.import_columns c join bds.entities e on e.name = c.target
        where c.entity = entity_name and c.name = any (columns)
        order by c.ordinal
    loop
        kinds := bds_feed.lookup_kinds(reference.target);
        mapped := to_regclass(format('pg_temp.%I', 'map_' || reference.target)) is not null;
        resolved := bds_feed.reference_table(import_number, entity_name, reference.name);
        lookups := format('pg_temp.%I', 'lookup_' || bds_feed.reference_name(entity_name, reference.name));
        execute format(
            $sql$
            create temporary table %1$s as
            select r.lookup, %2$s as kind, %3$s as value
            from (select distinct s.%4$I as lookup from %5$s s where s.%4$I is not null and s.%4$I <> e'\x01') r
            $sql$,
            lookups, bds_feed.lookup_kind('r.lookup'), bds_feed.lookup_value('r.lookup'), reference.name, bds_feed.staging_table(import_number, entity_name)
        );
        execute format('select array(select distinct l.kind from %1$s l), (select count(*) from %1$s)', lookups) into used, distinct_lookups;
        is_few := bds_feed.is_few(distinct_lookups, bds_feed.about(reference.table_name, company));
        -- the document's own rows first: theirs is the state that the import leaves
        select
            string_agg(
                case when mapped and k.kind <> 'id' then format(
                    $sql$left join pg_temp.%1$I %2$I on %2$I.%3$I = case when d.kind = %4$L then %5$s end and not %2$I.failed
                    $sql$,
                    'map_' || reference.target, 'new_' || k.kind, 'key_' || k.kind, k.kind, bds_feed.named_value('d.value', k.type, k.sql_type))
                else '' end
                || bds_feed.stored_join(reference.table_name, 'old_' || k.kind, k.column_name, format('case when d.kind = %L then %s end', k.kind,
                    case k.kind when 'id' then bds_feed.lookup_id('d.value') else bds_feed.named_value('d.value', k.type, k.sql_type) end),
                    is_few and bds_feed.can_probe(k.type)),
                E'\n' order by k.n),
            string_agg(
                case when mapped and k.kind <> 'id' then format('%I.target, ', 'new_' || k.kind) else '' end || format('%I.id', 'old_' || k.kind), ', ' order by k.n)
        into joins, ids
        from (
            select kinds.kind, kinds.n, coalesce(c.column_name, 'id') as column_name, c.type, c.sql_type
            from unnest(kinds) with ordinality as kinds (kind, n)
            left join bds.import_columns c on c.entity = reference.target and c.name = kinds.kind
            where kinds.kind = any (used)
        ) k;

        execute format(
            'create %5$s table %1$s as select d.lookup, d.kind, coalesce(%2$s) as id from (select * from %3$s offset 0) d %4$s',
            resolved, coalesce(ids, 'null::bigint'), lookups, coalesce(joins, ''), case when resolved ^@ 'pg_temp.' then 'temporary' else 'unlogged' end
        ) using company;

        execute format('select exists (select from %s where id is null)', resolved) into unresolved;
        if unresolved then
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, s."@ordinal", %3$L,
                    case when r.kind = any ($1) then 'lookup_not_found' else 'invalid_value' end,
                    case when r.kind = any ($1) then format('%%s has no row %%s', %4$L, left(%8$s, 100))
                        else format('expected a lookup (%%s), got %%L', %5$L, left(%8$s, 100)) end
                from %6$s r join %7$s s on s.%3$I = r.lookup
                where r.id is null and not %9$s
                $sql$,
                bds_feed.staging_table(import_number, 'errors'), entity_name, reference.name, reference.target,
                array_to_string(array(select k || ':...' from unnest(kinds) k), ', '), resolved,
                bds_feed.staging_table(import_number, entity_name), bds_feed.staged_text('r.lookup'), bds_feed.only_identifies(entity_name, columns)
            ) using kinds;
        end if;
    end loop;
end
$$;
comment on function bds_feed.resolve_references(text, bigint, text, text[]) is 'Finds the row that each distinct lookup names, in the document and in the database';
