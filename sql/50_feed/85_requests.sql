-- Requests with an Idempotency-Key.  A request claims its key, with the id that its import will have, before its body is read; what
-- its answer was is the report of that import, or a problem in bds.import_keys.  So no crash between the commit of an import and
-- its answer frees the key.
--
-- The import requires its claim, in the transaction that lists or writes it.  A claim without an import lapses soon, as nothing
-- shows that its process lives; a live import holds its own.

create function bds_feed.is_free(claim bds.import_keys)
    returns boolean
    language plpgsql
    stable
as $$
declare
    import bds.imports;
begin
    select * into import from bds.imports i where i.company_id = claim.company_id and i.id = claim.import_id;
    return case
        when import.id is not null and import.finished_at is null then false
        when claim.claimed_at < clock_timestamp() - interval '1 day' then true
        when claim.problem is not null or import.position is not null then false
        when import.id is not null then true  -- it died
        else claim.claimed_at < clock_timestamp() - interval '20 seconds'
    end;
end
$$;
comment on function bds_feed.is_free(bds.import_keys) is
    'Whether another request may have the key: it is a day old, or its request has ended without an answer';

create function bds_feed.require_claim(company text, claimed_id uuid)
    returns void
    language plpgsql
as $$
begin
    if claimed_id is not null then
        -- another request that finds the claim lapsed leaves it, while this transaction may write
        perform from bds.import_keys k where k.company_id = company and k.import_id = claimed_id for update;
        if not found then
            raise exception using
                errcode = 'BD003',
                message = 'another request has taken the Idempotency-Key, because this one gave no sign of life: send it again';
        end if;
    end if;
end
$$;
comment on function bds_feed.require_claim(text, uuid) is
    'Keeps the claim of an import until the end of the transaction; raises BD003 if it was lost. Null: it needs none';

create or replace function bds_service.claim_request(company text, key text, import_id uuid)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    claim  bds.import_keys;
    is_new boolean;
    now_at timestamptz;
begin
    perform bds_feed.enter_company(company);
    insert into bds.import_keys (company_id, key, import_id) values (company, key, import_id) on conflict do nothing;
    is_new := found;
    perform bds_impl.require_resident(company);  -- asked now: a move of the company waits for this transaction
    if is_new then
        return true;
    end if;
    select * into claim from bds.import_keys k
    where k.company_id = company and k.key = claim_request.key
    for update skip locked;  -- an import that is being written has it
    if not found or not bds_feed.is_free(claim) then
        return false;
    end if;
    now_at := clock_timestamp();
    update bds.import_keys k
    set import_id = claim_request.import_id, claimed_at = now_at, request = null, is_async = false, problem = null
    where k.company_id = company and k.key = claim_request.key;
    return true;
end
$$;
comment on function bds_service.claim_request(text, text, uuid) is
    'Claims the key of a request for the import that it will become; false if another request has it';

create or replace function bds_service.note_request(company text, import_id uuid, request bytea, is_async boolean)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.enter_company(company);
    perform bds_feed.require_claim(company, import_id);
    update bds.import_keys k set request = note_request.request, is_async = note_request.is_async
    where k.company_id = company and k.import_id = note_request.import_id;
    perform bds_impl.require_resident(company);
end
$$;
comment on function bds_service.note_request(text, uuid, bytea, boolean) is
    'Notes what a request is, as its body has arrived, and whether it is answered now';

create or replace function bds_service.end_request(
    company text, import_id uuid, request bytea default null, problem json default null
)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.enter_company(company);
    -- waits for an import that is written although its session was lost
    perform from bds.import_keys k where k.company_id = company and k.import_id = end_request.import_id for update;
    if exists (
        select from bds.imports i where i.company_id = company and i.id = end_request.import_id and i.position is not null
    ) then
        return;
    elsif problem is null or exists (  -- or its import was taken for dead: it has not ended in this transaction
        select from bds.imports i
        where i.company_id = company and i.id = end_request.import_id and i.finished_at < transaction_timestamp()
    ) then
        delete from bds.import_keys k where k.company_id = company and k.import_id = end_request.import_id;
    else
        update bds.import_keys k set request = end_request.request, problem = end_request.problem
        where k.company_id = company and k.import_id = end_request.import_id;
    end if;
end
$$;
comment on function bds_service.end_request(text, uuid, bytea, json) is
    'Ends a request that has failed: notes the problem that was its answer; without one its key is free. No effect if its import '
    'has run: then the report is the answer';

create or replace function bds_service.answer_request(company text, key text, request bytea)
    returns json
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    claim  bds.import_keys;
    import bds.imports;
begin
    perform bds_feed.enter_company(company);
    perform bds_impl.require_resident(company);
    select * into claim from bds.import_keys k where k.company_id = company and k.key = answer_request.key;
    if not found or bds_feed.is_free(claim) then
        return json_object('state': 'free');
    end if;
    select * into import from bds.imports i where i.company_id = company and i.id = claim.import_id;
    return json_object(
        'state': case
            when claim.request is null then 'receiving'
            when claim.request <> request then 'other'
            when claim.problem is not null or import.position is not null then 'ended'
            else 'running'
        end,
        'isAsync': claim.is_async,
        'problem': claim.problem,
        'report': case when import.id is not null then bds_feed.report(import, true) end
    );
end
$$;
comment on function bds_service.answer_request(text, text, bytea) is
    'The answer to another request with a key that was claimed: {state, isAsync, problem, report}, with one of the states free, '
    'receiving, other (it belongs to another request), running and ended';

create function bds_feed.forget_keys()
    returns bigint
    language plpgsql
as $$
declare
    forgotten bigint;
begin
    delete from bds.import_keys k using bds.residents r
    where k.claimed_at < now() - interval '1 day' and r.company_id = k.company_id and bds_feed.is_free(k);
    get diagnostics forgotten = row_count;
    return forgotten;
end
$$;
comment on function bds_feed.forget_keys() is 'Deletes the keys of requests that are a day old; returns their number';
