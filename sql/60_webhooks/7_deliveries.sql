-- Deliveries in the API: their list, a test, a retry by hand; and how long they are kept.

create or replace function bds_service.delivery_json(delivery bds.deliveries, hook bds.hook_states)
    returns json
    language sql
    stable
as $$
    select json_build_object(
        'id', delivery.id, 'hookId', delivery.hook_id, 'state', delivery.state, 'changeSetId', delivery.change_set_id,
        'changes', delivery.change_count, 'createdAt', bds_service.api_time(delivery.created_at),
        'nextAttemptAt', bds_service.api_time(case
            when delivery.finished_at is null then greatest(
                case when not delivery.urgent then greatest(delivery.next_attempt_at, hook.rests_until) end,
                case when hook.lease is null then hook.next_at end,  -- when the hook's earlier delivery is due
                clock_timestamp()  -- it is due, or under way
            )
        end),
        'finishedAt', bds_service.api_time(delivery.finished_at),
        'attempts', coalesce(
            (
                select json_agg(json_build_object(
                    'at', bds_service.api_time(a.at), 'status', a.status, 'durationMs', a.duration_ms,
                    'error', a.error, 'reply', a.reply
                ) order by a.n)
                from bds.delivery_attempts a
                where a.company_id = delivery.company_id and a.delivery_id = delivery.id
            ),
            '[]'
        )
    );
$$;
comment on function bds_service.delivery_json(bds.deliveries, bds.hook_states) is
    'A delivery with its attempts, in the format of the API. The next attempt is not before the end of the hook''s rest, nor '
    'before the hook''s earlier delivery';

create or replace function bds.test_hook(company text, hook_id uuid)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook        bds.hooks := bds_service.lock_hook(company, hook_id);
    test_entity text := coalesce(hook.entity, (select e.name from bds.entities e order by e.ordinal limit 1));
    made_at     timestamptz := clock_timestamp();
    changes     json := json_build_array(json_build_object(
        'id', '0', 'entity', test_entity, 'operation', 'update', 'rowId', '0', 'changeSetId', null
    ));
    delivery_id uuid;
begin
    insert into bds.deliveries (company_id, hook_id, urgent, test, created_at, next_attempt_at, change_count, body)
    select company, hook.id, true, true, made_at, made_at, 1, bds_webhooks.body_of(c, hook.id, null, changes, made_at)
    from bds.companies c
    where c.id = company
    returning id into delivery_id;
    perform bds_webhooks.wake_hook(company, hook.id);
    return delivery_id;
end
$$;
comment on function bds.test_hook(text, uuid) is
    'Queues a delivery of one made-up change, which is tried once, before every other; returns its id';

create or replace function bds.retry_delivery(company text, hook_id uuid, delivery_id uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook    bds.hooks := bds_service.lock_hook(company, hook_id);
    state   text;
    refused text;
    now_at  timestamptz := clock_timestamp();
begin
    perform 1 from bds.hook_states s where s.company_id = company and s.hook_id = hook.id for update;
    select d.state, case
        when d.state = 'cancelled' then 'is cancelled'
        when s.lease is not null and s.leased_id = d.id and s.next_at > now_at then 'is being sent'
        when hook.disabled then 'is of a disabled hook'
    end
    into state, refused
    from bds.deliveries d join bds.hook_states s on s.company_id = d.company_id and s.hook_id = d.hook_id
    where d.company_id = company and d.id = delivery_id and d.hook_id = hook.id;
    if not found then
        raise exception using errcode = 'BD002', message = format('hook %s has no delivery %s', hook.id, delivery_id);
    elsif refused is not null then
        raise exception using errcode = 'BD004', message = format('delivery %s %s', delivery_id, refused);
    elsif state in ('pending', 'waiting') then
        update bds.deliveries d set urgent = true, extra = true where d.company_id = company and d.id = delivery_id;
    else
        update bds.deliveries d
        set state = 'pending', failures = 0, urgent = true, next_attempt_at = now_at, finished_at = null
        where d.company_id = company and d.id = delivery_id;
    end if;
    perform bds_webhooks.wake_hook(company, hook.id);
end
$$;
comment on function bds.retry_delivery(text, uuid, uuid) is
    'Makes a delivery the next one of its hook, also while the hook rests: one that has ended gets a new schedule; a failure of '
    'one that waits leaves its schedule as it is. Raises BD004 if it is cancelled or being sent, or its hook is disabled';

create function bds_webhooks.wake_hook(company text, hook_id uuid)
    returns void
    language plpgsql
as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    -- With an attempt running, the end of its lease makes the hook due: its row is locked in any case, so that what ends it
    -- comes after this transaction and sees its deliveries.  A lease that has ended holds no longer: a late result must not be
    -- taken for that of the attempt that comes.
    update bds.hook_states s
    set next_at = case when s.lease is null or s.next_at <= now_at then now_at else s.next_at end,
        lease = case when s.next_at > now_at then s.lease end
    where s.company_id = company and s.hook_id = wake_hook.hook_id;
    perform pg_notify('bds_hooks', company);
end
$$;
comment on function bds_webhooks.wake_hook(text, uuid) is 'Makes a hook due now and notifies the workers';

create or replace function bds_service.forget_deliveries(older_than interval, most int default 10000)
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '100ms'
as $$
declare
    forgotten bigint;
begin
    with o as materialized (  -- found once; a join may run a subquery for each row, and then finds others each time
        select o.company_id, o.id from bds.deliveries o
        where o.finished_at < now() - older_than and exists (select from bds.residents r where r.company_id = o.company_id)
        order by o.finished_at limit most for update skip locked
    )
    delete from bds.deliveries d using o
    where d.company_id = o.company_id and d.id = o.id;
    get diagnostics forgotten = row_count;
    delete from bds.hooks h
    using (
        select o.company_id, o.id from bds.hooks o join bds.hook_states s on s.company_id = o.company_id and s.hook_id = o.id
        where o.deleted_at < now() - older_than
            and not exists (select 1 from bds.deliveries d where d.company_id = o.company_id and d.hook_id = o.id)
            and exists (select from bds.residents r where r.company_id = o.company_id)
        for update skip locked  -- of the state too, which is deleted with the hook
    ) o
    where h.company_id = o.company_id and h.id = o.id;
    update bds.hook_secrets s
    set previous = null, ends_at = null
    from (
        select e.company_id, e.hook_id from bds.hook_secrets e
        where e.ends_at < now() and exists (select from bds.residents r where r.company_id = e.company_id)
        for update skip locked
    ) e
    where s.company_id = e.company_id and s.hook_id = e.hook_id;
    return forgotten;
exception when lock_not_available then
    return 0;  -- another session has a table; the next call tries again
end
$$;
comment on function bds_service.forget_deliveries(interval, int) is
    'Deletes deliveries that ended longer ago than older_than and hooks that were deleted then and have none (null: neither), and '
    'secrets that no longer sign; returns the number of deliveries';
