-- Generates the check of an entity's table: after ALTER TABLE, writes are refused until the table is registered again, because its
-- triggers' functions spell out the columns.

create function bds_change_log.refuse_altered(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    dropped record := bds_registry.dropped(this);
    refusal text;
begin
    if not exists (select from pg_class c where c.oid = this.table_name) then
        raise exception using
            errcode = 'BD007',
            message = format('the table of entity %s was dropped', this.name),
            hint = coalesce(dropped.mend, dropped.detail);
    end if;
    refusal := bds_registry.refusal(this);
    raise exception using
        errcode = 'BD007',
        message = format('%s was altered and not registered again', this.table_name),
        hint = coalesce('bds.register refuses it: ' || refusal, bds_registry.register_statement(this));
end
$$;
comment on function bds_change_log.refuse_altered(bds.entities) is
    'Raises BD007 with the statement that registers the entity again or, of a table that was dropped, unregisters it';

create function bds_change_log.is_altered(this bds.entities)
    returns boolean
    language sql
    stable
as $$
    select bds_registry.is_rewritten(this) or exists (
        select from (select * from bds.column_history h where h.entity = this.name and h.until = 'infinity') h
        full join bds_registry.columns_of(this.table_name) a on a.attnum = h.ordinal
        where (h.column_name, h.type, h.expression) is distinct from (a.attname, a.type, a.expression)
    );
$$;
comment on function bds_change_log.is_altered(bds.entities) is
    'Whether the columns of the entity''s table are not those that were registered, in the transaction''s snapshot';

create function bds_change_log.exact(type text, value text)
    returns text
    language sql
    immutable
    return case
        when type in ('float4', 'float8') then format(
            'case when current_setting(''extra_float_digits'')::int > 0 then to_json(%1$s) else past.json_of(%2$s) end',
            value, case type when 'float4' then format('past.double_of(%s)', value) else value end
        )
        else value
    end;
comment on function bds_change_log.exact(text, text) is
    'The expression of a value of a type (bds_impl.types) as it becomes a member of JSON: with all its digits, whatever the '
    'session has set';

create function bds_change_log.row_members(this bds.entities, of_row text)
    returns text
    language plpgsql
    stable
as $$
declare
    members text;
    lacks   boolean;
begin
    -- A column is known by its number, which a rename keeps.  In a table that was restored and not fitted to yet, numbers differ
    -- and names are in the same order.
    select string_agg(
            format('%L : %s', f.name, bds_change_log.exact(f.stored, format('%s.%s', of_row, quote_ident(a.attname)))),
            ', ' order by f.ordinal
        ),
        bool_or(a.attname is null)
    into members, lacks
    from bds.fields f
    left join pg_attribute a on a.attrelid = this.table_name and a.attnum = f.ordinal and not a.attisdropped
    where f.entity = this.name;
    if not lacks then
        return members;
    elsif array(
        select h.column_name from bds.column_history h where h.entity = this.name and h.until = 'infinity' order by h.ordinal
    ) <> array(select c.attname from bds_registry.columns_of(this.table_name) c order by c.attnum) then
        perform bds_change_log.refuse_altered(this);
    end if;
    return (
        select string_agg(
            format('%L : %s', f.name, bds_change_log.exact(f.stored, format('%s.%I', of_row, f.column_name))),
            ', ' order by f.ordinal
        )
        from bds.fields f where f.entity = this.name
    );
end
$$;
comment on function bds_change_log.row_members(bds.entities, text) is
    'The members of a JSON object of a row: its fields, under their API names. Raises BD007 if a column was dropped';

create function bds_change_log.require_unaltered(entity_name text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('select bds_log.%I()', bds_registry.function_of(entity_name, 'check'));
end
$$;
comment on function bds_change_log.require_unaltered(text) is
    'Raises BD007 with the statement that registers the entity again, if its table was altered since it was registered';

create function bds_change_log.probe_of(type text)
    returns text
    language sql
    stable
as $$
    select p.probe
    from bds_impl.types t
    cross join lateral (
        select case
            when t.shown = 'text'::regtype then repeat(t.probe, substring(type from '[(]([0-9]{1,3})[)]')::int)
            else t.probe
        end
    ) p (probe)
    where to_regtype(type)::regtype = any (t.stored) and pg_input_is_valid(p.probe, type);
$$;
comment on function bds_change_log.probe_of(text) is
    'A value that a column of a type stores, rounds or rejects, depending on its length or scale; null if the type has neither';

-- The check costs a statement nothing: it is declared immutable, so the planner calls it once for each plan of a log function, and
-- ALTER TABLE discards these plans.  It must not query the system catalogs, where a transaction sees the columns of its snapshot: a
-- row made of nulls and probes has the current columns.
create function bds_change_log.make_check_function(this bds.entities)
    returns void
    language plpgsql
    set timezone = 'UTC'
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
declare
    columns  bds.column_history[];
    expected text;
begin
    select array_agg(h order by h.ordinal) into columns
    from bds.column_history h
    where h.entity = this.name and h.until = 'infinity';
    execute (
        select format('select row_to_json(r.*)::text from (select %s) r', string_agg(
            case
                when p.probe is null then format('null as %I', c.column_name)
                else format('%L::%s as %I', p.probe, c.type, c.column_name)
            end,
            ', ' order by c.ordinal
        ))
        from unnest(columns) c cross join bds_change_log.probe_of(c.type) as p (probe)
    ) into expected;
    perform bds_registry.run(bds_impl.fill(
        $body$
create or replace function bds_log.{function:I}() returns boolean language plpgsql immutable
set timezone = 'UTC'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
as $function$
declare
    this  bds.entities := (select e from bds.entities e where e.name = {entity:L});
    nulls text := format('(select t.* from (select) s left join %s t on false) n', this.table_name);
    found text;
    types regtype[];
begin
    execute format('select row_to_json(jsonb_populate_record(n.*, %L))::text from %s', {probes:L}, nulls) into found;
    if found = {expected:L} then
        execute format('select array[%s] from %s', {typed:L}, nulls) into types;
    end if;
    if types = {types:L}::regtype[] and not bds_registry.is_rewritten(this) then
        return true;
    end if;
    perform bds_change_log.refuse_altered(this);
-- a column rejects its probe; the table was dropped: then its name is a number; a type or its schema has another name by now
exception
    when data_exception or integrity_constraint_violation or syntax_error or undefined_object or invalid_schema_name then
        perform bds_change_log.refuse_altered(this);
end
$function$;
revoke all on function bds_log.{function:I}() from public;
alter function bds_log.{function:I}() owner to bds_owner;
        $body$,
        'function', bds_registry.function_of(this.name, 'check'),
        'entity', this.name,
        'probes', (
            select coalesce(jsonb_object_agg(c.column_name, p.probe) filter (where p.probe is not null), '{}')::text
            from unnest(columns) c cross join bds_change_log.probe_of(c.type) as p (probe)
        ),
        'expected', expected,
        'typed', (select string_agg(format('pg_typeof(n.%I)', c.column_name), ', ' order by c.ordinal) from unnest(columns) c),
        'types', (select array_agg(c.type order by c.ordinal)::text from unnest(columns) c)
    ));
end
$$;
comment on function bds_change_log.make_check_function(bds.entities) is
    'Creates the function that raises BD007 if the entity''s table is not as it was registered';
