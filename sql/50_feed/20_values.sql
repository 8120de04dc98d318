-- Staged text, read as what it is to become.  None of it raises, whatever the text.  The planner takes these functions into the
-- statements that call them.

create function bds_feed.staged_text(given text)
    returns text
    language sql
    immutable
    -- the first comparison is all that an ordinary text takes: ^@ would cut a text out of it
    return case when given < e'\x02' collate "C" and given <> '' then nullif(substr(given, 2), '') else given end;
comment on function bds_feed.staged_text(text) is 'The text of a staged value: chr(1) stands for null, and before a text that begins with it';

create function bds_feed.is_value(given text, type text, sql_type text)
    returns boolean
    language sql
    stable
    -- not what PostgreSQL reads but JSON has no number or date for: NaN, infinity, today, 1 BC, 0x10
    return case type
        when 'text' then pg_input_is_valid(bds_feed.staged_text(given), sql_type)
        when 'bool' then pg_input_is_valid(given, sql_type)
        when 'uuid' then pg_input_is_valid(given, sql_type)
        -- with more than 16,383 decimals pg_input_is_valid('1e-16384', 'numeric(19,4)') is true, and the cast raises
        when 'numeric' then pg_input_is_valid(given, sql_type) and given !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(given, 'numeric')
        when 'float8' then pg_input_is_valid(given, sql_type) and given !~ '[a-df-zA-DF-Z_]'
        when 'date' then pg_input_is_valid(given, sql_type) and given ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z+-]*)?$'
        when 'timestamptz' then pg_input_is_valid(given, sql_type) and given ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z +-]*)?$'
        when 'time' then pg_input_is_valid(given, sql_type) and given ~ '^[0-9]{2}:[0-9:.]*$'
        else pg_input_is_valid(given, sql_type) and given ~ '^ *[+-]?[0-9]+ *$'
    end;
comment on function bds_feed.is_value(text, text, text) is 'Whether a staged text is a value of the type';

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

create function bds_feed.lookup_kind(lookup text)
    returns text
    language sql
    immutable
    return case when lookup ~ '^[0-9]+$' then 'id' when strpos(lookup, ':') > 0 then split_part(lookup, ':', 1) when lookup is not null then '' end;
comment on function bds_feed.lookup_kind(text) is 'The kind of a lookup: code of code:X, id of 12';

create function bds_feed.lookup_value(lookup text)
    returns text
    language sql
    immutable
    return case when lookup ~ '^[0-9]+$' then lookup else substr(lookup, strpos(lookup, ':') + 1) end;
comment on function bds_feed.lookup_value(text) is 'The value of a lookup: X of code:X, 12 of 12';

create function bds_feed.lookup_id(lookup text)
    returns bigint
    language sql
    immutable
    return case when lookup ~ '^(id:)?[0-9]{1,18}$' then ltrim(lookup, 'id:')::bigint end;
comment on function bds_feed.lookup_id(text) is 'The id in a lookup of kind id; null for another, and for what is not an id';
