-- A company as a dump: what `bds company dump` copies out and `bds company restore` copies in, which is every table of
-- bds_operation.company_tables.  Only the owner may call these functions.

create function bds_operation.company_shape()
    returns jsonb
    language sql
    stable
as $$
    select jsonb_object_agg(t.name, jsonb_build_object(
        'entity', (select e.name from bds.entities e where e.table_name = t.table_name),
        'columns', (
            select jsonb_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) order by a.attnum)
            from pg_attribute a where a.attrelid = t.table_name and a.attname = any (t.columns)
        )
    ))
    from bds_operation.company_tables() t
    where t.is_dumped;
$$;
comment on function bds_operation.company_shape() is
    'The tables of a dump with their entities, columns and types, which are the same where it is restored';

create function bds_operation.dump_header(company text)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    header jsonb;
begin
    select jsonb_build_object(
        'company', c.id, 'tenant', c.tenant_id, 'created_at', c.created_at, 'log_retention', c.log_retention,
        'at', bds_service.api_time(now()), 'tables', bds_operation.company_shape(),
        'names', bds_operation.past_names(),
        'history', (
            select jsonb_object_agg(h.entity, h.since)
            from (select c.entity, min(c.since) as since from bds.column_history c group by c.entity) h
        ),
        'parents', (select jsonb_object_agg(e.name, e.parent_since) from bds.entities e where e.parent_since is not null),
        'change_log', (
            select jsonb_agg(p.starts)
            from bds_change_log.partitions() p
            where exists (
                select from bds.change_log l
                where l.company_id = c.id and l.created_at >= p.starts and l.created_at < p.ends
            )
        ),
        'change_archive', (
            select jsonb_agg(distinct date_trunc('month', a.created_at, 'UTC')) from bds.change_archive a where a.company_id = c.id
        ),
        'left', (
            select coalesce(range_agg(m.ids), '{}')::text
            from bds_seals.months(c.id) m
            where not bds_shards.is_divided('bds.change_log')
                and pg_partition_root(to_regclass(format('bds.%I', m.parent || '_' || m.month)))
                    is distinct from to_regclass('bds.' || m.parent)
        )
    )
    into header
    from bds.companies c
    where c.id = company;
    if header is null then
        raise exception using errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
    return header;
end
$$;
comment on function bds_operation.dump_header(text) is
    'What a restore checks and makes first: company, tenant, tables, months of the log and of the archive, the changes of '
    'months that are gone or detached (left)';

