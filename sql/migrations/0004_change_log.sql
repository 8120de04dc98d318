-- The change log, the clocks that number it, and its retention.

create type bds.operation as enum (
    'create',
    'update',
    'delete'
);

-- One row for each company.  Its lock is the company's turn to write, and the writer updates it: hence the fill factor, for updates
-- in place.  No foreign key refers to it: its lock would be shared, and the row's xmax not the holder alone.
-- The state of a turn is in this row, where no session can forge it.
create table bds.clocks (
    company_id       text collate "C" primary key references bds.companies (id) on delete cascade,
    last_id          bigint not null default 0,
    last_updated_at  timestamptz not null default '-infinity',
    transaction_id   xid8,
    first_id         bigint not null default 1,
    floor            timestamptz not null default '-infinity',
    month            timestamptz not null default '-infinity',
    month_id         bigint not null default 1,
    positions        jsonb not null default '{}',
    -- What the statements under way have told each other, by depth of triggers; only the transaction that wrote the row last reads
    -- these.
    announced        jsonb,
    touched          text,
    interleaved      boolean,
    overtaken        boolean,
    settles          int,
    -- of a company that has moved to another place; until its rows are deleted they can be read here
    departed_at      timestamptz,
    -- generations, see sql/30_change_log/15_generations.sql
    timeline         int,
    commons          bigint[] not null default '{}',
    begun_at         timestamptz not null default clock_timestamp(),

    -- each change names its transaction here, whatever turn its session claims to have
    constraint departed_companies_take_no_writes check (departed_at is null or transaction_id is null)
) with (fillfactor = 20);
comment on table bds.clocks is 'The clock of each company: its last change id, its last updatedAt, and the position of each entity';
comment on column bds.clocks.company_id is 'The company';
comment on column bds.clocks.last_id is 'The last change id';
comment on column bds.clocks.last_updated_at is 'The last updatedAt, or the time of the last change if that is later';
comment on column bds.clocks.transaction_id is 'The transaction that wrote last';
comment on column bds.clocks.first_id is 'The first change id of that transaction';
comment on column bds.clocks.floor is 'The earliest updatedAt that the transaction may stamp';
comment on column bds.clocks.month is 'The month (UTC) of its last change';
comment on column bds.clocks.month_id is 'The first change id of that month';
comment on column bds.clocks.announced is
    'The collection that a child''s log trigger is about to add to its parents, by the depth of the update that does it: {"2": '
    '"items"}';
comment on column bds.clocks.touched is 'The announced collection of the statement that was logged last';
comment on column bds.clocks.interleaved is
    'Whether the transaction has logged changes of its entity while the statement that was logged last was under way';
comment on column bds.clocks.overtaken is
    'Whether another statement has logged changes since the first row of the statement that was logged last was stamped';
comment on column bds.clocks.settles is 'The depth at which updates complete records of the transaction, see bds_change_log.settle';
comment on column bds.clocks.departed_at is
    'When it moved to another place, after which it takes no writes here; null: it lives here';
comment on column bds.clocks.timeline is 'The timeline of the write-ahead log to which it wrote last; null: it has not written';
comment on column bds.clocks.commons is
    'The last change id that each earlier generation has in common with the present one: of the first generation, the second, ...';
comment on column bds.clocks.begun_at is
    'When its generation began: tells it from one that had its id, and the same positions, before';
comment on column bds.clocks.positions is 'The last change id of each entity, by its name: {"units": 17}; it never decreases';

-- A time in milliseconds, until which the keeper of the bell is awake.  A sequence is read as it is now, whatever the transaction's
-- snapshot, and setting it leaves no dead row and, unlogged, no trace in the WAL.
create unlogged sequence bds.bell minvalue 0 start 0;
comment on sequence bds.bell is
    'Epoch in milliseconds until which a process of the service relays NOTIFY bds_changes, so that writers need not';

