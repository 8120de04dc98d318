-- What templates can use of a column.  Here are the values of products.price, VALID standing for the text of `valid`; s is the
-- staged row, t the stored one, d the one that differs, m what the row is matched with, l a lookup, x a line that is compared.
--
--     name         price, category                   in documents; field, column: price, categoryId in the API, category_id in SQL
--     type         numeric(19,4)
--     n, flag      5, 16                             its number, and its bit in a mask of columns
--     unique       false                             a kind of lookup; key: key_price, the value that is known before it is stored
--     is_parent    false                             the reference to the parent
--     is_fixed     false                             generated always as identity: only a new row gets a value
--     given        s.price                           the staged text; null if it is not given, e'\x01' if it is null
--     valid        pg_input_is_valid(s.price, ...)   the text is a value of the type; sound: or nothing has to be read
--     expected     a number that fits numeric(19,4)  in errors
--     value        case when VALID then s.price::numeric(19,4) end
--     named        the same of l.value               the value that a lookup names
--     own          the same as value                 of a unique field; of a reference the id that its lookup has found
--     cleared      (null)::numeric(19,4)             what null makes of it: the default of a column that is required
--     is_constant  true                              cleared is the same at any time
--     is_fallible  false                             it may raise an error
--     gives        'price' = any ($2)                some record has it
--     stored       t.price                           of an enum t.mood::text, as temporary tables have it; found: "by_price".price
--     written      case when s.price is null then t.price when s.price = e'\x01' then null else ... end    what is to be stored
--     is_stored    {written} is not distinct from {stored}; is_changed: of v.price and v."stored price";
--                                                    is_listed: of i."=price" and r.price
--     mass         the same                          of a mass update, where a new row has no default
--     linked       the same                          of a row without unique fields, which is compared as a whole
--     typed        d.price                           with the type of the table's column
--     to_write     d.price                           in the statement that writes; null for a reference that is written later
--     missing      (s.price = e'\x01' or m.is_new and m.operation <> 'update' and s.price is null)         a required one is
--     hash         hash_numeric_extended             the function of (value, seed)
--     tells, says  false, x."=price" is not null     whether it distinguishes lines; whether its value does
--     was          (r.known ->> 'price')::numeric    the value in that record of the log; left, waited: of r.left_as, w.waiting
--     is_altered   false                             the log may have values that the type lacks; fits: that of r.known is one
--     kept         t.price                           without a stored row the default
--
-- A reference, such as products.category, has also
--
--     ref          products_category                 part of names; kinds, known: {id,code}, id:..., code:... for errors
--     target       categories                        target_table: data.categories; lookup_kinds: how each kind of lookup is read
--     kind_of      bds_feed.lookup_kind(r.lookup)    the kind of a lookup r.lookup

create function bds_feed.present(c bds.import_columns, of_row text)
    returns text
    language sql
    stable
    return format('%s.%I', of_row, (c).column_name) || case (c).type when 'enum' then '::text' else '' end;
comment on function bds_feed.present(bds.import_columns, text) is
    'SQL for the value of a column in a row of the entity''s table, with the type that temporary tables have';

create function bds_feed.differs(c bds.import_columns, value text)
    returns text
    language sql
    stable
    -- 0 and -0 are one number to the log
    return format(
        case
            when (c).type in ('interval', 'jsonb', 'numeric') then 'record_image_ne(row(%1$s::%3$s), row((%2$s)::%3$s))'
            else '%1$s is distinct from %2$s'
        end,
        bds_feed.present(c, 't'), value, (c).base_type
    );
comment on function bds_feed.differs(bds.import_columns, text) is
    'SQL for whether the stored value of a column is another one than an undo brings back: values that PostgreSQL calls equal may '
    'read differently';

create function bds_feed.compared(c bds.import_columns, one text, operator text, other text)
    returns text
    language sql
    stable
    return case
        when (c).type <> 'interval' then concat_ws(' ', one, operator, other)
        else format(
            'record_image_%s(row((%s)::interval), row((%s)::interval))',
            case operator when 'is distinct from' then 'ne' when 'is not distinct from' then 'eq' end, one, other
        )
    end;
comment on function bds_feed.compared(bds.import_columns, text, text, text) is
    'SQL for whether a value that an import brings is distinct from the stored one, or not: a month is not 30 days, to which it is '
    'equal';

create function bds_feed.typed(c bds.import_columns)
    returns text
    language sql
    stable
    return format('d.%I', (c).column_name) || case (c).type when 'enum' then '::' || (c).sql_type else '' end;
comment on function bds_feed.typed(bds.import_columns) is
    'SQL for the value of a column in a row d of a temporary table, with the type of the entity''s table';

create function bds_feed.default_of(c bds.import_columns)
    returns text
    language sql
    stable
    return case when (c).type = 'enum' then '(' || (c).default_expression || ')::text' else (c).default_expression end;
