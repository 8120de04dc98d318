-- Change sets as they are read: what is counted, and what is not counted yet.  Changes of a transaction follow one another, so the
-- ends of a long one are found by halving.

create function bds_change_log.long_transactions(company text, first bigint, last bigint, since timestamptz)
    returns table (first_id bigint, last_id bigint)
    language sql
    stable
as $$
    with probes as (
        select p.id, l.transaction_id
        -- as many at most, however long the transactions are
        from generate_series(first, last, greatest(5000, (last - first) / 1000)) p (id)
        cross join lateral (
            select c.transaction_id
            from bds.change_log c
            where c.company_id = company and c.id = p.id and c.created_at >= since
            offset 0
        ) l
    )
    select bds_change_log.edge_of(company, min(p.id), first - 1, since), bds_change_log.edge_of(company, max(p.id), last + 1, since)
    from probes p
    group by p.transaction_id
    having count(*) > 1;
$$;
comment on function bds_change_log.long_transactions(text, bigint, bigint, timestamptz) is
    'The changes of each long transaction: of all that have more than 10,000, or a five-hundredth of the changes that are looked '
    'at';

create function bds_change_log.uncounted_sets(company text, first_kept bigint)
    returns table (
        change_set_id uuid, actor text, first_id bigint, last_id bigint, first_at timestamptz, last_at timestamptz, entities jsonb
    )
    language plpgsql
    stable
as $$
declare
    ids   int8multirange := bds_change_log.uncounted_ids(
        company, first_kept, (select c.last_id from bds.clocks c where c.company_id = company));
    long  int8range[];  -- of these, the changes of transactions, which are not counted
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
        cross join lateral bds_change_log.long_transactions(company, e.first, e.last, since) r
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
            select l.change_set_id, case when l.change_set_id is null then min(l.transaction_id) end,
                (array_agg(l.actor order by l.id desc))[1], min(l.id), max(l.id), min(l.created_at), max(l.created_at), null
            from unnest(long) r (range)
            join bds.change_log l on l.company_id = company and l.id >= pg_catalog.lower(r.range)
                and l.id < pg_catalog.upper(r.range) and l.created_at >= since
            group by r.range, l.change_set_id
        ) a
        group by a.change_set_id, a.transaction_id;
end
$$;
comment on function bds_change_log.uncounted_sets(text, bigint) is
    'The changes that are kept and are not counted yet, by change set, or transaction without one; entities is null if some of '
    'them are of a long transaction beyond the newest 100,000';

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
                    s.kind, case when i.id is null then 'session' when i.undoes is null then 'import' else 'revert' end) as kind,
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
    'A page of bds.change_sets of a company, the latest first: those whose last change is before one (null: the latest), as many '
    'as wanted (null: all)';

create or replace view bds.change_sets as
select c.company_id, s.change_set_id, s.kind, s.actor, s.first_id, s.last_id, s.first_at, s.last_at, s.entities
from bds.clocks c cross join lateral bds_service.change_sets(c.company_id) s
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.change_sets is
    'What each change set has done, and each transaction without one: how many changes by entity and operation. What changed '
    'nothing, or is no longer kept, is not in it';
comment on column bds.change_sets.company_id is 'The company';
comment on column bds.change_sets.change_set_id is 'The change set; null: one transaction without a change set';
comment on column bds.change_sets.kind is 'import, revert or session';
comment on column bds.change_sets.actor is 'The actor of its last change';
comment on column bds.change_sets.first_id is 'The id of its first change';
comment on column bds.change_sets.last_id is 'The id of its last change; others may lie between';
comment on column bds.change_sets.first_at is 'When its first change was written';
comment on column bds.change_sets.last_at is 'When its last change was written';
comment on column bds.change_sets.entities is
    'Numbers of changes: {"products": {"created": 1, "updated": 0, "deleted": 0}}; null: bds.maintain has not counted them yet, '
    'and they are beyond the newest 100,000 of long transactions';
