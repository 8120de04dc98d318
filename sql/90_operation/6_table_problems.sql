-- What is wrong with registered tables, each problem with the statement that mends it; a part of bds.problems.

create function bds_operation.replaced_tables()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'missing table', e.name, e.table_name::text, d.detail, d.mend
    from bds.entities e
    cross join lateral bds_registry.dropped(e) d
    where not exists (select from pg_class c where c.oid = e.table_name)
    union all
    select 'replaced table', e.name, e.table_name::text,
        format(
            'it was renamed, and %s took its name, whose rows are not logged: register one of them as %s again',
            g.objects ->> 'name:', e.name
        ),
        null
    from bds.entities e
    join bds.generated g on g.entity = e.name and g.part = 'table'
    where e.table_name <> to_regclass(g.objects ->> 'name:') and exists (select from pg_class c where c.oid = e.table_name);
$$;
comment on function bds_operation.replaced_tables() is 'Problems of tables that were dropped, or whose name another one has';

create function bds_operation.altered_expressions(this bds.entities)
    returns table (ordinal int, detail text)
    language sql
    stable
as $$
    -- a table whose name another one took is a problem of its own
    select 10000, a.detail from bds_feed.alterations(array[this.name]) a
    where not (a.is_name and exists (select from bds_operation.replaced_tables() r where r.entity = this.name))
    union all
    select a.attnum, format('column %I lacks the default %s', a.attname, o.expression)
    from (
        values ('company_id', 'current_setting(''bds.company''::text, true)'), ('updated_at', 'clock_timestamp()')
    ) as o (column_name, expression)
    join pg_attribute a on a.attrelid = this.table_name and a.attname = o.column_name
    left join pg_attrdef f on f.adrelid = a.attrelid and f.adnum = a.attnum
    where pg_get_expr(f.adbin, f.adrelid) is distinct from o.expression;
$$;
comment on function bds_operation.altered_expressions(bds.entities) is
    'What of a table imports, or writes that name no company, find otherwise than it was registered: its name, defaults, rules';

create function bds_operation.altered_tables()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select 'altered table', e.name, e.table_name::text,
        concat_ws('; ', string_agg(d.detail, '; ' order by d.ordinal), 'bds.register refuses it: ' || r.refusal),
        case when r.refusal is null then bds_registry.register_statement(e) end
    from bds.entities e
    cross join lateral (select bds_registry.refusal(e) where exists (select from pg_class c where c.oid = e.table_name)) r (refusal)
    left join lateral (
        select coalesce(h.ordinal, a.attnum) as ordinal,
            case
                when h.ordinal is null then format('column %I is not registered', a.attname)
                when a.attnum is null then format('column %I was dropped', h.column_name)
                when a.attname <> h.column_name then format('column %I was renamed to %I', h.column_name, a.attname)
                when a.type <> h.type then format('column %I was %s, and is %s', a.attname, h.type, a.type)
                when a.expression <> h.expression then
                    format(
                        'column %I was generated as %s, and is%s',
                        a.attname, h.expression, coalesce(' as ' || nullif(a.expression, ''), ' not')
                    )
                else (
                    select format('column %I %s', a.attname, nullif(c.changes, ''))
                    from bds.fields f
                    join bds_registry.fields_of(e.name, e.table_name) n on n.name = f.name
                    left join bds.navigations w on w.entity = e.name and w.name = f.reference and not w.many
                    cross join lateral (select bds_registry.target_of(e.table_name, n.column_name)) t (target)
                    cross join lateral (
                        select concat_ws(
                            ', ',
                            case when n.required <> f.required then
                                case when n.required then 'is not null now' else 'may be null now' end
                            end,
                            case when n.is_unique <> f.is_unique then
                                case when n.is_unique then 'is unique now' else 'is not unique now' end
                            end,
                            case when n.allowed is distinct from f.allowed then 'has other values now' end,
                            case when n.has_default <> f.has_default then
                                case when n.has_default then 'has a default now' else 'has no default now' end
                            end,
                            case
                                when n.reference is distinct from f.reference
                                    then coalesce('refers to ' || n.reference || ' now', 'no longer refers to ' || f.reference)
                                when t.target <> w.target then format('refers to %s now, not to %s', t.target, w.target)
                            end
                        )
                    ) c (changes)
                    where f.entity = e.name and f.column_name = a.attname and c.changes <> ''
                )
            end as detail
        from (select * from bds.column_history c where c.entity = e.name and c.until = 'infinity') h
        full join bds_registry.columns_of(e.table_name) a on a.attnum = h.ordinal
        union all
        select x.ordinal, x.detail from bds_operation.altered_expressions(e) x
    ) d on d.detail is not null
    where (d.detail is not null or r.refusal is not null) and exists (select from pg_class c where c.oid = e.table_name)
    group by e.*, e.name, e.table_name, r.refusal;
