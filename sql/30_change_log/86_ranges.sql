-- Where in the log rows went, or values of a field were replaced: the counts of change sets tell it, so that no index has to be
-- written with every change.  (An index of deletes costs a delete 12 to 20 % of its time, one of creates a create 14 to 23 %, one
-- of replaced codes a delete 28 to 38 %.)

create function bds_change_log.ranges_with(company text, entity text, after bigint, field text default null)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(int8range(s.first_id, s.last_id, '[]')), '{}')
            + bds_change_log.uncounted_ids(company, after + 1, (select c.last_id from bds.clocks c where c.company_id = company))
    from bds.counted_change_sets s
    where s.company_id = company and s.last_id > after and s.entities ? ranges_with.entity and (
        (s.entities -> ranges_with.entity -> 'deleted')::bigint > 0
        or s.replaced -> ranges_with.entity ? field
        -- a column had another name
        or field is not null and s.first_at < bds_change_log.altered_at(ranges_with.entity)
    );
$$;
comment on function bds_change_log.ranges_with(text, text, bigint, text) is
    'Ranges of ids outside of which no change after one has deleted a row of an entity, nor replaced a value of a field (null: of '
    'none); changes that are not counted yet are in them';

create or replace function past.ranges_with(company text, entity text, after bigint, field text default null)
    returns table (first_id bigint, last_id bigint)
    language plpgsql
    stable
    parallel safe
    security definer
    rows 10
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    return query
        select greatest(pg_catalog.lower(r), after + 1), pg_catalog.upper(r) - 1
        from unnest(bds_change_log.ranges_with(company, entity, after, field)) r;
end
$$;
comment on function past.ranges_with(text, text, bigint, text) is
    'Where, after a version, changes are that have deleted rows of an entity or replaced values of a field; others may be among '
    'them';

create or replace function bds_service.find_changes(
    company text, entities text[], operations text[], after bigint, before bigint, newest_first boolean, wanted int
)
    returns bigint[]
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    -- range by range, each in the order of ids: no further than to the last one that is wanted
    set enable_hashjoin = off
    set enable_mergejoin = off
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
    set enable_material = off
as $$
#variable_conflict use_variable
declare
    counts text[] := array(select case o when 'create' then 'created' when 'update' then 'updated' else 'deleted' end
        from unnest(operations) o);
    -- what is counted elsewhere, or not at all, is left out
    ids    int8multirange := int8multirange(int8range(after, before, '()')) * (
        select coalesce(range_agg(int8range(s.first_id, s.last_id, '[]')), '{}')
            + bds_change_log.uncounted_ids(company, after + 1, (select c.last_id from bds.clocks c where c.company_id = company))
        from bds.counted_change_sets s
        where s.company_id = company and s.last_id > after and s.first_id < before and exists (
            select from jsonb_each(s.entities) e
            where (entities is null or e.key = any (entities)) and (operations is null or exists (
                select from unnest(counts) k where (e.value -> k)::bigint > 0))
        )
    );
    since  timestamptz := coalesce((
        select max(m.month) from bds.change_months m where m.company_id = company and m.first_id <= pg_catalog.lower(ids)
    ), '-infinity');
    found  bigint[] := '{}';
    id     bigint;
begin
    perform bds.require_company(company);
    for id in execute format(
        $sql$
        select l.id
        from (select r from unnest($1) r order by r %1$s offset 0) r
        cross join lateral (
            select c.id from bds.change_log c
            where c.company_id = $2 and c.id >= pg_catalog.lower(r.r) and c.id < pg_catalog.upper(r.r) and c.created_at >= $3
                and %2$s and ($5 is null or c.operation::text = any ($5))
            order by c.id %1$s limit $6
        ) l
        $sql$,
        case when newest_first then 'desc' else 'asc' end,
        case cardinality(entities) when 1 then 'c.entity = ($4)[1]' else '($4 is null or c.entity = any ($4))' end
    ) using ids, company, since, entities, operations, wanted
    loop
        found := found || id;
        exit when cardinality(found) >= wanted;
    end loop;
    return found;
end
$$;
comment on function bds_service.find_changes(text, text[], text[], bigint, bigint, boolean, int) is
    'The ids of the first changes between two ids, or the last ones, as many as are wanted, of some entities and operations (null: '
    'of any); only change sets that have such are read';

create or replace function past.number_of(entity text, present bigint)
    returns bigint
    language plpgsql
    stable
    parallel safe
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := current_setting('bds.company');
    version bigint := current_setting('bds.version');
    at      timestamptz := current_setting('bds.version_time');
    moment  timestamptz := current_setting('bds.moment');
    begins  timestamptz := bds_past.begin_of(entity);
begin
    perform bds.require_company(company);
    if moment = '-infinity' or moment < begins or begins is null then
        return 0;  -- an entity has no rows before it was registered
    end if;
    return present - (
        select coalesce(sum((s.entities -> number_of.entity -> 'created')::bigint
            - (s.entities -> number_of.entity -> 'deleted')::bigint), 0)
        from bds.counted_change_sets s
        where s.company_id = company and s.last_id > version and s.first_id > version
    ) - (
        select coalesce(sum(case l.operation when 'create' then 1 when 'delete' then -1 else 0 end), 0)
        from (
            select pg_catalog.lower(r) as first_id, pg_catalog.upper(r) - 1 as last_id, null::uuid as change_set_id, true as is_any
            from unnest(bds_change_log.uncounted_ids(
                company, version + 1, (select c.last_id from bds.clocks c where c.company_id = company))) r
            union all
            -- change sets of before and after the version
            select version + 1, s.last_id, s.change_set_id, false
            from bds.counted_change_sets s
            where s.company_id = company and s.last_id > version and s.first_id <= version
        ) p
        cross join lateral (
            select c.operation, c.change_set_id
            from bds.change_log c
            where c.company_id = company and c.id >= p.first_id and c.id <= p.last_id and c.created_at >= at
                and c.entity = number_of.entity
            offset 0
        ) l
        where p.is_any or l.change_set_id is not distinct from p.change_set_id
    );
end
$$;
comment on function past.number_of(text, bigint) is
    'The number of rows of an entity as of the version of the session, from the number that it has now and what came and went '
    'since';
