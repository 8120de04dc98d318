-- Rests of hooks: each begins with a delivery's last failure (6_queue.sql).

create function bds_webhooks.end_rest(company text, hook_id uuid, forget boolean)
    returns void
    language sql
as $$
    update bds.hook_states s
    set rests_until = null, failures = case when forget then 0 else s.failures end,
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
