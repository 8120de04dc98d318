-- The columns of registered tables over time: the names and types under which the change log was written; dropping a column.

create function bds_registry.describe_columns(entity_name text, table_name regclass, is_another boolean)
    returns void
    language plpgsql
as $$
declare
    at       timestamptz := clock_timestamp();
    has_past boolean;
begin
    perform bds_registry.renumber_columns(entity_name);
    if is_another then
        -- records of another table under the same name are of other rows, even if their ids are used again
        delete from bds.column_history h where h.entity = entity_name;
        execute format('select exists (select 1 from %s) or exists (select 1 from bds.clocks c where c.positions ? $1)', table_name)
        into has_past using entity_name;
        at := case when has_past then at else '-infinity' end;
    end if;
    update bds.column_history h
    set until = at,
        is_lost = not exists (select from bds_registry.columns_of(table_name) a where a.attnum = h.ordinal)
    where h.entity = entity_name and h.until = 'infinity' and (h.ordinal, h.column_name, h.type, h.expression) not in (
        select a.attnum, a.attname, a.type, a.expression from bds_registry.columns_of(table_name) a
    );
    insert into bds.column_history (entity, ordinal, since, column_name, type, expression)
    select entity_name, a.attnum, at, a.attname, a.type, a.expression
    from bds_registry.columns_of(table_name) a
    where (a.attnum, a.attname, a.type, a.expression) not in (
        select h.ordinal, h.column_name, h.type, h.expression
        from bds.column_history h
        where h.entity = entity_name and h.until = 'infinity'
    );
    -- a change of a type is known from its rows
    update bds.entities e set rewritten_at = clock_timestamp()
    where e.name = entity_name and not is_another and bds_registry.is_rewritten(e) and not exists (
        select from bds.column_history h join bds.column_history n using (entity, ordinal)
        where h.entity = entity_name and h.until = at and n.since = at and (n.type, n.expression) <> (h.type, h.expression)
    );
end
$$;
comment on function bds_registry.describe_columns(text, regclass, boolean) is
    'Stores the names and types of columns that have changed since the last registration. is_another: the entity had another '
    'table, or none';

create function bds_registry.parents()
    returns jsonb
    language sql
    stable
    return (
        select jsonb_object_agg(e.name, jsonb_build_array(e.table_name::oid, f.ordinal, p.name, p.table_name::oid))
        from bds.entities e
        left join bds.fields f on f.entity = e.name and f.reference = e.parent_navigation
        left join bds.navigations n on n.entity = e.name and n.name = e.parent_navigation and not n.many
        left join bds.entities p on p.name = n.target
    );
comment on function bds_registry.parents() is
    'Of each entity its table and, of a child, the number of the column that names the parent, the parent and its table';

create function bds_registry.note_parents(before jsonb)
    returns void
    language sql
as $$
    update bds.entities e
    set parent_since = case
        when p.now ->> 2 is null then null
        -- older changes are those of another table
        when p.now -> 0 is distinct from before -> e.name -> 0
            then (select min(h.since) from bds.column_history h where h.entity = e.name)
        else clock_timestamp()
    end
    from jsonb_each(bds_registry.parents()) as p (name, now)
    where p.name = e.name and p.now is distinct from before -> e.name;
$$;
comment on function bds_registry.note_parents(jsonb) is
    'Notes which entities have become children, or children of another parent, since bds_registry.parents returned this';

create function bds_registry.register_statement(this bds.entities, function text default 'bds.register')
    returns text
    language sql
    stable
    return format(
        'select %s(%L, entity => %L%s, singular => %L)',
        function, this.table_name::regclass, this.name,
        (
            -- the column may have another name by now, or be another one of its name
            select format(', parent => %L, collection => %L', n.column_name, this.collection)
            from bds_registry.fields_of(this.name, this.table_name) n
            left join bds.fields f on f.entity = this.name and f.ordinal = n.ordinal
            where this.parent_navigation in (f.reference, n.reference)
            order by f.reference = this.parent_navigation desc nulls last
            limit 1
        ),
        this.singular
    );
comment on function bds_registry.register_statement(bds.entities, text) is
    'The statement that registers an entity again, with the parameters of its last registration';

create or replace function bds.drop_column(entity text, column_name name)
    returns bigint
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_registry.patiently(
        'select bds_registry.drop_column_now($1[1], $1[2]::name)', array[entity, column_name::text]
    )::bigint;
$$;
comment on function bds.drop_column(text, name) is
    'Drops a column of an entity''s table so that history keeps its values: each becomes the old value of an update record. '
    'Registers the table again; returns the number of records. Raises BD004 if rows keep values, as a trigger may cause';

create function bds_registry.drop_column_now(entity text, column_name name)
    returns bigint
    language plpgsql
