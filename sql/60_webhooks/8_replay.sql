-- Replays: changes of the log that match a hook as it is now are sent to it, again or for the first time.

create function bds_webhooks.match_replay(hook bds.hooks, replay uuid, since bigint, until bigint, most bigint)
    returns bigint
    language plpgsql
as $$
declare
    slice   constant bigint := 20000;  -- changes that are matched at once
    matched bigint := 0;
    from_id bigint := since;
    to_id   bigint;
begin
    while from_id < until and matched <= most loop
        to_id := least(from_id + slice, until);
        matched := matched + coalesce(
            (
                select sum(m.queued)
                from bds.entity_positions p
                cross join lateral (
                    select array_agg(f.shape) as shapes from bds.hook_filters f
                    where f.company_id = hook.company_id and f.hook_id = hook.id and f.entity = p.entity
                ) f
                cross join lateral bds_webhooks.queue_matches(
                    hook.company_id, p.entity, from_id, to_id, 'infinity', f.shapes, hook.id, replay
                ) m
                where p.company_id = hook.company_id and p.last_id > from_id and p.entity = coalesce(hook.entity, p.entity)
                    and (hook.filter is null or f.shapes is not null)
            ), 0
        );
        from_id := to_id;
    end loop;
    return matched;
end
$$;
comment on function bds_webhooks.match_replay(bds.hooks, uuid, bigint, bigint, bigint) is
    'Queues the changes after since, up to until, that match a hook, under the id of a replay; returns their number. Ends early '
    'beyond so many';

create or replace function bds_service.replay_hook(
    company text, hook_id uuid, since bigint, until bigint, most bigint default 100000,
    out changes bigint, out deliveries bigint, out fits bigint
)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook   bds.hooks := bds_service.lock_hook(company, hook_id);
    replay uuid := gen_random_uuid();
    now_at timestamptz;
begin
    if hook.disabled then
        raise exception using errcode = 'BD004', message = format('hook %s is disabled', hook.id);
    elsif hook.filter is not null and hook.catalog_version is null then
        raise exception using
            errcode = 'BD003', message = format('the filter of hook %s is not compiled yet: try again in a moment', hook.id);
    end if;
    perform bds.version_of(company, since::text), set_config('bds.company', company, true);
    -- Only this transaction sees what is queued under the id of the replay.
    changes := bds_webhooks.match_replay(hook, replay, since, until, most);
    if changes > most then
        select q.change_id - 1 into fits
        from bds.hook_queue q
        where q.company_id = company and q.hook_id = replay
        order by q.change_id
        offset most limit 1;
        deliveries := 0;
    else
        perform 1 from bds.hook_states s where s.company_id = company and s.hook_id = hook.id for update;
        now_at := clock_timestamp();
        insert into bds.deliveries (
            company_id, hook_id, precedence, change_set_id, change_count, body, created_at, next_attempt_at
        )
        select company, hook.id, w.highest + 1, p.change_set_id, p.size,
            bds_webhooks.body_of(c, hook.id, p.change_set_id, p.changes, now_at), now_at, now_at
        from bds_webhooks.plan_batches(array[company], array[replay], 'infinity') p
        join bds.companies c on c.id = company
        cross join (
            select coalesce(max(d.precedence), 0) as highest from bds.deliveries d
            where d.company_id = company and d.hook_id = hook.id and d.finished_at is null
        ) w
        order by p.first_id;
        get diagnostics deliveries = row_count;
        perform bds_webhooks.wake_hook(company, hook.id) where changes > 0;
    end if;
    delete from bds.hook_queue q where q.company_id = company and q.hook_id = replay;
end
$$;
comment on function bds_service.replay_hook(text, uuid, bigint, bigint, bigint) is
    'Queues the changes after the version since, up to until, that match a hook as it is now, in new deliveries, which go out '
    'before all that is not being sent. If more than most match, it queues none, and fits is the version up to which they fit. '
    'Raises BD004 for a disabled hook, BD006 if the log is not kept from since on';
