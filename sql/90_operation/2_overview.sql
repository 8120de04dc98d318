-- Figures about a company at a constant cost: nothing here reads all of its rows or changes.

create function bds_operation.counted_rows(company text, entity_name text)
    returns bigint
    language plpgsql
    stable
as $$
declare
    most constant bigint := 100000;  -- changes since, which are read
    last_id       bigint := (select c.last_id from bds.clocks c where c.company_id = company);
    known         record;
begin
    select i.position, (i.row_counts ->> entity_name)::bigint as rows into known
    from (select i.position, i.row_counts from bds.imports i where i.company_id = company order by i.number desc limit 100) i
    where i.row_counts ? entity_name
    order by i.position desc
    limit 1;
    if not found or last_id - known.position not between 0 and most
        or known.position < bds.first_change(company) - 1
        or bds_past.is_registered(company, entity_name, known.position) is not true
    then
        return null;
    end if;
    return known.rows + (
        select count(*) filter (where l.operation = 'create') - count(*) filter (where l.operation = 'delete')
        from bds.change_log l
        where l.company_id = company and l.id > known.position and l.entity = entity_name
    );
end
$$;
comment on function bds_operation.counted_rows(text, text) is
    'The number of rows of an entity, from what an import has counted and the changes since; null if it is not known';

create or replace function bds_service.count_rows(company text, at_most int default 10000)
    returns table (entity text, rows bigint, is_estimate boolean)
    language plpgsql
    volatile  -- explain is refused in a stable function
    security definer
    set search_path = pg_catalog, pg_temp
    -- a bounded count needs an index scan, whatever the statistics of the company are
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    this    record;
    counted bigint;
begin
    perform bds.require_company(company);
    for this in
        select e.name, e.table_name from bds.entities e
        where exists (select from pg_class c where c.oid = e.table_name)
        order by e.ordinal
    loop
        entity := this.name;
        execute format('select count(*) from (select 1 from %s r where r.company_id = $1 limit $2) as found', this.table_name)
        into rows using company, at_most + 1;
        is_estimate := rows > at_most;
        if is_estimate then
            counted := bds_operation.counted_rows(company, entity);
            is_estimate := counted is null;
            rows := coalesce(counted, rows);
        end if;
        if is_estimate then
            rows := greatest(at_most, bds_impl.estimated_rows(this.table_name, company));
        end if;
        return next;
    end loop;
end
$$;
comment on function bds_service.count_rows(text, int) is
    'The number of rows of each entity: exact up to at_most and after a large import, else the planner''s estimate, but no less '
    'than at_most';

create or replace function bds_service.count_changes(company text, bounds timestamptz[])
    returns table (since timestamptz, changes bigint)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    -- the first change at or after a bound has an id from low to high
    low    bigint := bds.first_change(company);
    final  bigint := coalesce((select c.last_id from bds.clocks c where c.company_id = company), 0);
    high   bigint;
    middle bigint;
    firsts bigint[] := '{}';
begin
    -- Ids have no gaps and follow time: a count is a difference of ids, and a binary search finds a bound.
    for n in 1 .. cardinality(bounds) loop
        high := final + 1;
        middle := low;  -- often there is no change between two bounds
        while low < high loop
            if exists (
                select 1 from bds.change_log l where l.company_id = company and l.id = middle and l.created_at >= bounds[n]
            ) then
                high := middle;
            else
                low := middle + 1;
            end if;
            middle := (low + high) / 2;
        end loop;
        firsts := firsts || low;
    end loop;
    return query
        select bounds[n], firsts[n + 1] - firsts[n] from generate_series(1, cardinality(bounds) - 1) n;
end
$$;
comment on function bds_service.count_changes(text, timestamptz[]) is
    'The number of changes from each of these ascending times to the next one';