comment on function bds_feed.default_of(bds.import_columns) is
    'SQL for the default of a column, with the type that temporary tables have; null if there is none';

create function bds_feed.read_value(
    c bds.import_columns, out given text, out valid text, out value text, out read text, out cleared text, out named text,
    out expected text
)
    language plpgsql
    stable
    strict
as $$
declare
    -- only text of any length needs neither a check nor a cast
    plain boolean := c.sql_type = 'text';
    type  bds_impl.types;
    text  text;
begin
    select t.* into strict type from bds_impl.types t where t.name = c.type;
    given := format('s."%s"', c.name);  -- quoted: begin is a keyword of PL/pgSQL
    text := case when type.shown = 'text'::regtype then format('bds_feed.staged_text(%s)', given) else given end;
    valid := bds_impl.fill(type.valid, 'given', text, 'type', c.sql_type);
    value := case when plain then text else bds_impl.fill(type.value, 'given', text, 'type', c.base_type) end;
    -- checking takes half of the time: if $3, all texts are known to be valid
    read := case when plain then value else format('case when $3 or %s then %s end', valid, value) end;
    value := case when plain then value else format('case when %s then %s end', valid, value) end;
    cleared := case when c.required then coalesce(bds_feed.default_of(c), 'null') else 'null' end;
    named := case when plain then 'l.value' else format(
        'case when %s then %s end', bds_impl.fill(type.valid, 'given', 'l.value', 'type', c.sql_type),
        bds_impl.fill(type.value, 'given', 'l.value', 'type', c.base_type)
    ) end;
    expected := replace(replace(type.expected, '{type}', case when c.sql_type = c.base_type then c.sql_type
        else format('%s and the rules of %s', c.base_type, c.sql_type) end), '{allowed}', coalesce(
        (select array_to_string(f.allowed, ', ') from bds.fields f where f.entity = c.entity and f.column_name = c.column_name), ''
    ));
end
$$;
comment on function bds_feed.read_value(bds.import_columns) is
    'SQL for the text of a column in a staged row s: the text, whether it is valid, its value or null if it is not, the same with '
    '$3 true if all are valid, and what null makes of it; the value in a lookup l of this column; what an error expects';

create function bds_feed.written_value(c bds.import_columns, otherwise text, key text)
    returns text
    language sql
    stable
as $$
    select case
        when c.target is not null then
            bds_impl.fill(
                $sql$case when {given} is null then {otherwise} when {given} <> e'\x01' then {ref:I}.id end$sql$,
                'given', r.given, 'ref', 'ref_' || c.name,
                -- a record's own lookup may name it
                'otherwise', case when c.is_unique then format('coalesce(%s, %s)', key, otherwise) else otherwise end
            )
        when c.is_unique then
            bds_impl.fill(
                $sql$case
                    when {key} is not null then {key}
                    when {given} is null then {otherwise}
                    when {given} = e'\x01' then {cleared}
                    else {read}
                end$sql$,
                'key', key, 'given', r.given, 'otherwise', otherwise, 'cleared', r.cleared, 'read', r.read
            )
        else bds_impl.fill(
            $sql$case when {given} is null then {otherwise} when {given} = e'\x01' then {cleared} else {read} end$sql$,
            'given', r.given, 'otherwise', otherwise, 'cleared', r.cleared, 'read', r.read
        )
    end
    from bds_feed.read_value(c) r;
$$;
comment on function bds_feed.written_value(bds.import_columns, text, text) is
    'SQL for the value of a column in a staged row s; otherwise: the value if the row has none; key: the unique value if it is '
    'known';

create function bds_feed.kind_of(entity_name text, lookup text)
    returns text
    language sql
    stable
as $$
    select coalesce(
        '(select case k.kind ' || string_agg(format('when %L then %L', f.name, f.reference), ' ' order by f.ordinal)
            || format(' else k.kind end from (select bds_feed.lookup_kind(%s)) as k (kind))', lookup),
        format('bds_feed.lookup_kind(%s)', lookup)
    )
    from bds.import_columns c join bds.fields f on f.entity = c.entity and f.column_name = c.column_name
    where c.entity = entity_name and c.is_unique and c.target is not null;
$$;
comment on function bds_feed.kind_of(text, text) is
    'SQL for the kind of a lookup, given as SQL, of an entity: of a unique reference its name, also for the name of its field';

