-- The backlog that operators monitor, and the step after a restore.

create or replace function bds_service.backlog(
    at_most int,
    out deliveries bigint, out overdue double precision, out imports bigint, out failing_hooks bigint, out resting_hooks bigint
)
    returns record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    with unhealthy as (
        select s.rests_until > clock_timestamp() as rests
        from bds.hook_states s join bds.hooks h on h.company_id = s.company_id and h.id = s.hook_id
        where (s.failures > 0 or s.rests_until is not null) and not h.disabled and h.deleted_at is null
            and (s.failures > 0 or s.rests_until > clock_timestamp())
            and exists (select from bds.residents r where r.company_id = s.company_id)
        limit at_most
    )
    select
        (
            select count(*) from (
                select 1 from bds.deliveries d
                where d.finished_at is null and exists (select from bds.residents r where r.company_id = d.company_id)
                limit at_most
            ) d
        ),
        greatest(0, -bds_service.next_due()),
        (
            select count(*) from (
                select 1 from bds.imports i
                where i.finished_at is null and exists (select from bds.residents r where r.company_id = i.company_id)
                limit at_most
            ) i
        ),
        (select count(*) from unhealthy u where u.rests is not true),
        (select count(*) from unhealthy u where u.rests);
$$;
comment on function bds_service.backlog(int) is
    'Deliveries and imports that have not ended, and hooks whose last attempt failed or that rest, each counted up to at_most, and '
    'the seconds that the oldest due delivery is overdue, of companies that live here; searches no table without an index';

create function bds_operation.fit_columns()
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_registry.renumber_columns(e.name)
    from bds.entities e where exists (select from pg_class c where c.oid = e.table_name);
$$;
comment on function bds_operation.fit_columns() is
    'After a restore of the database: fits the registry to tables that had dropped columns';

create or replace function bds.after_restore()
    returns bigint
    language sql
    volatile
    set search_path = pg_catalog, pg_temp
as $$
    select bds_operation.fit_columns();
    -- readers may have seen changes that the dump or the snapshot does not have
    with begun as materialized (select bds_change_log.begin_generation(c.company_id, c.last_id) from bds.clocks c)
    select count(*) from begun;
$$;
comment on function bds.after_restore() is
    'After a restore of the database from a dump or a snapshot: begins a generation of each company, since readers may have seen '
    'changes that are gone; clears transaction ids of the other server, which this one will give to other transactions; and fits '
    'the registry to tables that had dropped columns. bds migrate calls it where transaction ids show a restore; returns the '
    'number of companies';

create function bds_operation.was_restored()
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select exists (select from bds.clocks c where c.transaction_id >= pg_snapshot_xmax(pg_current_snapshot()));
$$;
comment on function bds_operation.was_restored() is
    'Whether transactions that this server has not begun yet have written: another server did, and this is a restored copy';
