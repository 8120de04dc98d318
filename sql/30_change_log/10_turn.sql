-- A company's turn to write: the lock of its clock's row, which serialises the writers of a company.
--
-- A transaction keeps the state of its turns in two settings, which end with the transaction and are restored by a savepoint, as
-- the lock is.  Any session can set them, so bds_change_log.advance checks them against the clock's row.
--
--     bds.turns   the companies whose turn it has, each with the floor of its stamps if that is in the future:
--                 ,acme@2026-11-20 08:15:30.123457+00,beta@,
--     bds.clock   the ctid of the clock's row that it read or wrote last
--
-- The floor is the earliest updated_at that a transaction may give to rows of a company: a microsecond after the last one.  The
-- view bds.turns (70_turns.sql) reads PostgreSQL's locks, not the setting.

create or replace function bds.lock_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds_change_log.take_turn(company) then
        perform bds_impl.refuse_company(company);
    end if;
end
$$;
comment on function bds.lock_company(text) is
    'Takes the company''s turn to write until the end of the transaction: other writers of the company wait';

create function bds_change_log.take_turn(company text)
    returns boolean
    language plpgsql
as $$
declare
    clock_at tid;
    floor timestamptz;
    turns text := coalesce(current_setting('bds.turns', true), '');
begin
    -- The setting saves work; it is not trusted: bds_change_log.advance checks it.
    if strpos(turns, ',' || company || '@') > 0 then
        return true;
    end if;
    if company is distinct from current_setting('bds.company', true) then
        perform bds.require_company(company);
    end if;
    select r.clock_at, r.last_updated_at + interval '1 microsecond' into clock_at, floor
    from bds.residents r
    where r.company_id = company
    for no key update skip locked;
    if clock_at is null then  -- another transaction has it locked, or no such company lives here
        select w.clock_at, w.floor into clock_at, floor from bds_change_log.wait_for_turn(company) w;
        if clock_at is null then
            return false;
        end if;
    end if;
    if turns = '' then
        perform bds_change_log.begin_turn();
    end if;
    perform
        pg_try_advisory_xact_lock_shared(bds_change_log.turn_mark(company)),
        set_config('bds.clock', clock_at::text, true),
        set_config(
            'bds.turns',
            coalesce(nullif(turns, ''), ',') || company || '@' || case
                when floor > clock_timestamp() then to_char(floor at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"') else ''
            end || ',',
            true
        );
    return true;
end
$$;
comment on function bds_change_log.take_turn(text) is
    'Takes the company''s turn, as bds.lock_company does; returns false if there is no such company here';

create function bds_change_log.begin_turn()
    returns void
    language plpgsql
as $$
declare
    actor text := nullif(current_setting('bds.actor', true), '');
begin
    -- A foreign key's check is planned again for each value while custom plans seem cheaper, which they do, with any index, for a
    -- company without statistics: 0.4 ms for each row.  The generic plan uses the primary key.
    perform set_config('plan_cache_mode', 'force_generic_plan', true);
    perform bds_change_log.forbid_prepare();
    if actor is not null then  -- the only setting that waiting sessions can see
        perform set_config('application_name', format('%s [%s]', current_setting('application_name'), actor), true);
    end if;
end
$$;
comment on function bds_change_log.begin_turn() is
    'Readies the transaction for writing: generic plans, no PREPARE TRANSACTION, and the actor in application_name, where '
    'bds.turns reads it';

create function bds_change_log.turn_mark(company text)
    returns bigint
    language sql
    immutable
    return hashtextextended('bds.turn of ' || company, 0);
comment on function bds_change_log.turn_mark(text) is
    'The advisory lock that a holder of the company''s turn has, too: bds.turns finds it by that after its savepoints; nobody '
    'waits for it';

create function bds_change_log.forbid_prepare()
    returns boolean
    language sql
    -- PostgreSQL refuses to prepare a transaction (two-phase commit) that has a lock which its session has, too.  A prepared one
    -- would keep the turn, over restarts, and its commit would notify nobody.  Any session can have such a lock alone: hence try.
    return pg_try_advisory_lock_shared(hashtextextended('bds.turn', 0))
        and pg_try_advisory_xact_lock_shared(hashtextextended('bds.turn', 0));
comment on function bds_change_log.forbid_prepare() is 'From now on PREPARE TRANSACTION refuses this transaction';

create function bds_change_log.future_floor(company text)
    returns timestamptz
    language sql
    stable
    return nullif(split_part(split_part(current_setting('bds.turns', true), ',' || company || '@', 2), ',', 1), '')::timestamptz;
comment on function bds_change_log.future_floor(text) is
    'The floor of a company''s stamps in this transaction, from the setting bds.turns; null if it is not in the future';

create function bds_change_log.milliseconds(timeout text)
    returns int
    language sql
    stable
    return 1000 * extract(epoch from current_setting(timeout)::interval);
comment on function bds_change_log.milliseconds(text) is 'A setting that is a time; 0, as lock_timeout: no limit';

create function bds_change_log.wait_for_turn(company text, out clock_at tid, out floor timestamptz)
    language plpgsql
as $$
declare
    patience  int := bds_change_log.milliseconds('lock_timeout');
    began     timestamptz := clock_timestamp();
    left_over int := patience;  -- of it
    slice     int := 1000;
    -- A session that has another company's turn may be waited for in its turn.
    is_alone  boolean := coalesce(current_setting('bds.turns', true), '') = '';
    deadlocks int := 0;
    holder    text;
    told      text;
begin
    -- When a savepoint that took the turn is undone, PostgreSQL does not wake a session that waits for its transaction: that
    -- session waits on for a free turn, those behind it wait, too, and it is a deadlock if the transaction wants the turn again.
    -- So a wait ends from time to time and begins anew, and a session that has nothing that others wait for survives such a
    -- deadlock.
    loop
        slice := case when patience > 0 then least(slice, left_over) else slice end;
        begin
            perform set_config('lock_timeout', slice::text, true);
            select r.clock_at, r.last_updated_at + interval '1 microsecond' into clock_at, floor
            from bds.residents r
            where r.company_id = company
            for no key update;
            perform set_config('lock_timeout', patience::text, true);
            return;
        exception
            when lock_not_available then
                holder := bds_change_log.describe_holder(company);
            when deadlock_detected then
                deadlocks := deadlocks + 1;
                if not is_alone or deadlocks > 3 then
                    raise exception using
                        errcode = '40P01',
                        message = format('deadlock while waiting for the turn to write to company %s', company),
                        hint = 'call bds.set_context(company, actor, change_set) before the first write: the turn is then taken '
                            'before any row is locked; take the turns of several companies in one order';
                end if;
        end;
        left_over := patience - 1000 * extract(epoch from clock_timestamp() - began);
        exit when patience > 0 and left_over <= 0;
        if holder is distinct from told or told is null then
            told := coalesce(holder, 'its holder has just ended');
            raise notice 'waiting for the turn of %: %', company, told;
        end if;
        slice := case when is_alone then 2 * bds_change_log.milliseconds('deadlock_timeout') else greatest(left_over, 0) end;
    end loop;
    raise exception using
        errcode = '55P03',
        message = format('another writer of company %s did not finish within %s', company, current_setting('lock_timeout')),
        detail = coalesce('The turn is held by ' || holder || '.', 'The turn has just ended.'),
        hint = 'see bds.turns';
end
$$;
comment on function bds_change_log.wait_for_turn(text) is
    'Locks the clock of a company that another transaction has locked, with a notice after a second and for each further holder; '
    'after lock_timeout raises 55P03, whose detail names the holder';
