-- The change log: one record for each real change of a row, whoever writes.
--
-- One writer per company at a time.  A writer holds the company's lock from its first write to its commit; ids come from the
-- company's clock.  So ids and updatedAt follow commit order, and whoever sees one change sees all before it.
--
-- Of each table: a statement trigger takes the lock before any row is touched, a row trigger drops updates that change nothing and
-- stamps the others, and three statement triggers with transition tables write the log, set by set.

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
    security definer
    set search_path = pg_catalog, pg_temp
    -- the floor is kept as text, which the session may read under another style and zone
    set datestyle = 'ISO'
    set timezone = 'UTC'
as $$
declare
    company_number int;
    locked         text := coalesce(nullif(current_setting('bds.locked', true), ''), ',');
    own_floor      timestamptz;
begin
    if strpos(locked, ',' || company || '=') > 0 then
        return;
    end if;
    perform bds.require_company(company);
    select c.number into company_number from bds.companies c where c.id = company;
    if not found then
        raise exception using errcode = 'BD002', message = format('there is no company %s', coalesce(quote_literal(company), 'null'));
    end if;
    if not pg_try_advisory_xact_lock(bds.lock_space(), company_number) then
        perform bds.wait_for_turn(company, company_number);
    end if;
    -- a snapshot of its own, taken after the lock: it sees what the last holder committed
    select c.last_updated_at + interval '1 microsecond' into own_floor from bds.clocks c where c.company_id = company;
    perform
        -- A foreign key's check is planned for each value as long as that seems cheaper, and of a company that the statistics do not
        -- know it seems to be, by any index: 0.4 ms for each row.  One plan for all values uses the primary key.
        set_config('plan_cache_mode', 'force_generic_plan', true),
        -- ,acme=2026-11-20 08:15:30.123457+00,beta=...,
        set_config('bds.locked', locked || company || '=' || own_floor || ',', true),
        set_config('bds.floor', greatest(own_floor, nullif(current_setting('bds.floor', true), '')::timestamptz)::text, true);
end
$$;
comment on function bds.lock_company(text) is 'Takes the company''s turn to write, until the end of the transaction';

create or replace function bds.floor_of(company text)
    returns timestamptz
    language sql
    stable
    return split_part(split_part(current_setting('bds.locked'), ',' || company || '=', 2), ',', 1)::timestamptz;
comment on function bds.floor_of(text) is 'The earliest updatedAt that this transaction may give out in a company that it has locked';

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
as $$
begin
    perform bds.lock_company(current_setting('bds.company'));
    return null;
end
$$;
comment on function bds.lock_named_company() is 'Statement trigger: takes the named company''s lock before any row';

create or replace function bds.lock_row_company()
    returns trigger
    language plpgsql
as $$
declare
    company text := case when tg_op = 'DELETE' then old.company_id else new.company_id end;
begin
    if bds.current_company() is not null then
        raise exception using
            errcode = 'BD001',
            message = format('this session has named company %L, and the row is of %L', bds.current_company(), company);
    end if;
    perform bds.lock_company(company);
    return case when tg_op = 'DELETE' then old else new end;
end
$$;
comment on function bds.lock_row_company() is 'Row trigger, for sessions that have named no company: takes the lock of the row''s own';

create or replace function bds.refuse_truncate()
    returns trigger
    language plpgsql
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

create or replace function bds.advance(company text, entity_name text, changes bigint, newest timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    top bigint;
begin
    update bds.clocks c
    set last_id = c.last_id + changes, last_updated_at = greatest(c.last_updated_at, newest)
    where c.company_id = company
    returning c.last_id into top;

    update bds.entity_positions p set last_id = top where p.company_id = company and p.entity = entity_name;
    if not found then
        insert into bds.entity_positions (company_id, entity, last_id) values (company, entity_name, top);
    end if;
    perform pg_notify('bds_changes', company);
    return top - changes;
end
$$;
comment on function bds.advance(text, text, bigint, timestamptz) is 'Takes change ids from the company''s clock; returns the id before the first';

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
select l.company_id, l.id, l.entity, l.row_id::text as row_id, l.operation::text as operation, l.change_set_id, l.created_at,
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
comment on column bds.changes.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.changes.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.changes.columns is 'Columns that changed, by API names, child collections among them; of a create or delete all';
comment on column bds.changes.old is 'Of an update the old values of the columns that changed, of a delete the row';

create or replace view bds.positions as
select p.company_id, p.entity, p.last_id
from bds.entity_positions p
where p.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.positions is 'The id of the last change of each entity; it never goes back';
