-- Reading the audit, and what notes itself.

create or replace function bds_service.audit(company text, before timestamptz, wanted bigint)
    returns table (
        company_id text, id bigint, at timestamptz, actor text, db_user text, action text, object text, detail jsonb
    )
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    is_home constant boolean := (select s.place = 'home' from bds.settings s);
begin
    if is_home then
        perform bds_accounts.require_administrator('read the audit of administration');
        if audit.company <> '' and not exists (select from bds.companies c where c.id = audit.company)
            and not exists (select from bds.server_audit s where s.object = 'company ' || audit.company)
        then
            raise exception using errcode = 'BD002', message = format('no such company: %L', audit.company);
        end if;
    else
        perform bds.require_company(audit.company);
    end if;
    return query
        (
            select '', s.id, s.at, s.actor, s.db_user, s.action, s.object, s.detail
            from bds.server_audit s
            where is_home and (s.concerns is null or audit.company = '' or audit.company = any (s.concerns))
                and (s.at < audit.before or audit.before is null)
            order by s.at desc
            limit wanted
        )
        union all
        (
            select c.company_id, c.id, c.at, c.actor, c.db_user, c.action, c.object, c.detail
            from bds.company_audit c
            where c.company_id = audit.company and (c.at < audit.before or audit.before is null)
            order by c.at desc
            limit wanted
        )
        order by 3 desc, 1
        limit wanted;
end
$$;
comment on function bds_service.audit(text, timestamptz, bigint) is
    'The latest records of bds.audit that are about a company (empty: all of the server), before a time (null: now), as many as '
    'wanted: its own where it lives, and at home those of the server. At home for administrators, else for the company of the '
    'session. Raises BD002 for a company that never was';

create function bds_audit.told_generation()
    returns int
    language sql
    stable
    return nullif(current_setting('bds.generation', true), '')::int;
comment on function bds_audit.told_generation() is
    'What another server has told of the last generation of the company that is created or deleted, null if none has';

create function bds_audit.note_deletion(company text)
    returns void
    language sql
as $$
    select bds_audit.note('', 'delete', 'key ' || k.id, '{}', array[company])
    from bds.api_keys k where k.companies <@ array[company];
    select bds_audit.note(
        '', 'delete', 'company ' || company,
        (
            select jsonb_build_object('createdAt', c.created_at, 'generation', coalesce(
                (select cardinality(k.commons) + 1 from bds.clocks k where k.company_id = company),
                bds_audit.told_generation()
            ))
            from bds.companies c where c.id = company
        ), array[company]
    );
$$;
comment on function bds_audit.note_deletion(text) is
    'Notes that a company is deleted, with its keys: triggers may not see it; when it was created, and its generation, which of '
    'one that lived elsewhere has to be told';

create function bds_audit.deleted(company text, created_at timestamptz, out generation int, out is_another boolean)
    language sql
    stable
as $$
    -- every company had at least one
    select max(coalesce((a.detail ->> 'generation')::int, 1)),
        coalesce(bool_or((a.detail ->> 'createdAt')::timestamptz <> created_at), false)
    from bds.audit a
    where a.company_id = '' and a.object = 'company ' || company and a.action = 'delete';
$$;
comment on function bds_audit.deleted(text, timestamptz) is
    'The highest generation that a company of this name had here when it was deleted, null if none was; and whether one of them '
    'was another company, which was not created at that time';

create or replace function bds_service.last_generation(company text)
    returns int
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(greatest(d.generation, (select cardinality(k.commons) + 1 from bds.clocks k where k.company_id = company)), 0)
    from bds_audit.deleted(company, null) d;
$$;
comment on function bds_service.last_generation(text) is
    'The highest generation that a company of this name has here, or had when it was deleted; 0 if there was none';

create function bds_audit.note_dump(company text)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_audit.note('', 'dump', 'company ' || c.id, '{}', array[c.id]) from bds.companies c where c.id = company;
$$;
comment on function bds_audit.note_dump(text) is 'At home: notes that a company is dumped; the dump itself writes nothing';

create function bds_audit.note_restore(company text, dumped_at text, with_hooks boolean)
    returns void
    language sql
as $$
    select bds_audit.note(
        '', 'restore', 'company ' || company,
        jsonb_build_object(
            'dumpedAt', dumped_at, 'hooks', with_hooks,
            'keys', (select coalesce(jsonb_agg(k.id), '[]') from bds.api_keys k where company = any (k.companies))
        ), array[company]
    );
$$;
comment on function bds_audit.note_restore(text, text, boolean) is
    'Notes that a company was restored: of what time the dump is, whether hooks stay enabled, the keys that it brought along';
