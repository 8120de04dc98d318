-- Seals of the change log and of the audit (sql/87_seals): what proves that no record was changed, removed or added since.

create table bds.seals (
    company_id    text collate "C" not null,
    log           text collate "C" not null,
    first_id      bigint not null,
    last_id       bigint not null,
    generation    bigint not null,
    sealed_hash   bytea not null,
    -- another one after each lawful change of the records, so that nobody can confirm a guess of what was there
    key           bytea not null,
    content_hash  bytea not null,
    previous      bytea,
    hash          bytea not null,
    sealed_at     timestamptz not null default clock_timestamp(),

    -- no foreign key: the server's audit is of no company
    primary key (company_id, log, first_id),
    constraint log_is_known check (log in ('changes', 'audit')),
    -- the id after a range is computed
    constraint range_runs_forward check (first_id > 0 and last_id >= first_id and last_id < 9223372036854775807)
);
comment on table bds.seals is
    'Seals of ranges of bds.changes and of bds.audit, each a chain by the previous hash; docs/security.md has the form of what is '
    'hashed. bds.maintain() makes them, bds.verify_log compares them with the records';
comment on column bds.seals.company_id is 'The company; empty: the audit of the server';
comment on column bds.seals.log is 'changes or audit';
comment on column bds.seals.first_id is 'The id of the first record of the range';
comment on column bds.seals.last_id is 'The id of its last record';
comment on column bds.seals.generation is 'The generation of the company when the range was sealed';
comment on column bds.seals.sealed_hash is 'The content hash of the range when it was sealed; hash contains it';
comment on column bds.seals.key is 'The present random key of the range, with which its content hash begins';
comment on column bds.seals.content_hash is
    'SHA-256 over the present key and the records. It is sealed_hash until an erasure or a renaming changes records, which the '
    'audit has then noted';
comment on column bds.seals.previous is 'The hash of the seal before; null for the first one';
comment on column bds.seals.hash is 'SHA-256 over company, log, range, generation, sealed_hash and previous; it never changes';
comment on column bds.seals.sealed_at is 'When it was sealed; not part of the hash';

-- The notes of what has changed records of sealed ranges, by range.
create index company_audit_seals on bds.company_audit using gin ((detail -> 'seals') jsonb_path_ops) where detail ? 'seals';

create table bds.seal_positions (
    company_id   text collate "C" not null,
    log          text collate "C" not null,
    sealed_id    bigint not null default 0,
    -- of the oldest record that waits, as far as it is known
    waits_since  timestamptz,
    verified_id  bigint not null default 0,
    begun_at     timestamptz,
    verified_at  timestamptz,

    primary key (company_id, log),
    -- an infinite time would end sealing or verifying; the id after each is computed
    constraint times_are_finite check (isfinite(waits_since) and isfinite(begun_at) and isfinite(verified_at)),
    constraint ids_have_a_next_one check (
        sealed_id >= 0 and verified_id >= 0 and greatest(sealed_id, verified_id) < 9223372036854775807
    )
);
comment on table bds.seal_positions is
    'How far each log is sealed and verified here. Whoever seals or lawfully changes records of a log has its row locked';
comment on column bds.seal_positions.company_id is 'The company; empty: the audit of the server';
comment on column bds.seal_positions.log is 'changes or audit';
comment on column bds.seal_positions.sealed_id is 'The last id that was sealed here';
comment on column bds.seal_positions.waits_since is 'The time of the oldest record that waits for a seal; null: not looked at yet';
comment on column bds.seal_positions.verified_id is 'The last id that bds.maintain has verified in the round under way';
comment on column bds.seal_positions.begun_at is 'When the round under way began; null: none is';
comment on column bds.seal_positions.verified_at is 'When the last round began that has verified the whole log';

create table bds.seal_findings (
    company_id  text collate "C" not null,
    log         text collate "C" not null,
    first_id    bigint not null,
    last_id     bigint not null,
    kind        text not null,
    detail      text not null,
    found_at    timestamptz not null default clock_timestamp(),

    primary key (company_id, log, first_id, kind),
    constraint kind_is_a_fault check (kind in ('altered', 'missing', 'added', 'chain'))
);
comment on table bds.seal_findings is
    'Ranges that were not as they were sealed when bds.maintain or bds doctor --deep verified them last';
comment on column bds.seal_findings.company_id is 'The company; empty: the audit of the server';
comment on column bds.seal_findings.log is 'changes or audit';
comment on column bds.seal_findings.first_id is 'The first id of the range';
comment on column bds.seal_findings.last_id is 'The last id of the range';
comment on column bds.seal_findings.kind is 'altered, missing, added or chain, see bds.verify_log';
comment on column bds.seal_findings.detail is 'What was found';
comment on column bds.seal_findings.found_at is 'When it was found';
