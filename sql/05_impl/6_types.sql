-- The types of columns, each in one place: what SQL does with values of it.  Everything that depends on a type asks this table; for
-- the program it is app/types.

create table bds_impl.types (
    name       text collate "C" primary key,
    stored     regtype[] not null,
    shown      regtype not null,
    through    text not null default '{value}::{shown}',
    expected   text not null,
    valid      text not null default 'pg_input_is_valid({given}, {type:L})',
    value      text not null default '{given}::{type}',
    logged     text not null default '{state} ->> {field:L}',
    finite     text,
    probe      text,
    stand_ins  text[] not null default '{}',
    is_exact   boolean not null default true
);
comment on table bds_impl.types is 'The types that columns of registered tables may have, and what SQL does with values of each';
comment on column bds_impl.types.name is 'As in bds.fields';
comment on column bds_impl.types.stored is 'What PostgreSQL calls it; anyenum stands for every enum';
comment on column bds_impl.types.shown is 'The type of the column in views';
comment on column bds_impl.types.through is 'SQL: the {value} of a column of another type as one of type {shown}';
comment on column bds_impl.types.expected is
    'What an error says was expected of a value of {type}; {allowed}: the values of an enum';
comment on column bds_impl.types.valid is
    'SQL: whether the text {given} of an import is a value of {type}; it raises for no text. Values that PostgreSQL reads and '
    'JSON does not have are none: NaN, infinity, today, 1 BC, 0x10';
comment on column bds_impl.types.value is 'SQL: the value of a text that is one';
comment on column bds_impl.types.logged is 'SQL: what a record {state} of the log has of {field}, which the cast to shown reads';
comment on column bds_impl.types.finite is
    'SQL: the CHECK of a {column} whose type has values that JSON does not: infinity, NaN (which PostgreSQL sorts above it), '
    'years beyond 1 to 9999';
comment on column bds_impl.types.probe is 'A value that tells columns of different length or scale apart';
comment on column bds_impl.types.stand_ins is
    'SQL: values that {column} of row u of {table} may have for a moment, to be tried in this order; $1 is the company, u."@k" the '
    'row''s number among those that need one, g.n the number of the try, {length} that of a text at most, {allowed} the values of '
    'an enum. A value that is none of {type}, or that a row has, is left out';
comment on column bds_impl.types.is_exact is 'Whether equal values read the same: 1.0 and 1.00 do not, nor do a month and 30 days';

create function bds_impl.beside(zero text, step text, lowest text default 'null', highest text default 'null')
    returns text[]
    language sql
    immutable
    return array[
        format(
            'greatest((select least(min(t.{column:I}), %s) from {table} t where t.company_id = $1) - %s, %s)', zero, step, lowest
        ),
        format(
            'least((select greatest(max(t.{column:I}), %s) from {table} t where t.company_id = $1) + %s, %s)', zero, step, highest
        )
    ];
comment on function bds_impl.beside(text, text, text, text) is
    'Stand-ins of an ordered type: below and above all values, of each row another one';

create function bds_impl.free("values" text, shown text default '')
    returns text
    language sql
    immutable
    return format(
        '(select v from %s v where pg_input_is_valid(v::text, {type:L}) and not exists ('
        'select from {table} t where t.company_id = $1 and t.{column:I}%s = v) offset u."@k" + g.n - 2 limit 1)',
        "values", shown
    );
comment on function bds_impl.free(text, text) is
    'A stand-in of few values: one that no row has, of each row another one; shown: a cast of stored values to their type';

