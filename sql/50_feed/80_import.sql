-- One import, from its turn to its end: everything is compared before anything is written.  Written are upserts in the order of dependency, then mass updates, then
-- deletes against that order, then removals; all in one transaction, so that a crash leaves nothing.
--
-- What only the writing shows (a rule of a table that no check knows) undoes what was written, is found by halving, becomes an error
-- of the records that cause it, and everything is compared again without them.

create function bds_feed.take_turn(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0  -- imports queue without a limit
as $$
begin
    perform bds.lock_company(company);
end
$$;
comment on function bds_feed.take_turn(text) is 'Waits for the company''s turn, however long';

create function bds_feed.run(import bds.imports, out counts jsonb, out outcome text)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb;
begin
    loop
        perform bds_feed.compare(import);
        if import.atomic = 'true' and bds_feed.has_errors() then
            counts := bds_feed.count_failed('{}');
            outcome := 'failed';
            return;
        end if;
        begin
            counts := bds_feed.apply(import);
            outcome := bds_feed.outcome(counts);
            exit when not import.dry_run;
            problems := bds_feed.late_errors();
            raise exception using errcode = 'BDF02', message = 'dry run';
        exception
            when sqlstate 'BDF02' then  -- what was written is undone, what was found out is kept
                perform bds_feed.keep_errors(problems);
                return;
            when sqlstate 'BDF01' then
                get stacked diagnostics problems = pg_exception_detail;
            when others then
                problems := case when bds_feed.is_fault_of_rows(sqlstate) then bds_feed.find_culprits(import) end;
                if problems is null then
                    raise;
                end if;
        end;
        perform bds_feed.empty_tables(array(select f.name from pg_temp.feed_entities f), false);
        perform bds_feed.keep_errors(problems);
    end loop;
end
$$;
comment on function bds_feed.run(bds.imports) is 'Compares and writes, again as long as the writing finds records that it refuses; returns the counts and the state in which the import ends';

create function bds_feed.finish(import bds.imports, counts jsonb, outcome text)
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems bigint := case when bds_feed.has_errors() then bds_feed.collect_errors(import) else 0 end;
begin
    -- every entity with every count
    select coalesce(jsonb_object_agg(c.key, '{"created": 0, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 0}'::jsonb || c.value), '{}')
    into counts from jsonb_each(counts) c;
    perform bds_feed.analyze_changed(counts) where not import.is_small;
    perform bds_feed.drop_staging(import);
    update bds.imports i
    set finished_at = clock_timestamp(), state = outcome, entities = counts, error_count = i.error_count + problems, done = i.records,
        position = (select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = import.company_id)
    where i.company_id = import.company_id and i.id = import.id and not i.is_cancelled;
    if not found then
        perform bds.open_import(import.company_id, import.id, 'running');  -- says that it was cancelled
    end if;
    return bds.import_report(import.company_id, import.id);
end
$$;
comment on function bds_feed.finish(bds.imports, jsonb, text) is 'Ends an import that has run, keeps its errors, drops what it staged; returns the report';
