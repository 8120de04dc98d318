-- Imports, the matching: which stored row each staged row means, by its lookup or its unique fields.

create function bds_feed.map_by_keys(company text, import_number bigint, entity_name text, columns text[], compare boolean, rows bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
    set enable_parallel_hash = on
as $$
declare
    this       bds.entities;
    named      boolean := '@id' = any (columns);
    keys       text;
    effective  text;
    joins      text;
    matches    text[];
    only_match text;
    fence      text;
    statement  text;
    given      text;
    compared   text := '';
    is_same    text := 'false';
    is_few     boolean;
    has_new    boolean;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    is_few := bds_feed.is_few(rows, bds_feed.about(this.table_name, company));
    -- x.<field> is what the row says of a unique field; its own "@id", if it has one, alone says which row is meant
    select
        string_agg(format('%s as %I',
            case
                when c.name <> all (columns) then format('null::%s', c.sql_type)
                -- what a mass update writes names no row
                when '@where' = any (columns) then format('case when s."@where" is null then %s end', bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type))
                else bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type)
            end,
            'said_' || c.name), ', ' order by c.ordinal),
        string_agg(format('%s as %I', bds_feed.key_value(c, named), 'key_' || c.name), ', ' order by c.ordinal),
        string_agg(bds_feed.stored_join(this.table_name, 'by_' || c.name, c.column_name,
            case
                when named then format('case when x.id is null then x.%I when x.id_kind = %L then %s end',
                    'said_' || c.name, c.name, bds_feed.named_value('x.id_value', c.type, c.sql_type))
                else format('x.%I', 'said_' || c.name)
            end, is_few and bds_feed.can_probe(c.type)), E'\n' order by c.ordinal) filter (where named or c.name = any (columns)),
        array_agg('by_' || c.name order by c.ordinal) filter (where named or c.name = any (columns)),
        -- What is said once, behind a fence, is what an index can be probed for: under row level security an expression that might tell
        -- others what it sees cannot.  But only without it is the work divided.
        case when named or bool_or(c.type <> 'text' and c.name = any (columns)) or is_few or not bds_feed.is_divisible(import_number, entity_name)
            then 'offset 0' else '' end
    into keys, effective, joins, matches, fence
    from bds.import_columns c
    where c.entity = entity_name and c.is_unique;
    if named then
        joins := concat_ws(E'\n', joins, bds_feed.stored_join(
            this.table_name, 'by_id', 'id', format('case when x.id_kind = ''id'' then %s end', bds_feed.lookup_id('x.id_value')), is_few));
        matches := array_append(matches, 'by_id');
    end if;
    only_match := case when cardinality(matches) = 1 then matches[1] end;
    if compare then
        select * into given, compared, is_same from bds_feed.comparison(
            import_number, entity_name, columns, this.table_name, only_match, is_few
        );
    end if;

    statement := format(
        $sql$
        create temporary table %1$I as
        select x.ordinal, x.parent, x.position, x.phase, x.operation, m.target, m.target is null and not x.is_mass as is_new, m.is_ambiguous,
            %2$s as is_same, false as failed, x.id, x.id_kind, %3$s
        from (
            select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position,
                %4$s, %5$s, %6$s%7$s
            from %8$s s
            %9$s
        ) x
        %10$s
        cross join lateral (select %11$s) as m (target, is_ambiguous)
        %12$s
        $sql$,
        'map_' || entity_name, is_same, effective, bds_feed.staged_operation(columns), bds_feed.staged_lookup(named),
        keys, given, bds_feed.staging_table(import_number, entity_name), fence, coalesce(joins, ''),
        case when only_match is not null then format('%I.id, false', only_match)
            else (select format('least(%1$s), least(%1$s) <> greatest(%1$s)', coalesce(string_agg(format('%I.id', by), ', '), 'null::bigint')) from unnest(matches) as by)
        end,
        compared
    );
    begin
        execute statement using company;
    exception when insufficient_resources then  -- a container has 64 MB of the memory that processes share, unless it is told otherwise
        perform set_config('enable_parallel_hash', 'off', true);
        execute statement using company;
    end;
    has_new := bds_feed.number_new_rows(entity_name, this.table_name);
    perform bds_feed.check_keys(company, import_number, entity_name, columns, has_new);
