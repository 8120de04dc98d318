-- Matches changes with hooks.
--
-- The hooks of a company are matched together, from the company's position in its change log, with one statement for each entity.
-- Hooks whose filters differ only in values share one join between their values and the changed rows, so two thousand hooks cost
-- little more than one.  A filter sees the row after the change: the current row with later changes undone.

create function bds_webhooks.overlay(state jsonb, old jsonb)
    returns jsonb
    language sql
    immutable
    return state || coalesce(old, '{}');
comment on function bds_webhooks.overlay(jsonb, jsonb) is
    'Old values over the values collected so far: the step of bds_webhooks.undo';

create aggregate bds_webhooks.undo(jsonb) (sfunc = bds_webhooks.overlay, stype = jsonb, initcond = '{}');
comment on aggregate bds_webhooks.undo(jsonb) is
    'The values of columns before the oldest of these changes, which come newest first';

create or replace function bds.companies_behind(companies text[] default null)
    returns setof text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select p.company_id
    from bds.hook_positions p join bds.clocks c on c.company_id = p.company_id
    where c.last_id > p.routed_id and (companies is null or p.company_id = any (companies))
    order by p.company_id;
$$;
comment on function bds.companies_behind(text[]) is
    'Companies, among these or all, with changes that have not been matched with hooks';

create or replace function bds.route_changes(
    company      text,
    batch_window interval default '5 seconds',
    most         bigint default 20000,
    out routed bigint, out behind boolean
)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    from_id bigint;
    to_id   bigint;
begin
    routed := 0;
    select p.routed_id into from_id from bds.hook_positions p where p.company_id = company for update skip locked;
    if not found then
        -- another worker is matching, and may have begun before the newest change
        behind := exists (select from bds.companies_behind(array[company]));
        return;
    end if;
    -- Each statement sees earlier commits: the end of the log is read first, then the hooks.  So a hook that is still invisible was
    -- committed after those changes.
    select least(c.last_id, from_id + most), c.last_id > from_id + most into to_id, behind
    from bds.clocks c
    where c.company_id = company;
    if to_id > from_id then
        perform set_config('bds.company', company, true);
        perform bds_webhooks.queue_changes(company, from_id, to_id, clock_timestamp() + batch_window);
        update bds.hook_positions p set routed_id = to_id where p.company_id = company;
        routed := to_id - from_id;
    end if;
end
$$;
comment on function bds.route_changes(text, interval, bigint) is
    'Queues a company''s next changes for the hooks that they match; returns the number of changes, and whether more are left';

create function bds_webhooks.queue_changes(company text, from_id bigint, to_id bigint, due_at timestamptz)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- All entities are matched before the first state is locked: workers wait briefly, and states are locked in one order.
    insert into bds.hook_states as s (company_id, hook_id, queued, batch_at)
    select company, m.hook, sum(m.queued), case when sum(m.queued) >= 100 then clock_timestamp() else due_at end
    from bds.entity_positions p
    cross join lateral bds_webhooks.match_changes(company, p.entity, from_id, to_id, due_at) m
    where p.company_id = company and p.last_id > from_id
    group by m.hook
    order by m.hook
    on conflict (company_id, hook_id) do update set
        queued = s.queued + excluded.queued,
        batch_at = case
            when s.queued + excluded.queued >= 100 then clock_timestamp() else coalesce(s.batch_at, excluded.batch_at)
        end;
end
$$;
comment on function bds_webhooks.queue_changes(text, bigint, bigint, timestamptz) is
    'Queues the changes after from_id, up to to_id, for the hooks that they match; the caller has locked the company''s position';

create function bds_webhooks.match_changes(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, out hook uuid, out queued bigint
)
    returns setof record
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    shape      record;
    unfiltered boolean;
    branches   text[] := '{}';
begin
    select bool_or(h.filter is null) into unfiltered
    from bds.hooks h
    where h.company_id = company and not h.disabled and h.deleted_at is null and coalesce(h.entity, entity_name) = entity_name;
    if unfiltered is null then
        return;
    end if;
    if unfiltered then
        return query select * from bds_webhooks.queue_matches(
            company, entity_name, from_id, to_id, due_at, '',
            bds_webhooks.match_where('c as t cross join h', 'h.filter is null')
        );
    end if;
    for shape in
        select distinct f.joins, f.condition, f.types
        from bds.hooks h
        join bds.hook_filters f on f.company_id = h.company_id and f.hook_id = h.id and f.entity = entity_name
        where h.company_id = company and not h.disabled and h.deleted_at is null
        order by f.joins, f.condition, f.types  -- the same hooks give the same statement, which is already planned
    loop
        branches := branches || bds_webhooks.match_branch(shape.joins, shape.condition, shape.types);
        -- a larger statement would have to be planned again whenever one of its shapes changes
        if cardinality(branches) = 100 then
            return query select * from bds_webhooks.queue_filtered(company, entity_name, from_id, to_id, due_at, branches);
            branches := '{}';
        end if;
    end loop;
    if branches <> '{}' then
        return query select * from bds_webhooks.queue_filtered(company, entity_name, from_id, to_id, due_at, branches);
    end if;
