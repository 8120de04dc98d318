-- Checking: errors of a single record, and values that contradict its own lookup.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('check_values_{entity}()', null, 'void', 'finds every staged text that is not a value of its field''s type', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', s."@ordinal", v.field, 'invalid_value',
        format('expected %s, got %s', v.expected, quote_literal(left(bds_feed.staged_text(v.given), 100)))
    from pg_temp."staged_{entity}" s
    cross join lateral (values
        (null, null, true, null, false)
        {each checked}
        , ('{name}', {given}, {valid}, {expected:L}, {unique})
        {end checked}
    ) as v (field, given, is_valid, expected, identifies)
    where not (true{each checked} and {sound}{end checked})
        and v.given <> e'\x01' and not v.is_valid and (v.identifies or not {only_identifies});
end$sql$),

('check_operations_{entity}()', null, 'void', 'finds wrong directives, rows to create that exist, rows to update that do not', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', m.ordinal, v.field, v.code, v.message
    from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
    cross join lateral (
        select coalesce(s."@id"{each keys}, '{name}:' || nullif({given}, e'\x01'){end keys}
                {if has_keys}{else has_keys}, 'like it'{end has_keys}),
            coalesce(s."@id", s."@where"{each keys}, {given}{end keys})
    ) as n (lookup, identity)
    cross join lateral (values
        (m.operation not in ('create', 'update', 'upsert', 'delete'), '@operation', 'invalid_directive',
            format('expected create, update, upsert or delete, got %L', left(m.operation, 100))),
        (s."@where" is not null and m.operation not in ('update', 'delete'), '@where', 'invalid_directive',
            'expected only with "@operation": "update" or "delete"'),
        (s."@where" is not null and s."@id" is not null, '@where', 'invalid_directive', 'expected an id or @where, got both'),
        (s."@where" is not null and s."@parent" is not null, '@where', 'invalid_directive',
            'expected only in a record at the top level'),
        (s."@where" is not null and m.phase = 2 and coalesce({each children}s.{whole:I}, {end children}null) is not null, '@where',
            'invalid_directive', 'expected no children beside a condition'),
        (s."@where" = '', '@where', 'invalid_directive', 'expected a condition, got nothing'),
        (m.operation = 'create' and m.phase = 1 and not m.is_new, null, 'already_exists', format('it is row %s', m.target)),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is null, null, 'required',
            'expected {any_kind} of the row to update, or @where'),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is not null, null, 'not_found',
            format('{entity} has no row %s to update', left(n.lookup, 100))),
        -- to delete a row that does not exist is no error
        (m.operation = 'delete' and m.is_new and n.identity is null, null, 'required', 'expected {any_kind} of the row to delete')
    ) as v (is_wrong, field, code, message)
    where (m.operation <> 'upsert' or s."@where" is not null) and v.is_wrong and not exists (
        select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = m.ordinal and e.code = v.code
    );
end$sql$),

('check_{entity}(given text[])', null, 'void', 'finds values that contradict the record''s own lookup, and missing fields', $sql$
begin
    if $1 && '{@operation,@where}' then
        perform bds_import."check_operations_{entity}"();
    end if;
    -- a record whose lookup finds no row is not new, and a refused value is not missing
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', m.ordinal, v.field, 'required', v.field || ' is required'
    from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
    cross join lateral (values
        (null, false)
        {each needed}
        , ('{name}', {missing})
        {end needed}
    ) as v (field, is_missing)
    where m.phase < 3 and (false{each needed} or {missing}{end needed}) and v.is_missing
        and not bds_feed.is_completed({table:L}) and not exists (
        select from pg_temp.feed_errors e
        where e.entity = '{entity}' and e.ordinal = m.ordinal and e.field in ('id', '@operation', '@where', v.field)
    );
    {if has_keys}
    if '@id' = any ($1) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', m.ordinal, v.field, 'invalid_value',
            format('expected the value of the id, which matches no row: %s', left(m.id, 100))
        from pg_temp."map_{entity}" m
        cross join lateral (select bds_feed.lookup_value(m.id)) as l (value)
        cross join lateral (values
            {each keys|, }
            ('{name}', m.{key:I} is distinct from {named})
            {end keys}
        ) as v (field, is_wrong)
        where m.is_new and m.id_kind = v.field and m.operation in ('create', 'upsert') and v.is_wrong and not exists (
            select from pg_temp.feed_errors e
            where e.entity = '{entity}' and e.ordinal = m.ordinal and e.field in ('id', v.field)
        );
    end if;
    {end has_keys}
end$sql$),

('check_nesting_{entity}(given text[])', 'upward', 'void', 'finds rows nested in one parent that name another', $sql$
begin
    if '{name}' = any ($1) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', s."@ordinal", '{name}', 'invalid_value',
            format('expected the row of {target} that contains the record, got %s', left(r.lookup, 100))
        from pg_temp."staged_{entity}" s
        join pg_temp."ref_{ref}" r on r.lookup = {given}
        join pg_temp."map_{target}" p on p.ordinal = s."@parent"
        where r.id <> p.target;
    end if;
end$sql$),

('check_rules_{entity}(import bds.imports, first bigint, last bigint)', null, 'void',
'finds rows of the records from $2 to $3 that would break a check constraint, or change what the table generates always', $sql$
#variable_conflict use_column
begin  -- a rule may name columns that are called as the parameters are
    if not bds_feed.is_completed({table:L}) then
    {each rules}
    begin
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', d."@ordinal", {field}, 'invalid_value', {message:L}
        from pg_temp."diff_{entity}" d
        where d."@ordinal" between $2 and $3 and d."@new" is not null
            and (
                select not ({expression})
                from (select import.company_id as company_id, d.id{each columns}, {typed} as {column:I}{end columns}) as row_to_be
            );
    exception when others then  -- the rule raises for a record: the writing finds which
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
    end;
    {end rules}
    end if;
    {each fixed}
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', d."@ordinal", '{name}', 'invalid_value', 'the table generates it: a row keeps its value'
    from pg_temp."diff_{entity}" d
    join {table} t on t.company_id = (select import.company_id) and t.id = d.id
    where d."@ordinal" between $2 and $3 and not d."@new" and d.{column:I} is distinct from {stored};
    {end fixed}
end$sql$);