create function bds_feed.target_scope(c bds.import_columns)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        -- part of names, which PostgreSQL cuts at 63 bytes, after a prefix such as lookup_
        'ref', case when octet_length(n.name) <= 45 then n.name else left(n.name, 12) || '_' || md5(n.name) end,
        'target', c.target, 'target_table', e.table_name::text, 'kind_of', bds_feed.kind_of(c.target, 'r.lookup'),
        'own', format(case when c.is_parent then 'coalesce(container.target, %I.id)' else '%I.id' end, 'own_' || c.name),
        'kinds', (e.kinds)::text, 'known', array_to_string(e.kinds, ':..., ') || ':...', 'lookup_kinds', (
            select jsonb_agg(jsonb_build_object(
                'kind', k.kind, 'holds', case when u.name is null then '"old_id".id'
                    else bds_feed.present(u, format('"old_%s"', u.name)) end,
                'named', case when u.name is null then 'bds_feed.lookup_id(l.lookup)' else r.named end,
                'is_key', u.name is not null) order by k.n)
            from unnest(e.kinds) with ordinality as k (kind, n)
            left join bds.import_columns u on u.entity = c.target and u.name = k.kind
            left join lateral bds_feed.read_value(u) r on true
        )
    )
    from bds_feed.entities e cross join (select c.entity || '_' || c.name) as n (name) where e.name = c.target;
$$;
comment on function bds_feed.target_scope(bds.import_columns) is 'The holes of templates for a reference';

create function bds_feed.hash_value(value anyelement, seed bigint)
    returns bigint
    language sql
    immutable
as $$
    select case when value is not null then hash_record_extended(row(value), seed) end;
$$;
comment on function bds_feed.hash_value(anyelement, bigint) is 'A hash of a value of any type; null of null';

create function bds_feed.hash_of(sql_type text)
    returns text
    language sql
    stable
    -- the type's own function takes a third of the time of bds_feed.hash_value
    return coalesce((
        select p.amproc::regproc::text
        from pg_opclass o
        join pg_am a on a.oid = o.opcmethod and a.amname = 'hash'
        join pg_amproc p on p.amprocfamily = o.opcfamily and p.amproclefttype = o.opcintype and p.amprocnum = 2
        join pg_proc f on f.oid = p.amproc and f.proargtypes[0] = o.opcintype
        where o.opcdefault and o.opcintype = sql_type::regtype
    ), 'bds_feed.hash_value');
comment on function bds_feed.hash_of(text) is 'The function of (value, seed) that hashes values of a type';

create function bds_feed.logged_scope(c bds.import_columns)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_object_agg(s.name, bds_impl.fill(
            case
                when a.is_altered then 'case when pg_input_is_valid(({text})::text, {type:L}) then ({text})::{type} end'
                else '({text})::{type}'
            end,
            'text', bds_impl.fill(t.logged, 'state', s.state, 'field', f.name), 'type', c.sql_type
        ) || case c.type when 'enum' then '::text' else '' end) || jsonb_build_object(
            'is_altered', a.is_altered,
            'fits', bds_impl.fill(
                'pg_input_is_valid(({text})::text, {type:L})', 'text', bds_impl.fill(t.logged, 'state', 'r.known', 'field', f.name),
                'type', c.sql_type
            ),
            'kept', case when c.default_expression is null then bds_feed.present(c, 't')
                else format('case when t.id is null then %s else %s end', bds_feed.default_of(c), bds_feed.present(c, 't')) end
        )
    from bds.fields f
    join bds_impl.types t on t.name = f.stored
    cross join lateral (
        -- the log may have values of an earlier type; and an enum or a domain may take other values than it did
        select c.sql_type <> c.base_type or exists (
            select from bds.column_history h where h.entity = c.entity and h.ordinal = c.ordinal and h.until < 'infinity'
        ) as is_altered
    ) a
    cross join (values ('was', 'r.known'), ('left', 'r.left_as'), ('waited', 'w.waiting')) as s (name, state)
    where f.entity = c.entity and f.column_name = c.column_name
    group by f.name, t.logged, a.is_altered;
$$;
comment on function bds_feed.logged_scope(bds.import_columns) is 'The holes of templates for a column''s values in the log';

create function bds_feed.undo_scope(c bds.import_columns)
    returns jsonb
    language sql
    stable
as $$
    select l.scope || jsonb_build_object(
        'v_differs', bds_feed.differs(c, format('v.%I', c.column_name)),
        'd_differs', bds_feed.differs(c, format('d.%I', c.column_name)), 'left_differs', bds_feed.differs(c, l.scope ->> 'left')
    )
    from bds_feed.logged_scope(c) l (scope);
$$;
comment on function bds_feed.undo_scope(bds.import_columns) is 'The holes of templates for a column''s values in an undo';

create function bds_feed.compared_scope(c bds.import_columns, stored text, written text)
    returns jsonb
    language sql
    stable
    return jsonb_build_object(
        'is_stored', bds_feed.compared(c, written, 'is not distinct from', stored),
        'is_changed', bds_feed.compared(
            c, format('v.%I', (c).column_name), 'is distinct from', format('v.%I', 'stored ' || (c).column_name)),
        'is_listed', bds_feed.compared(
            c, format('i.%I', '=' || (c).column_name), 'is not distinct from', bds_feed.present(c, 'r'))
    );
