-- Which changes concern which hooks.
--
-- A company's hooks are matched together, from the company's position in its change log: the changes after it, entity by entity, in
-- one statement.  Hooks whose filters differ in values alone are one join between their values and the changed rows, so that two
-- thousand hooks cost little more than one.  A filter sees the row as the change left it: the row of now, with the changes after
-- that one undone.

create function bds_webhooks.overlay(state jsonb, old jsonb)
    returns jsonb
    language sql
    immutable
    return state || coalesce(old, '{}');
comment on function bds_webhooks.overlay(jsonb, jsonb) is 'Old values over those that are known: what bds_webhooks.undo makes of each change';

create aggregate bds_webhooks.undo(jsonb) (sfunc = bds_webhooks.overlay, stype = jsonb, initcond = '{}');
comment on aggregate bds_webhooks.undo(jsonb) is 'The old values of changes, newest first: what stood in the columns before the oldest of them';

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
comment on function bds.companies_behind(text[]) is 'Companies, of these or of all, that have changes no hook was matched with yet';

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
    from_id     bigint;
    to_id       bigint;
    entity_name text;
begin
    routed := 0;
    select p.routed_id into from_id from bds.hook_positions p where p.company_id = company for update skip locked;
    if not found then
        -- somebody else is at it, who may have looked before the newest change was there
        behind := exists (select from bds.companies_behind(array[company]));
        return;
    end if;
    -- Each statement sees what was committed before it began: first how far the log goes, then the hooks.  So a hook that is not
    -- seen yet was committed after those changes.
    select least(c.last_id, from_id + most), c.last_id > from_id + most into to_id, behind
    from bds.clocks c
    where c.company_id = company;
    if to_id > from_id then
        perform set_config('bds.company', company, true);
        for entity_name in
            select p.entity from bds.entity_positions p where p.company_id = company and p.last_id > from_id order by p.entity
        loop
            perform bds_webhooks.match_changes(company, entity_name, from_id, to_id, clock_timestamp() + batch_window);
        end loop;
        update bds.hook_positions p set routed_id = to_id where p.company_id = company;
        routed := to_id - from_id;
    end if;
end
$$;
comment on function bds.route_changes(text, interval, bigint) is
    'Queues a company''s next changes for the hooks that they match; returns how many were looked at, and whether there are more';

create function bds_webhooks.match_changes(company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz)
    returns void
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
        perform bds_webhooks.queue_matches(
            company, entity_name, from_id, to_id, due_at, '',
            bds_webhooks.match_where('c as t cross join h', 'h.filter is null')
        );
    end if;
    for shape in
        select distinct f.joins, f.condition, f.types
        from bds.hooks h
        join bds.hook_filters f on f.company_id = h.company_id and f.hook_id = h.id and f.entity = entity_name
        where h.company_id = company and not h.disabled and h.deleted_at is null
        order by f.joins, f.condition, f.types  -- so that the same hooks make the same statements, which are planned already
    loop
        branches := branches || bds_webhooks.match_branch(shape.joins, shape.condition, shape.types);
        -- a plan of more would be a large one to make anew whenever one of them changes
        if cardinality(branches) = 100 then
            perform bds_webhooks.queue_filtered(company, entity_name, from_id, to_id, due_at, branches);
            branches := '{}';
        end if;
    end loop;
    if branches <> '{}' then
        perform bds_webhooks.queue_filtered(company, entity_name, from_id, to_id, due_at, branches);
    end if;
end
$$;
comment on function bds_webhooks.match_changes(text, text, bigint, bigint, timestamptz) is
    'Queues the changes of one entity after from_id, up to to_id, for the hooks that they match';

create function bds_webhooks.match_where(tables text, condition text)
    returns text
    language sql
    immutable
    return format(
        'select h.id as hook_id, t.bds_id, t.bds_operation, t.bds_row_id, t.bds_change_set_id from %s where %s'
        ' and t.bds_id > h.since_id and (h.allow_in_change_set or t.bds_change_set_id is null)'
        ' and (h.columns is null or t.bds_operation <> ''update'' and h.keys is not null'
        ' or t.bds_old ?| h.keys or t.bds_collections && h.keys or ''updatedAt'' = any (h.keys))',
        tables, condition
    );
comment on function bds_webhooks.match_where(text, text) is
    'The query of changes t and hooks h for which a condition holds, and all that concerns filters no more';

create function bds_webhooks.shape_of(joins text, condition text, types text[])
    returns bigint
    language sql
    immutable
    return hashtextextended(joins || condition, 0) # hash_array_extended(types, 0);
comment on function bds_webhooks.shape_of(text, text, text[]) is
    'A number that tells shapes of filters apart, nearly always: compared before the texts, which are long';

