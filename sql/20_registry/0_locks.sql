-- How statements that change the model get their locks.

-- A writer locks the table of its first statement, then the company's turn, then further tables and views; a reader locks views,
-- then tables.  No order of locks fits all of them.  So a statement that needs many waits for each lock shortly, gives all of them
-- up if one does not come, and tries again: sessions that wait for it go on, and no deadlock is found, because that takes longer
-- (deadlock_timeout).
create function bds_registry.patiently(statement text, arguments text[])
    returns text
    language plpgsql
    set standard_conforming_strings = on  -- as bodies are written that it calls
    set plan_cache_mode = force_generic_plan  -- many small queries, each planned up to five times otherwise: a fifth of the time
as $$
declare
    own      constant text := current_setting('lock_timeout');
    patience constant int := coalesce(nullif(bds_change_log.milliseconds('lock_timeout'), 0), 60000);
    deadline constant timestamptz := clock_timestamp() + make_interval(secs => patience / 1000.0);
    result   text;
    reason   text;
begin
    loop
        begin
            perform set_config('lock_timeout', least(patience, 100)::text, true);
            execute statement into result using arguments;
            perform set_config('lock_timeout', own, true);
            return result;
        exception when lock_not_available then
            reason := sqlerrm;
        end;
        if clock_timestamp() > deadline then
            raise exception using
                errcode = '55P03',
                message = format('other sessions kept what this changes locked for %s ms', patience),
                detail = reason,
                hint = 'pg_stat_activity shows long transactions by xact_start, bds.turns those that write; then call it again';
        end if;
        perform pg_sleep(0.05 + 0.1 * random());
    end loop;
end
$$;
comment on function bds_registry.patiently(text, text[]) is
    'Runs a statement with $1, an array, so that it waits for no lock longer than 0.1 s: else it is rolled back and tried again, '
    'for as long as lock_timeout, or a minute without one; then 55P03';
