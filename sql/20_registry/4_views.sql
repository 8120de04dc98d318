-- The views of an entity in the schemas api and my, with the comments of its table; 35_past makes those of schema past.

create function bds_registry.views_of(entity_name text)
    returns setof regclass
    language sql
    stable
as $$
    select to_regclass(format(v.name, entity_name))
    from unnest(array[
        'api.%I', 'my.%I', 'past.%I', 'past."%s_changed"', 'past."%s_unchanged"', 'past."%s_replaced"', 'past."%s_ends"',
        'past."%s_diff"', 'past."%s_present"', 'past."%s_deleted"', 'past."%s_versions"'
    ]) with ordinality as v (name, n)
    where to_regclass(format(v.name, entity_name)) is not null
    order by v.n;
$$;
comment on function bds_registry.views_of(text) is 'The views of an entity';

create function bds_registry.lock_views(entity_name text)
    returns void
    language plpgsql
as $$
declare
    view regclass;
begin
    -- Readers lock a view first, then its table: the other order would deadlock with them. LOCK TABLE of a view would lock the
    -- table before the next view; an alteration that changes nothing locks the view alone.
    for view in select v from bds_registry.views_of(entity_name) v loop
        execute format('alter view %s owner to bds_owner', view);
    end loop;
end
$$;
comment on function bds_registry.lock_views(text) is 'Locks the views of an entity, as readers do before they lock its table';

create function bds_registry.drop_views(entity_name text)
    returns void
    language plpgsql
as $$
declare
    view regclass;
begin
    for view in select v from bds_registry.views_of(entity_name) v loop
        execute format('drop view %s', view);
    end loop;
end
$$;
comment on function bds_registry.drop_views(text) is 'Drops the views of an entity';

create or replace function bds.drop_views(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from bds.entities e where e.name = entity_name) then
        raise exception using
            errcode = 'BD002', message = format('no such entity: %s', coalesce(quote_literal(entity_name), 'null'));
    end if;
    perform bds_registry.drop_views(entity_name);
end
$$;
comment on function bds.drop_views(text) is
    'Drops the views of an entity, which depend on the types of its columns: before alter table, and bds.register after it, in one '
    'transaction';

create function bds_registry.shown(this bds.fields, expression text)
    returns text
    language sql
    stable
as $$
    select case when a.atttypid = t.shown then expression
        else replace(replace(t.through, '{value}', expression), '{shown}', t.shown::text) end
    from bds_impl.types t
    join bds.entities e on e.name = this.entity
    join pg_attribute a on a.attrelid = e.table_name and a.attnum = this.ordinal
    where t.name = this.stored;
$$;
comment on function bds_registry.shown(bds.fields, text) is
    'The value of a column as views show it: texts as text, without domains';

create function bds_registry.install_views(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    columns text;
begin
    perform bds_registry.comment_columns(this);
    select string_agg(
        format('%s as %I', bds_registry.shown(f, quote_ident(f.column_name)), f.name), E',\n    ' order by f.ordinal
    ) into columns
    from bds.fields f
    where f.entity = this.name;
    -- select company_id,
    --     id as id,
    --     category_id as "categoryId"
    -- from data.products
    -- where company_id = current_setting('bds.company', true)
    --
    -- current_setting is called in the view itself: inside a function the planner would not see the company.
    perform bds_registry.make_view(format('api.%I', this.name), this, bds_impl.fill(
        E'as select company_id,\n    {columns}\nfrom {table}\nwhere company_id = current_setting(''bds.company'', true)',
        'columns', columns, 'table', this.table_name::text
    ));
    perform bds_registry.run(format('grant select on api.%I to bds_reader, bds_writer, bds_operator', this.name));
    -- A security barrier: no function of the reader sees a row before the view has filtered it.
    perform bds_registry.make_view(format('my.%I', this.name), this, bds_impl.fill(
        E'with (security_barrier) as select\n    {columns}\nfrom {table}\nwhere company_id = (\n'
            '    select l.company_id from bds.company_logins l where l.role_name = session_user\n)',
        'columns', columns, 'table', this.table_name::text
    ));
    perform bds_registry.run(format('grant select on my.%I to bds_analyst', this.name));
    perform bds_past.install_views(this);
end
$$;
comment on function bds_registry.install_views(bds.entities) is
    'Creates the views of an entity: api."<entity>", filtered to the company that the session has named, my."<entity>", filtered '
    'to the company that the login is bound to, and those of the past';

create function bds_registry.comment_columns(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    own record;
begin
    for own in
        select d.name, d.description
        from (values
            ('company_id', 'The company'), ('id', 'The row''s id, unique within the company'),
            ('updated_at', 'When the row last changed')
        ) d (name, description)
        join pg_attribute a on a.attrelid = this.table_name and a.attname = d.name
        where col_description(a.attrelid, a.attnum) is null
        order by a.attnum
    loop
        perform bds_registry.run(
            format('comment on column %s.%I is %L', this.table_name, own.name, own.description), is_mend => true
        );
    end loop;
end
$$;
comment on function bds_registry.comment_columns(bds.entities) is
    'Comments the columns that every entity has, unless they have a comment';

create function bds_registry.make_view(view text, this bds.entities, definition text)
    returns void
    language plpgsql
as $$
declare
    field record;
begin
    begin
        perform bds_registry.run(format('create or replace view %s %s', view, definition));
    exception when invalid_table_definition then  -- a column was dropped or moved
        perform bds_registry.refuse_dependents(this.name);
        perform bds_registry.run(format('drop view %s', view), is_mend => true);
        perform bds_registry.run(format('create or replace view %s %s', view, definition));
    end;
    perform bds_registry.run(format('alter view %s owner to bds_owner', view));
    perform bds_registry.revoke_all(view);
    perform bds_registry.run(format('comment on view %s is %L', view, obj_description(this.table_name, 'pg_class')));
    for field in
        select coalesce(f.name, a.attname) as name, col_description(this.table_name, a.attnum) as description
        from pg_attribute a
        left join bds.fields f on f.entity = this.name and f.ordinal = a.attnum
        where a.attrelid = this.table_name and a.attnum > 0
            and (f.name is not null or a.attname = 'company_id' and view !~ '^my[.]|^past[.].*_(diff|versions)"?$')
        order by a.attnum
    loop
        perform bds_registry.run(format('comment on column %s.%I is %L', view, field.name, field.description));
    end loop;
end
$$;
comment on function bds_registry.make_view(text, bds.entities, text) is
    'Creates a view of an entity, or replaces it, with the comments of the table';
