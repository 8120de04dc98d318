-- The change log: one record for each real change of a row, whoever writes.
--
-- One writer per company at a time.  A writer holds the company's lock from its first write to its commit; ids come from the
-- company's clock.  So ids and updatedAt follow commit order, and whoever sees one change sees all before it.
--
-- Of each table: a statement trigger takes the lock before any row is touched, a row trigger drops updates that change nothing and
-- stamps the others, and three statement triggers with transition tables write the log, set by set.
--
-- The turn is in 03_change_log_turn.sql, the triggers in 03_change_log_triggers.sql, past states in 03_change_log_history.sql.

create function bds_change_log.advance(company text, entity_name text, changes bigint, oldest timestamptz, newest timestamptz)
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
            pg_try_advisory_xact_lock(bds_change_log.lock_space(), c.number)
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
comment on function bds_change_log.advance(text, text, bigint, timestamptz, timestamptz) is
    'Takes change ids from the company''s clock for rows stamped from oldest to newest; returns the id before the first';

create function bds_change_log.turn_floor(company text)
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
comment on function bds_change_log.turn_floor(text) is
    'What this transaction has stamped in the company whose clock it has advanced last is not before this, all else is';

create function bds_change_log.name_collection(
    company text, parent_entity text, collection_name text, parents bigint[]
)
    returns bigint[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    -- A plan made for three parents is kept for a million: index probes are right for both, hash joins for neither.
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off  -- the bound on created_at is for the partitions, not to be read from its index for each parent
as $$
declare
    unrecorded bigint[];
    silent     bigint[];  -- parents with a record that does not name the collection, and those records
    recorded   bigint[];
begin
    -- The row's own records first, then which of them is ours.  Of a company that its statistics do not know the planner expects one
    -- row: every index then seems as good as the right one, so the conditions that could choose a wrong one stand outside.
    -- The bound on created_at lets it leave old partitions alone; a day covers any step of the clock.
    select array_agg(p.id) filter (where own.id is null), array_agg(p.id) filter (where own.is_silent),
        array_agg(own.id) filter (where own.is_silent)
    into unrecorded, silent, recorded
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

    if cardinality(recorded) > 100 then
        -- Planned with the records in sight: the planner reads the log once, if not by its index, and looks each row up among them.
        execute $sql$
            update bds.change_log l
            set collections = l.collections || $1
            where l.company_id = $2 and l.id = any ($3) and l.created_at > transaction_timestamp() - interval '1 day'
        $sql$ using collection_name, company, recorded;
    elsif recorded is not null then
        update bds.change_log l
        set collections = l.collections || collection_name
        from unnest(silent, recorded) as own (row_id, id)
        where l.row_id = own.row_id and l.company_id || '' = company and l.id + 0 = own.id
            and l.created_at > transaction_timestamp() - interval '1 day';
    end if;
    return unrecorded;
end
$$;
comment on function bds_change_log.name_collection(text, text, text, bigint[]) is
    'Adds a collection to the records that this transaction has made of the parents; returns the parents of which it has none';

create or replace view bds.entity_positions as
select c.company_id, p.key as entity, p.value::bigint as last_id
from bds.clocks c cross join jsonb_each_text(c.positions) p;
comment on view bds.entity_positions is 'The id of the last change of each company and entity';
comment on column bds.entity_positions.company_id is 'The company';
comment on column bds.entity_positions.entity is 'The entity''s API name';
comment on column bds.entity_positions.last_id is 'The id of its last change';

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

create or replace view bds.company_positions as
select c.company_id, c.positions
from bds.clocks c
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.company_positions is 'The same by company, as it is kept: what a version of the data is made of, at each request';
comment on column bds.company_positions.company_id is 'The company';
comment on column bds.company_positions.positions is 'The id of the last change of each entity, by its API name';
