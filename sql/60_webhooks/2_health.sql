-- A hook in the format of the API, with its health.

create or replace view bds.hook_health with (security_invoker = true) as
select h.company_id, h.id as hook_id,
    case
        when h.disabled then 'disabled'
        when s.rests_until > clock_timestamp() then 'resting'
        when s.failures > 0 then 'failing'
        else 'ok'
    end as state,
    s.failures, s.last_status, s.last_at, s.queued + coalesce(d.changes, 0) as queued,
    case when s.rests_until > clock_timestamp() then s.rests_until end as rests_until, h.disabled_for as reason
from bds.hooks h
join bds.hook_states s on s.company_id = h.company_id and s.hook_id = h.id
left join (
    select u.company_id, u.hook_id, sum(u.change_count) as changes
    from bds.deliveries u
    where u.finished_at is null and not u.test
    group by u.company_id, u.hook_id
) d on d.company_id = h.company_id and d.hook_id = h.id
where h.deleted_at is null;
comment on view bds.hook_health is 'The health of each hook: its state, its last attempt and the number of queued changes';
comment on column bds.hook_health.company_id is 'The company';
comment on column bds.hook_health.hook_id is 'The hook';
comment on column bds.hook_health.state is
    'disabled; resting after a delivery''s last failure; failing: the last attempt failed; or ok';
comment on column bds.hook_health.failures is 'Failed attempts since the last one that succeeded, or since the first';
comment on column bds.hook_health.last_status is 'HTTP status of the reply to the last attempt; null if there was no reply';
comment on column bds.hook_health.last_at is 'Time of the last attempt, including tests; null if there was none';
comment on column bds.hook_health.queued is 'Number of matched changes that are not delivered yet';
comment on column bds.hook_health.rests_until is 'End of the rest; null if the hook does not rest';
comment on column bds.hook_health.reason is
    'failures: the service has disabled the hook because it has only failed for too long; else null';

create or replace function bds_service.hook_json(hook bds.hooks, health bds.hook_health, secret text default null)
    returns json
    language sql
    stable
as $$
    select json_object(
        'id': hook.id, 'entity': coalesce(to_json(hook.entity), 'null'), 'url': hook.url, 'action': hook.action,
        'filter': coalesce(to_json(hook.filter), 'null'), 'columns': coalesce(to_json(hook.columns), 'null'),
        'allowInChangeSet': hook.allow_in_change_set, 'disabled': hook.disabled,
        'createdAt': bds_service.api_time(hook.created_at), 'updatedAt': bds_service.api_time(hook.updated_at),
        'problem': hook.problem,
        'health': json_build_object(
            'state', health.state, 'reason', health.reason, 'failures', health.failures, 'lastStatus', health.last_status,
            'lastAt', bds_service.api_time(health.last_at), 'queued', health.queued,
            'restsUntil', bds_service.api_time(health.rests_until)
        ),
        'notices': case
            when hook.allow_in_change_set then '[]'::json
            else '["every import is a change set, and allowInChangeSet is false: this hook receives no changes of imports"]'
        end,
        'secret': secret
        absent on null
    );
$$;
comment on function bds_service.hook_json(bds.hooks, bds.hook_health, text) is
    'A hook in the format of the API, with its secret if it was just created';

create function bds_webhooks.described(hook bds.hooks, secret text default null)
    returns json
    language sql
    stable
as $$
    select bds_service.hook_json(hook, s, secret)
    from bds.hook_health s where s.company_id = hook.company_id and s.hook_id = hook.id;
$$;
comment on function bds_webhooks.described(bds.hooks, text) is 'A hook that was just stored, in the format of the API';
