-- Matches changes with hooks.
--
-- The hooks of a company are matched together, from the company's position in its change log, with one statement for each entity.
-- Hooks whose filters differ only in values share one join between their values and the changed rows, so two thousand hooks cost
-- little more than one.

create or replace function bds_service.companies_behind(companies text[] default null)
    returns setof text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select p.company_id
    from bds.hook_positions p join bds.residents r on r.company_id = p.company_id
    where r.last_id > p.routed_id and (companies is null or p.company_id = any (companies))
        and exists (select 1 from bds.hooks h where h.company_id = p.company_id and not h.disabled and h.deleted_at is null)
    order by p.company_id;
$$;
comment on function bds_service.companies_behind(text[]) is
    'Companies, among these or all, with changes that have not been matched with their enabled hooks';

create function bds_webhooks.awaited_months()
    returns table (company_id text, month timestamptz)
    language sql
    stable
as $$
    -- without a month of the first of them, it was dropped by hand
    select p.company_id, coalesce(max(m.month) filter (where m.first_id <= p.routed_id + 1), min(m.month))
    from bds_service.companies_behind() b (company_id)
    join bds.hook_positions p on p.company_id = b.company_id
    join bds.change_months m on m.company_id = b.company_id
    group by p.company_id
    union all
    select m.company_id, min(m.month)
    from bds.change_months m
    where not exists (select from bds.residents r where r.company_id = m.company_id)
    group by m.company_id;
$$;
comment on function bds_webhooks.awaited_months() is
    'The first month of each company that does not expire yet: with changes that have not been matched with enabled hooks, or any '
    'month while the company is being copied to or from here';

