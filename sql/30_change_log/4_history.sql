-- The change log as an audit trail: past states of a row, rebuilt from the row of now and the old values of its changes.

create function bds_change_log.row_now(company text, entity text, id bigint)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    -- the settings with which the log triggers store old values
    set timezone = 'UTC'
    set extra_float_digits = 1
as $$
declare
    statement text;
    state     jsonb;
begin
    perform bds.require_company(company);
    if not exists (select from bds.companies c where c.id = company) then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
    select format(
        'select json_object(%s returning json)::jsonb from %s r where r.company_id = $1 and r.id = $2',
        string_agg(format('%L : r.%I', f.name, f.column_name), ', ' order by f.ordinal), e.table_name
    )
    into statement
    from bds.entities e join bds.fields f on f.entity = e.name
    where e.name = row_now.entity
    group by e.table_name;
    if statement is null then
        raise exception using errcode = 'BD002', message = format('no such entity: %s', coalesce(quote_literal(entity), 'null'));
    end if;
    execute statement into state using company, id;
    return state;
end
$$;
comment on function bds_change_log.row_now(text, text, bigint) is
    'The current row, by API names; null if it does not exist. Raises BD002 if there is no such company or entity';

create function bds_change_log.undo_step(state jsonb, operation bds.operation, undo jsonb)
    returns jsonb
    language sql
    immutable
    return case when operation = 'update' then state || undo else undo end;
comment on function bds_change_log.undo_step(jsonb, bds.operation, jsonb) is
    'The row before a change, computed from the row after it: the step of bds_change_log.undo';

create aggregate bds_change_log.undo(bds.operation, jsonb) (sfunc = bds_change_log.undo_step, stype = jsonb);
comment on aggregate bds_change_log.undo(bds.operation, jsonb) is
    'The row before the oldest of these steps of bds_change_log.undo_steps, which come newest first; null if it did not exist';

create function bds_change_log.undo_steps(company text, entity text, id bigint, version bigint)
    returns table (change bds.change_log, operation bds.operation, undo jsonb)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    -- the settings with which the log triggers store old values
    set timezone = 'UTC'
    set extra_float_digits = 1
as $$
    -- undoing begins at the row of now, in a step without a change
    select null::bds.change_log, null, bds_change_log.row_now(company, entity, id)
    union all
    select l, l.operation,
        case l.operation when 'update' then l.old || jsonb_build_object('updatedAt', l.last_updated_at) else l.old end
    from bds.change_log l
    where l.row_id = undo_steps.id and l.company_id = company and l.entity = undo_steps.entity and l.id > version
$$;
comment on function bds_change_log.undo_steps(text, text, bigint, bigint) is
    'The steps that lead from the present row back to a version, in no order: each change after the version with the values that '
    'undo it, and one step without a change (it is the newest) whose value is the present row';

create or replace function bds.row_history(company text, entity text, id bigint)
    returns table (version bigint, operation text, at timestamptz, actor text, change_set_id uuid, "row" jsonb, old jsonb)
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select (v.change).id, (v.change).operation::text, (v.change).created_at, (v.change).actor, (v.change).change_set_id,
        case when v.operation <> 'delete' then v.state end, (v.change).old
    from (
        select s.change, s.operation,
            -- the row after a change is the row before the next one
            bds_change_log.undo(s.operation, s.undo) over (
                order by (s.change).id desc nulls first rows between unbounded preceding and 1 preceding
            ) as state
        from bds_change_log.undo_steps(company, entity, id, 0) s
    ) v
    where v.operation is not null
    order by (v.change).id
$$;
comment on function bds.row_history(text, text, bigint) is
    'One row for each version of a row: its time and actor, the row after that change (null: deleted), and the old values';

create or replace function bds.row_at(company text, entity text, id bigint, version bigint)
    returns jsonb
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if version is null then
        raise exception using errcode = 'BD005', message = 'expected a version (the id of a change, or 0), got null';
    elsif version < bds.first_change(company) and bds.first_change(company) > 1 then
        raise exception using
            errcode = 'BD006',
            message = format('the change log of company %s begins at version %s', company, bds.first_change(company));
    end if;
    return (
        select bds_change_log.undo(s.operation, s.undo order by (s.change).id desc nulls first)
        from bds_change_log.undo_steps(company, entity, id, version) s
    );
end
$$;
comment on function bds.row_at(text, text, bigint, bigint) is
    'The row as of a version, which is the id of any change of the company, or null if it did not exist. Raises BD006 for a '
    'version older than the retained log';
