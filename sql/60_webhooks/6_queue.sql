-- The queue as a SQL API, for workers in any language.  A worker needs the role bds_worker, LISTEN and these calls:
--
--     listen bds_changes; listen bds_hooks;                    payload: the company; at the start and after each notification:
--     select bds_service.companies_behind();                   companies with changes to match, and for each of them
--     select * from bds_service.route_changes(company);
--     select * from bds_service.claim_deliveries(100);         due deliveries, leased for 15 seconds
--     POST body to url, signed by secrets; meanwhile           select bds_service.renew_leases('[{"company", "hook", "lease"}]');
--     select * from bds_service.record_attempts(
--         '[{"company", "hook", "delivery", "lease", "status", "durationMs", "error", "reply"}]'
--     );
--     sleep until a notification or for                        select bds_service.next_due();   seconds
--
-- The order of locks.  A session that waits for a row lock holds none of a later table, nor of a later row of the same table:
--
--     hooks             one for each transaction: to change, test or delete it, or to send one of its deliveries again
--     hook_positions    one for each transaction: to match a company's changes, or to create or change a hook; matching skips a
--                       locked one
--     hook_states       in the order of (company_id, hook_id), all of them in one statement: to queue matched changes, to record,
--                       renew or release leases, to cancel or retry deliveries; making batches and claiming skip locked ones
--     deliveries        only of hooks whose state the session holds
--     hook_queue        new rows are inserted before the state is locked, where only their own session sees them; rows are read
--                       and deleted only by the session that holds the state
--
-- bds_service.forget_deliveries needs deliveries first and skips every locked row.  Inserting a state or a delivery locks its hook
-- for key share, which waits only while the hook's row is being deleted.  What is read under a lock is read by a later statement
-- than the one that took the lock.

create or replace function bds_service.claim_deliveries(
    most  int default 100,
    lease interval default '15 seconds',
    out company text, out hook uuid, out delivery uuid, out lease_id uuid, out url text, out secrets text[], out body text
)
    returns setof record
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    companies text[];
    hooks     uuid[];
begin
    perform bds_webhooks.make_batches();
    select array_agg(s.company_id), array_agg(s.hook_id) into companies, hooks
    from (
        select d.company_id, d.hook_id
        from bds.hook_states d
        where d.next_at <= clock_timestamp()
            and exists (select from bds.residents r where r.company_id = d.company_id)
        order by d.next_at
        limit most
        for update skip locked
    ) s;
    if companies is not null then
        return query select * from bds_webhooks.lease_deliveries(companies, hooks, lease);
    end if;
end
$$;
comment on function bds_service.claim_deliveries(int, interval) is
    'Leases the next delivery of each hook that is due, with the secrets that sign it, newest first. After a lease has ended '
    'without a result another worker may claim the delivery';

create function bds_webhooks.lease_deliveries(
    companies text[], hooks uuid[], lease interval,
    out company text, out hook uuid, out delivery uuid, out lease_id uuid, out url text, out secrets text[], out body text
)
    returns setof record
    language plpgsql
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    now_at timestamptz := clock_timestamp();
    fresh  uuid[] := array(select gen_random_uuid() from generate_subscripts(hooks, 1));
begin
    return query
    with due as (
        select s.company_id, s.hook_id, d.*, h.url,
            array_remove(array[k.secret, case when k.ends_at > now_at then k.previous end], null) as secrets,
            case when d.urgent then now_at else greatest(d.next_attempt_at, s.rests_until) end as at,
            w.lease
        from unnest(companies, hooks, fresh) as w (company_id, hook_id, lease)
        join bds.hook_states s on s.company_id = w.company_id and s.hook_id = w.hook_id
        join bds.hooks h on h.company_id = w.company_id and h.id = w.hook_id
        left join bds.hook_secrets k on k.company_id = w.company_id and k.hook_id = w.hook_id
        left join lateral (
            select d.id, d.number, d.urgent, d.next_attempt_at, d.body
            from bds.deliveries d
            where d.company_id = w.company_id and d.hook_id = w.hook_id and d.finished_at is null
            order by d.urgent desc, d.precedence desc, d.number
            limit 1
        ) d on true
    ),
    taken as (
        update bds.hook_states s
        set lease = case when due.at <= now_at then due.lease end, leased_id = due.id,
            next_at = case when due.at <= now_at then now_at + lease_deliveries.lease else due.at end
        from due
        where s.company_id = due.company_id and s.hook_id = due.hook_id
        returning s.company_id, s.hook_id, s.lease
    )
    select due.company_id, due.hook_id, due.id, taken.lease, due.url, due.secrets, due.body
    from due join taken on taken.company_id = due.company_id and taken.hook_id = due.hook_id
    where taken.lease is not null
    order by due.number;
