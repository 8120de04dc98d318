-- Compares rows with the change log, to find writes that no trigger saw: under session_replication_role = replica, with a disabled
-- trigger, by logical replication, by a restore.
--
-- A record keeps a hash of the row after the change.  bds.column_history has the columns that the row had then.

create function bds_change_log.past_hash(this bds.entities, at timestamptz)
    returns text
    language sql
    stable
as $$
        select format(
            'hash_record_extended(row(%s), 0)',
            string_agg(
                case
                    when a.attnum is null then 'null::text'  -- dropped: bds.drop_column has emptied it
                    -- of a type that is gone the column may have its values under another name
                    when format_type(a.atttypid, a.atttypmod) = h.type or to_regtype(h.type) is null then format('r.%I', a.attname)
                    else bds_impl.fill(
                        'case when pg_input_is_valid(r.{column:I}::text, {type:L}) then r.{column:I}::text::{type} end',
                        'column', a.attname, 'type', h.type
                    )
                end,
                ', ' order by h.ordinal
            )
        )
        from bds.column_history h
        left join pg_attribute a on a.attrelid = this.table_name and a.attnum = h.ordinal and not a.attisdropped
        where h.entity = this.name and h.column_name <> 'company_id' and h.since <= at and at < h.until;
$$;
comment on function bds_change_log.past_hash(bds.entities, timestamptz) is
    'The expression that was logged as row_hash of a row r at a time, over the current columns';

create function bds_change_log.comparable_since(this bds.entities)
    returns timestamptz
    language sql
    stable
as $$
    select coalesce(max(h.until), '-infinity')
    from bds.column_history h
    join pg_attribute a on a.attrelid = this.table_name and a.attnum = h.ordinal and not a.attisdropped
    join pg_type t on t.oid = a.atttypid and t.typnamespace = 'pg_catalog'::regnamespace
    where h.entity = this.name and to_regtype(h.type) is null;
$$;
comment on function bds_change_log.comparable_since(bds.entities) is
    'The time from which on bds_change_log.past_hash gives the hashes that were logged: before, a column had a type that was '
    'dropped since, and has another one now';

create function bds_change_log.comparison(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$
        -- changes that retention has dropped are not missing
        with kept as materialized (
            select f.company_id, f.id as first_id, coalesce(l.created_at, 'infinity') as since
            from (select r.company_id, bds.first_change(r.company_id) as id from bds.residents r) f
            left join bds.change_log l on l.company_id = f.company_id and l.id = f.id
            where f.id > 1 and ($1 is null or f.company_id = $1)
        ),
        last as (
            select distinct on (l.company_id, l.row_id) l.company_id, l.row_id, l.operation, l.row_hash, l.created_at
            from bds.change_log l left join kept k on k.company_id = l.company_id
            where l.entity = {entity:L} and l.created_at >= {since:L} and ($1 is null or l.company_id = $1)
                -- after changes that are left from before a dropped month, there were others
                and (k.first_id is null or l.id >= k.first_id)
            order by l.company_id, l.row_id, l.id desc
        )
        select coalesce(r.company_id, l.company_id) as company_id, coalesce(r.id, l.row_id) as id, r.updated_at,
            case
                when c.id is null then case when r.id is not null then 'unknown company' end
                -- rows and changes of a company that is being copied, or has departed, are not complete
                when s.company_id is null then null
                when r.id is null then case when l.operation <> 'delete' then 'unlogged delete' end
                when l.operation = 'delete' or l.operation is null and r.updated_at >= {since:L}
                    and r.updated_at >= coalesce((select k.since from kept k where k.company_id = r.company_id), '-infinity')
                then 'unlogged insert'
                when l.created_at >= {comparable:L} and {differs} then 'unlogged update'
            end as kind,
            {hash} as row_hash
        from (select * from {table} t where $1 is null or t.company_id = $1) r
        full join last l on l.company_id = r.company_id and l.row_id = r.id
        left join bds.companies c on c.id = coalesce(r.company_id, l.company_id)
        left join bds.residents s on s.company_id = c.id
        $sql$,
        'entity', this.name,
        'table', this.table_name::text,
        'hash', bds_change_log.row_hash(this),
        'since', (select min(h.since)::text from bds.column_history h where h.entity = this.name),
        'comparable', bds_change_log.comparable_since(this)::text,
        'differs', (
            select string_agg('l.row_hash <> ' || p.hash, ' and ' order by p.since desc)
            from (
                select bds_change_log.past_hash(this, s.since) as hash, max(s.since) as since
                from (
                    select h.since from bds.column_history h where h.entity = this.name
                    union
                    select h.until  -- without the column
                    from bds.column_history h where h.entity = this.name and h.until < 'infinity'
                ) s
                group by 1
            ) p
        )
    );
$$;
comment on function bds_change_log.comparison(bds.entities) is
    'The query that compares rows of an entity, of the company $1 or of all, with their last records: company_id, id, updated_at, '
    'kind (of bds.log_findings; null: as it was logged), row_hash';

create function bds_change_log.compare_rows(this bds.entities, company text)
    returns void
    language plpgsql
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set extra_float_digits = 1
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
begin
    delete from bds.log_findings f where f.entity = this.name and (company is null or f.company_id = company);
    execute format(
        'insert into bds.log_findings (kind, company_id, entity, number, examples, found_at) '
        'select v.kind, v.company_id, %L, count(*), (array_agg(v.id order by v.id))[:10], clock_timestamp() '
        'from (%s) v where v.kind is not null group by v.kind, v.company_id',
        this.name, bds_change_log.comparison(this)
    )
    using company;
    if company is null then
        insert into bds.log_comparisons as c (entity, compared_at) values (this.name, clock_timestamp())
        on conflict on constraint log_comparisons_pkey do update set compared_at = excluded.compared_at;
    end if;
