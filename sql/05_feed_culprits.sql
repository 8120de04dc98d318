-- Imports, the unforeseen: a rule of a table that no check knows (a trigger that raises, an exclusion constraint) refuses a whole
-- statement.  Which records it refuses is found by halving, under savepoints.

create or replace function bds.is_fault_of_rows(state text)
    returns boolean
    language sql
    immutable
    -- cardinality, data exceptions, integrity violations, triggered data changes, with check option, limits (a key too long for its
    -- index), what triggers raise; neither lack of space nor a lock nor a cancel
    return left(state, 2) in ('21', '22', '23', '27', '44', '54', 'P0') and state <> 'P0004';
comment on function bds.is_fault_of_rows(text) is 'Whether an error may be that of the rows that were written';

create or replace function bds.find_culprits(company text, import_id uuid)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.find_import(company, import_id, 'running');
    ordered  text[] := bds.import_order(import.number);
    step     record;
    culprits jsonb := '[]';
begin
    -- the steps of bds.import_apply, up to the first that finds any: what others would find may be their consequence
    begin
        for step in
            select p.kind, o.name
            from unnest(ordered) with ordinality as o (name, n), (values ('write', 1, 1), ('update', 2, 1), ('delete', 3, -1), ('remove', 4, -1)) as p (kind, phase, way)
            order by p.phase, o.n * p.way
        loop
            culprits := bds.write_in_halves(company, import_id, step.kind, step.name, bds.step_ordinals(step.kind, step.name));
            exit when culprits <> '[]';
        end loop;
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    return nullif(culprits, '[]');
end
$$;
comment on function bds.find_culprits(text, uuid) is 'Errors of the records that the database refuses, as bds.add_errors takes them; null if it refuses none of them alone';

create or replace function bds.step_ordinals(kind text, entity_name text)
    returns bigint[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordinals bigint[];
begin
    execute case kind
        when 'write' then format('select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d', 'diff_' || entity_name)
        else format(
            'select array_agg(m.ordinal order by m.ordinal) from pg_temp.%I m where m.phase = %s and not m.failed',
            'map_' || entity_name, case kind when 'update' then 2 when 'delete' then 3 else 1 end)
    end into ordinals;
    return ordinals;
end
$$;
comment on function bds.step_ordinals(text, text) is 'The records that a step of the writing is about';

create or replace function bds.write_in_halves(company text, import_id uuid, kind text, entity_name text, ordinals bigint[])
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    half  int := cardinality(ordinals) / 2;
    rule  text;
    known jsonb;
begin
    if ordinals is null then
        return '[]';
    end if;
    begin
        perform case kind
            when 'write' then bds.merge_diff(company, entity_name, 'diff_' || entity_name, ordinals, bds.put_off(entity_name))
            when 'update' then bds.import_mass_update(company, import_id, entity_name, ordinals)
            when 'delete' then bds.import_delete(company, import_id, entity_name, '{}', ordinals)
            else bds.import_remove(company, import_id, entity_name, '{}', ordinals)
        end;
        return '[]';
    exception when others then
        if sqlstate = 'BDF01' then  -- a step has found out by itself
            get stacked diagnostics known = pg_exception_detail;
            return known;
        elsif not bds.is_fault_of_rows(sqlstate) then
            raise;
        end if;
        get stacked diagnostics rule = constraint_name;
        if half = 0 then
            -- what the database says may quote other rows: nobody is told
            return jsonb_build_array(jsonb_build_object(
                'entity', entity_name, 'ordinal', ordinals[1], 'is_late', false,
                'code', case
                    when sqlstate = '23505' then 'already_exists'
                    when sqlstate = '23503' then case when kind in ('delete', 'remove') then 'in_use' else 'lookup_not_found' end
                    when sqlstate = '23502' then 'required'
                    else 'invalid_value'
                end,
                'message', case when rule <> '' then format('the rule %s refuses it', rule) else format('the database refuses it (%s)', sqlstate) end
            ));
        end if;
    end;
    return bds.write_in_halves(company, import_id, kind, entity_name, ordinals[:half])
        || bds.write_in_halves(company, import_id, kind, entity_name, ordinals[half + 1:]);
end
$$;
comment on function bds.write_in_halves(text, uuid, text, text, bigint[]) is
    'Writes some records, as many as can be; returns errors of those that the database refuses';