create table bds.change_log (
    id               bigint not null,
    row_id           bigint not null,
    created_at       timestamptz not null,
    transaction_id   xid8 not null,
    -- for an update the row's previous updated_at, so that a past state is exact
    last_updated_at  timestamptz,
    -- of the row as it became, to find changes that no trigger saw
    row_hash         bigint,
    change_set_id    uuid,
    operation        bds.operation not null,
    company_id       text collate "C" not null,
    entity           text collate "C" not null,
    actor            text not null,
    -- a session may name any actor; this is its login
    db_user          text not null,
    -- for an update the child collections that changed
    collections      text[],
    -- for an update old values of the changed columns, for a delete the row; by API names
    old              jsonb,

    constraint id_is_positive check (id > 0),
    constraint creates_alone_have_no_old_values check ((operation = 'create') = (old is null)),
    constraint updates_alone_name_collections check (operation = 'update' or collections is null),
    constraint deletes_alone_have_no_hash check ((operation = 'delete') = (row_hash is null))
) partition by range (created_at);
comment on table bds.change_log is 'Every change of every registered row; bds.changes is its readable view';
comment on column bds.change_log.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.change_log.row_id is 'The row''s id';
comment on column bds.change_log.created_at is 'When the row was written, by the database''s clock';
comment on column bds.change_log.transaction_id is 'PostgreSQL''s transaction id; all changes of a transaction share it';
comment on column bds.change_log.last_updated_at is 'For an update the row''s previous updatedAt';
comment on column bds.change_log.row_hash is
    'A hash of the row as it became, for bds.compare_log: hash_record_extended of its columns in their order; null for a delete';
comment on column bds.change_log.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.change_log.operation is 'create, update or delete';
comment on column bds.change_log.company_id is 'The company';
comment on column bds.change_log.entity is 'The entity''s API name';
comment on column bds.change_log.actor is 'The actor named by bds.set_context, else the database user';
comment on column bds.change_log.db_user is 'The database user that the session logged in as (session_user)';
comment on column bds.change_log.collections is 'For an update the child collections that changed';
comment on column bds.change_log.old is
    'For an update old values of the changed columns, for a delete the row; by API names';

-- Each partition has the primary key (company_id, id), see bds_change_log.make_month: one of the whole log would have to contain
-- created_at.  A subscriber of the whole log, which a move is, finds by that key what bds.erase has changed, if it is told that it
-- gets all columns.
alter table only bds.change_log replica identity full;
create index change_log_entity_id on bds.change_log (company_id, entity, id);
-- The row first: only this index then serves a probe for a row, even for a company without statistics (see
-- bds_change_log.name_collection).
create index change_log_row on bds.change_log (row_id, company_id, id);
-- Searches by time, change set or actor: a small index that prunes most of the log.
create index change_log_time on bds.change_log
    using brin (created_at, change_set_id uuid_bloom_ops, actor text_bloom_ops) with (autosummarize = on);

-- Two things follow from it: the time from which a reader by id has to look, and what is no longer kept.
create table bds.change_months (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    month       timestamptz not null,
    first_id    bigint not null,

    primary key (company_id, month)
);
comment on table bds.change_months is
    'The first change of each company in each month. Ids and times of a company rise together, so no later change is older';
comment on column bds.change_months.company_id is 'The company';
comment on column bds.change_months.month is 'The month''s first moment (UTC), also of its partition';
comment on column bds.change_months.first_id is 'The id of the company''s first change in that month';

alter table bds.change_months enable row level security;
create policy own_company on bds.change_months to bds_reader, bds_writer
    using (company_id = current_setting('bds.company', true));
create policy every_company on bds.change_months to bds_dispatcher, bds_operator using (true);

-- Views of schema past need it, and views outlive the schemas of internals.
create aggregate past.merge(jsonb) (sfunc = jsonb_concat, stype = jsonb, parallel = safe);
comment on aggregate past.merge(jsonb) is 'Objects as one: of a key that several of them have, the value of the last one';
create function past.double_of(value real)
    returns double precision
    language sql
    immutable
    parallel safe
    strict
    set extra_float_digits = 1
    return value::text::double precision;
comment on function past.double_of(real) is 'The double with the digits that identify a real, whatever the session has set';

-- Retention ----------------------------------------------------------------------------------------------------------------------

