-- What bds.register makes of an entity and its table: the view, the policies, the checks, an index; and how it is taken away again.

create function bds_registry.install_entity(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds.entities;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    perform bds_registry.install_view(this);
    perform bds_registry.install_policies(this);
    perform bds_registry.install_checks(this);
    perform bds_registry.install_index(this);
    perform bds_change_log.install_triggers(this);
end
$$;
comment on function bds_registry.install_entity(text) is 'Makes the view, the policies, the checks, the index by time and the triggers of an entity';

create function bds_registry.install_view(this bds.entities)
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
comment on function bds_registry.install_view(bds.entities) is 'Makes api."<entity>", filtered to the company that the session has named';

create function bds_registry.install_policies(this bds.entities)
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
comment on function bds_registry.install_policies(bds.entities) is 'Row level security and grants of a table: writers see their own company alone';

create function bds_registry.install_checks(this bds.entities)
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
comment on function bds_registry.install_checks(bds.entities) is 'CHECK constraints against values that JSON cannot carry: NaN, infinity, dates outside of the years 1 to 9999';

create function bds_registry.install_index(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
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
        execute format('create index %I on %s (company_id, updated_at)', this.name || '_bds_updated_at', this.table_name);
    end if;
end
$$;
comment on function bds_registry.install_index(bds.entities) is 'Makes the index that polling by updatedAt reads, unless the table has one';

create function bds_registry.uninstall_table(table_name regclass)
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
    for made in
        select c.oid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where i.indrelid = table_name and c.relname ~ '_bds_updated_at$'
    loop
        execute format('drop index %s', made);
    end loop;
    execute format('drop policy if exists own_company on %s', table_name);
    execute format('drop policy if exists every_company on %s', table_name);
    execute format('alter table %s disable row level security', table_name);
    execute format('revoke all on %s from bds_writer, bds_operator', table_name);
end
$$;
comment on function bds_registry.uninstall_table(regclass) is 'Takes from a table what bds.register has made on it';
