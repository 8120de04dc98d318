-- A company's turn to write: the lock that makes one writer at a time, and the triggers that take it, which every table shares.
--
-- What a transaction knows of its turn stands in settings (bds.locked, bds.floor, bds.clock), which end with it and go back with a
-- savepoint.  Anybody can set them, so what is written is checked against the clock's own row (bds_change_log.advance).

create function bds_change_log.lock_space()
    returns int
    language sql
    immutable
    return 20261121;  -- first key of the advisory locks of companies, so that locks of other programs are not met
comment on function bds_change_log.lock_space() is 'pg_locks.classid of the companies'' locks; objid is bds.companies.number';

create or replace function bds.lock_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds_change_log.take_turn(company) then
        raise exception using errcode = 'BD002', message = format('there is no company %s', coalesce(quote_literal(company), 'null'));
    end if;
end
$$;
comment on function bds.lock_company(text) is 'Takes the company''s turn to write, until the end of the transaction';

create function bds_change_log.take_turn(company text)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    turn record;
begin
    -- What the settings say saves work and is not trusted: bds_change_log.advance checks it.
    if strpos(current_setting('bds.locked', true), ',' || company || ',') > 0 then
        return true;
    end if;
    if company is distinct from current_setting('bds.company', true) then
        perform bds.require_company(company);
    end if;
    select c.number, c.last_updated_at + interval '1 microsecond' as floor,
        pg_try_advisory_xact_lock(bds_change_log.lock_space(), c.number) as is_ours,
        -- A foreign key's check is planned for each value as long as that seems cheaper, and of a company that the statistics do not
        -- know it seems to be, by any index: 0.4 ms for each row.  One plan for all values uses the primary key.
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('bds.clock', c.ctid::text, true),
        set_config('bds.locked', coalesce(nullif(current_setting('bds.locked', true), ''), ',') || company || ',', true)
    into turn
    from bds.clocks c
    where c.company_id = company;
    -- What was read before the lock may be old by now.  Unless the clock is ahead that is no harm: what the last holder has stamped
    -- is not after its commit, and bds_change_log.advance finds the row itself.
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
comment on function bds_change_log.take_turn(text) is 'What bds.lock_company does, where a statement would cost too much: false if there is no such company';

create function bds_change_log.set_floor(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    clock record;
begin
    -- a snapshot of its own, taken after the lock: it sees what the last holder committed
    select c.ctid, c.last_updated_at + interval '1 microsecond' as floor into strict clock from bds.clocks c where c.company_id = company;
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
comment on function bds_change_log.set_floor(text) is 'Notes where the clock of a company that was just locked stands, if that is in the future';

create function bds_change_log.floor_of(company text)
    returns timestamptz
    language sql
    stable
    return nullif(split_part(split_part(current_setting('bds.floor', true), ',' || company || '=', 2), ',', 1), '')::timestamptz;
comment on function bds_change_log.floor_of(text) is
    'The earliest updatedAt that this transaction may give out in a company that it has locked; null if that has passed';

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
            detail = coalesce(bds_change_log.holder_of(company_number), 'It has finished by now.');
    when deadlock_detected then
        raise exception using
            errcode = '40P01',
            message = format('deadlock while waiting for the turn to write to company %s', company),
            hint = 'call bds.set_context(company, actor, change_set) first: the turn is then taken before any row is locked';
end
$$;
comment on function bds_change_log.wait_for_turn(text, int) is 'Waits for the company''s lock; raises BD003, naming the holder, after lock_timeout';

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
comment on function bds_change_log.holder_of(int) is 'Who holds a company''s lock, in words';

create function bds_change_log.only_company()
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select case when count(*) = 1 and bds.is_operator() then min(c.company_id) end
        from (select k.company_id from bds.clocks k limit 2) c
    );
comment on function bds_change_log.only_company() is 'The only company that there is, for the operator; else null';

create function bds_change_log.lock_company_of_row(company text, operation text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if bds.current_company() is not null then
        raise exception using
            errcode = 'BD001',
            message = format('this session has named company %L, and the row is of %L', bds.current_company(), company);
    end if;
    if operation = 'INSERT' then
        perform bds.lock_company(company);
    else
        perform bds_change_log.lock_company_shortly(company);
    end if;
end
$$;
comment on function bds_change_log.lock_company_of_row(text, text) is 'For sessions that have named no company: takes the lock of the row''s own';

create function bds_change_log.lock_company_shortly(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- milliseconds; 0: without a limit
    patience int := (select s.setting::int from pg_settings s where s.name = 'lock_timeout');
    longest  int := greatest((select s.setting::int from pg_settings s where s.name = 'deadlock_timeout') * 3 / 4, 1);
begin
    if strpos(coalesce(current_setting('bds.locked', true), ''), ',' || company || ',') > 0 then
        return;
    end if;
    -- The row is locked already.  Whoever has the turn may come to need it, and would then be what the detection of deadlocks
    -- cancels; so this session gives up before that looks.
    perform set_config('lock_timeout', least(nullif(patience, 0), longest)::text, true);
    begin
        perform bds.lock_company(company);
    exception when sqlstate 'BD003' then
        raise exception using
            errcode = 'BD003',
            message = format('another writer of company %s is at work', company),
            hint = format('call bds.set_context(%L, actor) first: the statement then waits for its turn, before it locks any row', company);
    end;
    perform set_config('lock_timeout', patience::text, true);
end
$$;
comment on function bds_change_log.lock_company_shortly(text) is
    'Takes the company''s turn for a session that has a row locked: waits for less than deadlock_timeout, then raises BD003';

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
        perform bds.lock_company(company);  -- which says that there is none
    elsif bds_change_log.only_company() is not null then
        perform bds.lock_company(bds_change_log.only_company());
    end if;
    return null;
end
$$;
comment on function bds_log.lock_named_company() is 'Statement trigger: takes the named company''s lock before any row, or that of the only company';

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
comment on function bds_log.lock_old_row_company() is 'Row trigger, before a delete in a session that has named no company: takes the lock of the row''s own';

create or replace function bds_log.refuse_truncate()
    returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'BD004',
        message = format('truncate of %I.%I would leave no record in the change log', tg_table_schema, tg_table_name),
        hint = 'delete the rows';
end
$$;
comment on function bds_log.refuse_truncate() is 'Statement trigger: truncate is refused';
