-- Imports, the contradictions: a record that says of itself two things that cannot both be.

create function bds_feed.check_operations(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not columns && '{@operation,@where}' then
        return;
    end if;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, m.ordinal, v.field, v.code, v.message
        from pg_temp.%3$I m join %4$s s on s."@ordinal" = m.ordinal
        cross join lateral (values
            (m.operation not in ('create', 'update', 'upsert', 'delete'), '@operation', 'invalid_directive',
                format('expected create, update, upsert or delete, got %%L', left(m.operation, 100))),
            (s."@where" is not null and m.operation not in ('update', 'delete'), '@where', 'invalid_directive',
                'expected only with "@operation": "update" or "delete"'),
            (s."@where" is not null and s."@id" is not null, '@where', 'invalid_directive',
                'expected an id or @where, got both'),
            (s."@where" is not null and s."@parent" is not null, '@where', 'invalid_directive', 'expected only in a record at the top level'),
            (s."@where" is not null and m.phase = 2 and (%5$s), '@where', 'invalid_directive',
                'expected no children beside a condition'),
            (s."@where" = '', '@where', 'invalid_directive', 'expected a condition, got nothing'),
            (m.operation = 'create' and m.phase = 1 and not m.is_new, null, 'already_exists', format('it is row %%s', m.target)),
            (m.operation in ('update', 'delete') and m.is_new and s."@where" is null, null, 'not_found',
                format('there is no row to %%s', m.operation))
        ) as v (is_wrong, field, code, message)
        where (m.operation <> 'upsert' or s."@where" is not null) and v.is_wrong
            and not exists (select from %1$s e where e.entity = %2$L and e.ordinal = m.ordinal and e.code = v.code)
        $sql$,
        bds_feed.staging_table(import_number, 'errors'), entity_name, 'map_' || entity_name, bds_feed.staging_table(import_number, entity_name),
        coalesce((
            select string_agg(format('s.%I is not null', n.name || '@present'), ' or ')
            from bds.navigations n where n.entity = entity_name and n.child
        ), 'false')
    );
end
$$;
comment on function bds_feed.check_operations(bigint, text, text[]) is 'Finds directives that are wrong, and rows that are there or not there against them';

create function bds_feed.check_names(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    key record;
begin
    if '@id' <> all (columns) then
        return;
    end if;
    for key in select c.name, c.type, c.sql_type from bds.import_columns c where c.entity = entity_name and c.is_unique and c.name = any (columns) loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, m.ordinal, %3$L, 'invalid_value', format('expected the value of the id, which matches no row: %%s', left(m.id, 100))
            from pg_temp.%4$I m
            where m.is_new and m.id_kind = %3$L and m.operation in ('create', 'upsert') and m.%5$I <> %6$s
                and not exists (select from %1$s e where e.entity = %2$L and e.ordinal = m.ordinal and e.field = %3$L)
            $sql$,
            bds_feed.staging_table(import_number, 'errors'), entity_name, key.name, 'map_' || entity_name, 'key_' || key.name,
            bds_feed.named_value(bds_feed.lookup_value('m.id'), key.type, key.sql_type)
        );
    end loop;
end
$$;
comment on function bds_feed.check_names(bigint, text, text[]) is
    'Finds new rows whose lookup and whose field give two values of the same kind: id code:Q, code R';

create function bds_feed.check_nesting(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent    text := bds_feed.mapped_parent(entity_name);
    reference text := (select c.name from bds.import_columns c where c.entity = entity_name and c.is_parent);
begin
    if reference is null or reference <> all (columns) or parent is null then
        return;
    end if;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, s."@ordinal", %3$L, 'invalid_value', format('expected the row of %%s that contains the record, got %%s', %4$L, left(r.lookup, 100))
        from %5$s s
        join %6$s r on r.lookup = s.%3$I
        join pg_temp.%7$I p on p.ordinal = s."@parent"
        where r.id <> p.target
        $sql$,
        bds_feed.staging_table(import_number, 'errors'), entity_name, reference, parent, bds_feed.staging_table(import_number, entity_name),
        bds_feed.reference_table(import_number, entity_name, reference), 'map_' || parent
    );
end
$$;
comment on function bds_feed.check_nesting(bigint, text, text[]) is 'Finds rows nested in one parent that name another as theirs';

create function bds_feed.check_values(import_number bigint, entity_name text, columns text[])
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
            bds_feed.staging_table(import_number, 'errors'), entity_name, bds_feed.staging_table(import_number, entity_name), bds_feed.valid_values(entity_name),
            string_agg(format($sql$(%1$L, s.%2$I, %3$s, %4$L, %5$L::boolean)$sql$,
                c.name, c.name, bds_feed.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type), bds_feed.expected_value(c.type, c.sql_type), c.is_unique), ', '),
            bds_feed.staged_text('v.given'), bds_feed.only_identifies(entity_name, columns)
        )
        from bds.import_columns c
        where c.entity = entity_name and c.target is null and c.sql_type <> 'text' and c.name = any (columns)
    );
end
$$;
comment on function bds_feed.check_values(bigint, text, text[]) is 'Finds every staged text that is no value of its field''s type';

create function bds_feed.check_required(import_number bigint, entity_name text)
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
        bds_feed.staging_table(import_number, 'errors'), entity_name, 'map_' || entity_name, bds_feed.staging_table(import_number, entity_name),
        missing, any_missing
    );
end
$$;
comment on function bds_feed.check_required(bigint, text) is 'Finds required fields that are null, or that a new row lacks';

create function bds_feed.check_constraints(company text, import_number bigint, entity_name text, diff_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    rule record;
begin
    for rule in select * from bds_feed.rules_of(entity_name) loop
        begin
            execute format(
                $sql$
                insert into %1$s (entity, ordinal, field, code, message)
                select %2$L, d."@ordinal", %3$L, 'invalid_value', format('it breaks the rule %%s', %4$L)
                from pg_temp.%6$I d
                where (select not (%5$s) from (select $1 as company_id, d.*) as row_to_be)
                $sql$,
                bds_feed.staging_table(import_number, 'errors'), entity_name, rule.field, rule.name, rule.expression, diff_name
            ) using company;
        exception when others then  -- of some record the rule is not even false: the writing finds which
            if not bds_feed.is_fault_of_rows(sqlstate) then
                raise;
            end if;
        end;
    end loop;
end
$$;
comment on function bds_feed.check_constraints(text, bigint, text, text) is 'Finds rows that would break a check constraint of the table';
