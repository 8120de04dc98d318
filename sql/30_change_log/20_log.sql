-- The change log: one record for each change of a row, by any writer.
--
-- A company has one writer at a time.  The writer holds the company's turn from its first write to its commit, and takes ids from
-- the company's clock.  So ids and updatedAt follow commit order: a reader that sees one change sees every change before it.
--
-- Each table has a statement trigger that takes the turn before any row is locked, a row trigger that skips updates without a
-- change and stamps the other rows, and three statement triggers that log a whole statement from its transition tables.

create function bds_change_log.advance(
    company text, entity_name text, changes bigint, oldest timestamptz default null, newest timestamptz default null,
    early bigint default 0, announces jsonb default null, out base bigint, out at timestamptz, out floor timestamptz,
    out touched text, out settles boolean, out interleaved boolean, out overtaken boolean
)
    language plpgsql
as $$
declare
    -- The ctid of the clock's row when this transaction last read it: an index scan would visit all of its dead versions.
    clock_at tid := nullif(current_setting('bds.clock', true), '')::tid;
    own   xid8 := pg_current_xact_id();
    depth int := pg_trigger_depth();
    now   timestamptz := greatest(clock_timestamp(), newest);
    new_month timestamptz;
    month_id  bigint;
    is_later  boolean;  -- than a promotion or a recovery, since which the company was not written
begin
    loop
        update bds.clocks c
        set last_id = c.last_id + case when c.transaction_id = own and c.settles = depth then 0 else changes end,
            last_updated_at = greatest(c.last_updated_at, now),
            transaction_id = own,
            first_id = case when c.transaction_id = own then c.first_id else c.last_id + 1 end,
            floor = case when c.transaction_id = own then c.floor else c.last_updated_at + interval '1 microsecond' end,
            month = bds_change_log.month_of(c.last_updated_at, oldest, newest, now),
            month_id = case
                when c.month = bds_change_log.month_of(c.last_updated_at, oldest, newest, now) then c.month_id
                else c.last_id + 1 + case when c.last_updated_at <= oldest then early else 0 end
            end,
            positions = case
                when c.transaction_id = own and c.settles = depth then c.positions
                else c.positions || jsonb_build_object(entity_name, c.last_id + changes)
            end,
            touched = case when c.transaction_id = own then c.announced ->> depth::text end,
            announced = case
                when c.transaction_id = own and c.announced is not null
                then nullif(c.announced - depth::text || coalesce(announces, '{}'), '{}') else announces
            end,
            settles = case when c.transaction_id = own then c.settles end,
            timeline = coalesce(c.timeline, bds_change_log.timeline()),
            interleaved = c.transaction_id = own and (c.positions ->> entity_name)::bigint >= c.first_id
                and c.last_updated_at >= coalesce(oldest, '-infinity'),
            overtaken = coalesce(c.last_updated_at > oldest, true)
        where c.ctid = clock_at and c.company_id = company
        returning c.last_id - case when c.settles = depth then 0 else changes end, c.last_updated_at, c.floor, c.touched,
            coalesce(c.settles = depth, false), c.interleaved, c.overtaken,
            case when c.month_id > c.last_id - changes then c.month end, c.month_id, c.timeline <> bds_change_log.timeline(),
            case when oldest < c.floor or newest > greatest(clock_timestamp(), c.floor)
                then bds_change_log.refuse_turn(company) end,
            set_config('bds.clock', c.ctid::text, true),
            case when c.first_id > c.last_id - changes then bds_change_log.ring(company) end
        into base, at, floor, touched, settles, interleaved, overtaken, new_month, month_id, is_later;
        exit when found;
        -- the setting is the ctid of another company's clock, or is forged
        select c.ctid into strict clock_at from bds.clocks c where c.company_id = company for no key update;
    end loop;
    perform bds_change_log.begin_generation(company, base) where is_later;
    perform bds_change_log.begin_months(company, oldest, new_month, base + 1, month_id) where new_month is not null and not settles;
