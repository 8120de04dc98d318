-- Imports with their errors and the keys of their requests, the weights of record linkage, and mappers.

create table bds.imports (
    company_id    text collate "C" not null references bds.companies (id) on delete cascade,
    id            uuid not null default gen_random_uuid(),
    -- names the staging tables: staging.i<number>_<entity>
    number        bigint not null generated always as identity,
    state         text not null default 'receiving',
    atomic        text not null default 'batch',
    dry_run       boolean not null default false,
    is_small      boolean not null default false,
    actor         text not null,
    file          text,
    mapper        text,
    started_at    timestamptz not null default clock_timestamp(),
    heartbeat_at  timestamptz not null default clock_timestamp(),
    finished_at   timestamptz,
    bytes         bigint not null default 0,
    records       bigint not null default 0,
    done          bigint not null default 0,
    phase         text,
    -- the turn of a company, and its holder
    waiting_for   text,
    -- {entity: {created, updated, deleted, unchanged, failed}}
    entities      jsonb not null default '{}',
    error_count   bigint not null default 0,
    position      bigint,
    -- {entity: rows}: how many there were at this position
    row_counts    jsonb,
    -- of an undo: which changes, as bds_revert.checked gives it; the change set, if it is one
    undoes        jsonb,
    reverts       uuid,
    is_forced     boolean not null default false,
    notices       text[] not null default '{}',
    preview       jsonb,
    remove_all    text[] not null default '{}',
    is_cancelled  boolean not null default false,

    primary key (company_id, id),
    -- a distributed table cannot be unique without the company; the identity is so by itself
    unique (company_id, number),
    constraint state_is_known check (state in (
        'receiving',  -- the body arrives; -> running, failed, cancelled
        'running',    -- rows are compared and written; -> completed, partial, failed, cancelled
        'completed',
        'partial',    -- some records failed
        'failed',
        'cancelled'
    )),
    constraint phase_is_known check (phase in ('reading', 'comparing', 'writing', 'updating', 'deleting', 'removing')),
    constraint atomic_is_known check (atomic in ('batch', 'true', 'false')),
    constraint finished_when_ended check ((finished_at is null) = (state in ('receiving', 'running')))
);
comment on table bds.imports is 'Imports and reverts, running and ended; the id is also the change set of their changes';
comment on column bds.imports.company_id is 'The company';
comment on column bds.imports.id is 'The import''s id, and the change set of its changes';
comment on column bds.imports.number is 'Order of imports; part of the names of staging tables';
comment on column bds.imports.state is 'receiving, running, completed, partial, failed or cancelled';
comment on column bds.imports.atomic is 'What a failing record takes along: its batch, the whole import (true), or nothing (false)';
comment on column bds.imports.position is 'The id of the company''s last change when it ended; null for one that did not run';
comment on column bds.imports.row_counts is
    'How many rows an entity had when it ended, of entities of which it had a large part; null: of none';
comment on column bds.imports.dry_run is 'Whether everything is rolled back at the end';
comment on column bds.imports.is_small is
    'Whether it is staged in temporary tables of its session, in the transaction that runs it';
comment on column bds.imports.actor is 'Who has sent it';
comment on column bds.imports.file is 'Name of the file that was sent; null if it had none';
comment on column bds.imports.mapper is 'The mapper that has read the file; null: none';
comment on column bds.imports.started_at is 'Time of the first byte';
comment on column bds.imports.heartbeat_at is 'Last sign of life; an import without one for 20 seconds is taken for dead';
comment on column bds.imports.finished_at is 'Time of its end; null: it is under way';
comment on column bds.imports.bytes is 'Bytes received, decompressed';
comment on column bds.imports.records is 'Records received, children included';
comment on column bds.imports.done is 'Records done so far; one that is compared but not written counts half';
comment on column bds.imports.phase is
    'What a large import does with its records: comparing, writing, updating (by conditions), deleting, removing; a revert first '
    'is reading the log';
comment on column bds.imports.waiting_for is
    'The holder of the company''s turn that the import waits for, in words; null: it does not wait';
comment on column bds.imports.entities is 'Counts of each entity: {"products": {"created": 1, "updated": 0, ...}}';
comment on column bds.imports.error_count is 'Number of errors; bds.import_errors keeps the first ones';
comment on column bds.imports.undoes is
    'Which changes are undone: {"changeSet"}, {"to"} or {"from", "to"}, and {"entities", "rows", "actor"}; null: rows of a '
    'document are imported';
comment on column bds.imports.reverts is 'The change set that is undone; null: none, or not one';
comment on column bds.imports.notices is 'What an undo leaves alone';
comment on column bds.imports.preview is 'Of a dry run of an undo the first 1,000 rows that it would change';
comment on column bds.imports.is_forced is 'Whether it is undone although rows were changed later';
comment on column bds.imports.remove_all is 'Entities whose rows are removed if the document lacks them';
comment on column bds.imports.is_cancelled is 'Cancellation was requested; the process that runs the import ends it';
create index imports_under_way on bds.imports (heartbeat_at) where finished_at is null;

