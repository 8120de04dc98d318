-- What is wrong with registered tables, each problem with the statement that mends it; a part of bds.problems.

create function bds_operation.altered_tables()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'missing table', e.name, e.table_name::text, 'the table was dropped', format('select bds.unregister(%L)', e.name)
    from bds.entities e
    where not exists (select from pg_class c where c.oid = e.table_name)
    union all
    select 'altered table', e.name, e.table_name::text, string_agg(d.detail, '; ' order by d.ordinal), bds_registry.register_statement(e)
    from bds.entities e
    cross join lateral (
        select coalesce(h.ordinal, a.attnum) as ordinal,
            case
                when h.ordinal is null then format('column %I is not registered', a.attname)
                when a.attnum is null then format('column %I was dropped', h.column_name)
                when a.attname <> h.column_name then format('column %I was renamed to %I', h.column_name, a.attname)
                when a.type <> h.type then format('column %I was %s, and is %s', a.attname, h.type, a.type)
                when a.expression <> h.expression then
                    format('column %I was generated as %s, and is%s', a.attname, h.expression, coalesce(' as ' || nullif(a.expression, ''), ' not'))
                else (
                    select format('column %I %s', a.attname, nullif(c.changes, ''))
                    from bds.fields f
                    join bds_registry.fields_of(e.name, e.table_name) n on n.name = f.name
                    cross join lateral (
                        select concat_ws(
                            ', ',
                            case when n.required <> f.required then case when n.required then 'is not null now' else 'may be null now' end end,
                            case when n.is_unique <> f.is_unique then case when n.is_unique then 'is unique now' else 'is not unique now' end end,
                            case when n.has_default <> f.has_default then case when n.has_default then 'has a default now' else 'has no default now' end end,
                            case when n.reference is distinct from f.reference then coalesce('refers to ' || n.reference || ' now', 'no longer refers to ' || f.reference) end
                        )
                    ) c (changes)
                    where f.entity = e.name and f.column_name = a.attname and c.changes <> ''
                )
            end as detail
        from (select * from bds.column_history c where c.entity = e.name and c.until = 'infinity') h
        full join bds_registry.columns_of(e.table_name) a on a.attnum = h.ordinal
    ) d
    where d.detail is not null and exists (select from pg_class c where c.oid = e.table_name)
    group by e.*, e.name, e.table_name
    union all
    select 'unsuitable table', e.name, e.table_name::text, format('it is %s: rows can change unseen by its triggers', k.kind),
        case
            when c.relpersistence = 'u' then format('alter table %s set logged', e.table_name)
            when c.relispartition then format('alter table %s detach partition %s', i.inhparent::regclass, e.table_name)
            else format('alter table %s no inherit %s', i.inhrelid::regclass, i.inhparent::regclass)
        end
    from bds.entities e
    join pg_class c on c.oid = e.table_name
    cross join bds_registry.kind_of(e.table_name) k (kind)
    left join pg_inherits i on e.table_name in (i.inhrelid, i.inhparent)
    where k.kind is not null
    union all
    select 'closed schema', e.name, e.table_name::text, 'roles of the service may not use its schema', bds_registry.missing_rights(e.table_name)
    from bds.entities e
    where bds_registry.missing_rights(e.table_name) is not null;
$$;
comment on function bds_operation.altered_tables() is 'Problems of tables that are not as they were registered';

create function bds_operation.altered_columns()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'lost column', e.name, format('%s.%I', e.table_name, h.column_name),
        format('it was dropped by other means than bds.drop_column before %s: values that no record has are lost', h.until),
        format('update bds.column_history set is_lost = false where entity = %L and ordinal = %s', h.entity, h.ordinal)
    from bds.column_history h join bds.entities e on e.name = h.entity
    where h.is_lost
    union all
    select 'uncompared rows', e.name, format('%s.%I', e.table_name, n.column_name),
        format(
            'its type or expression was another one before %s, and nothing has compared the rows with the change log since',
            h.until::timestamptz(0)
        ),
        format('select * from bds.compare_log(entity => %L)', e.name)
    from bds.entities e
    join bds.column_history h on h.entity = e.name
    join bds.column_history n on n.entity = h.entity and n.ordinal = h.ordinal and n.since = h.until
    where (n.type, n.expression) <> (h.type, h.expression)
        and not exists (select from bds.log_comparisons c where c.entity = h.entity and c.compared_at > h.until)
    union all
    select 'uncompared rows', e.name, e.table_name::text,
        format(
            'ALTER TABLE rewrote it before %s, which may have changed values, and nothing has compared the rows with the change log since',
            e.rewritten_at::timestamptz(0)
        ),
        format('select * from bds.compare_log(entity => %L)', e.name)
    from bds.entities e
    where not exists (select from bds.log_comparisons c where c.entity = e.name and c.compared_at > e.rewritten_at) and e.rewritten_at is not null;
$$;
comment on function bds_operation.altered_columns() is
    'Problems of columns that were dropped, or whose values ALTER TABLE may have changed: no trigger sees that';