end
$$;
comment on function bds_webhooks.match_changes(text, text, bigint, bigint, timestamptz) is
    'Queues the changes of one entity after from_id, up to to_id, for the hooks that they match; returns the number of changes '
    'for each hook, in several rows if filters of several statements match';

create function bds_webhooks.match_where(tables text, condition text)
    returns text
    language plpgsql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_impl.fill(
        $sql$
select h.id as hook_id, t.bds_id, t.bds_operation, t.bds_row_id, t.bds_change_set_id
from {tables}
where {condition} and t.bds_id > h.since_id and (h.allow_in_change_set or t.bds_change_set_id is null)
    and (
        h.columns is null or t.bds_operation <> 'update' and h.keys is not null or t.bds_old ?| h.keys
        or t.bds_collections && h.keys or 'updatedAt' = any (h.keys)
    )$sql$,
        'tables', tables, 'condition', condition
    );
end
$$;
comment on function bds_webhooks.match_where(text, text) is
    'The query of changes t and hooks h that match by a condition, by columns and by change set';

create function bds_webhooks.shape_of(joins text, condition text, types text[])
    returns bigint
    language sql
    immutable
    return hashtextextended(joins || condition, 0) # hash_array_extended(types, 0);
comment on function bds_webhooks.shape_of(text, text, text[]) is
    'A hash of a filter''s shape, compared before its long texts';

-- For the filter price > 10 the tables are
--
--     t join (
--         select h.*, (h."values"[1])::numeric as p0 from h
--         where h.shape = '...' and h.joins = '' and h.condition = 't.price > h.p0' and h.types = '{numeric}'::text[] offset 0
--     ) h on t.price > h.p0
create function bds_webhooks.match_branch(joins text, condition text, types text[])
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_webhooks.match_where(
        bds_impl.fill(
            $sql$t{joins} join (
    select h.*{parameters} from h
    where h.shape = {shape:L} and h.joins = {joins:L} and h.condition = {condition:L} and h.types = {types:L}::text[] offset 0
) h on {condition}$sql$,
            'joins', joins,
            'parameters', coalesce(
                (
                    select string_agg(format(', (h."values"[%s])::%s as p%s', n, type::regtype, n - 1), '' order by n)
                    from unnest(types) with ordinality as parameters (type, n)
                ),
                ''
            ),
            'shape', bds_webhooks.shape_of(joins, condition, types)::text,
            'condition', condition,
            'types', types::text
        ),
        'true'
    );
end
$$;
comment on function bds_webhooks.match_branch(text, text, text[]) is
    'The query of changes and of all hooks whose filter has one shape';

create function bds_webhooks.queue_filtered(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, branches text[],
    out hook uuid, out queued bigint
)
    returns setof record
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query select * from bds_webhooks.queue_matches(
        company, entity_name, from_id, to_id, due_at, bds_webhooks.changed_rows(entity_name),
        array_to_string(branches, ' union all ')
    );
end
$$;
comment on function bds_webhooks.queue_filtered(text, text, bigint, bigint, timestamptz, text[]) is
    'Queues the changes that match filters of these shapes; returns their number for each hook';