end
$$;
comment on function bds_webhooks.lease_deliveries(text[], uuid[], interval) is
    'Leases the next delivery of each of these hooks, whose states the caller has locked';

create function bds_webhooks.lock_leases(attempts jsonb)
    returns void
    language plpgsql
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
begin
    perform from (
        select 1 from bds.hook_states s
        join jsonb_to_recordset(attempts) as a (company text, hook uuid, lease uuid)
            on s.company_id = a.company and s.hook_id = a.hook and s.lease = a.lease
        order by s.company_id, s.hook_id
        for update of s
    ) locked;
end
$$;
comment on function bds_webhooks.lock_leases(jsonb) is 'Locks the states of hooks whose leases hold, in the order of their keys';

create or replace function bds_service.record_attempts(
    attempts jsonb,
    retry    double precision[] default '{60,180,540,1620,4860}',
    penalty  interval default '1 hour',
    out delivery uuid, out state text
)
    returns setof record
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    ended  record;
    rested uuid[];
    eased  uuid[];
    spared uuid[];
begin
    perform bds_webhooks.lock_leases(attempts);
    for ended in select * from bds_webhooks.end_attempts(attempts, retry) loop
        delivery := ended.delivery;
        state := ended.state;
        rested := case when ended.exhausted then rested || ended.hook else rested end;
        eased := case when ended.eases then eased || ended.hook else eased end;
        spared := case when ended.is_extra then spared || ended.hook else spared end;
        return next;
    end loop;
    perform bds_webhooks.end_leases(attempts, true, rested, eased, spared, penalty);
end
$$;
comment on function bds_service.record_attempts(jsonb, double precision[], interval) is
    'Records attempts and ends their leases: 2xx is delivered, 4xx failed, anything else is tried again after the seconds of the '
    'schedule. '
    'After the last retry the hook rests for the penalty. Results whose lease has ended are ignored';

create function bds_webhooks.end_attempts(
    attempts jsonb, retry double precision[],
    out delivery uuid, out state text, out hook uuid, out exhausted boolean, out eases boolean, out is_extra boolean
)
    returns setof record
    language plpgsql
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    now_at timestamptz := clock_timestamp();
begin
    return query
    with a as materialized (
        select a.company, a.hook, a.delivery, a.status, coalesce(a."durationMs", 0) as duration, a.error, a.reply,
            a.status between 200 and 299 as good, a.status between 400 and 499 as refused
        from jsonb_to_recordset(attempts) as a (
            company text, hook uuid, delivery uuid, lease uuid, status int, "durationMs" int, error text, reply text
        )
        join bds.hook_states s on s.company_id = a.company and s.hook_id = a.hook and s.lease = a.lease and s.leased_id = a.delivery
    ),
    tried as (
        insert into bds.delivery_attempts (company_id, delivery_id, n, at, status, duration_ms, error, reply)
        select a.company, a.delivery,
            (
                select coalesce(max(t.n), 0) + 1
                from bds.delivery_attempts t where t.company_id = a.company and t.delivery_id = a.delivery
            ),
            now_at - make_interval(secs => a.duration / 1000.0), a.status, a.duration, a.error, a.reply
        from a
    ),
    outcome as (
        select a.company, a.hook, a.delivery, coalesce(a.good, false) as good, d.test, d.extra as is_extra,
            -- after the last retry the hook rests
            d.finished_at is null and not d.test and not d.extra and a.good is not true and a.refused is not true
                and d.failures >= cardinality(retry) as exhausted,
            case
                when a.good then 'delivered'
                when d.finished_at is not null then d.state  -- cancelled in the meantime
                when a.refused or d.test or not d.extra and d.failures >= cardinality(retry) then 'failed'
                else 'waiting'
            end as state
        from a join bds.deliveries d on d.company_id = a.company and d.id = a.delivery
    )
    update bds.deliveries d
    set state = o.state, urgent = false, extra = false,
        failures = case when o.good then 0 when o.is_extra then d.failures else d.failures + 1 end,
        next_attempt_at = case
            when o.state = 'waiting' and o.is_extra then d.next_attempt_at
            when o.state = 'waiting' then now_at + make_interval(secs => retry[d.failures + 1])
        end,
        finished_at = case when o.state <> 'waiting' then now_at end
    from outcome o
    where d.company_id = o.company and d.id = o.delivery
    returning d.id, d.state, o.hook, o.exhausted, o.good and not o.test as eases, o.is_extra and o.state = 'waiting' as is_extra;
