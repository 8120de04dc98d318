-- Tenants and companies.

create table bds.tenants (
    id          text collate "C" primary key,
    created_at  timestamptz not null default clock_timestamp(),

    constraint tenant_id_is_a_slug check (id ~ '^[a-z0-9_-]{1,63}$')
);
comment on table bds.tenants is 'Customers of the service, each with its companies';

create table bds.companies (
    id             text collate "C" primary key,
    tenant_id      text collate "C" references bds.tenants (id),
    created_at     timestamptz not null default clock_timestamp(),
    -- of its changes; null: that of bds.settings
    log_retention  interval,

    constraint company_id_is_a_slug check (id ~ '^[a-z0-9_-]{1,63}$'),
    constraint retention_is_a_day_or_more check (log_retention >= interval '1 day')
);
comment on table bds.companies is 'Companies; every business row belongs to one';

create table bds.company_logins (
    role_name   name primary key,
    company_id  text collate "C" not null references bds.companies (id) on delete cascade
);
comment on table bds.company_logins is 'Logins that are bound to one company: schema my shows them that company (see bds.grant_company)';
comment on column bds.company_logins.role_name is 'The login, by name: a dump has it, too';
comment on column bds.company_logins.company_id is 'The company';

create index companies_tenant_id on bds.companies (tenant_id);
comment on column bds.companies.id is 'The company''s id, in every URL and row';
comment on column bds.companies.tenant_id is 'The company''s tenant; null: the company is its own tenant';
comment on column bds.companies.created_at is 'Time of creation';
comment on column bds.companies.log_retention is
    'Minimum time for which its changes are kept; null: that of bds.settings, infinity: unlimited (see bds.set_retention)';
comment on column bds.tenants.id is 'The tenant''s id';
comment on column bds.tenants.created_at is 'Time of creation';
