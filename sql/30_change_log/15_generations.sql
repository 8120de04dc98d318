-- Generations of a company.  The first one begins with the company; another one when its log goes on from an earlier state, so that
-- ids of changes that some reader has seen are given again.  Then `bds.clocks.commons` gets the company's last change: ids up to it
-- mean the same changes in both generations, later ones do not.
--
-- The log goes on from an earlier state
--
--     after a promotion, or a recovery to a point in time    PostgreSQL then writes to another timeline of its write-ahead log: the
--                                                            first change of the company finds another one than the last change did
--     after a restore of the company                         bds_operation.finish_restore
--     after a restore of the database from a dump or a       bds.after_restore
--     snapshot, which keeps or loses the timeline
--
-- A move keeps the generation, and notes the timeline of the new server.

create function bds_change_log.timeline()
    returns int
    language sql
    stable
    return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;
comment on function bds_change_log.timeline() is
    'The timeline of the write-ahead log that this server writes now; the control file has it only after the next checkpoint';

create function bds_change_log.begin_generation(company text, common bigint)
    returns void
    language sql
as $$
    update bds.clocks c
    set timeline = bds_change_log.timeline(), commons = c.commons || common, begun_at = clock_timestamp(),
        -- a transaction of the former server may have the number of one of this server
        transaction_id = case when c.transaction_id = pg_current_xact_id_if_assigned() then c.transaction_id end
    where c.company_id = company;
$$;
comment on function bds_change_log.begin_generation(text, bigint) is
    'Begins a company''s next generation, which has the changes up to that one in common with the present one';

create or replace view bds.generations as
select c.company_id, g.n::int as generation, c.commons[g.n] as common_id,
    (select min(later) from unnest(c.commons[g.n:]) later) as last_common_id
from bds.clocks c cross join generate_series(1, cardinality(c.commons) + 1) g (n)
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.generations is
    'The generations of each company, the present one included; another one begins when the log goes on from an earlier state';
comment on column bds.generations.company_id is 'The company';
comment on column bds.generations.generation is '1, 2, 3, ...';
comment on column bds.generations.common_id is
    'The last change that it has in common with the next one; null for the present one';
comment on column bds.generations.last_common_id is
    'The last change that it has in common with the present one; null for the present one';
