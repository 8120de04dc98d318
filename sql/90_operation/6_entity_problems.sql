-- What is wrong with the objects of registered tables, each problem with the statement that mends it; a part of bds.problems.

create function bds_operation.altered_objects()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    -- materialized: the objects of each entity are looked up once for each of its parts, not for those of all
    with parts as materialized (
        select e, g.part, g.objects as made, bds_registry.objects(e, g.part) as present
        from bds.entities e join bds.generated g on g.entity = e.name
        where exists (select from pg_class c where c.oid = e.table_name)
    ), objects as (
        select p.e, (p.e).name as entity, (p.e).table_name::text as table_name, split_part(k, ':', 1) as type,
            substr(k, strpos(k, ':') + 1) as name, p.present ->> k as now, p.made ->> k as made,
            p.present -> 'server:' = p.made -> 'server:' as is_comparable
        from parts p cross join lateral jsonb_object_keys(p.present || p.made) k
    )
    select case when o.now is null then 'missing ' when o.made is null then 'unknown ' else 'altered ' end || o.type, o.entity,
        case
            when o.type in ('function', 'view') then o.name
            when o.type = 'rule' then replace(replace(o.name, '{table}', o.table_name), ' on table ', ' on ')
            when o.name = '' then o.table_name
            else format('%I on %s', o.name, o.table_name)
        end,
        concat_ws('; ', d.detail, (select k.obstacle from bds_registry.key_of((o.e).table_name) k where o.type = 'primary key')),
        case
            when o.type = 'rule' then replace(replace('drop rule ' || o.name, '{table}', o.table_name), ' on table ', ' on ')
            when o.made is null then format('drop %s %I on %s', o.type, o.name, o.table_name)
            when o.type = 'primary key' then (select k.mend from bds_registry.key_of((o.e).table_name) k)
            else bds_registry.mend(o.e)
        end
    from objects o
    join (values
        ('function', 'writes may not be logged as they should be'),
        ('trigger', 'writes are not logged as they should be'),
        ('primary key', 'two rows can have one id'),
        ('owner', 'triggers and views act as bds_owner'),
        ('row security', 'writers of one company reach the rows of all'),
        ('policy', 'writers reach other rows than those of their company'),
        ('restrictive policy', 'imports and reverts pass over the rows that it hides'),
        ('view', 'the entity cannot be read through it as it should be'),
        ('rule', 'statements over it become others')
    ) as d (type, detail) on d.type = case when o.made is null and o.now ^@ 'f ' then 'restrictive ' else '' end || o.type
    where o.now is distinct from o.made
        and (o.is_comparable or o.type not in ('trigger', 'policy', 'primary key', 'view'))
        -- views of the past have columns in conditions, too; what mends an altered table makes its views again
        and (o.type <> 'view' or num_nulls(o.now, o.made) > 0 or not bds_change_log.is_altered(o.e))
    union all
    select 'altered rights', o.entity, btrim(regexp_replace(t.target, '^(.*)on [a-z]+ (.*)$', e'\\2 \\1')), r.detail, r.mend
    from objects o
    cross join lateral replace(
        replace(o.name, '{table}', o.table_name), '{sequence}', coalesce(bds_registry.sequence_of((o.e).table_name)::text, '')
    ) t (target)
    cross join lateral bds_impl.rights_differ(t.target, coalesce(o.made, '{}')::jsonb, o.now::jsonb) r
    where o.type = 'right' and o.now is distinct from o.made and r.detail is not null
    union all
    select 'disabled trigger', e.name, format('%I on %s', t.tgname, e.table_name), 'writes are not logged as they should be',
        format('alter table %s enable trigger %I', e.table_name, t.tgname)
    from bds.entities e join pg_trigger t on t.tgrelid = e.table_name
    where t.tgname ~ '^~?bds_' and not t.tgisinternal and t.tgenabled in ('D', 'R');
$$;
comment on function bds_operation.altered_objects() is
    'Problems of what bds.register has made for a table, and of policies, rules and rights that others have added';

create function bds_operation.late_triggers()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    select 'late trigger', e.name, format('%I on %s', t.tgname, e.table_name),
        'an update whose change it takes back is logged, as one that changes nothing'
            || case when t.tgname >= '~' then ': give it a name that begins with a letter of ASCII' else '' end,
        case when t.tgname < '~' then bds_registry.mend(e) end
    from bds.entities e cross join bds_change_log.late_triggers(e.table_name) t
    where t.tgname > (select max(l.tgname) from pg_trigger l where l.tgrelid = e.table_name and l.tgname ~ '^~?bds_2_stamp');
$$;
comment on function bds_operation.late_triggers() is 'Problems of triggers of the owner that come after the stamp';

