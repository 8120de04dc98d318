-- Generates the triggers of an entity's table, and the function that stamps its rows.  For data.units the functions of the triggers
-- are bds_log.units_check, units_stamp, units_insert, units_update and units_delete.  PostgreSQL fires triggers in the order of
-- their names: the turn first, then the stamp, then the log.  Where the owner's triggers change rows after the stamp, it comes once
-- more after them.

create function bds_change_log.late_triggers(table_name regclass)
    returns setof pg_trigger
    language sql
    stable
as $$
    select t.* from pg_trigger t
    where t.tgrelid = table_name and not t.tgisinternal and t.tgname !~ '^~?bds_' and t.tgname > 'bds_2_stamp'
        and t.tgtype & 19 = 19;  -- before update, for each row
$$;
comment on function bds_change_log.late_triggers(regclass) is
    'The owner''s triggers that can take back the change of an update which bds_2_stamp has let pass';

create function bds_change_log.install_triggers(this bds.entities)
    returns void
    language plpgsql
as $$
begin
    -- New rows get their time from the default, which takes 2 microseconds less than a trigger.  bds_2_stamp_new is for rows that
    -- bring a time, for a session that has named no company, and for a clock that went back.
    perform bds_registry.run(bds_impl.fill(
        $sql$
alter table {table} alter column updated_at set default clock_timestamp();
create or replace trigger bds_1_lock before insert or update or delete on {table} for each statement
    execute function bds_log.lock_named_company();
create or replace trigger bds_1_lock_old_row before delete on {table} for each row
    when ({turn_of_old} is not true)
    execute function bds_log.lock_old_row_company();
create or replace trigger bds_2_stamp_new before insert on {table} for each row
    when (
        {turn_of_new} is not true
        or coalesce(new.updated_at not between statement_timestamp() and clock_timestamp(), true)
        or strpos(current_setting('bds.turns', true), '@2') > 0  -- new rows have a floor: 2 begins its year, see take_turn
    )
    execute function bds_log.{stamp:I}();
create or replace trigger bds_2_stamp before update on {table} for each row
    execute function bds_log.{stamp:I}();
create or replace trigger bds_truncate before truncate on {table} for each statement
    execute function bds_log.refuse_truncate();
create or replace trigger bds_log_insert after insert on {table}
    referencing new table as new_rows for each statement
    execute function bds_log.{insert:I}();
create or replace trigger bds_log_update after update on {table}
    referencing old table as old_rows new table as new_rows for each statement
    execute function bds_log.{update:I}();
create or replace trigger bds_log_delete after delete on {table}
    referencing old table as old_rows for each statement
    execute function bds_log.{delete:I}()$sql$,
        'table', this.table_name::text, 'stamp', bds_registry.function_of(this.name, 'stamp'),
        'turn_of_old', bds_change_log.has_turn('old'), 'turn_of_new', bds_change_log.has_turn('new'),
        'insert', bds_registry.function_of(this.name, 'insert'), 'update', bds_registry.function_of(this.name, 'update'),
        'delete', bds_registry.function_of(this.name, 'delete')
    ));
    if exists (select from bds_change_log.late_triggers(this.table_name)) then
        perform bds_registry.run(format(
            'create or replace trigger "~bds_2_stamp_again" before update on %s for each row execute function bds_log.%I()',
            this.table_name, bds_registry.function_of(this.name, 'stamp')
        ));
    elsif exists (select from pg_trigger t where t.tgrelid = this.table_name and t.tgname = '~bds_2_stamp_again') then
        perform bds_registry.run(format('drop trigger "~bds_2_stamp_again" on %s', this.table_name), is_mend => true);
    end if;
end
$$;
comment on function bds_change_log.install_triggers(bds.entities) is
    'Creates the triggers of an entity''s table, which call the functions of bds_change_log.make_functions';

create function bds_change_log.has_turn(of_row text)
    returns text
    language sql
    immutable
    -- A row without a company has no turn, whether the setting is null or ''.
    return replace(
        $sql$coalesce(
            {row}.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || {row}.company_id || '@') > 0
        )$sql$,
        '{row}', of_row
    );
