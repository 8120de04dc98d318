-- Accounts of people: users, their sessions, the secret that signs, and what is counted against guessing.

set local role bds_owner;

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
    count       int not null
) with (fillfactor = 50);
comment on table bds.wrong_credentials is 'Wrong credentials of each address in the minute that began with the first of them';

create index wrong_credentials_first_at on bds.wrong_credentials (first_at);

-- its columns have changed since
drop function if exists bds.authenticate(bytea);
