-- The change log: one record for each real change of a row, whoever writes.
--
-- One writer per company at a time.  A writer holds the company's lock from its first write to its commit; ids come from the
-- company's clock.  So ids and updatedAt follow commit order, and whoever sees one change sees all before it.
--
-- Of each table: a statement trigger takes the lock before any row is touched, a row trigger drops updates that change nothing and
-- stamps the others, and three statement triggers with transition tables write the log, set by set.
--
-- What a transaction knows of its turn stands in settings (bds.locked, bds.floor, bds.clock), which end with it and go back with a
-- savepoint.  Anybody can set them, so what is written is checked against the clock's own row.

-- The lock -----------------------------------------------------------------------------------------------------------------------

create or replace function bds.lock_space()
    returns int
    language sql
    immutable
    return 20261121;  -- first key of the advisory locks of companies, so that locks of other programs are not met
comment on function bds.lock_space() is 'pg_locks.classid of the companies'' locks; objid is bds.companies.number';

create or replace function bds.lock_company(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds.take_turn(company) then
        raise exception using errcode = 'BD002', message = format('there is no company %s', coalesce(quote_literal(company), 'null'));
    end if;
end
$$;
comment on function bds.lock_company(text) is 'Takes the company''s turn to write, until the end of the transaction';

create or replace function bds.take_turn(company text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    turn record;
begin
    -- What the settings say saves work and is not trusted: bds.advance checks it.
    if strpos(current_setting('bds.locked', true), ',' || company || ',') > 0 then
        return true;
    end if;
    if company is distinct from current_setting('bds.company', true) then
        perform bds.require_company(company);
    end if;
    select c.number, c.last_updated_at + interval '1 microsecond' as floor,
        pg_try_advisory_xact_lock(bds.lock_space(), c.number) as is_ours,
        -- A foreign key's check is planned for each value as long as that seems cheaper, and of a company that the statistics do not
        -- know it seems to be, by any index: 0.4 ms for each row.  One plan for all values uses the primary key.
        set_config('plan_cache_mode', 'force_generic_plan', true),
        set_config('bds.clock', c.ctid::text, true),
        set_config('bds.locked', coalesce(nullif(current_setting('bds.locked', true), ''), ',') || company || ',', true)
    into turn
    from bds.clocks c
    where c.company_id = company;
    -- What was read before the lock may be old by now.  Unless the clock is ahead that is no harm: what the last holder has stamped
    -- is not after its commit, and bds.advance finds the row itself.
    if turn.is_ours and turn.floor <= clock_timestamp() then
        return true;
    elsif turn is null then
        return false;
    end if;
    if not turn.is_ours then
        perform bds.wait_for_turn(company, turn.number);
    end if;
    perform bds.set_floor(company);
    return true;
end
$$;
comment on function bds.take_turn(text) is 'What bds.lock_company does, where a statement would cost too much: false if there is no such company';

create or replace function bds.set_floor(company text)
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
comment on function bds.set_floor(text) is 'Notes where the clock of a company that was just locked stands, if that is in the future';

create or replace function bds.floor_of(company text)
    returns timestamptz
    language sql
    stable
    return nullif(split_part(split_part(current_setting('bds.floor', true), ',' || company || '=', 2), ',', 1), '')::timestamptz;
comment on function bds.floor_of(text) is
    'The earliest updatedAt that this transaction may give out in a company that it has locked; null if that has passed';

create or replace function bds.wait_for_turn(company text, company_number int)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(bds.lock_space(), company_number);
exception
    when lock_not_available then
        raise exception using
            errcode = 'BD003',
            message = format('another writer of company %s did not finish within %s', company, current_setting('lock_timeout')),
            detail = coalesce(bds.holder_of(company_number), 'It has finished by now.');
    when deadlock_detected then
        raise exception using
            errcode = '40P01',
            message = format('deadlock while waiting for the turn to write to company %s', company),
            hint = 'call bds.set_context(company, actor, change_set) first: the turn is then taken before any row is locked';
end
$$;
comment on function bds.wait_for_turn(text, int) is 'Waits for the company''s lock; raises BD003, naming the holder, after lock_timeout';

create or replace function bds.holder_of(company_number int)
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
            and l.classid = bds.lock_space()::oid and l.objid = company_number::oid
        limit 1
    );
comment on function bds.holder_of(int) is 'Who holds a company''s lock, in words';

-- Triggers that every table shares -----------------------------------------------------------------------------------------------

create or replace function bds.lock_named_company()
    returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := nullif(current_setting('bds.company', true), '');
begin
    if bds.take_turn(company) then
        return null;
    elsif company is not null then
        perform bds.lock_company(company);  -- which says that there is none
    elsif bds.only_company() is not null then
        perform bds.lock_company(bds.only_company());
    end if;
    return null;
end
$$;
comment on function bds.lock_named_company() is 'Statement trigger: takes the named company''s lock before any row, or that of the only company';

create or replace function bds.only_company()
    returns text
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    return (
        select case when count(*) = 1 and bds.is_operator() then min(c.company_id) end
        from (select k.company_id from bds.clocks k limit 2) c
    );
comment on function bds.only_company() is 'The only company that there is, for the operator; else null';

create or replace function bds.lock_company_of_row(company text, operation text)
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
        perform bds.lock_company_shortly(company);
    end if;
end
$$;
comment on function bds.lock_company_of_row(text, text) is 'For sessions that have named no company: takes the lock of the row''s own';

create or replace function bds.lock_old_row_company()
    returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.lock_company_of_row(old.company_id, tg_op);
    return old;
end
$$;
comment on function bds.lock_old_row_company() is 'Row trigger, before a delete in a session that has named no company: takes the lock of the row''s own';

create or replace function bds.lock_company_shortly(company text)
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
comment on function bds.lock_company_shortly(text) is
    'Takes the company''s turn for a session that has a row locked: waits for less than deadlock_timeout, then raises BD003';

create or replace function bds.refuse_truncate()
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
comment on function bds.refuse_truncate() is 'Statement trigger: truncate is refused';

-- What the log triggers call -----------------------------------------------------------------------------------------------------

create or replace function bds.advance(company text, entity_name text, changes bigint, oldest timestamptz, newest timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- Where the clock's row stood when this transaction last saw it: the index would lead through all versions that it has left.
    place tid := nullif(current_setting('bds.clock', true), '')::tid;
    clock record;
begin
    loop
        update bds.clocks c
        set last_id = c.last_id + changes,
            last_updated_at = greatest(c.last_updated_at, newest),
            transaction_id = pg_current_xact_id(),
            first_id = case when c.transaction_id = pg_current_xact_id() then c.first_id else c.last_id + 1 end,
            floor = case when c.transaction_id = pg_current_xact_id() then c.floor else c.last_updated_at + interval '1 microsecond' end,
            positions = c.positions || jsonb_build_object(entity_name, c.last_id + changes)
        where c.ctid = place and c.company_id = company
        returning c.last_id - changes as base,
            -- The settings that lead here are anybody's to set.  Nothing is logged out of turn, or with times that are not the clock's.
            pg_try_advisory_xact_lock(bds.lock_space(), c.number)
                and coalesce(oldest >= c.floor and newest <= greatest(clock_timestamp(), c.floor), true) as in_turn,
            set_config('bds.clock', c.ctid::text, true),
            case when c.first_id > c.last_id - changes then pg_notify('bds_changes', company)::text end
        into clock;
        exit when found;
        select c.ctid into strict place from bds.clocks c where c.company_id = company;  -- it stood in another company's clock
    end loop;
    if clock.in_turn then
        return clock.base;
    end if;
    raise exception using
        errcode = '40001',
        message = format('rows of company %s were written out of turn', company),
        hint = 'the machine''s clock went back, or the session has set bds.locked or bds.floor itself; try again';
end
$$;
comment on function bds.advance(text, text, bigint, timestamptz, timestamptz) is
    'Takes change ids from the company''s clock for rows stamped from oldest to newest; returns the id before the first';

create or replace function bds.turn_floor(company text)
    returns timestamptz
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    floor timestamptz;
begin
    select c.floor into floor from bds.clocks c where c.ctid = current_setting('bds.clock')::tid and c.company_id = company;
    return floor;
end
$$;
comment on function bds.turn_floor(text) is
    'What this transaction has stamped in the company whose clock it has advanced last is not before this, all else is';

create or replace function bds.name_collection(
    company text, parent_entity text, collection_name text, parents bigint[]
)
    returns bigint[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    -- A plan made for three parents is kept for a million: index probes are right for both, hash joins for neither.
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    unrecorded bigint[];
    recorded   bigint[];
begin
    -- The row's own records first, then which of them is ours.  Of a company that its statistics do not know the planner expects one
    -- row: every index then seems as good as the right one, so the conditions that could choose a wrong one stand outside.
    -- The bound on created_at lets it leave old partitions alone; a day covers any step of the clock.
    select array_agg(p.id) filter (where own.id is null), array_agg(own.id) filter (where own.is_silent)
    into unrecorded, recorded
    from unnest(parents) as p (id)
    left join lateral (
        select l.id, l.operation = 'update' and collection_name <> all (coalesce(l.collections, '{}')) as is_silent
        from (
            select r.*
            from bds.change_log r
            where r.row_id = p.id and r.created_at > transaction_timestamp() - interval '1 day'
            offset 0
        ) l
        where l.company_id = company and l.entity = parent_entity and l.transaction_id = pg_current_xact_id()
        order by l.id desc
        limit 1
    ) as own on true;

    if recorded is not null then
        update bds.change_log l
        set collections = l.collections || collection_name
        where l.row_id = any (parents) and l.company_id || '' = company and l.id + 0 = any (recorded)
            and l.created_at > transaction_timestamp() - interval '1 day';
    end if;
    return unrecorded;
end
$$;
comment on function bds.name_collection(text, text, text, bigint[]) is
    'Adds a collection to the records that this transaction has made of the parents; returns the parents of which it has none';

-- Partitions ---------------------------------------------------------------------------------------------------------------------

create or replace function bds.make_partitions(months int default 3)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    month date;
    name  text;
begin
    perform pg_advisory_xact_lock(hashtextextended('bds.make_partitions', 0));
    for month in
        select generate_series(date_trunc('month', now() at time zone 'UTC'), now() at time zone 'UTC' + make_interval(months => months), interval '1 month')
    loop
        name := 'change_log_' || to_char(month, 'YYYY_MM');
        continue when to_regclass('bds.' || name) is not null;
        begin
            execute format(
                'create table bds.%I partition of bds.change_log for values from (%L) to (%L)',
                name, month || ' 00:00:00+00', (month + interval '1 month')::date || ' 00:00:00+00'
            );
            execute format('comment on table bds.%I is %L', name, 'Changes of ' || to_char(month, 'YYYY-MM'));
        exception when check_violation then
            null;  -- changes of that month are in the default partition already, and stay there
        end;
    end loop;
end
$$;
comment on function bds.make_partitions(int) is 'Makes the change log''s partitions of this month and the next ones';

select bds.make_partitions();

-- What people and the service read -----------------------------------------------------------------------------------------------

create or replace view bds.changes as
select l.company_id, l.id, l.entity, l.row_id, l.operation::text as operation, l.change_set_id, l.created_at,
    l.actor, l.transaction_id,
    case
        when l.operation = 'update' then
            array(select jsonb_object_keys(l.old)) || coalesce(l.collections, '{}')
        else
            array(
                select f.name from bds.fields f where f.entity = l.entity and f.name <> 'updatedAt'
                union all
                select n.name from bds.navigations n where n.entity = l.entity and n.child
            )
    end as columns,
    l.old
from bds.change_log l
where l.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.changes is 'The change log: one row for each change of a row, in the order of commit within a company';
comment on column bds.changes.company_id is 'The company; a query that does not name it reads the whole log';
comment on column bds.changes.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.changes.entity is 'The entity''s API name';
comment on column bds.changes.row_id is 'The row''s id';
comment on column bds.changes.operation is 'create, update or delete';
comment on column bds.changes.created_at is 'When the row was written';
comment on column bds.changes.actor is 'Who: as named by bds.set_context, else the database user';
comment on column bds.changes.transaction_id is 'PostgreSQL''s transaction; the changes of one share it';
comment on column bds.changes.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.changes.columns is 'Columns that changed, by API names, child collections among them; of a create or delete all';
comment on column bds.changes.old is 'Of an update the old values of the columns that changed, of a delete the row';

create or replace view bds.positions as
select p.company_id, p.entity, p.last_id
from bds.entity_positions p
where p.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.positions is 'The id of the last change of each entity; it never goes back';
comment on column bds.positions.company_id is 'The company';
comment on column bds.positions.entity is 'The entity''s API name';
comment on column bds.positions.last_id is 'The id of its last change';
