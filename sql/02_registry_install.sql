-- What bds.register makes of an entity and its table: the view, the policies, the checks; and how it is taken away again.

create or replace function bds.install_entity(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds.entities;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    perform bds.install_view(this);
    perform bds.install_policies(this);
    perform bds.install_checks(this);
    perform bds.install_triggers(this);
end
$$;
comment on function bds.install_entity(text) is 'Makes the view, the policies, the checks and the triggers of an entity';

create or replace function bds.install_view(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    definition text;
    field      record;
begin
    -- current_setting stands in the view itself: a function of ours would hide the company from the planner
    select format(
        E'select company_id,\n    %s\nfrom %s\nwhere company_id = current_setting(''bds.company'', true)',
        string_agg(format('%I as %I', f.column_name, f.name), E',\n    ' order by f.ordinal), this.table_name
    )
    into definition
    from bds.fields f
    where f.entity = this.name;

    begin
        execute format('create or replace view api.%I as %s', this.name, definition);
    exception when invalid_table_definition then  -- a column went or changed its place
        execute format('drop view api.%I', this.name);
        execute format('create view api.%I as %s', this.name, definition);
    end;
    execute format('alter view api.%I owner to bds_owner', this.name);
    execute format('grant select on api.%I to bds_reader, bds_writer, bds_operator', this.name);
    execute format('comment on view api.%I is %L', this.name, obj_description(this.table_name, 'pg_class'));
    for field in
        select f.name, col_description(this.table_name, f.ordinal) as description from bds.fields f where f.entity = this.name
    loop
        execute format('comment on column api.%I.%I is %L', this.name, field.name, field.description);
    end loop;
end
$$;
comment on function bds.install_view(bds.entities) is 'Makes api."<entity>", filtered to the company that the session has named';

create or replace function bds.install_policies(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set client_min_messages = warning  -- that a policy to be replaced was not there
as $$
begin
    execute format('alter table %s enable row level security', this.table_name);
    execute format('drop policy if exists own_company on %s', this.table_name);
    execute format('drop policy if exists every_company on %s', this.table_name);
    execute format(
        'create policy own_company on %s to bds_writer using (company_id = (select current_setting(''bds.company'', true)))',
        this.table_name
    );
    execute format('create policy every_company on %s to bds_operator using (true)', this.table_name);
    execute format('revoke all on %s from public, bds_reader', this.table_name);
    execute format('grant select, insert, update, delete, maintain on %s to bds_writer, bds_operator', this.table_name);
    -- imports take the ids of new rows ahead
    execute format('grant usage on sequence %s to bds_writer, bds_operator', pg_get_serial_sequence(this.table_name::text, 'id'));
end
$$;
comment on function bds.install_policies(bds.entities) is 'Row level security and grants of a table: writers see their own company alone';

create or replace function bds.install_checks(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    field     record;
    condition text;
    name      text;
begin
    for field in
        select f.column_name, f.type from bds.fields f
        where f.entity = this.name and f.name <> 'updatedAt' and f.type in ('numeric', 'float8', 'date', 'timestamptz')
    loop
        name := left(field.column_name, 53) || '_is_finite';
        continue when exists (select from pg_constraint k where k.conrelid = this.table_name and k.conname = name);
        -- JSON has no number for NaN (which is above infinity here), its readers no date outside of these years
        condition := case field.type
            when 'numeric' then '%3$I > ''-infinity''::numeric and %3$I < ''infinity''::numeric'
            when 'float8' then '%3$I > ''-infinity''::float8 and %3$I < ''infinity''::float8'
            when 'date' then '%3$I between date ''0001-01-01'' and date ''9999-12-31'''
            else '%3$I >= timestamptz ''0001-01-01 00:00:00+00'' and %3$I < timestamptz ''10000-01-01 00:00:00+00'''
        end;
        execute format('alter table %s add constraint %I check (' || condition || ') not valid', this.table_name, name, field.column_name);
        begin
            execute format('alter table %s validate constraint %I', this.table_name, name);
        exception when check_violation then
            raise warning using
                message = format('%s has rows whose %I has no place in JSON; they are shown as text or null', this.table_name, field.column_name),
                hint = format('mend them, then: alter table %s validate constraint %I', this.table_name, name);
        end;
    end loop;
end
$$;
comment on function bds.install_checks(bds.entities) is 'CHECK constraints against values that JSON cannot carry: NaN, infinity, dates outside of the years 1 to 9999';

create or replace function bds.unregister(entity text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     bds.entities;
    child    text;
    referrer text;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator unregisters entities';
    end if;
    lock table bds.entities in share row exclusive mode;
    select e.* into this from bds.entities e where e.name = entity;
    if not found then
        raise exception using errcode = 'BD002', message = format('there is no entity %s', coalesce(quote_literal(entity), 'null'));
    end if;
    select n.target into child from bds.navigations n where n.entity = unregister.entity and n.child and n.many limit 1;
    if found then
        raise exception using
            errcode = 'BD004', message = format('%s is content of %s', child, entity), hint = format('bds.unregister(%L) first', child);
    end if;
    execute format('drop view if exists api.%I', entity);  -- before the table is touched, as readers lock them
    if exists (select from pg_class c where c.oid = this.table_name) then
        perform bds.uninstall_table(this.table_name);
    end if;
    execute format(
        'drop function if exists bds_log.%I, bds_log.%I, bds_log.%I, bds_log.%I',
        entity || '_stamp', entity || '_insert', entity || '_update', entity || '_delete'
    );
    delete from bds.entities e where e.name = entity;
    -- what was a reference to it is a plain field now
    for referrer in
        select e.name from bds.entities e
        where exists (
            select from bds.fields f
            where f.entity = e.name and f.reference is not null
                and not exists (select from bds.navigations n where n.entity = e.name and n.name = f.reference and not n.many)
        )
    loop
        perform bds.describe_fields(e.name, e.table_name), bds.describe_navigations(e.name) from bds.entities e where e.name = referrer;
    end loop;
    perform pg_notify('bds_catalog', '');
end
$$;
comment on function bds.unregister(text) is
    'The reverse of bds.register: the API no longer has the entity; its table and rows stay, and so does what the change log has of it';

create or replace function bds.uninstall_table(table_name regclass)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set client_min_messages = warning
as $$
declare
    made text;
begin
    for made in select t.tgname from pg_trigger t where t.tgrelid = table_name and t.tgname ~ '^bds_' and not t.tgisinternal loop
        execute format('drop trigger %I on %s', made, table_name);
    end loop;
    for made in select k.conname from pg_constraint k where k.conrelid = table_name and k.contype = 'c' and k.conname ~ '_is_finite$' loop
        execute format('alter table %s drop constraint %I', table_name, made);
    end loop;
    execute format('drop policy if exists own_company on %s', table_name);
    execute format('drop policy if exists every_company on %s', table_name);
    execute format('alter table %s disable row level security', table_name);
    execute format('revoke all on %s from bds_writer, bds_operator', table_name);
end
$$;
comment on function bds.uninstall_table(regclass) is 'Takes from a table what bds.register has made on it';

create or replace function bds.refresh_entities()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- a table that was dropped takes its view along; its entity stays in the registry until it is deleted there
    perform bds.install_entity(e.name) from bds.entities e
    where exists (select from pg_class c where c.oid = e.table_name) order by e.ordinal;
end
$$;
comment on function bds.refresh_entities() is 'Makes views, policies, checks and triggers of every entity anew, after their generators changed';
