-- Staged text that is a null, or a lookup.  No text makes these functions raise.  The planner inlines them.

create function bds_feed.staged_text(given text)
    returns text
    language sql
    immutable
    -- an ordinary text needs only the first comparison; ^@ would copy a part of it
    return case when given < e'\x02' collate "C" and given <> '' then nullif(substr(given, 2), '') else given end;
comment on function bds_feed.staged_text(text) is
    'The text of a staged value: chr(1) stands for null, and before a text that begins with it';

create function bds_feed.lookup_kind(lookup text)
    returns text
    language sql
    immutable
    return case
        when lookup ~ '^-?[0-9]+$' then 'id'
        when strpos(lookup, ':') > 0 then split_part(lookup, ':', 1)
        when lookup is not null then ''
    end;
comment on function bds_feed.lookup_kind(text) is 'The kind of a lookup: code of code:X, id of 12';

create function bds_feed.lookup_value(lookup text)
    returns text
    language sql
    immutable
    return case when lookup ~ '^-?[0-9]+$' then lookup else substr(lookup, strpos(lookup, ':') + 1) end;
comment on function bds_feed.lookup_value(text) is 'The value of a lookup: X of code:X, 12 of 12';

create function bds_feed.lookup_id(lookup text)
    returns bigint
    language sql
    immutable
    return case
        when lookup ~ '^(id:)?-?[0-9]{1,18}$' then ltrim(lookup, 'id:')::bigint
        -- of 19 digits only some are a bigint; pg_input_is_valid is not immutable, and nothing would be inlined
        when lookup ~ '^(id:)?-?[0-9]{19}$' then case
            when ltrim(lookup, 'id:')::numeric between -9223372036854775808 and 9223372036854775807
                then ltrim(lookup, 'id:')::bigint
        end
    end;
comment on function bds_feed.lookup_id(text) is 'The id in a lookup of kind id; null for another, and for what is not an id';
