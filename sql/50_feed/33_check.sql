-- Checking: what is wrong with a record by itself, and what it says twice.

create function bds_feed.make_check(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    required record;
begin
    select string_agg(format('(%s, %L, ''required'', %L)', m.condition, c.name, c.name || ' is required'), E',\n            ' order by c.ordinal) as cases,
        string_agg(m.condition, ' or ' order by c.ordinal) as guard
    into required
    from bds.import_columns c
    cross join lateral (select format(
        -- null where something is required; of a new row also nothing at all, unless its lookup or its parent says it
        $sql$s.%1$I = e'\x01' or (m.is_new and m.operation <> 'update' and s.%1$I is null%2$s%3$s)$sql$,
        c.name,
        case when c.is_unique then format(' and m.%I is null', 'key_' || c.name) else '' end,
        case when c.is_parent then ' and s."@parent" is null' else '' end
    )) as m (condition)
    where c.entity = entity_name and c.required and c.default_expression is null;
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[])', 'check_values_' || entity_name), 'void',
        'finds every staged text that is not a value of its field''s type', bds_feed.check_values_body(entity_name));
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[])', 'check_' || entity_name), 'void',
        'finds wrong directives, rows that exist or do not exist against them, contradictory lookups, missing fields',
        format(E'begin%s%s%s\nend',
            bds_feed.check_step(entity_name, '$2 && ''{@operation,@where}''', 'm.operation <> ''upsert'' or s."@where" is not null', 'e.code = v.code',
                bds_feed.operation_cases(entity_name)),
            bds_feed.check_step(entity_name, '''@id'' = any ($2)', 'm.is_new and m.id_kind is not null and m.operation in (''create'', ''upsert'')',
                'e.field = v.field', bds_feed.name_cases(entity_name)),
            -- what its own lookup does not find is not a new row, and what was refused was not missing
            bds_feed.check_step(entity_name, 'true', format('m.phase < 3 and (%s)', required.guard),
                'e.field in (''id'', ''@operation'', ''@where'', v.field)', required.cases)));
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[])', 'check_rows_' || entity_name), 'void',
        'finds rows nested in one parent that name another',
        format(E'begin%s\nend', bds_feed.check_nesting_step(entity_name)));
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, first bigint, last bigint)', 'check_rules_' || entity_name), 'void',
        'finds rows of the records from $2 to $3 that would break a check constraint',
        format(E'begin%s\nend', (
            select string_agg(bds_feed.check_rule_step(entity_name, r.name, r.field, r.expression), '' order by r.name) from bds_feed.rules_of(entity_name) r)));
end
$$;
comment on function bds_feed.make_check(text) is 'Generates check_values_<entity>, check_<entity>, check_rows_<entity> and check_rules_<entity>';

create function bds_feed.check_step(entity_name text, needed text, guard text, known text, cases text)
    returns text
    language plpgsql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return case when cases is null then '' else bds_impl.fill(
        $sql$
    if {needed} then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select {entity:L}, m.ordinal, v.field, v.code, v.message
        from pg_temp.{map:I} m join pg_temp.{staged:I} s on s."@ordinal" = m.ordinal
        cross join lateral (values
            {cases}
        ) as v (is_wrong, field, code, message)
        where ({guard}) and v.is_wrong and not exists (
            select from pg_temp.feed_errors e where e.entity = {entity:L} and e.ordinal = m.ordinal and {known}
        );
    end if;$sql$,
        'needed', needed, 'entity', entity_name, 'map', 'map_' || entity_name, 'staged', 'staged_' || entity_name,
        'cases', cases, 'guard', guard, 'known', known
    ) end;
end
$$;
comment on function bds_feed.check_step(text, text, text, text, text) is
    'A step of check_<entity>: its cases (is_wrong, field, code, message) for records m, staged as s, within the guard, unless such an error is known';

create function bds_feed.operation_cases(entity_name text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select bds_impl.fill(
        $sql$(m.operation not in ('create', 'update', 'upsert', 'delete'), '@operation', 'invalid_directive',
                format('expected create, update, upsert or delete, got %L', left(m.operation, 100))),
            (s."@where" is not null and m.operation not in ('update', 'delete'), '@where', 'invalid_directive',
                'expected only with "@operation": "update" or "delete"'),
            (s."@where" is not null and s."@id" is not null, '@where', 'invalid_directive', 'expected an id or @where, got both'),
            (s."@where" is not null and s."@parent" is not null, '@where', 'invalid_directive', 'expected only in a record at the top level'),
            (s."@where" is not null and m.phase = 2 and ({has_children}), '@where', 'invalid_directive', 'expected no children beside a condition'),
            (s."@where" = '', '@where', 'invalid_directive', 'expected a condition, got nothing'),
            (m.operation = 'create' and m.phase = 1 and not m.is_new, null, 'already_exists', format('it is row %s', m.target)),
            (m.operation = 'update' and m.is_new and s."@where" is null and {named} is null, null, 'required', 'expected {known} of the row to update, or @where'),
            (m.operation = 'update' and m.is_new and s."@where" is null and {named} is not null, null, 'not_found', format('{entity} has no row %s to update', left({named}, 100))),
            -- a row that is gone already may be deleted again
            (m.operation = 'delete' and m.is_new and coalesce({identity}) is null, null, 'required', 'expected {known} of the row to delete')$sql$,
        'entity', entity_name,
        'named', case when bds_feed.has_keys(entity_name) then 'coalesce(s."@id"' || (
            select string_agg(format(', %L || nullif(s.%I, e''\x01'')', c.name || ':', c.name), '' order by c.ordinal)
            from bds.import_columns c where c.entity = entity_name and c.is_unique) || ')'
            else $sql$coalesce(s."@id", 'like it')$sql$ end,
        'identity', concat_ws(', ', 's."@id"', 's."@where"', (
            select string_agg(format('s.%I', c.name), ', ' order by c.ordinal) from bds.import_columns c where c.entity = entity_name and c.is_unique)),
        'known', array_to_string(bds_feed.lookup_kinds(entity_name), ' or '),
        'has_children', coalesce((
            select string_agg(format('s.%I is not null', n.name || '@present'), ' or ')
            from bds.navigations n where n.entity = entity_name and n.child
        ), 'false')
    );
$$;
comment on function bds_feed.operation_cases(text) is 'The cases of check_<entity> for @operation and @where';

create function bds_feed.name_cases(entity_name text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select string_agg(bds_impl.fill(
            $sql$(m.id_kind = {field:L} and m.{key:I} <> {named}, {field:L}, 'invalid_value',
                format('expected the value of the id, which matches no row: %s', left(m.id, 100)))$sql$,
            'field', c.name, 'key', 'key_' || c.name, 'named', bds_feed.named_value(bds_feed.lookup_value('m.id'), c.type, c.sql_type)),
            E',\n            ' order by c.ordinal)
        from bds.import_columns c where c.entity = entity_name and c.is_unique;
$$;
comment on function bds_feed.name_cases(text) is 'The cases of check_<entity> for new rows whose lookup and whose field give two values: id code:Q, code R';

create function bds_feed.check_values_body(entity_name text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce((
        select bds_impl.fill(
            $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select {entity:L}, s."@ordinal", v.field, 'invalid_value',
        format('expected %s, got %s', v.expected, quote_literal(left({shown}, 100)))
    from pg_temp.{staged:I} s
    cross join lateral (values
        {values}
    ) as v (field, given, is_valid, expected, identifies)
    where not ({valid}) and v.given <> e'\x01' and not v.is_valid and (v.identifies or not {identifies_only});
end$sql$,
            'entity', entity_name, 'staged', 'staged_' || entity_name, 'valid', bds_feed.valid_values(entity_name),
            'values', string_agg(format($sql$(%1$L, s.%1$I, %2$s, %3$L, %4$L::boolean)$sql$,
                c.name, bds_feed.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type), bds_feed.expected_value(c.type, c.sql_type), c.is_unique),
                E',\n        ' order by c.ordinal),
            'shown', bds_feed.staged_text('v.given'), 'identifies_only', bds_feed.only_identifies(entity_name))
        from bds.import_columns c
        where c.entity = entity_name and c.target is null and c.sql_type <> 'text'
        having count(*) > 0
    ), E'begin\nend');
end
$$;
comment on function bds_feed.check_values_body(text) is 'The body of check_values_<entity>';

create function bds_feed.check_nesting_step(entity_name text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce((
        select bds_impl.fill(
            $sql$
    if {field:L} = any ($2) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select {entity:L}, s."@ordinal", {field:L}, 'invalid_value',
            format('expected the row of %s that contains the record, got %s', {parent:L}, left(r.lookup, 100))
        from pg_temp.{staged:I} s
        join pg_temp.{ref:I} r on r.lookup = s.{field:I}
        join pg_temp.{map:I} p on p.ordinal = s."@parent"
        where r.id <> p.target;
    end if;$sql$,
            'field', c.name, 'entity', entity_name, 'parent', c.target, 'staged', 'staged_' || entity_name, 'map', 'map_' || c.target,
            'ref', 'ref_' || bds_feed.reference_name(entity_name, c.name))
        from bds.import_columns c where c.entity = entity_name and c.is_parent
    ), '');
end
$$;
comment on function bds_feed.check_nesting_step(text) is 'The step of check_rows_<entity> for rows nested in one parent that name another as theirs';

create function bds_feed.check_rule_step(entity_name text, rule text, field text, expression text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_impl.fill(
        $sql$
    begin
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select {entity:L}, d."@ordinal", {field}, 'invalid_value', {message:L}
        from pg_temp.{diff:I} d
        where d."@ordinal" between $2 and $3 and d."@new" is not null
            and (select not ({expression}) from (select import.company_id as company_id, d.*) as row_to_be);
    exception when others then  -- of some record the rule is not even false: the writing finds which
        if not bds_feed.is_fault_of_rows(sqlstate) then
            raise;
        end if;
    end;$sql$,
        'entity', entity_name, 'field', coalesce(quote_literal(field), 'null'), 'message', format('it breaks the rule %s', rule),
        'diff', 'diff_' || entity_name, 'expression', expression
    );
end
$$;
comment on function bds_feed.check_rule_step(text, text, text, text) is 'The step of check_rules_<entity> for one check constraint';
