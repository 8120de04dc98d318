-- Makes the parts of an entity: policies and index here, checks in 3_checks.sql, views in 4_views.sql, triggers in 30_change_log.
-- Removes them again.

create function bds_registry.parts()
    returns text[]
    language sql
    immutable
    return array[
        'functions',  -- locks nothing
        'views',      -- locks the views
        'table'       -- locks the table: policies, checks, index, triggers
    ];
comment on function bds_registry.parts() is 'The parts of an entity, in the order in which they are installed';

create function bds_registry.install_part(entity_name text, part text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    statements text;
begin
    lock table bds.entities in share row exclusive mode;  -- as bds.register does
    statements := bds_registry.statements(entity_name, part, are_run => true);
    insert into bds.generated as g (entity, part, fingerprint, objects)
    select e.name, part, md5(statements), bds_registry.made_objects(e, part, statements)
    from bds.entities e
    where e.name = entity_name
    on conflict on constraint generated_pkey do update set fingerprint = excluded.fingerprint, objects = excluded.objects;
end
$$;
comment on function bds_registry.install_part(text, text) is
    'Installs a part of an entity; stores the fingerprint of its statements, and the objects that they made';

create function bds_registry.generate(entity_name text, part text)
    returns void
    language plpgsql
as $$
declare
    this bds.entities;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    case part
        when 'functions' then
            perform bds_change_log.make_functions(this);
        when 'views' then
            perform bds_registry.install_views(this);
        when 'table' then
            perform bds_registry.install_policies(this);
            perform bds_registry.install_checks(this);
            perform bds_registry.install_index(this);
            perform bds_change_log.install_triggers(this);
    end case;
end
$$;
comment on function bds_registry.generate(text, text) is 'Makes the statements of a part of an entity, for bds_registry.statements';

create function bds_registry.run(statement text, is_mend boolean default false)
    returns void
    language plpgsql
as $$
begin
    if current_setting('bds.runs')::boolean then
        execute statement;
    end if;
    if not (is_mend and current_setting('bds.runs')::boolean) then
        perform set_config('bds.noted', current_setting('bds.noted') || btrim(statement, E'\n ;') || E';\n\n', true);
    end if;
end
$$;
comment on function bds_registry.run(text, boolean) is
    'Notes a generated statement, and runs it if bds_registry.statements, which calls bds_registry.generate, runs them. is_mend: '
    'it is due only until it has run, so it is not noted then: the fingerprint is that of the next time';

create function bds_registry.where_allowed(statement text)
    returns text
    language sql
    immutable
    return format('do %L', 'begin ' || statement || '; exception when insufficient_privilege then null; end');
comment on function bds_registry.where_allowed(text) is
    'The statement, as one that does nothing where the caller may not run it: a sequence that a default uses may be of another '
    'owner, who grants it, as an import that needs it tells';

create function bds_registry.statements(entity_name text, part text, are_run boolean default false)
    returns text
    language plpgsql
as $$
begin
    -- whatever the session has set
    perform set_config('bds.runs', are_run::text, true), set_config('bds.noted', format(E'-- %s of %s\n', part, entity_name), true);
    perform bds_registry.generate(entity_name, part);
    return current_setting('bds.noted');
end
$$;
comment on function bds_registry.statements(text, text, boolean) is
    'The statements that install a part of an entity. If they are run, without those that are due only once, such as an index';

create function bds_registry.fingerprint(entity_name text, part text)
    returns text
    language plpgsql
as $$
begin
    return md5(bds_registry.statements(entity_name, part));
exception when others then  -- of a table that was altered: to install the part tells the reason
    return '';
end
$$;
comment on function bds_registry.fingerprint(text, text) is
    'A hash of the statements that would install a part of an entity now; empty if they cannot be made';

create function bds_registry.revoke_all(relation text)
    returns void
    language sql
as $$
    select bds_registry.run(format(
        'revoke all on %s from public, %s cascade', relation, (select string_agg(r, ', ') from unnest((bds_impl.roles())[2:]) r)
    ));
$$;
comment on function bds_registry.revoke_all(text) is
    'Takes all rights from the service''s roles, before they are given those that they are to have, and from whom they gave them '
    'to';

create function bds_registry.install_entity(entity_name text)
    returns void
    language sql
as $$
    -- this is the table, whatever it was called
    update bds.generated g set objects = g.objects - 'name:' where g.entity = entity_name;
    select bds_registry.install_part(entity_name, p.name) from unnest(bds_registry.parts()) p (name);
$$;
comment on function bds_registry.install_entity(text) is
    'Creates the functions, views, policies, checks, index and triggers of an entity';

create function bds_registry.due_parts()
    returns table (entity text, part text)
    language sql
    volatile
    set search_path = pg_catalog, pg_temp
as $$
    -- the database may have been restored
    select bds_registry.renumber_columns(e.name)
    from bds.entities e where exists (select from pg_class c where c.oid = e.table_name);
    -- DROP TABLE drops the view as well; the entity stays in the registry until bds.unregister
    select e.name, p.name
    from bds.entities e
    cross join unnest(bds_registry.parts()) with ordinality as p (name, n)
    left join bds.generated g on g.entity = e.name and g.part = p.name
    where exists (select from pg_class c where c.oid = e.table_name)
        and (
            g.fingerprint is distinct from bds_registry.fingerprint(e.name, p.name)
            or g.objects ->> 'server:' is distinct from bds_impl.server()
        )
    order by e.ordinal, p.n;
$$;
comment on function bds_registry.due_parts() is
    'The parts of entities whose statements have changed since they were installed, or that another version of PostgreSQL recorded';

create function bds_registry.install_policies(this bds.entities)
    returns void
    language plpgsql
    set client_min_messages = warning  -- without a notice for each policy that does not exist yet
as $$
begin
    perform bds_registry.run(format('alter table %s enable row level security', this.table_name));
    perform bds_registry.run(format('drop policy if exists own_company on %s', this.table_name));
    perform bds_registry.run(format('drop policy if exists every_company on %s', this.table_name));
    perform bds_registry.run(format(
        'create policy own_company on %s to bds_writer using (company_id = current_setting(''bds.company'', true))',
        this.table_name
    ));
    perform bds_registry.run(format('create policy every_company on %s to bds_operator using (true)', this.table_name));
    perform bds_registry.revoke_all(this.table_name::text);
    perform bds_registry.revoke_all('sequence ' || s) from bds_registry.sequence_of(this.table_name) s where s is not null;
    perform bds_registry.run(format('grant select, insert, update, delete on %s to bds_writer, bds_operator', this.table_name));
    -- imports analyze the tables that they have filled; the privilege also allows rewriting a table, so writers do not have it
    perform bds_registry.run(format('grant maintain on %s to bds_importer, bds_operator', this.table_name));
    -- imports take ids before they insert
    perform bds_registry.run('grant usage on sequence ' || s || ' to bds_writer, bds_operator')
    from bds_registry.sequence_of(this.table_name) s
    where s is not null;  -- a table may have lost it, and is upgraded like the others
    -- and evaluate defaults; the owner may use such a sequence elsewhere, so no right is taken
    perform bds_registry.run(bds_registry.where_allowed('grant usage on sequence ' || s || ' to bds_writer, bds_operator'))
    from bds_registry.other_sequences(this.table_name) s;
end
$$;
comment on function bds_registry.install_policies(bds.entities) is
    'Sets row level security and grants of a table: a writer sees only rows of the company that its session has named';

create function bds_registry.install_index(this bds.entities)
    returns void
    language plpgsql
as $$
begin
    if not exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
        where i.indrelid = this.table_name and i.indisvalid and i.indpred is null and i.indnatts >= 2 and m.amname = 'btree'
            and array(
                select a.attname from generate_series(0, 1) n
                join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[n]
                order by n
            ) = array['company_id', 'updated_at']::name[]
    ) then
        perform bds_registry.run(format(
            'create index %I on %s (company_id, updated_at)', this.name || '_bds_updated_at', this.table_name
        ), is_mend => true);
    end if;
