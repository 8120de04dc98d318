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
comment on table bds.company_logins is
    'Logins that are bound to one company: schema my shows them that company (see bds.grant_company)';
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

-- Places -------------------------------------------------------------------------------------------------------------------------

create table bds.places (
    name         text collate "C" primary key,
    url          text,
    is_draining  boolean not null default false,
    secret       uuid,
    created_at   timestamptz not null default clock_timestamp(),

    constraint place_name_is_a_slug check (name ~ '^[a-z0-9_-]{1,63}$'),
    constraint home_alone_has_no_url check ((url is null) = (name = 'home'))
);
comment on table bds.places is
    'Servers on which companies live: this database, named home, and others of the same version and model';
comment on column bds.places.name is 'The place''s name';
comment on column bds.places.url is
    'Its connection string, for the service and for the servers of other places; null: this database';
comment on column bds.places.is_draining is 'Whether it gets no further companies';
comment on column bds.places.secret is
    'What home and this place alone know; at the place it stands in the row of home. It proves that an administrator has deleted '
    'a company';
comment on column bds.places.created_at is 'When it was added';
insert into bds.places (name) values ('home');

create table bds.directory (
    company_id  text collate "C" primary key references bds.companies (id) on delete cascade,
    place       text collate "C" not null references bds.places,
    -- of a move; the place is the source until the company has arrived
    source      text collate "C" references bds.places,
    target      text collate "C" references bds.places,
    phase       text,
    changed_at  timestamptz not null default clock_timestamp(),

    constraint phase_is_known check (phase in (
        'copying',    -- the source serves; rows are replicated                   -> departing
        'departing',  -- the source serves reads; the target does not serve yet   -> clearing, copying
        'clearing'    -- the target serves; the source still has the rows         -> null
    )),
    constraint moves_have_both_ends check ((phase is null) = (source is null) and (phase is null) = (target is null)),
    constraint source_serves_until_the_end check (phase is null or place = case phase when 'clearing' then target else source end)
);
comment on table bds.directory is 'At which place each company lives, and its move; a company without a row lives at home';
comment on column bds.directory.company_id is 'The company';
comment on column bds.directory.place is 'The place that serves it';
comment on column bds.directory.source is 'During a move the place that it comes from';
comment on column bds.directory.target is 'During a move the place that it goes to';
comment on column bds.directory.phase is 'copying, departing or clearing; null: it does not move';
comment on column bds.directory.changed_at is 'When the row was written';
create index directory_changed_at on bds.directory (changed_at);
