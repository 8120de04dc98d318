-- Retention: whole months of the log are dropped or archived; a company may have a retention of its own.

create or replace function bds.set_retention(keep interval, company text default null, archive boolean default null)
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
    elsif company is not null and archive is not null then
        raise exception using
            errcode = 'BD005',
            message = format('expected archive without a company, got company %L', company),
            hint = 'whole months are archived; a company''s own retention deletes its changes';
    end if;
    if company is null then
        if archive and bds_shards.is_divided('bds.change_log') then
            raise exception using
                errcode = 'BD004',
                message = 'the log of this database is divided into shards: its changes are deleted when they expire, not archived';
        end if;
        update bds.settings s set log_retention = keep, log_archive = coalesce(archive, s.log_archive);
        return;
    end if;
    update bds.companies c set log_retention = keep where c.id = company;
    perform bds_impl.require_resident(company);
end
$$;
comment on function bds.set_retention(interval, text, boolean) is
    'Sets the minimum time for which changes are kept. Without a company: of all companies without a retention of their own (null: '
    'unlimited); expired months are dropped or, with archive, moved to bds.change_archive. With a company: its own retention '
    '(null: that of all, infinity: unlimited); if shorter than that of other companies, expired changes of the company are deleted';

create function bds_change_log.retention_of(own interval)
    returns interval
    language sql
    stable
as $$
    select coalesce(own, (select s.log_retention from bds.settings s), 'infinity');
$$;
comment on function bds_change_log.retention_of(interval) is
    'The retention of a company; for null, that of companies without their own';

create function bds_change_log.ids_of_month(this bds.change_months)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        'first_id', this.first_id,
        'last_id', coalesce(
            min(m.first_id) filter (where m.month > this.month),
            (select c.last_id + 1 from bds.clocks c where c.company_id = this.company_id)
        ) - 1
    )
    from bds.change_months m where m.company_id = this.company_id;
$$;
comment on function bds_change_log.ids_of_month(bds.change_months) is
    'The first and last change of a company in a month: {first_id, last_id}';

create function bds_change_log.expire_changes()
    returns bigint
    language plpgsql
    set timezone = 'UTC'
    set lock_timeout = '100ms'
as $$
declare
    -- months that ended before it are expired for every company; a log that is divided into shards has no partitions of months
    cutoff  timestamptz := case when bds_shards.is_divided('bds.change_log') then '-infinity' else now() - coalesce(
        (select max(bds_change_log.retention_of(c.own)) from (select distinct log_retention from bds.companies) c (own)),
        bds_change_log.retention_of(null)
    ) end;
    -- hooks are not matched while no process of the service runs
    awaited timestamptz := (select min(a.month) from bds_webhooks.awaited_months() a);
    -- not of the statement: steps of bds.maintain precede it
    begun_at constant timestamptz := clock_timestamp();
    blocked  text[] := '{}';  -- companies of which another session has a month that is expired
    expired record;
    records bigint;
    done    bigint := 0;
begin
    -- Long deletes come first: they block no session, whereas the lock that drops a month blocks all sessions.
    for expired in
        select m.company_id, m.month
        from bds.change_months m
        join bds.companies c on c.id = m.company_id
        join bds_change_log.partitions() p on p.name = bds_change_log.partition_of(m.month)
        where m.month + interval '1 month' <= now() - bds_change_log.retention_of(c.log_retention)
            and m.month + interval '1 month' > cutoff
            and not exists (select from bds_webhooks.awaited_months() a where a.company_id = m.company_id and a.month <= m.month)
        order by m.month, m.company_id
    loop
        exit when clock_timestamp() > begun_at + interval '1 second';  -- the next call goes on
        continue when expired.company_id = any (blocked);
        begin
            delete from bds.change_log l
            where l.company_id = expired.company_id
                and l.created_at >= expired.month and l.created_at < expired.month + interval '1 month';
            get diagnostics records = row_count;
            -- while the company is moved its records are written where it lives
            perform bds_audit.note(
                r.company_id, 'expire', 'changes',
                jsonb_build_object('month', expired.month, 'records', records) || bds_change_log.ids_of_month(m)
            )
            from bds.residents r join bds.change_months m on m.company_id = r.company_id and m.month = expired.month
            where r.company_id = expired.company_id;
            -- Earlier months, which are expired for every company, may have to stay for a while, for a session that reads them or
            -- for hooks of others: what is before a gap is not kept, though it is there.
            perform bds_seals.note_months(expired.company_id, expired.month, 'change_log', 'by hand');
            delete from bds.change_months m where m.company_id = expired.company_id and m.month <= expired.month;
            delete from bds.counted_change_sets s
            where s.company_id = expired.company_id and s.last_at < expired.month + interval '1 month';
            done := done + 1;
        exception when lock_not_available then
            blocked := blocked || expired.company_id;  -- the next call tries again
        end;
    end loop;
    return done + bds_change_log.expire_months(case when awaited < cutoff then awaited else cutoff end);
