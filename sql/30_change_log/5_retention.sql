-- Partitions of the change log, one for each month, and how long they are kept.

create or replace function bds.make_partitions(months int default 3)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- A new partition locks the whole log. Other sessions queue behind this lock while it waits, so it waits briefly.
    set lock_timeout = '100ms'
as $$
declare
    month date;
    name  text;
begin
    perform pg_advisory_xact_lock(hashtextextended('bds.make_partitions', 0));
    for month in
        select generate_series(
            date_trunc('month', now() at time zone 'UTC'), now() at time zone 'UTC' + make_interval(months => months),
            interval '1 month'
        )
    loop
        name := 'change_log_' || to_char(month, 'YYYY_MM');
        continue when to_regclass('bds.' || name) is not null;
        begin
            execute format(
                'create table bds.%I partition of bds.change_log (primary key (company_id, id)) for values from (%L) to (%L)',
                name, month || ' 00:00:00+00', (month + interval '1 month')::date || ' 00:00:00+00'
            );
            execute format('comment on table bds.%I is %L', name, 'Changes of ' || to_char(month, 'YYYY-MM'));
        exception when check_violation then
            null;  -- changes of that month are in the default partition, and stay there
        end;
    end loop;
exception when lock_not_available then
    null;  -- a session reads the log: the next call tries again, months before the partition is needed
end
$$;
comment on function bds.make_partitions(int) is
    'Creates the change log''s partitions for this month and the next ones, as soon as no session holds a lock on the log';

select bds.make_partitions();

create or replace function bds.first_change(company text)
    returns bigint
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    return coalesce((select f.first_id from bds.first_changes f where f.company_id = company), 1);
end
$$;
comment on function bds.first_change(text) is
    'The id of the first retained change: 1, unless a retention is set and old changes were dropped';

create or replace function bds.set_retention(keep interval)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator sets the retention of the change log';
    end if;
    if keep < interval '1 day' then
        raise exception using
            errcode = 'BD005', message = format('expected a retention of at least one day, or null, got %s', keep);
    end if;
    update bds.settings s set log_retention = keep;
end
$$;
comment on function bds.set_retention(interval) is
    'Sets the minimum time for which changes are kept: older months are dropped whole. Null, the default, keeps every change';

create or replace function bds.drop_old_changes()
    returns int
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- Other sessions queue behind this lock while it waits, so it waits briefly; the next call tries again.
    set lock_timeout = '100ms'
as $$
declare
    cutoff    timestamptz := now() - (select s.log_retention from bds.settings s);
    partition record;
    dropped   int := 0;
begin
    if cutoff is null then
        return 0;
    end if;
    for partition in
        select c.oid::regclass as name
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        cross join lateral (
            select (regexp_match(pg_get_expr(c.relpartbound, c.oid), $r$TO \('([^']+)'\)$r$))[1]::timestamptz as ends
        ) as bound
        where i.inhparent = 'bds.change_log'::regclass and bound.ends <= cutoff
        order by bound.ends
    loop
        lock table only bds.change_log in access exclusive mode;  -- before the partition, in the order of queries
        execute format('lock table %s in access exclusive mode', partition.name);
        perform bds_change_log.forget_changes(partition.name, 'infinity');
        execute format('drop table %s', partition.name);
        dropped := dropped + 1;
    end loop;
    if exists (select from bds.change_log_default d where d.created_at < cutoff) then
        perform bds_change_log.forget_changes('bds.change_log_default', cutoff);
        delete from bds.change_log_default d where d.created_at < cutoff;
    end if;
    return dropped;
exception when lock_not_available then
    return 0;
end
$$;
comment on function bds.drop_old_changes() is
    'Drops partitions of the change log that are older than the retention; returns their number';

create function bds_change_log.forget_changes(partition regclass, before timestamptz)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'insert into bds.first_changes as f (company_id, first_id) '
        'select l.company_id, max(l.id) + 1 from %s l where l.created_at < $1 group by l.company_id '
        'on conflict (company_id) do update set first_id = greatest(f.first_id, excluded.first_id)',
        partition
    )
    using before;
end
$$;
comment on function bds_change_log.forget_changes(regclass, timestamptz) is
    'Stores the first change that each company keeps, before older ones are dropped';
