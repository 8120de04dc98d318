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
                get stacked diagnostics rule = constraint_name, known = pg_exception_detail;
                problems := problems || jsonb_build_object(
                    'key', keys[first], 'state', sqlstate, 'rule', rule,
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
    'Returns {key, state, rule, known} of those that the database refuses, known being the detail of a BDF01. singly: if not all '
    'can be written at once, they are tried one by one, where a range takes no less time';
