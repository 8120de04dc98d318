-- What operators watch.

create or replace function bds.backlog(at_most int, out deliveries bigint, out overdue double precision, out imports bigint)
    returns record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select
        (select count(*) from (select from bds.deliveries d where d.finished_at is null limit at_most) d),
        greatest(0, extract(epoch from clock_timestamp() - least(
            (select min(s.batch_at) from bds.hook_states s where s.batch_at is not null),
            (select min(s.next_at) from bds.hook_states s where s.next_at is not null)
        ))),
        (select count(*) from (select from bds.imports i where i.finished_at is null limit at_most) i);
$$;
comment on function bds.backlog(int) is
    'What waits: deliveries and imports that have not ended, counted up to so many, and the seconds that the longest due delivery has been due; read from indexes alone';