end
$$;
comment on function bds_change_log.expire_changes() is
    'Drops or archives months that are expired for every company, and deletes a company''s changes that only its own retention '
    'does not keep; returns the number of months';

create function bds_change_log.expire_months(cutoff timestamptz)
    returns bigint
    language plpgsql
    -- Other sessions queue behind this lock while it waits, so it waits briefly; the next call tries again.
    set lock_timeout = '100ms'
as $$
declare
    archives boolean := (select s.log_archive from bds.settings s);
    month    record;
    done     bigint := 0;
begin
    for month in
        select p.partition, p.starts, p.ends
        from bds_change_log.partitions() p
        where p.ends <= cutoff
            -- of a month that leaves the log between the copies of the two tables, a company on its way would have no record
            and not (archives and exists (select from pg_publication b where b.pubname ^@ 'bds_move_'))
        order by p.ends
    loop
        if archives then
            perform bds_change_log.archive_month(month.partition, month.starts, month.ends);
        else
            lock table only bds.change_log in access exclusive mode;  -- before the partition, in the order of queries
            execute format('drop table %s', month.partition);
        end if;
        delete from bds.counted_change_sets s where s.last_at < month.ends;
        perform bds_audit.note('', 'expire', 'changes', jsonb_build_object('month', month.starts, 'archived', archives));
        perform bds_audit.note(
            r.company_id, 'expire', 'changes',
            jsonb_build_object('month', month.starts, 'archived', archives) || bds_change_log.ids_of_month(m)
        )
        from bds.change_months m join bds.residents r on r.company_id = m.company_id
        where m.month = month.starts;
        done := done + 1;
    end loop;
    return done;
exception when lock_not_available then
    return 0;
end
$$;
comment on function bds_change_log.expire_months(timestamptz) is
    'Drops or archives partitions of the change log that end up to a time; returns their number';

create function bds_change_log.archive_month(partition regclass, starts timestamptz, ends timestamptz)
    returns void
    language plpgsql
    set timezone = 'UTC'
as $$
declare
    archived text := bds_change_log.partition_of(starts, 'change_archive');
    is_first boolean := to_regclass('bds.' || archived) is null;
begin
    if is_first then
        perform bds_change_log.forget_month(starts, 'change_archive');
    else  -- changes of that month were restored after it had been archived
        perform bds_change_log.require_attached(archived, 'change_archive');
        execute format('with moved as (delete from %s returning *) insert into bds.change_archive select * from moved', partition);
    end if;
    lock table only bds.change_log in access exclusive mode;  -- before the partition, in the order of queries
    execute format('alter table bds.change_log detach partition %s', partition);
    if not is_first then
        execute format('drop table %s', partition);
        return;
    end if;
    execute format('alter table %s rename to %I', partition, archived);
    execute format('alter table bds.change_archive attach partition bds.%I for values from (%L) to (%L)', archived, starts, ends);
end
$$;
comment on function bds_change_log.archive_month(regclass, timestamptz, timestamptz) is
    'Moves a partition of the change log to bds.change_archive';