end
$$;
comment on function bds_webhooks.end_attempts(jsonb, double precision[]) is
    'Stores the attempts whose leases hold, and the new state of each delivery. exhausted: the last retry has failed; eases: the '
    'attempt ends the hook''s rest; is_extra: it failed beside the schedule, and does not count';

create function bds_webhooks.end_leases(
    attempts jsonb, tried boolean, rested uuid[], eased uuid[], spared uuid[], penalty interval
)
    returns void
    language plpgsql
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    with a as (
        select s.company_id, s.hook_id, a.status, now_at - make_interval(secs => coalesce(a."durationMs", 0) / 1000.0) as at,
            case
                when s.hook_id = any (rested) then now_at + penalty
                when s.hook_id = any (eased) then null
                else s.rests_until
            end as rests_until
        from jsonb_to_recordset(attempts) as a (company text, hook uuid, lease uuid, status int, "durationMs" int)
        join bds.hook_states s on s.company_id = a.company and s.hook_id = a.hook and s.lease = a.lease
    )
    update bds.hook_states s
    set lease = null, rests_until = a.rests_until,
        last_at = case when tried then a.at else s.last_at end,
        last_status = case when tried then a.status else s.last_status end,
        failures = case
            when not tried or s.hook_id = any (spared) then s.failures
            when a.status between 200 and 299 then 0
            else s.failures + 1
        end,
        failing_since = case
            when not tried or s.hook_id = any (spared) then s.failing_since
            when a.status between 200 and 299 then null
            else coalesce(s.failing_since, a.at)
        end,
        next_at = (
            select case when d.urgent then now_at else greatest(d.next_attempt_at, a.rests_until) end
            from bds.deliveries d
            where d.company_id = s.company_id and d.hook_id = s.hook_id and d.finished_at is null
            order by d.urgent desc, d.precedence desc, d.number
            limit 1
        )
    from a
    where s.company_id = a.company_id and s.hook_id = a.hook_id;
end
$$;
comment on function bds_webhooks.end_leases(jsonb, boolean, uuid[], uuid[], uuid[], interval) is
    'Releases hooks for their next delivery, and stores the results if the attempts were tried. Hooks in rested begin a rest of '
    'the penalty; the rest of hooks in eased ends; failures of those in spared do not count';

create or replace function bds_service.renew_leases(attempts jsonb, lease interval default '15 seconds')
    returns setof uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- A plan made for small tables is reused for large ones: a few keys are always looked up by index.
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    ends_at timestamptz;
begin
    perform bds_webhooks.lock_leases(attempts);
    ends_at := clock_timestamp() + renew_leases.lease;
    return query
    update bds.hook_states s
    set next_at = ends_at
    from jsonb_to_recordset(attempts) as a (company text, hook uuid, lease uuid)
    where s.company_id = a.company and s.hook_id = a.hook and s.lease = a.lease
    returning s.lease;
end
$$;
comment on function bds_service.renew_leases(jsonb, interval) is 'Prolongs leases; returns those that hold. The others have ended';

create or replace function bds_service.release_leases(attempts jsonb)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_webhooks.lock_leases(attempts), bds_webhooks.end_leases(attempts, false, null, null, null, null);
    perform pg_notify('bds_hooks', '');
end
$$;
comment on function bds_service.release_leases(jsonb) is
    'Returns deliveries whose attempts were not completed, so that another worker can claim them at once';

create or replace function bds_service.next_due()
    returns double precision
    language sql
    volatile
    set search_path = pg_catalog, pg_temp
    -- in the order of the index, up to the first hook of a company that lives here
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
    select extract(epoch from least(
        (
            select s.batch_at from bds.hook_states s
            where s.batch_at is not null and exists (select from bds.residents r where r.company_id = s.company_id)
            order by s.batch_at limit 1
        ),
        (
            select s.next_at from bds.hook_states s
            where s.next_at is not null and exists (select from bds.residents r where r.company_id = s.company_id)
            order by s.next_at limit 1
        )
    ) - clock_timestamp());
$$;
comment on function bds_service.next_due() is 'Seconds until the next batch or delivery is due; null if the queue is empty';