comment on function bds_feed.compared_scope(bds.import_columns, text, text) is
    'The holes of templates for whether a column changes';

create function bds_feed.default_scope(c bds.import_columns, this bds_feed.entities)
    returns jsonb
    language sql
    stable
    return jsonb_build_object('required', (c).required, 'default', bds_feed.default_of(c), 'is_fixed', (
        select a.attidentity = 'a' from pg_attribute a where a.attrelid = (this).table_name and a.attname = (c).column_name),
        -- a literal raises no error
        'is_fallible', (c).required and (c).default_expression !~ '^([0-9.]+|true|false|''[^'']*''::[a-z ]+)$');
comment on function bds_feed.default_scope(bds.import_columns, bds_feed.entities) is
    'The holes of templates for what a row gets without a value';

create function bds_feed.column_scope(c bds.import_columns, n bigint, this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        'name', c.name, 'field', (select f.name from bds.fields f where f.entity = c.entity and f.column_name = c.column_name),
        'column', c.column_name, 'type', c.base_type, 'n', n, 'flag', 1::bigint << (least(n, 63) - 1)::int,
        'key', 'key_' || c.name, 'unique', c.is_unique, 'is_parent', c.is_parent, 'expected', r.expected,
        'given', r.given, 'valid', r.valid, 'value', r.value, 'named', r.named, 'own', r.value,
        'cleared', format('(%s)::%s', r.cleared, c.base_type), 'typed', bds_feed.typed(c),
        'sound', bds_impl.fill($sql$({given} is null or {given} = e'\x01' or {valid})$sql$, 'given', r.given, 'valid', r.valid),
        'is_constant', r.cleared !~ '[[:alnum:]_][(]',  -- a function may return another value at another time
        -- a nested record has a parent without naming it
        'gives', case
            when c.is_parent then 'true'
            else format('%L = any ($2)', c.name) || case when c.is_unique then ' or ''@id'' = any ($2)' else '' end
        end,
        'stored', s.stored, 'found', bds_feed.present(c, format('"by_%s"', c.name)),
        'mass', bds_feed.written_value(c, s.stored, 'null::' || c.base_type), 'written', s.written,
        'linked', case
            when c.target is not null then format('%I.id', 'ref_' || c.name)
            else format($sql$case when %s = e'\x01' then (%s)::%s else %s end$sql$, r.given, r.cleared, c.base_type, r.read)
        end,
        'hash', bds_feed.hash_of(c.base_type),
        -- a product, or a text that is not empty, distinguishes lines
        'tells', c.name = 'product' or k.is_text,
        'says', format(case when k.is_text then $sql$x.%I::text <> ''$sql$ else 'x.%I is not null' end, '=' || c.column_name),
        'missing', bds_impl.fill(
            $sql$({given} = e'\x01' or m.is_new and m.operation <> 'update' and {given} is null{no_key}{no_parent})$sql$,
            'given', r.given,
            'no_key', case when c.is_unique then format(' and m.%I is null', 'key_' || c.name) else '' end,
            'no_parent', case when c.is_parent then ' and s."@parent" is null' else '' end
        ),
        -- In a circle of entities the other row may be written later: such a reference is null at first, and written again.
        'to_write', case when c.target = any (this.waits) and not c.required then
            bds_impl.fill(
                $sql$case
                    when {target:L} = any ($4) and {value} in (select w.target from pg_temp.{map:I} w where w.is_new) then null
                    else {value}
                end$sql$,
                'target', c.target, 'value', d.value, 'map', 'map_' || c.target
            ) else bds_feed.typed(c) end
    ) || bds_feed.compared_scope(c, s.stored, s.written) || coalesce(bds_feed.target_scope(c), '{}') || bds_feed.undo_scope(c)
        || bds_feed.default_scope(c, this)
    from bds_feed.read_value(c) r
    cross join lateral (
        select t.typcategory = 'S' and c.type <> 'enum' from pg_type t where t.oid = c.base_type::regtype
    ) as k (is_text)
    cross join lateral (select bds_feed.present(c, 't')) as t (stored)
    cross join lateral (select format('d.%I', c.column_name)) as d (value)
    cross join lateral (
        select t.stored, format(case when c.is_parent then 'coalesce(p.target, %s)' else '%s' end, bds_feed.written_value(
            c,
            case when c.default_expression is null then t.stored
                else format('case when m.is_new then %s else %s end', bds_feed.default_of(c), t.stored) end,
            format('m.%I', 'key_' || c.name)
        ))
    ) as s (stored, written);
$$;
comment on function bds_feed.column_scope(bds.import_columns, bigint, bds_feed.entities) is
    'The holes of templates for a column; n numbers those of the entity';
