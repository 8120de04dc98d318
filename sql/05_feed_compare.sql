-- Imports, the comparison: which stored row each staged row means, what is wrong with it, and how the two differ.
--
-- Entities are compared in families, a root with its children, those first on which others depend.  For each entity temporary tables
-- hold the answer:
--     map_<entity>    ordinal, parent, position, target (the row's id, taken ahead for new rows), is_new, failed, key_<unique field>...
--     ref_<entity>_<reference>   lookup, id: the distinct lookups of one reference
--     diff_<entity>   @ordinal, @new, id, and every column: the rows that are to be written

-- Order --------------------------------------------------------------------------------------------------------------------------

create or replace function bds.root_of(entity_name text)
    returns text
    language sql
    stable
    return (
        with recursive up (name, depth) as (
            select entity_name collate "C", 0
            union all
            select n.target, up.depth + 1
            from up
            join bds.entities e on e.name = up.name
            join bds.navigations n on n.entity = e.name and n.name = e.parent_navigation and not n.many
            where up.depth < 10
        )
        select name from up order by depth desc limit 1
    );
comment on function bds.root_of(text) is 'The entity in whose rows those of this one are nested, itself if there is none';

create or replace function bds.import_order(import_number bigint)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    roots    jsonb := (select jsonb_object_agg(e.name, bds.root_of(e.name)) from bds.entities e);
    -- which family refers to which
    links    jsonb := (
        select jsonb_object_agg(l.root, l.targets)
        from (
            select roots ->> v.entity as root, array_agg(distinct roots ->> v.target) as targets
            from bds.navigations v
            where not v.many and roots -> v.entity <> roots -> v.target
            group by 1
        ) l
    );
    families text[] := array(select e.name from bds.entities e where roots ->> e.name = e.name order by e.ordinal);
    ordered  text[] := '{}';
    next     text;
begin
    while cardinality(families) > 0 loop
        select f.root into next
        from unnest(families) with ordinality as f (root, n)
        -- a family is ready when nothing that it refers to is still to come; in a cycle the first one begins
        order by coalesce(links -> f.root ?| families, false), f.n
        limit 1;
        ordered := ordered || next;
        families := array_remove(families, next);
    end loop;
    return array(
        with recursive members (name, root, depth) as (
            select r.name collate "C", r.n, 0 from unnest(ordered) with ordinality as r (name, n)
            union all
            select n.target, members.root, members.depth + 1
            from members join bds.navigations n on n.entity = members.name and n.child
            where members.depth < 10
        )
        select m.name from members m join bds.entities e on e.name = m.name
        where to_regclass(bds.staging_table(import_number, m.name)) is not null
        order by m.root, m.depth, e.ordinal
    );
end
$$;
comment on function bds.import_order(bigint) is 'The staged entities of an import, each after those that it refers to';

-- Values -------------------------------------------------------------------------------------------------------------------------

create or replace function bds.staged_text(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ^@ e'\x01' then nullif(substr(%1$s, 2), '') else %1$s end$sql$, expression);
comment on function bds.staged_text(text) is 'SQL for the text of a staged column: chr(1) stands for null, and before a text that begins with it';

create or replace function bds.staged_is_valid(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case type
        -- what PostgreSQL reads but JSON has no number or date for: NaN, infinity, today, 1 BC, 0x10
        when 'numeric' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s !~ ''[a-df-zA-DF-Z_]'')', expression, sql_type)
        when 'float8' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s !~ ''[a-df-zA-DF-Z_]'')', expression, sql_type)
        when 'date' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z+-]*)?$'')', expression, sql_type)
        when 'timestamptz' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z +-]*)?$'')', expression, sql_type)
        when 'time' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{2}:[0-9:.]*$'')', expression, sql_type)
        when 'text' then format('pg_input_is_valid(%s, %L)', expression, sql_type)
        when 'bool' then format('pg_input_is_valid(%s, %L)', expression, sql_type)
        when 'uuid' then format('pg_input_is_valid(%s, %L)', expression, sql_type)
        else format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^ *[+-]?[0-9]+ *$'')', expression, sql_type)
    end;
