-- Unforeseen errors: a rule of a table that no check covers (a trigger that raises, an exclusion constraint) refuses a whole
-- statement.  The refused records are found by writing ranges under savepoints: a refused range is halved, the one after a written
-- range is twice as long, so that each row is tried a few times, however many are refused.

create function bds_feed.is_fault_of_rows(import bds.imports, state text)
    returns boolean
    language sql
    immutable
as $$
    -- cardinality, data exceptions, integrity violations, triggered data changes, with check option, limits (a key too long for its
    -- index), errors raised by triggers; no lack of space, lock or cancel.
    -- In a small import the row that is too long may be one of its own tables: it is done as a large one.
    select left(state, 2) in ('21', '22', '23', '27', '44', '54', 'P0') and state <> 'P0004'
        and not (state = '54000' and coalesce(import.is_small, false));
$$;
comment on function bds_feed.is_fault_of_rows(bds.imports, text) is
    'Whether an error may be that of the rows that were written';

create function bds_feed.refusal(problem jsonb, is_delete boolean)
    returns jsonb
    language sql
    immutable
    -- a message of the database may quote other rows, so none is shown
    return jsonb_build_object(
        'code', case problem ->> 'state'
            when '23505' then 'already_exists'
            when '23503' then case when is_delete then 'in_use' else 'lookup_not_found' end
            when '23001' then 'in_use'  -- a key with on delete restrict
            when '23502' then 'required'
            else 'invalid_value'
        end,
        'message', case
            when problem ->> 'rule' <> '' then format('the rule %s refuses it', problem ->> 'rule')
            else format('the database refused the record (%s)', problem ->> 'state')
        end
    );
comment on function bds_feed.refusal(jsonb, boolean) is 'Code and message of an error for what write_in_ranges has found';

create function bds_feed.refused_write(entity_name text, problem jsonb)
    returns jsonb
    language sql
    stable
as $$
    select bds_feed.refusal(problem, false) || coalesce((
        select jsonb_build_object('field', c.name, 'message', c.name || ' is required')
        from bds.import_columns c
        join bds.entities e on e.name = c.entity join pg_class t on t.oid = e.table_name
        where problem ->> 'state' = '23502' and c.entity = entity_name and c.column_name = problem ->> 'column'
            and t.relname = problem ->> 'table'  -- else it is of a table that a trigger writes
    ), (
        select jsonb_build_object(
            'field', (
                select min(f.name) from bds.fields f join pg_attribute a on a.attname = f.column_name
                where f.entity = entity_name and a.attrelid = k.conrelid and k.conkey = array[a.attnum]),
            'message', format('it breaks the rule %s', k.conname))
        from pg_constraint k join bds.entities e on e.table_name = k.conrelid
        where problem ->> 'state' = '23514' and e.name = entity_name and k.contype = 'c' and k.conname = problem ->> 'rule'
    ), '{}');
$$;
comment on function bds_feed.refused_write(text, jsonb) is
    'Code and message of an error for what write_in_ranges has found, as the checks before the writing have them';

create function bds_feed.is_completed(table_name regclass)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_trigger t
        where t.tgrelid = table_name and not t.tgisinternal and t.tgname !~ '^~?bds_' and t.tgenabled in ('O', 'A')
            and t.tgtype & 3 = 3 and t.tgtype & 20 > 0  -- before insert or update, for each row
    );
comment on function bds_feed.is_completed(regclass) is
    'Whether triggers of the owner may set values of a row before the rules of its table are checked: then no check foresees what '
    'the database refuses';

create function bds_feed.write_in_ranges(
    import bds.imports, statements text[], keys bigint[], singly boolean default false
)
    returns jsonb[]
    language plpgsql
as $$
declare
    total     int := coalesce(cardinality(keys), 0);
    first     int := 1;
    next      int := total;  -- how many to try
    within    int;           -- so many that follow contain one that is refused
    last      int;
    statement text;
    rule      text;
    column_of text;
    table_of  text;
    known     text;  -- errors that a statement has found itself
    problems  jsonb[] := '{}';
begin
    while first <= total loop
        last := least(
            first + case when within is null then next when singly then 1 else greatest(within / 2, 1) end, total + 1
        ) - 1;
        begin
            foreach statement in array statements loop
                execute statement using import.company_id, keys[first], keys[last];
            end loop;
            within := nullif(within - (last - first + 1), 0);
            next := case when singly then 1 else 2 * (last - first + 1) end;
            first := last + 1;
        exception when others then
            if sqlstate <> 'BDF01' and not bds_feed.is_fault_of_rows(import, sqlstate) then
                raise;
            elsif last > first then
                within := last - first + 1;
            else
                get stacked diagnostics
                    rule = constraint_name, column_of = column_name, table_of = table_name, known = pg_exception_detail;
                problems := problems || jsonb_build_object(
                    'key', keys[first], 'state', sqlstate, 'rule', rule, 'column', column_of, 'table', table_of,
                    'known', case when sqlstate = 'BDF01' then known::jsonb end
                );
                within := null;
                next := 1;
                first := first + 1;
            end if;
        end;
    end loop;
    return problems;
end
$$;
comment on function bds_feed.write_in_ranges(bds.imports, text[], bigint[], boolean) is
    'Runs statements for as many keys as possible, in their order; $1 is the company, $2 and $3 the first and last key of a range. '
    'Returns {key, state, rule, column, table, known} of those that the database refuses, known being the detail of a BDF01. '
    'singly: if not all can be written at once, they are tried one by one, where a range takes no less time';
