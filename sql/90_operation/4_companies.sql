-- The whole of a company: its tables, which are those of bds.tables and of the catalog, and the end of a company.

create function bds_operation.company_tables(
    out n bigint, out name text, out table_name regclass, out condition text, out columns text[],
    out stands text, out is_dumped boolean,
    out is_moved boolean, out is_awaited boolean, out kept text
)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with recursive tables as (
        -- a table that the list lacks is taken along like the others
        select c.oid, n.nspname, c.relname, coalesce(t.company_column, 'company_id') as company_column,
            coalesce(t.stands, 'company') as stands,
            coalesce(t.is_dumped, true) as is_dumped, coalesce(t.is_moved, true) as is_moved,
            coalesce(t.is_awaited, false) as is_awaited, t.kept
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        cross join lateral (
            select c.oid in (select m from bds_change_log.detached_months() m) as is_detached,
                n.nspname = 'data' or exists (select from bds.entities e where e.table_name = c.oid) as is_business
        ) k
        left join bds.tables t on t.name = case
            when k.is_business then 'data.*'
            when n.nspname = 'staging' then 'staging.*'
            when k.is_detached then 'bds.change_log_*'
            else n.nspname || '.' || c.relname
        end
        join pg_attribute a on a.attrelid = c.oid and a.attname = coalesce(t.company_column, 'company_id') and not a.attisdropped
        where c.relkind in ('r', 'p') and (not c.relispartition or k.is_detached)
            and c.oid not in (select m.name from bds_change_log.tables_of_months() m where not m.is_month)
            and (k.is_business or n.nspname in ('bds', 'staging'))
            and (t.name is null or t.company_column is not null)
    ),
    -- each way along foreign keys, from a table to those that refer to it
    ways (oid, way) as (
        select t.oid, array[t.oid] from tables t
        union all
        select k.conrelid, w.way || k.conrelid
        from ways w
        join pg_constraint k on k.confrelid = w.oid and k.contype = 'f' and k.conrelid <> all (w.way)
        join tables t on t.oid = k.conrelid
    )
    select row_number() over (
            order by t.nspname = 'bds' desc, (select max(cardinality(w.way)) from ways w where w.oid = t.oid), t.nspname, t.relname
        ),
        t.nspname || '.' || t.relname, t.oid,
        -- keys of this company alone
        case when t.company_column = 'companies' then 'companies <@ array[$1]' else format('%I = $1', t.company_column) end,
        columns.names, t.stands, t.is_dumped, t.is_moved, t.is_awaited, t.kept
    from tables t
    cross join lateral (
        -- not those that the target computes, or the numbers of imports, which name tables of their server
        select array_agg(a.attname::text order by a.attnum) as names
        from pg_attribute a
        where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
            and not (t.oid = 'bds.imports'::regclass and a.attidentity <> '')
    ) columns
    order by 1;
$$;
comment on function bds_operation.company_tables() is
    'Every table with rows of companies, in the order of n each after those that it refers to, and all of bds before all others: '
    'the condition of a company''s rows ($1: its id), the columns that a dump has, and what bds.tables says of it; of a table '
    'that is not in that list kept is null';

create function bds_operation.pass_over_triggers()
    returns boolean
    language plpgsql
as $$
begin
    perform set_config('session_replication_role', 'replica', true);
    return true;
exception when insufficient_privilege then
    return false;
end
$$;
comment on function bds_operation.pass_over_triggers() is
    'Lets this transaction write without triggers and checks of foreign keys, if bds_owner may (grant set on parameter '
    'session_replication_role)';

create function bds_operation.require_silence(work text)
    returns void
    language plpgsql
as $$
begin
    if not bds_operation.pass_over_triggers() then
        raise exception using
            errcode = '42501',
            message = format('bds_owner may not set session_replication_role, without which %s would be logged', work),
            hint = 'as a superuser: grant set on parameter session_replication_role to bds_owner';
    end if;
end
$$;
comment on function bds_operation.require_silence(text) is
    'Lets this transaction write without triggers and checks of foreign keys, as work such as "a restore" needs; raises 42501';