create function bds_webhooks.changed_rows(entity_name text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_impl.fill(
        $sql$,
-- every record of these rows since the first of the changes: later ones are undone
r as (
    select l.*,
        case l.operation
            when 'update' then coalesce(l.old, '{}') || jsonb_build_object('updatedAt', l.last_updated_at)
            else l.old
        end as undo
    from (select c.bds_row_id, min(c.bds_id) as first_id from c group by c.bds_row_id) as f
    cross join lateral (
        select x.* from bds.change_log x
        where x.row_id = f.bds_row_id and x.company_id = $1 and x.entity = $2 and x.id >= f.first_id and x.created_at >= $5
        offset 0
    ) as l
),
u as materialized (
    select r.id as bds_id, r.operation as bds_operation, r.row_id as bds_row_id, r.change_set_id as bds_change_set_id,
        r.collections as bds_collections, r.old as bds_old,
        bds_webhooks.undo(r.undo) over (
            partition by r.row_id order by r.id desc rows between unbounded preceding and 1 preceding
        ) as bds_undone
    from r
),
t as materialized (
    select u.*, v.*
    from u cross join lateral (select n.* from api.{entity:I} n where n.company_id = $1 and n.id = u.bds_row_id offset 0) as v
    where u.bds_id <= $4 and u.bds_operation <> 'delete' and coalesce(u.bds_undone, '{}') = '{}'
    union all
    select u.*, v.*
    from u
    left join lateral (
        select to_jsonb(n) as now from api.{entity:I} n where n.company_id = $1 and n.id = u.bds_row_id offset 0
    ) as n on true
    cross join lateral jsonb_populate_record(
        null::api.{entity:I}, case u.bds_operation when 'delete' then u.bds_old else coalesce(n.now, '{}') || u.bds_undone end
    ) as v
    where u.bds_id <= $4 and (u.bds_operation = 'delete' or u.bds_undone <> '{}')
)$sql$,
        'entity', entity_name
    );
end
$$;
comment on function bds_webhooks.changed_rows(text) is 'WITH queries that give the rows t of an entity after each of the changes c';

create function bds_webhooks.prepare_once(statement text, types regtype[])
    returns name
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- equal statements share one name
    known name := 'bds_' || left(encode(sha256(convert_to(statement, 'UTF8')), 'hex'), 40);
    other name;
begin
    if exists (select from pg_prepared_statements p where p.name = known) then
        return known;
    end if;
    for other in
        select k.name
        from (
            select p.name, sum(length(p.statement)) over (order by p.prepare_time desc, p.name) as characters
            from pg_prepared_statements p
            where p.name like 'bds\_%'
        ) k
        where k.characters + length(statement) > 500000
    loop
        execute format('deallocate %I', other);
    end loop;
    execute format('prepare %I (%s) as %s', known, array_to_string(types, ', '), statement);
    return known;
end
$$;
comment on function bds_webhooks.prepare_once(text, regtype[]) is
    'Prepares a statement once in this session and returns its name. Beyond 500,000 characters, whose plans may take 50 MB, the '
    'oldest '
    'statements are deallocated';

create function bds_webhooks.queue_statement(row_states text, matches text)
    returns text
    language plpgsql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- $1 company, $2 entity, $3 and $4 the ids before the first and of the last change, $5 their oldest time, $6 the end of the
    -- window
    return bds_impl.fill(
        $sql$
with c as materialized (
    select l.id as bds_id, l.operation as bds_operation, l.row_id as bds_row_id, l.change_set_id as bds_change_set_id,
        l.collections as bds_collections, l.old as bds_old
    from bds.change_log l
    where l.company_id = $1 and l.entity = $2 and l.id > $3 and l.id <= $4 and l.created_at >= $5
),
k as materialized (select k.name, k.key from bds.hook_columns k where k.entity = $2),
h as materialized (
    select h.id, h.since_id, h.allow_in_change_set, h.columns, h.filter, f.joins, f.condition, f.types, f."values",
        bds_webhooks.shape_of(f.joins, f.condition, f.types) as shape,
        case when h.columns is not null then (select array_agg(k.key) from k where k.name = any (h.columns)) end as keys
    from bds.hooks h
    left join bds.hook_filters f on f.company_id = h.company_id and f.hook_id = h.id and f.entity = $2
    where h.company_id = $1 and not h.disabled and h.deleted_at is null and coalesce(h.entity, $2) = $2
){row_states},
m as ({matches}),
q as (
    insert into bds.hook_queue (company_id, hook_id, change_id, entity, operation, row_id, change_set_id, due_at)
    select $1, m.hook_id, m.bds_id, $2, m.bds_operation, m.bds_row_id, m.bds_change_set_id, $6
    from m
    returning hook_id
)
select q.hook_id, count(*) from q group by q.hook_id
        $sql$,
        'row_states', row_states, 'matches', matches
    );
end
$$;
comment on function bds_webhooks.queue_statement(text, text) is
    'The statement that queues the result of a query over the changes c, the hooks h and the rows t of row_states; returns the '
    'number of changes for each hook';

create function bds_webhooks.queue_matches(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, row_states text, matches text,
    out hook uuid, out queued bigint
)
    returns setof record
    language plpgsql
    set search_path = pg_catalog, pg_temp
    -- The sizes are unknown, one change and one hook or thousands of both: hash joins suit either.  Lookups row by row are in
    -- subqueries with offset 0.
    set enable_nestloop = off
    set enable_mergejoin = off
    -- the bound on created_at prunes partitions; reading its index for each row costs more than the row
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    oldest timestamptz;
begin
    -- a day covers any step of the clock; older partitions are pruned
    select l.created_at - interval '1 day' into oldest
    from bds.change_log l
    where l.company_id = company and l.id > from_id
    order by l.id
    limit 1;
    return query execute format(
        'execute %I (%L, %L, %L, %L, %L, %L)',
        bds_webhooks.prepare_once(
            bds_webhooks.queue_statement(row_states, matches), '{text,text,bigint,bigint,timestamptz,timestamptz}'
        ),
        company, entity_name, from_id, to_id, oldest, due_at
    );
end
$$;
comment on function bds_webhooks.queue_matches(text, text, bigint, bigint, timestamptz, text, text) is
    'Queues the changes of an entity, after from_id up to to_id, that a query matches with hooks; returns their number for each '
    'hook';
