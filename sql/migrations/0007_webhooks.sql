-- Webhooks: hooks, the queue of changes that match them, and deliveries.

-- Hooks --------------------------------------------------------------------------------------------------------------------------

create table bds.hooks (
    company_id           text collate "C" not null references bds.companies (id) on delete cascade,
    id                   uuid not null default gen_random_uuid(),
    number               bigint not null generated always as identity,
    -- the last change when the hook was created or enabled: it sees later ones
    since_id             bigint not null,
    entity               text collate "C",
    url                  text not null,
    action               text not null default 'webhook',
    filter               text,
    columns              text[],
    allow_in_change_set  boolean not null default false,
    disabled             boolean not null default false,
    problem              text,
    disabled_for         text,
    -- the model that the filter was compiled for; null: not compiled yet
    catalog_version      text,
    created_at           timestamptz not null default clock_timestamp(),
    updated_at           timestamptz not null default clock_timestamp(),
    deleted_at           timestamptz,

    primary key (company_id, id),
    constraint action_is_known check (action in ('webhook')),
    constraint columns_are_named check (cardinality(columns) > 0),
    constraint reason_is_known check (disabled_for in ('failures')),
    constraint reason_disables check (disabled_for is null or disabled),
    constraint problem_disables check (problem is null or disabled or deleted_at is not null)
);
comment on table bds.hooks is 'Hooks: changes of entity (null: of any) that match filter and columns are sent to url';
comment on column bds.hooks.company_id is 'The company';
comment on column bds.hooks.id is 'The hook''s id';
comment on column bds.hooks.number is 'Order of creation';
comment on column bds.hooks.since_id is 'The last change before the hook was created or enabled: it sees later ones';
comment on column bds.hooks.entity is 'The entity that it watches; null: every one';
comment on column bds.hooks.url is 'Where deliveries are sent';
comment on column bds.hooks.action is 'Always webhook';
comment on column bds.hooks.filter is 'Condition in the language of /c; null: none';
comment on column bds.hooks.columns is 'For an update, one of these must have changed; null: any';
comment on column bds.hooks.allow_in_change_set is 'Whether changes of change sets, such as imports, count';
comment on column bds.hooks.disabled is 'Whether it is switched off';
comment on column bds.hooks.catalog_version is 'The model that the filter was compiled for; null: it was not compiled yet';
comment on column bds.hooks.created_at is 'Time of creation';
comment on column bds.hooks.updated_at is 'Time of the last change';
comment on column bds.hooks.problem is
    'The reason why the service has disabled the hook: its filter or a column does not fit the model';
comment on column bds.hooks.disabled_for is
    'failures: the service has disabled the hook because it has only failed for too long; null: it has not';
comment on column bds.hooks.deleted_at is 'A deleted hook stays until bds_service.forget_deliveries has deleted its deliveries';

create table bds.hook_secrets (
    company_id  text collate "C" not null,
    hook_id     uuid not null,
    secret      text not null,
    -- the one before, which signs beside it until then
    previous    text,
    ends_at     timestamptz,

    primary key (company_id, hook_id),
    foreign key (company_id, hook_id) references bds.hooks (company_id, id) on delete cascade,
    constraint secrets_are_of_standard_webhooks check (
        secret ~ '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$' and previous ~ '^whsec_[A-Za-z0-9+/]{32,88}={0,2}$'
    ),
    constraint previous_ends check ((previous is null) = (ends_at is null))
);
comment on table bds.hook_secrets is 'The keys that sign deliveries; only bds_service.claim_deliveries returns them';
comment on column bds.hook_secrets.company_id is 'The company';
comment on column bds.hook_secrets.hook_id is 'The hook';
comment on column bds.hook_secrets.secret is 'The key, in the format of Standard Webhooks';
comment on column bds.hook_secrets.previous is 'The key before the last rotation, which signs too; null: none';
comment on column bds.hook_secrets.ends_at is 'When the previous key stops signing';

create table bds.hook_filters (
    company_id  text collate "C" not null,
    hook_id     uuid not null,
    entity      text collate "C" not null,
    -- of joins, condition and types: see bds_webhooks.shape_of
    shape       text collate "C" not null,
    -- SQL over a row t, the joins that it needs, and the hook's values h.p0, h.p1, ... with their types
    joins       text not null,
    condition   text not null,
    types       text[] not null,
    "values"    text[] not null,

    primary key (company_id, hook_id, entity),
    foreign key (company_id, hook_id) references bds.hooks (company_id, id) on delete cascade,
    constraint each_value_has_a_type check (cardinality(types) = cardinality("values"))
);
comment on table bds.hook_filters is
    'Compiled filters of hooks; hooks whose filters differ only in values have the same text and are matched together';
