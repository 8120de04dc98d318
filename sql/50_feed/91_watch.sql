-- Imports from outside: signs of life, cancelling, the end without a result, the report, and what maintenance ends.

create or replace function bds.import_progress(
    company text, import_id uuid, bytes bigint, records bigint, done bigint, waiting_for text default null, phase text default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    perform bds_feed.enter_company(company);
    update bds.imports i
    set bytes = greatest(i.bytes, import_progress.bytes), records = greatest(i.records, import_progress.records),
        done = greatest(i.done, import_progress.done), waiting_for = import_progress.waiting_for,
        phase = coalesce(import_progress.phase, i.phase), heartbeat_at = now_at
    where i.company_id = company and i.id = import_id and i.finished_at is null;
end
$$;
comment on function bds.import_progress(text, uuid, bigint, bigint, bigint, text, text) is
    'Stores the progress of an import, what it waits for, and a sign of life: without one for 20 seconds bds.reap_imports ends it';

create or replace function bds.import_cancel(company text, import_id uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds_feed.open_import(company, import_id);
begin
    update bds.imports i set is_cancelled = true
    where i.company_id = company and i.id = import_id and i.finished_at is null;
    if not found then
        import := bds_feed.open_import(company, import_id);  -- it may have ended while this waited for it
        raise exception using errcode = 'BD004', message = format('import %s has ended: it is %s', import_id, import.state);
    end if;
end
$$;
comment on function bds.import_cancel(text, uuid) is
    'Requests the end of an import: the process that runs it rolls it back. Raises BD004 if it has ended. bds.reap_imports ends an '
    'import whose process is gone';

create or replace function bds.import_fail(
    company text, import_id uuid, new_state text default 'failed', code text default null, message text default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds_feed.open_import(company, import_id);
begin
    perform 1 from bds.imports i where i.company_id = company and i.id = import_id for update;
    import := bds_feed.open_import(company, import_id);  -- it may have ended while this waited for it
    if import.finished_at is null then
        perform bds_feed.abandon(import, new_state, code, message);
    else  -- on a full disk its signs of life were not stored either
        update bds.import_errors e set code = import_fail.code, message = import_fail.message
        where e.company_id = company and e.import_id = import_fail.import_id and e.message = bds_feed.taken_for_dead()
            and import_fail.code is not null;
    end if;
end
$$;
comment on function bds.import_fail(text, uuid, text, text, text) is
    'Ends an import without a result, notes why, and drops what it staged; of one that bds.reap_imports has ended only the '
    'reason is noted';

create function bds_feed.taken_for_dead()
    returns text
    language sql
    immutable
    return 'the process that ran the import stopped responding';
comment on function bds_feed.taken_for_dead() is 'The message of an import that bds.reap_imports has ended';

create function bds_feed.abandon(import bds.imports, new_state text, code text, message text)
    returns void
    language plpgsql
as $$
declare
    now_at timestamptz;
begin
    perform bds_feed.drop_staging(import);
    insert into bds.import_errors (company_id, import_id, n, path, code, message)
    select import.company_id, import.id, import.error_count + 1, 'document', abandon.code, abandon.message
    where abandon.code is not null;
    now_at := clock_timestamp();
    update bds.imports i
    set state = new_state, finished_at = now_at, error_count = i.error_count + (abandon.code is not null)::int
    where i.company_id = import.company_id and i.id = import.id;
end
$$;
comment on function bds_feed.abandon(bds.imports, text, text, text) is
    'Drops what an import staged, and notes its end with an error, if there is one';

create or replace function bds.import_report(company text, import_id uuid, with_errors boolean default true)
    returns json
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_feed.report(bds_feed.open_import(company, import_id), with_errors);
end
$$;
comment on function bds.import_report(text, uuid, boolean) is
    'What an import has done: state, progress, counts by entity, the first 1,000 errors unless told without';

create function bds_feed.report(import bds.imports, with_errors boolean)
    returns json
    language plpgsql
    stable
    set timezone = 'UTC'
as $$
begin
    return json_object(
        'importId': import.id,
        'changeSetId': import.id,
        'state': import.state,
        'atomic': case import.atomic when 'batch' then to_json('batch'::text) else import.atomic::json end,
        'dryRun': import.dry_run,
        'reverts': import.reverts, 'undoes': (import.undoes - 'late' - 'changeSet')::json,
        'force': case when import.undoes is not null then import.is_forced end,
        'notices': case when import.undoes is not null then to_json(import.notices) end,
        'rows': case when import.undoes is not null and with_errors then import.preview::json end,
        'actor': import.actor,
        'file': coalesce(to_json(import.file), 'null'),
        'mapper': coalesce(to_json(import.mapper), 'null'),
        'startedAt': bds_service.api_time(import.started_at),
        'finishedAt': coalesce(to_json(bds_service.api_time(import.finished_at)), 'null'),
        'position': coalesce(to_json(bds_impl.event_prefix(import.company_id) || import.position), 'null'),
        'progress': json_object(
            'bytes': import.bytes, 'records': import.records, 'done': import.done,
            'phase': case
                when import.state = 'receiving' then 'receiving'
                when import.state = 'running' and import.waiting_for is null then coalesce(import.phase, 'waiting')
                when import.state = 'running' then 'waiting'
            end,
            'waitingFor': case when import.state = 'running' then import.waiting_for end
        ),
        'entities': (
            select coalesce(json_object_agg(e.name, json_object(
                'created': c.value -> 'created', 'updated': c.value -> 'updated', 'deleted': c.value -> 'deleted',
                'unchanged': c.value -> 'unchanged', 'failed': c.value -> 'failed' returning json) order by e.ordinal), '{}')
            from jsonb_each(import.entities) c join bds.entities e on e.name = c.key
        ),
        'errorCount': import.error_count,
        'errors': case when with_errors then (
            select coalesce(json_agg(
                json_object('path': e.path, 'record': e.record, 'code': e.code, 'message': e.message) order by e.n
            ), '[]')
            from bds.import_errors e
            where e.company_id = import.company_id and e.import_id = import.id and e.n <= 1000
        ) end
        absent on null
    );
end
$$;
comment on function bds_feed.report(bds.imports, boolean) is 'The report of an import, with its first 1,000 errors';

create or replace function bds.reap_imports(silence interval default '20 seconds')
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '100ms'
as $$
declare
    dead   bds.imports;
    reaped bigint := 0;
begin
    for dead in
        select * from bds.imports i
        where i.finished_at is null and i.heartbeat_at < statement_timestamp() - silence
            and exists (select from bds.residents r where r.company_id = i.company_id)
        for update skip locked
    loop
        begin
            perform bds_feed.abandon(dead, case when dead.is_cancelled then 'cancelled' else 'failed' end,
                'aborted', bds_feed.taken_for_dead());
            reaped := reaped + 1;
        exception when lock_not_available then
            null;  -- its process may still run: the next call tries again
        end;
    end loop;
    return reaped;
end
$$;
comment on function bds.reap_imports(interval) is 'Ends imports without a sign of life for a while: their process is gone';
