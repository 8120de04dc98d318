-- Ends of rests, which begin with a delivery's last failure (6_queue.sql), and of hooks that have failed for too long.

create function bds_webhooks.end_rest(company text, hook_id uuid, forget boolean)
    returns void
    language sql
as $$
    update bds.hook_states s
    set rests_until = null, failures = case when forget then 0 else s.failures end,
        failing_since = case when not forget then s.failing_since end,
        -- a running attempt keeps its lease
        next_at = case when s.lease is not null then s.next_at else (
            select case when d.urgent then clock_timestamp() else d.next_attempt_at end
            from bds.deliveries d
            where d.company_id = s.company_id and d.hook_id = s.hook_id and d.finished_at is null
            order by d.urgent desc, d.precedence desc, d.number
            limit 1
        ) end
    where s.company_id = company and s.hook_id = end_rest.hook_id;
$$;
comment on function bds_webhooks.end_rest(text, uuid, boolean) is
    'Ends the rest of a hook, so that waiting deliveries go out at their own times; forget: its failures are forgotten, too';

create or replace function bds_service.end_rest(company text, hook_id uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook bds.hooks := bds_service.lock_hook(company, hook_id);
begin
    perform 1 from bds.hook_states s where s.company_id = company and s.hook_id = hook.id for update;
    if not exists (
        select from bds.hook_states s
        where s.company_id = company and s.hook_id = hook.id and s.rests_until > clock_timestamp()
    ) then
        raise exception using errcode = 'BD004', message = format('hook %s does not rest', hook.id);
    end if;
    perform bds_webhooks.end_rest(company, hook.id, false);
    perform pg_notify('bds_hooks', company);
end
$$;
comment on function bds_service.end_rest(text, uuid) is
    'Ends the rest of a hook: its next delivery is sent now. Raises BD004 if the hook does not rest';

create or replace function bds_service.disable_failing(longer_than interval)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    failing bds.hook_states;
    now_at  timestamptz;
begin
    select s.* into failing
    from bds.hook_states s
    join bds.hooks h on h.company_id = s.company_id and h.id = s.hook_id
    join bds.residents r on r.company_id = s.company_id
    where s.failures > 0 and s.last_at - s.failing_since >= longer_than and not h.disabled and h.deleted_at is null
    order by s.company_id, s.hook_id
    limit 1;
    if not found then
        return null;
    end if;
    perform 1 from bds.hooks h where h.company_id = failing.company_id and h.id = failing.hook_id for no key update;
    perform bds_webhooks.hold_routing(failing.company_id);
    perform 1 from bds.hook_states s where s.company_id = failing.company_id and s.hook_id = failing.hook_id for update;
    now_at := clock_timestamp();
    update bds.hooks h
    set disabled = true, disabled_for = 'failures', updated_at = now_at
    from bds.hook_states s
    where h.company_id = failing.company_id and h.id = failing.hook_id and not h.disabled and h.deleted_at is null
        and s.company_id = h.company_id and s.hook_id = h.id and s.failing_since = failing.failing_since;
    if found then  -- else it has changed or succeeded while this session waited for the locks
        perform bds_webhooks.cancel_queued(failing.company_id, failing.hook_id), pg_notify('bds_hooks', failing.company_id);
    end if;
    return failing.hook_id;
end
$$;
comment on function bds_service.disable_failing(interval) is
    'Disables a hook whose attempts have all failed for so long, from the first of them to the last, and cancels its queue; '
    'returns the hook that it has looked at, null if there is none';
