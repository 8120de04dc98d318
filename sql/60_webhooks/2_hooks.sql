-- Hooks as a SQL API: create, update and delete them.
--
--     begin; select bds.set_context('acme', 'me');
--     select bds.create_hook('acme', 'products', 'https://example.com/hook', 'price > 100');   -- the hook, with its secret
--     commit;
--
-- A filter is stored as its text.  A worker of the service compiles it (bds_service.refit_hook).  Until then no change of the
-- company is matched, so no change is missed.
--
-- The functions run as bds_dispatcher, which acts for every company: each of them first requires that the session acts for the
-- company.  The order of locks is in 6_queue.sql.

create or replace function bds_service.lock_hook(company text, hook_id uuid)
    returns bds.hooks
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook bds.hooks;
begin
    perform bds.require_company(company);
    select * into hook from bds.hooks h where h.company_id = company and h.id = hook_id and h.deleted_at is null for no key update;
    perform bds_impl.require_resident(company);
    if hook.id is null then
        raise exception using errcode = 'BD002', message = format('no such hook: %s', hook_id);
    end if;
    return hook;
end
$$;
comment on function bds_service.lock_hook(text, uuid) is
    'Locks a hook until the end of the transaction and returns it; raises BD002 if no hook has this id, or its company does not '
    'live here';

create function bds_webhooks.make_secret()
    returns text
    language sql
    volatile
    return 'whsec_' || encode(
        sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'base64'
    );
comment on function bds_webhooks.make_secret() is 'A new signing secret: 32 random bytes in the format of Standard Webhooks';

create function bds_webhooks.last_change(company text)
    returns bigint
    language sql
    stable
as $$
    select (select r.last_id from bds.residents r where r.company_id = company);
$$;
comment on function bds_webhooks.last_change(text) is 'The id of the company''s last committed change';

create or replace function bds.create_hook(
    company             text,
    entity              text,
    url                 text,
    filter              text default null,
    columns             text[] default null,
    allow_in_change_set boolean default false,
    disabled            boolean default false
)
    returns json
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook    bds.hooks;
    secret  text := bds_webhooks.make_secret();
    made_at timestamptz := clock_timestamp();
begin
    perform bds.require_company(company), bds_webhooks.check_hook(entity, url, columns);
    perform bds_webhooks.begin_routing(company);
    insert into bds.hooks (
        company_id, since_id, entity, url, filter, columns, allow_in_change_set, disabled, created_at, updated_at
    )
    values (
        company, bds_webhooks.last_change(company), entity, url, bds_webhooks.filter_text(filter), nullif(columns, '{}'),
        allow_in_change_set, disabled, made_at, made_at
    )
    returning * into hook;
    insert into bds.hook_states (company_id, hook_id) values (company, hook.id);
    insert into bds.hook_secrets (company_id, hook_id, secret) values (company, hook.id, secret);
    perform pg_notify('bds_hooks', company);
    return bds_webhooks.described(hook, secret);
end
$$;
comment on function bds.create_hook(text, text, text, text, text[], boolean, boolean) is
    'Creates a hook and returns it with its secret, which is not shown again. A filter in the language of /c is compiled by the '
    'worker; if it does not fit the model, the worker disables the hook and notes the problem';

create function bds_webhooks.filter_text(filter text)
    returns text
    language plpgsql
    immutable
as $$
begin
    if length(filter) > 10000 then
        raise exception using
            errcode = 'BD005', message = format('expected a filter of at most 10,000 characters, got %s', length(filter));
    end if;
    return case when filter ~ '[^[:space:]]' then filter end;
end
$$;
comment on function bds_webhooks.filter_text(text) is 'A hook''s filter, or null if it is blank; raises BD005 if it is too long';

create function bds_webhooks.hold_routing(company text)
    returns void
    language plpgsql
as $$
begin
    -- Matching takes several statements: a hook that changed between two of them might be matched by neither filter.
    perform 1 from bds.hook_positions p where p.company_id = company for update;
    perform bds_impl.require_resident(company);
end
$$;
comment on function bds_webhooks.hold_routing(text) is
    'Waits until the company''s hooks are not being matched, and blocks matching until the end of the transaction. Raises BD002 '
    'if the company does not live here';

create function bds_webhooks.begin_routing(company text)
    returns void
    language plpgsql
as $$
begin
    insert into bds.hook_positions (company_id, routed_id)
    select r.company_id, r.last_id from bds.residents r where r.company_id = company
    on conflict do nothing;
    perform bds_webhooks.hold_routing(company);
    -- The position is read before the hook is visible, so no later change is missed; and after the lock, so that a hook that
    -- another session has just created is seen.
    update bds.hook_positions p set routed_id = bds_webhooks.last_change(company)
    where p.company_id = company
        and not exists (select 1 from bds.hooks h where h.company_id = company and not h.disabled and h.deleted_at is null);
end
$$;
comment on function bds_webhooks.begin_routing(text) is
    'To be called before a hook is created or enabled, holds matching as hold_routing does: if no other hook is enabled, changes '
    'before this moment, which nobody has matched, are passed over';

create or replace function bds.update_hook(
    company             text,
    hook_id             uuid,
    entity              text,
    url                 text,
    filter              text,
    columns             text[],
    allow_in_change_set boolean,
    disabled            boolean
)
    returns json
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    before bds.hooks := bds_service.lock_hook(company, hook_id);
    after  bds.hooks;
    now_at timestamptz := clock_timestamp();
