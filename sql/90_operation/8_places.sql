-- Places: the directory at home, and what a move calls at the place that a company leaves and at the one where it arrives.  Rows
-- are carried by PostgreSQL's logical replication between the two calls; app/places/move.py has the steps.  Only the owner may call
-- them.

create function bds_operation.become_place(name text)
    returns uuid
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    update bds.settings set place = become_place.name;
    update bds.places p set secret = gen_random_uuid() where p.name = 'home' returning p.secret;
$$;
comment on function bds_operation.become_place(text) is
    'At a place: notes its name; returns the secret that it shares with home, see bds_operation.require_deletion';

create function bds_operation.add_place(name text, url text, secret uuid)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    insert into bds.places (name, url, secret) values (name, url, secret);
    select pg_notify('bds_places', '');
$$;
comment on function bds_operation.add_place(text, text, uuid) is
    'At home: notes a place, with what bds_operation.become_place has returned there';

create function bds_operation.note_place(
    company text, place text, source text default null, target text default null, phase text default null
)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into bds.directory as d (company_id, place, source, target, phase) values (company, place, source, target, phase)
    on conflict (company_id) do update
    set place = excluded.place, source = excluded.source, target = excluded.target, phase = excluded.phase,
        changed_at = clock_timestamp();
    perform pg_notify('bds_places', company);
end
$$;
comment on function bds_operation.note_place(text, text, text, text, text) is
    'At home: notes where a company lives, and its move; processes of the service hear of it';

create function bds_operation.moved_tables(out name text, out table_name regclass, out columns text[])
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select t.name, t.table_name, t.columns
    from bds_operation.company_tables() t
    where t.is_moved
    order by t.n;
$$;
comment on function bds_operation.moved_tables() is
    'The tables whose rows are replicated when a company moves: companies and keys are known at home, the clock arrives last';

create function bds_operation.published_tables(out table_name regclass, out columns text[])
    returns setof record
    language sql
    stable
as $$
    select t.table_name, case when exists (
        -- numbers are the target's own; generated columns are computed there
        select from pg_attribute a
        where a.attrelid = t.table_name and a.attnum > 0 and not a.attisdropped and a.attname <> all (t.columns)
    ) then t.columns end
    from bds_operation.moved_tables() t;
$$;
comment on function bds_operation.published_tables() is
    'What is replicated when a company moves; columns: of a table of which others are not, else null';

create function bds_operation.publish(company text, publication name)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    odd text;
begin
    select string_agg(c.oid::regclass::text, ', ') into odd
    from bds_operation.moved_tables() t
    join pg_class c on c.oid = t.table_name or c.oid in (select p.relid from pg_partition_tree(t.table_name) p where p.isleaf)
    where c.relkind = 'r' and c.relreplident not in ('f', 'i') and not exists (
        select from pg_index i
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey::smallint[]) and a.attname = 'company_id'
        where i.indrelid = c.oid and i.indisprimary
    );
    if odd is not null then
        raise exception using
            errcode = 'BD004', message = format('%s has no primary key with company_id, by which replication finds its rows', odd),
            hint = format('alter table %s replica identity full', split_part(odd, ', ', 1));
    end if;
    execute format(
        'create publication %I for table %s with (publish_via_partition_root = true)', publication,
        (
            select string_agg(
                format(
                    '%s%s where (company_id = %L)', t.table_name,
                    (
                        select ' (' || string_agg(quote_ident(c), ', ' order by n) || ')'
                        from unnest(t.columns) with ordinality u (c, n)
                    ),
                    company
                ),
                ', '
            )
            from bds_operation.published_tables() t
        )
    );
end
$$;
comment on function bds_operation.publish(text, name) is
    'At the source: a publication of the company''s rows. Raises BD004 for a table whose rows replication could not find';

create function bds_operation.is_published(publication name)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select not exists (
        select from bds_operation.published_tables() t
        where not exists (
            select from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
            where p.pubname = publication and r.prrelid = t.table_name and (
                select array_agg(a.attname::text order by a.attname)
                from pg_attribute a
                where a.attrelid = t.table_name and a.attnum = any (r.prattrs)
            ) is not distinct from (select array_agg(c order by c) from unnest(t.columns) c)
        )
    );
$$;
comment on function bds_operation.is_published(name) is
    'At the source: whether a publication has all tables and columns that move now; one that was made before a table was '
    'registered has not';

