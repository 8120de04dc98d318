-- Noting an act of administration.  A record is noted in bds.audit_pending and gets its id at the commit: so a long transaction
-- keeps no other administrator waiting, and the chains, which a session locks last, cause no deadlock.

create function bds_audit.caller()
    returns jsonb
    language sql
    stable
as $$
    select coalesce(case when char_length(c.text) <= 2000 and pg_input_is_valid(c.text, 'jsonb') then
        case when jsonb_path_match(
            c.text::jsonb, 'strict $.type() == "object" && !exists($.* ? (@.type() != "string" && @ != null))'
        ) then jsonb_build_object('caller', c.text::jsonb) end
    end, '{}')
    from (select coalesce(current_setting('bds.caller', true), '') as text) c;
$$;
comment on function bds_audit.caller() is
    'What the service tells of the HTTP request for which the session acts, as {"caller": {...}}; {} without one, and for what any '
    'session may have set but the service does not: anything else than an object of texts and nulls';

create function bds_audit.merged(first jsonb, second jsonb)
    returns jsonb
    language sql
    immutable
    return (
        select first || second || coalesce(
            jsonb_object_agg(k, (first -> k) || (second -> k)) filter (where first ? k and second ? k), '{}'
        )
        from unnest(array['old', 'new', 'hidden']) k
        having first -> 'caller' is not distinct from second -> 'caller'
            and not coalesce(first -> 'new' ?| array(select jsonb_object_keys(second -> 'old')), false)
            -- of either order only where no value is told twice
            and coalesce(bool_and((first -> k) || (second -> k) = (second -> k) || (first -> k)) filter (where k <> 'hidden'), true)
    );
comment on function bds_audit.merged(jsonb, jsonb) is
    'The details of two records about the same object as those of one; null if that would lose a value, or the order of two';

create function bds_audit.note(company text, action text, object text, detail jsonb, concerns text[] default null)
    returns void
    language plpgsql
as $$
declare
    -- of a company that lives elsewhere only the server can have a record
    is_here boolean := exists (select from bds.residents r where r.company_id = company);
    target  text := case when is_here then company else '' end;
    about   text[] := case when not is_here and company <> '' then array[company] else concerns end;
begin
    detail := detail || bds_audit.caller();
    -- A hook is made with its secret, an entity with its columns, a company with its place: one record, unless another act came
    -- between them.
    update bds.audit_pending p set detail = bds_audit.merged(p.detail, note.detail)
    where p.number = (select max(o.number) from bds.audit_pending o where o.chain = target and o.object = note.object)
        and note.action in ('create', 'delete', 'register', 'unregister')
        and not exists (select from bds.audit_pending o where o.number >= p.number and o.action <> note.action)
        and p.actor = bds_impl.actor() and p.concerns is not distinct from about
        and bds_audit.merged(p.detail, note.detail) is not null;
    if not found then
        insert into bds.audit_pending (chain, actor, action, object, detail, concerns)
        values (target, bds_impl.actor(), action, object, detail, about);
    end if;
end
$$;
comment on function bds_audit.note(text, text, text, jsonb, text[]) is
    'Notes an act in the chain of a company, or of the server (company is empty, or lives elsewhere); concerns: the companies that '
    'a record of the server is about, null: every one';

create function bds_audit.number(this bds.audit_pending)
    returns void
    language plpgsql
as $$
declare
    last  record;
    tried bigint;
begin
    -- A concurrent session may give the id first: the insert waits for its commit, and the next round takes the id after it.
    loop
        if this.chain = '' then
            select coalesce(max(a.id), 0) as id, max(a.at) as at into last from bds.server_audit a;
        else
            select coalesce(max(a.id), 0) as id, max(a.at) as at into last from bds.company_audit a where a.company_id = this.chain;
        end if;
        if last.id = tried then
            raise exception using
                errcode = 'XX001', message = format('no record can follow record %s of bds.audit, of %s', last.id, last.at);
        end if;
        tried := last.id;
        last.at := greatest(clock_timestamp(), last.at + interval '1 microsecond');
        if this.chain = '' then
            insert into bds.server_audit (id, at, actor, db_user, action, object, detail, concerns)
            values (last.id + 1, last.at, this.actor, this.db_user, this.action, this.object, this.detail, this.concerns)
            on conflict do nothing;
        else
            insert into bds.company_audit (company_id, id, at, actor, db_user, action, object, detail)
            values (this.chain, last.id + 1, last.at, this.actor, this.db_user, this.action, this.object, this.detail)
            on conflict do nothing;
        end if;
        exit when found;
    end loop;
    if this.chain <> '' then  -- with the lock of bds.company_audit, for which a move waits
        perform bds_impl.require_resident(this.chain);
    end if;
end
$$;
comment on function bds_audit.number(bds.audit_pending) is
    'Makes what is noted a record, with the next id of its chain. Raises BD002 if its company has moved away meanwhile';

create or replace function bds_log.number_audit()
    returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- every row that can be seen is of this transaction, and so was the deletion of a company
    update bds.audit_pending p set chain = '', concerns = array[p.chain]
    where p.chain <> '' and not exists (select from bds.companies c where c.id = p.chain);
    -- in this order, so that sessions with records in two chains cannot deadlock
    perform bds_audit.number(p) from (select * from bds.audit_pending o order by o.chain, o.number) p;
    delete from bds.audit_pending;
    return null;
end
$$;
comment on function bds_log.number_audit() is 'Constraint trigger of bds.audit_pending: at the commit gives records their ids';

create or replace view bds.audit as
select '' collate "C" as company_id, s.id, s.at, s.actor, s.db_user, s.action, s.object, s.detail, s.concerns
from bds.server_audit s
union all
select c.company_id, c.id, c.at, c.actor, c.db_user, c.action, c.object, c.detail, null from bds.company_audit c
union all
select p.chain, null, p.at, p.actor, p.db_user, p.action, p.object, p.detail, p.concerns from bds.audit_pending p;
comment on view bds.audit is
    'The audit of administration: who has changed keys, users, access, hooks, mappers, retention, places and registrations, and '
    'who has dumped, restored, deleted, moved, erased; changes of rows are in bds.changes';
comment on column bds.audit.company_id is
    'The company, for its hooks, mappers, logins, retention, erasures and expired changes; empty for all else, which stays here '
    'when a company leaves';
comment on column bds.audit.id is '1, 2, 3, ... within company_id, in the order of commits; null: of this transaction';
comment on column bds.audit.at is 'When it was committed';
comment on column bds.audit.actor is 'The actor named by bds.set_context or bds.actor, else the database user';
comment on column bds.audit.db_user is 'The database user that the session logged in as (session_user)';
comment on column bds.audit.action is
    'create, update, delete, revoke, rotate, register, unregister, move, dump, restore, erase, expire or rename';
comment on column bds.audit.object is 'What it was done to: its kind, and its id or name';
comment on column bds.audit.detail is
    'old and new: values before and after; hidden: secrets that changed, by name; caller: user or key, address and id of the HTTP '
    'request';
comment on column bds.audit.concerns is 'The companies that a record of the server is about; null: every one';