end
$$;
comment on function bds_registry.install_index(bds.entities) is
    'Creates the index for polling by updatedAt, unless the table has one';

create function bds_registry.uninstall_table(table_name regclass)
    returns void
    language plpgsql
    set client_min_messages = warning
as $$
declare
    made text;
begin
    for made in select t.tgname from pg_trigger t where t.tgrelid = table_name and t.tgname ~ '^~?bds_' and not t.tgisinternal loop
        execute format('drop trigger %I on %s', made, table_name);
    end loop;
    for made in select c.standing from bds_registry.finite_checks(table_name) c where c.standing = c.name loop
        execute format('alter table %s drop constraint %I', table_name, made);
    end loop;
    for made in
        select c.oid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indrelid = table_name and c.relname ~ '_bds_updated_at$'
    loop
        execute format('drop index %s', made);
    end loop;
    execute format('drop policy if exists own_company on %s', table_name);
    execute format('drop policy if exists every_company on %s', table_name);
    execute format('alter table %s disable row level security', table_name);
    execute format('revoke all on %s from bds_importer, bds_operator, bds_writer', table_name);
    for made in
        select s.name
        from (
            select bds_registry.sequence_of(uninstall_table.table_name)
            union all
            select * from bds_registry.other_sequences(uninstall_table.table_name)
        ) as s (name)
        where s.name is not null and not exists (  -- another entity may draw from it
            select from bds.entities e
            where e.table_name <> uninstall_table.table_name and exists (select from pg_class c where c.oid = e.table_name) and (
                s.name = bds_registry.sequence_of(e.table_name)
                or s.name in (select o from bds_registry.other_sequences(e.table_name) o)
            )
        )
    loop
        execute bds_registry.where_allowed(
            format('revoke all on sequence %s from bds_importer, bds_operator, bds_writer', made));
    end loop;
end
$$;
comment on function bds_registry.uninstall_table(regclass) is
    'Drops the triggers, constraints, index and policies that bds.register has created on a table';