create or replace function bds_service.route_changes(
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
        -- another worker is matching, perhaps from before the newest change
        behind := exists (select from bds_service.companies_behind(array[company]));
        return;
    end if;
    -- Each statement sees earlier commits: the end of the log is read first, then the hooks.  So a hook that is still invisible was
    -- committed after those changes.
    select least(r.last_id, from_id + most), r.last_id > from_id + most into to_id, behind
    from bds.residents r
    where r.company_id = company;
    if not found then
        behind := false;
    elsif exists (
        select 1 from bds.hooks h
        where h.company_id = company and h.filter is not null and h.catalog_version is null
            and not h.disabled and h.deleted_at is null
    ) then
        routed := null;
        behind := to_id > from_id;
    elsif to_id > from_id then
        perform set_config('bds.company', company, true);
        perform bds_webhooks.queue_changes(company, from_id, to_id, clock_timestamp() + batch_window);
        update bds.hook_positions p set routed_id = to_id where p.company_id = company;
        routed := to_id - from_id;
    end if;
end
$$;
comment on function bds_service.route_changes(text, interval, bigint) is
    'Queues a company''s next changes for the hooks that they match; returns the number of changes, and whether more are left. The '
    'number is null if the changes wait for a filter that no worker of the service has compiled yet';

create function bds_webhooks.queue_changes(company text, from_id bigint, to_id bigint, due_at timestamptz)
    returns void
    language plpgsql
as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    -- All entities are matched before the first state is locked: workers wait briefly, and states are locked in one order.
    insert into bds.hook_states as s (company_id, hook_id, queued, batch_at)
    select company, m.hook, sum(m.queued), case when sum(m.queued) >= 100 then now_at else due_at end
    from bds.entity_positions p
    cross join lateral bds_webhooks.match_changes(company, p.entity, from_id, to_id, due_at) m
    where p.company_id = company and p.last_id > from_id
    group by m.hook
    order by m.hook
    on conflict (company_id, hook_id) do update set
        queued = s.queued + excluded.queued,
        batch_at = case
            when s.queued + excluded.queued >= 100 then now_at else coalesce(s.batch_at, excluded.batch_at)
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
as $$
declare
    shapes text[];
begin
    if exists (
        select 1 from bds.hooks h
        where h.company_id = company and not h.disabled and h.deleted_at is null and coalesce(h.entity, entity_name) = entity_name
            and h.filter is null
    ) then
        return query select * from bds_webhooks.queue_matches(company, entity_name, from_id, to_id, due_at);
    end if;
    -- a larger statement would have to be planned again whenever one of its shapes changes
    for shapes in
        select array_agg(s.shape order by s.shape)
        from (
            select f.shape, (row_number() over (order by f.shape) - 1) / 100 as part
            from bds.hooks h
            join bds.hook_filters f on f.company_id = h.company_id and f.hook_id = h.id and f.entity = entity_name
            where h.company_id = company and not h.disabled and h.deleted_at is null
            group by f.shape
        ) s
        group by s.part
    loop
        return query select * from bds_webhooks.queue_matches(company, entity_name, from_id, to_id, due_at, shapes);
    end loop;
end
$$;
comment on function bds_webhooks.match_changes(text, text, bigint, bigint, timestamptz) is
    'Queues the changes of one entity after from_id, up to to_id, for the hooks that they match; returns the number of changes '
    'for each hook, in several rows if filters of several statements match';

create function bds_webhooks.prepare_once(statement text, types regtype[])
    returns name
    language plpgsql
as $$
declare
    -- equal statements share one name
    known     name := 'bds_' || left(encode(sha256(convert_to(statement, 'UTF8')), 'hex'), 40);
    prepare   text := format('prepare %I (%s) as %s', known, array_to_string(types, ', '), statement);
    forgotten name;
begin
    -- The session may have prepared a statement of its own under this name.
    if exists (select from pg_prepared_statements p where p.name = known and p.statement = prepare) then
        return known;
    end if;
    for forgotten in
        select k.name
        from (
            select p.name, sum(length(p.statement)) over (order by p.prepare_time desc, p.name) as characters
            from pg_prepared_statements p
            where p.name ^@ 'bds_'
        ) k
        where k.name = known or k.characters + length(statement) > 500000
    loop
        execute format('deallocate %I', forgotten);
    end loop;
    execute prepare;
    return known;
end
$$;
comment on function bds_webhooks.prepare_once(text, regtype[]) is
    'Prepares a statement once in this session and returns its name. Beyond 500,000 characters, whose plans may take 50 MB, the '
    'oldest statements are deallocated';

create function bds_webhooks.queue_statement(entity_name text, has_filters boolean, is_replay boolean)
    returns text
    language plpgsql
    stable
as $$
begin
    -- $1 company, $2 entity, $3 and $4 the ids before the first and of the last change, $5 the first one's month, $6 the end of the
    -- window, $7 a prepared statement that evaluates filters, $8 the shapes of these filters; of a replay $9 its hook, $10 the id
    -- under which it queues changes
    return bds_impl.fill(
        $sql$
with c as materialized (
    select l.id, l.operation, l.row_id, l.change_set_id, l.collections, {old} as old
    from bds.change_log l
    where l.company_id = $1 and l.entity = $2 and l.id > $3 and l.id <= $4 and l.created_at >= $5
),
k as materialized (select k.name, k.key from bds.hook_columns k where k.entity = $2),
h as materialized (
    select h.id, {since} as since_id, h.allow_in_change_set, h.columns, h.filter,
        case when h.columns is not null then (select array_agg(k.key) from k where k.name = any (h.columns)) end as keys
    from bds.hooks h
    where h.company_id = $1 and not h.disabled and h.deleted_at is null and coalesce(h.entity, $2) = $2{only}
),
q as (
    insert into bds.hook_queue (company_id, hook_id, change_id, entity, operation, row_id, change_set_id, due_at)
    select $1, {target}, c.id, $2, c.operation, c.row_id, c.change_set_id, $6
    from {matches}
    where c.id > h.since_id and (h.allow_in_change_set or c.change_set_id is null)
        and (
            h.columns is null or c.operation <> 'update' and h.keys is not null or c.old ?| h.keys
            or c.collections && h.keys or 'updatedAt' = any (h.keys)
        )
    returning hook_id
)
select q.hook_id, count(*) from q group by q.hook_id
        $sql$,
        'old', (bds_webhooks.log_terms(entity_name)).old,
        'since', case when is_replay then '0' else 'h.since_id' end,
        'only', case when is_replay then ' and h.id = $9' else '' end,
        'target', case when is_replay then '$10' else 'h.id' end,
        'matches', case
            when has_filters then
                $from$(
        select jsonb_agg(jsonb_build_object('id', h.id, 'shape', f.shape, 'values', f."values")) as hooks
        from h join bds.hook_filters f on f.company_id = $1 and f.hook_id = h.id and f.entity = $2 and f.shape = any ($8)
    ) i
    cross join lateral bds_webhooks.match_filters($7, $1, $3, $4, $5, i.hooks) m
    join c on c.id = m.change_id
    join h on h.id = m.hook_id$from$
            else 'c join h on h.filter is null'
        end
    );
end
$$;
comment on function bds_webhooks.queue_statement(text, boolean, boolean) is
    'The statement that queues changes of an entity, for hooks with a filter or for hooks without one, or for a replay; returns '
    'the number of changes for each hook';

create function bds_webhooks.queue_matches(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, shapes text[] default null,
    replayed uuid default null, replay uuid default null, out hook uuid, out queued bigint
)
    returns setof record
    language plpgsql
    -- times become literals
    set timezone = 'UTC'
    set datestyle = 'ISO, YMD'
    -- The sizes are unknown, one change and one hook or thousands of both: hash joins suit either.  Lookups row by row are in
    -- subqueries with offset 0.
    set enable_nestloop = off
    set enable_mergejoin = off
    -- the bound on created_at prunes partitions; reading its index for each row costs more than the row
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    -- of the first change; older partitions are pruned
    since   timestamptz := (
        select coalesce(max(m.month), '-infinity')
        from bds.change_months m where m.company_id = company and m.first_id <= from_id + 1
    );
    queuing name;
    filters name;
begin
    if shapes is not null then
        filters := bds_webhooks.prepare_once(
            bds_webhooks.filter_statement(company, entity_name, shapes), '{text,bigint,bigint,timestamptz,jsonb}'
        );
    end if;
    queuing := bds_webhooks.prepare_once(
        bds_webhooks.queue_statement(entity_name, shapes is not null, replayed is not null),
        '{text,text,bigint,bigint,timestamptz,timestamptz,name,text[],uuid,uuid}'
    );
    return query execute format(
        'execute %I (%L, %L, %L, %L, %L, %L, %L, %L, %L, %L)',
        queuing, company, entity_name, from_id, to_id, since, due_at, filters, shapes, replayed, replay
    );
end
$$;
comment on function bds_webhooks.queue_matches(text, text, bigint, bigint, timestamptz, text[], uuid, uuid) is
    'Queues the changes of an entity, after from_id up to to_id, for the hooks that they match: those without a filter, or those '
    'whose filters have one of these shapes; returns their number for each hook. replayed: for this hook alone, whenever it was '
    'made, under the id replay in place of its own';
