-- The change log as an audit trail: every past state of a row, rebuilt from the old values; and how long the log is kept.

-- Past states --------------------------------------------------------------------------------------------------------------------

create or replace function bds.row_now(company text, entity text, id bigint)
    returns jsonb
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    -- printed as the log prints old values
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
        raise exception using errcode = 'BD002', message = format('there is no entity %s', coalesce(quote_literal(entity), 'null'));
    end if;
    execute statement into state using company, id;
    return state;
end
$$;
comment on function bds.row_now(text, text, bigint) is 'A row as it is, by API names; null if it does not exist';

create or replace function bds.state_before(change bds.change_log, state jsonb)
    returns jsonb
    language sql
    immutable
    set timezone = 'UTC'
    return case change.operation
        when 'update' then state || change.old || jsonb_build_object('updatedAt', change.last_updated_at)
        when 'delete' then change.old
    end;
comment on function bds.state_before(bds.change_log, jsonb) is 'The row before a change, of the row after it; null before a create';

create or replace function bds.row_history(company text, entity text, id bigint)
    returns table (version bigint, operation text, at timestamptz, actor text, change_set_id uuid, "row" jsonb, old jsonb)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    state  jsonb := bds.row_now(company, entity, id);
    change bds.change_log;
    states jsonb[] := '{}';
begin
    -- from the last change to the first, each state from the one after it
    for change in
        select l.* from bds.change_log l
        where l.row_id = id and l.company_id = company and l.entity = entity
        order by l.id desc
    loop
        states := states || state;
        state := bds.state_before(change, state);
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
    'A row for each version of a row: when, by whom, the row as that change left it (null: deleted), the old values that it replaced';

create or replace function bds.row_at(company text, entity text, id bigint, version bigint)
    returns jsonb
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    state  jsonb := bds.row_now(company, entity, id);
    change bds.change_log;
begin
    if version is null then
        raise exception using errcode = 'BD005', message = 'expected a version: the id of a change, or 0';
    elsif version < bds.first_change(company) and bds.first_change(company) > 1 then
        raise exception using
            errcode = 'BD006',
            message = format('the change log of company %s is kept from version %s on', company, bds.first_change(company));
    end if;
    for change in
        select l.* from bds.change_log l
        where l.row_id = id and l.company_id = company and l.entity = entity and l.id > version
        order by l.id desc
    loop
        state := bds.state_before(change, state);
    end loop;
    return state;
end
$$;
comment on function bds.row_at(text, text, bigint, bigint) is
    'A row as it was after a change of the company, which need not be its own; null if it did not exist. Raises BD006 before what is kept';

-- Retention ----------------------------------------------------------------------------------------------------------------------

create or replace function bds.first_change(company text)
    returns bigint
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    return coalesce((select f.first_id from bds.first_changes f where f.company_id = company), 1);
end
$$;
comment on function bds.first_change(text) is 'The id of the first change that is kept: 1, unless a retention was set and old changes were dropped';

create or replace function bds.set_retention(keep interval)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator sets how long the change log is kept';
    end if;
    if keep < interval '1 day' then
        raise exception using errcode = 'BD005', message = format('expected a retention of at least a day, or null to keep everything: %s', keep);
    end if;
    update bds.settings s set log_retention = keep;
end
$$;
comment on function bds.set_retention(interval) is
    'For how long the change log is kept at least: whole months are dropped when they are older; null, the default: for ever';

create or replace function bds.drop_old_changes()
    returns int
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- While this waits for whoever uses the log, all others wait for it: so not for long, and the next call tries again.
    set lock_timeout = '100ms'
as $$
declare
    cutoff    timestamptz := now() - (select s.log_retention from bds.settings s);
    partition record;
    dropped   int := 0;
begin
    if cutoff is null then
        return 0;
    end if;
    for partition in
        select c.oid::regclass as name
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        cross join lateral (
            select (regexp_match(pg_get_expr(c.relpartbound, c.oid), $r$TO \('([^']+)'\)$r$))[1]::timestamptz as ends
        ) as bound
        where i.inhparent = 'bds.change_log'::regclass and bound.ends <= cutoff
        order by bound.ends
    loop
        lock table only bds.change_log in access exclusive mode;  -- as queries do: before the partition
        execute format('lock table %s in access exclusive mode', partition.name);
        perform bds.forget_changes(partition.name, 'infinity');
        execute format('drop table %s', partition.name);
        dropped := dropped + 1;
    end loop;
    if exists (select from bds.change_log_default d where d.created_at < cutoff) then
        perform bds.forget_changes('bds.change_log_default', cutoff);
        delete from bds.change_log_default d where d.created_at < cutoff;
    end if;
    return dropped;
exception when lock_not_available then
    return 0;
end
$$;
comment on function bds.drop_old_changes() is 'Drops the partitions of the change log that are older than the retention; returns how many';

create or replace function bds.forget_changes(partition regclass, before timestamptz)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'insert into bds.first_changes as f (company_id, first_id) '
        'select l.company_id, max(l.id) + 1 from %s l where l.created_at < $1 group by l.company_id '
        'on conflict (company_id) do update set first_id = greatest(f.first_id, excluded.first_id)',
        partition
    )
    using before;
end
$$;
comment on function bds.forget_changes(regclass, timestamptz) is 'Writes down, before changes are dropped, which will be the first of each company';
