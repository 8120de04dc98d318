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

create or replace function bds.after_restore()
    returns bigint
    language sql
    volatile
    set search_path = pg_catalog, pg_temp
as $$
    select bds_registry.renumber_columns(e.name)
    from bds.entities e where exists (select from pg_class c where c.oid = e.table_name);
    with forgotten as (
        update bds.clocks c
        set transaction_id = null, begun_at = default  -- readers may have seen changes that the dump does not have
        where c.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
        returning 1
    )
    select count(*) from forgotten;
$$;
comment on function bds.after_restore() is
    'After a restore: clears transaction ids of the other server, which this one will give to other transactions, and fits the '
    'registry to tables that had dropped columns. bds migrate calls it; returns the number of companies';
