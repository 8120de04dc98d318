-- SQL that reads staged text as what it is to become.  None of it raises, whatever the text.

create function bds_feed.staged_text(expression text)
    returns text
    language sql
    immutable
    -- the first comparison is all that an ordinary text takes: ^@ would cut a text out of it
    return format($sql$case when %1$s < e'\x02' collate "C" and %1$s <> '' then nullif(substr(%1$s, 2), '') else %1$s end$sql$, expression);
comment on function bds_feed.staged_text(text) is 'SQL for the text of a staged column: chr(1) stands for null, and before a text that begins with it';

create function bds_feed.staged_is_valid(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case type
        -- what PostgreSQL reads but JSON has no number or date for: NaN, infinity, today, 1 BC, 0x10
        -- pg_input_is_valid('1e-400000000', 'numeric(19,4)') is true, and the cast raises
        when 'numeric' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s !~ ''[a-df-zA-DF-Z_]|[eE][+-]?[0-9]{6}'')', expression, sql_type)
        when 'float8' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s !~ ''[a-df-zA-DF-Z_]'')', expression, sql_type)
        when 'date' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z+-]*)?$'')', expression, sql_type)
        when 'timestamptz' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z +-]*)?$'')', expression, sql_type)
        when 'time' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^[0-9]{2}:[0-9:.]*$'')', expression, sql_type)
        when 'text' then format('pg_input_is_valid(%s, %L)', bds_feed.staged_text(expression), sql_type)
        when 'bool' then format('pg_input_is_valid(%s, %L)', expression, sql_type)
        when 'uuid' then format('pg_input_is_valid(%s, %L)', expression, sql_type)
        else format('(pg_input_is_valid(%1$s, %2$L) and %1$s ~ ''^ *[+-]?[0-9]+ *$'')', expression, sql_type)
    end;
comment on function bds_feed.staged_is_valid(text, text, text) is 'SQL that tells whether a staged text is a value of the type';

create function bds_feed.staged_cast(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case
        when sql_type = 'text' then bds_feed.staged_text(expression)
        when type = 'text' then format('(%s)::%s', bds_feed.staged_text(expression), sql_type)
        else format('(%s)::%s', expression, sql_type)
    end;
comment on function bds_feed.staged_cast(text, text, text) is 'SQL for the typed value of a staged column in which every value has been found valid';

create function bds_feed.staged_value(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case
        when sql_type = 'text' then bds_feed.staged_cast(expression, type, sql_type)
        else format('case when %s then %s end', bds_feed.staged_is_valid(expression, type, sql_type), bds_feed.staged_cast(expression, type, sql_type))
    end;
comment on function bds_feed.staged_value(text, text, text) is 'SQL for the typed value of a staged column; it never raises';

create function bds_feed.named_value(expression text, type text, sql_type text)
    returns text
    language sql
    immutable
    return case
        when sql_type = 'text' then expression
        when type = 'text' then format('case when pg_input_is_valid(%1$s, %2$L) then (%1$s)::%2$s end', expression, sql_type)
        else bds_feed.staged_value(expression, type, sql_type)
    end;
comment on function bds_feed.named_value(text, text, text) is 'SQL for the typed value that a lookup names, which is text as it is; it never raises';

create function bds_feed.expected_value(type text, sql_type text)
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
comment on function bds_feed.expected_value(text, text) is 'What an error says was expected';

create function bds_feed.lookup_kind(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]+$' then 'id' when strpos(%1$s, ':') > 0 then split_part(%1$s, ':', 1) when %1$s is not null then '' end$sql$, expression);
comment on function bds_feed.lookup_kind(text) is 'SQL for the kind of a lookup: code of code:X, id of 12';

create function bds_feed.lookup_value(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]+$' then %1$s else substr(%1$s, strpos(%1$s, ':') + 1) end$sql$, expression);
comment on function bds_feed.lookup_value(text) is 'SQL for the value of a lookup: X of code:X, 12 of 12';

create function bds_feed.lookup_id(expression text)
    returns text
    language sql
    immutable
    return format($sql$case when %1$s ~ '^[0-9]{1,18}$' then (%1$s)::bigint end$sql$, expression);
comment on function bds_feed.lookup_id(text) is 'SQL for the id in the value of a lookup of kind id, null if it can be none';

create function bds_feed.typed_value(c bds.import_columns, given text)
    returns text
    language sql
    immutable
    -- reading a text is half of the work: what was found valid, $3, is not checked again
    return case when c.sql_type = 'text' then bds_feed.staged_cast(given, c.type, c.sql_type)
        else format('case when $3 then %s else %s end', bds_feed.staged_cast(given, c.type, c.sql_type), bds_feed.staged_value(given, c.type, c.sql_type)) end;
comment on function bds_feed.typed_value(bds.import_columns, text) is
    'SQL for the typed value of a staged column in a function whose $3 tells whether every value was found valid';

create function bds_feed.written_value(c bds.import_columns, given text, otherwise text, key text)
    returns text
    language sql
    immutable
    return case
        when c.target is not null then format(
            $sql$case when %1$s is null then %2$s when %1$s <> e'\x01' then %3$I.id end$sql$, given, otherwise, 'ref_' || c.name)
        when c.is_unique then format(
            $sql$case when %1$s is not null then %1$s when %2$s is null then %3$s else %4$s end$sql$,
            key, given, otherwise, bds_feed.typed_value(c, given))
        else format(
            $sql$case when %1$s is null then %2$s when %1$s = e'\x01' then %3$s else %4$s end$sql$,
            given, otherwise, case when c.required then coalesce(c.default_expression, 'null') else 'null' end, bds_feed.typed_value(c, given))
    end;
comment on function bds_feed.written_value(bds.import_columns, text, text, text) is
    'SQL for the value that a staged row gives a column, which keeps or gets otherwise if the row does not give it; $3 as for typed_value';

create function bds_feed.valid_values(entity_name text)
    returns text
    language sql
    stable
    return coalesce((
        select string_agg(format($sql$(s.%1$I is null or s.%1$I = e'\x01' or %2$s)$sql$,
            c.name, bds_feed.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type)), E'\n    and ' order by c.ordinal)
        from bds.import_columns c
        where c.entity = entity_name and c.target is null and c.sql_type <> 'text'
    ), 'true');
comment on function bds_feed.valid_values(text) is 'SQL that tells whether every text of a staged row s is a value of its field''s type';

create function bds_feed.only_identifies(entity_name text)
    returns text
    language sql
    stable
    return format($sql$(s."@operation" is not distinct from 'delete'%s)$sql$,
        case when bds_feed.has_keys(entity_name) then '' else $sql$ and coalesce(s."@id", s."@where") is not null$sql$ end);
comment on function bds_feed.only_identifies(text) is
    'SQL that tells whether a staged row s goes, so that nothing but what names it counts; without that all that it says tells which it is';
