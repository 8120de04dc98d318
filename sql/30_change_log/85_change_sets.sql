-- Change sets: how many rows of each entity an import, a revert, a session's change set, or a transaction without one, has created,
-- updated and deleted.  Counted are records of the log, those of parents that their children have touched, too.
--
-- Imports and reverts note their counts in the transaction that writes the changes, so a crash leaves both or neither.  All others
-- are counted by bds.maintain, in the order of ids: bds.change_set_positions says how far.  What is not counted yet is counted when
-- it is read, but for the records of long statements beyond the newest 100,000.

create function bds_change_log.add_counts(counts jsonb, more jsonb)
    returns jsonb
    language sql
    immutable
    strict
    return (
        select jsonb_object_agg(s.entity, s.sums)
        from (
            select e.entity, jsonb_build_object(
                'created', sum((e.counts ->> 'created')::bigint), 'updated', sum((e.counts ->> 'updated')::bigint),
                'deleted', sum((e.counts ->> 'deleted')::bigint))
            from (select * from jsonb_each(counts) union all select * from jsonb_each(more)) e (entity, counts)
            group by e.entity
        ) s (entity, sums)
    );
comment on function bds_change_log.add_counts(jsonb, jsonb) is 'The sum of counts by entity and operation; null if either is null';

create function bds_change_log.count_records(company text, ids int8multirange)
    returns table (
        change_set_id uuid, transaction_id xid8, actor text, number bigint, first_id bigint, last_id bigint, first_at timestamptz,
        last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    -- Whatever the planner expects of a company that its statistics do not have: ranges are read by the key, and the few groups of
    -- many records are hashed.  A small import has no time for planning.
    set enable_bitmapscan = off
    set enable_seqscan = off
    set enable_sort = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    since timestamptz;
    until timestamptz;
begin
    select coalesce(max(m.month) filter (where m.first_id <= pg_catalog.lower(ids)), '-infinity'),
        coalesce(min(m.month) filter (where m.first_id >= pg_catalog.upper(ids)), 'infinity')
    into since, until
    from bds.change_months m
    where m.company_id = company;
    return query
        with tallied as (
            select l.change_set_id, case when l.change_set_id is null then l.transaction_id end as transaction_id, l.entity,
                l.operation, l.actor, count(*) as number, min(l.id) as first_id, max(l.id) as last_id,
                min(l.created_at) as first_at, max(l.created_at) as last_at
            from unnest(ids) p (range)
            cross join lateral (
                select c.id, c.change_set_id, c.transaction_id, c.entity, c.operation, c.actor, c.created_at
                from bds.change_log c
                where c.company_id = company and c.id >= pg_catalog.lower(p.range) and c.id < pg_catalog.upper(p.range)
                    and c.created_at >= since and c.created_at < until
                offset 0
            ) l
            group by 1, 2, 3, 4, 5
        ), by_entity as (
            select t.change_set_id, t.transaction_id, t.entity, (array_agg(t.actor order by t.last_id desc))[1] as actor,
                sum(t.number) as number, min(t.first_id) as first_id, max(t.last_id) as last_id, min(t.first_at) as first_at,
                max(t.last_at) as last_at,
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
    'Counts records by change set, or transaction without one, entity and operation; the actor is that of the last record';

-- What is not counted yet: changes of a statement follow one another, so the ends of a long one are found without reading it ------

create function bds_change_log.edge_of(
    company text, inside bigint, outside bigint, since timestamptz, is_whole boolean default false
)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    own    record;
    middle bigint;
begin
    select l.transaction_id, l.created_at, l.change_set_id into own
    from bds.change_log l
    where l.company_id = company and l.id = inside and l.created_at >= since;
    while abs(outside - inside) > 1 loop
        middle := (inside + outside) / 2;
        perform from bds.change_log l
        where l.company_id = company and l.id = middle and l.created_at >= since and l.transaction_id = own.transaction_id
            and (is_whole or l.created_at = own.created_at and l.change_set_id is not distinct from own.change_set_id);
        if found then
            inside := middle;
        else
            outside := middle;
        end if;
    end loop;
    return inside;
end
$$;
comment on function bds_change_log.edge_of(text, bigint, bigint, timestamptz, boolean) is
    'The last change, from one inside towards one outside, that the same statement has written, or transaction if is_whole; since: a '
    'month that is not later than any of them';

create function bds_change_log.uncounted_ids(company text, first_kept bigint, last bigint)
    returns int8multirange
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select int8multirange(int8range(c.last_id, greatest(last, c.last_id), '(]')) - coalesce((
        select range_agg(int8range(s.noted_from, s.noted_to, '[]'))
        from bds.counted_change_sets s
        where s.company_id = company and s.noted_to > c.last_id
    ), '{}')
    from (
        select greatest(first_kept - 1, (select p.last_id from bds.change_set_positions p where p.company_id = company))
    ) c (last_id);
$$;
comment on function bds_change_log.uncounted_ids(text, bigint, bigint) is
    'The changes from the first one that is kept to the last one given that are neither counted nor noted';

create function bds_change_log.long_runs(company text, first bigint, last bigint, since timestamptz)
    returns table (first_id bigint, last_id bigint)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with probes as (
        select p.id, concat_ws(' ', l.transaction_id, l.created_at, l.change_set_id) as owner
        -- as many at most, however long the runs are
        from generate_series(first, last, greatest(5000, (last - first) / 1000)) p (id)
        cross join lateral (
            select c.transaction_id, c.created_at, c.change_set_id
            from bds.change_log c
            where c.company_id = company and c.id = p.id and c.created_at >= since
            offset 0
        ) l
    ), numbered as (
        select p.*, row_number() over (order by p.id) - row_number() over (partition by p.owner order by p.id) as run from probes p
    )
    select bds_change_log.edge_of(company, min(n.id), first - 1, since), bds_change_log.edge_of(company, max(n.id), last + 1, since)
    from numbered n
    group by n.owner, n.run
    having count(*) > 1;
$$;
comment on function bds_change_log.long_runs(text, bigint, bigint, timestamptz) is
    'The changes of each long statement: of all that have more than 10,000, or a five-hundredth of the changes that are looked at';

create function bds_change_log.uncounted_sets(company text, first_kept bigint)
    returns table (
        change_set_id uuid, actor text, first_id bigint, last_id bigint, first_at timestamptz, last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    ids   int8multirange := bds_change_log.uncounted_ids(
        company, first_kept, (select c.last_id from bds.clocks c where c.company_id = company));
    long  int8range[];  -- of these, the changes of statements, which are not read
    since timestamptz;
begin
    if isempty(ids) then
        return;
    end if;
    select coalesce(max(m.month), '-infinity') into since
    from bds.change_months m
    where m.company_id = company and m.first_id <= pg_catalog.lower(ids);
    select coalesce(array_agg(int8range(l.first_id, l.last_id, '[]')) filter (where l.together > 100000), '{}') into long
    from (
        select r.*, sum(r.last_id - r.first_id + 1) over (order by r.last_id desc) as together
        from unnest(ids) i (range)
        cross join lateral (select pg_catalog.lower(i.range) as first, pg_catalog.upper(i.range) - 1 as last) e
        cross join lateral bds_change_log.long_runs(company, e.first, e.last, since) r
        where e.last - e.first >= 10000
    ) l;
    ids := ids - (select coalesce(range_agg(l), '{}') from unnest(long) l);
    return query
        select a.change_set_id, (array_agg(a.actor order by a.last_id desc))[1], min(a.first_id), max(a.last_id), min(a.first_at),
            max(a.last_at), case when bool_and(a.entities is not null) then (array_agg(a.entities))[1] end
        from (
            select c.change_set_id, c.transaction_id, c.actor, c.first_id, c.last_id, c.first_at, c.last_at, c.entities
            from bds_change_log.count_records(company, ids) c
            union all
            select l.change_set_id, case when l.change_set_id is null then l.transaction_id end, l.actor, pg_catalog.lower(r.range),
                l.id, l.created_at, l.created_at, null
            from unnest(long) r (range)
            join bds.change_log l on l.company_id = company and l.id = pg_catalog.upper(r.range) - 1 and l.created_at >= since
        ) a
        group by a.change_set_id, a.transaction_id;
end
$$;
comment on function bds_change_log.uncounted_sets(text, bigint) is
    'The changes that are kept and are not counted yet, by change set, or transaction without one; entities is null if some of them are '
    'of a long statement beyond the newest 100,000';

-- How they are read --------------------------------------------------------------------------------------------------------------

create or replace function bds_service.change_sets(company text, before bigint default null, wanted bigint default null)
    returns table (
        change_set_id uuid, kind text, actor text, first_id bigint, last_id bigint, first_at timestamptz, last_at timestamptz,
        entities jsonb
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
            select u.change_set_id,
                coalesce(
                    s.kind, case when i.id is null then 'session' when i.reverts is null then 'import' else 'revert' end) as kind,
                case when s.last_id > u.last_id then s.actor else u.actor end as actor,
                least(s.first_id, u.first_id) as first_id, greatest(s.last_id, u.last_id) as last_id,
                least(s.first_at, u.first_at) as first_at, greatest(s.last_at, u.last_at) as last_at,
                case when s.last_id is null then u.entities else bds_change_log.add_counts(s.entities, u.entities) end as entities
            from uncounted u
            left join bds.counted_change_sets s on s.company_id = company and s.change_set_id = u.change_set_id
            left join bds.imports i on i.company_id = company and i.id = u.change_set_id
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
    'A page of bds.change_sets of a company, the latest first: those whose last change is before one (null: the latest), as many as '
    'wanted (null: all)';

create or replace view bds.change_sets as
select c.company_id, s.change_set_id, s.kind, s.actor, s.first_id, s.last_id, s.first_at, s.last_at, s.entities
from bds.clocks c cross join lateral bds_service.change_sets(c.company_id) s
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.change_sets is
    'What each change set has done, and each transaction without one: how many changes by entity and operation. What changed nothing, '
    'or is no longer kept, is not in it';
comment on column bds.change_sets.company_id is 'The company';
comment on column bds.change_sets.change_set_id is 'The change set; null: one transaction without a change set';
comment on column bds.change_sets.kind is 'import, revert or session';
comment on column bds.change_sets.actor is 'The actor of its last change';
comment on column bds.change_sets.first_id is 'The id of its first change';
comment on column bds.change_sets.last_id is 'The id of its last change; others may lie between';
comment on column bds.change_sets.first_at is 'When its first change was written';
comment on column bds.change_sets.last_at is 'When its last change was written';
comment on column bds.change_sets.entities is
    'Numbers of changes: {"products": {"created": 1, "updated": 0, "deleted": 0}}; null: bds.maintain has not counted them yet, and '
    'they are beyond the newest 100,000 of long statements';

-- How they are counted -----------------------------------------------------------------------------------------------------------

create function bds_change_log.keep_counts(company text, ids int8multirange, noted uuid default null, noted_kind text default null)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan
as $$
begin
    insert into bds.counted_change_sets as s (
        company_id, change_set_id, kind, actor, first_id, last_id, first_at, last_at, entities, noted_from, noted_to
    )
    select company, r.change_set_id,
        coalesce(noted_kind, case when i.id is null then 'session' when i.reverts is null then 'import' else 'revert' end),
        r.actor, r.first_id, r.last_id, r.first_at, r.last_at, r.entities,
        case when noted is not null then r.first_id end, case when noted is not null then r.last_id end
    from bds_change_log.count_records(company, ids) r
    left join bds.imports i on i.company_id = company and i.id = r.change_set_id
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
end
$$;
comment on function bds_change_log.keep_counts(text, int8multirange, uuid, text) is
    'Adds records to the counts that are kept; of a change set that is noted, only its own, and only if they are one range';

create function bds_change_log.note_change_set(company text, change_set uuid, kind text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- by this transaction, since it noted another one
    written int8range := (
        select int8range(greatest(c.first_id - 1, (
            select max(s.noted_to) from bds.counted_change_sets s where s.company_id = company and s.noted_to >= c.first_id
        )), c.last_id, '(]')
        from bds.clocks c
        where c.company_id = company and c.transaction_id = pg_current_xact_id()
    );
begin
    if not isempty(written) then
        perform bds_change_log.keep_counts(company, int8multirange(written), change_set, kind);
    end if;
end
$$;
comment on function bds_change_log.note_change_set(text, uuid, text) is
    'Keeps what an import or revert has written, at its end: the counts become visible with the changes';

create function bds_change_log.count_company(company text, ends_at timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    first_kept bigint := bds.first_change(company);
    last       bigint := (select r.last_id from bds.residents r where r.company_id = company);
    counted    bigint := greatest(
        first_kept - 1, (select p.last_id from bds.change_set_positions p where p.company_id = company));
    done       bigint := 0;
    upto       bigint;
begin
    while counted < last and clock_timestamp() < ends_at loop
        -- whole transactions
        upto := bds_change_log.edge_of(company, least(counted + 100000, last), last + 1, '-infinity', true);
        perform bds_change_log.keep_counts(company, bds_change_log.uncounted_ids(company, first_kept, upto));
        insert into bds.change_set_positions as p (company_id, last_id, counted_at) values (company, upto, clock_timestamp())
        on conflict (company_id) do update set last_id = excluded.last_id, counted_at = excluded.counted_at;
        done := done + upto - counted;
        counted := upto;
    end loop;
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