create table bds.settings (
    is_only        boolean primary key default true,
    log_retention  interval,
    log_archive    boolean not null default false,
    place          text collate "C" not null default 'home',
    shards         int,

    constraint one_row_only check (is_only),
    constraint retention_is_a_day_or_more check (log_retention >= interval '1 day')
);
comment on table bds.settings is 'Settings of the operator for all companies';
comment on column bds.settings.is_only is 'Always true: the table has one row';
comment on column bds.settings.log_retention is
    'Minimum time for which changes are kept of companies without a retention of their own; null: unlimited (see '
    'bds.set_retention)';
comment on column bds.settings.place is 'The name of this database among places: home has accounts and bds.directory';
comment on column bds.settings.shards is
    'Into how many shards tables are divided that a Citus cluster places; null: they are whole';
comment on column bds.settings.log_archive is 'Whether expired months are moved to bds.change_archive instead of being dropped';
insert into bds.settings default values;

create table bds.change_archive (like bds.change_log including constraints including comments) partition by range (created_at);
alter table only bds.change_archive replica identity full;
comment on table bds.change_archive is 'Months of the change log that have expired, if the operator wants them archived';
create index change_archive_row on bds.change_archive (row_id, company_id);

-- What comparisons of rows with the log found ------------------------------------------------------------------------------------

create table bds.log_findings (
    kind        text not null,
    company_id  text collate "C" not null,
    entity      text collate "C" not null,
    -- how many rows or ids, and some of them
    number      bigint not null,
    examples    bigint[] not null,
    found_at    timestamptz not null,

    primary key (company_id, entity, kind),
    constraint kind_is_known check (kind in (
        'unlogged insert',  -- a row without a record, or after the record of its deletion
        'unlogged update',  -- a row that is not as its last record left it
        'unlogged delete',  -- no row after a record that is not of its deletion
        'unknown company',  -- rows of a company that does not exist
        'missing record'    -- ids that no record has
    ))
);
comment on table bds.log_findings is 'What the last bds.compare_log of each entity found: writes that the change log does not have';
comment on column bds.log_findings.kind is 'What was found';
comment on column bds.log_findings.company_id is 'The company';
comment on column bds.log_findings.entity is 'The entity''s API name; empty: ids of the log itself';
comment on column bds.log_findings.number is 'How many rows, or ids';
comment on column bds.log_findings.examples is 'Up to ten of them';
comment on column bds.log_findings.found_at is 'When they were compared';

create table bds.log_comparisons (
    entity       text collate "C" primary key references bds.entities (name) on delete cascade,
    compared_at  timestamptz not null
);
comment on table bds.log_comparisons is 'When bds.compare_log has compared all rows of an entity';
comment on column bds.log_comparisons.entity is 'The entity''s API name';
comment on column bds.log_comparisons.compared_at is 'When all companies'' rows were compared last';

create table bds.problem_counts (
    is_only     boolean primary key default true,
    counts      jsonb not null default '{}',
    counted_at  timestamptz not null default '-infinity',

    constraint one_row_only check (is_only)
);
comment on table bds.problem_counts is 'How many problems bds.problems had of each kind, for monitoring';
comment on column bds.problem_counts.is_only is 'Always true: the table has one row';
comment on column bds.problem_counts.counts is 'The number of problems of each kind that has any: {"disabled trigger": 1}';
comment on column bds.problem_counts.counted_at is 'When bds.maintain counted them';
insert into bds.problem_counts default values;

-- Names of versions --------------------------------------------------------------------------------------------------------------

create table bds.versions (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    name        text collate "C" not null,
    version     bigint not null,
    at          timestamptz,
    created_at  timestamptz not null default clock_timestamp(),
    actor       text not null,

    constraint versions_pkey primary key (company_id, name)
);
comment on table bds.versions is 'Names that versions were given (bds.name_version); a name keeps nothing from expiring';
comment on column bds.versions.company_id is 'The company';
comment on column bds.versions.name is 'The name';
comment on column bds.versions.version is 'The id of a change, or 0';
comment on column bds.versions.at is 'When this change was written; null of version 0';
comment on column bds.versions.created_at is 'When the version was given this name';
comment on column bds.versions.actor is 'Who has named it';

alter table bds.versions enable row level security;
create policy own_company on bds.versions to bds_reader, bds_service, bds_writer
    using (company_id = current_setting('bds.company', true));
create policy every_company on bds.versions to bds_operator using (true);

