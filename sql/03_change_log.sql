-- The change log: one record for each real change of a row, whoever writes.
--
-- One writer per company at a time.  A writer holds the company's lock from its first write to its commit; ids come from the
-- company's clock.  So ids and updatedAt follow commit order, and whoever sees one change sees all before it.
--
-- Of each table: a statement trigger takes the lock before any row is touched, a row trigger drops updates that change nothing and
-- stamps the others, and three statement triggers with transition tables write the log, set by set.

-- The lock -----------------------------------------------------------------------------------------------------------------------

create or replace function bds.lock_space()
    returns int
    language sql
    immutable
    return 20261121;  -- first key of the advisory locks of companies, so that locks of other programs are not met
comment on function bds.lock_space() is 'pg_locks.classid of the companies'' locks; objid is bds.companies.number';

create or replace function bds.lock_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company_number int;
    locked         text := coalesce(nullif(current_setting('bds.locked', true), ''), ',');
    own_floor      timestamptz;
begin
    if strpos(locked, ',' || company || ',') > 0 then
        return;
    end if;
    select c.number into company_number from bds.companies c where c.id = company;
    if not found then
        raise exception using errcode = 'BD002', message = format('there is no company %s', coalesce(quote_literal(company), 'null'));
    end if;
    if not pg_try_advisory_xact_lock(bds.lock_space(), company_number) then
        perform bds.wait_for_turn(company, company_number);
    end if;
    -- a snapshot of its own, taken after the lock: it sees what the last holder committed
    select c.last_updated_at + interval '1 microsecond' into own_floor from bds.clocks c where c.company_id = company;
    perform
        set_config('bds.locked', locked || company || ',', true),
        set_config('bds.floor', greatest(own_floor, nullif(current_setting('bds.floor', true), '')::timestamptz)::text, true);
end
$$;
comment on function bds.lock_company(text) is 'Takes the company''s turn to write, until the end of the transaction';

create or replace function bds.wait_for_turn(company text, company_number int)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(bds.lock_space(), company_number);
exception
    when lock_not_available then
        raise exception using
            errcode = 'BD003',
            message = format('another writer of company %s did not finish within %s', company, current_setting('lock_timeout')),
            detail = coalesce(bds.holder_of(company_number), 'It has finished by now.');
    when deadlock_detected then
        raise exception using
            errcode = '40P01',
            message = format('deadlock while waiting for the turn to write to company %s', company),
            hint = 'call bds.set_context(company, actor, change_set) first: the turn is then taken before any row is locked';
end
$$;
comment on function bds.wait_for_turn(text, int) is 'Waits for the company''s lock; raises BD003, naming the holder, after lock_timeout';

create or replace function bds.holder_of(company_number int)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select format(
            'It is held by process %s (user %s, application %s), in a transaction since %s.',
            l.pid, coalesce(a.usename, '?'), coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?')
        )
        from pg_locks l left join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.granted and l.objsubid = 2
            and l.database = (select d.oid from pg_database d where d.datname = current_database())
            and l.classid = bds.lock_space()::oid and l.objid = company_number::oid
        limit 1
    );
comment on function bds.holder_of(int) is 'Who holds a company''s lock, in words';

-- Triggers that every table shares -----------------------------------------------------------------------------------------------

create or replace function bds.lock_named_company()
    returns trigger
    language plpgsql
as $$
begin
    perform bds.lock_company(current_setting('bds.company'));
    return null;
end
$$;
comment on function bds.lock_named_company() is 'Statement trigger: takes the named company''s lock before any row';

create or replace function bds.lock_row_company()
    returns trigger
    language plpgsql
as $$
declare
    company text := case when tg_op = 'DELETE' then old.company_id else new.company_id end;
begin
    if bds.current_company() is not null then
        raise exception using
            errcode = 'BD001',
            message = format('this session has named company %L, and the row is of %L', bds.current_company(), company);
    end if;
    perform bds.lock_company(company);
    return case when tg_op = 'DELETE' then old else new end;
end
$$;
comment on function bds.lock_row_company() is 'Row trigger, for sessions that have named no company: takes the lock of the row''s own';

create or replace function bds.refuse_truncate()
    returns trigger
    language plpgsql
as $$
begin
    raise exception using
        errcode = 'BD004',
        message = format('truncate of %I.%I would leave no record in the change log', tg_table_schema, tg_table_name),
        hint = 'delete the rows';
end
$$;
comment on function bds.refuse_truncate() is 'Statement trigger: truncate is refused';

-- What the log triggers call -----------------------------------------------------------------------------------------------------

