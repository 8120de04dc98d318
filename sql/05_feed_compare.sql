-- Imports, the comparison: which stored row each staged row means, what is wrong with it, and how the two differ.
--
-- Entities are compared in families, a root with its children, those first on which others depend.  For each entity temporary tables
-- hold the answer:
--     map_<entity>    ordinal, parent, position, phase, operation, target (the row's id, taken ahead for new rows), is_new, is_same,
--                     failed, key_<unique field>...; phase 1 writes, 2 are mass updates, 3 deletes
--     lookup_<entity>_<reference>   lookup, kind, value: the distinct lookups of one reference
--     ref_<entity>_<reference>   lookup, kind, id: what they name; of a large feed staging.i<number>_@<entity>_<reference>
--     diff_<entity>   @ordinal, @new, id, and every column: the rows that are to be written

create or replace function bds.import_prepare_family(company text, import bds.imports, members text[])
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
        select * into given, is_valid, rows from bds.look_through(import.number, entity_name);
        perform bds.note_columns(entity_name, given);
        if not is_valid then
            perform bds.check_values(import.number, entity_name, given);
        end if;
        refers_outside := bds.refers_outside(entity_name, members, given);
        if refers_outside then
            perform bds.resolve_references(company, import.number, entity_name, given);
        end if;
        if bds.has_keys(entity_name) then
            -- where its parent's rows are not mapped yet, it is not known either whether it has moved to another
            compare := refers_outside and (bds.mapped_parent(entity_name) is not null or bds.parent_of(entity_name) = any (members) is not true);
            perform bds.map_by_keys(company, import.number, entity_name, given, compare, rows);
            perform bds.check_names(import.number, entity_name, given);
            perform bds.check_operations(import.number, entity_name, given);
            perform bds.check_required(import.number, entity_name);
        end if;
    end loop;
    perform bds.mark_known(import.number, members);  -- what a record that is refused says of itself is no name for others
    foreach entity_name in array members loop
        given := bds.noted_columns(entity_name);
        if not bds.refers_outside(entity_name, members, given) then
            perform bds.resolve_references(company, import.number, entity_name, given);
        end if;
        if not bds.has_keys(entity_name) then
            perform bds.map_by_linkage(company, import.number, entity_name, given);
            perform bds.check_operations(import.number, entity_name, given);
            perform bds.check_required(import.number, entity_name);
        end if;
        perform bds.check_nesting(import.number, entity_name, given);
        perform bds.make_diff(company, import.number, entity_name, given);
        perform bds.check_constraints(company, import.number, entity_name, 'diff_' || entity_name);
    end loop;
    perform bds.mark_failed(import, members);
end
$$;
comment on function bds.import_prepare_family(text, bds.imports, text[]) is 'Compares the staged rows of a family';

create or replace function bds.note_columns(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute 'update pg_temp.family_ set columns = $1 where name = $2' using columns, entity_name;
end
$$;
comment on function bds.note_columns(text, text[]) is 'Keeps which columns the staged rows of an entity give, for which all of them were read';

create or replace function bds.noted_columns(entity_name text)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    columns text[];
begin
    execute 'select f.columns from pg_temp.family_ f where f.name = $1' into columns using entity_name;
    return columns;
end
$$;
comment on function bds.noted_columns(text) is 'What note_columns has kept';

create or replace function bds.has_keys(entity_name text)
    returns boolean
    language sql
    stable
    return exists (select from bds.import_columns c where c.entity = entity_name and c.is_unique);
comment on function bds.has_keys(text) is 'Whether rows of the entity can be told by a unique field';

create or replace function bds.refers_outside(entity_name text, members text[], columns text[])
    returns boolean
    language sql
    stable
    return not exists (
        select from bds.import_columns c where c.entity = entity_name and c.target = any (members) and c.name = any (columns)
    );
comment on function bds.refers_outside(text, text[], text[]) is
    'Whether the entity''s columns refer to none of these: then what they refer to is known before its own rows';

create or replace function bds.only_identifies(entity_name text, columns text[])
    returns text
    language sql
    stable
    return case when '@operation' = any (columns)
        then format($sql$(s."@operation" is not distinct from 'delete'%s)$sql$,
            case when bds.has_keys(entity_name) then '' else $sql$ and coalesce(s."@id", s."@where") is not null$sql$ end)
        else 'false' end;
comment on function bds.only_identifies(text, text[]) is
    'SQL that tells whether a staged row s goes, so that nothing but what names it counts; without that all that it says tells which it is';

create or replace function bds.check_values(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute (
        select format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, s."@ordinal", v.field, 'invalid_value',
                format('expected %%s, got %%s', v.expected, quote_literal(left(%6$s, 100)))
            from %3$s s
            cross join lateral (values %5$s) as v (field, given, is_valid, expected, identifies)
            where not (%4$s) and v.given is not null and v.given <> e'\x01' and not v.is_valid and (v.identifies or not %7$s)
            $sql$,
            bds.staging_table(import_number, 'errors'), entity_name, bds.staging_table(import_number, entity_name), bds.valid_values(entity_name),
            string_agg(format($sql$(%1$L, s.%2$I, %3$s, %4$L, %5$L::boolean)$sql$,
                c.name, c.name, bds.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type), bds.expected_value(c.type, c.sql_type), c.is_unique), ', '),
            bds.staged_text('v.given'), bds.only_identifies(entity_name, columns)
        )
        from bds.import_columns c
        where c.entity = entity_name and c.target is null and c.sql_type <> 'text' and c.name = any (columns)
    );
end
$$;
comment on function bds.check_values(bigint, text, text[]) is 'Finds every staged text that is no value of its field''s type';

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
        $sql$s.%1$I = e'\x01' or (m.is_new and m.operation <> 'update' and s.%1$I is null%2$s%3$s)$sql$,
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
        where m.phase < 3 and (%6$s) and v.is_missing and not exists (
            -- what its own lookup does not find is no new row, and what was refused was not missing
            select from %1$s e where e.entity = %2$L and e.ordinal = m.ordinal and e.field in ('id', '@operation', '@where', v.field)
        )
        $sql$,
        bds.staging_table(import_number, 'errors'), entity_name, 'map_' || entity_name, bds.staging_table(import_number, entity_name),
        missing, any_missing
    );