create function bds_operation.dump_statements(company text, out name text, out statement text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select t.name, format(
        'copy (select %s from %s where %s) to stdout',
        (select string_agg(quote_ident(c), ', ' order by n) from unnest(t.columns) with ordinality u (c, n)),
        t.table_name, replace(t.condition, '$1', quote_literal(company))
    )
    from bds_operation.company_tables() t
    where t.is_dumped;
$$;
comment on function bds_operation.dump_statements(text) is
    'The COPY statements that read a company''s rows, in the order of a restore';

create function bds_operation.restore_statements(out name text, out statement text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select t.name, format(
        'copy %s (%s) from stdin', t.table_name,
        (select string_agg(quote_ident(c), ', ' order by n) from unnest(t.columns) with ordinality u (c, n))
    )
    from bds_operation.company_tables() t
    where t.is_dumped;
$$;
comment on function bds_operation.restore_statements() is 'The COPY statements that write the rows of a dump';

create function bds_operation.require_shape(header jsonb)
    returns void
    language plpgsql
    stable
as $$
declare
    odd text;
begin
    select coalesce(there.key, here.key) into odd
    from jsonb_each(header -> 'tables') there full join jsonb_each(bds_operation.company_shape()) here on here.key = there.key
    where here.value is distinct from there.value
    order by 1
    limit 1;
    if odd is not null then
        raise exception using
            errcode = 'BD005',
            message = format('table %s differs between the databases', odd),
            detail = format('there: %s; here: %s', header -> 'tables' -> odd, bds_operation.company_shape() -> odd),
            hint = 'restore into a database of the same version with the same entities';
    end if;
end
$$;
comment on function bds_operation.require_shape(jsonb) is
    'Raises BD005 unless the tables of companies are the same here as in a dump''s header';

create function bds_operation.make_months(header jsonb)
    returns void
    language plpgsql
as $$
declare
    this record;
begin
    for this in
        select p.parent, m.month::timestamptz as month
        from unnest(array['change_log', 'change_archive']) p (parent)
        cross join jsonb_array_elements_text(nullif(header -> p.parent, 'null')) m (month)
    loop
        perform bds_change_log.make_month(this.month, this.parent);
    end loop;
end
$$;
comment on function bds_operation.make_months(jsonb) is
    'Makes the months of the log and of the archive that a dump''s header names';

create function bds_operation.begin_restore(header jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := header ->> 'company';
    odd     text;
    this    record;
begin
    perform bds_operation.require_shape(header);
    if exists (select 1 from bds.companies c where c.id = company) then
        raise exception using
            errcode = 'BD004',
            message = format('company %L already exists', company),
            hint = format('delete it first: bds company delete %s --yes', company);
    elsif bds_impl.is_reserved(company) or exists (select from bds.entities e where e.name = company) then
        raise exception using
            errcode = 'BD005',
            message = format('company id %L is taken: it is the name of an entity or a word of the URLs', company);
    end if;
    perform bds_operation.require_silence('a restore');
    for this in select * from bds_operation.company_tables() loop
        execute format('select %L from %s where %s limit 1', this.name, this.table_name, this.condition) into odd using company;
        if odd is not null then
            raise exception using
                errcode = 'BD004',
                message = format('%s has rows of company %L, which does not exist', odd, company),
                hint = format('delete them first: select * from bds.delete_company(%L)', company);
        end if;
    end loop;
    insert into bds.tenants (id) select header ->> 'tenant' where header ->> 'tenant' is not null on conflict do nothing;
    perform bds_operation.make_months(header);
end
$$;
comment on function bds_operation.begin_restore(jsonb) is
    'Checks that a company can be restored here, makes its tenant and months, and lets this transaction write without triggers';

create function bds_operation.finish_restore(header jsonb, with_hooks boolean, is_moved boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    company text := header ->> 'company';
    lost    timestamptz;
begin
    perform bds_operation.rename_restored(header);
    -- there the rows may have been children for a shorter time
    update bds.entities e set parent_since = p.since::timestamptz
    from jsonb_each_text(nullif(header -> 'parents', 'null')) as p (name, since)
    where e.name = p.name and p.since::timestamptz > e.parent_since;
    if not is_moved then  -- the transaction is of another server, and readers may have seen other changes under these ids
        update bds.clocks k set departed_at = null where k.company_id = company;
        perform bds_change_log.begin_generation(company, case when d.is_another then 0 else k.last_id end, d.generation)
        from bds.clocks k
        cross join bds_audit.deleted(company, (header ->> 'created_at')::timestamptz) d
        where k.company_id = company;
        perform bds_audit.note_restore(company, header ->> 'at', with_hooks);
    end if;
    -- what the other server no longer kept, and what came before it, is not kept here; a month that begins anew has no change yet
    select max(k.month) into lost
    from bds.change_months k join bds.clocks c on c.company_id = k.company_id and k.first_id <= c.last_id
    where k.company_id = company and not exists (
        select 1 from bds.change_log l
        where l.company_id = company and l.id = k.first_id
            and l.created_at >= k.month and l.created_at < k.month + interval '1 month'
    );
    perform bds_seals.note_lost(company, (header ->> 'left')::int8multirange);
    perform bds_seals.note_months(company, lost, 'change_log', null);
    delete from bds.change_months m where m.company_id = company and m.month <= lost;
    perform bds_operation.advance_sequence(t.table_name, a.attname, t.condition, company)
    from bds_operation.company_tables() t
    join pg_attribute a on a.attrelid = t.table_name and a.attidentity <> '' and a.attname = any (t.columns)
    where t.is_dumped;
    if not with_hooks then
        perform bds_webhooks.cancel_queued(company, h.id) from bds.hooks h where h.company_id = company and h.deleted_at is null;
        update bds.hooks h set disabled = true where h.company_id = company;
    end if;
    perform pg_notify('bds_hooks', company);
end
$$;
comment on function bds_operation.finish_restore(jsonb, boolean, boolean) is
    'Fits a company that was restored, or has moved with its clock, to this server: clock, months and sequences; hooks are '
    'disabled unless they are wanted';

create function bds_operation.advance_sequence(table_name regclass, column_name name, condition text, company text)
    returns void
    language plpgsql
as $$
begin
    execute format(
        'select setval(%1$L, m.last) from ('
        -- a value follows the one that it gets
        'select max(%2$I) as last from %3$s '
        'where (%4$s) and %2$I < (select s.seqmax from pg_sequence s where s.seqrelid = %1$L::regclass)) m '
        -- a new sequence has a last value that it has not given yet
        'where m.last >= (select s.last_value from %1$s s)',
        pg_get_serial_sequence(table_name::text, column_name), column_name, table_name, condition
    )
    using company;
end
$$;
comment on function bds_operation.advance_sequence(regclass, name, text, text) is
    'Sets the sequence of an identity column to the company''s last value that another one can follow, unless it is beyond';