create function bds_operation.await_company(header jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := header ->> 'company';
begin
    if exists (select from bds.residents r where r.company_id = company) then
        raise exception using errcode = 'BD004', message = format('company %L lives here already', company);
    end if;
    perform bds_operation.require_shape(header);
    perform bds_operation.clear_company(company);
    insert into bds.tenants (id) select header ->> 'tenant' where header ->> 'tenant' is not null on conflict do nothing;
    insert into bds.companies as c (id, tenant_id, log_retention)
    values (company, header ->> 'tenant', (header ->> 'log_retention')::interval)
    on conflict (id) do update set log_retention = excluded.log_retention;  -- months that it keeps do not expire here meanwhile
    perform bds_operation.make_months(header);
end
$$;
comment on function bds_operation.await_company(jsonb) is
    'At the target: makes room for a company that is about to be replicated, with the header of a dump; rows of an earlier try '
    'are deleted';

create function bds_operation.clear_company(company text, most bigint default null)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    record;
    done    bigint;
    deleted bigint := 0;
begin
    if exists (select from bds.residents r where r.company_id = company) then
        raise exception using errcode = 'BD004', message = format('company %L lives here', company);
    end if;
    perform bds_operation.require_silence('a move');
    for this in
        select * from bds_operation.company_tables() t
        -- home knows every company
        where t.stands = 'company' or t.name = 'bds.companies' and (select s.place <> 'home' from bds.settings s)
        order by t.n desc
    loop
        exit when deleted >= most;
        -- a row of another partition with the same ctid is deleted earlier, which is as well
        execute format(
            'delete from %1$s where %2$s and ctid = any (array(select ctid from %1$s where %2$s limit $2))',
            this.table_name, this.condition
        )
        using company, most - deleted;
        get diagnostics done = row_count;
        deleted := deleted + done;
    end loop;
    return deleted;
end
$$;
comment on function bds_operation.clear_company(text, bigint) is
    'Deletes the rows of a company that does not live here, about so many at most (null: all), without a trace in the log: they '
    'are at another place; returns their number. Raises BD004 if it lives here';

create function bds_operation.depart(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    now_at timestamptz;
begin
    if exists (select from bds.residents r where r.company_id = company) then  -- else an earlier try has left
        perform set_config('bds.company', company, true);
        perform bds.lock_company(company);
        perform bds_operation.require_no_import(company);
        -- the target knows nothing of a promotion here after which the company was not written
        perform bds_change_log.begin_generation(company, c.last_id)
        from bds.clocks c
        where c.company_id = company and c.timeline <> bds_change_log.timeline();
        now_at := clock_timestamp();
        update bds.clocks c set departed_at = now_at, transaction_id = null where c.company_id = company;
    end if;
end
$$;
comment on function bds_operation.depart(text) is
    'At the source: from its commit on the company takes no writes here. Waits for the turn; raises BD004 while an import is '
    'under way';

create function bds_operation.take_back(company text, last_id bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- Waits for a writer, and finds what it has written.  Hooks need no change to be matched and sent.
    delete from bds.clocks c
    where c.company_id = company and c.last_id = take_back.last_id
        and not exists (select from bds.hook_positions p where p.company_id = company);
    return not exists (select from bds.clocks c where c.company_id = company);
end
$$;
comment on function bds_operation.take_back(text, bigint) is
    'At the target of a move that is given up: the company no longer lives here; false if it was written since it arrived, or has '
    'hooks that may have been sent. last_id: of its clock at the source';

create function bds_operation.stay(company text)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    update bds.clocks c set departed_at = null where c.company_id = company;
    select pg_notify('bds_changes', company), pg_notify('bds_hooks', company);
$$;
comment on function bds_operation.stay(text) is 'At the source of a move that was given up: the company takes writes again';

create function bds_operation.writers_of_others()
    returns text[]
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
    from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.mode in ('RowShareLock', 'RowExclusiveLock')
        and l.pid is distinct from pg_backend_pid()
        and l.relation in (select t.name::regclass from bds.tables t where t.is_awaited);
$$;
comment on function bds_operation.writers_of_others() is
    'Transactions that have written what needs no turn, or have locked rows to write it: hooks, deliveries, mappers; '
    'app/database/servers/place.py tells who waits for them';

create function bds_operation.arrive(header jsonb, clock jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := header ->> 'company';
    odd     bigint;
begin
    if exists (select 1 from bds.clocks c where c.company_id = company) then
        return;  -- by an earlier try
    end if;
    select count(*) into odd from bds.change_log l where l.company_id = company and l.id > (clock ->> 'last_id')::bigint;
    if odd > 0 or not exists (select 1 from bds.change_log l where l.company_id = company and l.id = (clock ->> 'last_id')::bigint)
        and (clock ->> 'last_id')::bigint > 0 and exists (select 1 from bds.change_log l where l.company_id = company)
    then
        raise exception using
            errcode = 'BD004',
            message = format('the log of company %L did not arrive up to change %s', company, clock ->> 'last_id');
    end if;
    perform bds_operation.pass_over_triggers();
    insert into bds.clocks
    select *
    from jsonb_populate_record(
        null::bds.clocks,
        clock || '{"departed_at": null, "transaction_id": null}' || jsonb_build_object('timeline', bds_change_log.timeline())
    );
    update bds.companies c
    set created_at = (header ->> 'created_at')::timestamptz, log_retention = (header ->> 'log_retention')::interval
    where c.id = company and header ? 'created_at';
    perform bds_operation.finish_restore(header, true, true);
    perform pg_notify('bds_changes', company);
end
$$;
comment on function bds_operation.arrive(jsonb, jsonb) is
    'At the target: from its commit on the company lives here, with the clock that it had at the source';
