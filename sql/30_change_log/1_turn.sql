-- A company's turn to write: the lock that serialises the writers of a company, and the triggers of every table that take it.
--
-- A transaction keeps the state of its turn in settings (bds.locked, bds.floor, bds.clock), which end with the transaction and are
-- restored by a savepoint.  Any session can set them, so bds_change_log.advance checks them against the clock's row.

create function bds_change_log.lock_space()
    returns int
    language sql
    immutable
    return 20261121;  -- first key of the companies' advisory locks, different from those of other programs
comment on function bds_change_log.lock_space() is
    'pg_locks.classid of the companies'' advisory locks; their objid is bds.companies.number';

create or replace function bds.lock_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds_change_log.take_turn(company) then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
end
$$;
comment on function bds.lock_company(text) is
    'Takes the company''s turn to write until the end of the transaction: other writers of the company wait';

create function bds_change_log.take_turn(company text)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    turn record;
begin
    -- The settings save work; they are not trusted: bds_change_log.advance checks them.
    if strpos(current_setting('bds.locked', true), ',' || company || ',') > 0 then
        return true;
    end if;
    if company is distinct from current_setting('bds.company', true) then
        perform bds.require_company(company);
    end if;
    select c.number, c.last_updated_at + interval '1 microsecond' as floor,
        pg_try_advisory_xact_lock(bds_change_log.lock_space(), c.number) as is_ours,
        -- A foreign key's check is planned again for each value while custom plans seem cheaper, which they do, with any index, for
        -- a company without statistics: 0.4 ms for each row.  The generic plan uses the primary key.
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('bds.clock', c.ctid::text, true),
        set_config('bds.locked', coalesce(nullif(current_setting('bds.locked', true), ''), ',') || company || ',', true)
    into turn
    from bds.clocks c
    where c.company_id = company;
    -- The clock was read before the lock, so it may be stale.  That is harmless unless the clock is ahead of the time: the last
    -- holder's stamps are not later than its commit, and bds_change_log.advance finds the row itself.
    if turn.is_ours and turn.floor <= clock_timestamp() then
        return true;
    elsif turn is null then
        return false;
    end if;
    if not turn.is_ours then
        perform bds_change_log.wait_for_turn(company, turn.number);
    end if;
    perform bds_change_log.set_floor(company);
    return true;
end
$$;
comment on function bds_change_log.take_turn(text) is
    'Takes the company''s turn, as bds.lock_company does; returns false if there is no such company';

create function bds_change_log.set_floor(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    clock record;
begin
    -- this statement's snapshot is taken after the lock: it sees the last holder's commit
    select c.ctid, c.last_updated_at + interval '1 microsecond' as floor into clock
    from bds.clocks c
    where c.company_id = company;
    if not found then  -- it was deleted while this session waited
        raise exception using errcode = 'BD002', message = format('no such company: %L', company);
    end if;
    perform set_config('bds.clock', clock.ctid::text, true);
    if clock.floor > clock_timestamp() then
        -- ,acme=2026-11-20 08:15:30.123457+00,beta=...,
        perform set_config(
            'bds.floor',
            coalesce(nullif(current_setting('bds.floor', true), ''), ',') || company || '='
                || to_char(clock.floor at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00,"'),
            true
        );
    end if;
end
$$;
comment on function bds_change_log.set_floor(text) is
    'Keeps the clock of a company that was just locked as the floor of new stamps, if it is in the future';

create function bds_change_log.floor_of(company text)
    returns timestamptz
    language sql
    stable
    return nullif(split_part(split_part(current_setting('bds.floor', true), ',' || company || '=', 2), ',', 1), '')::timestamptz;
comment on function bds_change_log.floor_of(text) is
    'The earliest updatedAt that this transaction may stamp in a company that it has locked; null if that time has passed';

create function bds_change_log.wait_for_turn(company text, company_number int)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(bds_change_log.lock_space(), company_number);
exception
    when lock_not_available then
        raise exception using
            errcode = 'BD003',
            message = format('another writer of company %s did not finish within %s', company, current_setting('lock_timeout')),
            detail = coalesce(bds_change_log.holder_of(company_number), 'It has finished in the meantime.');
    when deadlock_detected then
        raise exception using
            errcode = '40P01',
            message = format('deadlock while waiting for the turn to write to company %s', company),
            hint = 'call bds.set_context(company, actor, change_set) first: the turn is then taken before any row is locked';
end
$$;
comment on function bds_change_log.wait_for_turn(text, int) is
    'Waits for the company''s lock; after lock_timeout raises BD003, which names the holder';

create function bds_change_log.holder_of(company_number int)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select format(
            'It is held by process %s (user %s, application %s), in a transaction since %s.',
            l.pid, coalesce(a.usename, '?'), coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?')
        )
        from pg_locks l left join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
            and l.database = (select d.oid from pg_database d where d.datname = current_database())
            and l.classid = bds_change_log.lock_space()::oid and l.objid = company_number::oid
        limit 1
    );
comment on function bds_change_log.holder_of(int) is 'The process that holds a company''s lock, in words; null if none does';

create function bds_change_log.only_company()
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select case when count(*) = 1 and bds.is_operator() then min(c.company_id) end
        from (select k.company_id from bds.clocks k limit 2) c
    );
comment on function bds_change_log.only_company() is
    'The company, if there is exactly one and the session acts as the operator; else null';

create function bds_change_log.lock_company_of_row(company text, operation text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
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
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- milliseconds; 0: no limit
    patience int;
    longest  int;
begin
    if strpos(coalesce(current_setting('bds.locked', true), ''), ',' || company || ',') > 0 then
        return;
    end if;
    select s.setting::int into strict patience from pg_settings s where s.name = 'lock_timeout';
    select greatest(s.setting::int * 3 / 4, 1) into strict longest from pg_settings s where s.name = 'deadlock_timeout';
    -- This session has the row locked.  If the holder of the turn needs that row, both wait, and the deadlock check could cancel
    -- the holder; so this session gives up before the check runs.
    perform set_config('lock_timeout', least(nullif(patience, 0), longest)::text, true);
    begin
        perform bds.lock_company(company);
    exception when sqlstate 'BD003' then
        raise exception using
            errcode = 'BD003',
            message = format('another writer of company %s is active', company),
            hint = format(
                'call bds.set_context(%L, actor) first: the statement then waits for its turn before it locks any row', company
            );
    end;
    perform set_config('lock_timeout', patience::text, true);
end
$$;
comment on function bds_change_log.lock_company_shortly(text) is
    'Takes the company''s turn for a session that has locked a row: waits for less than deadlock_timeout, then raises BD003';

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
begin
    perform bds_change_log.lock_company_of_row(old.company_id, tg_op);
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
        message = format('%I.%I cannot be truncated: the change log would miss its rows', tg_table_schema, tg_table_name),
        hint = 'use delete';
end
$$;
comment on function bds_log.refuse_truncate() is 'Statement trigger: refuses truncate';