create function bds_webhooks.match_branch(joins text, condition text, types text[])
    returns text
    language sql
    stable
    return bds_webhooks.match_where(
        format(
            't%s join (select h.*%s from h where h.shape = %L and h.joins = %L and h.condition = %L and h.types = %L::text[] offset 0) h'
            ' on %s',
            joins,
            (
                select string_agg(format(', (h."values"[%s])::%s as p%s', n, type::regtype, n - 1), '' order by n)
                from unnest(types) with ordinality as parameters (type, n)
            ),
            bds_webhooks.shape_of(joins, condition, types), joins, condition, types, condition
        ),
        'true'
    );
comment on function bds_webhooks.match_branch(text, text, text[]) is 'The query of all hooks whose filter is of one shape';

create function bds_webhooks.queue_filtered(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, branches text[]
)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_webhooks.queue_matches(
        company, entity_name, from_id, to_id, due_at, bds_webhooks.changed_rows(entity_name), array_to_string(branches, ' union all ')
    );
end
$$;
comment on function bds_webhooks.queue_filtered(text, text, bigint, bigint, timestamptz, text[]) is 'The same with filters, which look at rows';

create function bds_webhooks.changed_rows(entity_name text)
    returns text
    language sql
    stable
    return format(
        $sql$,
-- every record of the rows since the first change that is looked at: what came later is undone
r as (
    select l.*,
        case l.operation when 'update' then coalesce(l.old, '{}') || jsonb_build_object('updatedAt', l.last_updated_at) else l.old end as undo
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
        bds_webhooks.undo(r.undo) over (partition by r.row_id order by r.id desc rows between unbounded preceding and 1 preceding) as bds_undone
    from r
),
t as materialized (
    select u.*, v.*
    from u cross join lateral (select n.* from api.%1$I n where n.company_id = $1 and n.id = u.bds_row_id offset 0) as v
    where u.bds_id <= $4 and u.bds_operation <> 'delete' and coalesce(u.bds_undone, '{}') = '{}'
    union all
    select u.*, v.*
    from u
    left join lateral (select to_jsonb(n) as now from api.%1$I n where n.company_id = $1 and n.id = u.bds_row_id offset 0) as n on true
    cross join lateral jsonb_populate_record(
        null::api.%1$I, case u.bds_operation when 'delete' then u.bds_old else coalesce(n.now, '{}') || u.bds_undone end
    ) as v
    where u.bds_id <= $4 and (u.bds_operation = 'delete' or u.bds_undone <> '{}')
)$sql$,
        entity_name
    );
comment on function bds_webhooks.changed_rows(text) is 'The rows t of an entity as the changes c left them, as parts of a WITH list';

create function bds_webhooks.prepare_once(statement text, types regtype[])
    returns name
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- of a text there is one, whoever asks for it
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
    'The name under which this session has prepared a statement, so that it is planned once; beyond 500,000 characters, the plans '
    'of which may take 50 MB, the oldest are dropped';

create function bds_webhooks.queue_matches(
    company text, entity_name text, from_id bigint, to_id bigint, due_at timestamptz, row_states text, matches text
)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    -- Nothing is known of the sizes, one change and one hook or thousands of both: hash joins are right for either.  What must be
    -- looked up row by row stands behind offset 0.
    set enable_nestloop = off
    set enable_mergejoin = off
    -- the bound on created_at is for the partitions: read from its index for each row it costs more than the row
    set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    oldest    timestamptz;
    statement text;
begin
    -- a day covers any step of the clock; old partitions are left alone
    select l.created_at - interval '1 day' into oldest
    from bds.change_log l
    where l.company_id = company and l.id > from_id
    order by l.id
    limit 1;
    statement := format(
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
)%s,
m as (%s),
q as (
    insert into bds.hook_queue (company_id, hook_id, change_id, entity, operation, row_id, change_set_id, due_at)
    select $1, m.hook_id, m.bds_id, $2, m.bds_operation, m.bds_row_id, m.bds_change_set_id, $6
    from m
    returning hook_id
)
insert into bds.hook_states as s (company_id, hook_id, queued, batch_at)
select $1, q.hook_id, count(*), case when count(*) >= 100 then clock_timestamp() else $6 end
from q
group by q.hook_id
order by q.hook_id  -- locks are taken in one order
on conflict (company_id, hook_id) do update set
    queued = s.queued + excluded.queued,
    batch_at = case when s.queued + excluded.queued >= 100 then clock_timestamp() else coalesce(s.batch_at, excluded.batch_at) end
        $sql$,
        row_states, matches
    );
    execute format(
        'execute %I (%L, %L, %L, %L, %L, %L)',
        bds_webhooks.prepare_once(statement, '{text,text,bigint,bigint,timestamptz,timestamptz}'),
        company, entity_name, from_id, to_id, oldest, due_at
    );
end
$$;
comment on function bds_webhooks.queue_matches(text, text, bigint, bigint, timestamptz, text, text) is
    'Queues what a query of changes and hooks over c, h and row_states gives';