end
$$;
comment on function bds_feed.map_by_keys(text, bigint, text, text[], boolean, bigint) is
    'Maps staged rows to stored ones by their lookup or unique fields, all at once, and compares them on the way if it is told to';

create function bds_feed.comparison(import_number bigint, entity_name text, columns text[], stored_table regclass, only_match text, is_few boolean)
    returns table (given text, joins text, is_same text)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent     text := bds_feed.mapped_parent(entity_name);
    is_checked boolean := bds_feed.all_valid(import_number, entity_name);
begin
    return query
        select
            string_agg(format(', s.%I as %I', c.name, 'given_' || c.name), '' order by c.ordinal) filter (where c.name = any (columns)),
            case when only_match is null then bds_feed.stored_join(stored_table, 't', 'id', 'm.target', is_few) else '' end
                || coalesce(string_agg(E'\n' || bds_feed.reference_join(import_number, entity_name, c.name, format('x.%I', 'given_' || c.name)), '')
                    filter (where c.target is not null and c.name = any (columns)), '')
                || case when parent is not null then format(E'\nleft join pg_temp.%I p on p.ordinal = x.parent', 'map_' || parent) else '' end,
            format('case when %I.id is not null and not m.is_ambiguous and x.phase = 1 then true', t.stored) || coalesce(string_agg(format(
                E'\n and %s is not distinct from %I.%I',
                case when c.is_parent and parent is not null then format('coalesce(p.target, %I.%I)', t.stored, c.column_name)
                    else bds_feed.written_value(
                        c, case when c.name = any (columns) then format('x.%I', 'given_' || c.name) else 'null' end,
                        format('%I.%I', t.stored, c.column_name), bds_feed.key_value(c, '@id' = any (columns)), bds_feed.reference_alias(entity_name, c.name), is_checked)
                end,
                t.stored, c.column_name), '' order by c.ordinal) filter (where c.name is not null), '') || ' else false end'
        from (select coalesce(only_match, 't')) as t (stored)
        left join bds.import_columns c on c.entity = entity_name
            and (c.name = any (columns) or (c.is_unique and '@id' = any (columns)) or (c.is_parent and parent is not null))
            and 'by_' || c.name is distinct from only_match  -- what has found the row is the row's
        group by t.stored;
end
$$;
comment on function bds_feed.comparison(bigint, text, text[], regclass, text, boolean) is
    'SQL that tells whether a staged row x would change nothing in the stored row that it means, and the columns and joins that this takes';

create function bds_feed.number_new_rows(entity_name text, stored_table regclass)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    has_new boolean;
begin
    execute format('select exists (select from pg_temp.%I m where m.target is null and m.phase = 1)', 'map_' || entity_name) into has_new;
    if has_new then
        execute format('alter table pg_temp.%I rename to %I', 'map_' || entity_name, 'open_' || entity_name);
        execute format(
            $sql$
            create temporary table %1$I as
            select o.ordinal, o.parent, o.position, o.phase, o.operation,
                coalesce(o.target, case when o.phase = 1 then nextval(%2$L) end) as target, o.is_new, o.is_ambiguous, o.is_same, o.failed, %3$s
            from (select * from pg_temp.%4$I order by ordinal) o  -- ids follow the document
            $sql$,
            'map_' || entity_name, pg_get_serial_sequence(stored_table::text, 'id'),
            concat_ws(', ', 'o.id, o.id_kind', (
                select string_agg(format('o.%I', 'key_' || c.name), ', ') from bds.import_columns c where c.entity = entity_name and c.is_unique
            )),
            'open_' || entity_name
        );
        execute format('drop table pg_temp.%I', 'open_' || entity_name);
    end if;
    return has_new;
end
$$;
comment on function bds_feed.number_new_rows(text, regclass) is
    'Takes the ids of new rows ahead, so that references to them are known before they are written; whether there are any';

