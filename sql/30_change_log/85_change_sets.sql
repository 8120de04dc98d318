-- Change sets: how many rows of each entity an import, a revert, a session's change set, or a transaction without one, has created,
-- updated and deleted.  Counted are records of the log, those of parents that their children have touched, too.
--
-- Imports and reverts note their counts in the transaction that writes the changes, so a crash leaves both or neither.  All others are
-- counted by bds.maintain, in the order of ids: bds.change_set_positions says how far.  What is not counted yet is counted when
-- it is read, but for the records of long transactions beyond the first 100,000.

create function bds_change_log.add_counts(counts jsonb, more jsonb)
    returns jsonb
    language sql
    immutable
    return case
        when counts = '{}' then more
        when more is null then null
        else (
            select jsonb_object_agg(s.entity, s.sums)
            from (
                select e.entity, jsonb_build_object(
                    'created', sum((e.counts ->> 'created')::bigint), 'updated', sum((e.counts ->> 'updated')::bigint),
                    'deleted', sum((e.counts ->> 'deleted')::bigint))
                from (select * from jsonb_each(counts) union all select * from jsonb_each(more)) e (entity, counts)
                group by e.entity
            ) s (entity, sums)
            having counts is not null
        )
    end;
comment on function bds_change_log.add_counts(jsonb, jsonb) is 'The sum of counts by entity and operation; null if either is null';

create aggregate bds_change_log.sum_counts(jsonb) (sfunc = bds_change_log.add_counts, stype = jsonb, initcond = '{}');
comment on aggregate bds_change_log.sum_counts(jsonb) is 'The sum of counts by entity and operation; null if any of them is null';