end
$$;
comment on function bds.check_required(bigint, text) is 'Finds required fields that are null, or that a new row lacks';

create or replace function bds.all_valid(import_number bigint, entity_name text)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    valid boolean;
begin
    execute format('select not exists (select from %s e where e.entity = $1 and e.code = ''invalid_value'')', bds.staging_table(import_number, 'errors'))
        into valid using entity_name;
    return valid;
end
$$;
comment on function bds.all_valid(bigint, text) is 'Whether no value of the entity was found wrong';

create or replace function bds.make_diff(
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
    parent text := bds.mapped_parent(entity_name);
    joins  text;
    values_ text;
    differs text;
    names  text;
    is_checked boolean;
    rest    bigint;
    stored  text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    is_checked := bds.all_valid(import_number, entity_name);

    select
        string_agg(bds.reference_join(import_number, entity_name, c.name, format('s.%I', c.name)), E'\n')
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
            case when c.name = any (columns) then format('%I.id,', bds.reference_alias(entity_name, c.name)) else '' end, c.column_name)
        else bds.written_value(c, format('s.%I', c.name), b.otherwise, format('m.%I', 'key_' || c.name), bds.reference_alias(entity_name, c.name), is_checked)
    end) as v (is_given, expression)
    where c.entity = entity_name;

    execute format('select count(*) from pg_temp.%I m where m.phase = 1 and not m.is_same', coalesce(map_name, 'map_' || entity_name)) into rest;
    stored := bds.stored_join(this.table_name, 't', 'id', 'm.target', bds.finds_few(rest, this.table_name, company));
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
        coalesce(diff_name, 'diff_' || entity_name), names, values_, bds.staging_table(import_number, entity_name),
        coalesce(map_name, 'map_' || entity_name), stored,
        case when parent is not null then format('left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || parent) else '' end,
        coalesce(joins, ''), coalesce(differs, 'false'),
        case when rest = 0 then 'with no data' else '' end  -- what is staged need not be read for that
    ) using company;
end
$$;
comment on function bds.make_diff(text, bigint, text, text[], text, text) is 'Keeps the rows that are new or differ from what is stored, as they are to become';

create or replace function bds.rules_of(entity_name text)
    returns table (name name, expression text, field text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select k.conname, pg_get_expr(k.conbin, k.conrelid),
            (select f.name from bds.fields f join pg_attribute a on a.attrelid = k.conrelid and a.attname = f.column_name
            where f.entity = entity_name and k.conkey = array[a.attnum])
        from pg_constraint k join bds.entities e on e.table_name = k.conrelid
        where e.name = entity_name and k.contype = 'c'
            -- a rule over what the database itself computes is the database's to check
            and not exists (
                select from unnest(k.conkey) as u (attnum)
                join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.attnum
                where a.attname not in ('company_id', 'id')
                    and a.attname not in (select c.column_name from bds.import_columns c where c.entity = entity_name)
            );
    end;
comment on function bds.rules_of(text) is 'The check constraints of an entity''s table that an import can foresee, and the field of those over one field';

create or replace function bds.check_constraints(company text, import_number bigint, entity_name text, diff_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    rule record;
begin
    for rule in select * from bds.rules_of(entity_name) loop
        begin
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, d."@ordinal", %3$L, 'invalid_value', format('it breaks the rule %%s', %4$L)
                from pg_temp.%6$I d
                where (select not (%5$s) from (select $1 as company_id, d.*) as row_to_be)
                $sql$,
                bds.staging_table(import_number, 'errors'), entity_name, rule.field, rule.name, rule.expression, diff_name
            ) using company;
        exception when others then  -- of some record the rule is not even false: the writing finds which
            if not bds.is_fault_of_rows(sqlstate) then
                raise;
            end if;
        end;
    end loop;
end
$$;
comment on function bds.check_constraints(text, bigint, text, text) is 'Finds rows that would break a check constraint of the table';