comment on function bds.staged_is_valid(text, text, text) is 'SQL that tells whether a staged text is a value of the type';

create or replace function bds.staged_value(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case
        when type = 'text' and sql_type = 'text' then bds.staged_text(expression)
        when type = 'text' then format('(%s)::%s', bds.staged_text(expression), sql_type)
        else format('case when %s then (%s)::%s end', bds.staged_is_valid(expression, type, sql_type), expression, sql_type)
    end;
comment on function bds.staged_value(text, text, text) is 'SQL for the typed value of a staged column; it never raises';

create or replace function bds.expected_value(type text, sql_type text)
    returns text
    language sql
    immutable
    return case type
        when 'numeric' then 'a number that fits ' || sql_type
        when 'bool' then 'true or false'
        when 'date' then 'a date such as 2026-11-20'
        when 'timestamptz' then 'a timestamp such as 2026-11-20T08:15:30Z'
        when 'time' then 'a time such as 08:15:30'
        when 'text' then 'text that fits ' || sql_type
        when 'uuid' then 'a UUID'
        when 'float8' then 'a number'
        else 'a whole number that fits ' || sql_type
    end;
comment on function bds.expected_value(text, text) is 'What an error says was expected';

create or replace function bds.staged_columns(import_number bigint, entity_name text)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    columns text[];
begin
    execute (
        select format(
            'select array_remove(array[case when count("@id") > 0 then ''@id'' end, %s], null) from %s',
            string_agg(format('case when count(%I) > 0 then %L end', c.name, c.name), ', ' order by c.ordinal),
            bds.staging_table(import_number, entity_name)
        )
        from bds.import_columns c where c.entity = entity_name
    ) into columns;
    return columns;
end
$$;
comment on function bds.staged_columns(bigint, text) is 'The columns that at least one staged row gives';

-- Steps --------------------------------------------------------------------------------------------------------------------------

create or replace function bds.import_prepare(company text, import_id uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0  -- imports queue without a limit
as $$
declare
    import      bds.imports := bds.find_import(company, import_id, 'running');
    ordered     text[] := bds.import_order(import.number);
    entity_name text;
    root        text;
begin
    perform bds.set_context(company, import.actor, import_id);
    perform bds.lock_company(company);
    perform bds.import_drop_temporary();
    perform bds.plan_for(import.records);
    foreach entity_name in array ordered loop
        execute 'analyze ' || bds.staging_table(import.number, entity_name);
    end loop;
    for root in
        select r.root from unnest(ordered) with ordinality as o (name, n), bds.root_of(o.name) as r (root) group by r.root order by min(o.n)
    loop
        perform bds.import_prepare_family(
            company, import, array(select o.name from unnest(ordered) with ordinality as o (name, n) where bds.root_of(o.name) = root order by o.n)
        );
    end loop;
end
$$;
comment on function bds.import_prepare(text, uuid) is 'Compares all that was staged with what is stored; holds the company''s lock from here on';

create or replace function bds.plan_for(records bigint)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    -- A table that this very transaction fills has no statistics, and of many companies the planner expects one row: nested loops
    -- over all of both sides follow.  So a large feed hashes, whatever it seems to cost; a small one probes the indexes.
    begin atomic
        select set_config('enable_nestloop', case when records > 1000 then 'off' else 'on' end, true),
            set_config('work_mem', case when records > 1000 then '64MB' else current_setting('work_mem') end, true);
    end;
comment on function bds.plan_for(bigint) is 'Sets the planner for the size of an import, until the end of the transaction';

create or replace function bds.import_drop_temporary()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in
        select format('pg_temp.%I', c.relname) from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind = 'r' and c.relname ~ '^(map|ref|diff|cook|link|candidate|pair)_'
    loop
        execute 'drop table ' || name;
    end loop;
end
$$;
comment on function bds.import_drop_temporary() is 'Drops the temporary tables of an earlier comparison of this session';

create or replace function bds.import_prepare_family(company text, import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    columns     text[];
    has_keys    boolean;
begin
    foreach entity_name in array members loop
        columns := bds.staged_columns(import.number, entity_name);
        perform bds.check_values(import.number, entity_name, columns);
        select bool_or(c.is_unique) into has_keys from bds.import_columns c where c.entity = entity_name;
        if has_keys then
            perform bds.map_by_keys(company, import.number, entity_name, columns);
            perform bds.resolve_references(company, import.number, entity_name, columns);
        else
            perform bds.resolve_references(company, import.number, entity_name, columns);
            perform bds.map_by_linkage(company, import.number, entity_name, columns);
        end if;
        perform bds.check_required(import.number, entity_name);
        perform bds.make_diff(company, import.number, entity_name, columns);
        perform bds.check_constraints(company, import.number, entity_name);
    end loop;
    perform bds.mark_failed(import, members);
end
$$;
comment on function bds.import_prepare_family(text, bds.imports, text[]) is 'Compares the staged rows of a root entity and its children';

create or replace function bds.check_values(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    good text;
    each text;
begin
    select
        string_agg(format($sql$(s.%1$I is null or s.%1$I = e'\x01' or %2$s)$sql$,
            c.name, bds.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type)), ' and '),
        string_agg(format($sql$(%1$L, s.%2$I, %3$s, %4$L)$sql$,
            c.name, c.name, bds.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type), bds.expected_value(c.type, c.sql_type)), ', ')
    into good, each
    from bds.import_columns c
    where c.entity = entity_name and c.target is null and c.sql_type <> 'text' and c.name = any (columns);
    if good is null then
        return;
    end if;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, s."@ordinal", v.field, 'invalid_value',
            format('expected %%s, got %%s', v.expected, quote_literal(left(v.given, 100)))
        from %3$s s
        cross join lateral (values %5$s) as v (field, given, is_valid, expected)
        where not (%4$s) and v.given is not null and v.given <> e'\x01' and not v.is_valid
        $sql$,
        bds.staging_table(import_number, 'errors'), entity_name, bds.staging_table(import_number, entity_name), good, each
    );
end
$$;
comment on function bds.check_values(bigint, text, text[]) is 'Finds every staged text that is no value of its field''s type';

create or replace function bds.lookup_kind(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]+$' then 'id' when strpos(%1$s, ':') > 0 then split_part(%1$s, ':', 1) when %1$s is not null then '' end$sql$, expression);
comment on function bds.lookup_kind(text) is 'SQL for the kind of a lookup: code of code:X, id of 12';

create or replace function bds.lookup_value(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]+$' then %1$s else substr(%1$s, strpos(%1$s, ':') + 1) end$sql$, expression);
comment on function bds.lookup_value(text) is 'SQL for the value of a lookup: X of code:X, 12 of 12';

create or replace function bds.lookup_id(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]{1,18}$' then (%1$s)::bigint end$sql$, expression);
comment on function bds.lookup_id(text) is 'SQL for the id in the value of a lookup of kind id, null if it can be none';

create or replace function bds.lookup_kinds(entity_name text)
    returns text[]
    language sql
    stable
    return array(select 'id' union all (select f.name from bds.fields f where f.entity = entity_name and f.is_unique order by f.ordinal));
comment on function bds.lookup_kinds(text) is 'The kinds of lookup that name a row of the entity';

create or replace function bds.map_by_keys(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     bds.entities;
    named    boolean := '@id' = any (columns);
    keys     text;
    effective text;
    joins    text;
    matches  text;
    distinct_matches text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    -- x.<field> is what the row says of a unique field; its own "@id", if it has one, alone says which row is meant
    select
        string_agg(format('%s as %I',
            case when c.name = any (columns) then bds.staged_value(format('s.%I', c.name), c.type, c.sql_type) else format('null::%s', c.sql_type) end,
            'said_' || c.name), ', ' order by c.ordinal),
        string_agg(format('%s as %I',
            case
                when named then format('coalesce(x.%I, case when x.id_kind = %L then %s end)',
                    'said_' || c.name, c.name, bds.staged_value('x.id_value', c.type, c.sql_type))
                else format('x.%I', 'said_' || c.name)
            end,
            'key_' || c.name), ', ' order by c.ordinal),
        string_agg(format('left join %1$s %2$I on %2$I.company_id = $1 and %2$I.%3$I = %4$s',
            this.table_name, 'by_' || c.name, c.column_name,
            case
                when named then format('case when x.id is null then x.%I when x.id_kind = %L then %s end',
                    'said_' || c.name, c.name, bds.staged_value('x.id_value', c.type, c.sql_type))
                else format('x.%I', 'said_' || c.name)
            end), E'\n' order by c.ordinal) filter (where named or c.name = any (columns)),
        string_agg(format('%I.id', 'by_' || c.name), ', ' order by c.ordinal) filter (where named or c.name = any (columns))
    into keys, effective, joins, matches
    from bds.import_columns c
    where c.entity = entity_name and c.is_unique;
    if named then
        joins := concat_ws(E'\n', joins, format(
            'left join %s by_id on by_id.company_id = $1 and by_id.id = case when x.id_kind = ''id'' then %s end',
            this.table_name, bds.lookup_id('x.id_value')));
        matches := concat_ws(', ', 'by_id.id', matches);
    end if;
    matches := coalesce(matches, 'null::bigint');

    execute format(
        $sql$
        create temporary table %1$I as
        select x.ordinal, x.parent, x.position, coalesce(m.least_match, nextval(%2$L)) as target, m.least_match is null as is_new,
            m.least_match <> m.greatest_match as is_ambiguous, false as failed, x.id, x.id_kind, %3$s
        from (
            select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position, s."@id" as id,
                %4$s as id_kind, %5$s as id_value, %6$s
            from %7$s s
            offset 0
        ) x
        %8$s
        cross join lateral (select least(%9$s), greatest(%9$s)) as m (least_match, greatest_match)
        $sql$,
        'map_' || entity_name, pg_get_serial_sequence(this.table_name::text, 'id'), effective,
        bds.lookup_kind('s."@id"'), bds.lookup_value('s."@id"'), keys, bds.staging_table(import_number, entity_name),
        coalesce(joins, ''), matches
    ) using company;
    execute format('analyze pg_temp.%I', 'map_' || entity_name);
    perform bds.check_keys(company, import_number, entity_name, columns);
end
$$;
comment on function bds.map_by_keys(text, bigint, text, text[]) is 'Maps staged rows to stored ones by their lookup or unique fields, all at once';

create or replace function bds.check_keys(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this       bds.entities;
    kinds      text[] := bds.lookup_kinds(entity_name);
    errors     text := bds.staging_table(import_number, 'errors');
    map        text := format('pg_temp.%I', 'map_' || entity_name);
    key        record;
    duplicates boolean;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, m.ordinal, 'id', 'invalid_value', format('expected a lookup (%%s), got %%L', %3$L, left(m.id, 100))
        from %4$s m where m.id_kind <> all ($1)
        union all
        select %2$L, m.ordinal, 'id', 'not_found', format('there is no row %%s', m.id)
        from %4$s m where m.id_kind = 'id' and m.is_new
        union all
        select %2$L, m.ordinal, null, 'lookup_ambiguous', 'its unique fields name different rows'
        from %4$s m where m.is_ambiguous
        $sql$,
        errors, entity_name, array_to_string(array(select k || ':...' from unnest(kinds) k), ', '), map
    ) using kinds;

    -- every later row with the target or with a unique value of an earlier one
    for key in
        -- a new row has a target of its own
        select 'target' as expression, 'not m.is_new' as condition, null as field, null as column_name
        union all
        select format('%I', 'key_' || c.name), format('m.%I is not null', 'key_' || c.name), c.name, c.column_name::text
        from bds.import_columns c
        where c.entity = entity_name and c.is_unique and (c.name = any (columns) or '@id' = any (columns))
    loop
        execute format('select exists (select from %s m where %s group by m.%s having count(*) > 1)', map, key.condition, key.expression)
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
        if key.field is not null then
            -- without a lookup of its own the row would have been matched by the value: only named rows can meet another's here
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, m.ordinal, %3$L, 'already_exists', format('row %%s has %%s %%L', t.id, %3$L, m.%4$s)
                from %5$s m join %6$s t on t.company_id = $1 and t.%7$I = m.%4$s
                where t.id <> m.target and m.id is not null
                $sql$,
                errors, entity_name, key.field, key.expression, map, this.table_name, key.column_name
            ) using company;
        end if;
    end loop;
end
$$;
comment on function bds.check_keys(text, bigint, text, text[]) is 'Finds rows whose lookup is wrong, ambiguous, unknown, or named twice';

create or replace function bds.resolve_references(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    reference  record;
    joins      text;
    ids        text;
    kinds      text[];
    mapped     boolean;
    unresolved boolean;
    resolved   text;
begin
    for reference in
        select c.name, c.target, e.table_name
        from bds.import_columns c join bds.entities e on e.name = c.target
        where c.entity = entity_name and c.name = any (columns)
        order by c.ordinal
    loop
        kinds := bds.lookup_kinds(reference.target);
        mapped := to_regclass(format('pg_temp.%I', 'map_' || reference.target)) is not null;
        resolved := format('pg_temp.%I', 'ref_' || entity_name || '_' || reference.name);
        -- the document's own rows first: theirs is the state that the import leaves
        select
            string_agg(
                case when mapped and k.kind <> 'id' then format(
                    $sql$left join pg_temp.%1$I %2$I on %2$I.%3$I::text = case when d.kind = %4$L then d.value end and not %2$I.failed
                    $sql$,
                    'map_' || reference.target, 'new_' || k.kind, 'key_' || k.kind, k.kind)
                else '' end
                || format(
                    $sql$left join %1$s %2$I on %2$I.company_id = $1 and %2$I.%3$I = case when d.kind = %4$L then %5$s end
                    $sql$,
                    reference.table_name, 'old_' || k.kind, k.column_name, k.kind,
                    case k.kind when 'id' then bds.lookup_id('d.value') else bds.staged_value('d.value', k.type, k.sql_type) end),
                '' order by k.n),
            string_agg(
                case when mapped and k.kind <> 'id' then format('%I.target, ', 'new_' || k.kind) else '' end || format('%I.id', 'old_' || k.kind), ', ' order by k.n)
        into joins, ids
        from (
            select kinds.kind, kinds.n, coalesce(c.column_name, 'id') as column_name, c.type, c.sql_type
            from unnest(kinds) with ordinality as kinds (kind, n)
            left join bds.import_columns c on c.entity = reference.target and c.name = kinds.kind
        ) k;

        execute format(
            $sql$
            create temporary table %1$I as
            select distinct on (d.lookup) d.lookup, d.kind, coalesce(%2$s) as id
            from (
                select r.lookup, %3$s as kind, %4$s as value
                from (select distinct s.%5$I as lookup from %6$s s where s.%5$I is not null and s.%5$I <> e'\x01') r
                offset 0
            ) d
            %7$s
            order by d.lookup
            $sql$,
            'ref_' || entity_name || '_' || reference.name, ids, bds.lookup_kind('r.lookup'), bds.lookup_value('r.lookup'),
            reference.name, bds.staging_table(import_number, entity_name), joins
        ) using company;
        execute 'analyze ' || resolved;

        execute format('select exists (select from %s where id is null)', resolved) into unresolved;
        if unresolved then
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, s."@ordinal", %3$L,
                    case when r.kind = any ($1) then 'lookup_not_found' else 'invalid_value' end,
                    case when r.kind = any ($1) then format('%%s has no row %%s', %4$L, left(r.lookup, 100))
                        else format('expected a lookup (%%s), got %%L', %5$L, left(r.lookup, 100)) end
                from %6$s r join %7$s s on s.%3$I = r.lookup
                where r.id is null
                $sql$,
                bds.staging_table(import_number, 'errors'), entity_name, reference.name, reference.target,
                array_to_string(array(select k || ':...' from unnest(kinds) k), ', '), resolved,
                bds.staging_table(import_number, entity_name)
            ) using kinds;
        end if;
    end loop;
end
$$;
comment on function bds.resolve_references(text, bigint, text, text[]) is 'Finds the row that each distinct lookup names, in the document and in the database';

create or replace function bds.check_required(import_number bigint, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    missing     text;
    any_missing text;
begin
    select string_agg(format('(%L, %s)', c.name, m.condition), ', ' order by c.ordinal), string_agg(m.condition, ' or ' order by c.ordinal)
    into missing, any_missing
    from bds.import_columns c
    cross join lateral (select format(
        -- null where something is required; of a new row also nothing at all, unless its lookup or its parent says it
        $sql$s.%1$I = e'\x01' or (m.is_new and s.%1$I is null%2$s%3$s)$sql$,
        c.name,
        case when c.is_unique then format(' and m.%I is null', 'key_' || c.name) else '' end,
        case when c.is_parent then ' and s."@parent" is null' else '' end
    )) as m (condition)
    where c.entity = entity_name and c.required and c.default_expression is null;
    if missing is null then
        return;
    end if;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, m.ordinal, v.field, 'required', format('%%s is required', v.field)
        from pg_temp.%3$I m
        join %4$s s on s."@ordinal" = m.ordinal
        cross join lateral (values %5$s) as v (field, is_missing)
        where (%6$s) and v.is_missing and not exists (
            -- what its own lookup does not find is no new row, and what was refused was not missing
            select from %1$s e where e.entity = %2$L and e.ordinal = m.ordinal and e.field in ('id', v.field)
        )
        $sql$,
        bds.staging_table(import_number, 'errors'), entity_name, 'map_' || entity_name, bds.staging_table(import_number, entity_name),
        missing, any_missing
    );
end
$$;
comment on function bds.check_required(bigint, text) is 'Finds required fields that are null, or that a new row lacks';

create or replace function bds.make_diff(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this   bds.entities;
    parent text;
    joins  text;
    values_ text;
    differs text;
    names  text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    select n.target into parent from bds.navigations n where n.entity = entity_name and n.name = this.parent_navigation and not n.many;
    if parent is not null and to_regclass(format('pg_temp.%I', 'map_' || parent)) is null then
        parent := null;  -- rows of this entity stand at the top level alone
    end if;

    select
        string_agg(format('left join pg_temp.%1$I %1$I on %1$I.lookup = s.%2$I', 'ref_' || entity_name || '_' || c.name, c.name), E'\n')
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
            case when c.name = any (columns) then format('%I.id,', 'ref_' || entity_name || '_' || c.name) else '' end, c.column_name)
        when c.target is not null then format(
            $sql$case when s.%1$I is null then %2$s when s.%1$I <> e'\x01' then %3$I.id end$sql$,
            c.name, b.otherwise, 'ref_' || entity_name || '_' || c.name)
        when c.is_unique then format(
            $sql$case when m.%4$I is not null then m.%4$I when s.%1$I is null then %2$s else %3$s end$sql$,
            c.name, b.otherwise, bds.staged_value(format('s.%I', c.name), c.type, c.sql_type), 'key_' || c.name)
        else format(
            $sql$case when s.%1$I is null then %2$s when s.%1$I = e'\x01' then %3$s else %4$s end$sql$,
            c.name, b.otherwise, case when c.required then coalesce(c.default_expression, 'null') else 'null' end, bds.staged_value(format('s.%I', c.name), c.type, c.sql_type))
    end) as v (is_given, expression)
    where c.entity = entity_name;

    execute format(
        $sql$
        create temporary table %1$I as
        select v."@ordinal", v.id, v."@new", %2$s
        from (
            select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new",
                %3$s
            from %4$s s
            join pg_temp.%5$I m on m.ordinal = s."@ordinal"
            left join %6$s t on t.company_id = $1 and t.id = m.target
            %7$s
            %8$s
            offset 0
        ) v
        where v."@new" or %9$s
        $sql$,
        'diff_' || entity_name, names, values_, bds.staging_table(import_number, entity_name), 'map_' || entity_name, this.table_name,
        case when parent is not null then format('left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || parent) else '' end,
        coalesce(joins, ''), coalesce(differs, 'false')
    ) using company;
end
$$;
comment on function bds.make_diff(text, bigint, text, text[]) is 'Keeps the rows that are new or differ from what is stored, as they are to become';

create or replace function bds.check_constraints(company text, import_number bigint, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    rule record;
begin
    for rule in
        select k.conname, pg_get_expr(k.conbin, k.conrelid) as expression,
            (select f.name from bds.fields f join pg_attribute a on a.attrelid = k.conrelid and a.attname = f.column_name
            where f.entity = entity_name and k.conkey = array[a.attnum]) as field
        from pg_constraint k join bds.entities e on e.table_name = k.conrelid
        where e.name = entity_name and k.contype = 'c'
            -- a rule over what the database itself computes is the database's to check
            and not exists (
                select from unnest(k.conkey) as u (attnum)
                join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.attnum
                where a.attname not in ('company_id', 'id')
                    and a.attname not in (select c.column_name from bds.import_columns c where c.entity = entity_name)
            )
    loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, d."@ordinal", %3$L, 'invalid_value', format('it breaks the rule %%s', %4$L)
            from pg_temp.%6$I d
            where (select not (%5$s) from (select $1 as company_id, d.*) as row_to_be)
            $sql$,
            bds.staging_table(import_number, 'errors'), entity_name, rule.field, rule.conname, rule.expression, 'diff_' || entity_name
        ) using company;
    end loop;
end
$$;
comment on function bds.check_constraints(text, bigint, text) is 'Finds rows that would break a check constraint of the table';

-- Failures -----------------------------------------------------------------------------------------------------------------------

create or replace function bds.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    errors      text := bds.staging_table(import.number, 'errors');
    entity_name text;
    has_errors  boolean;
begin
    execute format('select exists (select from %s where entity = any ($1))', errors) into has_errors using members;
    if not has_errors then
        return;
    end if;
    loop
        foreach entity_name in array members loop
            execute format(
                'update pg_temp.%I m set failed = true from %s e where e.entity = %L and e.ordinal = m.ordinal and not m.failed',
                'map_' || entity_name, errors, entity_name
            );
        end loop;
        perform bds.spread_failures(import, members);
        -- rows of the same family that refer to a new row which will not come to be
        exit when not bds.fail_orphans(import.number, members);
    end loop;
    foreach entity_name in array members loop
        execute format(
            'delete from pg_temp.%1$I d using pg_temp.%2$I m where m.ordinal = d."@ordinal" and m.failed',
            'diff_' || entity_name, 'map_' || entity_name
        );
    end loop;
end
$$;
comment on function bds.mark_failed(bds.imports, text[]) is 'Marks the rows of a family that fail, with those that fail because of them';

create or replace function bds.spread_failures(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child text;
    pairs constant text := 'update pg_temp.%1$I a set failed = true from pg_temp.%2$I b where %3$s and b.failed and not a.failed';
begin
    -- a failing child fails its parent: from the leaves up
    for child in select m.name from unnest(members) with ordinality as m (name, n) where m.n > 1 order by m.n desc loop
        execute format(pairs, 'map_' || bds.parent_of(child), 'map_' || child, 'a.ordinal = b.parent');
    end loop;
    if import.atomic = 'batch' then
        perform bds.fail_batches(import.number, m.name) from unnest(members) as m (name);
    end if;
    -- and a failing parent its children: from the root down
    for child in select m.name from unnest(members) with ordinality as m (name, n) where m.n > 1 order by m.n loop
        execute format(pairs, 'map_' || child, 'map_' || bds.parent_of(child), 'a.parent = b.ordinal');
    end loop;
end
$$;
comment on function bds.spread_failures(bds.imports, text[]) is 'A failing child fails its parent, that its other children, and in batch mode its batch';

create or replace function bds.parent_of(entity_name text)
    returns text
    language sql
    stable
    return (
        select n.target from bds.entities e
        join bds.navigations n on n.entity = e.name and n.name = e.parent_navigation and not n.many
        where e.name = entity_name
    );
comment on function bds.parent_of(text) is 'The entity that a child entity''s rows are nested in, or null';

create or replace function bds.fail_batches(import_number bigint, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    batch record;
begin
    for batch in execute format(
        $sql$
        select m.position / 10000 as number, min(m.ordinal) as first, count(*) as records, count(*) filter (where m.failed) as failures
        from pg_temp.%I m where m.parent is null group by 1 having bool_or(m.failed)
        order by 1
        $sql$, 'map_' || entity_name)
    loop
        execute format(
            'update pg_temp.%I m set failed = true where m.parent is null and m.position / 10000 = $1 and not m.failed',
            'map_' || entity_name
        ) using batch.number;
        execute format(
            'insert into %1$s (entity, ordinal, code, message) select $1, $2, ''batch_failed'', $3 '
            'where not exists (select from %1$s where entity = $1 and ordinal = $2 and code = ''batch_failed'')',
            bds.staging_table(import_number, 'errors')
        ) using entity_name, batch.first, format(
            'the batch %s[%s..%s] was not written, because of %s in it that failed',
            entity_name, batch.number * 10000, batch.number * 10000 + batch.records - 1,
            case batch.failures when 1 then 'a record' else batch.failures || ' records' end
        );
    end loop;
end
$$;
comment on function bds.fail_batches(bigint, text) is 'Fails every batch of 10,000 top-level records in which one fails';

create or replace function bds.fail_orphans(import_number bigint, members text[])
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    reference record;
    found_any boolean := false;
    changed   bigint;
begin
    for reference in
        select c.entity, c.name, c.target
        from bds.import_columns c
        where c.entity = any (members) and c.target = any (members)
            and to_regclass(format('pg_temp.%I', 'ref_' || c.entity || '_' || c.name)) is not null
    loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, s."@ordinal", %3$L, 'lookup_not_found', format('%%s has no row %%s: the record of this document failed', %4$L, r.lookup)
            from %5$s s
            join pg_temp.%6$I r on r.lookup = s.%3$I
            join pg_temp.%7$I t on t.target = r.id and t.failed and t.is_new
            join pg_temp.%8$I m on m.ordinal = s."@ordinal" and not m.failed
            $sql$,
            bds.staging_table(import_number, 'errors'), reference.entity, reference.name, reference.target,
            bds.staging_table(import_number, reference.entity), 'ref_' || reference.entity || '_' || reference.name,
            'map_' || reference.target, 'map_' || reference.entity
        );
        get diagnostics changed = row_count;
        found_any := found_any or changed > 0;
    end loop;
    return found_any;
end
$$;
comment on function bds.fail_orphans(bigint, text[]) is 'Fails rows that refer to a failed new row of the same family; true if there were any';

create or replace function bds.import_may_write(company text, import_id uuid)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import     bds.imports := bds.find_import(company, import_id, 'running');
    has_errors boolean;
begin
    if import.atomic <> 'true' then
        return true;
    end if;
    execute format('select exists (select from %s)', bds.staging_table(import.number, 'errors')) into has_errors;
    return not has_errors;
end
$$;
comment on function bds.import_may_write(text, uuid) is 'False when all or nothing was asked for and something fails';
