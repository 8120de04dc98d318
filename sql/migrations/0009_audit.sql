-- The audit of administration: who has changed keys, users, access, hooks, mappers, retention, places and registrations, and who
-- has dumped, restored, deleted or moved a company.  Two kinds of chains of records: that of each company, which goes with it, and
-- that of the server, which stays.  A record gets its id at the commit (sql/85_audit): until then it is in bds.audit_pending.

create table bds.server_audit (
    id        bigint primary key,
    at        timestamptz not null unique,
    actor     text not null,
    db_user   text not null,
    action    text not null,
    object    text not null,
    detail    jsonb not null,
    concerns  text[],

    -- the next id and time are computed from the last
    constraint ids_begin_with_1_and_go_on check (id > 0 and id < 9223372036854775807),
    constraint times_are_finite check (isfinite(at))
);
comment on table bds.server_audit is
    'Records of bds.audit that stay on this server: at home those of keys, users, places, and of companies as a whole';
comment on column bds.server_audit.id is '1, 2, 3, ... without gaps';
comment on column bds.server_audit.at is 'When it was committed; rises with the ids';
comment on column bds.server_audit.actor is 'The actor named by bds.set_context or bds.actor, else the database user';
comment on column bds.server_audit.db_user is 'The database user that the session logged in as (session_user)';
comment on column bds.server_audit.action is 'What was done: create, update, delete, revoke, move, ...';
comment on column bds.server_audit.object is 'What it was done to, such as key 5f0c6a52-...';
comment on column bds.server_audit.detail is 'The values before and after, and the caller; never a secret';
comment on column bds.server_audit.concerns is 'The companies that it is about; null: every one';

create table bds.company_audit (
    company_id  text collate "C" not null,
    id          bigint not null,
    at          timestamptz not null,
    actor       text not null,
    db_user     text not null,
    action      text not null,
    object      text not null,
    detail      jsonb not null,

    -- no foreign key: its check would wait for bds.delete_company, which may wait for the session that writes the record
    primary key (company_id, id),
    unique (company_id, at),
    -- the next id and time are computed from the last
    constraint ids_begin_with_1_and_go_on check (id > 0 and id < 9223372036854775807),
    constraint times_are_finite check (isfinite(at))
);
comment on table bds.company_audit is 'Records of bds.audit that go with their company: of its hooks, mappers, logins, retention';
comment on column bds.company_audit.company_id is 'The company';
comment on column bds.company_audit.id is '1, 2, 3, ... within the company, without gaps';
comment on column bds.company_audit.at is 'When it was committed; rises with the ids';
comment on column bds.company_audit.actor is 'The actor named by bds.set_context or bds.actor, else the database user';
comment on column bds.company_audit.db_user is 'The database user that the session logged in as (session_user)';
comment on column bds.company_audit.action is 'What was done: create, update, delete, rotate, erase, expire, ...';
comment on column bds.company_audit.object is 'What it was done to, such as mapper catalog';
comment on column bds.company_audit.detail is 'The values before and after, and the caller; never a secret';

create table bds.audit_pending (
    number   bigint primary key generated always as identity,
    -- a company, or '' for the server's
    chain    text collate "C" not null,
    at       timestamptz not null default clock_timestamp(),
    actor    text not null,
    db_user  text not null default session_user,
    action   text not null,
    object   text not null,
    detail   jsonb not null,
    concerns text[]
);
comment on table bds.audit_pending is 'Records of bds.audit of transactions that are under way; empty for everybody else';
comment on column bds.audit_pending.number is 'Order within the transaction';
comment on column bds.audit_pending.chain is 'The company whose record it becomes; empty: the server''s';
comment on column bds.audit_pending.at is 'When it was done';
comment on column bds.audit_pending.actor is 'As in bds.audit';
comment on column bds.audit_pending.db_user is 'As in bds.audit';
comment on column bds.audit_pending.action is 'As in bds.audit';
comment on column bds.audit_pending.object is 'As in bds.audit';
comment on column bds.audit_pending.detail is 'As in bds.audit';
comment on column bds.audit_pending.concerns is 'As in bds.server_audit';
