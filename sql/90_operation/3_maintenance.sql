-- Maintenance: the service calls it every few seconds; a scheduler of the database may call it instead.

create or replace function bds.maintain(import_age interval default null)
    returns table (step text, done bigint, problem text)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- in this order: the last ones lock the log, until the end of the transaction
    statements constant text[] := array[
        'end dead imports', 'select bds.reap_imports()',
        'forget old imports', 'select bds.forget_imports($1)',
        'make months of the log', 'select bds_change_log.make_months()',
        'expire months of the log', 'select bds_change_log.expire_changes()'
    ];
begin
    if not pg_try_advisory_xact_lock(hashtextextended('bds.maintain', 0)) then
        return;
    end if;
    for n in 1 .. cardinality(statements) by 2 loop
        step := statements[n];
        problem := null;
        begin
            execute statements[n + 1] into done using import_age;
        exception when others then
            done := 0;
            problem := sqlstate || ': ' || sqlerrm;
        end;
        return next;
    end loop;
end
$$;
comment on function bds.maintain(interval) is
    'All periodic work: ends imports whose process is gone, deletes reports of imports that ended so long ago (null: none), makes and '
    'expires months of the change log. Returns what each step has done, and its error; nothing while another session does the work';