create function bds_change_log.count_records(company text, ids int8multirange)
    returns table (
        change_set_id uuid, transaction_id xid8, actor text, number bigint, first_id bigint, last_id bigint, first_at timestamptz,
        last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    -- Ranges are read by the key, whatever the planner expects of a company that its statistics do not have
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
declare
    since timestamptz;
    until timestamptz;
begin
    select coalesce(max(m.month) filter (where m.first_id <= lower(ids)), '-infinity'),
        coalesce(min(m.month) filter (where m.first_id >= upper(ids)), 'infinity')
    into since, until
    from bds.change_months m
    where m.company_id = company;
    return query
        with tallied as (
            select l.change_set_id, case when l.change_set_id is null then l.transaction_id end as transaction_id, l.entity, l.operation,
                l.actor, count(*) as number, min(l.id) as first_id, max(l.id) as last_id, min(l.created_at) as first_at,
                max(l.created_at) as last_at
            from unnest(ids) p (range)
            cross join lateral (
                select c.id, c.change_set_id, c.transaction_id, c.entity, c.operation, c.actor, c.created_at
                from bds.change_log c
                where c.company_id = company and c.id >= lower(p.range) and c.id < upper(p.range)
                    and c.created_at >= since and c.created_at < until
                offset 0
            ) l
            group by 1, 2, 3, 4, 5
        ), by_entity as (
            select t.change_set_id, t.transaction_id, t.entity, (array_agg(t.actor order by t.last_id desc))[1] as actor,
                sum(t.number) as number, min(t.first_id) as first_id, max(t.last_id) as last_id, min(t.first_at) as first_at, max(t.last_at) as last_at,
                jsonb_build_object(
                    'created', coalesce(sum(t.number) filter (where t.operation = 'create'), 0),
                    'updated', coalesce(sum(t.number) filter (where t.operation = 'update'), 0),
                    'deleted', coalesce(sum(t.number) filter (where t.operation = 'delete'), 0)) as counts
            from tallied t
            group by t.change_set_id, t.transaction_id, t.entity
        )
        select e.change_set_id, e.transaction_id, (array_agg(e.actor order by e.last_id desc))[1], sum(e.number)::bigint,
            min(e.first_id), max(e.last_id), min(e.first_at), max(e.last_at), jsonb_object_agg(e.entity, e.counts)
        from by_entity e
        group by e.change_set_id, e.transaction_id;
end
$$;
comment on function bds_change_log.count_records(text, int8multirange) is
    'Counts records of a company by change set, or transaction without one, entity and operation; the actor is that of the last record';

-- Where an id belongs to what its neighbours belong to: all changes of a transaction follow one another. ------------------------------

create function bds_change_log.owner_of(company text, id bigint, since timestamptz, is_whole boolean default false)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select concat_ws(' ', l.transaction_id, case when not is_whole then l.change_set_id end)
    from bds.change_log l
    where l.company_id = company and l.id = owner_of.id and l.created_at >= since;
$$;
comment on function bds_change_log.owner_of(text, bigint, timestamptz, boolean) is
    'The transaction of a change and, unless is_whole, its change set, as one text; since: the month of this or an earlier change';

create function bds_change_log.edge_of(company text, inside bigint, outside bigint, since timestamptz, is_whole boolean default false)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    owner  text := bds_change_log.owner_of(company, inside, since, is_whole);
    middle bigint;
begin
    while abs(outside - inside) > 1 loop
        middle := (inside + outside) / 2;
        if bds_change_log.owner_of(company, middle, since, is_whole) = owner then
            inside := middle;
        else
            outside := middle;
        end if;
    end loop;
    return inside;
end
$$;
comment on function bds_change_log.edge_of(text, bigint, bigint, timestamptz, boolean) is
    'The last change, from one inside towards one outside, that its transaction has written, in its change set unless is_whole';

create function bds_change_log.long_runs(company text, ids int8range, since timestamptz)
    returns table (first_id bigint, last_id bigint)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with probes as (
        select p.id, bds_change_log.owner_of(company, p.id, since) as owner
        -- few probes find whatever is long: time does not follow its length
        from generate_series(lower(ids), upper(ids) - 1, greatest(5000, (upper(ids) - lower(ids)) / 1000)) p (id)
    ), numbered as (
        select p.*, row_number() over (order by p.id) - row_number() over (partition by p.owner order by p.id) as run from probes p
    )
    select bds_change_log.edge_of(company, min(n.id), lower(ids) - 1, since), bds_change_log.edge_of(company, max(n.id), upper(ids), since)
    from numbered n
    group by n.owner, n.run
    having count(*) > 1;
$$;
comment on function bds_change_log.long_runs(text, int8range, timestamptz) is
    'Runs of changes that one transaction has written in one change set, all that have more than 10,000 or, in a range of more than five '
    'million, a five-hundredth of it';

create function bds_change_log.uncounted_sets(company text, first_kept bigint)
    returns table (
        change_set_id uuid, actor text, first_id bigint, last_id bigint, first_at timestamptz, last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    counted bigint := greatest(
        first_kept - 1, (select p.last_id from bds.change_set_positions p where p.company_id = uncounted_sets.company));
    -- not counted, read, and long runs that are not read
    ids     int8multirange := int8multirange(int8range(counted, (select c.last_id from bds.clocks c where c.company_id = company), '(]'));
    since   timestamptz;
    long    int8multirange;
begin
    ids := ids - coalesce((
        select range_agg(int8range(s.noted_from, s.noted_to, '[]'))
        from bds.counted_change_sets s
        where s.company_id = company and s.noted_to > counted
    ), '{}');
    if isempty(ids) then
        return;
    end if;
    select coalesce(max(m.month), '-infinity') into since
    from bds.change_months m
    where m.company_id = company and m.first_id <= lower(ids);
    select coalesce(range_agg(int8range(l.first_id, l.last_id, '[]')) filter (where l.together > 100000), '{}') into long
    from (
        select r.*, sum(r.last_id - r.first_id + 1) over (order by r.last_id desc) as together
        from unnest(ids) i (range) cross join lateral bds_change_log.long_runs(company, i.range, since) r
        where upper(i.range) - lower(i.range) > 10000
    ) l;
    return query
        select a.change_set_id, (array_agg(a.actor order by a.last_id desc))[1], min(a.first_id), max(a.last_id), min(a.first_at),
            max(a.last_at), bds_change_log.sum_counts(a.entities)
        from (
            select c.change_set_id, c.transaction_id, c.actor, c.first_id, c.last_id, c.first_at, c.last_at, c.entities
            from bds_change_log.count_records(company, ids - long) c
            union all
            select h.change_set_id, case when h.change_set_id is null then h.transaction_id end, h.actor, lower(r.range), h.id,
                t.created_at, h.created_at, null
            from unnest(long) r (range)
            join bds.change_log h on h.company_id = company and h.id = upper(r.range) - 1 and h.created_at >= since
            join bds.change_log t on t.company_id = company and t.id = lower(r.range) and t.created_at >= since
        ) a
        group by a.change_set_id, a.transaction_id;
end
$$;
comment on function bds_change_log.uncounted_sets(text, bigint) is
    'The changes that are kept and that nobody has counted, by change set, or transaction without one; entities is null for long '
    'transactions beyond 100,000 changes';

-- How they are read --------------------------------------------------------------------------------------------------------------

create function bds_change_log.kind_of(company text, change_set uuid)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce((
        select case when i.reverts is null then 'import' else 'revert' end
        from bds.imports i
        where i.company_id = company and i.id = change_set
    ), 'session');
$$;
comment on function bds_change_log.kind_of(text, uuid) is 'What has made a change set: import, revert or session';

create or replace function bds_service.change_sets(company text, before bigint default null, wanted bigint default null)
    returns table (
        change_set_id uuid, kind text, actor text, first_id bigint, last_id bigint, first_at timestamptz, last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_custom_plan  -- planned for a page, or for all
as $$
#variable_conflict use_column
declare
    first_kept bigint;
begin
    perform bds.require_company(company);
    first_kept := bds_change_log.lock_first_change(company);
    return query
        with uncounted as materialized (select * from bds_change_log.uncounted_sets(company, first_kept)),
        added as (
            select u.change_set_id, coalesce(s.kind, bds_change_log.kind_of(company, u.change_set_id)) as kind,
                case when s.last_id > u.last_id then s.actor else u.actor end as actor,
                least(s.first_id, u.first_id) as first_id, greatest(s.last_id, u.last_id) as last_id,
                least(s.first_at, u.first_at) as first_at, greatest(s.last_at, u.last_at) as last_at,
                bds_change_log.add_counts(coalesce(s.entities, '{}'), u.entities) as entities
            from uncounted u
            left join bds.counted_change_sets s on s.company_id = company and s.change_set_id = u.change_set_id
        )
        (select * from added a where a.last_id < before or before is null)
        union all
        (
            select s.change_set_id, s.kind, s.actor, s.first_id, s.last_id, s.first_at, s.last_at, s.entities
            from bds.counted_change_sets s
            where s.company_id = company and s.last_id >= first_kept and (s.last_id < before or before is null)
                and (s.change_set_id in (select u.change_set_id from uncounted u where u.change_set_id is not null)) is not true
            order by s.last_id desc
            limit wanted
        )
        order by last_id desc
        limit wanted;
end
$$;
comment on function bds_service.change_sets(text, bigint, bigint) is
    'A page of bds.change_sets of a company, the latest first: those whose last change is before one (null: the latest), as many as wanted '
    '(null: all)';

create or replace view bds.change_sets as
select c.company_id, s.change_set_id, s.kind, s.actor, s.first_id, s.last_id, s.first_at, s.last_at, s.entities
from bds.clocks c cross join lateral bds_service.change_sets(c.company_id) s
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.change_sets is
    'What each change set has done, and each transaction without one: how many changes by entity and operation. What changed nothing, or '
    'is no longer kept, is not in it';
comment on column bds.change_sets.company_id is 'The company';
comment on column bds.change_sets.change_set_id is 'The change set; null: one transaction without a change set';
comment on column bds.change_sets.kind is 'import, revert or session';
comment on column bds.change_sets.actor is 'The actor of its last change';
comment on column bds.change_sets.first_id is 'The id of its first change';
comment on column bds.change_sets.last_id is 'The id of its last change; others may lie between';
comment on column bds.change_sets.first_at is 'When its first change was written';
comment on column bds.change_sets.last_at is 'When its last change was written';
comment on column bds.change_sets.entities is
    'Numbers of changes: {"products": {"created": 1, "updated": 0, "deleted": 0}}; null: more than 100,000 of them are to be counted by '
    'bds.maintain';

-- How they are counted -----------------------------------------------------------------------------------------------------------

create function bds_change_log.keep_counts(company text, ids int8multirange, noted uuid default null, noted_kind text default null)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    insert into bds.counted_change_sets as s (
        company_id, change_set_id, kind, actor, first_id, last_id, first_at, last_at, entities, noted_from, noted_to
    )
    select company, r.change_set_id, coalesce(noted_kind, bds_change_log.kind_of(company, r.change_set_id)), r.actor, r.first_id,
        r.last_id, r.first_at, r.last_at, r.entities, case when noted = r.change_set_id then r.first_id end,
        case when noted = r.change_set_id then r.last_id end
    from bds_change_log.count_records(company, ids) r
    -- changes between whose other set a trigger has named, are left to bds.maintain, and so are those around them
    where noted is null or r.change_set_id = noted and r.number = r.last_id - r.first_id + 1
    on conflict (company_id, change_set_id) where change_set_id is not null do update
    set kind = case when noted is null then s.kind else excluded.kind end,
        actor = case when excluded.last_id > s.last_id then excluded.actor else s.actor end,
        first_id = least(s.first_id, excluded.first_id), last_id = greatest(s.last_id, excluded.last_id),
        first_at = least(s.first_at, excluded.first_at), last_at = greatest(s.last_at, excluded.last_at),
        entities = bds_change_log.add_counts(s.entities, excluded.entities),
        noted_from = coalesce(s.noted_from, excluded.noted_from), noted_to = coalesce(s.noted_to, excluded.noted_to)
    where noted is null or s.noted_from is null;  -- one range for each
$$;
comment on function bds_change_log.keep_counts(text, int8multirange, uuid, text) is
    'Adds records to the counts that are kept; of a change set that is noted, only its own, and only if they are one range';

create function bds_change_log.note_change_set(company text, change_set uuid, kind text)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    -- what this transaction has written since it noted another one
    select bds_change_log.keep_counts(
        company, int8multirange(int8range(greatest(c.first_id - 1, n.last_id), c.last_id, '(]')), change_set, kind
    )
    from bds.clocks c
    cross join lateral (
        select max(s.noted_to) as last_id from bds.counted_change_sets s where s.company_id = company and s.noted_to >= c.first_id
    ) n
    where c.company_id = company and c.transaction_id = pg_current_xact_id() and c.last_id > greatest(c.first_id - 1, n.last_id);
$$;
comment on function bds_change_log.note_change_set(text, uuid, text) is
    'Keeps what an import or revert has written, at its end: the counts become visible with the changes';

create function bds_change_log.count_company(company text, ends_at timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    first_id bigint := bds.first_change(company);
    counted  bigint := coalesce((select p.last_id from bds.change_set_positions p where p.company_id = company), 0);
    last     bigint := (select r.last_id from bds.residents r where r.company_id = company);
    upto     bigint;
    done     bigint := 0;
begin
    while counted < last and clock_timestamp() < ends_at loop
        counted := greatest(counted, first_id - 1);
        -- whole transactions
        upto := bds_change_log.edge_of(company, least(counted + 100000, last), last + 1, '-infinity', true);
        perform bds_change_log.keep_counts(company, int8multirange(int8range(counted, upto, '(]')) - coalesce((
            select range_agg(int8range(s.noted_from, s.noted_to, '[]'))
            from bds.counted_change_sets s
            where s.company_id = company and s.noted_to > counted
        ), '{}'));
        done := done + upto - counted;
        counted := upto;
    end loop;
    insert into bds.change_set_positions as p (company_id, last_id, counted_at) values (company, counted, clock_timestamp())
    on conflict (company_id) do update set last_id = excluded.last_id, counted_at = excluded.counted_at;
    return done;
end
$$;
comment on function bds_change_log.count_company(text, timestamptz) is
    'Counts changes of a company by change sets, for some time; returns their number';

create function bds_change_log.count_change_sets()
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ends_at constant timestamptz := clock_timestamp() + interval '1 second';  -- the next call goes on
    this    record;
    done    bigint := 0;
begin
    for this in
        select r.company_id
        from bds.residents r left join bds.change_set_positions p on p.company_id = r.company_id
        where r.last_id > coalesce(p.last_id, 0)
        order by p.counted_at nulls first
    loop
        done := done + bds_change_log.count_company(this.company_id, ends_at);
        exit when clock_timestamp() > ends_at;
    end loop;
    return done;
end
$$;
comment on function bds_change_log.count_change_sets() is
    'Counts changes by change sets, company by company, those first that were counted longest ago; returns the number of changes';