create function bds_operation.require_no_import(company text)
    returns void
    language plpgsql
    stable
as $$
declare
    imports text := (select string_agg(i.id::text, ', ') from bds.imports i where i.company_id = company and i.finished_at is null);
begin
    if imports is not null then
        raise exception using
            errcode = 'BD004',
            message = format('company %L has imports under way: %s', company, imports),
            hint = format(
                'cancel each: begin; select bds.set_context(%1$L), bds.import_cancel(%1$L, ''<id>''); commit; '
                'if an import has no process any more: select bds.reap_imports()', company
            );
    end if;
end
$$;
comment on function bds_operation.require_no_import(text) is
    'Raises BD004 while an import of a company is under way; call it with the company''s turn, without which further ones begin';

create function bds_operation.require_no_move(company text)
    returns void
    language plpgsql
    stable
as $$
begin
    if exists (select from bds.directory d where d.company_id = company and d.phase is not null) then
        raise exception using
            errcode = 'BD004', message = format('company %L is being moved', company),
            hint = format('first: bds company move %1$s --resume, or bds company move %1$s --abort', company);
    end if;
end
$$;
comment on function bds_operation.require_no_move(text) is 'At home: raises BD004 while a company is being moved';

create function bds_operation.close_company(company text)
    returns void
    language plpgsql
as $$
begin
    if not exists (select 1 from bds.companies c where c.id = company) then
        return;  -- there may be rows of a company that is no longer known
    end if;
    -- the turn first: another writer may have it for long, and everybody else can go on meanwhile
    if exists (select from bds.residents r where r.company_id = company) then  -- else it is at another place
        perform bds.lock_company(company);
    end if;
    perform 1 from bds.companies c where c.id = company for update;
    perform bds_operation.require_no_move(company);  -- one that has begun since; none does from here on
    -- Rows that others are inserting cannot be seen yet.  A session that inserts rows of hooks holds one of these locks, see
    -- 60_webhooks/6_queue.
    perform from (select 1 from bds.hooks h where h.company_id = company order by h.id for update) locked;
    perform 1 from bds.hook_positions p where p.company_id = company for update;
    perform from (select 1 from bds.hook_states s where s.company_id = company order by s.hook_id for update) locked;
    perform bds_operation.require_no_import(company);
    perform pg_notify('bds_hooks', company);
    perform pg_notify('bds_keys', company);  -- keys of this company alone are deleted with it, those of its tenant lose it
    perform bds_audit.note_deletion(company);
end
$$;
comment on function bds_operation.close_company(text) is
    'Takes a company''s turn and keeps everybody from adding to it; processes forget its keys; notes the deletion in the audit';

create function bds_operation.revoke_access(company text)
    returns void
    language sql
as $$
    update bds.api_keys k set companies = array_remove(k.companies, company)
    where company = any (k.companies) and not k.companies <@ array[company];
    select from (select 1 from bds.users u where company = any (u.companies) order by u.id for no key update) locked;
    delete from bds.users u where u.companies <@ array[company] and not u.is_administrator;
    update bds.users u set companies = array_remove(u.companies, company) where company = any (u.companies);
$$;
comment on function bds_operation.revoke_access(text) is
    'Removes a company from keys and users, and users of it alone unless they are administrators';

create function bds_operation.seal(secret uuid, company text, at bigint)
    returns text
    language sql
    immutable
    strict
    return encode(sha256(uuid_send(secret) || sha256(uuid_send(secret) || convert_to(at || ' ' || company, 'UTF8'))), 'hex');
comment on function bds_operation.seal(uuid, text, bigint) is
    'What only home and a place can compute: that an administrator has deleted a company at a time, in seconds';

create function bds_operation.require_deletion(company text)
    returns void
    language plpgsql
as $$
declare
    seconds  constant bigint := extract(epoch from clock_timestamp());
    released constant text[] := string_to_array(current_setting('bds.release', true), ' ');
    entry    bds.directory;