-- Change sets --------------------------------------------------------------------------------------------------------------------

create table bds.counted_change_sets (
    company_id     text collate "C" not null references bds.companies (id) on delete cascade,
    change_set_id  uuid,
    kind           text not null,
    actor          text not null,
    first_id       bigint not null,
    last_id        bigint not null,
    first_at       timestamptz not null,
    last_at        timestamptz not null,
    -- {entity: {created, updated, deleted}}
    entities       jsonb not null,
    -- {entity: {column: true}}
    replaced       jsonb not null,
    noted_from     bigint,
    noted_to       bigint,

    primary key (company_id, last_id),
    constraint kind_is_known check (kind in ('import', 'revert', 'session')),
    constraint notes_have_two_ends check ((noted_from is null) = (noted_to is null))
);
comment on table bds.counted_change_sets is
    'What each change set has done, and each transaction without one, as far as it is counted; bds.change_sets is the readable '
    'view';
comment on column bds.counted_change_sets.company_id is 'The company';
comment on column bds.counted_change_sets.change_set_id is 'The change set; null: one transaction without a change set';
comment on column bds.counted_change_sets.kind is 'import, revert or session';
comment on column bds.counted_change_sets.actor is 'The actor of its last change';
comment on column bds.counted_change_sets.first_id is 'The id of its first change';
comment on column bds.counted_change_sets.last_id is 'The id of its last change that is counted';
comment on column bds.counted_change_sets.first_at is 'When its first change was written';
comment on column bds.counted_change_sets.last_at is 'When its last change that is counted was written';
comment on column bds.counted_change_sets.entities is 'How many of its changes are of each entity and operation';
comment on column bds.counted_change_sets.replaced is 'The columns of each entity that its updates have changed';
comment on column bds.counted_change_sets.noted_from is
    'The first change of the range that an import or revert has counted itself, when it ended, and which bds.maintain skips; null: '
    'none';
comment on column bds.counted_change_sets.noted_to is 'The last change of that range';
-- to which counts are added
create unique index counted_change_sets_id on bds.counted_change_sets (company_id, change_set_id) where change_set_id is not null;
create index counted_change_sets_noted on bds.counted_change_sets (company_id, noted_to) where noted_to is not null;

create table bds.change_set_positions (
    company_id  text collate "C" primary key references bds.companies (id) on delete cascade,
    counted     int8multirange not null,
    counted_at  timestamptz not null
);
comment on table bds.change_set_positions is 'Which changes of each company are counted by change sets';
comment on column bds.change_set_positions.company_id is 'The company';
comment on column bds.change_set_positions.counted is
    'The ids of those that are counted: 1 to the last one, unless a month was no part of the log when later ones were counted';
comment on column bds.change_set_positions.counted_at is 'When bds.maintain counted some';

-- Erasures -----------------------------------------------------------------------------------------------------------------------

create table bds.erasures (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    number      bigint not null generated always as identity,
    entity      text collate "C" not null,
    row_id      bigint not null,
    columns     text[] not null,
    records     bigint not null,
    erased_at   timestamptz not null default clock_timestamp(),
    actor       text not null,
    db_user     text not null,

    primary key (company_id, number)
);
comment on table bds.erasures is 'Old values that were removed from the change log by bds.erase; they read as null';
comment on column bds.erasures.company_id is 'The company';
comment on column bds.erasures.number is 'Rises with each erasure';
comment on column bds.erasures.entity is 'The entity''s API name';
comment on column bds.erasures.row_id is 'The row''s id';
comment on column bds.erasures.columns is 'The columns, by API names';
comment on column bds.erasures.records is 'The number of change records that had such a value';
comment on column bds.erasures.erased_at is 'When they were erased';
comment on column bds.erasures.actor is 'The actor named by bds.set_context, else the database user';
comment on column bds.erasures.db_user is 'The database user that the session logged in as (session_user)';
create index erasures_of_a_row on bds.erasures (company_id, entity, row_id);

alter table bds.erasures enable row level security;
create policy own_company on bds.erasures to bds_reader, bds_writer
    using (company_id = current_setting('bds.company', true));
create policy every_company on bds.erasures to bds_operator using (true);
