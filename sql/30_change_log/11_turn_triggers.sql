-- The triggers of every table that take the turn of a company, before any row is locked.

create function bds_change_log.only_company()
    returns text
    language sql
    stable
as $$
    select (
        select case when count(*) = 1 and bds.is_operator() then min(c.company_id) end
        from (select r.company_id from bds.residents r limit 2) c
    );
$$;
comment on function bds_change_log.only_company() is
    'The company, if there is exactly one and the session acts as the operator; else null';

create function bds_change_log.lock_company_of_row(company text, operation text)
    returns void
    language plpgsql
as $$
begin
    if operation = 'INSERT' and bds.current_company() is null and coalesce(company, '') = '' then
        raise exception using
            errcode = 'BD001',
            message = 'no company is named, and the new row has no company_id',
            hint = 'call bds.set_context(company, actor, change_set) in the same transaction, or give the row a company_id';
    elsif bds.current_company() is not null then
        raise exception using
            errcode = 'BD001',
            message = format('this session has named company %L, but the row belongs to %L', bds.current_company(), company);
    end if;
    if operation = 'INSERT' then
        perform bds.lock_company(company);
    else
        perform bds_change_log.lock_company_shortly(company);
    end if;
end
$$;
comment on function bds_change_log.lock_company_of_row(text, text) is
    'Takes the turn of a row''s company, for a session that has named none; raises BD001 if it has named another one, or if a new '
    'row has none';

create function bds_change_log.lock_company_shortly(company text)
    returns void
    language plpgsql
as $$
declare
    patience int := bds_change_log.milliseconds('lock_timeout');
    longest  int := greatest(bds_change_log.milliseconds('deadlock_timeout') * 3 / 4, 1);
begin
    if strpos(current_setting('bds.turns', true), ',' || company || '@') > 0 then
        return;
    end if;
    -- This session has the row locked.  If the holder of the turn needs that row, both wait, and the deadlock check could cancel
    -- the holder; so this session gives up before the check runs.
    perform set_config('lock_timeout', least(nullif(patience, 0), longest)::text, true);
    begin
        perform bds.lock_company(company);
    exception when lock_not_available then
        raise exception using
            errcode = '55P03',
            message = format('another writer of company %s is active', company),
            hint = format(
                'call bds.set_context(%L, actor) first: the statement then waits for its turn before it locks any row', company
            );
    end;
    perform set_config('lock_timeout', patience::text, true);
end
$$;
comment on function bds_change_log.lock_company_shortly(text) is
    'Takes the company''s turn for a session that holds a row lock: waits for less than deadlock_timeout, then raises 55P03';

create or replace function bds_log.lock_named_company()
    returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := nullif(current_setting('bds.company', true), '');
begin
    if bds_change_log.take_turn(company) then
        return null;
    elsif company is not null then
        perform bds.lock_company(company);  -- raises BD002
    elsif bds_change_log.only_company() is not null then
        perform bds.lock_company(bds_change_log.only_company());
    end if;
    return null;
end
$$;
comment on function bds_log.lock_named_company() is
    'Statement trigger: takes the turn of the named or of the only company before any row is locked';

create or replace function bds_log.lock_old_row_company()
    returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text;
begin
    begin
        company := old.company_id;
    exception when undefined_column then
        perform bds_change_log.refuse_altered(e) from bds.entities e where e.table_name = tg_relid;
        raise;
    end;
    perform bds_change_log.lock_company_of_row(company, tg_op);
    return old;
end
$$;
comment on function bds_log.lock_old_row_company() is
    'Row trigger before delete, if the session has not named the row''s company: takes that company''s turn';

create or replace function bds_log.refuse_truncate()
    returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'BD004',
        message = format(
            '%I.%I cannot be truncated: %s would miss its rows', tg_table_schema, tg_table_name,
            coalesce(tg_argv[0], 'the change log')
        ),
        hint = 'use delete';
end
$$;
comment on function bds_log.refuse_truncate() is
    'Statement trigger: refuses truncate, for the log that its argument names (without: the change log)';