comment on function bds_change_log.has_turn(text) is
    'A condition on a row: it belongs to the named company or, if none is named, to one whose turn the transaction has. False or '
    'null if not';

create function bds_change_log.count_unchanged(depth int)
    returns void
    language plpgsql
as $$
declare
    counted constant text := current_setting('bds.unchanged', true);
begin
    if counted ~ ('^' || depth || ':[0-9]{1,18}$') then  -- a session may have set it to anything
        perform set_config('bds.unchanged', depth || ':' || substr(counted, strpos(counted, ':') + 1)::bigint + 1, true);
    end if;
end
$$;
comment on function bds_change_log.count_unchanged(int) is
    'Counts an update without a change in bds.unchanged, depth:number, for a statement whose triggers have this depth: it then '
    'knows that no trigger of the owner has left the row out';

create function bds_change_log.make_row_function(this bds.entities)
    returns void
    language plpgsql
as $$
begin
    perform bds_registry.run(bds_impl.fill(
        $body$
create or replace function bds_log.{function:I}() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $function$
declare
    has_turn boolean;
    is_moved boolean;
begin
    begin
        has_turn := {turn};
        is_moved := new.company_id <> old.company_id or new.id <> old.id;
        new.updated_at := case tg_op when 'UPDATE' then old.updated_at else new.updated_at end;
{generated}
    exception when undefined_column then
        perform bds_log.{check:I}();
        raise;
    end;
    if has_turn is not true then
        perform bds_change_log.lock_company_of_row(new.company_id, tg_op);
    end if;
    if tg_op = 'UPDATE' then
        -- as they are stored, like what is logged as old: values that PostgreSQL calls equal may read differently
        if new operator(pg_catalog.*=) old
            and (
                split_part(current_setting('bds.touching', true), ':', 1) is distinct from pg_trigger_depth()::text
                or pg_trigger_depth() < 2
            )
        then
            perform bds_change_log.count_unchanged(pg_trigger_depth());
            return null;
        elsif is_moved then
            raise exception using errcode = 'BD004', message = 'the company_id and the id of a row cannot be changed';
        end if;
    end if;
    new.updated_at := case
        when strpos(current_setting('bds.turns', true), '@2') > 0
        then greatest(clock_timestamp(), bds_change_log.future_floor(new.company_id))
        else clock_timestamp()
    end;
    return new;
end
$function$;
revoke all on function bds_log.{function:I}() from public;
alter function bds_log.{function:I}() owner to bds_owner;
        $body$,
        'function', bds_registry.function_of(this.name, 'stamp'),
        'check', bds_registry.function_of(this.name, 'check'),
        'turn', bds_change_log.has_turn('new'),
        'generated', coalesce(bds_change_log.copy_generated(this), '')
    ));
end
$$;
comment on function bds_change_log.make_row_function(bds.entities) is
    'Creates the row trigger''s function: it skips updates without a change and stamps the other rows';

create function bds_change_log.copy_generated(this bds.entities)
    returns text
    language sql
    stable
    -- Before an update a generated column has no new value, so the old one stands for it when old and new row are compared.  One
    -- that has a value is no longer generated.
as $$
    select bds_impl.fill(
        $sql$
        if tg_op = 'UPDATE' then
            if coalesce({values}) is not null then
                perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = {entity:L};
            end if;
            {copies}
        end if;$sql$,
        'values', string_agg(format('new.%I::text', f.column_name), ', '),
        'entity', this.name,
        'copies', string_agg(bds_impl.fill('new.{column:I} := old.{column:I};', 'column', f.column_name), ' ')
    )
    from bds.fields f
    where f.entity = this.name and f.generated
    having count(*) > 0;
$$;
comment on function bds_change_log.copy_generated(bds.entities) is
    'The statements of the row trigger that copy generated columns from the old row to the new one; null if there are none';

create function bds_change_log.make_functions(this bds.entities)
    returns void
    language sql
as $$
    select bds_change_log.make_check_function(this), bds_change_log.make_row_function(this);
    select bds_change_log.make_log_function(this, o.name) from unnest(array['insert', 'update', 'delete']) as o (name);
$$;
comment on function bds_change_log.make_functions(bds.entities) is 'Creates the functions of an entity''s triggers';