create function bds_feed.check_keys(company text, import_number bigint, entity_name text, columns text[], has_new boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this       bds.entities;
    kinds      text[] := bds_feed.lookup_kinds(entity_name);
    errors     text := bds_feed.staging_table(import_number, 'errors');
    map        text := format('pg_temp.%I', 'map_' || entity_name);
    named      boolean := '@id' = any (columns);
    -- who says one thing alone of himself can contradict neither himself nor, if he means a stored row, another who means one
    says_one   boolean := not named and (
        select count(*) = 1 from bds.import_columns c where c.entity = entity_name and c.is_unique and c.name = any (columns));
    key        record;
    renamed    bigint;
    duplicates boolean;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    if not says_one then
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, m.ordinal, v.field, v.code, v.message
            from %4$s m
            cross join lateral (values
                (m.id_kind <> all ($1), 'id', 'invalid_value', format('expected a lookup (%%s), got %%L', %3$L, left(%5$s, 100))),
                (m.id_kind = 'id' and m.is_new, 'id', 'not_found', format('no such row: %%s', m.id)),
                (m.is_ambiguous, null, 'lookup_ambiguous', 'its unique fields name different rows')
            ) as v (is_wrong, field, code, message)
            where (m.id_kind <> all ($1) or m.id_kind = 'id' and m.is_new or m.is_ambiguous) and v.is_wrong
            $sql$,
            errors, entity_name, array_to_string(array(select k || ':...' from unnest(kinds) k), ', '), map, bds_feed.staged_text('m.id')
        ) using kinds;
    end if;

    if named then
        -- without a lookup of its own the row would have been matched by the value: only named rows can meet another's here
        execute format('select count(*) from %s m where m.id is not null', map) into renamed;
        for key in
            select c.name as field, format('m.%I', 'key_' || c.name) as expression,
                bds_feed.stored_join(this.table_name, 't', c.column_name, format('m.%I', 'key_' || c.name),
                    bds_feed.can_probe(c.type) and bds_feed.finds_few(renamed, this.table_name, company, c.column_name)) as stored
            from bds.import_columns c where c.entity = entity_name and c.is_unique
        loop
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, m.ordinal, %3$L, 'already_exists', format('row %%s has %%s %%L', t.id, %3$L, %4$s)
                from (select * from %5$s where id is not null and phase <> 3 offset 0) m %6$s
                where t.id <> m.target
                $sql$,
                errors, entity_name, key.field, key.expression, map, key.stored
            ) using company;
        end loop;
        execute format(  -- at once: what they do not come to be called is left to others
            'update %s m set failed = true from %s e where e.entity = %L and e.ordinal = m.ordinal and m.id is not null', map, errors, entity_name);
    end if;

    -- every later row with the target or with a unique value of an earlier one
    for key in
        -- a new row has a target of its own
        select 'target' as expression, 'm.target is not null and not m.is_new' as condition, null as field
        union all
        -- what a row that goes says beside its id is nothing that it claims
        select format('%I', 'key_' || c.name),
            format('m.%I is not null and ', 'key_' || c.name)
                || case when named
                    then format('(not m.failed or m.is_new and m.id_kind = %L and m.%I::text = %s) and (m.phase <> 3 or m.id is null)',
                        c.name, 'key_' || c.name, bds_feed.lookup_value('m.id'))
                    else 'not m.failed' end
                || case when says_one then ' and m.is_new' else '' end,
            c.name
        from bds.import_columns c
        where c.entity = entity_name and c.is_unique and (c.name = any (columns) or named) and (has_new or not says_one or '@operation' = any (columns))
    loop
        execute format('select count(m.%1$s) > count(distinct m.%1$s) from %2$s m where %3$s', key.expression, map, key.condition)
            into duplicates;
        if duplicates then
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select distinct %2$L, d.ordinal, %5$L, 'duplicate_record', 'an earlier record of this document names the same row'
                from (
                    select m.ordinal, row_number() over (partition by m.%4$s order by m.ordinal) as n
                    from %3$s m where %6$s
                ) d
                where d.n > 1 and not exists (
                    select from %1$s e where e.entity = %2$L and e.ordinal = d.ordinal and e.code = 'duplicate_record'
                )
                $sql$,
                errors, entity_name, map, key.expression, key.field, key.condition
            );
            execute format(  -- at once: no lookup may find them
                'update %s m set failed = true from %s e where e.entity = %L and e.ordinal = m.ordinal and e.code = ''duplicate_record''',
                map, errors, entity_name
            );
        end if;
    end loop;
end
$$;
comment on function bds_feed.check_keys(text, bigint, text, text[], boolean) is 'Finds rows whose lookup is wrong, ambiguous, unknown, or named twice';