as $$
#variable_conflict use_variable
declare
    this    bds.entities;
    field   bds.fields;
    again   text;
    records bigint;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator drops columns';
    end if;
    select e.* into this from bds.entities e where e.name = entity;
    select f.* into field from bds.fields f where f.entity = entity and f.column_name = column_name;
    if field is null then
        raise exception using
            errcode = 'BD002',
            message = case when this is null
                then format('no such entity: %s', coalesce(quote_literal(entity), 'null'))
                else format('%s has no registered column %s', this.table_name, coalesce(quote_ident(column_name), 'null'))
            end;
    elsif not exists (select from pg_attribute a where a.attrelid = this.table_name and a.attname = column_name) then
        raise exception using
            errcode = 'BD002',
            message = format('%s has no column %I any more', this.table_name, column_name),
            hint = bds_registry.register_statement(this);
    elsif field.name in ('id', 'updatedAt') or field.reference = this.parent_navigation then
        raise exception using
            errcode = 'BD004',
            message = format('column %s.%I cannot be dropped while %s is an entity', this.table_name, column_name, entity);
    end if;
    perform bds_registry.lock_for_drop(this, field);
    again := bds_registry.register_statement(this, 'bds_registry.register_now');
    if field.generated then  -- it becomes a plain column: only the values of those are compared and logged
        execute format('alter table %s alter column %I drop expression', this.table_name, column_name);
        execute again;
    end if;
    records := bds_registry.empty_column(this, field);
    perform bds_registry.drop_views(entity);
    execute format('alter table %s drop column %I', this.table_name, column_name);
    execute again;
    update bds.column_history h set is_lost = false where h.entity = entity and h.ordinal = field.ordinal;
    return records;
end
$$;
comment on function bds_registry.drop_column_now(text, name) is 'Does what bds.drop_column promises, once it has the locks';

create function bds_registry.lock_for_drop(this bds.entities, field bds.fields)
    returns void
    language plpgsql
as $$
declare
    locked  regclass;
    company text;
begin
    lock table bds.entities in share row exclusive mode;
    perform bds_registry.lock_views(this.name);
    execute format('lock table %s in access exclusive mode', this.table_name);
    for locked in  -- to drop a foreign key is to drop triggers of the table that it refers to
        select distinct k.confrelid::regclass from pg_constraint k
        where k.conrelid = this.table_name and k.contype = 'f' and field.ordinal = any (k.conkey)
    loop
        execute format('lock table %s in access exclusive mode', locked);
    end loop;
    -- Turns come last: a session that waits for one has the table locked.
    for company in
        execute format('select distinct company_id from %s where %I is not null order by 1', this.table_name, field.column_name)
    loop
        perform bds.lock_company(company);
    end loop;
end
$$;
comment on function bds_registry.lock_for_drop(bds.entities, bds.fields) is
    'Takes the locks that dropping a column needs: of the views, tables, and the turns of companies with values';

create function bds_registry.empty_column(this bds.entities, field bds.fields)
    returns bigint
    language plpgsql
as $$
declare
    named   text := coalesce(current_setting('bds.company', true), '');
    company text;
    obstacle name;
    emptied bigint;
    total   bigint := 0;
begin
    execute format('alter table %s alter column %I drop not null', this.table_name, field.column_name);
    for obstacle in
        select k.conname from pg_constraint k
        where k.conrelid = this.table_name and k.contype in ('c', 'f') and field.ordinal = any (k.conkey)
    loop
        execute format('alter table %s drop constraint %I', this.table_name, obstacle);
    end loop;
    for company in
        execute format('select distinct company_id from %s where %I is not null order by 1', this.table_name, field.column_name)
    loop
        perform set_config('bds.company', company, true);
        execute format(
            'update %s set %I = null where company_id = $1 and %2$I is not null', this.table_name, field.column_name
        ) using company;
        get diagnostics emptied = row_count;
        total := total + emptied;
    end loop;
    perform set_config('bds.company', named, true);
    perform bds_registry.require_empty(this, field);
    return total;
end
$$;
comment on function bds_registry.empty_column(bds.entities, bds.fields) is
    'Sets a column that is about to be dropped to null, so that its values are logged; drops the constraints over it. Raises BD004 '
    'if rows keep values';

create function bds_registry.require_empty(this bds.entities, field bds.fields)
    returns void
    language plpgsql
as $$
declare
    kept bigint;
begin
    execute format('select count(*) from %s where %I is not null', this.table_name, field.column_name) into kept;
    if kept > 0 then
        raise exception using
            errcode = 'BD004',
            message = format(
                'column %s.%I has values of %s after it was set to null: it is not dropped, because they would be lost',
                this.table_name, field.column_name, case kept when 1 then '1 row' else kept || ' rows' end
            ),
            hint = (
                select 'a trigger has set them again or has skipped the update: ' || string_agg(quote_ident(t.tgname), ', ')
                from pg_trigger t
                where t.tgrelid = this.table_name and not t.tgisinternal and t.tgname !~ '^~?bds_' and t.tgenabled in ('O', 'A')
                    and t.tgtype & 16 > 0  -- of updates
            );
    end if;
end
$$;
comment on function bds_registry.require_empty(bds.entities, bds.fields) is
    'Raises BD004, with the triggers that may be the cause, if rows have values of a column that was set to null';