insert into bds_impl.types (name, stored, shown, expected, probe, stand_ins)
select t.name, t.stored, 'text', 'text that fits {type}', 'x', array[
    'left(md5(random()::text || u.id || g.n), {length})',
    $sql$u.{column:I} || lpad(floor(random() * 1e8)::text, 8, '0')$sql$,
    -- the value with other letters and digits
    $sql$(
        select string_agg(
            case
                when x.c ~ '[0-9]' then floor(random() * 10)::text
                when x.c ~ '[a-z]' then chr(97 + floor(random() * 26)::int)
                when x.c ~ '[A-Z]' then chr(65 + floor(random() * 26)::int)
                else x.c
            end,
            '' order by x.n)
        from string_to_table(u.{column:I}, null) with ordinality x (c, n) where g.n > 0
    )$sql$
]
from (values ('text', '{text,varchar}'::regtype[]), ('bpchar', '{bpchar}')) t (name, stored);

-- without its padding
update bds_impl.types set logged = '({state} ->> {field:L})::bpchar' where name = 'bpchar';

insert into bds_impl.types (name, stored, shown, expected, valid, stand_ins)
select t.name, array[t.name]::regtype[], t.name::regtype, 'a whole number that fits {type}',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} ~ '^ *[+-]?[0-9]+ *$'$sql$,
    bds_impl.beside('0', 'u."@k"::numeric', t.lowest, t.highest) || array[bds_impl.free('generate_series(-1000, 1000)')]
from (values
    ('int2', '-32768', '32767'), ('int4', '-2147483648', '2147483647'), ('int8', '-9223372036854775808', '9223372036854775807')
) t (name, lowest, highest);

insert into bds_impl.types (name, stored, shown, expected, valid, finite, probe, stand_ins) values
(
    'numeric', '{numeric}', 'numeric', 'a number that fits {type}',
    -- with more than 16,383 decimals pg_input_is_valid('1e-16384', 'numeric(19,4)') is true, and the cast raises
    $sql$pg_input_is_valid({given}, {type:L}) and {given} !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid({given}, 'numeric')$sql$,
    $sql${column:I} > '-Infinity'::numeric and {column:I} < 'Infinity'::numeric$sql$,
    '0.01234567890123456789012345678901234567890', 
    bds_impl.beside('0', 'u."@k"')
        || array[bds_impl.free('generate_series(-1000, 1000)'), bds_impl.free('generate_series(-1.0, 1.0, 0.01)')]
),
(
    'float8', '{float8}', 'float8', 'a number',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} !~ '[a-df-zA-DF-Z_]'$sql$,
    $sql${column:I} > '-Infinity'::float8 and {column:I} < 'Infinity'::float8$sql$,
    null, array['g.n * random() * 1e6', 'random() - 0.5']
),
(
    'date', '{date}', 'date', 'a date such as 2026-11-20',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z+-]*)?$'$sql$,
    $sql${column:I} >= '0001-01-01'::date and {column:I} <= '9999-12-31'::date$sql$,
    null, 
    bds_impl.beside($sql$date '2000-01-01'$sql$, 'u."@k"::int') || array[$sql$date '2000-01-01' + (g.n * random() * 1000)::int$sql$]
),
(
    'time', '{time}', 'time', 'a time such as 08:15:30',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} ~ '^[0-9]{2}:[0-9:.]*$'$sql$,
    null, '00:00:00.654321', array[$sql$time '00:00' + random() * g.n * interval '1 hour'$sql$]
),
(
    'timestamptz', '{timestamptz}', 'timestamptz', 'a timestamp such as 2026-11-20T08:15:30Z',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.Z +-]*)?$'$sql$,
    $sql${column:I} >= '0001-01-01 00:00:00+00'::timestamptz and {column:I} < '10000-01-01 00:00:00+00'::timestamptz$sql$,
    '2000-01-01 00:00:00.654321+00',
    bds_impl.beside($sql$timestamptz '2000-01-01'$sql$, $sql$u."@k" * interval '1 second'$sql$)
        || array[$sql$timestamptz '2000-01-01' + g.n * random() * interval '100 days'$sql$]
);