create function bds_operation.has_violation(rule pg_constraint)
    returns boolean
    language plpgsql
    stable
as $$
declare
    condition text;
    found_one boolean;
begin
    condition := case rule.contype
        when 'c' then format('not (%s)', pg_get_expr(rule.conbin, rule.conrelid))
        when 'f' then (
            select format(
                '%s and not exists (select from %s o where %s)', string_agg(format('t.%I is not null', a.attname), ' and '),
                rule.confrelid::regclass, string_agg(format('o.%I = t.%I', b.attname, a.attname), ' and ')
            )
            from unnest(rule.conkey, rule.confkey) p (own, other)
            join pg_attribute a on a.attrelid = rule.conrelid and a.attnum = p.own
            join pg_attribute b on b.attrelid = rule.confrelid and b.attnum = p.other
        )
        else 'false'
    end;
    execute format('select exists (select from %s t where %s)', rule.conrelid::regclass, condition) into found_one;
    return found_one;
exception when others then  -- its expression fails: so will the mend, with the reason
    return false;
end
$$;
comment on function bds_operation.has_violation(pg_constraint) is
    'Whether a table has rows that a CHECK or foreign key does not allow';

create function bds_operation.has_duplicates(this pg_index)
    returns boolean
    language plpgsql
    stable
as $$
declare
    keys      text[] := array(select pg_get_indexdef(this.indexrelid, n, false) from generate_series(1, this.indnkeyatts) n);
    found_one boolean := false;
begin
    if this.indisunique then
        execute format(
            'select exists (select from %s where %s and (%s) group by %s having count(*) > 1)', this.indrelid::regclass,
            coalesce(pg_get_expr(this.indpred, this.indrelid), 'true'),
            case
                when this.indnullsnotdistinct then 'true'
                else (select string_agg(format('(%s) is not null', k), ' and ') from unnest(keys) k)
            end,
            array_to_string(keys, ', ')
        ) into found_one;
    end if;
    return found_one;
exception when others then  -- as above
    return false;
end
$$;
comment on function bds_operation.has_duplicates(pg_index) is
    'Whether a table has several rows with one key of an index that is to be unique';

create function bds_operation.invalid_objects()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    select 'invalid constraint', e.name, format('%I on %s', k.conname, e.table_name),
        case
            when v.is_so then 'there are rows that it does not allow: correct them'
            else 'there may be rows that it does not allow'
        end,
        case when not v.is_so then format('alter table %s validate constraint %I', e.table_name, k.conname) end
    from bds.entities e join pg_constraint k on k.conrelid = e.table_name
    cross join lateral (select bds_operation.has_violation(k) where not k.convalidated) v (is_so)
    where not k.convalidated and to_jsonb(k) ->> 'conenforced' is distinct from 'false'  -- from PostgreSQL 18 on
    union all
    select 'disabled constraint', e.name, format('%I on %s', k.conname, k.conrelid::regclass),
        case
            when v.is_so then 'rows refer to rows that do not exist: correct them'
            else 'rows may refer to rows that do not exist'
        end,
        -- a superuser alone enables triggers of the system
        case when not v.is_so then format(
            'alter table %s drop constraint %I, add constraint %2$I %s',
            k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid)
        ) end
    from pg_constraint k
    left join bds.entities e on e.table_name = k.conrelid
    cross join lateral (
        select exists (select from pg_trigger t where t.tgconstraint = k.oid and t.tgenabled in ('D', 'R'))
    ) d (is_disabled)
    left join lateral (select bds_operation.has_violation(k) where d.is_disabled) v (is_so) on true
    where k.contype = 'f' and k.conparentid = 0
        and (e.name is not null or k.conrelid in (select c.oid from pg_class c where c.relnamespace = 'bds'::regnamespace))
        and d.is_disabled
    union all
    select 'missing constraint', e.name, format('%I on %s', k.name, e.table_name),
        'values that JSON cannot represent can be written',
        bds_registry.mend(e)
    from bds.entities e
    cross join bds_registry.finite_checks(e.table_name) k
    where k.standing is null
    union all
    select 'invalid index', e.name, i.indexrelid::regclass::text,
        'queries do not use it, and a unique one does not prevent duplicates'
            || case when v.is_so then ', which there are: delete them' else '' end,
        case when not v.is_so then format('reindex index %s', i.indexrelid::regclass) end
    from bds.entities e join pg_index i on i.indrelid = e.table_name
    cross join lateral (select bds_operation.has_duplicates(i) where not (i.indisvalid and i.indisready)) v (is_so)
    where not (i.indisvalid and i.indisready);
$$;
comment on function bds_operation.invalid_objects() is 'Problems of constraints and indexes that were never completed';
