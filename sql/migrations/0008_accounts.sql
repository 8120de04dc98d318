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
    constraint scopes_are_known check (scopes <@ array['read', 'propose', 'import', 'hooks'] and cardinality(scopes) > 0)
);
comment on table bds.api_keys is 'API keys, stored as SHA-256; a key is shown only when it is created';
comment on column bds.api_keys.id is 'The key''s id';
comment on column bds.api_keys.hash is 'SHA-256 of the key';
comment on column bds.api_keys.name is 'Its name';
comment on column bds.api_keys.tenant_id is 'The tenant whose every company it gives access to; null: it is for some companies';
comment on column bds.api_keys.scopes is 'Some of read, propose, import, hooks';
comment on column bds.api_keys.created_at is 'Time of creation';
comment on column bds.api_keys.expires_at is 'End of its validity; null: none';
comment on column bds.api_keys.revoked_at is 'Time of revocation; null: it was not revoked';
comment on column bds.api_keys.last_used_at is 'Time of the last use, to the minute';
comment on column bds.api_keys.companies is 'The companies that the key gives access to; null: every company of its tenant';
comment on column bds.api_keys.actor is 'Creator: the actor named by bds.set_context or bds.actor, else the database user';

create table bds.users (
    id                uuid primary key default gen_random_uuid(),
    -- lower case, so that it is unique regardless of case
    email             text collate "C" not null unique,
    password_hash     text not null,
    companies         text[] not null,
    is_administrator  boolean not null default false,
    created_at        timestamptz not null default clock_timestamp(),
    last_login_at     timestamptz,

    -- of at most 195 characters, so that "user " and it make an actor
    constraint email_is_an_address check (
        email ~ '^[^@[:space:][:cntrl:]]{1,64}@[^@[:space:][:cntrl:]]{1,130}$' and email = lower(email collate pg_catalog.pg_c_utf8)
    ),
    constraint hash_is_argon2 check (password_hash like '$argon2id$%'),
    constraint user_is_for_companies_or_administers check (cardinality(companies) > 0 or is_administrator)
);
comment on table bds.users is 'Users, identified by email address; passwords are stored as Argon2id hashes';
comment on column bds.users.id is 'The user''s id';
comment on column bds.users.email is 'Email address, in lower case';
comment on column bds.users.password_hash is 'Argon2id hash of the password';
comment on column bds.users.created_at is 'Time of creation';
comment on column bds.users.last_login_at is 'Time of the last login';
comment on column bds.users.companies is 'The companies that the user has access to';
comment on column bds.users.is_administrator is 'Whether the user creates and deletes companies and users, on the pages';

create table bds.sessions (
    id          uuid primary key default gen_random_uuid(),
    user_id     uuid not null references bds.users (id) on delete cascade,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null
);
comment on table bds.sessions is
    'Sessions of users; signed tokens and cookies name a session and are void without its row';
comment on column bds.sessions.id is 'The session''s id, which tokens and cookies name';
comment on column bds.sessions.user_id is 'The user';
comment on column bds.sessions.created_at is 'Time of the login';
comment on column bds.sessions.expires_at is 'End of its validity';

create index sessions_user_id on bds.sessions (user_id);
create index sessions_expires_at on bds.sessions (expires_at);

create table bds.secrets (
    name        text primary key,
    value       text not null,
    created_at  timestamptz not null default clock_timestamp()
);
comment on table bds.secrets is 'Random secrets that all processes of the service share';
comment on column bds.secrets.name is 'What it is for: tokens';
comment on column bds.secrets.value is 'The secret';
comment on column bds.secrets.created_at is 'Time of creation';

-- Unlogged: a crash loses one minute of counts.
create unlogged table bds.wrong_credentials (
    address     cidr primary key,
    first_at    timestamptz not null,
    count       int not null,
    pending     int not null default 0
) with (fillfactor = 50);
comment on table bds.wrong_credentials is
    'Counts of wrong credentials of each address, in the minute that begins with the first one';
comment on column bds.wrong_credentials.address is 'The address; of IPv6 the /64';
comment on column bds.wrong_credentials.first_at is 'Time of the first wrong one';
comment on column bds.wrong_credentials.count is 'Number of wrong ones since then';
comment on column bds.wrong_credentials.pending is 'Running logins, each of which may fail';

create index wrong_credentials_first_at on bds.wrong_credentials (first_at);

-- Unlogged, too: a crash loses the counts of an hour.
create unlogged table bds.wrong_logins (
    email_hash  bytea primary key,
    first_at    timestamptz not null,
    count       int not null,

    constraint email_hash_is_sha256 check (octet_length(email_hash) = 32)
) with (fillfactor = 50);
comment on table bds.wrong_logins is
    'Counts of wrong logins with each email address, of a user or not, from all networks, in the hour that begins with the first '
    'one';
comment on column bds.wrong_logins.email_hash is
    'SHA-256 of the email address in lower case: people type other things into that field, too, and of any length';
comment on column bds.wrong_logins.first_at is 'Time of the first wrong one';
comment on column bds.wrong_logins.count is
    'Number of wrong ones since then; running logins count as wrong until they turn out to be correct';

create index wrong_logins_first_at on bds.wrong_logins (first_at);

create table bds.login_networks (
    user_id  uuid not null references bds.users (id) on delete cascade,
    network  cidr not null,
    last_at  timestamptz not null,

    primary key (user_id, network)
);
comment on table bds.login_networks is
    'The networks from which each user has signed in: wrong logins from elsewhere do not keep the user from signing in there';
comment on column bds.login_networks.user_id is 'The user';
comment on column bds.login_networks.network is 'The network: of IPv4 the /24, of IPv6 the /64';
comment on column bds.login_networks.last_at is 'Time of the last login from there';

create index login_networks_last_at on bds.login_networks (last_at);
