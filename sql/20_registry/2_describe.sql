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
    set search_path = pg_catalog, pg_temp
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

create function bds_registry.check_columns(table_name regclass)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    odd record;
begin
    for odd in
        select a.attname, n.name
        from pg_attribute a cross join lateral (select bds_registry.camel_case(a.attname) collate pg_catalog.pg_c_utf8) as n (name)
        where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped
            and (n.name !~ '^[[:alpha:]_][[:alnum:]_]*$' or n.name in ('null', 'true', 'false', 'not'))
    loop
        raise exception using
            errcode = 'BD005',
            message = format('column %s.%I would become field %L, which queries cannot name', table_name, odd.attname, odd.name),
            hint = 'use letters, digits and _, beginning with a letter, except the words null, true, false and not';
    end loop;

    for odd in
        select min(a.attname) as attname, max(a.attname) as other, n.name
        from pg_attribute a cross join lateral (select bds_registry.camel_case(a.attname) collate pg_catalog.pg_c_utf8) as n (name)
        where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped
        group by n.name
        having count(*) > 1
    loop
        raise exception using
            errcode = 'BD005',
            message = format('columns %I and %I of %s would both become field %L', odd.attname, odd.other, table_name, odd.name),
            hint = 'rename one of them';
    end loop;

    for odd in
        select a.attname, format_type(a.atttypid, a.atttypmod) as type
        from pg_attribute a join pg_type t on t.oid = a.atttypid
        where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped
            and coalesce(nullif(t.typbasetype, 0), t.oid) <> all (array[
                'text', 'varchar', 'bpchar', 'int2', 'int4', 'int8', 'numeric', 'float8', 'bool', 'date', 'time', 'timestamptz',
                'uuid'
            ]::regtype[]::oid[])
    loop
        raise exception using
            errcode = 'BD005',
            message = format('column %s.%s has the unsupported type %s', table_name, odd.attname, odd.type),
            hint = 'use text, smallint, integer, bigint, numeric, double precision, boolean, date, time, timestamptz or uuid';
    end loop;

    for odd in
        select a.attname, c.collname
        from pg_attribute a join pg_collation c on c.oid = a.attcollation
        where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped and not c.collisdeterministic
    loop
        raise exception using
            errcode = 'BD005',
            message = format('column %s.%s has the nondeterministic collation %I', table_name, odd.attname, odd.collname),
            hint = 'use a deterministic collation, such as "C"';
    end loop;
end
$$;
comment on function bds_registry.check_columns(regclass) is
    'Raises BD005 for a column whose name, type or collation fields cannot have';

create function bds_registry.fields_of(entity_name text, table_name regclass)
    returns setof bds.fields
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select entity_name, bds_registry.camel_case(a.attname), a.attnum, a.attname,
        case when b.typname in ('varchar', 'bpchar') then 'text' else b.typname end,
        case when b.typname = 'numeric' and m.typmod > 0 then ((m.typmod - 4) >> 16) & 65535 end,
        case when b.typname = 'numeric' and m.typmod > 0 then (m.typmod - 4) & 2047 end,
        case when b.typname in ('varchar', 'bpchar') and m.typmod > 0 then m.typmod - 4 end,
        a.attnotnull,
        a.attname = 'updated_at' or a.atthasdef or a.attidentity <> '',
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
    from pg_attribute a
    join pg_type t on t.oid = a.atttypid
    join pg_type b on b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
    cross join lateral (select case when t.typbasetype <> 0 then t.typtypmod else a.atttypmod end) as m (typmod)
    where a.attrelid = table_name and a.attnum > 0 and not a.attisdropped and a.attname <> 'company_id';
$$;
comment on function bds_registry.fields_of(text, regclass) is 'The columns of a table as fields of an entity';

create function bds_registry.describe_fields(entity_name text, table_name regclass)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_registry.check_columns(table_name);
    delete from bds.fields f where f.entity = entity_name;
    insert into bds.fields select * from bds_registry.fields_of(entity_name, table_name);
end
$$;
comment on function bds_registry.describe_fields(text, regclass) is 'Stores the columns of a table as the fields of its entity';

create function bds_registry.describe_navigations(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this  bds.entities;
    way   record;
    back  text;
    child boolean;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    -- both sides of this entity's foreign keys; foreign keys of other entities belong to their description
    delete from bds.navigations n
    where (n.entity = entity_name and not n.many) or (n.target = entity_name and n.many);

    for way in
        select f.reference as name, f.name as field, f.required, bds_registry.target_of(this.table_name, f.column_name) as target
        from bds.fields f
        where f.entity = entity_name and f.reference is not null
        order by f.ordinal
    loop
        child := this.parent_navigation is not distinct from way.name;
        back := case when child then this.collection when way.target = entity_name then 'children' else entity_name end;
        if exists (select from bds.navigations n where n.entity = way.target and n.name = back)
            or exists (select from bds.fields f where f.entity = way.target and f.name = back)
        then
            if child then
                raise exception using
                    errcode = 'BD005', message = format('%s already has a field or collection %L', way.target, back),
                    hint = 'give the collection another name';
            end if;
            back := back || 'By' || upper(left(way.name, 1) collate "C") || substr(way.name, 2);
        end if;
        insert into bds.navigations (entity, name, target, many, field, partner, child, required)
        values
            (entity_name, way.name, way.target, false, way.field, back, false, way.required),
            (way.target, back, entity_name, true, way.field, way.name, child, false);
    end loop;

    select n.name into back from bds.navigations n join bds.fields f using (entity, name) where n.entity = entity_name;
    if found then
        raise exception using
            errcode = 'BD005', message = format('%s would have a field and a reference %L', entity_name, back), hint = 'rename the column';
    end if;

    if this.parent_navigation is not null
        and not exists (
            select from bds.navigations n where n.entity = entity_name and n.name = this.parent_navigation and not n.many
        )
    then
        raise exception using
            errcode = 'BD005',
            message = format(
                '%s has no foreign key (company_id, %s) to a registered table', this.table_name, this.parent_navigation
            );
    end if;
end
$$;
comment on function bds_registry.describe_navigations(text) is
    'Stores the foreign keys of an entity as navigations, one for each direction';

create function bds_registry.columns_of(table_name regclass, out attnum int2, out attname name, out type text, out expression text)
    returns setof record
    language sql
    stable
    set search_path = pg_catalog, pg_temp
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
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    bds.entities := (select e from bds.entities e where e.name = entity_name);
    number  record;
begin
    -- pg_dump leaves dropped columns out: the others have lower numbers in a restored table, in the same order.  ALTER TABLE changes
    -- no numbers, and dropped columns keep theirs.
    if not exists (
        select from bds.column_history h
        where h.entity = entity_name and h.until = 'infinity'
            and not exists (select from pg_attribute a where a.attrelid = this.table_name and a.attnum = h.ordinal)
    ) or array(select h.column_name from bds.column_history h where h.entity = entity_name and h.until = 'infinity' order by h.ordinal)
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
