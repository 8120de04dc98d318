-- Batches: queued changes of a hook become deliveries when the window of the first one ends, or a hundred are queued.

create function bds_webhooks.make_batches(most int default 1000)
    returns bigint
    language plpgsql
as $$
declare
    companies text[];
    hooks     uuid[];
begin
    -- a statement of its own: the next one must see what was queued before the locks were taken
    select array_agg(s.company_id), array_agg(s.hook_id) into companies, hooks
    from (
        select d.company_id, d.hook_id
        from bds.hook_states d
        where d.batch_at <= clock_timestamp()
            and exists (select from bds.residents r where r.company_id = d.company_id)
        order by d.batch_at
        limit most
        for update skip locked
    ) s;
    if companies is null then
        return 0;
    end if;
    return bds_webhooks.make_batches_of(companies, hooks, clock_timestamp());
end
$$;
comment on function bds_webhooks.make_batches(int) is
    'Makes deliveries of queued changes whose window has ended, and of each full hundred; returns the number of deliveries';

create function bds_webhooks.plan_batches(
    companies text[], hooks uuid[], up_to timestamptz,
    out company_id text, out hook_id uuid, out change_set_id uuid, out size bigint, out first_id bigint, out last_id bigint,
    out due_at timestamptz, out changes json, out goes boolean
)
    returns setof record
    language sql
    stable
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
    -- consecutive changes of one change set are a run; each hundred of a run is a batch
    with marked as (
        select q.*, q.change_set_id is distinct from lag(q.change_set_id) over w as begins, d.prefix
        from (
            select h.*, bds_impl.event_prefix(h.company_id) as prefix
            from unnest(companies, hooks) as h (company_id, hook_id)
        ) d
        cross join lateral (  -- for a queue that was analyzed while empty the planner expects one row
            select e.* from bds.hook_queue e where e.company_id = d.company_id and e.hook_id = d.hook_id offset 0
        ) q
        window w as (partition by q.company_id, q.hook_id order by q.change_id)
    ),
    runs as (
        select m.*, count(*) filter (where m.begins) over (partition by m.company_id, m.hook_id order by m.change_id) as run
        from marked m
    ),
    numbered as (
        select r.*, (row_number() over (partition by r.company_id, r.hook_id, r.run order by r.change_id) - 1) / 100 as part
        from runs r
    ),
    batches as (
        select n.company_id, n.hook_id, n.change_set_id, count(*) as size, min(n.change_id) as first_id,
            max(n.change_id) as last_id,
            min(n.due_at) as due_at,
            json_agg(json_build_object(
                'id', n.prefix || n.change_id, 'entity', n.entity, 'operation', n.operation, 'rowId', n.row_id::text,
                'changeSetId', n.change_set_id
            ) order by n.change_id) as changes
        from numbered n
        group by n.company_id, n.hook_id, n.change_set_id, n.run, n.part
    )
    -- after the end of the window all batches are due, before it only those up to the last full one
    select b.*,
        min(b.due_at) over (partition by b.company_id, b.hook_id) <= up_to
        or bool_or(b.size = 100) over (partition by b.company_id, b.hook_id order by b.first_id desc)
    from batches b;
$$;
comment on function bds_webhooks.plan_batches(text[], uuid[], timestamptz) is
    'The batches of these hooks'' queued changes, and whether each is due when windows up to a time have ended';

-- without settings of its own, so that it becomes a part of the statements that call it
create function bds_webhooks.body_of(company bds.companies, hook_id uuid, change_set_id uuid, changes json, made_at timestamptz)
    returns text
    language sql
    stable
as $$
    select json_build_object(
        'hookId', hook_id, 'tenantId', coalesce(company.tenant_id, company.id), 'organisationId', company.id,
        'changeSetId', change_set_id, 'changes', changes,
        'timestamp', to_char(made_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    )::text;
$$;
comment on function bds_webhooks.body_of(bds.companies, uuid, uuid, json, timestamptz) is
    'The body of a delivery; made_at is its timestamp';

create function bds_webhooks.make_batches_of(companies text[], hooks uuid[], up_to timestamptz)
    returns bigint
    language plpgsql
    set enable_seqscan = off
    set enable_hashjoin = on
as $$
declare
    made    bigint;
    made_at timestamptz := clock_timestamp();
begin
    with due as materialized (
        select d.company_id, d.hook_id, h.gone
        from unnest(companies, hooks) as d (company_id, hook_id)
        cross join lateral (  -- so that the planner expects one for each of them
            select e.disabled or e.deleted_at is not null as gone from bds.hooks e
            where e.company_id = d.company_id and e.id = d.hook_id offset 0
        ) h
    ),
    planned as materialized (select * from bds_webhooks.plan_batches(companies, hooks, up_to)),
    sent as (
        insert into bds.deliveries (
            company_id, hook_id, state, change_set_id, change_count, body, created_at, next_attempt_at, finished_at
        )
        select p.company_id, p.hook_id, case when d.gone then 'cancelled' else 'pending' end, p.change_set_id, p.size,
            bds_webhooks.body_of(c, p.hook_id, p.change_set_id, p.changes, made_at), made_at,
            case when not d.gone then made_at end, case when d.gone then made_at end
        from planned p join due d on d.company_id = p.company_id and d.hook_id = p.hook_id
        join bds.companies c on c.id = p.company_id
        where p.goes
        order by p.company_id, p.hook_id, p.first_id  -- numbers follow the order of sending
        returning 1
    ),
    gone as (
        delete from bds.hook_queue q
        where q.ctid = any (array(
            select e.ctid
            from (select p.company_id, p.hook_id, max(p.last_id) as last_id from planned p where p.goes group by 1, 2) p
            cross join lateral (
                select e.ctid from bds.hook_queue e
                where e.company_id = p.company_id and e.hook_id = p.hook_id and e.change_id <= p.last_id offset 0
            ) e
        ))
    ),
    result as (
        select d.company_id, d.hook_id, coalesce(sum(p.size) filter (where not p.goes), 0) as left_over,
            min(p.due_at) filter (where not p.goes) as due_at, coalesce(bool_or(p.goes), false) and not d.gone as ready
        from due d left join planned p on p.company_id = d.company_id and p.hook_id = d.hook_id
        group by d.company_id, d.hook_id, d.gone
    ),
    states as (
        update bds.hook_states s
        set queued = r.left_over, batch_at = r.due_at,
            next_at = case when r.ready and s.next_at is null then greatest(made_at, s.rests_until) else s.next_at end
        from result r
        where s.company_id = r.company_id and s.hook_id = r.hook_id
    )
    select count(*) into made from sent;
    return made;
end
$$;
comment on function bds_webhooks.make_batches_of(text[], uuid[], timestamptz) is
    'Makes deliveries of these hooks'' queued changes whose window ends up to a time; the caller holds the locks of the hooks'' '
    'states';