$$;
comment on function bds_operation.altered_tables() is
    'Problems of tables that are not as they were registered: their columns, and what imports spell out of them';

create function bds_operation.unsuitable_tables()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
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
    select 'closed schema', e.name, e.table_name::text, 'roles of the service may not use its schema',
        bds_registry.missing_rights(e.table_name)
    from bds.entities e
    where bds_registry.missing_rights(e.table_name) is not null;
$$;
comment on function bds_operation.unsuitable_tables() is 'Problems of tables that bds.register would refuse';

create function bds_operation.misplaced_tables()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    select 'misplaced table', null, t.name::text,
        'it has the CHECK of a month, but not the owner, rights and columns of one: erasures and seals pass it over', null
    from bds_change_log.tables_of_months() t
    where not t.is_month;
$$;
comment on function bds_operation.misplaced_tables() is
    'Problems of tables of schema bds that are neither months of the log nor anything else of the service';

create function bds_operation.altered_columns()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    -- Mends of tables that are altered and not registered again are run after their registration, which comes first in the list.
    with columns as (
        select e, e.name, e.table_name, h.ordinal, h.column_name, h.until, h.is_lost,
            case when h.until = 'infinity' then a.attname else n.column_name end as next_name,
            case
                when h.until = 'infinity' then (a.type, a.expression) <> (h.type, h.expression)
                else (n.type, n.expression) <> (h.type, h.expression)
            end as is_converted
        from bds.entities e
        join bds.column_history h on h.entity = e.name
        left join bds.column_history n on n.entity = h.entity and n.ordinal = h.ordinal and n.since = h.until
        left join bds_registry.columns_of(e.table_name) a on a.attnum = h.ordinal
        where exists (select from pg_class c where c.oid = e.table_name)
    )
    select 'lost column', c.name, format('%s.%I', c.table_name, c.column_name),
        'it was dropped by other means than bds.drop_column: values that no record has are lost',
        -- one that is not registered as dropped stays in the list
        case when c.until <> 'infinity' or bds_registry.mend(c.e) is not null then
            format('update bds.column_history set is_lost = false where entity = %L and ordinal = %s', c.name, c.ordinal)
        end
    from columns c
    where c.is_lost or c.until = 'infinity' and c.next_name is null
    union all
    select 'uncompared rows', e.name, r.object, r.detail || ', and nothing has compared the rows with the change log since',
        format('select * from bds.compare_log(entity => %L, record => true)', e.name)
    from bds.entities e
    cross join lateral (
        select format('%s.%I', e.table_name, c.next_name), 'its type or expression was another one' || b.before, c.until
        from columns c
        cross join lateral (select coalesce(' before ' || nullif(c.until, 'infinity')::timestamptz(0), '')) b (before)
        where c.name = e.name and c.is_converted
        union all
        select e.table_name::text, 'ALTER TABLE rewrote it' || b.before || ', which may have changed values', b.at
        from (values (e.rewritten_at), (case when bds_registry.is_rewritten(e) then 'infinity'::timestamptz end)) w (at)
        cross join lateral (select coalesce(' before ' || nullif(w.at, 'infinity')::timestamptz(0), ''), w.at) b (before, at)
        where w.at < 'infinity' or w.at = 'infinity' and not exists (select from columns c where c.name = e.name and c.is_converted)
    ) r (object, detail, at)
    where not exists (select from bds.log_comparisons c where c.entity = e.name and c.compared_at > r.at)
        and exists (select from pg_class c where c.oid = e.table_name);
$$;
comment on function bds_operation.altered_columns() is
    'Problems of columns that were dropped, or whose values ALTER TABLE may have changed: no trigger sees that';

create function bds_operation.lagging_sequences()
    returns table (kind text, entity text, object text, detail text, mend text)
    language plpgsql
    stable
    -- a probe of the index for each company, whatever the statistics are
    set enable_seqscan = off
    set enable_bitmapscan = off