comment on column bds.hook_filters.company_id is 'The company';
comment on column bds.hook_filters.hook_id is 'The hook';
comment on column bds.hook_filters.entity is 'The entity whose rows the condition is about';
comment on column bds.hook_filters.shape is 'Hash of joins, condition and types: filters that differ only in values have the same';
comment on column bds.hook_filters.joins is 'Joins from the row t that the condition needs';
comment on column bds.hook_filters.condition is 'SQL condition over the row t and the values h.p0, h.p1, ...';
comment on column bds.hook_filters.types is 'Types of the values';
comment on column bds.hook_filters."values" is 'The values, as text';

-- The queue ----------------------------------------------------------------------------------------------------------------------

create table bds.hook_positions (
    company_id  text collate "C" primary key references bds.companies (id) on delete cascade,
    routed_id   bigint not null
) with (fillfactor = 20);
comment on table bds.hook_positions is
    'The last change that was matched with the hooks of each company; only companies that have had hooks';
comment on column bds.hook_positions.company_id is 'The company';
comment on column bds.hook_positions.routed_id is 'The last change that was matched';

create table bds.hook_states (
    company_id     text collate "C" not null,
    hook_id        uuid not null,
    -- number of queued changes, and the time of their batch
    queued         bigint not null default 0,
    batch_at       timestamptz,
    -- time of the next attempt; during an attempt the end of its lease; null: nothing to deliver
    next_at        timestamptz,
    lease          uuid,
    leased_id      uuid,
    rests_until    timestamptz,
    -- the last attempt, and failed ones since the last that succeeded
    last_at        timestamptz,
    last_status    int,
    failures       int not null default 0,
    failing_since  timestamptz,

    primary key (company_id, hook_id),
    foreign key (company_id, hook_id) references bds.hooks (company_id, id) on delete cascade,
    constraint what_is_queued_has_a_time check ((batch_at is null) = (queued = 0)),
    constraint lease_ends check (lease is null or next_at is not null)
) with (fillfactor = 50);
comment on table bds.hook_states is 'The queue state of each hook; the lock of its row serialises workers';
comment on column bds.hook_states.company_id is 'The company';
comment on column bds.hook_states.hook_id is 'The hook';
comment on column bds.hook_states.queued is 'Number of changes that wait for their batch';
comment on column bds.hook_states.batch_at is 'When they become a batch; null: none wait';
comment on column bds.hook_states.next_at is
    'Time of the next attempt, during an attempt the end of its lease; null: nothing to deliver';
comment on column bds.hook_states.lease is 'Token of the worker that has leased the next delivery';
comment on column bds.hook_states.leased_id is 'The delivery that is leased, or was last';
comment on column bds.hook_states.rests_until is 'End of the rest after a delivery''s last failure';
comment on column bds.hook_states.last_at is 'Time of the last attempt, tests too; null: none yet';
comment on column bds.hook_states.last_status is 'HTTP status of its answer; null: there was none';
comment on column bds.hook_states.failures is 'Failed attempts since the last one that succeeded, or since the first';
comment on column bds.hook_states.failing_since is
    'Time of the first failed attempt since the last that succeeded, and since the hook was enabled or has its url; null: none';
create index hook_states_batch_at on bds.hook_states (batch_at) where batch_at is not null;
create index hook_states_next_at on bds.hook_states (next_at) where next_at is not null;
create index hook_states_unhealthy on bds.hook_states (company_id, hook_id) where failures > 0 or rests_until is not null;

create table bds.hook_queue (
    company_id     text collate "C" not null,
    hook_id        uuid not null,
    change_id      bigint not null,
    entity         text collate "C" not null,
    operation      bds.operation not null,
    row_id         bigint not null,
    change_set_id  uuid,
    -- the end of the window that this change opens
    due_at         timestamptz not null,

    -- no foreign key: its check would lock the hook's state in an undefined order
    primary key (company_id, hook_id, change_id)
);
comment on table bds.hook_queue is 'Changes that match a hook and wait for their batch';
comment on column bds.hook_queue.company_id is 'The company';
comment on column bds.hook_queue.hook_id is 'The hook';
comment on column bds.hook_queue.change_id is 'The change';
comment on column bds.hook_queue.entity is 'Its entity';
comment on column bds.hook_queue.operation is 'create, update or delete';
comment on column bds.hook_queue.row_id is 'Its row';
comment on column bds.hook_queue.change_set_id is 'Its change set';
comment on column bds.hook_queue.due_at is 'End of the window that this change opens';