create table bds.import_errors (
    company_id  text collate "C" not null,
    import_id   uuid not null,
    n           bigint not null,
    path        text not null,
    record      text,
    code        text not null,
    message     text not null,

    primary key (company_id, import_id, n),
    foreign key (company_id, import_id) references bds.imports (company_id, id) on delete cascade,
    -- not an enumeration: an import that fails as a whole has the code of its response
    constraint code_is_a_word check (code ~ '^[a-z_]+$')
);
comment on table bds.import_errors is 'Errors in the records of an import, in the order of the document';
comment on column bds.import_errors.company_id is 'The company';
comment on column bds.import_errors.import_id is 'The import';
comment on column bds.import_errors.n is 'Order in the document';
comment on column bds.import_errors.path is 'Place in the document, such as products[17].price';
comment on column bds.import_errors.record is 'The record''s own lookup, such as code:A1';
comment on column bds.import_errors.code is 'The error''s code, such as lookup_not_found';
comment on column bds.import_errors.message is 'The error in words';

create table bds.import_keys (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    key         text collate "C" not null,
    -- not a reference: the key is claimed before its import is listed
    import_id   uuid not null,
    claimed_at  timestamptz not null default clock_timestamp(),
    request     bytea,
    is_async    boolean not null default false,
    problem     json,

    primary key (company_id, key),
    unique (company_id, import_id),
    constraint key_is_visible_ascii check (key ~ '^[!-~]{1,255}$'),
    constraint request_is_a_hash check (octet_length(request) = 32),
    constraint only_a_whole_request_has_an_answer check (problem is null or request is not null)
);
comment on table bds.import_keys is
    'Idempotency keys of imports and reverts, each for a day; an answer is the report of the import, or the problem';
comment on column bds.import_keys.company_id is 'The company';
comment on column bds.import_keys.key is 'The header Idempotency-Key of the request';
comment on column bds.import_keys.import_id is 'The id of the request''s import, which is listed once it has begun, or has run';
comment on column bds.import_keys.claimed_at is 'Time of the request';
comment on column bds.import_keys.request is 'SHA-256 of its path, query and body; null: the body has not arrived as a whole';
comment on column bds.import_keys.is_async is 'Whether it was answered when its body had arrived';
comment on column bds.import_keys.problem is
    'The error that was its answer, {code, message, target, more}; null: it has none yet, or the report of the import';

create table bds.linkage_weights (
    entity  text collate "C" not null,
    field   text collate "C" not null,
    m       double precision not null,
    u       double precision not null,

    primary key (entity, field),
    constraint m_is_a_probability check (m > 0 and m < 1),
    constraint u_is_a_probability check (u > 0 and u < 1)
);
comment on table bds.linkage_weights is
    'Fellegi-Sunter weights of fields for record linkage; entity * is for every entity, field * for every other field';
comment on column bds.linkage_weights.entity is 'The entity; *: every other one';
comment on column bds.linkage_weights.field is 'The field; *: every other one';
comment on column bds.linkage_weights.m is
    'Probability that the field agrees in two versions of one row; agreement weighs log2(m/u)';
comment on column bds.linkage_weights.u is
    'Probability that it agrees in different rows of one parent; disagreement weighs log2((1-m)/(1-u))';

insert into bds.linkage_weights (entity, field, m, u) values
    ('*', 'product', 0.98, 0.05),
    ('*', 'description', 0.80, 0.05),
    ('*', 'price', 0.80, 0.10),
    ('*', 'quantity', 0.70, 0.20),
    ('*', '*', 0.80, 0.20);

alter table bds.imports enable row level security;
alter table bds.import_errors enable row level security;
alter table bds.import_keys enable row level security;
create policy own_company on bds.imports to bds_writer, bds_reader
    using (company_id = current_setting('bds.company', true));
create policy own_company on bds.import_errors to bds_writer, bds_reader
    using (company_id = current_setting('bds.company', true));
create policy own_company on bds.import_keys to bds_writer
    using (company_id = current_setting('bds.company', true));
create policy every_company on bds.imports to bds_operator using (true);
create policy every_company on bds.import_errors to bds_operator using (true);
create policy every_company on bds.import_keys to bds_operator using (true);

-- Mappers ------------------------------------------------------------------------------------------------------------------------

create table bds.mappers (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    name        text collate "C" not null,
    -- xml, json or csv of a source; template: export only
    format      text not null,
    text        text not null,
    actor       text not null,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (company_id, name),
    constraint name_fits_a_path check (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$'),
    constraint format_is_known check (format in ('xml', 'json', 'csv', 'excel', 'template'))
);
comment on table bds.mappers is
    'Mappers of a company, which turn XML, JSON or CSV into import documents, and its export templates';
comment on column bds.mappers.company_id is 'The company';
comment on column bds.mappers.name is 'The name in URLs';
comment on column bds.mappers.format is 'xml, json or csv: what it reads; template: what it writes';
comment on column bds.mappers.text is 'The mapper as it was written';
comment on column bds.mappers.actor is 'Who has written it';
comment on column bds.mappers.created_at is 'Time of creation';
comment on column bds.mappers.updated_at is 'Time of the last change';

alter table bds.mappers enable row level security;
create policy own_company on bds.mappers to bds_writer, bds_reader
    using (company_id = current_setting('bds.company', true));
create policy every_company on bds.mappers to bds_operator using (true);