end
$$;
comment on function bds_change_log.compare_rows(bds.entities, text) is
    'Stores the differences between rows of an entity and their last records';

create function bds_change_log.compare_ids(company text)
    returns void
    language plpgsql
as $$
begin
    delete from bds.log_findings f where f.entity = '' and (company is null or f.company_id = company);
    insert into bds.log_findings (kind, company_id, entity, number, examples, found_at)
    with kept as materialized (
        select c.company_id, bds.first_change(c.company_id) as first_id, c.last_id
        from bds.residents c
        where company is null or c.company_id = company
    ),
    ids as (
        select l.company_id, l.id from bds.change_log l join kept k on k.company_id = l.company_id and l.id >= k.first_id
        union all  -- the ids before the first and after the last one
        select k.company_id, unnest(array[k.first_id - 1, k.last_id + 1]) from kept k
    ),
    steps as (
        select i.company_id, i.id, lag(i.id) over (partition by i.company_id order by i.id) as previous from ids i
    )
    select 'missing record', s.company_id, '', sum(abs(s.id - s.previous - 1)), (array_agg(s.previous + 1 order by s.id))[:10],
        clock_timestamp()
    from steps s
    where s.id <> s.previous + 1
    group by s.company_id;
end
$$;
comment on function bds_change_log.compare_ids(text) is 'Stores the ids that are missing in the log';

create function bds_change_log.record_rows(this bds.entities, company text)
    returns void
    language plpgsql
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set extra_float_digits = 1
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
begin
    perform bds.lock_company(company);
    execute bds_impl.fill(
        $sql$
        with found as materialized (
            select v.*,
                case v.kind when 'unlogged insert' then 'create' when 'unlogged update' then 'update' else 'delete' end as operation
            from ({comparison}) v
            where v.kind like 'unlogged %'
        ),
        clock as (
            select a.base, a.at
            from (select count(*) as changes from found having count(*) > 0) f
            cross join lateral bds_change_log.advance($1, {entity:L}, f.changes, null, null) a
        )
        insert into bds.change_log (
            company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id, last_updated_at,
            row_hash, old
        )
        select $1, c.base + row_number() over (order by f.id), {entity:L}, f.id, f.operation::bds.operation, c.at,
            pg_current_xact_id(), bds_impl.actor(), session_user,
            nullif(current_setting('bds.change_set', true), '')::uuid, case when f.operation = 'update' then f.updated_at end,
            case when f.operation <> 'delete' then f.row_hash end, case when f.operation <> 'create' then '{}'::jsonb end
        from found f cross join clock c
        $sql$,
        'entity', this.name, 'comparison', bds_change_log.comparison(this)
    )
    using company;
end
$$;
comment on function bds_change_log.record_rows(bds.entities, text) is
    'Writes a record, without old values, for each row of a company that differs from its last record';

create function bds_change_log.compare_entity(this bds.entities, company text, record boolean)
    returns void
    language plpgsql
as $$
#variable_conflict use_variable
declare
    other text;
begin
    perform bds_change_log.compare_rows(this, company);
    if record then
        for other in
            select distinct f.company_id from bds.log_findings f
            where f.entity = this.name and f.kind like 'unlogged %' and f.company_id = coalesce(company, f.company_id)
            order by 1
        loop
            perform bds_change_log.record_rows(this, other), bds_change_log.compare_rows(this, other);
        end loop;
    end if;
end
$$;
comment on function bds_change_log.compare_entity(bds.entities, text, boolean) is
    'Compares the rows of an entity with the log. record: also writes records for those that differ';

create or replace function bds.compare_log(company text default null, entity text default null, record boolean default false)
    returns setof bds.log_findings
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    this bds.entities;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator compares rows with the change log';
    elsif entity is not null and not exists (select from bds.entities e where e.name = entity) then
        raise exception using errcode = 'BD002', message = format('no such entity: %L', entity);
    elsif company is not null then
        perform bds.require_company(company);
    end if;
    for this in
        select e.* from bds.entities e
        where e.name = coalesce(entity, e.name)
            and (entity is not null or exists (select from pg_class c where c.oid = e.table_name))
        order by e.ordinal
    loop
        perform bds_change_log.refuse_altered(this) where not exists (select from pg_class c where c.oid = this.table_name);
        execute format('lock table %s in access share mode', this.table_name);  -- it stays as it is from here on
        if bds_change_log.is_altered(this) then
            if entity is not null then
                perform bds_change_log.refuse_altered(this);
            end if;
            raise warning using
                errcode = 'BD007',
                message = format('%s was altered and not registered again: its rows are not compared', this.table_name),
                hint = bds_registry.register_statement(this);
            continue;
        end if;
        begin
            perform bds_change_log.compare_entity(this, company, record);
        exception when others then
            if entity is not null then
                raise;
            end if;
            raise warning using
                errcode = sqlstate, table = this.table_name::text,
                message = format('%s is not compared with the change log: %s', this.name, sqlerrm);
        end;
    end loop;
    if entity is null then
        perform bds_change_log.compare_ids(company);
    end if;
    return query
        select f.* from bds.log_findings f
        where (company is null or f.company_id = company) and (entity is null or f.entity = entity)
        order by f.entity, f.company_id, f.kind;
end
$$;
comment on function bds.compare_log(text, text, boolean) is
    'Compares rows of a company (null: of all) and an entity (null: all, and the log''s ids) with the change log; stores and '
    'returns the differences. record: also writes a record for each row that differs, without old values, which are unknown. A '
    'table that was altered and not registered again raises BD007; without an entity, one that cannot be compared is left out, '
    'with a warning';