create or replace function bds.advance(company text, entity_name text, changes bigint, newest timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    top bigint;
begin
    update bds.clocks c
    set last_id = c.last_id + changes, last_updated_at = greatest(c.last_updated_at, newest)
    where c.company_id = company
    returning c.last_id into top;

    update bds.entity_positions p set last_id = top where p.company_id = company and p.entity = entity_name;
    if not found then
        insert into bds.entity_positions (company_id, entity, last_id) values (company, entity_name, top);
    end if;
    perform pg_notify('bds_changes', company);
    return top - changes;
end
$$;
comment on function bds.advance(text, text, bigint, timestamptz) is 'Takes change ids from the company''s clock; returns the id before the first';

create or replace function bds.name_collection(
    company text, parent_entity text, collection_name text, parents bigint[]
)
    returns bigint[]
    language plpgsql
    set search_path = pg_catalog, pg_temp
    -- A plan made for three parents is kept for a million: index probes are right for both, hash joins for neither.
    set enable_nestloop = on
    set enable_hashjoin = off
    set enable_mergejoin = off
as $$
declare
    unrecorded bigint[];
    recorded   bigint[];
begin
    -- The company is locked: if this transaction has recorded a parent, that record is the parent's last.
    -- The bound on created_at lets the planner leave old partitions alone; a day covers any step of the clock.
    select
        array_agg(p.id) filter (where last.transaction_id is distinct from pg_current_xact_id()),
        array_agg(last.id) filter (
            where last.transaction_id = pg_current_xact_id() and last.operation = 'update'
                and collection_name <> all (coalesce(last.collections, '{}'))
        )
    into unrecorded, recorded
    from unnest(parents) as p (id)
    left join lateral (
        select l.id, l.transaction_id, l.operation, l.collections
        from bds.change_log l
        where l.company_id = company and l.entity = parent_entity and l.row_id = p.id
            and l.created_at > transaction_timestamp() - interval '1 day'
        order by l.id desc
        limit 1
    ) as last on true;

    if recorded is not null then
        update bds.change_log l
        set collections = l.collections || collection_name
        where l.company_id = company and l.id = any (recorded) and l.created_at > transaction_timestamp() - interval '1 day';
    end if;
    return unrecorded;
end
$$;
comment on function bds.name_collection(text, text, text, bigint[]) is
    'Adds a collection to the records that this transaction has made of the parents; returns the parents of which it has none';

-- Triggers made for a table ------------------------------------------------------------------------------------------------------

create or replace function bds.install_triggers(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    operation text;
    tables    text;
begin
    perform bds.make_row_function(this);
    perform bds.make_log_function(this, operations.name) from unnest(array['insert', 'update', 'delete']) as operations (name);

    -- BEFORE triggers of one kind fire in the order of their names: the lock comes before the stamp.
    execute format(
        'create or replace trigger bds_1_lock before insert or update or delete on %s for each statement '
        'when (current_setting(''bds.company'', true) <> '''') execute function bds.lock_named_company()',
        this.table_name
    );
    execute format(
        'create or replace trigger bds_1_lock_row before insert or update on %s for each row '
        'when (new.company_id is distinct from current_setting(''bds.company'', true)) execute function bds.lock_row_company()',
        this.table_name
    );
    execute format(
        'create or replace trigger bds_1_lock_old_row before delete on %s for each row '
        'when (old.company_id is distinct from current_setting(''bds.company'', true)) execute function bds.lock_row_company()',
        this.table_name
    );
    execute format(
        'create or replace trigger bds_2_stamp before insert or update on %s for each row execute function bds_log.%I()',
        this.table_name, this.name || '_stamp'
    );
    execute format(
        'create or replace trigger bds_truncate before truncate on %s for each statement execute function bds.refuse_truncate()',
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
comment on function bds.install_triggers(bds.entities) is 'Makes the triggers that lock, stamp and log the rows of an entity';

create or replace function bds.make_row_function(this bds.entities)
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
create or replace function bds_log.%I() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $function$
begin
    if tg_op = 'UPDATE' then
        new.updated_at := old.updated_at;
%s
        if new is not distinct from old and coalesce(current_setting('bds.touching', true), '') = '' then
            return null;
        end if;
        if new.company_id <> old.company_id or new.id <> old.id then
            raise exception using errcode = 'BD004', message = 'a row keeps its company_id and its id';
        end if;
    end if;
    new.updated_at := greatest(clock_timestamp(), current_setting('bds.floor')::timestamptz);
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
comment on function bds.make_row_function(bds.entities) is 'Makes the row trigger: drops updates that change nothing, stamps the rest';

create or replace function bds.make_log_function(this bds.entities, operation text)
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
begin
    if operation = 'update' then
        source := 'new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id';
        last_update := 'o.updated_at';
        collections := $sql$case when touching <> '' then array[touching] end$sql$;
        select format(E'json_object(\n                %s\n                absent on null returning json\n            )::jsonb', string_agg(
            -- an old value that was null is kept as null, a column that did not change not at all
            format(
                $sql$%L : case when o.%2$I is distinct from r.%2$I then coalesce(to_json(o.%2$I), 'null'::json) end$sql$,
                f.name, f.column_name
            ),
            E',\n                ' order by f.ordinal
        ))
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
        touch := bds.touch_statement(this, operation);
    end if;

    execute format(
        $body$
create or replace function bds_log.%1$I() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A plan made for one row is kept for a million, and their transition tables look alike: a nested loop between them is a disaster.
set enable_nestloop = off
as $function$
#variable_conflict use_variable
declare
    company    text;
    changes    bigint;
    newest     timestamptz;
    base       bigint;
    touching   text := coalesce(current_setting('bds.touching', true), '');
    at         timestamptz := greatest(clock_timestamp(), nullif(current_setting('bds.floor', true), '')::timestamptz);
    actor      text := coalesce(nullif(current_setting('bds.actor', true), ''), session_user);
    change_set uuid := nullif(current_setting('bds.change_set', true), '')::uuid;
    parents    bigint[];
begin
    for company, changes, newest in
        select r.company_id, count(*), max(r.updated_at) from %2$s r group by r.company_id
    loop
        base := bds.advance(company, %3$L, changes, %4$s);
        insert into bds.change_log (
            company_id, id, entity, row_id, operation, created_at, transaction_id, actor, change_set_id,
            last_updated_at, collections, old
        )
        select company, base + row_number() over (order by r.id), %3$L, r.id, %5$L, at, pg_current_xact_id(), actor, change_set,
            %6$s, %7$s,
            %8$s
        from %9$s
        where r.company_id = company;%10$s
    end loop;
    return null;
end
$function$
        $body$,
        this.name || '_' || operation,
        rows_of,
        this.name,
        case operation when 'delete' then 'null' else 'newest' end,
        case operation when 'insert' then 'create' else operation end,
        last_update, collections, old_value, source, touch
    );
    execute format('revoke all on function bds_log.%I() from public', this.name || '_' || operation);
    execute format('alter function bds_log.%I() owner to bds_owner', this.name || '_' || operation);
end
$$;
comment on function bds.make_log_function(bds.entities, text) is 'Makes the statement trigger that logs the inserts, updates or deletes of an entity';

create or replace function bds.touch_statement(child bds.entities, operation text)
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
    select string_agg(format('select t.%I from %s t where t.company_id = company', key_column, t), ' union ') into keys
    from unnest(case operation
        when 'insert' then array['new_rows'] when 'delete' then array['old_rows'] else array['new_rows', 'old_rows']
    end) t;
    return format(
        $sql$

        -- the parents change with their content
        parents := bds.name_collection(company, %1$L, %2$L, array(%3$s));
        if parents is not null then
            perform set_config('bds.touching', %2$L, true);
            update %4$s p set updated_at = p.updated_at where p.company_id = company and p.id = any (parents);
            perform set_config('bds.touching', '', true);
        end if;$sql$,
        parent.name, child.collection, keys, parent.table_name
    );
end
$$;
comment on function bds.touch_statement(bds.entities, text) is 'The statement in a child''s log trigger that records the change of its parents';

-- Partitions ---------------------------------------------------------------------------------------------------------------------

create or replace function bds.make_partitions(months int default 3)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    month date;
    name  text;
begin
    perform pg_advisory_xact_lock(hashtextextended('bds.make_partitions', 0));
    for month in
        select generate_series(date_trunc('month', now() at time zone 'UTC'), now() at time zone 'UTC' + make_interval(months => months), interval '1 month')
    loop
        name := 'change_log_' || to_char(month, 'YYYY_MM');
        continue when to_regclass('bds.' || name) is not null;
        execute format(
            'create table bds.%I partition of bds.change_log for values from (%L) to (%L)',
            name, month || ' 00:00:00+00', (month + interval '1 month')::date || ' 00:00:00+00'
        );
        execute format('comment on table bds.%I is %L', name, 'Changes of ' || to_char(month, 'YYYY-MM'));
    end loop;
end
$$;
comment on function bds.make_partitions(int) is 'Makes the change log''s partitions of this month and the next ones';

select bds.make_partitions();

-- What people and the service read -----------------------------------------------------------------------------------------------

create or replace view bds.changes as
select l.company_id, l.id, l.entity, l.row_id::text as row_id, l.operation::text as operation, l.change_set_id, l.created_at,
    l.actor, l.transaction_id,
    case
        when l.operation = 'update' then
            array(select jsonb_object_keys(l.old)) || coalesce(l.collections, '{}')
        else
            array(
                select f.name from bds.fields f where f.entity = l.entity and f.name <> 'updatedAt'
                union all
                select n.name from bds.navigations n where n.entity = l.entity and n.child
            )
    end as columns,
    l.old
from bds.change_log l
where l.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.changes is 'The change log: one row for each change of a row, in the order of commit within a company';
comment on column bds.changes.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.changes.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.changes.columns is 'Columns that changed, by API names, child collections among them; of a create or delete all';
comment on column bds.changes.old is 'Of an update the old values of the columns that changed, of a delete the row';

create or replace view bds.positions as
select p.company_id, p.entity, p.last_id
from bds.entity_positions p
where p.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.positions is 'The id of the last change of each entity; it never goes back';
