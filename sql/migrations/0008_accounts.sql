-- Accounts: API keys, users, sessions, the secret that signs, and the counts of wrong credentials.

create table bds.api_keys (
    id            uuid primary key default gen_random_uuid(),
    hash          bytea not null unique,
    name          text not null,
    tenant_id     text collate "C" references bds.tenants (id),
    companies     text[],
    scopes        text[] not null,
    created_at    timestamptz not null default clock_timestamp(),
    expires_at    timestamptz,
    revoked_at    timestamptz,
    last_used_at  timestamptz,
    actor         text not null,

    constraint hash_is_sha256 check (octet_length(hash) = 32),
    constraint key_is_for_a_tenant_or_for_companies check (tenant_id is not null or coalesce(cardinality(companies), 0) > 0),
    constraint scopes_are_known check (scopes <@ array['read', 'import', 'hooks'] and cardinality(scopes) > 0)
);
comment on table bds.api_keys is 'API keys, by their SHA-256; the key itself is shown once, when it is made';
comment on column bds.api_keys.companies is 'The companies that the key is for; null: every company of its tenant';
comment on column bds.api_keys.actor is 'Who made it: as named by bds.set_context or bds.actor, else the database user';

create table bds.users (
    id             uuid primary key default gen_random_uuid(),
    -- lower case, so that unique means what people mean
    email          text collate "C" not null unique,
    password_hash  text not null,
    companies      text[] not null,
    created_at     timestamptz not null default clock_timestamp(),
    last_login_at  timestamptz,

    constraint email_is_an_address check (email ~ '^[^@[:space:][:cntrl:]]{1,64}@[^@[:space:][:cntrl:]]{1,189}$' and email = lower(email)),
    constraint hash_is_argon2 check (password_hash like '$argon2id$%'),
    constraint user_is_for_companies check (cardinality(companies) > 0)
);
comment on table bds.users is 'People who sign in, by their email address; of a password the Argon2id hash alone is kept';
comment on column bds.users.companies is 'The companies whose data they may see and change';

create table bds.sessions (
    id          uuid primary key default gen_random_uuid(),
    user_id     uuid not null references bds.users (id) on delete cascade,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null
);
comment on table bds.sessions is
    'Logins that last: a token or a cookie is signed and names one; without its row it is void, however well it is signed';

create index sessions_user_id on bds.sessions (user_id);
create index sessions_expires_at on bds.sessions (expires_at);

create table bds.secrets (
    name        text primary key,
    value       text not null,
    created_at  timestamptz not null default clock_timestamp()
);
comment on table bds.secrets is 'What the service has made up at random once, for all of its processes';

-- What a crash loses of it is a minute of counting.
create unlogged table bds.wrong_credentials (
    address     cidr primary key,
    first_at    timestamptz not null,
    count       int not null,
    pending     int not null default 0
) with (fillfactor = 50);
comment on table bds.wrong_credentials is 'Wrong credentials of each address in the minute that began with the first of them';
comment on column bds.wrong_credentials.pending is 'Logins under way, any of which may turn out to be wrong';

create index wrong_credentials_first_at on bds.wrong_credentials (first_at);