create table bds.deliveries (
    company_id       text collate "C" not null,
    id               uuid not null default gen_random_uuid(),
    number           bigint not null generated always as identity,
    hook_id          uuid not null,
    state            text not null default 'pending',
    change_set_id    uuid,
    -- what is sent, signed as it is
    body             text not null,
    change_count     int not null,
    failures         int not null default 0,
    -- sent before all others: a test, or a retry by hand
    urgent           boolean not null default false,
    -- a replay goes before all that was queued earlier: 1, 2, ...; 0: not of a replay
    precedence       int not null default 0,
    -- the next attempt is beside the schedule
    extra            boolean not null default false,
    test             boolean not null default false,
    created_at       timestamptz not null default clock_timestamp(),
    next_attempt_at  timestamptz,
    finished_at      timestamptz,

    primary key (company_id, id),
    foreign key (company_id, hook_id) references bds.hooks (company_id, id) on delete cascade,
    constraint state_is_known check (state in (
        'pending',    -- not tried yet; -> delivered, waiting, failed, cancelled
        'waiting',    -- failed, to be retried; -> delivered, waiting, failed, cancelled
        'delivered',  -- answered by 2xx; -> pending, by hand
        'failed',     -- answered by 4xx, or out of retries; -> pending, by hand
        'cancelled'   -- the hook was disabled or deleted
    )),
    constraint next_attempt_while_under_way check ((next_attempt_at is not null) = (state in ('pending', 'waiting'))),
    constraint finished_when_ended check ((finished_at is null) = (state in ('pending', 'waiting'))),
    constraint extra_is_urgent check (urgent or not extra),
    constraint batch_is_of_one_to_a_hundred check (change_count between 1 and 100)
);
comment on table bds.deliveries is 'Deliveries: batches of changes, each one POST to a hook''s url, with their state';
comment on column bds.deliveries.company_id is 'The company';
comment on column bds.deliveries.id is 'The delivery''s id, sent as webhook-id';
comment on column bds.deliveries.number is 'Order of creation';
comment on column bds.deliveries.hook_id is 'The hook';
comment on column bds.deliveries.state is 'pending, waiting, delivered, failed or cancelled';
comment on column bds.deliveries.change_set_id is 'The change set that all of its changes belong to; null: none';
comment on column bds.deliveries.body is 'The body as it is sent, JSON that names the changes';
comment on column bds.deliveries.change_count is 'Number of changes, 1 to 100';
comment on column bds.deliveries.failures is 'Failed attempts since it was created or sent again by hand';
comment on column bds.deliveries.urgent is 'Whether it goes before all others: a test, or sent again by hand';
comment on column bds.deliveries.precedence is
    'Deliveries with a higher one go first: those of a replay have one more than what waits when it is asked for';
comment on column bds.deliveries.extra is
    'Whether the next attempt is one beside the schedule: its failure leaves failures and next_attempt_at as they are';
comment on column bds.deliveries.test is 'Whether it is a test';
comment on column bds.deliveries.created_at is 'Time of creation';
comment on column bds.deliveries.next_attempt_at is 'Time of the next attempt; null: it has ended';
comment on column bds.deliveries.finished_at is 'Time of its end; null: it is under way';
create index deliveries_of_a_hook on bds.deliveries (company_id, hook_id, number);
create index deliveries_under_way on bds.deliveries (company_id, hook_id, urgent desc, precedence desc, number)
    where finished_at is null;
create index deliveries_finished_at on bds.deliveries (finished_at) where finished_at is not null;

create table bds.delivery_attempts (
    company_id   text collate "C" not null,
    delivery_id  uuid not null,
    n            int not null,
    at           timestamptz not null,
    status       int,
    duration_ms  int not null,
    error        text,
    reply        text,

    primary key (company_id, delivery_id, n),
    foreign key (company_id, delivery_id) references bds.deliveries (company_id, id) on delete cascade
);
comment on table bds.delivery_attempts is
    'Attempts of deliveries: the time, and the response''s status and first kilobyte, or the error';
comment on column bds.delivery_attempts.company_id is 'The company';
comment on column bds.delivery_attempts.delivery_id is 'The delivery';
comment on column bds.delivery_attempts.n is '1, 2, 3, ... within the delivery';
comment on column bds.delivery_attempts.at is 'Time of the beginning';
comment on column bds.delivery_attempts.status is 'HTTP status of the answer; null: there was none';
comment on column bds.delivery_attempts.duration_ms is 'Milliseconds until the answer or the error';
comment on column bds.delivery_attempts.error is 'The error, if there was no answer';
comment on column bds.delivery_attempts.reply is 'The first kilobyte of the answer';

-- Policies -----------------------------------------------------------------------------------------------------------------------

-- The service sees the hooks of the company that its session has named.  The functions of webhooks (bds_dispatcher), the worker and
-- the operator act for every company.
do $$
declare
    name text;
begin
    foreach name in array array[
        'hooks', 'hook_secrets', 'hook_filters', 'hook_positions', 'hook_states', 'hook_queue', 'deliveries', 'delivery_attempts'
    ] loop
        execute format('alter table bds.%I enable row level security', name);
        execute format(
            'create policy own_company on bds.%I to bds_service using (company_id = current_setting(''bds.company'', true))',
            name
        );
        execute format('create policy every_company on bds.%I to bds_dispatcher, bds_worker, bds_operator using (true)', name);
    end loop;
end
$$;
