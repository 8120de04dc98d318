-- Imports, the unforeseen: a rule of a table that no check knows (a trigger that raises, an exclusion constraint) refuses a whole
-- statement.  Which records it refuses is found by trying ranges of them under savepoints: what was refused is halved, what was taken
-- doubles, so that each row is tried a few times, however many are refused.

create or replace function bds.is_fault_of_rows(state text)
    returns boolean
    language sql
    immutable
    -- cardinality, data exceptions, integrity violations, triggered data changes, with check option, limits (a key too long for its
    -- index), what triggers raise; neither lack of space nor a lock nor a cancel
    return left(state, 2) in ('21', '22', '23', '27', '44', '54', 'P0') and state <> 'P0004';
comment on function bds.is_fault_of_rows(text) is 'Whether an error may be that of the rows that were written';

create or replace function bds.refusal(problem jsonb, is_delete boolean)
    returns jsonb
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    -- what the database says may quote other rows: nobody is told
    return jsonb_build_object(
        'code', case problem ->> 'state'
            when '23505' then 'already_exists'
            when '23503' then case when is_delete then 'in_use' else 'lookup_not_found' end
            when '23502' then 'required'
            else 'invalid_value'
        end,
        'message', case
            when problem ->> 'rule' <> '' then format('the rule %s refuses it', problem ->> 'rule')
            else format('the database refuses it (%s)', problem ->> 'state')
        end
    );
comment on function bds.refusal(jsonb, boolean) is 'Code and message of an error for what write_in_ranges has found';