end
$$;
comment on function bds_change_log.advance(text, text, bigint, timestamptz, timestamptz, bigint, jsonb) is
    'Takes change ids from the company''s clock for the rows of a statement, stamped between oldest and newest (null: deleted), so '
    'many of them (early) before the month of the newest. Returns base, the id before the first of them; at, the time of these '
    'changes, which is never less than the time of an earlier change; floor, the earliest stamp of this transaction; the '
    'collection if the statement touches parents (announces: {"2": "items"}, for the next statement at that depth of triggers); '
    'whether it settles, see bds_change_log.settle, and has taken no ids; whether it interleaved with others, see put_in_order; '
    'and whether it was overtaken: others have logged changes since its first row was stamped, so that its changes have the time '
    '`at`, not their rows''';

create function bds_change_log.ring(company text)
    returns text
    language plpgsql
as $$
declare
    ms bigint := 1000 * extract(epoch from clock_timestamp());
begin
    -- While the keeper of the bell is awake it notifies, so that this commit waits for no other.  If the machine's clock went back,
    -- the bell may be far ahead.  One that has notified cannot be prepared, and this one must not be, whatever turn it claims.
    if exists (select from bds.bell b where b.last_value between ms and ms + 1000) then
        return bds_change_log.forbid_prepare()::text;
    end if;
    perform pg_notify('bds_changes', company);
    return null;
end
$$;
comment on function bds_change_log.ring(text) is
    'Notifies of the first change of a transaction, unless the keeper of the bell is awake, who does so';

create function bds_change_log.month_of(last timestamptz, oldest timestamptz, newest timestamptz, now timestamptz)
    returns timestamptz
    language sql
    immutable
    return date_trunc('month', greatest(last, case when last <= oldest then newest else now end), 'UTC');
comment on function bds_change_log.month_of(timestamptz, timestamptz, timestamptz, timestamptz) is
    'The month of the last change of a statement that follows a change at a time: that of its newest row, or of now if it was '
    'overtaken';

create function bds_change_log.begin_months(
    company text, oldest timestamptz, month timestamptz, first bigint, first_of_month bigint
)
    returns void
    language plpgsql
as $$
declare
    before timestamptz := date_trunc('month', oldest, 'UTC');
begin
    if first < first_of_month
        and not exists (select from bds.change_months m where m.company_id = company and m.month = before)
    then
        perform bds_change_log.begin_month(company, before, first);
    end if;
    perform bds_change_log.begin_month(company, month, first_of_month);
end
$$;
comment on function bds_change_log.begin_months(text, timestamptz, timestamptz, bigint, bigint) is
    'Stores the first change of a company in a month, and in the month before if a statement over its end has the first one there, '
    'too';

create function bds_change_log.refuse_turn(company text)
    returns void
    language plpgsql
as $$
begin
    raise exception using
        errcode = '40001',
        message = format('rows of company %s were written out of turn', company),
        hint = 'try again, without a value for updated_at; if it fails again: a trigger that fires after bds_2_stamp has set '
            'updated_at, or the session bds.turns';
end
$$;
comment on function bds_change_log.refuse_turn(text) is
    'Raises 40001 for a change out of turn, or with a time that the clock did not give: any session can set the settings';

create function bds_change_log.withdraw(company text)
    returns void
    language sql
as $$
    update bds.clocks c set announced = nullif(c.announced - (pg_trigger_depth() + 1)::text, '{}') where c.company_id = company;
$$;
comment on function bds_change_log.withdraw(text) is 'Withdraws what bds_change_log.advance has announced: no parent was touched';

create function bds_change_log.name_collection(
    company text, parent_entity text, collection_name text, parents bigint[]
)
    returns bigint[]
    language plpgsql
    -- A plan made for three parents is reused for a million: index probes suit both.
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_bitmapscan = off  -- the bound on created_at prunes partitions; its index is not to be read for each parent
as $$
declare
    unrecorded bigint[];
    silent     bigint[];  -- parents whose record lacks the collection, and those records
    recorded   bigint[];
begin
    -- The row's records first, then those of this transaction.  For a company without statistics the planner expects one row, so
    -- any index seems as good as the right one: conditions that could choose a wrong one are outside the subquery. The bound on
    -- created_at prunes old partitions; a day covers any step of the clock.
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
        -- Planned with the actual records: the planner reads the log once, or by its index, and looks each row up among them.
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
    'Adds a collection to the records of these parents that this transaction has written; returns the parents without such a '
    'record';
