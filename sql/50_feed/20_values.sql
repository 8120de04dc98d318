-- Imports, the values: SQL that reads staged text as what it is to become.  None of it raises, whatever the text.

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
        when 'numeric' then format('(pg_input_is_valid(%1$s, %2$L) and %1$s !~ ''[a-df-zA-DF-Z_]'')', expression, sql_type)
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

create function bds_feed.staged_or_checked(c bds.import_columns, given text, is_checked boolean)
    returns text
    language sql
    immutable
    return case when is_checked then bds_feed.staged_cast(given, c.type, c.sql_type) else bds_feed.staged_value(given, c.type, c.sql_type) end;
comment on function bds_feed.staged_or_checked(bds.import_columns, text, boolean) is
    'SQL for the typed value of a staged column: what was found good is not checked again, for reading a text is half of the work';

create function bds_feed.key_value(c bds.import_columns, named boolean)
    returns text
    language sql
    immutable
    return case
        when named then format('coalesce(x.%I, case when x.id_kind = %L then %s end)',
            'said_' || c.name, c.name, bds_feed.named_value('x.id_value', c.type, c.sql_type))
        else format('x.%I', 'said_' || c.name)
    end;
comment on function bds_feed.key_value(bds.import_columns, boolean) is 'SQL for what a row says of a unique field, by the field or by its lookup';

create function bds_feed.written_value(c bds.import_columns, given text, otherwise text, key text, reference text, is_checked boolean)
    returns text
    language sql
    immutable
    return case
        when c.target is not null then format(
            $sql$case when %1$s is null then %2$s when %1$s <> e'\x01' then %3$I.id end$sql$, given, otherwise, reference)
        when c.is_unique then format(
            $sql$case when %1$s is not null then %1$s when %2$s is null then %3$s else %4$s end$sql$,
            key, given, otherwise, bds_feed.staged_or_checked(c, given, is_checked))
        else format(
            $sql$case when %1$s is null then %2$s when %1$s = e'\x01' then %3$s else %4$s end$sql$,
            given, otherwise, case when c.required then coalesce(c.default_expression, 'null') else 'null' end,
            bds_feed.staged_or_checked(c, given, is_checked))
    end;
comment on function bds_feed.written_value(bds.import_columns, text, text, text, text, boolean) is
    'SQL for the value that a staged row gives a column: otherwise is what the column keeps or gets if the row does not give it';

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

create function bds_feed.valid_values(entity_name text)
    returns text
    language sql
    stable
    return coalesce((
        select string_agg(format($sql$(s.%1$I is null or s.%1$I = e'\x01' or %2$s)$sql$,
            c.name, bds_feed.staged_is_valid(format('s.%I', c.name), c.type, c.sql_type)), ' and ' order by c.ordinal)
        from bds.import_columns c
        where c.entity = entity_name and c.target is null and c.sql_type <> 'text'
    ), 'true');
comment on function bds_feed.valid_values(text) is 'SQL that tells whether every text of a staged row s is a value of its field''s type';

create function bds_feed.look_through(import_number bigint, entity_name text, out columns text[], out is_valid boolean, out rows bigint)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute (
        select format(
            'select array_remove(array[case when count("@id") > 0 then ''@id'' end, case when count("@operation") > 0 then ''@operation'' end, '
            'case when count("@where") > 0 then ''@where'' end, %s], null), count(*) filter (where not (%s)) = 0, count(*) from %s s',
            string_agg(format('case when count(%I) > 0 then %L end', c.name, c.name), ', ' order by c.ordinal),
            bds_feed.valid_values(entity_name), bds_feed.staging_table(import_number, entity_name)
        )
        from bds.import_columns c where c.entity = entity_name
    ) into columns, is_valid, rows;
end
$$;
comment on function bds_feed.look_through(bigint, text) is
    'The columns that at least one staged row gives, whether every staged text is a value of its field''s type, and how many rows there are, in one reading';

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

create function bds_feed.staged_lookup(named boolean)
    returns text
    language sql
    immutable
    return case when named then format('s."@id" as id, %s as id_kind, %s as id_value', bds_feed.lookup_kind('s."@id"'), bds_feed.lookup_value('s."@id"'))
        else 'null::text as id, null::text as id_kind' end;
comment on function bds_feed.staged_lookup(boolean) is 'SQL for what a staged row''s own lookup says: id, id_kind, id_value';

create function bds_feed.staged_operation(columns text[])
    returns text
    language sql
    immutable
    return case when '@operation' = any (columns) or '@where' = any (columns) then
        $sql$case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as phase,
                coalesce(s."@operation", 'upsert') as operation, s."@where" is not null as is_mass$sql$
    else $sql$1 as phase, 'upsert' as operation, false as is_mass$sql$ end;
comment on function bds_feed.staged_operation(text[]) is 'SQL for what is to be done with a staged row: phase, operation, is_mass';

create function bds_feed.only_identifies(entity_name text, columns text[])
    returns text
    language sql
    stable
    return case when '@operation' = any (columns)
        then format($sql$(s."@operation" is not distinct from 'delete'%s)$sql$,
            case when bds_feed.has_keys(entity_name) then '' else $sql$ and coalesce(s."@id", s."@where") is not null$sql$ end)
        else 'false' end;
comment on function bds_feed.only_identifies(text, text[]) is
    'SQL that tells whether a staged row s goes, so that nothing but what names it counts; without that all that it says tells which it is';
