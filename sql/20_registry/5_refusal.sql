-- What bds.register refuses, found before anything is written: bds.problems prints no bds.register that would be refused.

create function bds_registry.check_references(table_name regclass, entity_name text, parent_navigation text)
    returns void
    language plpgsql
    stable
as $$
declare
    odd record;
begin
    if parent_navigation is not null and not exists (
        select from bds_registry.fields_of(entity_name, table_name) f where f.reference = parent_navigation
    ) then
        raise exception using
            errcode = 'BD005',
            message = format('%s has no foreign key (company_id, %s) to a registered table', table_name, parent_navigation);
    end if;

    for odd in
        with fields as materialized (
            select f.name, f.reference from bds_registry.fields_of(entity_name, table_name) f
        )
        select f.name
        from fields f
        where f.name in (
            select r.reference from fields r
            union all
            -- collections of other entities' rows; those of its own rows are named when they are described
            select n.name from bds.navigations n where n.entity = entity_name and n.many and n.target <> entity_name
        )
    loop
        raise exception using
            errcode = 'BD005',
            message = format('%s would have a field and a reference %L', entity_name, odd.name),
            hint = 'rename the column';
    end loop;
end
$$;
comment on function bds_registry.check_references(regclass, text, text) is
    'Raises BD005 if a parent navigation is given that is not a foreign key to a registered table, or if a reference or '
    'a collection has a field''s name';

create function bds_registry.is_taken(this bds.entities, target text, name text)
    returns boolean
    language sql
    stable
    return exists (
        select from bds.navigations n
        -- but for those that are about to be made anew
        where n.entity = is_taken.target and n.name = is_taken.name and not (n.many and n.target = (this).name)
            and not (not n.many and n.entity = (this).name)
    ) or case
        when target = (this).name
            then exists (select from bds_registry.fields_of((this).name, (this).table_name) f where f.name = is_taken.name)
        else exists (select from bds.fields f where f.entity = is_taken.target and f.name = is_taken.name)
    end;
comment on function bds_registry.is_taken(bds.entities, text, text) is
    'Whether an entity has a field or navigation of a name, but for those of this entity''s foreign keys';

create function bds_registry.ways_of(this bds.entities)
    returns table (name text, column_name name, field text, required boolean, target text, back text, child boolean)
    language plpgsql
    stable
as $$
declare
    given text[] := '{}';  -- collections named so far, as target/name
begin
    for name, column_name, field, required, target in
        select f.reference, f.column_name, f.name, f.required, bds_registry.target_of(this.table_name, f.column_name)
        from bds_registry.fields_of(this.name, this.table_name) f
        where f.reference is not null
        order by f.ordinal
    loop
        child := this.parent_navigation is not distinct from name;
        back := case when child then this.collection when target = this.name then 'children' else this.name end;
        if not child and (bds_registry.is_taken(this, target, back) or format('%s/%s', target, back) = any (given)) then
            back := back || 'By' || upper(left(name, 1) collate "C") || substr(name, 2);
        end if;
        if bds_registry.is_taken(this, target, back) or format('%s/%s', target, back) = any (given) then
            raise exception using
                errcode = 'BD005', message = format('%s already has a field or collection %L', target, back),
                hint = case when child then 'give the collection another name' else format('rename column %I', column_name) end;
        end if;
        given := given || format('%s/%s', target, back);
        return next;
    end loop;
    perform bds_registry.check_collections(this, given);
end
$$;
comment on function bds_registry.ways_of(bds.entities) is
    'The foreign keys of an entity with the names that both directions get. Raises BD005 if a name is taken';

create function bds_registry.check_collections(this bds.entities, given text[])
    returns void
    language plpgsql
    stable
as $$
declare
    odd record;
begin
    for odd in
        select f.column_name, f.reference
        from bds_registry.fields_of(this.name, this.table_name) f
        where format('%s/%s', this.name, f.reference) = any (given) or exists (
            select from bds.navigations n
            where n.entity = this.name and n.many and n.target <> this.name and n.name = f.reference
        )
    loop
        raise exception using
            errcode = 'BD005',
            message = format(
                'column %s.%I would become reference %L, and %s has a collection of that name', this.table_name, odd.column_name,
                odd.reference, this.name
            ),
            hint = 'rename the column';
    end loop;
end
$$;
comment on function bds_registry.check_collections(bds.entities, text[]) is
    'Raises BD005 if a reference has the name of a collection, which another entity or its own foreign key gives; given: '
    'entity/name';

create function bds_registry.key_of(table_name regclass, out mend text, out obstacle text)
    returns record
    language plpgsql
    stable
as $$
declare
    other name;
begin
    select k.conname into other from pg_constraint k where k.conrelid = table_name and k.contype = 'p';
    if other is not null and exists (
        select from pg_constraint k where k.contype = 'f' and k.conindid = (
            select p.conindid from pg_constraint p where p.conrelid = table_name and p.contype = 'p'
        )
    ) then
        obstacle := format('foreign keys refer to its primary key %I', other);
        return;
    end if;
    if not exists (
        select from pg_attribute a
        where a.attrelid = table_name and a.attname in ('company_id', 'id') and not a.attisdropped
        having count(*) = 2
    ) then
        obstacle := 'it lacks one of the columns company_id and id';
        return;
    end if;
    execute format(
        $sql$
        select case
            when t.company_id is null or t.id is null then 'there are rows without company_id or id'
            else format('company %%s has several rows with id %%s: delete them or give them other ids', t.company_id, t.id)
        end
        from %s t
        group by t.company_id, t.id
        having count(*) > 1 or t.company_id is null or t.id is null
        limit 1
        $sql$,
        table_name
    ) into obstacle;
    if obstacle is null then
        mend := format(
            'alter table %s %sadd primary key (company_id, id)', table_name,
            case when other is not null then format('drop constraint %I, ', other) end
        );
    end if;