create or replace function bds.write_in_ranges(statements text[], company text, keys bigint[], singly boolean default false)
    returns jsonb[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    total     int := coalesce(cardinality(keys), 0);
    first     int := 1;
    next      int := total;  -- how many to try
    within    int;           -- among so many that follow one is refused for sure
    last      int;
    statement text;
    rule      text;
    known     text;  -- what a statement has found out by itself
    problems  jsonb[] := '{}';
begin
    while first <= total loop
        last := least(first + case when within is null then next when singly then 1 else greatest(within / 2, 1) end, total + 1) - 1;
        begin
            foreach statement in array statements loop
                execute statement using company, keys[first], keys[last];
            end loop;
            within := nullif(within - (last - first + 1), 0);
            next := case when singly then 1 else 2 * (last - first + 1) end;
            first := last + 1;
        exception when others then
            if sqlstate <> 'BDF01' and not bds.is_fault_of_rows(sqlstate) then
                raise;
            elsif last > first then
                within := last - first + 1;
            else
                get stacked diagnostics rule = constraint_name, known = pg_exception_detail;
                problems := problems || jsonb_build_object(
                    'key', keys[first], 'state', sqlstate, 'rule', rule, 'known', case when sqlstate = 'BDF01' then known::jsonb end);
                within := null;
                next := 1;
                first := first + 1;
            end if;
        end;
    end loop;
    return problems;
end
$$;
comment on function bds.write_in_ranges(text[], text, bigint[], boolean) is
    'Runs statements for as many keys as can be, in their order; $1 is the company, $2 and $3 the first and last key of a range.  Returns '
    '{key, state, rule} of those that the database refuses, known being the detail of a BDF01.  Where a range '
    'costs what its keys cost, one by one, they are tried singly if not all go at once';

create or replace function bds.plan_for_ranges()
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    -- of a company that the statistics do not know one row is expected, and then anything seems cheap: only looking each row up by its
    -- key takes no longer for few rows of many
    begin atomic
        select set_config('enable_nestloop', 'on', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('enable_material', 'off', true);
    end;
comment on function bds.plan_for_ranges() is 'Sets the planner for statements that write a few rows of a source, until the end of the transaction or bds.plan_for';

create or replace function bds.range_statement(table_name regclass, source text, action text)
    returns text
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    -- what is not matched is never inserted, but that it might be makes the source the outer side of the join: each row is looked up
    return format(
        'merge into %s t using %s d on t.company_id = (select $1) and t.id = d.id when matched then %s '
        'when not matched and false then insert (company_id, id) values ($1, d.id)',
        table_name, source, action);
comment on function bds.range_statement(regclass, text, text) is
    'The statement that updates or deletes the rows of a source by their key, in time that depends on their number alone; $1 is the company';

create or replace function bds.find_culprits(company text, import_id uuid)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.find_import(company, import_id, 'running');
    problems jsonb;
begin
    begin
        problems := bds.rehearse(company, import);
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    return problems;
end
$$;
comment on function bds.find_culprits(text, uuid) is 'Errors of the records that the database refuses, as bds.add_errors takes them; null if it refuses none of them alone';

create or replace function bds.rehearse(company text, import bds.imports)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordered     text[] := bds.import_order(import.number);
    entity_name text;
    problems    jsonb;
    members     text[];
begin
    -- the steps of bds.import_apply, up to the first that finds any: what others would find may be their consequence
    foreach entity_name in array ordered loop
        problems := bds.rehearse_write(company, entity_name, bds.put_off(entity_name));
        if problems is not null then
            return problems;
        end if;
    end loop;
    foreach entity_name in array ordered loop
        problems := case when bds.put_off(entity_name) <> '{}' then bds.rehearse_write(company, entity_name, '{}') end;
        if problems is not null then
            return problems;
        end if;
    end loop;
    -- these see to their own errors
    perform bds.plan_for(import.number);
    perform bds.import_mass_update(company, import.id, o.name) from unnest(ordered) as o (name);
    for members in select * from bds.family_members() loop
        perform bds.import_delete(company, import.id, members, '{}');
    end loop;
    for entity_name in select o.name from unnest(ordered) with ordinality as o (name, n) order by o.n desc loop
        problems := bds.rehearse_remove(company, import, entity_name);
        if problems is not null then
            return problems;
        end if;
    end loop;
    return null;
end
$$;
comment on function bds.rehearse(text, bds.imports) is 'Writes, as far as can be; returns errors of the records that the database refuses, null if there are none';

create or replace function bds.rehearse_write(company text, entity_name text, put_off jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    diff     text := 'diff_' || entity_name;
    ordinals bigint[];
begin
    execute format('select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d', diff) into ordinals;
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'rehearsal_' || entity_name, diff);
    perform bds.plan_for_ranges();
    return bds.refused(entity_name, bds.write_in_ranges(array[bds.merge_statement(
        entity_name, format('(select * from pg_temp.%I o where o."@ordinal" between $2 and $3)', diff), put_off, true)], company, ordinals));
end
$$;
comment on function bds.rehearse_write(text, text, jsonb) is 'Writes the differences of an entity, as far as can be; returns errors of the others';

create or replace function bds.rehearse_remove(company text, import bds.imports, parent_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child      record;
    statements text[] := '{}';
    ordinals   bigint[];
    problems   jsonb[];
begin
    perform bds.make_gone();
    for child in select * from bds.children_of(parent_name) loop
        perform bds.find_removed(
            company, import.number, parent_name, child.collection, bds.count_whole(import.number, parent_name, child.collection));
        statements := statements || bds.range_statement(
            child.table_name, format('(select g.id from pg_temp.gone_ g where g.entity = %L and g.ticket between $2 and $3)', child.target), 'delete');
    end loop;
    execute 'create index on pg_temp.gone_ (ticket)';
    execute 'select array(select distinct g.ticket from pg_temp.gone_ g order by 1)' into ordinals;
    perform bds.plan_for_ranges();
    problems := bds.write_in_ranges(statements, company, ordinals);
    perform bds.plan_for(import.number);
    drop table pg_temp.gone_, pg_temp.use_;
    return bds.refused(parent_name, problems, true);
end
$$;
comment on function bds.rehearse_remove(text, bds.imports, text) is
    'Removes what arrays no longer contain, as far as can be; returns errors of the parents whose array it is';

create or replace function bds.refused(entity_name text, problems jsonb[], is_delete boolean default false)
    returns jsonb
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    return (
        select jsonb_agg(jsonb_build_object('entity', entity_name, 'ordinal', p -> 'key', 'is_late', false) || bds.refusal(p, is_delete))
        from unnest(problems) as p
    );
comment on function bds.refused(text, jsonb[], boolean) is 'What write_in_ranges has found as errors of records; null if nothing';
