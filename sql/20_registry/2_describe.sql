-- Describes a registered table in bds.fields and bds.navigations.

create function bds_registry.camel_case(name text)
    returns text
    language sql
    immutable
    return (
        select string_agg(case when n = 1 then w else upper(left(w, 1) collate "C") || substr(w, 2) end, '' order by n)
        from regexp_split_to_table(name, '_') with ordinality as words (w, n)
    );
comment on function bds_registry.camel_case(text) is 'product_variants -> productVariants';

create function bds_registry.singular_of(name text)
    returns text
    language sql
    immutable
    return case
        when name ~ 'ies$' then regexp_replace(name, 'ies$', 'y')
        when name ~ '[^s]s$' then left(name, -1)
        else name
    end;
comment on function bds_registry.singular_of(text) is 'categories -> category, orderItems -> orderItem';

create function bds_registry.target_of(table_name regclass, column_name name)
    returns text
    language sql
    stable
    -- if several foreign keys share the column, the first one that was created
    return (
        select t.name
        from pg_constraint k
        join bds.entities t on t.table_name = k.confrelid
        where k.conrelid = target_of.table_name and k.contype = 'f' and cardinality(k.conkey) = 2
            and array(
                select array[a.attname, b.attname]
                from unnest(k.conkey, k.confkey) as pair (own, other)
                join pg_attribute a on a.attrelid = k.conrelid and a.attnum = pair.own
                join pg_attribute b on b.attrelid = k.confrelid and b.attnum = pair.other
                order by a.attname = 'company_id' desc
            ) = array[array['company_id', 'company_id'], array[target_of.column_name, 'id']]::name[]
        order by k.oid
        limit 1
    );
comment on function bds_registry.target_of(regclass, name) is
    'The entity that a column references, by a foreign key (company_id, column) to (company_id, id); null if it references none';

create function bds_registry.fields_of(entity_name text, table_name regclass)
    returns setof bds.fields
    language sql
    stable
as $$
    select entity_name, bds_registry.camel_case(a.attname), a.attnum, a.attname,
        (select t.typname from pg_type t where t.oid = k.shown), c.type,
        case when c.base = 'numeric'::regtype and c.typmod > 0 then ((c.typmod - 4) >> 16) & 65535 end,
        case when c.base = 'numeric'::regtype and c.typmod > 0 then (((c.typmod - 4) & 2047) # 1024) - 1024 end,
        case when c.base in ('varchar'::regtype, 'bpchar'::regtype) and c.typmod > 0 then c.typmod - 4 end,
        (select array_agg(e.enumlabel::text order by e.enumsortorder) from pg_enum e where e.enumtypid = c.base),
        c.required,
        a.attname = 'updated_at' or a.atthasdef or a.attidentity <> '' or y.typdefaultbin is not null,
        a.attgenerated <> '',
        exists (
            select from pg_index i
            where i.indrelid = table_name and i.indisunique and not i.indisprimary and i.indpred is null and i.indexprs is null
                and i.indnkeyatts = 2 and i.indisvalid and a.attnum in (i.indkey[0], i.indkey[1])
                and not exists (
                    select from pg_collation c where c.oid in (i.indcollation[0], i.indcollation[1]) and not c.collisdeterministic
                )
                and (select c.attnum from pg_attribute c where c.attrelid = table_name and c.attname = 'company_id')
                    in (i.indkey[0], i.indkey[1])
        ),
        case when a.attname ~ '_id$' and bds_registry.target_of(table_name, a.attname) is not null then
            bds_registry.camel_case(regexp_replace(a.attname, '_id$', ''))
        end
    from bds_registry.typed_columns(table_name) c
    join bds_impl.types k on k.name = c.type
    join pg_attribute a on a.attrelid = table_name and a.attnum = c.attnum
    join pg_type y on y.oid = a.atttypid
    where a.attname <> 'company_id';
$$;
comment on function bds_registry.fields_of(text, regclass) is 'The columns of a table as fields of an entity';

create function bds_registry.describe_fields(entity_name text, table_name regclass)
    returns void
    language plpgsql
as $$
begin
    delete from bds.fields f where f.entity = entity_name;
    insert into bds.fields select * from bds_registry.fields_of(entity_name, table_name);
end
$$;
comment on function bds_registry.describe_fields(text, regclass) is 'Stores the columns of a table as the fields of its entity';

create function bds_registry.describe_navigations(entity_name text)
    returns void
    language plpgsql
as $$
declare
    this bds.entities;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    -- both sides of this entity's foreign keys; foreign keys of other entities belong to their description
    delete from bds.navigations n
    where (n.entity = entity_name and not n.many) or (n.target = entity_name and n.many);
    insert into bds.navigations (entity, name, target, many, field, partner, child, required)
    select n.entity, n.name, n.target, n.many, n.field, n.partner, n.child, n.required
    from bds_registry.ways_of(this) with ordinality as w
    cross join lateral (
        values
            (1, entity_name, w.name, w.target, false, w.field, w.back, false, w.required),
            (2, w.target, w.back, entity_name, true, w.field, w.name, w.child, false)
    ) as n (n, entity, name, target, many, field, partner, child, required)
    order by w.ordinality, n.n;
end
$$;
comment on function bds_registry.describe_navigations(text) is
    'Stores the foreign keys of an entity as navigations, one for each direction';

create function bds_registry.columns_of(table_name regclass, out attnum int2, out attname name, out type text, out expression text)
    returns setof record
    language sql
    stable
as $$
    select a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
        case when a.attgenerated = '' then '' else pg_get_expr(d.adbin, d.adrelid) end
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped;
$$;
comment on function bds_registry.columns_of(regclass) is
    'The columns of a table: number, name, type, and the expression of a generated one (else empty)';

create function bds_registry.renumber_columns(entity_name text)
    returns void
    language plpgsql
as $$
declare
    this    bds.entities := (select e from bds.entities e where e.name = entity_name);
    number  record;
begin
    -- pg_dump leaves dropped columns out: the others have lower numbers in a restored table, in the same order.  ALTER TABLE
    -- changes no numbers, and dropped columns keep theirs.
    if not exists (
        select from bds.column_history h
        where h.entity = entity_name and h.until = 'infinity'
            and not exists (select from pg_attribute a where a.attrelid = this.table_name and a.attnum = h.ordinal)
    ) or array(
        select h.column_name
        from bds.column_history h where h.entity = entity_name and h.until = 'infinity' order by h.ordinal
    )
        <> array(select c.attname from bds_registry.columns_of(this.table_name) c order by c.attnum)
    then
        return;
    end if;
    for number in
        -- a dropped column stays between its neighbours: row_hash depends on the order
        select o.old, o.name, o.before + case when o.name is null then o.n / 10000.0 else 1 end as new
        from (
            select h.ordinal as old, max(h.column_name) filter (where h.until = 'infinity') as name,
                row_number() over w as n,
                count(max(h.column_name) filter (where h.until = 'infinity')) over (
                    w rows between unbounded preceding and 1 preceding
                ) as before
            from bds.column_history h
            where h.entity = entity_name
            group by h.ordinal
            window w as (order by h.ordinal)
        ) o
        order by o.old
    loop
        update bds.column_history h set ordinal = number.new where h.entity = entity_name and h.ordinal = number.old;
        update bds.fields f set ordinal = number.new where f.entity = entity_name and f.column_name = number.name;
    end loop;
end
$$;
comment on function bds_registry.renumber_columns(text) is
    'Fits the numbers of registered columns to a table that was restored from a dump, if it had dropped columns before';
