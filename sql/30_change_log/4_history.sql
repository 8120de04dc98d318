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
comment on function bds_change_log.row_now(text, text, bigint) is 'The current row, by API names; null if it does not exist';

create function bds_change_log.state_before(change bds.change_log, state jsonb)
    returns jsonb
    language sql
    immutable
    set timezone = 'UTC'
    return case change.operation
        when 'update' then state || change.old || jsonb_build_object('updatedAt', change.last_updated_at)
        when 'delete' then change.old
    end;
comment on function bds_change_log.state_before(bds.change_log, jsonb) is
    'The row before a change, computed from the row after it; null before a create';

create or replace function bds.row_history(company text, entity text, id bigint)
    returns table (version bigint, operation text, at timestamptz, actor text, change_set_id uuid, "row" jsonb, old jsonb)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    state  jsonb := bds_change_log.row_now(company, entity, id);
    change bds.change_log;
    states jsonb[] := '{}';
begin
    -- backwards from the last change: each state is computed from the next one
    for change in
        select l.* from bds.change_log l
        where l.row_id = id and l.company_id = company and l.entity = entity
        order by l.id desc
    loop
        states := states || state;
        state := bds_change_log.state_before(change, state);
    end loop;
    return query
        select l.id, l.operation::text, l.created_at, l.actor, l.change_set_id,
            states[row_number() over (order by l.id desc)], l.old
        from bds.change_log l
        where l.row_id = id and l.company_id = company and l.entity = entity
        order by l.id;
end
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
#variable_conflict use_variable
declare
    state  jsonb := bds_change_log.row_now(company, entity, id);
    change bds.change_log;
begin
    if version is null then
        raise exception using errcode = 'BD005', message = 'expected a version (the id of a change, or 0), got null';
    elsif version < bds.first_change(company) and bds.first_change(company) > 1 then
        raise exception using
            errcode = 'BD006',
            message = format('the change log of company %s begins at version %s', company, bds.first_change(company));
    end if;
    for change in
        select l.* from bds.change_log l
        where l.row_id = id and l.company_id = company and l.entity = entity and l.id > version
        order by l.id desc
    loop
        state := bds_change_log.state_before(change, state);
    end loop;
    return state;
end
$$;
comment on function bds.row_at(text, text, bigint, bigint) is
    'The row as of a version, which is the id of any change of the company, or null if it did not exist. Raises BD006 for a '
    'version '
    'older than the retained log';
