-- Generations of a company.  The first one begins with the first company of its id; another one when its log goes on from an
-- earlier state, so that ids of changes that some reader has seen are given again.  `bds.clocks.commons` has, for each earlier
-- generation, the last change that it has in common with the present one: ids up to it mean the same changes in both, later ones
-- do not.
--
-- The log goes on from an earlier state
--
--     after a promotion, or a recovery to a point in time    PostgreSQL then writes to another timeline of its write-ahead log: the
--                                                            first change of the company finds another one than the last change did
--     after a restore of the company                         bds_operation.finish_restore
--     after a restore of the database from a dump or a       bds.after_restore
--     snapshot, which keeps or loses the timeline
--     anew, if a company of its id was deleted               bds.create_company
--
-- A move keeps the generation, and notes the timeline of the new server.

create function bds_change_log.timeline()
    returns int
    language sql
    stable
    return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;
comment on function bds_change_log.timeline() is
    'The timeline of the write-ahead log that this server writes now; the control file has it only after the next checkpoint';

create function bds_change_log.begin_generation(company text, common bigint, known int default 0)
    returns void
    language sql
as $$
    update bds.clocks c
    set timeline = bds_change_log.timeline(), begun_at = clock_timestamp(),
        commons = array(select least(e.id, common) from unnest(c.commons) with ordinality e (id, n) order by e.n) || common
            || array_fill(0::bigint, array[greatest(known - cardinality(c.commons) - 1, 0)]),
        -- a transaction of the former server may have the number of one of this server
        transaction_id = case when c.transaction_id = pg_current_xact_id_if_assigned() then c.transaction_id end
    where c.company_id = company;
$$;
comment on function bds_change_log.begin_generation(text, bigint, int) is
    'Begins a company''s next generation, which has the changes up to that one in common with the present one. known: the last '
    'generation that somebody may know, of which nothing is known here';

create or replace view bds.generations as
select c.company_id, g.n::int as generation, c.commons[g.n] as last_common_id
from bds.clocks c cross join generate_series(1, cardinality(c.commons) + 1) g (n)
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.generations is
    'The generations of each company, the present one included; another one begins when the log goes on from an earlier state';
comment on column bds.generations.company_id is 'The company';
comment on column bds.generations.generation is '1, 2, 3, ...';
comment on column bds.generations.last_common_id is
    'The last change that it has in common with the present one; null for the present one';