begin
    perform bds_webhooks.check_hook(entity, url, columns);
    perform bds_webhooks.begin_routing(company) where before.disabled and not update_hook.disabled;
    perform bds_webhooks.hold_routing(company);
    update bds.hooks h
    set entity = update_hook.entity, url = update_hook.url, filter = bds_webhooks.filter_text(update_hook.filter),
        columns = nullif(update_hook.columns, '{}'),
        allow_in_change_set = update_hook.allow_in_change_set, disabled = update_hook.disabled,
        disabled_for = case when update_hook.disabled then h.disabled_for end,
        catalog_version = null, problem = null, updated_at = now_at,
        since_id = case when before.disabled and not update_hook.disabled then bds_webhooks.last_change(company) else h.since_id end
    where h.company_id = company and h.id = hook_id
    returning * into after;
    delete from bds.hook_filters f where f.company_id = company and f.hook_id = update_hook.hook_id;
    if after.disabled and not before.disabled then
        perform bds_webhooks.cancel_queued(company, hook_id);
    elsif after.url <> before.url then
        perform bds_webhooks.end_rest(company, hook_id, true);
    end if;
    update bds.hook_states s set failing_since = null
    where s.company_id = company and s.hook_id = update_hook.hook_id and before.disabled and not after.disabled;
    perform pg_notify('bds_hooks', company);
    return bds_webhooks.described(after);
end
$$;
comment on function bds.update_hook(text, uuid, text, text, text, text[], boolean, boolean) is
    'Changes a hook and returns it. Disabling cancels its queue; enabling begins with the next change; another url ends its rest. '
    'The worker compiles the filter, as for bds.create_hook';

create or replace function bds_service.refit_hook(
    company text, hook_id uuid, as_of timestamptz, filters jsonb, catalog_version text, problem text default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    now_at timestamptz;
begin
    perform 1 from bds.hooks h
    where h.company_id = company and h.id = refit_hook.hook_id and h.updated_at = as_of and h.deleted_at is null for no key update;
    if not found or not exists (select from bds.residents r where r.company_id = company) then
        return;  -- it was changed, or its company has moved, while its filter was being compiled
    end if;
    now_at := clock_timestamp();
    perform bds_webhooks.hold_routing(company);
    delete from bds.hook_filters f where f.company_id = company and f.hook_id = refit_hook.hook_id;
    update bds.hooks h
    set catalog_version = refit_hook.catalog_version,
        disabled = h.disabled or refit_hook.problem is not null,
        problem = refit_hook.problem,
        updated_at = case when refit_hook.problem is null then h.updated_at else now_at end
    where h.company_id = company and h.id = refit_hook.hook_id;
    if problem is not null then
        perform bds_webhooks.cancel_queued(company, hook_id);
    else
        insert into bds.hook_filters (company_id, hook_id, entity, shape, joins, condition, types, "values")
        select company, hook_id, f.entity, bds_webhooks.shape_of(f.joins, f.condition, f.types), f.joins, f.condition, f.types,
            f."values"
        from jsonb_to_recordset(filters) as f (entity text, joins text, condition text, types text[], "values" text[]);
    end if;
end
$$;
comment on function bds_service.refit_hook(text, uuid, timestamptz, jsonb, text, text) is
    'Stores a filter that was compiled from the hook as of its updated_at, one element for each entity: [{entity, joins, '
    'condition, types, values}]; or disables the hook with the problem of its filter';

create or replace function bds.delete_hook(company text, hook_id uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook   bds.hooks := bds_service.lock_hook(company, hook_id);
    now_at timestamptz := clock_timestamp();
begin
    update bds.hooks h set deleted_at = now_at where h.company_id = company and h.id = hook.id;
    delete from bds.hook_filters f where f.company_id = company and f.hook_id = hook.id;
    delete from bds.hook_secrets s where s.company_id = company and s.hook_id = hook.id;
    perform bds_webhooks.cancel_queued(company, hook.id);
end
$$;
comment on function bds.delete_hook(text, uuid) is
    'Deletes a hook and cancels its queue; its deliveries stay until bds_service.forget_deliveries';

create or replace function bds.rotate_hook(company text, hook_id uuid, revoke boolean default false)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    hook    bds.hooks := bds_service.lock_hook(company, hook_id);
    fresh   text := bds_webhooks.make_secret();
    sign_to timestamptz := case when not revoke then clock_timestamp() + interval '1 day' end;
begin
    update bds.hook_secrets s
    set secret = fresh, previous = case when not revoke then s.secret end,
        ends_at = sign_to
    where s.company_id = company and s.hook_id = hook.id;
    return fresh;
end
$$;
comment on function bds.rotate_hook(text, uuid, boolean) is
    'Gives a hook a new secret and returns it. The previous secret also signs for a day; with revoke it ends at once, as older '
    'ones do';

create function bds_webhooks.cancel_queued(company text, hook_id uuid)
    returns void
    language plpgsql
as $$
declare
    now_at timestamptz;
begin
    perform 1 from bds.hook_states s where s.company_id = company and s.hook_id = cancel_queued.hook_id for update;
    perform bds_webhooks.make_batches_of(array[company], array[hook_id], 'infinity');
    now_at := clock_timestamp();
    update bds.deliveries d
    set state = 'cancelled', next_attempt_at = null, urgent = false, extra = false, finished_at = now_at
    where d.company_id = company and d.hook_id = cancel_queued.hook_id and d.finished_at is null;
    -- a running attempt keeps its lease, so that its result is recorded
    update bds.hook_states s
    set next_at = case when s.lease is not null then s.next_at end, rests_until = null
    where s.company_id = company and s.hook_id = cancel_queued.hook_id;
end
$$;
comment on function bds_webhooks.cancel_queued(text, uuid) is
    'Cancels a hook''s deliveries that have not ended, and its queued changes';