begin
    if (select s.place = 'home' from bds.settings s) then
        perform bds_accounts.require_administrator('delete companies');
        select d.* into entry from bds.directory d where d.company_id = company for update;
        perform bds_operation.require_no_move(company);
        perform set_config('bds.release', seconds || ' ' || bds_operation.seal(p.secret, company, seconds), true)
        from bds.places p where p.name = entry.place and p.secret is not null;
    elsif not bds.is_operator() and not coalesce(
        released[2] = (select bds_operation.seal(p.secret, company, released[1]::bigint) from bds.places p where p.name = 'home')
            and abs(released[1]::bigint - seconds) < 600,
        false
    ) then
        raise exception using errcode = 'BD001', message = 'only the operator deletes companies here, and administrators at home';
    end if;
end
$$;
comment on function bds_operation.require_deletion(text) is
    'Raises BD001 unless the caller may delete a company: the operator, at home an administrator, at another place the service '
    'with what home has put into bds.release for an administrator; BD004 if it is being moved';

create function bds_operation.delete_rows(table_name regclass, condition text, company text)
    returns bigint
    language plpgsql
as $$
declare
    rows bigint;
begin
    execute format('delete from %s where %s', table_name, condition) using company;
    get diagnostics rows = row_count;
    return rows;
exception when insufficient_privilege then
    raise exception using
        errcode = '42501',
        message = format('bds_owner may not delete the rows that %s has in %s', company, table_name),
        hint = (
            select format('grant usage on schema %I to bds_owner; ', n.nspname)
                || format('grant select, delete on %s to bds_owner', table_name)
            from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where c.oid = table_name
        );
end
$$;
comment on function bds_operation.delete_rows(regclass, text, text) is
    'Deletes the rows of a table that meet a condition ($1: the company); returns their number. Raises 42501 with the grant that '
    'is missing';

create function bds_operation.is_referred_to(table_name regclass)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_constraint k
        where k.contype = 'f' and k.confrelid = is_referred_to.table_name and k.conparentid = 0
            and k.conrelid not in (select t.table_name from bds_operation.company_tables() t)
    );
comment on function bds_operation.is_referred_to(regclass) is
    'Whether a table that is not deleted with a company has a foreign key to this one: its rows go, are changed or keep what they '
    'refer to, as the key says, which triggers do';

create or replace function bds.delete_company(company text, out table_name text, out rows bigint)
    returns setof record
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    context   text := current_setting('bds.company', true);
    triggers  text := current_setting('session_replication_role');
    this      record;
    is_silent boolean;
    is_known  boolean := exists (select 1 from bds.companies c where c.id = company);
    was_known boolean := is_known;  -- triggers refuse rows of a company that is not known
begin
    perform bds_operation.require_deletion(company);
    perform set_config('bds.company', coalesce(company, ''), true);
    perform bds_operation.close_company(company);
    is_silent := bds_operation.pass_over_triggers();
    for this in select * from bds_operation.company_tables() t order by t.n desc loop
        if is_silent and was_known then
            perform set_config(
                'session_replication_role',
                case when bds_operation.is_referred_to(this.table_name) then triggers else 'replica' end, true
            );
        end if;
        rows := bds_operation.delete_rows(this.table_name, this.condition, company);
        if rows > 0 then
            is_known := true;
            table_name := this.name;
            return next;
        end if;
    end loop;
    if is_silent then
        perform set_config('session_replication_role', triggers, true);
    end if;
    if was_known then
        perform bds_operation.revoke_access(company);  -- at last: logins wait for these rows
    end if;
    -- its records go with it, and those of sessions for whose rows this one has waited
    delete from bds.audit_pending p where p.chain = company;
    delete from bds.company_audit a where a.company_id = company;
    perform set_config('bds.company', coalesce(context, ''), true);
    if not is_known then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
end
$$;
comment on function bds.delete_company(text) is
    'Deletes everything of a company, its change log too, and rows of a company that is no longer known; returns the number of '
    'rows of each table. Raises BD004 while an import is under way. Not logged: nothing is left to log it in';