as $$
declare
    this  record;
    last  bigint;
    next  numeric;
begin
    for this in
        select e.name, a.attname, a.attrelid::regclass as table_name, s.seqrelid::regclass as sequence, s.seqstart, s.seqincrement,
            s.seqmax
        from pg_attribute a
        join pg_class t on t.oid = a.attrelid
        join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid = a.attnum
            and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
        join pg_sequence s on s.seqrelid = d.objid
        left join bds.entities e on e.table_name = a.attrelid
        where exists (select from pg_attribute c where c.attrelid = a.attrelid and c.attname = 'company_id' and not c.attisdropped)
            and (e.name is not null or a.attrelid in ('bds.imports'::regclass, 'bds.erasures'::regclass))
            and s.seqincrement > 0 and has_sequence_privilege(s.seqrelid, 'select')
            and has_schema_privilege(t.relnamespace, 'usage') and has_table_privilege(a.attrelid, 'select')
        order by e.ordinal, a.attrelid
    loop
        execute format(
            'select max(m.last) from bds.clocks c cross join lateral ('
            -- no value would follow its last one
            'select t.%1$I as last from %2$s t where t.company_id = c.company_id and t.%1$I <= $1 order by t.%1$I desc limit 1) m',
            this.attname, this.table_name
        ) into last using this.seqmax - this.seqincrement;
        next := coalesce(pg_sequence_last_value(this.sequence)::numeric + this.seqincrement, this.seqstart);
        if last >= next or next > this.seqmax then
            entity := this.name;
            kind := 'lagging sequence';
            object := this.sequence;
            detail := case
                when next > this.seqmax then format('it has given its last value, %s: inserts fail', this.seqmax)
                else format(
                    'its next value is %s, but %s has %s up to %s: inserts can fail', next, this.table_name, this.attname, last
                )
            end;
            mend := case when next <= this.seqmax then format('select setval(%L, %s)', this.sequence, last) end;
            return next;
        end if;
    end loop;
end
$$;
comment on function bds_operation.lagging_sequences() is
    'Problems of sequences that will give values which rows have already, as after logical replication or a restore of rows alone, '
    'or that have none left';

create function bds_operation.closed_sequences()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    -- who else may use such a sequence is its owner's affair
    select 'altered rights', e.name, s.name::text, d.detail,
        case when has_sequence_privilege('bds_owner', s.name, 'usage with grant option') then d.mend end
    from bds.entities e
    cross join lateral bds_registry.other_sequences(e.table_name) s (name)
    cross join lateral (
        select jsonb_object_agg(r.name, '["usage"]'::jsonb),
            jsonb_object_agg(r.name, '["usage"]'::jsonb) filter (where has_sequence_privilege(r.name, s.name, 'usage'))
        from (values ('bds_writer'), ('bds_operator')) as r (name)
    ) as p (needed, present)
    cross join lateral bds_impl.rights_differ('on sequence ' || s.name, p.needed, coalesce(p.present, '{}')) d
    -- an id without its sequence is a problem of its own
    where d.detail is not null and bds_registry.refusal(e) is null;
$$;
comment on function bds_operation.closed_sequences() is
    'Problems of sequences that identity columns and defaults use, beside those of ids: a role that writes rows may not use one';

create or replace function bds_service.table_problems()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan  -- hundreds of small queries, each planned anew otherwise: a quarter of the time
as $$
    select * from bds_operation.replaced_tables()
    union all
    select * from bds_operation.altered_tables()
    union all
    select * from bds_operation.unsuitable_tables()
    union all
    select * from bds_operation.misplaced_tables()
    union all
    select * from bds_operation.altered_columns()
    union all
    select * from bds_operation.altered_objects()
    union all
    select * from bds_operation.late_triggers()
    union all
    select * from bds_operation.made_problems()
    union all
    select * from bds_operation.import_functions()
    union all
    select * from bds_operation.role_problems()
    union all
    select * from bds_operation.altered_roles()
    union all
    select * from bds_operation.login_problems()
    union all
    select * from bds_operation.other_rights()
    union all
    select * from bds_operation.invalid_objects()
    union all
    select * from bds_operation.closed_sequences()
    union all
    select * from bds_operation.lagging_sequences();
$$;
comment on function bds_service.table_problems() is
    'The problems of tables, functions, rights, roles and logins in bds.problems: the kind of problem, the entity, the object '
    'that has it, what was found, and the statement that mends it';
