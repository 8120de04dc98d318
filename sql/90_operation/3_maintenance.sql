-- Maintenance: the service calls it every few seconds; a scheduler of the database may call it instead.

create function bds_operation.delete_aged(of_age text, age interval)
    returns bigint
    language plpgsql
as $$
declare
    this    record;
    done    bigint;
    deleted bigint := 0;
begin
    for this in select t.name, t.company_column, t.age_column from bds.tables t where t.age = of_age loop
        execute format(
            'delete from %s t using bds.residents r where t.%I < now() - $1 and r.company_id = t.%I',
            this.name, this.age_column, this.company_column
        ) using age;
        get diagnostics done = row_count;
        deleted := deleted + done;
    end loop;
    return deleted;
end
$$;
comment on function bds_operation.delete_aged(text, interval) is
    'Deletes the rows of companies that live here that are older than an age (null: none), from each table that has this age in '
    'bds.tables; returns their number';

create function bds_operation.compare_next(age interval, out done bigint, out problem text)
    returns record
    language plpgsql
as $$
declare
    due record;
begin
    done := 0;
    for due in
        select e.name, bds_change_log.is_altered(e) as is_altered
        from bds.entities e left join bds.log_comparisons c on c.entity = e.name
        where coalesce(c.compared_at, '-infinity') < clock_timestamp() - age
            and exists (select from pg_class t where t.oid = e.table_name)
        order by c.compared_at nulls first, e.ordinal
    loop
        if due.is_altered then
            problem := concat_ws('; ', problem, format('BD007: %s is altered and not registered again', due.name));
            continue;
        end if;
        continue when done > 0;
        begin
            perform bds.compare_log(entity => due.name);
            done := 1;
        exception
            -- the others are compared meanwhile
            when lock_not_available then
                problem := concat_ws(
                    '; ', problem, format('55P03: %s is put off: another session has held a lock for 0.1 s', due.name)
                );
            when others then
                problem := concat_ws('; ', problem, format('%s: %s is not compared: %s', sqlstate, due.name, sqlerrm));
        end;
    end loop;
end
$$;
comment on function bds_operation.compare_next(interval) is
    'Compares the rows of one entity with the log: of those that were not compared for that time (null: none) the first that is '
    'not altered, whose table no other session has locked, and that can be compared; returns the number of entities compared, and '
    'which could not be';

create or replace function bds.maintain(
    import_age interval default null, compare_age interval default null, seal_age interval default '1 hour'
)
    returns table (step text, done bigint, problem text)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- of each step: other sessions may hold their locks for hours, and some queue behind a lock that waits
    set lock_timeout = '100ms'
as $$
declare
    -- in this order: the last ones lock the log, until the end of the transaction
    statements constant text[] := array[
        'compare rows with the log', 'select * from bds_operation.compare_next($2)',
        'count problems', $sql$
            with counted as (
                update bds.problem_counts c
                set counted_at = clock_timestamp(), counts = (
                    select coalesce(jsonb_object_agg(p.kind, p.number), '{}')
                    from (select o.kind, count(*) as number from bds.problems o group by o.kind) p
                )
                where c.counted_at < clock_timestamp() - interval '1 minute'
                returning 1
            )
            select count(*) from counted
        $sql$,
        'end dead imports', 'select bds.reap_imports()',
        -- what they wrote stays, and so does the change log
        'forget old imports', 'select bds_operation.delete_aged(''import_age'', $1)',
        'count change sets', 'select bds_change_log.count_change_sets()',
        'forget keys of requests', 'select bds_feed.forget_keys()',
        'verify sealed records', 'select * from bds_seals.verify_next()',
        'seal records', 'select * from bds_seals.seal_all($3)',
        'make months of the log', 'select bds_change_log.make_months()',
        'expire months of the log', 'select bds_change_log.expire_changes()'
    ];
begin
    begin  -- one session maintains at a time; this lock needs a right, unlike an advisory lock
        lock table bds.problem_counts in share update exclusive mode nowait;
    exception when lock_not_available then
        return;
    end;
    for n in 1 .. cardinality(statements) by 2 loop
        step := statements[n];
        problem := null;
        begin
            execute statements[n + 1] into done, problem using import_age, compare_age, seal_age;
        exception
            when lock_not_available then
                done := 0;
                problem := sqlstate || ': put off until the next call: another session has held a lock for 0.1 s';
            when others then
                done := 0;
                problem := sqlstate || ': ' || sqlerrm;
        end;
        return next;
    end loop;
end
$$;
comment on function bds.maintain(interval, interval, interval) is
    'All periodic work: compares the rows of an entity with the log if the last comparison is older than compare_age (null: none), '
    'counts problems, ends imports whose process is gone, deletes reports of imports that ended longer ago than import_age (null: '
    'none), counts changes by change sets, forgets Idempotency-Keys after a day, verifies a part of what is sealed, seals records '
    'of the change log and of the audit once 10,000 wait or the oldest is of seal_age, makes and expires months of the change log. '
    'Returns how much each step has done, or its error; no rows while another session does the work. A step that does not get a '
    'lock within 0.1 s is put off until the next call';
