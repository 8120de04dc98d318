-- The triggers of a table, generated: functions with its columns spelled out are three times as fast as one that looks them up.

create function bds_change_log.install_triggers(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    operation text;
    tables    text;
begin
    perform bds_change_log.make_row_function(this);
    perform bds_change_log.make_log_function(this, operations.name) from unnest(array['insert', 'update', 'delete']) as operations (name);

    execute format(
        'create or replace trigger bds_1_lock before insert or update or delete on %s for each statement '
        'execute function bds_log.lock_named_company()',
        this.table_name
    );
    execute format(
        'create or replace trigger bds_1_lock_old_row before delete on %s for each row '
        'when (old.company_id is distinct from current_setting(''bds.company'', true)) execute function bds_log.lock_old_row_company()',
        this.table_name
    );
    execute format('alter table %s alter column updated_at set default clock_timestamp()', this.table_name);
    -- New rows are stamped by that default.  The trigger is for those that give a time of their own, for a session that has named no
    -- company, and for a clock that went back.
    execute format(
        'create or replace trigger bds_2_stamp_new before insert on %s for each row '
        'when (new.company_id is distinct from current_setting(''bds.company'', true) '
        'or coalesce(new.updated_at not between statement_timestamp() and clock_timestamp(), true) '
        'or current_setting(''bds.floor'', true) <> '''') execute function bds_log.%I()',
        this.table_name, this.name || '_stamp'
    );
    execute format(
        'create or replace trigger bds_2_stamp before update on %s for each row execute function bds_log.%I()',
        this.table_name, this.name || '_stamp'
    );
    execute format(
        'create or replace trigger bds_truncate before truncate on %s for each statement execute function bds_log.refuse_truncate()',
        this.table_name
    );
    foreach operation in array array['insert', 'update', 'delete'] loop
        tables := case operation
            when 'insert' then 'new table as new_rows'
            when 'update' then 'old table as old_rows new table as new_rows'
            else 'old table as old_rows'
        end;
        execute format(
            'create or replace trigger bds_log_%1$s after %1$s on %2$s referencing %3$s for each statement execute function bds_log.%4$I()',
            operation, this.table_name, tables, this.name || '_' || operation
        );
    end loop;
end
$$;
comment on function bds_change_log.install_triggers(bds.entities) is 'Makes the triggers that lock, stamp and log the rows of an entity';

create function bds_change_log.make_row_function(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    generated text;
begin
    -- a generated column has no new value yet when this trigger looks at it
    select string_agg(format('        new.%1$I := old.%1$I;', f.column_name), E'\n') into generated
    from bds.fields f
    where f.entity = this.name and f.generated;

    execute format(
        $body$
create or replace function bds_log.%I() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $function$
begin
    if new.company_id is distinct from current_setting('bds.company', true) then
        perform bds_change_log.lock_company_of_row(new.company_id, tg_op);
    end if;
    if tg_op = 'UPDATE' then
        new.updated_at := old.updated_at;
%s
        if new is not distinct from old
            and (coalesce(current_setting('bds.touching', true), '') = '' or pg_trigger_depth() < 2)
        then
            return null;
        elsif new.company_id <> old.company_id or new.id <> old.id then
            raise exception using errcode = 'BD004', message = 'a row keeps its company_id and its id';
        end if;
    end if;
    new.updated_at := case
        when current_setting('bds.floor', true) <> '' then greatest(clock_timestamp(), bds_change_log.floor_of(new.company_id))
        else clock_timestamp()
    end;
    return new;
end
$function$
        $body$,
        this.name || '_stamp', coalesce(generated, '')
    );
    execute format('revoke all on function bds_log.%I() from public', this.name || '_stamp');
    execute format('alter function bds_log.%I() owner to bds_owner', this.name || '_stamp');
end
$$;
comment on function bds_change_log.make_row_function(bds.entities) is 'Makes the row trigger: drops updates that change nothing, stamps the rest';

create function bds_change_log.make_log_function(this bds.entities, operation text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- rows that the statement has left, or, of a delete, taken
    rows_of      text := case operation when 'delete' then 'old_rows' else 'new_rows' end;
    source       text := rows_of || ' r';
    old_value    text := 'null';
    last_update  text := 'null';
    collections  text := 'null';
    touch        text := '';
    -- A plan made for one row is kept for a million, and the two transition tables look alike: a nested loop between them is a disaster.
    hash         text := '';
    probe        text := '';
begin
    if operation = 'update' then
        source := 'new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id';
        last_update := 'o.updated_at';
        hash := $sql$perform set_config('enable_nestloop', 'off', true);$sql$ || E'\n        ';
        probe := E'\n        ' || $sql$perform set_config('enable_nestloop', 'on', true);$sql$;
        collections := $sql$case when touching <> '' then array[touching] end$sql$;
        -- a table that has no column of its own has no old values either
        select coalesce(E'json_object(\n                ' || string_agg(
            -- an old value that was null is kept as null, a column that did not change not at all
            format(
                $sql$%L : case when o.%2$I is distinct from r.%2$I then coalesce(to_json(o.%2$I), 'null'::json) end$sql$,
                f.name, f.column_name
            ),
            E',\n                ' order by f.ordinal
        ) || E'\n                absent on null returning json\n            )::jsonb', '''{}''::jsonb')
        into old_value
        from bds.fields f
        where f.entity = this.name and f.name not in ('id', 'updatedAt');
    elsif operation = 'delete' then
        select format(E'json_object(\n                %s\n                returning json\n            )::jsonb', string_agg(
            format('%L : r.%I', f.name, f.column_name), E',\n                ' order by f.ordinal
        ))
        into old_value
        from bds.fields f
        where f.entity = this.name;
    end if;
    if this.parent_navigation is not null then
        touch := bds_change_log.touch_statement(this, operation);
    end if;

    execute format(
        $body$
create or replace function bds_log.%1$I() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- old values are kept as they are, whatever the session's settings print
set timezone = 'UTC'
set extra_float_digits = 1
set enable_nestloop = on
set enable_hashjoin = on
as $function$
#variable_conflict use_variable
declare
    company    text;
    last       text;
    changes    bigint;
    oldest     timestamptz;
    newest     timestamptz;
    base       bigint;
    touching   text := case when pg_trigger_depth() > 1 then current_setting('bds.touching', true) else '' end;
    at         timestamptz;
    actor      text := coalesce(nullif(current_setting('bds.actor', true), ''), session_user);
    change_set uuid := nullif(current_setting('bds.change_set', true), '')::uuid;
    parents    bigint[];
    stamped    bigint[];
    floor      timestamptz;
begin
    select min(r.company_id collate "C"), max(r.company_id collate "C"), count(*), min(r.updated_at), max(r.updated_at)
    into company, last, changes, oldest, newest
    from %2$s r;
    if changes = 1 then
        -- what follows, without what it takes to join and number many rows
        base := bds_change_log.advance(company, %3$L, 1, %4$s);
        at := greatest(clock_timestamp(), %5$s);
        insert into bds.change_log (%6$s)
        select company, base + 1, %7$s
        from %8$s;%11$s
        return null;
    end if;
    while company is not null loop
        if company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from %2$s r where r.company_id = company;
        end if;
        base := bds_change_log.advance(company, %3$L, changes, %4$s);
        at := greatest(clock_timestamp(), %5$s);
        %12$sinsert into bds.change_log (%6$s)
        select company, base + row_number() over (%9$s), %7$s
        from %10$s
        where r.company_id = company;%13$s%11$s
        exit when company = last;
        select min(r.company_id collate "C") into company from %2$s r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$
        $body$,
        this.name || '_' || operation,
        rows_of,
        this.name,
        case operation when 'delete' then 'null, null' else 'oldest, newest' end,
        case operation when 'delete' then 'null' else 'newest' end,
        'company_id, id, entity, row_id, operation, created_at, transaction_id, actor, change_set_id, last_updated_at, collections, old',
        format(
            E'%L, r.id, %L, at, pg_current_xact_id(), actor, change_set, %s, %s,\n            %s',
            this.name, case operation when 'insert' then 'create' else operation end, last_update, collections, old_value
        ),
        case operation when 'update' then 'new_rows r, old_rows o' else rows_of || ' r' end,
        case operation when 'update' then 'order by r.id' else '' end,  -- new and old rows come in the statement's order
        source, touch, hash, probe
    );
    execute format('revoke all on function bds_log.%I() from public', this.name || '_' || operation);
    execute format('alter function bds_log.%I() owner to bds_owner', this.name || '_' || operation);
end
$$;
comment on function bds_change_log.make_log_function(bds.entities, text) is 'Makes the statement trigger that logs the inserts, updates or deletes of an entity';

create function bds_change_log.touch_statement(child bds.entities, operation text)
    returns text
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent     bds.entities;
    key_column name;
    keys       text;
begin
    select e.* into strict parent
    from bds.navigations n join bds.entities e on e.name = n.target
    where n.entity = child.name and n.name = child.parent_navigation;
    select f.column_name into strict key_column
    from bds.fields f
    where f.entity = child.name and f.reference = child.parent_navigation;

    -- a child that moved touches the parent that it left as well
    select string_agg(format('select distinct t.%I from %s t where t.company_id = company', key_column, t), ' union ') into keys
    from unnest(case operation
        when 'insert' then array['new_rows'] when 'delete' then array['old_rows'] else array['new_rows', 'old_rows']
    end) t;
    return format(
        $sql$

        -- The parents change with their content.  The company is locked: a parent stamped below the floor has no record of ours.
        -- Of arrays the planner expects ten elements: it probes the key for each, where `= any` would search the array for each parent.
        floor := bds_change_log.turn_floor(company);
        parents := array(%3$s);
        select
            array_agg(p.id) filter (where p.updated_at < floor),
            array_agg(p.id) filter (where p.updated_at >= floor)
        into parents, stamped
        from unnest(parents) k (id) join %4$s p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, %1$L, %2$L, stamped);
        end if;
        if parents is not null then
            perform set_config('bds.touching', %2$L, true);
            update %4$s p set updated_at = p.updated_at from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            perform set_config('bds.touching', '', true);
        end if;$sql$,
        parent.name, child.collection, keys, parent.table_name
    );
end
$$;
comment on function bds_change_log.touch_statement(bds.entities, text) is 'The statement in a child''s log trigger that records the change of its parents';
