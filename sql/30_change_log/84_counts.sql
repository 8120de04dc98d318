-- Change sets: how many rows of each entity an import, a revert, a session's change set, or a transaction without one, has created,
-- updated and deleted.  Counted are records of the log, those of parents that their children have touched, too.
--
-- Imports and reverts note their counts in the transaction that writes the changes, so a crash leaves both or neither.  All others
-- are counted by bds.maintain, in the order of ids: bds.change_set_positions says which.  What is not counted yet is counted when
-- it is read, but for the records of long transactions beyond the newest 100,000.

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
        last_at timestamptz, entities jsonb, replaced jsonb
    )
    language plpgsql
    stable
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
                min(l.created_at) as first_at, max(l.created_at) as last_at,
                past.merge(l.old) filter (where l.operation = 'update') as old  -- as many columns as are changed
            from unnest(ids) p (range)
            cross join lateral (
                select c.id, c.change_set_id, c.transaction_id, c.entity, c.operation, c.actor, c.created_at, c.old
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
                    'deleted', coalesce(sum(t.number) filter (where t.operation = 'delete'), 0)) as counts,
                (select coalesce(jsonb_object_agg(k, true), '{}') from jsonb_object_keys(past.merge(t.old)) k) as columns
            from tallied t
            group by t.change_set_id, t.transaction_id, t.entity
        )
        select e.change_set_id, e.transaction_id, (array_agg(e.actor order by e.last_id desc))[1], sum(e.number)::bigint,
            min(e.first_id), max(e.last_id), min(e.first_at), max(e.last_at), jsonb_object_agg(e.entity, e.counts),
            jsonb_object_agg(e.entity, e.columns)
        from by_entity e
        group by e.change_set_id, e.transaction_id;
end
$$;
comment on function bds_change_log.count_records(text, int8multirange) is
    'Counts records by change set, or transaction without one, entity and operation, and names the columns that updates replaced; '
    'the actor is that of the last record';

create function bds_change_log.edge_of(company text, inside bigint, outside bigint, since timestamptz)
    returns bigint
    language plpgsql
    stable
as $$
declare
    own    xid8 := (
        select l.transaction_id from bds.change_log l where l.company_id = company and l.id = inside and l.created_at >= since
    );
    middle bigint;
begin
    while abs(outside - inside) > 1 loop
        middle := (inside + outside) / 2;
        perform from bds.change_log l
        where l.company_id = company and l.id = middle and l.created_at >= since and l.transaction_id = own;
        if found then
            inside := middle;
        else
            outside := middle;
        end if;
    end loop;
    return inside;
end
$$;
comment on function bds_change_log.edge_of(text, bigint, bigint, timestamptz) is
    'The last change, from one inside towards one outside, that the same transaction has written; since: a month that is not later '
    'than any of them';

create function bds_change_log.remaining_ids(company text, first_kept bigint, last bigint)
    returns int8multirange
    language sql
    stable
as $$
    select int8multirange(int8range(first_kept - 1, greatest(last, first_kept - 1), '(]'))
        - coalesce((select p.counted from bds.change_set_positions p where p.company_id = company), '{}');
$$;
comment on function bds_change_log.remaining_ids(text, bigint, bigint) is
    'The changes from the first one that is kept to the last one given that bds.maintain has not passed: later ones, and those of '
    'a month that was no part of the log when it passed';

create function bds_change_log.uncounted_ids(company text, first_kept bigint, last bigint)
    returns int8multirange
    language sql
    stable
as $$
    select r.ids - coalesce((
        select range_agg(int8range(s.noted_from, s.noted_to, '[]'))
        from bds.counted_change_sets s
        where s.company_id = company and s.noted_to >= pg_catalog.lower(r.ids)
    ), '{}')
    from (select bds_change_log.remaining_ids(company, first_kept, last)) r (ids);
$$;
comment on function bds_change_log.uncounted_ids(text, bigint, bigint) is
    'The changes from the first one that is kept to the last one given that are neither counted nor noted';

create function bds_change_log.keep_counts(company text, ids int8multirange, noted uuid default null, noted_kind text default null)
    returns void
    language plpgsql
    set plan_cache_mode = force_generic_plan
as $$
begin
    insert into bds.counted_change_sets as s (
        company_id, change_set_id, kind, actor, first_id, last_id, first_at, last_at, entities, replaced, noted_from,
        noted_to
    )
    select company, r.change_set_id,
        coalesce(noted_kind, case when i.id is null then 'session' when i.undoes is null then 'import' else 'revert' end),
        r.actor, r.first_id, r.last_id, r.first_at, r.last_at, r.entities, r.replaced,
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
        replaced = s.replaced || excluded.replaced || (
            select coalesce(jsonb_object_agg(e.name, s.replaced -> e.name || (excluded.replaced -> e.name)), '{}')
            from jsonb_object_keys(s.replaced) e (name) where excluded.replaced ? e.name
        ),
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
as $$
declare
    first_kept bigint := bds_change_log.first_kept(company);
    last       bigint := (select r.last_id from bds.residents r where r.company_id = company);
    done       bigint := 0;
    next       int8range;
    upto       bigint;
begin
    while clock_timestamp() < ends_at loop
        select r into next from unnest(bds_change_log.remaining_ids(company, first_kept, last)) r order by r limit 1;
        exit when next is null;
        -- whole transactions
        upto := bds_change_log.edge_of(
            company, least(pg_catalog.lower(next) - 1 + 100000, pg_catalog.upper(next) - 1), pg_catalog.upper(next), '-infinity'
        );
        perform bds_change_log.keep_counts(company, bds_change_log.uncounted_ids(company, pg_catalog.lower(next), upto));
        insert into bds.change_set_positions as p (company_id, counted, counted_at)
        values (company, int8multirange(int8range(pg_catalog.lower(next), upto, '[]')), clock_timestamp())
        on conflict (company_id) do update set counted = p.counted + excluded.counted, counted_at = excluded.counted_at;
        done := done + upto - pg_catalog.lower(next) + 1;
    end loop;
    return done;
end
$$;
comment on function bds_change_log.count_company(text, timestamptz) is
    'Counts changes of a company by change sets, for some time; returns their number';

create function bds_change_log.count_change_sets()
    returns bigint
    language plpgsql
as $$
declare
    ends_at constant timestamptz := clock_timestamp() + interval '1 second';  -- the next call goes on
    this    record;
    done    bigint := 0;
begin
    for this in
        select n.company_id
        from (
            select r.company_id, r.last_id, p.counted_at
            from bds.residents r left join bds.change_set_positions p on p.company_id = r.company_id
            where int8multirange(int8range(0, r.last_id, '(]')) <> coalesce(p.counted, '{}')
            offset 0  -- the months of the few that remain alone are looked at
        ) n
        where not isempty(bds_change_log.remaining_ids(n.company_id, bds_change_log.first_kept(n.company_id), n.last_id))
        order by n.counted_at nulls first
    loop
        done := done + bds_change_log.count_company(this.company_id, ends_at);
        exit when clock_timestamp() > ends_at;
    end loop;
    return done;
end
$$;
comment on function bds_change_log.count_change_sets() is
    'Counts changes by change sets, company by company, those first that were counted longest ago; returns the number of changes';