create function bds_operation.altered_objects()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when o.now is null then 'missing ' when o.made is null then 'unknown ' else 'altered ' end || o.type, e.name,
        case
            when o.type in ('function', 'view') then o.name
            when o.name = '' then e.table_name::text
            else format('%I on %s', o.name, e.table_name)
        end,
        d.detail,
        case
            when o.made is null then format('drop %s %I on %s', o.type, o.name, e.table_name)
            when o.type = 'primary key' then format('alter table %s add primary key (company_id, id)', e.table_name)
            else bds_registry.register_statement(e)
        end
    from bds.entities e
    join bds.generated g on g.entity = e.name
    cross join lateral bds_registry.objects(e, g.part) as present (objects)
    cross join lateral jsonb_object_keys(present.objects || g.objects) as k (key)
    cross join lateral (
        select split_part(k.key, ':', 1), substr(k.key, strpos(k.key, ':') + 1), present.objects ->> k.key, g.objects ->> k.key
    ) as o (type, name, now, made)
    join (values
        ('function', 'writes may not be logged as they should be'),
        ('trigger', 'writes are not logged as they should be'),
        ('primary key', 'two rows can have one id'),
        ('owner', 'triggers and views act as bds_owner'),
        ('row security', 'writers of one company reach the rows of all'),
        ('policy', 'writers reach other rows than those of their company'),
        ('view', 'the entity cannot be read through it as it should be'),
        ('server', 'another version of PostgreSQL recorded what protects the table, so it cannot be compared')
    ) as d (type, detail) on d.type = o.type
    where o.now is distinct from o.made and exists (select from pg_class c where c.oid = e.table_name)
        and (o.type = 'server' and g.part = 'table' or o.type <> 'server' and present.objects -> 'server:' = g.objects -> 'server:')
    union all
    select 'disabled trigger', e.name, format('%I on %s', t.tgname, e.table_name), 'writes are not logged as they should be',
        format('alter table %s enable trigger %I', e.table_name, t.tgname)
    from bds.entities e join pg_trigger t on t.tgrelid = e.table_name
    where t.tgname ~ '^bds_' and not t.tgisinternal and t.tgenabled in ('D', 'R');
$$;
comment on function bds_operation.altered_objects() is
    'Problems of what bds.register has made for a table, and of policies that others have added';

create function bds_operation.invalid_objects()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'invalid constraint', e.name, format('%I on %s', k.conname, e.table_name), 'there may be rows that it does not allow',
        format('alter table %s validate constraint %I', e.table_name, k.conname)
    from bds.entities e join pg_constraint k on k.conrelid = e.table_name
    where not k.convalidated
    union all
    select 'missing constraint', e.name, format('%I on %s', k.name, e.table_name), 'values that JSON cannot represent can be written',
        bds_registry.register_statement(e)
    from bds.entities e
    cross join bds_registry.finite_checks(e.name) k
    where exists (select from pg_class c where c.oid = e.table_name)
        and not exists (select from pg_constraint p where p.conrelid = e.table_name and p.conname = k.name)
    union all
    select 'invalid index', e.name, i.indexrelid::regclass::text, 'queries do not use it, and a unique one does not prevent duplicates',
        format('reindex index %s', i.indexrelid::regclass)
    from bds.entities e join pg_index i on i.indrelid = e.table_name
    where not (i.indisvalid and i.indisready);
$$;
comment on function bds_operation.invalid_objects() is 'Problems of constraints and indexes that were never completed';

create function bds_operation.lagging_sequences()
    returns table (kind text, entity text, object text, detail text, mend text)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
    -- a probe of the index for each company, whatever the statistics are
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    this  record;
    last  bigint;
    given bigint;
begin
    for this in
        select e.name, a.attname, a.attrelid::regclass as table_name, s.seqrelid::regclass as sequence, s.seqstart, s.seqincrement
        from pg_attribute a
        join pg_class t on t.oid = a.attrelid
        join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid = a.attnum
            and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        join pg_sequence s on s.seqrelid = d.objid
        left join bds.entities e on e.table_name = a.attrelid
        where (e.name is not null or a.attrelid in ('bds.imports'::regclass, 'bds.erasures'::regclass))
            and s.seqincrement > 0 and has_sequence_privilege(s.seqrelid, 'select')
            and has_schema_privilege(t.relnamespace, 'usage') and has_table_privilege(a.attrelid, 'select')
        order by e.ordinal, a.attrelid
    loop
        execute format(
            'select max(m.last) from bds.clocks c cross join lateral ('
            'select t.%1$I as last from %2$s t where t.company_id = c.company_id order by t.%1$I desc limit 1) m',
            this.attname, this.table_name
        ) into last;
        given := pg_sequence_last_value(this.sequence);
        if last >= coalesce(given + this.seqincrement, this.seqstart) then
            entity := this.name;
            kind := 'lagging sequence';
            object := this.sequence;
            detail := format(
                'its next value is %s, but %s has %s up to %s: inserts can fail', coalesce(given + this.seqincrement, this.seqstart),
                this.table_name, this.attname, last
            );
            mend := format('select setval(%L, %s)', this.sequence, last);
            return next;
        end if;
    end loop;
end
$$;
comment on function bds_operation.lagging_sequences() is
    'Problems of sequences that will give values which rows have already, as after logical replication or a restore of rows alone';

create or replace function bds.table_problems()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select * from bds_operation.altered_tables()
    union all
    select * from bds_operation.altered_columns()
    union all
    select * from bds_operation.altered_objects()
    union all
    select * from bds_operation.invalid_objects()
    union all
    select * from bds_operation.lagging_sequences();
$$;
comment on function bds.table_problems() is
    'The problems of registered tables in bds.problems: the kind of problem, the entity, the object that has it, what was found, and '
    'the statement that mends it';