end
$$;
comment on function bds_registry.key_of(regclass) is
    'The statement that gives a table without it the primary key (company_id, id), or why it cannot have that now';

create function bds_registry.replaces_views(this bds.entities)
    returns boolean
    language sql
    stable
as $$
    -- CREATE OR REPLACE VIEW adds columns at the end, and leaves the others as they are
    select not exists (
        select from pg_attribute v
        left join (
            select row_number() over (order by a.attname <> 'company_id', a.attnum) as n,
                case a.attname when 'company_id' then 'company_id' else bds_registry.camel_case(a.attname) end as name, t.shown,
                case when t.shown = a.atttypid then a.atttypmod else -1 end as typmod, a.attcollation
            from bds_registry.typed_columns(this.table_name) c
            join pg_attribute a on a.attrelid = this.table_name and a.attnum = c.attnum
            join bds_impl.types t on t.name = c.type
        ) c on c.n = v.attnum
        where v.attrelid = to_regclass(format('api.%I', this.name)) and v.attnum > 0
            and (
                (v.attname, v.atttypid, v.atttypmod) is distinct from (c.name, c.shown, c.typmod)
                or v.attcollation <> c.attcollation and c.attcollation <> 0
            )
    );
$$;
comment on function bds_registry.replaces_views(bds.entities) is
    'Whether the views of an entity can be replaced by those of its table as it is; else they are dropped and made anew';

create function bds_registry.lost_parent(this bds.entities)
    returns text
    language sql
    stable
    return (
        select e.name from bds.navigations n join bds.entities e on e.name = n.target
        where n.entity = (this).name and n.name = (this).parent_navigation and not n.many
            and not exists (select from pg_class c where c.oid = e.table_name)
    );
comment on function bds_registry.lost_parent(bds.entities) is 'The parent of an entity, if its table was dropped';

create function bds_registry.refusal(this bds.entities)
    returns text
    language plpgsql
    stable
as $$
declare
    obstacle text;
begin
    perform bds_registry.check_common_columns(this.table_name);
    perform bds_registry.check_columns(this.table_name);
    perform bds_registry.check_constraints(this.table_name);
    if not bds_registry.has_key(this.table_name) then
        obstacle := (select k.obstacle from bds_registry.key_of(this.table_name) k);
        if obstacle is not null then
            return format('%s has no primary key (company_id, id), and %s', this.table_name, obstacle);
        end if;
    end if;
    if this.parent_navigation is not null then
        -- its column may have another name by now
        this.parent_navigation := coalesce(
            (
                select n.reference
                from bds.fields f join bds_registry.fields_of(this.name, this.table_name) n on n.ordinal = f.ordinal
                where f.entity = this.name and f.reference = this.parent_navigation
            ),
            this.parent_navigation
        );
        if bds_registry.lost_parent(this) is not null and not exists (
            select from bds_registry.fields_of(this.name, this.table_name) f where f.reference = this.parent_navigation
        ) then
            return format('the table of its parent %s was dropped', bds_registry.lost_parent(this));
        end if;
    end if;
    perform bds_registry.check_references(this.table_name, this.name, this.parent_navigation);
    perform w.name from bds_registry.ways_of(this) w;
    if not bds_registry.replaces_views(this) then
        perform bds_registry.refuse_dependents(this.name);
    end if;
    return null;
exception when sqlstate 'BD005' then
    return sqlerrm;
end
$$;
comment on function bds_registry.refusal(bds.entities) is
    'Why the table of an entity cannot be registered again as it is, if only a person can change that';

create function bds_registry.mend(this bds.entities)
    returns text
    language sql
    stable
    return case when bds_registry.refusal(this) is null then bds_registry.register_statement(this) end;
comment on function bds_registry.mend(bds.entities) is
    'The statement that registers an entity again; null where bds.register would refuse its table, which is a problem of its own';

create function bds_registry.dropped(this bds.entities, out detail text, out mend text)
    returns record
    language sql
    stable
as $$
    with recursive children as (
        select n.target from bds.navigations n where n.entity = this.name and n.child and n.many
        union
        select n.target from children c join bds.navigations n on n.entity = c.target and n.child and n.many
    )
    select 'the table was dropped'
        || coalesce('; its child ' || c.standing || ' has a table: drop that, or unregister both: ' || s.text, ''),
        case when c.standing is null then s.text end
    from (
        select string_agg(quote_literal(e.name), ', ' order by e.ordinal),
            min(e.name) filter (where exists (select from pg_class t where t.oid = e.table_name))
        from children t join bds.entities e on e.name = t.target
    ) c (names, standing)
    cross join lateral (
        select case
            when c.names is null then format('select bds.unregister(%L)', this.name)
            -- children first; those of another problem may be gone when it runs
            else format(
                'select bds.unregister(e.name) from bds.entities e where e.name in (%s, %L) order by e.ordinal desc',
                c.names, this.name
            )
        end
    ) s (text);
$$;
comment on function bds_registry.dropped(bds.entities) is
    'What to do about an entity whose table was dropped, and the statement; null where one of its children has a table';