insert into bds_impl.types (name, stored, shown, through, expected, valid, finite, stand_ins) values (
    -- The double with the digits that identify a real, so that 0.1 equals 0.1.  The function costs seven times as much as the cast,
    -- which a session with fewer digits cannot use.
    'float4', '{float4}', 'float8',
    $sql$case when current_setting('extra_float_digits')::int > 0 then {value}::text::{shown} else past.double_of({value}) end$sql$,
    'a number that fits {type}',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} !~ '[a-df-zA-DF-Z_]'$sql$,
    $sql${column:I} > '-Infinity'::float4 and {column:I} < 'Infinity'::float4$sql$,
    array['g.n * random() * 1e6', 'random() - 0.5']
);

-- What is read first is checked as text again: the type may be a domain with rules of its own.  A sign before P is OData's, and
-- means each part: to negate the value instead would raise where a part is the least that PostgreSQL has.
insert into bds_impl.types (name, stored, shown, expected, valid, value, finite, probe, stand_ins)
select 'interval', '{interval}'::regtype[], 'interval'::regtype, 'a duration such as P1DT2H30M',
    replace(
        $sql$case when {given} ~ '^-?P([-+]?[0-9]{1,10}[YMWD])*(T([-+]?[0-9]{1,10}(\.[0-9]{1,12})?[HMS])+)?$'
            and pg_input_is_valid({signed}, 'interval')
            then pg_input_is_valid({signed}::interval::text, {type:L}) else false end$sql$,
        '{signed}', r.signed
    ),
    r.signed || '::interval::{type}', $sql${column:I} > '-infinity'::interval and {column:I} < 'infinity'::interval$sql$,
    '1 month 1 day 01:01:01.654321', 
    bds_impl.beside($sql$interval '0'$sql$, $sql$u."@k" * interval '1 second'$sql$)
        || array[$sql$g.n * random() * interval '100 days'$sql$]
from (values (
    $sql$(case when {given} ^@ '-'
        then replace(regexp_replace(replace(ltrim({given}, '-'), '-', '~'), '([A-Z])[+]?([0-9])', E'\\1-\\2', 'g'), '~', '')
        else {given} end)$sql$
)) r (signed);

insert into bds_impl.types (name, stored, shown, expected, valid, value, stand_ins)
select 'bytea', '{bytea}'::regtype[], 'bytea'::regtype, 'base64',
    replace(
        $sql$case when {given} ~ '^([A-Za-z0-9+/_-]{4})*([A-Za-z0-9+/_-]{2}(==)?|[A-Za-z0-9+/_-]{3}=?)?$'
            then pg_input_is_valid({value}::text, {type:L}) else false end$sql$,
        '{value}', r.value
    ),
    r.value || '::{type}', array[$sql$sha256(convert_to(random()::text || u.id || g.n, 'UTF8'))$sql$]
from (values (  -- base64url, too, and without the signs at the end
    $sql$decode(rpad(translate({given}, '-_', '+/'), (length({given}) + 3) / 4 * 4, '='), 'base64')$sql$
)) r (value);

insert into bds_impl.types (name, stored, shown, expected, valid, logged, finite, stand_ins) values (
    'jsonb', '{jsonb}', 'text', 'JSON other than null',
    $sql$pg_input_is_valid({given}, {type:L}) and {given} !~ '^\s*null\s*$'$sql$,
    -- a text is in quotes
    $sql$nullif({state} -> {field:L}, 'null')$sql$,
    -- in JSON it could not be told from the null of SQL
    $sql${column:I} <> 'null'::jsonb$sql$,
    array['to_jsonb(md5(random()::text || u.id || g.n))']
);

insert into bds_impl.types (name, stored, shown, expected, stand_ins) values
('bool', '{bool}', 'bool', 'true or false', array[bds_impl.free('unnest(array[false, true])')]),
('uuid', '{uuid}', 'uuid', 'a UUID', '{gen_random_uuid()}'),
('enum', '{anyenum}', 'text', 'one of {allowed}', array[bds_impl.free('unnest({allowed:L}::text[])', '::text')]);

update bds_impl.types set is_exact = false where name in ('numeric', 'float4', 'float8', 'interval', 'jsonb');
