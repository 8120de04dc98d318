---- functions of orderItems

-- functions of orderItems
create or replace function bds_log.order_items_check() returns boolean language plpgsql immutable
set timezone = 'UTC'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
as $function$
declare
    this  bds.entities := (select e from bds.entities e where e.name = 'orderItems');
    nulls text := format('(select t.* from (select) s left join %s t on false) n', this.table_name);
    found text;
    types regtype[];
begin
    execute format('select row_to_json(jsonb_populate_record(n.*, %L))::text from %s', '{"price": "0.01234567890123456789012345678901234567890", "quantity": "0.01234567890123456789012345678901234567890", "updated_at": "2000-01-01 00:00:00.654321+00"}', nulls) into found;
    if found = '{"company_id":null,"id":null,"description":null,"quantity":0.012346,"price":0.0123,"order_id":null,"product_id":null,"updated_at":"2000-01-01T00:00:00.654321+00:00"}' then
        execute format('select array[%s] from %s', 'pg_typeof(n.company_id), pg_typeof(n.id), pg_typeof(n.description), pg_typeof(n.quantity), pg_typeof(n.price), pg_typeof(n.order_id), pg_typeof(n.product_id), pg_typeof(n.updated_at)', nulls) into types;
    end if;
    if types = '{text,bigint,text,"numeric(19,6)","numeric(19,4)",bigint,bigint,"timestamp with time zone"}'::regtype[] and not bds_registry.is_rewritten(this) then
        return true;
    end if;
    perform bds_change_log.refuse_altered(this);
-- a column rejects its probe; the table was dropped: then its name is a number; a type or its schema has another name by now
exception
    when data_exception or integrity_constraint_violation or syntax_error or undefined_object or invalid_schema_name then
        perform bds_change_log.refuse_altered(this);
end
$function$;
revoke all on function bds_log.order_items_check() from public;
alter function bds_log.order_items_check() owner to bds_owner;

create or replace function bds_log.order_items_stamp() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $function$
declare
    has_turn boolean;
    is_moved boolean;
begin
    begin
        has_turn := coalesce(
            new.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || new.company_id || '@') > 0
        );
        is_moved := new.company_id <> old.company_id or new.id <> old.id;
        new.updated_at := case tg_op when 'UPDATE' then old.updated_at else new.updated_at end;

    exception when undefined_column then
        perform bds_log.order_items_check();
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
revoke all on function bds_log.order_items_stamp() from public;
alter function bds_log.order_items_stamp() owner to bds_owner;

create or replace function bds_log.order_items_insert() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- old values are stored in one format, whatever the session has set
set timezone = 'UTC'
set extra_float_digits = 1
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set enable_nestloop = on
set enable_hashjoin = on
set enable_sort = off
-- of a company that its statistics do not know a custom plan expects one row, and would read all its rows for each one
set plan_cache_mode = force_generic_plan
as $function$
#variable_conflict use_variable
declare
    company    text;
    last       text;
    changes    bigint;
    is_single  boolean;
    logged     bigint;
    oldest     timestamptz;
    newest     timestamptz;
    depth      int := pg_trigger_depth();
    turn       record;
    base       bigint;
    at         timestamptz;
    -- 2:items while a statement of that depth touches parents whose items have changed; the clock tells whether that is true
    claims     text := current_setting('bds.touching', true);
    actor      text := bds_impl.actor();
    db_user    text := session_user;
    change_set uuid := nullif(current_setting('bds.change_set', true), '')::uuid;
    parents    bigint[];
    stamped    bigint[];
begin
    begin
        select min(r.company_id collate "C"), max(r.company_id collate "C"), count(*), min(r.updated_at), max(r.updated_at)
        into company, last, changes, oldest, newest
        from new_rows r
        where bds_log.order_items_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.order_items_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from new_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'orderItems', changes, oldest, newest, case
                when date_trunc('month', oldest, 'UTC') = date_trunc('month', newest, 'UTC') then 0
                else (
                    select count(*) from new_rows r
                    where r.company_id = company and r.updated_at < date_trunc('month', newest, 'UTC')
                )
            end,
            jsonb_build_object(depth + 1, 'items')
        );
        base := turn.base;
        at := turn.at;
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, 'orderItems', r.id, 'create',
                case when turn.overtaken then at else r.updated_at end,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                hash_record_extended(row(r.id, r.description, r.quantity, r.price, r.order_id, r.product_id, r.updated_at), 0),
                null
            from new_rows r;
        else
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            -- Rows of inserts and deletes come in the order of the statement.  A change has the time of its row, but if the
            -- machine's clock went back meanwhile.
            select company, base + row_number() over w, 'orderItems', r.id, 'create',
                case when turn.overtaken then at else max(r.updated_at) over w end,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                hash_record_extended(row(r.id, r.description, r.quantity, r.price, r.order_id, r.product_id, r.updated_at), 0),
                null
            from new_rows r
            where r.company_id = company
            window w as (rows unbounded preceding);
        end if;
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass('data.order_items') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'orderItems', 'insert', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.order_items t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'orderItems', 'insert', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from %s t
                    where t.company_id = $1 and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = $1
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0$statement$, tg_relid::regclass)
                using company, base, changes, newest;
            end if;
        end if;
        if to_regclass('data.orders') is null then
            perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = 'orders';
        end if;
        -- A parent changes with its children, an old one with a child that was moved.  The company is locked: a parent stamped
        -- before the floor has no record of this transaction.  For an array the planner expects ten elements: it probes the key for
        -- each, where `= any` would search the array for each parent.
        parents := array(
            select distinct t.order_id from new_rows t where t.company_id = company
        );
        select
            array_agg(p.id) filter (where p.updated_at < turn.floor),
            array_agg(p.id) filter (where p.updated_at >= turn.floor)
        into parents, stamped
        from unnest(parents) k (id) join data.orders p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, 'orders', 'items', stamped);
        end if;
        logged := 0;
        if parents is not null then
            perform set_config('bds.touching', depth + 1 || ':' || 'items', true);
            -- bds_2_stamp sets the time; with the old one, a trigger that skips updates without a change would skip this one
            update data.orders p set updated_at = clock_timestamp()
            from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            get diagnostics logged = row_count;
            if logged <> cardinality(parents) then
                raise exception using
                    errcode = 'triggered_data_change_violation',
                    message = format(
                        'a trigger of %s skips the update that records the change of %L', 'data.orders', 'items'
                    );
            end if;
            perform set_config('bds.touching', coalesce(claims, ''), true);
        end if;
        if logged = 0 then
            perform bds_change_log.withdraw(company);
        end if;
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from new_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.order_items_insert() from public;
alter function bds_log.order_items_insert() owner to bds_owner;

create or replace function bds_log.order_items_update() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- old values are stored in one format, whatever the session has set
set timezone = 'UTC'
set extra_float_digits = 1
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set enable_nestloop = on
set enable_hashjoin = on
set enable_sort = off
-- of a company that its statistics do not know a custom plan expects one row, and would read all its rows for each one
set plan_cache_mode = force_generic_plan
as $function$
#variable_conflict use_variable
declare
    company    text;
    last       text;
    changes    bigint;
    is_single  boolean;
    logged     bigint;
    oldest     timestamptz;
    newest     timestamptz;
    depth      int := pg_trigger_depth();
    turn       record;
    base       bigint;
    at         timestamptz;
    -- 2:items while a statement of that depth touches parents whose items have changed; the clock tells whether that is true
    claims     text := current_setting('bds.touching', true);
    actor      text := bds_impl.actor();
    db_user    text := session_user;
    change_set uuid := nullif(current_setting('bds.change_set', true), '')::uuid;
    parents    bigint[];
    stamped    bigint[];
begin
    begin
        select min(r.company_id collate "C"), max(r.company_id collate "C"), count(*), min(r.updated_at), max(r.updated_at)
        into company, last, changes, oldest, newest
        from new_rows r
        where bds_log.order_items_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.order_items_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from new_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'orderItems', changes, oldest, newest, case
                when date_trunc('month', oldest, 'UTC') = date_trunc('month', newest, 'UTC') then 0
                else (
                    select count(*) from new_rows r
                    where r.company_id = company and r.updated_at < date_trunc('month', newest, 'UTC')
                )
            end,
            jsonb_build_object(depth + 1, 'items')
        );
        base := turn.base;
        at := turn.at;
        -- rows without a change have passed bds_2_stamp on the claim
        if coalesce(depth || ':' || turn.touched, '') <> (case when starts_with(claims, depth || ':') then claims else '' end) then
            raise exception using
                errcode = 'BD004', message = 'bds.touching was set, which only the change log sets', hint = 'reset bds.touching';
        end if;
        -- Where the clock tells so (bds_change_log.settle), the update completes the records that this transaction has written of
        -- its rows: one record then says what the transaction did to a row.  Triggers of others may have logged changes of these
        -- rows since the first was stamped; those keep their records.  Planned with the transition tables as they are.
        if turn.settles then
            perform set_config('enable_nestloop', 'off', true);
            execute $statement$
                update bds.change_log l
                set row_hash = s.hash, old = case when l.operation = 'update' then s.old || l.old end
                from (
                    select r.id, hash_record_extended(row(r.id, r.description, r.quantity, r.price, r.order_id, r.product_id, r.updated_at), 0) as hash, json_object(
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'quantity' : case when o.quantity is distinct from r.quantity then coalesce(to_json(o.quantity), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'orderId' : case when o.order_id is distinct from r.order_id then coalesce(to_json(o.order_id), 'null'::json) end,
                'productId' : case when o.product_id is distinct from r.product_id then coalesce(to_json(o.product_id), 'null'::json) end
                absent on null returning json
            )::jsonb as old
                    from new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id
                ) s
                join (
                    select w.row_id, max(w.id) as id
                    from bds.change_log w
                    where w.company_id = $1 and w.id between $2 and $3 and w.created_at > transaction_timestamp() - interval '1 day'
                        and w.created_at <= $4 and w.entity = 'orderItems'
                    group by w.row_id
                ) last on last.row_id = s.id
                where l.company_id = $1 and l.id = last.id and l.id between $2 and $3
                    and l.created_at > transaction_timestamp() - interval '1 day' and l.operation <> 'delete'
            $statement$ using company, (select c.first_id from bds.clocks c where c.company_id = company), base, oldest;
            get diagnostics logged = row_count;
            perform set_config('enable_nestloop', 'on', true);
            if logged <> changes then
                raise exception using
                    errcode = 'BD004',
                    message = format(
                        '%s of %s rows of %s have no change record of this transaction', changes - logged, changes, 'orderItems'
                    );
            end if;
            return null;
        end if;
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, 'orderItems', r.id, 'update',
                case when turn.overtaken then at else r.updated_at end,
                pg_current_xact_id(), actor, db_user, change_set,
                o.updated_at, case when turn.touched is not null then array[turn.touched] end,
                hash_record_extended(row(r.id, r.description, r.quantity, r.price, r.order_id, r.product_id, r.updated_at), 0),
                json_object(
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'quantity' : case when o.quantity is distinct from r.quantity then coalesce(to_json(o.quantity), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'orderId' : case when o.order_id is distinct from r.order_id then coalesce(to_json(o.order_id), 'null'::json) end,
                'productId' : case when o.product_id is distinct from r.product_id then coalesce(to_json(o.product_id), 'null'::json) end
                absent on null returning json
            )::jsonb
            from new_rows r
            join old_rows o on (o.company_id, o.id) is not distinct from (r.company_id, r.id);
        else
            -- A plan made for one row is reused for a million, and to the planner both transition tables look alike: a nested loop
            -- between them would be quadratic.
            perform set_config('enable_nestloop', 'off', true);
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            -- Rows of inserts and deletes come in the order of the statement.  A change has the time of its row, but if the
            -- machine's clock went back meanwhile.
            select company, base + row_number() over w, 'orderItems', r.id, 'update',
                case when turn.overtaken then at else max(r.updated_at) over w end,
                pg_current_xact_id(), actor, db_user, change_set,
                o.updated_at,
                case when turn.touched is not null then array[turn.touched] end,
                hash_record_extended(row(r.id, r.description, r.quantity, r.price, r.order_id, r.product_id, r.updated_at), 0),
                json_object(
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'quantity' : case when o.quantity is distinct from r.quantity then coalesce(to_json(o.quantity), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'orderId' : case when o.order_id is distinct from r.order_id then coalesce(to_json(o.order_id), 'null'::json) end,
                'productId' : case when o.product_id is distinct from r.product_id then coalesce(to_json(o.product_id), 'null'::json) end
                absent on null returning json
            )::jsonb
            from new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id
            where r.company_id = company
            window w as (order by r.updated_at, r.id rows unbounded preceding);
        end if;
        get diagnostics logged = row_count;
        if not is_single then
            perform set_config('enable_nestloop', 'on', true);
        end if;
        if logged <> changes then
            raise exception using
                errcode = 'BD004',
                message = 'the company_id and the id of a row cannot be changed',
                hint = 'a trigger that fires after bds_2_stamp has changed them';
        end if;
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass('data.order_items') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'orderItems', 'update', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.order_items t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'orderItems', 'update', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from %s t
                    where t.company_id = $1 and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = $1
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0$statement$, tg_relid::regclass)
                using company, base, changes, newest;
            end if;
        end if;
        if to_regclass('data.orders') is null then
            perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = 'orders';
        end if;
        -- A parent changes with its children, an old one with a child that was moved.  The company is locked: a parent stamped
        -- before the floor has no record of this transaction.  For an array the planner expects ten elements: it probes the key for
        -- each, where `= any` would search the array for each parent.
        parents := array(
            select distinct t.order_id from new_rows t where t.company_id = company
            union select t.order_id from old_rows t where t.company_id = company
        );
        select
            array_agg(p.id) filter (where p.updated_at < turn.floor),
            array_agg(p.id) filter (where p.updated_at >= turn.floor)
        into parents, stamped
        from unnest(parents) k (id) join data.orders p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, 'orders', 'items', stamped);
        end if;
        logged := 0;
        if parents is not null then
            perform set_config('bds.touching', depth + 1 || ':' || 'items', true);
            -- bds_2_stamp sets the time; with the old one, a trigger that skips updates without a change would skip this one
            update data.orders p set updated_at = clock_timestamp()
            from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            get diagnostics logged = row_count;
            if logged <> cardinality(parents) then
                raise exception using
                    errcode = 'triggered_data_change_violation',
                    message = format(
                        'a trigger of %s skips the update that records the change of %L', 'data.orders', 'items'
                    );
            end if;
            perform set_config('bds.touching', coalesce(claims, ''), true);
        end if;
        if logged = 0 then
            perform bds_change_log.withdraw(company);
        end if;
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from new_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.order_items_update() from public;
alter function bds_log.order_items_update() owner to bds_owner;

create or replace function bds_log.order_items_delete() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- old values are stored in one format, whatever the session has set
set timezone = 'UTC'
set extra_float_digits = 1
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set enable_nestloop = on
set enable_hashjoin = on
set enable_sort = off
-- of a company that its statistics do not know a custom plan expects one row, and would read all its rows for each one
set plan_cache_mode = force_generic_plan
as $function$
#variable_conflict use_variable
declare
    company    text;
    last       text;
    changes    bigint;
    is_single  boolean;
    logged     bigint;
    oldest     timestamptz;
    newest     timestamptz;
    depth      int := pg_trigger_depth();
    turn       record;
    base       bigint;
    at         timestamptz;
    -- 2:items while a statement of that depth touches parents whose items have changed; the clock tells whether that is true
    claims     text := current_setting('bds.touching', true);
    actor      text := bds_impl.actor();
    db_user    text := session_user;
    change_set uuid := nullif(current_setting('bds.change_set', true), '')::uuid;
    parents    bigint[];
    stamped    bigint[];
begin
    begin
        select min(r.company_id collate "C"), max(r.company_id collate "C"), count(*), min(r.updated_at), max(r.updated_at)
        into company, last, changes, oldest, newest
        from old_rows r
        where bds_log.order_items_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.order_items_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from old_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'orderItems', changes, null, null, 0,
            jsonb_build_object(depth + 1, 'items')
        );
        base := turn.base;
        at := turn.at;
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, 'orderItems', r.id, 'delete',
                at,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                null,
                json_object(
                'id' : r.id,
                'description' : r.description,
                'quantity' : r.quantity,
                'price' : r.price,
                'orderId' : r.order_id,
                'productId' : r.product_id,
                'updatedAt' : r.updated_at
                returning jsonb
            )
            from old_rows r;
        else
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            -- Rows of inserts and deletes come in the order of the statement.  A change has the time of its row, but if the
            -- machine's clock went back meanwhile.
            select company, base + row_number() over w, 'orderItems', r.id, 'delete',
                at,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                null,
                json_object(
                'id' : r.id,
                'description' : r.description,
                'quantity' : r.quantity,
                'price' : r.price,
                'orderId' : r.order_id,
                'productId' : r.product_id,
                'updatedAt' : r.updated_at
                returning jsonb
            )
            from old_rows r
            where r.company_id = company
            window w as (rows unbounded preceding);
        end if;
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass('data.order_items') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'orderItems', 'delete', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from old_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.order_items t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.id is not null
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'orderItems', 'delete', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
                )
                from old_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from %s t
                    where t.company_id = $1 and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = $1
                    and t.id is not null
                having count(*) > 0$statement$, tg_relid::regclass)
                using company, base, changes, newest;
            end if;
        end if;
        if to_regclass('data.orders') is null then
            perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = 'orders';
        end if;
        -- A parent changes with its children, an old one with a child that was moved.  The company is locked: a parent stamped
        -- before the floor has no record of this transaction.  For an array the planner expects ten elements: it probes the key for
        -- each, where `= any` would search the array for each parent.
        parents := array(
            select distinct t.order_id from old_rows t where t.company_id = company
        );
        select
            array_agg(p.id) filter (where p.updated_at < turn.floor),
            array_agg(p.id) filter (where p.updated_at >= turn.floor)
        into parents, stamped
        from unnest(parents) k (id) join data.orders p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, 'orders', 'items', stamped);
        end if;
        logged := 0;
        if parents is not null then
            perform set_config('bds.touching', depth + 1 || ':' || 'items', true);
            -- bds_2_stamp sets the time; with the old one, a trigger that skips updates without a change would skip this one
            update data.orders p set updated_at = clock_timestamp()
            from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            get diagnostics logged = row_count;
            if logged <> cardinality(parents) then
                raise exception using
                    errcode = 'triggered_data_change_violation',
                    message = format(
                        'a trigger of %s skips the update that records the change of %L', 'data.orders', 'items'
                    );
            end if;
            perform set_config('bds.touching', coalesce(claims, ''), true);
        end if;
        if logged = 0 then
            perform bds_change_log.withdraw(company);
        end if;
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from old_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.order_items_delete() from public;
alter function bds_log.order_items_delete() owner to bds_owner;

---- views of orderItems

-- views of orderItems
create or replace view api."orderItems" as select company_id,
    id as id,
    description as description,
    quantity as quantity,
    price as price,
    order_id as "orderId",
    product_id as "productId",
    updated_at as "updatedAt"
from data.order_items
where company_id = current_setting('bds.company', true);

alter view api."orderItems" owner to bds_owner;

revoke all on api."orderItems" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view api."orderItems" is 'Lines of an order';

comment on column api."orderItems".company_id is 'The company';

comment on column api."orderItems".id is 'The row''s id, unique within the company';

comment on column api."orderItems".description is 'Text of the line';

comment on column api."orderItems".quantity is 'Quantity';

comment on column api."orderItems".price is 'Price of one unit';

comment on column api."orderItems"."orderId" is 'The order';

comment on column api."orderItems"."productId" is 'The product; null: a line of text';

comment on column api."orderItems"."updatedAt" is 'When the row last changed';

grant select on api."orderItems" to bds_reader, bds_writer, bds_operator;

create or replace view my."orderItems" with (security_barrier) as select
    id as id,
    description as description,
    quantity as quantity,
    price as price,
    order_id as "orderId",
    product_id as "productId",
    updated_at as "updatedAt"
from data.order_items
where company_id = (
    select l.company_id from bds.company_logins l where l.role_name = session_user
);

alter view my."orderItems" owner to bds_owner;

revoke all on my."orderItems" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view my."orderItems" is 'Lines of an order';

comment on column my."orderItems".id is 'The row''s id, unique within the company';

comment on column my."orderItems".description is 'Text of the line';

comment on column my."orderItems".quantity is 'Quantity';

comment on column my."orderItems".price is 'Price of one unit';

comment on column my."orderItems"."orderId" is 'The order';

comment on column my."orderItems"."productId" is 'The product; null: a line of text';

comment on column my."orderItems"."updatedAt" is 'When the row last changed';

grant select on my."orderItems" to bds_analyst;

create or replace view past."orderItems" as select t.company_id as company_id,
    t.id as id,
    t.description as description,
    t.quantity as quantity,
    t.price as price,
    t.order_id as "orderId",
    t.product_id as "productId",
    t.updated_at as "updatedAt"
from data.order_items t where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not exists (select 1 from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.row_id = t.id + 0) and not (select past.is_deep('orderItems'))
union all
select t.company_id as company_id,
    t.id as id,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'quantity' then (g.state ->> 'quantity')::numeric else t.quantity end as quantity,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'orderId' then (g.state ->> 'orderId')::bigint else t.order_id end as "orderId",
    case when g.state ? 'productId' then (g.state ->> 'productId')::bigint else t.product_id end as "productId",
    case when g.first_id is null then t.updated_at else case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end end as "updatedAt"
from data.order_items t cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = t.id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and (g.first_id is null or g.first_id is distinct from g.created_id) and (select past.is_deep('orderItems'))
union all
select current_setting('bds.company', true) as company_id,
    c.row_id as id,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'quantity')::numeric as quantity,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'orderId')::bigint as "orderId",
    (g.state ->> 'productId')::bigint as "productId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select distinct l.row_id
    from past.ranges_with(current_setting('bds.company', true), 'orderItems', nullif(current_setting('bds.version', true), '')::bigint) r
    cross join lateral (select l.* from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.id >= r.first_id and l.id <= r.last_id offset 0) l
    where l.operation = 'delete' and not exists (select from data.order_items t where t.company_id = current_setting('bds.company', true) and t.id = l.row_id)
) c
cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and g.first_id is distinct from g.created_id and (select past.is_deep('orderItems'))
union all
select g.company_id as company_id,
    g.row_id as id,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'quantity' then (g.state ->> 'quantity')::numeric else t.quantity end as quantity,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'orderId' then (g.state ->> 'orderId')::bigint else t.order_id end as "orderId",
    case when g.state ? 'productId' then (g.state ->> 'productId')::bigint else t.product_id end as "productId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select l.company_id, l.row_id, past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at,
        min(l.id) as first_id, min(l.id) filter (where l.operation = 'delete') as deleted_id
    from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz
    group by l.company_id, l.row_id
    -- a row whose first later change creates it did not exist
    having min(l.id) is distinct from min(l.id) filter (where l.operation = 'create')
) g
left join data.order_items t on t.company_id = current_setting('bds.company', true) and t.id = g.row_id
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not (select past.is_deep('orderItems'));

alter view past."orderItems" owner to bds_owner;

revoke all on past."orderItems" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems" is 'Lines of an order';

comment on column past."orderItems".company_id is 'The company';

comment on column past."orderItems".id is 'The row''s id, unique within the company';

comment on column past."orderItems".description is 'Text of the line';

comment on column past."orderItems".quantity is 'Quantity';

comment on column past."orderItems".price is 'Price of one unit';

comment on column past."orderItems"."orderId" is 'The order';

comment on column past."orderItems"."productId" is 'The product; null: a line of text';

comment on column past."orderItems"."updatedAt" is 'When the row last changed';

grant select on past."orderItems" to bds_operator, bds_reader;

create or replace view past."orderItems_changed" as select g.company_id as company_id,
    g.row_id as id,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'quantity' then (g.state ->> 'quantity')::numeric else t.quantity end as quantity,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'orderId' then (g.state ->> 'orderId')::bigint else t.order_id end as "orderId",
    case when g.state ? 'productId' then (g.state ->> 'productId')::bigint else t.product_id end as "productId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select l.company_id, l.row_id, past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at,
        min(l.id) as first_id, min(l.id) filter (where l.operation = 'delete') as deleted_id
    from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz
    group by l.company_id, l.row_id
    -- a row whose first later change creates it did not exist
    having min(l.id) is distinct from min(l.id) filter (where l.operation = 'create')
) g
left join data.order_items t on t.company_id = current_setting('bds.company', true) and t.id = g.row_id
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity';

alter view past."orderItems_changed" owner to bds_owner;

revoke all on past."orderItems_changed" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_changed" is 'Lines of an order';

comment on column past."orderItems_changed".company_id is 'The company';

comment on column past."orderItems_changed".id is 'The row''s id, unique within the company';

comment on column past."orderItems_changed".description is 'Text of the line';

comment on column past."orderItems_changed".quantity is 'Quantity';

comment on column past."orderItems_changed".price is 'Price of one unit';

comment on column past."orderItems_changed"."orderId" is 'The order';

comment on column past."orderItems_changed"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_changed"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_changed" to bds_operator, bds_reader;

create or replace view past."orderItems_deleted" as select current_setting('bds.company', true) as company_id,
    c.row_id as id,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'quantity')::numeric as quantity,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'orderId')::bigint as "orderId",
    (g.state ->> 'productId')::bigint as "productId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select distinct l.row_id
    from past.ranges_with(current_setting('bds.company', true), 'orderItems', nullif(current_setting('bds.version', true), '')::bigint) r
    cross join lateral (select l.* from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.id >= r.first_id and l.id <= r.last_id offset 0) l
    where l.operation = 'delete' and not exists (select from data.order_items t where t.company_id = current_setting('bds.company', true) and t.id = l.row_id)
) c
cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and g.first_id is distinct from g.created_id;

alter view past."orderItems_deleted" owner to bds_owner;

revoke all on past."orderItems_deleted" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_deleted" is 'Lines of an order';

comment on column past."orderItems_deleted".company_id is 'The company';

comment on column past."orderItems_deleted".id is 'The row''s id, unique within the company';

comment on column past."orderItems_deleted".description is 'Text of the line';

comment on column past."orderItems_deleted".quantity is 'Quantity';

comment on column past."orderItems_deleted".price is 'Price of one unit';

comment on column past."orderItems_deleted"."orderId" is 'The order';

comment on column past."orderItems_deleted"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_deleted"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_deleted" to bds_operator, bds_reader;

create or replace view past."orderItems_present" as select t.company_id as company_id,
    t.id as id,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'quantity' then (g.state ->> 'quantity')::numeric else t.quantity end as quantity,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'orderId' then (g.state ->> 'orderId')::bigint else t.order_id end as "orderId",
    case when g.state ? 'productId' then (g.state ->> 'productId')::bigint else t.product_id end as "productId",
    case when g.first_id is null then t.updated_at else case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end end as "updatedAt"
from data.order_items t cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = t.id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and (g.first_id is null or g.first_id is distinct from g.created_id);

alter view past."orderItems_present" owner to bds_owner;

revoke all on past."orderItems_present" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_present" is 'Lines of an order';

comment on column past."orderItems_present".company_id is 'The company';

comment on column past."orderItems_present".id is 'The row''s id, unique within the company';

comment on column past."orderItems_present".description is 'Text of the line';

comment on column past."orderItems_present".quantity is 'Quantity';

comment on column past."orderItems_present".price is 'Price of one unit';

comment on column past."orderItems_present"."orderId" is 'The order';

comment on column past."orderItems_present"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_present"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_present" to bds_operator, bds_reader;

create or replace view past."orderItems_replaced" as select g.company_id as company_id, g.id as "@id",
    g.row_id as id,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'quantity')::numeric as quantity,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'orderId')::bigint as "orderId",
    (g.state ->> 'productId')::bigint as "productId",
    (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt"
from (select l.company_id, l.id, l.row_id, l.old as state from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz) g;

alter view past."orderItems_replaced" owner to bds_owner;

revoke all on past."orderItems_replaced" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_replaced" is 'Lines of an order';

comment on column past."orderItems_replaced".company_id is 'The company';

comment on column past."orderItems_replaced".id is 'The row''s id, unique within the company';

comment on column past."orderItems_replaced".description is 'Text of the line';

comment on column past."orderItems_replaced".quantity is 'Quantity';

comment on column past."orderItems_replaced".price is 'Price of one unit';

comment on column past."orderItems_replaced"."orderId" is 'The order';

comment on column past."orderItems_replaced"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_replaced"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_replaced" to bds_operator, bds_reader;

create or replace view past."orderItems_unchanged" as select t.company_id as company_id,
    t.id as id,
    t.description as description,
    t.quantity as quantity,
    t.price as price,
    t.order_id as "orderId",
    t.product_id as "productId",
    t.updated_at as "updatedAt"
from data.order_items t where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not exists (select 1 from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.row_id = t.id + 0);

alter view past."orderItems_unchanged" owner to bds_owner;

revoke all on past."orderItems_unchanged" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_unchanged" is 'Lines of an order';

comment on column past."orderItems_unchanged".company_id is 'The company';

comment on column past."orderItems_unchanged".id is 'The row''s id, unique within the company';

comment on column past."orderItems_unchanged".description is 'Text of the line';

comment on column past."orderItems_unchanged".quantity is 'Quantity';

comment on column past."orderItems_unchanged".price is 'Price of one unit';

comment on column past."orderItems_unchanged"."orderId" is 'The order';

comment on column past."orderItems_unchanged"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_unchanged"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_unchanged" to bds_operator, bds_reader;

comment on column past."orderItems_replaced"."@id" is 'The change that has replaced the values';

create or replace view past."orderItems_ends" as select d.company_id, d.row_id as "@id", d."@version", d."@operation", d."@columns"
    , d.id, d."@2"
    , d.description, d."@3"
    , d.quantity, d."@4"
    , d.price, d."@5"
    , d."orderId", d."@6"
    , d."productId", d."@7"
    , d."updatedAt", d."@8"
from (select current_setting('bds.company', true) collate "C" as company_id, c.row_id, c.id as "@version", d.columns as "@columns", l.state as "@new", e.state as "@old",
    case
        when e.state is null and l.state is not null then 'create'
        when l.state is null and e.state is not null then 'delete'
        when l.state is not null then 'update'
    end as "@operation"
    , n.id, o.id as "@2"
    , n.description, o.description as "@3"
    , n.quantity, o.quantity as "@4"
    , n.price, o.price as "@5"
    , n."orderId", o."orderId" as "@6"
    , n."productId", o."productId" as "@7"
    , n."updatedAt", o."updatedAt" as "@8"
from (
        (
        select c.row_id, c.id
        from bds.change_log c
        where c.company_id = current_setting('bds.company', true) and c.entity = 'orderItems' and c.id > nullif(current_setting('bds.since', true), '')::bigint and c.id <= nullif(current_setting('bds.version', true), '')::bigint
            and c.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) and c.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) and (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is null
            and not exists (  -- a later change of the row stands for it
                select 1 from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > c.id and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems' and l.id <= (select nullif(current_setting('bds.version', true), '')::bigint) and l.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz)
            )
        order by c.id
    )
    union all
    (
        select g.row_id, g.id
        from past.last_changes(current_setting('bds.company', true), 'orderItems', nullif(current_setting('bds.grouped_after', true), '')::bigint, nullif(current_setting('bds.since_time', true), '')::timestamptz, nullif(current_setting('bds.version', true), '')::bigint, nullif(current_setting('bds.version_time', true), '')::timestamptz) g
        where (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is not null
        order by g.id
    )

) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.order_items o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select case
        when g.first_id is null then case when t.id is not null then json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        when g.first_id is distinct from g.created_id
            then json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g
    offset 0
) l
cross join lateral (
    select case
        when g.first_id is distinct from g.created_id
            then coalesce(l.state, '{}') || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems' and l.id <= c.id
    ) g
    offset 0
) e
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'description')::text as description, (g.state ->> 'quantity')::numeric as quantity, (g.state ->> 'price')::numeric as price, (g.state ->> 'orderId')::bigint as "orderId", (g.state ->> 'productId')::bigint as "productId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select l.state) g) n
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'description')::text as description, (g.state ->> 'quantity')::numeric as quantity, (g.state ->> 'price')::numeric as price, (g.state ->> 'orderId')::bigint as "orderId", (g.state ->> 'productId')::bigint as "productId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select e.state) g) o
cross join lateral (
    select case
        when e.state is null and l.state is null then '{}'::text[]
        when e.state is null or l.state is null then '{id,description,quantity,price,orderId,productId,updatedAt}'::text[]
        else array_remove(array[
                        null
,

            case when o.description::text is distinct from n.description::text then 'description' end
,

            case when o.quantity::text is distinct from n.quantity::text then 'quantity' end
,

            case when o.price::text is distinct from n.price::text then 'price' end
,

            case when o."orderId"::text is distinct from n."orderId"::text then 'orderId' end
,

            case when o."productId"::text is distinct from n."productId"::text then 'productId' end
,
                        null
        ]::text[], null)
    end as columns
    offset 0
) d
    ) d
where (select past.require_registered('orderItems'));

alter view past."orderItems_ends" owner to bds_owner;

revoke all on past."orderItems_ends" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_ends" is 'Lines of an order';

comment on column past."orderItems_ends".company_id is 'The company';

comment on column past."orderItems_ends".id is 'The row''s id, unique within the company';

comment on column past."orderItems_ends".description is 'Text of the line';

comment on column past."orderItems_ends".quantity is 'Quantity';

comment on column past."orderItems_ends".price is 'Price of one unit';

comment on column past."orderItems_ends"."orderId" is 'The order';

comment on column past."orderItems_ends"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_ends"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_ends" to bds_operator, bds_reader;

comment on column past."orderItems_ends"."@columns" is 'The fields that differ; of a create or delete all; none where only updatedAt does';

comment on column past."orderItems_ends"."@id" is 'The row''s id';

comment on column past."orderItems_ends"."@operation" is 'create, update or delete; null: it was created and deleted between the two versions';

comment on column past."orderItems_ends"."@version" is 'The row''s last change between the two versions';

comment on column past."orderItems_ends"."@2" is 'id as of the earlier version';

comment on column past."orderItems_ends"."@3" is 'description as of the earlier version';

comment on column past."orderItems_ends"."@4" is 'quantity as of the earlier version';

comment on column past."orderItems_ends"."@5" is 'price as of the earlier version';

comment on column past."orderItems_ends"."@6" is 'orderId as of the earlier version';

comment on column past."orderItems_ends"."@7" is 'productId as of the earlier version';

comment on column past."orderItems_ends"."@8" is 'updatedAt as of the earlier version';

create or replace view past."orderItems_diff" as select d."@operation", d."@version", d."@columns"
    , case when d."@operation" = 'delete' then d."@2" else d.id end as id
    , case when d."@operation" = 'delete' then d."@3" else d.description end as description
    , case when d."@operation" = 'delete' then d."@4" else d.quantity end as quantity
    , case when d."@operation" = 'delete' then d."@5" else d.price end as price
    , case when d."@operation" = 'delete' then d."@6" else d."orderId" end as "orderId"
    , case when d."@operation" = 'delete' then d."@7" else d."productId" end as "productId"
    , case when d."@operation" = 'delete' then d."@8" else d."updatedAt" end as "updatedAt"
from (select current_setting('bds.company', true) collate "C" as company_id, c.row_id, c.id as "@version", d.columns as "@columns", l.state as "@new", e.state as "@old",
    case
        when e.state is null and l.state is not null then 'create'
        when l.state is null and e.state is not null then 'delete'
        when l.state is not null then 'update'
    end as "@operation"
    , n.id, o.id as "@2"
    , n.description, o.description as "@3"
    , n.quantity, o.quantity as "@4"
    , n.price, o.price as "@5"
    , n."orderId", o."orderId" as "@6"
    , n."productId", o."productId" as "@7"
    , n."updatedAt", o."updatedAt" as "@8"
from (
        (
        select c.row_id, c.id
        from bds.change_log c
        where c.company_id = current_setting('bds.company', true) and c.entity = 'orderItems' and c.id > nullif(current_setting('bds.since', true), '')::bigint and c.id <= nullif(current_setting('bds.version', true), '')::bigint
            and c.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) and c.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) and (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is null
            and not exists (  -- a later change of the row stands for it
                select 1 from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > c.id and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems' and l.id <= (select nullif(current_setting('bds.version', true), '')::bigint) and l.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz)
            )
        order by c.id
    )
    union all
    (
        select g.row_id, g.id
        from past.last_changes(current_setting('bds.company', true), 'orderItems', nullif(current_setting('bds.grouped_after', true), '')::bigint, nullif(current_setting('bds.since_time', true), '')::timestamptz, nullif(current_setting('bds.version', true), '')::bigint, nullif(current_setting('bds.version_time', true), '')::timestamptz) g
        where (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is not null
        order by g.id
    )

) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.order_items o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select case
        when g.first_id is null then case when t.id is not null then json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        when g.first_id is distinct from g.created_id
            then json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
    ) g
    offset 0
) l
cross join lateral (
    select case
        when g.first_id is distinct from g.created_id
            then coalesce(l.state, '{}') || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems' and l.id <= c.id
    ) g
    offset 0
) e
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'description')::text as description, (g.state ->> 'quantity')::numeric as quantity, (g.state ->> 'price')::numeric as price, (g.state ->> 'orderId')::bigint as "orderId", (g.state ->> 'productId')::bigint as "productId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select l.state) g) n
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'description')::text as description, (g.state ->> 'quantity')::numeric as quantity, (g.state ->> 'price')::numeric as price, (g.state ->> 'orderId')::bigint as "orderId", (g.state ->> 'productId')::bigint as "productId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select e.state) g) o
cross join lateral (
    select case
        when e.state is null and l.state is null then '{}'::text[]
        when e.state is null or l.state is null then '{id,description,quantity,price,orderId,productId,updatedAt}'::text[]
        else array_remove(array[
                        null
,

            case when o.description::text is distinct from n.description::text then 'description' end
,

            case when o.quantity::text is distinct from n.quantity::text then 'quantity' end
,

            case when o.price::text is distinct from n.price::text then 'price' end
,

            case when o."orderId"::text is distinct from n."orderId"::text then 'orderId' end
,

            case when o."productId"::text is distinct from n."productId"::text then 'productId' end
,
                        null
        ]::text[], null)
    end as columns
    offset 0
) d
    ) d
where (select past.require_registered('orderItems')) and d."@columns" <> '{}';

alter view past."orderItems_diff" owner to bds_owner;

revoke all on past."orderItems_diff" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_diff" is 'Lines of an order';

comment on column past."orderItems_diff".id is 'The row''s id, unique within the company';

comment on column past."orderItems_diff".description is 'Text of the line';

comment on column past."orderItems_diff".quantity is 'Quantity';

comment on column past."orderItems_diff".price is 'Price of one unit';

comment on column past."orderItems_diff"."orderId" is 'The order';

comment on column past."orderItems_diff"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_diff"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_diff" to bds_operator, bds_reader;

comment on column past."orderItems_diff"."@columns" is 'The fields that differ; of a create or delete all';

comment on column past."orderItems_diff"."@operation" is 'create, update or delete';

comment on column past."orderItems_diff"."@version" is 'The row''s last change between the two versions';

create or replace view past."orderItems_versions" as select p."@version", p."@validFrom", p."@validTo"
    , p.id
    , p.description
    , p.quantity
    , p.price
    , p."orderId"
    , p."productId"
    , p."updatedAt"
from (select c.company_id, c.row_id, v.id as "@version", v.created_at as "@validFrom",
    case when v.next_id <= nullif(current_setting('bds.version', true), '')::bigint then v.next_at end as "@validTo", s.state as "@state"
    , n.id
    , n.description
    , n.quantity
    , n.price
    , n."orderId"
    , n."productId"
    , n."updatedAt"
from (
    select t.company_id, t.id as row_id from data.order_items t where t.company_id = current_setting('bds.company', true)
    union
    select l.company_id, l.row_id from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id > nullif(current_setting('bds.since', true), '')::bigint and l.created_at >= nullif(current_setting('bds.since_time', true), '')::timestamptz and l.operation = 'delete'
) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.order_items o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select k.id, k.operation, k.created_at, lag(k.id) over newest_first as next_id, lag(k.created_at) over newest_first as next_at,
        lag(k.operation) over newest_first as next_operation, lag(k.last_updated_at) over newest_first as updated_at,
        past.merge(k.old) over (newest_first rows between unbounded preceding and 1 preceding) as undone
    from (
        select l.id, l.operation, l.created_at, l.last_updated_at, l.old as old from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'orderItems'
        union all
        (
            select l.id, l.operation, l.created_at, null::timestamptz as last_updated_at, null::jsonb as old from bds.change_log l where l.row_id = c.row_id and l.company_id = current_setting('bds.company', true) and l.entity = 'orderItems' and l.id <= nullif(current_setting('bds.since', true), '')::bigint and l.created_at <= nullif(current_setting('bds.since_time', true), '')::timestamptz and l.created_at >= '-infinity'
            union all
            select null::bigint as id, null::bds.operation as operation, null::timestamptz as created_at,
                null::timestamptz as last_updated_at, null::jsonb as old
            order by id desc nulls last limit 1
        )
    ) k
    window newest_first as (order by k.id desc nulls last)
) v
cross join lateral (
    select case
        when v.next_id is null then case when t.id is not null then json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        else json_object('id' : t.id, 'description' : t.description, 'quantity' : t.quantity, 'price' : t.price, 'orderId' : t.order_id, 'productId' : t.product_id, 'updatedAt' : t.updated_at returning json)::jsonb || coalesce(g.state, '{}') || jsonb_build_object('id', c.row_id, 'updatedAt', case v.next_operation
            when 'delete' then (v.undone ->> 'updatedAt')::timestamptz else v.updated_at end)
    end as state
    from (select v.undone) g (state)
    offset 0
) s
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'description')::text as description, (g.state ->> 'quantity')::numeric as quantity, (g.state ->> 'price')::numeric as price, (g.state ->> 'orderId')::bigint as "orderId", (g.state ->> 'productId')::bigint as "productId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select s.state) g) n
where (v.id <= nullif(current_setting('bds.version', true), '')::bigint or v.id is null) and v.operation is distinct from 'delete' and s.state is not null
    and (v.id is not null or v.next_operation is distinct from 'create')
    ) p
where (select past.require_registered('orderItems'));

alter view past."orderItems_versions" owner to bds_owner;

revoke all on past."orderItems_versions" from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past."orderItems_versions" is 'Lines of an order';

comment on column past."orderItems_versions".id is 'The row''s id, unique within the company';

comment on column past."orderItems_versions".description is 'Text of the line';

comment on column past."orderItems_versions".quantity is 'Quantity';

comment on column past."orderItems_versions".price is 'Price of one unit';

comment on column past."orderItems_versions"."orderId" is 'The order';

comment on column past."orderItems_versions"."productId" is 'The product; null: a line of text';

comment on column past."orderItems_versions"."updatedAt" is 'When the row last changed';

grant select on past."orderItems_versions" to bds_operator, bds_reader;

comment on column past."orderItems_versions"."@version" is 'The change that began this version of the row; null if it was there before the log';

comment on column past."orderItems_versions"."@validFrom" is 'When it began';

comment on column past."orderItems_versions"."@validTo" is 'When the next one, or none, took its place; null while it is valid';

---- table of orderItems

-- table of orderItems
alter table data.order_items enable row level security;

drop policy if exists own_company on data.order_items;

drop policy if exists every_company on data.order_items;

create policy own_company on data.order_items to bds_writer using (company_id = current_setting('bds.company', true));

create policy every_company on data.order_items to bds_operator using (true);

revoke all on data.order_items from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

revoke all on sequence data.order_items_id_seq from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

grant select, insert, update, delete on data.order_items to bds_writer, bds_operator;

grant maintain on data.order_items to bds_importer, bds_operator;

grant usage on sequence data.order_items_id_seq to bds_writer, bds_operator;

alter table data.order_items alter column updated_at set default clock_timestamp();
create or replace trigger bds_1_lock before insert or update or delete on data.order_items for each statement
    execute function bds_log.lock_named_company();
create or replace trigger bds_1_lock_old_row before delete on data.order_items for each row
    when (coalesce(
            old.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || old.company_id || '@') > 0
        ) is not true)
    execute function bds_log.lock_old_row_company();
create or replace trigger bds_2_stamp_new before insert on data.order_items for each row
    when (
        coalesce(
            new.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || new.company_id || '@') > 0
        ) is not true
        or coalesce(new.updated_at not between statement_timestamp() and clock_timestamp(), true)
        or strpos(current_setting('bds.turns', true), '@2') > 0  -- new rows have a floor: 2 begins its year, see take_turn
    )
    execute function bds_log.order_items_stamp();
create or replace trigger bds_2_stamp before update on data.order_items for each row
    execute function bds_log.order_items_stamp();
create or replace trigger bds_truncate before truncate on data.order_items for each statement
    execute function bds_log.refuse_truncate();
create or replace trigger bds_log_insert after insert on data.order_items
    referencing new table as new_rows for each statement
    execute function bds_log.order_items_insert();
create or replace trigger bds_log_update after update on data.order_items
    referencing old table as old_rows new table as new_rows for each statement
    execute function bds_log.order_items_update();
create or replace trigger bds_log_delete after delete on data.order_items
    referencing old table as old_rows for each statement
    execute function bds_log.order_items_delete();

---- tables of imports of orderItems

diff_orderItems
"@ordinal" bigint, id bigint, "@new" boolean, "@mask 0" bigint
, description text {storage}
, quantity numeric(19,6) {storage}
, price numeric(19,4) {storage}
, order_id bigint {storage}
, product_id bigint {storage}


fit_orderItems
key bigint, id bigint, more int

home_orderItems
id bigint, is_whole boolean, keeps boolean

item_orderItems
ordinal bigint, home bigint, shape bigint, key bigint, target bigint, was bigint
    , h1 bigint, h2 bigint, h3 bigint, h4 bigint, t1 bigint, t4 bigint

lookup_orderItems_order
lookup text {storage}, kind text {storage}, value text {storage}

lookup_orderItems_product
lookup text {storage}, kind text {storage}, value text {storage}

map_orderItems
ordinal bigint, parent bigint, "position" bigint,
phase int,  -- 1 writes, 2 updates by a condition, 3 deletes
operation text {storage},
target bigint,  -- the row's id, taken ahead for a new row
is_new boolean, is_ambiguous boolean,
is_same boolean,  -- changes nothing
failed boolean,
id text {storage}, id_kind text {storage}  -- the record's own lookup
, home bigint, shape bigint  -- of an item the parent's row, a bit for each field given


named_orderItems
ordinal bigint, id bigint

pair_orderItems
ordinal bigint, id bigint, weight float8, tie bigint

ref_orderItems_order
lookup text {storage}, kind text {storage}, id bigint

ref_orderItems_product
lookup text {storage}, kind text {storage}, id bigint

row_orderItems
id bigint, home bigint, is_free boolean, filled bigint, h1 bigint, h2 bigint, h3 bigint, h4 bigint

staged_orderItems
"@ordinal" bigint generated by default as identity (minvalue 0),  -- numbers the records
"@parent" bigint,  -- the ordinal of the record that contains it
"@position" bigint,  -- the number in its array; "@ordinal" if null
"@id" text {storage},  -- its own lookup
"@operation" text {storage},
"@where" text {storage},
"@lookups" text {storage}  -- of "@where": [[entity, field, value], ...]
, description text {storage}
, quantity text {storage}
, price text {storage}
, "order" text {storage}
, product text {storage}


way_orderItems
key bigint, level int

---- functions of imports of orderItems

bds_import."check_claims_orderItems"(bds.imports,text[],boolean,boolean) returns void language plpgsql
begin
    if true then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        with claimed as materialized (
            select m.ordinal, k.key
            from pg_temp."map_orderItems" m
            -- a delete by an id that no row has claims the id
            cross join lateral (
                select coalesce(m.target, bds_feed.lookup_id(m.id))
            ) as k (key)
            where k.key is not null
                and (not m.is_new or m.phase = 3 and not m.failed)
        )
        select 'orderItems', d.ordinal, null, 'duplicate_record',
            'an earlier record of this document names the same row'
        from (
            select c.ordinal, row_number() over (partition by c.key order by c.ordinal) as n from claimed c
            where c.key in (select o.key from claimed o group by o.key having count(*) > 1)
        ) d
        where d.n > 1 and not exists (
            select from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = d.ordinal and e.code = 'duplicate_record'
        );
        if found then
            update pg_temp."map_orderItems" m set failed = true  -- at once: no lookup may find it
            from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;
    end if;
end

bds_import."check_keys_orderItems"(bds.imports,text[],boolean,boolean) returns void language plpgsql
begin
    if not $3 then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', m.ordinal, v.field, v.code, v.message
        from pg_temp."map_orderItems" m
        cross join lateral (values
            (m.id_kind <> all ('{id}'), 'id', 'invalid_value',
                format('expected a lookup (id:...), got %L', left(bds_feed.staged_text(m.id), 100))),
            (m.id_kind = 'id' and m.is_new and m.operation <> 'delete', 'id', 'not_found', format('no such row: %s', m.id)),
            (m.is_ambiguous, null, 'lookup_ambiguous', 'its unique fields name different rows')
        ) as v (is_wrong, field, code, message)
        where (m.id_kind <> all ('{id}') or m.id_kind = 'id' and m.is_new or m.is_ambiguous) and v.is_wrong;
    end if;
    if '@id' = any ($2) then
        -- a record without a lookup of its own matches the row with its value; only others can have the value of another row
        update pg_temp."map_orderItems" m set failed = true  -- at once: other records may then have its unique values
        from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = m.ordinal and m.id is not null;
    end if;
    if exists (select from pg_temp."map_orderItems" m offset 1) then  -- one record has no duplicate
        perform bds_import."check_claims_orderItems"(import, $2, $3, $4);
    end if;
end

bds_import."check_nesting_orderItems"(text[]) returns void language plpgsql
begin
    if 'order' = any ($1) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', s."@ordinal", 'order', 'invalid_value',
            format('expected the row of orders that contains the record, got %s', left(r.lookup, 100))
        from pg_temp."staged_orderItems" s
        join pg_temp."ref_orderItems_order" r on r.lookup = s."order"
        join pg_temp."map_orders" p on p.ordinal = s."@parent"
        where r.id <> p.target;
    end if;
end

bds_import."check_operations_orderItems"() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', m.ordinal, v.field, v.code, v.message
    from pg_temp."map_orderItems" m join pg_temp."staged_orderItems" s on s."@ordinal" = m.ordinal
    cross join lateral (
        select coalesce(s."@id"
                , 'like it'),
            coalesce(s."@id", s."@where")
    ) as n (lookup, identity)
    cross join lateral (values
        (m.operation not in ('create', 'update', 'upsert', 'delete'), '@operation', 'invalid_directive',
            format('expected create, update, upsert or delete, got %L', left(m.operation, 100))),
        (s."@where" is not null and m.operation not in ('update', 'delete'), '@where', 'invalid_directive',
            'expected only with "@operation": "update" or "delete"'),
        (s."@where" is not null and s."@id" is not null, '@where', 'invalid_directive', 'expected an id or @where, got both'),
        (s."@where" is not null and s."@parent" is not null, '@where', 'invalid_directive',
            'expected only in a record at the top level'),
        (s."@where" is not null and m.phase = 2 and coalesce(null) is not null, '@where',
            'invalid_directive', 'expected no children beside a condition'),
        (s."@where" = '', '@where', 'invalid_directive', 'expected a condition, got nothing'),
        (m.operation = 'create' and m.phase = 1 and not m.is_new, null, 'already_exists', format('it is row %s', m.target)),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is null, null, 'required',
            'expected id of the row to update, or @where'),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is not null, null, 'not_found',
            format('orderItems has no row %s to update', left(n.lookup, 100))),
        -- to delete a row that does not exist is no error
        (m.operation = 'delete' and m.is_new and n.identity is null, null, 'required', 'expected id of the row to delete')
    ) as v (is_wrong, field, code, message)
    where (m.operation <> 'upsert' or s."@where" is not null) and v.is_wrong and not exists (
        select from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = m.ordinal and e.code = v.code
    );
end

bds_import."check_orderItems"(text[]) returns void language plpgsql
begin
    if $1 && '{@operation,@where}' then
        perform bds_import."check_operations_orderItems"();
    end if;
    -- a record whose lookup finds no row is not new, and a refused value is not missing
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', m.ordinal, v.field, 'required', v.field || ' is required'
    from pg_temp."map_orderItems" m join pg_temp."staged_orderItems" s on s."@ordinal" = m.ordinal
    cross join lateral (values
        (null, false)
        , ('order', (s."order" = e'\x01' or m.is_new and m.operation <> 'update' and s."order" is null and s."@parent" is null))
    ) as v (field, is_missing)
    where m.phase < 3 and (false or (s."order" = e'\x01' or m.is_new and m.operation <> 'update' and s."order" is null and s."@parent" is null)) and v.is_missing
        and not bds_feed.is_completed('data.order_items') and not exists (
        select from pg_temp.feed_errors e
        where e.entity = 'orderItems' and e.ordinal = m.ordinal and e.field in ('id', '@operation', '@where', v.field)
    );
end

bds_import."check_rules_orderItems"(bds.imports,bigint,bigint) returns void language plpgsql
#variable_conflict use_column
begin  -- a rule may name columns that are called as the parameters are
    if not bds_feed.is_completed('data.order_items') then
    begin
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', d."@ordinal", 'price', 'invalid_value', 'it breaks the rule price_is_finite'
        from pg_temp."diff_orderItems" d
        where d."@ordinal" between $2 and $3 and d."@new" is not null
            and (
                select not (((price > '-Infinity'::numeric) AND (price < 'Infinity'::numeric)))
                from (select import.company_id as company_id, d.id, d.description as description, d.quantity as quantity, d.price as price, d.order_id as order_id, d.product_id as product_id) as row_to_be
            );
    exception when others then  -- the rule raises for a record: the writing finds which
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
    end;
    begin
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', d."@ordinal", 'quantity', 'invalid_value', 'it breaks the rule quantity_is_finite'
        from pg_temp."diff_orderItems" d
        where d."@ordinal" between $2 and $3 and d."@new" is not null
            and (
                select not (((quantity > '-Infinity'::numeric) AND (quantity < 'Infinity'::numeric)))
                from (select import.company_id as company_id, d.id, d.description as description, d.quantity as quantity, d.price as price, d.order_id as order_id, d.product_id as product_id) as row_to_be
            );
    exception when others then  -- the rule raises for a record: the writing finds which
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
    end;
    end if;
end

bds_import."check_undo_orderItems"(text) returns void language plpgsql
declare
    -- what an undo does not change is as the keys and references of the table keep it
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = 'orderItems');
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', d."@ordinal", 'orderId', 'lookup_not_found',
        format('orders %s, to which it referred, does not exist any more', d.order_id)
    from pg_temp."diff_orderItems" d
    where d."@new" is not null and d.order_id is not null and (d."@new" or 'orderId' = any (given))
        and not exists (select from data.orders t where t.company_id = (select $1) and t.id = d.order_id)
        and not exists (select from pg_temp."map_orders" m where m.target = d.order_id and m.is_new and not m.failed);
    if found then
        perform bds_import."leave_orderItems"();
    end if;
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', d."@ordinal", 'productId', 'lookup_not_found',
        format('products %s, to which it referred, does not exist any more', d.product_id)
    from pg_temp."diff_orderItems" d
    where d."@new" is not null and d.product_id is not null and (d."@new" or 'productId' = any (given))
        and not exists (select from data.products t where t.company_id = (select $1) and t.id = d.product_id)
        and not exists (select from pg_temp."map_products" m where m.target = d.product_id and m.is_new and not m.failed);
    if found then
        perform bds_import."leave_orderItems"();
    end if;
end

bds_import."check_values_orderItems"() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', s."@ordinal", v.field, 'invalid_value',
        format('expected %s, got %s', v.expected, quote_literal(left(bds_feed.staged_text(v.given), 100)))
    from pg_temp."staged_orderItems" s
    cross join lateral (values
        (null, null, true, null, false)
        , ('quantity', s."quantity", pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric'), 'a number that fits numeric(19,6)', false)
        , ('price', s."price", pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric'), 'a number that fits numeric(19,4)', false)
    ) as v (field, given, is_valid, expected, identifies)
    where not (true and (s."quantity" is null or s."quantity" = e'\x01' or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric')) and (s."price" is null or s."price" = e'\x01' or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric')))
        and v.given <> e'\x01' and not v.is_valid and (v.identifies or not (s."@operation" is not distinct from 'delete' and coalesce(s."@id", s."@where") is not null));
end

bds_import."compare_orderItems"(bds.imports,text[]) returns void language plpgsql
declare
    looked record;
begin
    select * into looked from pg_temp.feed_entities f where f.name = 'orderItems';
    if 'orders' = any (members) and 'order' = any (looked.columns) or 'products' = any (members) and 'product' = any (looked.columns) then
        perform bds_import."refer_orderItems"(import, looked.columns, false);
    end if;
    perform bds_import."link_orderItems"(import, looked.columns, looked.is_valid);
    perform bds_import."check_orderItems"(looked.columns);
    perform bds_feed.show_progress(import, 'comparing', 'orderItems', 2);
    if exists (select from pg_temp."map_orderItems" m where m.phase = 1 and not m.is_same) then
        begin
            insert into pg_temp."diff_orderItems"
            select * from bds_import."differing_orderItems"(import.company_id, looked.columns, looked.is_valid);
        exception when others then  -- a default may raise
            if not bds_feed.is_fault_of_rows(import, sqlstate) then
                raise;
            end if;
            perform bds_import."fail_defaults_orderItems"(import);
            insert into pg_temp."diff_orderItems"
            select * from bds_import."differing_orderItems"(import.company_id, looked.columns, looked.is_valid);
        end;
        perform bds_feed.filled(import, 'diff_orderItems');
    end if;
    perform bds_import."check_nesting_orderItems"(looked.columns);
    perform bds_import."check_rules_orderItems"(import, 0, 9223372036854775807);
    perform bds_feed.show_progress(import, 'comparing', 'orderItems', 3);
end

bds_import."compared_orderItems"(text,boolean,text[]) returns TABLE("@ordinal" bigint, id bigint, "@existed" boolean, "@action" text, "@field" text, "@code" text, "@message" text, "@mask 0" bigint, description text, quantity numeric, price numeric, order_id bigint, product_id bigint) language sql
select r.n as "@ordinal", r.id, r.existed as "@existed", a.action as "@action", p.field as "@field", p.code as "@code",
    p.message as "@message", (case when 'description' = any ($3) and r.known ? 'description' then 1 else 0 end | case when 'quantity' = any ($3) and r.known ? 'quantity' then 2 else 0 end | case when 'price' = any ($3) and r.known ? 'price' then 4 else 0 end | case when 'orderId' = any ($3) and r.known ? 'orderId' then 8 else 0 end | case when 'productId' = any ($3) and r.known ? 'productId' then 16 else 0 end)::bigint as "@mask 0", v.description, v.quantity, v.price, v.order_id, v.product_id
from (
    -- an erased value cannot be restored: the row keeps its present one
    select o.*, o.old - coalesce(o.erased, '{}') as known from pg_temp.revert_rows o where o.entity = 'orderItems' offset 0
) r
left join data.order_items t on t.company_id = (select $1) and t.id = r.id
cross join lateral (
    select
        case when 'description' = any ($3) and r.known ? 'description' then (r.known ->> 'description')::text else t.description end as description
,         case when 'quantity' = any ($3) and r.known ? 'quantity' then (r.known ->> 'quantity')::numeric(19,6) else case when t.id is null then 1 else t.quantity end end as quantity
,         case when 'price' = any ($3) and r.known ? 'price' then (r.known ->> 'price')::numeric(19,4) else t.price end as price
,         case when 'orderId' = any ($3) and r.known ? 'orderId' then (r.known ->> 'orderId')::bigint else t.order_id end as order_id
,         case when 'productId' = any ($3) and r.known ? 'productId' then (r.known ->> 'productId')::bigint else t.product_id end as product_id
    offset 0
) v
cross join lateral (
    select 'description' = any ($3) and t.description is distinct from v.description or 'quantity' = any ($3) and record_image_ne(row(t.quantity::numeric(19,6)), row((v.quantity)::numeric(19,6))) or 'price' = any ($3) and record_image_ne(row(t.price::numeric(19,4)), row((v.price)::numeric(19,4))) or 'orderId' = any ($3) and t.order_id is distinct from v.order_id or 'productId' = any ($3) and t.product_id is distinct from v.product_id as differs,
        false
        or case when r.left_as ? 'description' then t.description is distinct from (r.left_as ->> 'description')::text else false end
        or case when r.left_as ? 'quantity' then record_image_ne(row(t.quantity::numeric(19,6)), row(((r.left_as ->> 'quantity')::numeric(19,6))::numeric(19,6))) else false end
        or case when r.left_as ? 'price' then record_image_ne(row(t.price::numeric(19,4)), row(((r.left_as ->> 'price')::numeric(19,4))::numeric(19,4))) else false end
        or case when r.left_as ? 'orderId' then t.order_id is distinct from (r.left_as ->> 'orderId')::bigint else false end
        or case when r.left_as ? 'productId' then t.product_id is distinct from (r.left_as ->> 'productId')::bigint else false end
        as is_not_as_left,
        case when false then null end as unfit
) d
cross join lateral (
    select case
        when not r.existed then case when t.id is not null then 'delete' end
        when t.id is null then 'create'
        when r.erased is not null or d.differs then 'update'
    end as action,
    -- most rows need none of the checks that follow
    r.later is not null or r.erased is not null or d.unfit is not null or r.existed and (
        t.id is null and not r.is_whole or v.quantity is null or v.order_id is null
    ) as is_suspect
) a
left join lateral (
    select w.field, w.code, w.message
    from (values
        (1, a.action = 'create' and not r.is_whole, null, 'conflict', coalesce(
            format('change ' || r.later || ' by %s has deleted it', r.later_by),
            'the row cannot be found, though no change has deleted it: a policy of its table may hide it')),
        -- with force the other values of the row are undone
        (2, r.erased is not null and (not $2 or a.action = 'update' and not d.differs), r.erased[1], 'conflict',
            'the old value was erased'),
        (3, d.unfit is not null, d.unfit, 'conflict',
            format('the old value %s is not one of the present type', r.old ->> d.unfit)),
        (4, not $2 and r.later is not null
                and (r.left_as is null or r.has_left <> (t.id is not null) or t.id is not null and d.is_not_as_left),
            null, 'conflict', format('changed later, by change %s of %s', r.later, r.later_by))
        , (5, r.existed and v.quantity is null, 'quantity', 'required', 'a value is required, and no old one is known')
        , (5, r.existed and v.order_id is null, 'orderId', 'required', 'a value is required, and no old one is known')
    ) as w (n, is_wrong, field, code, message)
    where a.is_suspect and w.is_wrong order by w.n limit 1
) p on a.action is not null

bds_import."count_missing_orderItems"() returns void language plpgsql
begin
    update pg_temp.feed_entities f
    set unchanged = f.unchanged + m.rows
    from (select count(*) as rows from pg_temp."map_orderItems" o where o.phase = 3 and o.is_new and not o.failed) m
    where f.name = 'orderItems';
end

bds_import."count_orderItems"() returns void language plpgsql
begin
    if exists (select from pg_temp.feed_errors) then
        delete from pg_temp."diff_orderItems" d using pg_temp."map_orderItems" m where m.ordinal = d."@ordinal" and m.failed;
    end if;
    update pg_temp.feed_entities f
    set rows = m.rows, tops = m.tops, failed = m.failed, updates = m.updates, deletes = m.deletes,
        created = d.created, updated = d.rows - d.created, unchanged = m.writes - d.rows
    from (
        select count(*) as rows, count(*) filter (where o.parent is null) as tops, count(*) filter (where o.failed) as failed,
            count(*) filter (where o.phase = 1 and not o.failed) as writes,
            count(*) filter (where o.phase = 2 and not o.failed) as updates,
            count(*) filter (where o.phase = 3 and not o.failed) as deletes
        from pg_temp."map_orderItems" o
    ) m
    cross join (select count(o."@new") as rows, count(*) filter (where o."@new") as created from pg_temp."diff_orderItems" o) d
    where f.name = 'orderItems';
end

bds_import."differing_orderItems"(text,text[],boolean) returns TABLE("@ordinal" bigint, id bigint, "@new" boolean, "@mask 0" bigint, description text, quantity numeric, price numeric, order_id bigint, product_id bigint) language sql
select v."@ordinal", v.id, v."@new", v."@mask 0", v.description, v.quantity, v.price, v.order_id, v.product_id
from (
    select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new"
        , (case when ('description' = any ($2)) and (s."description" is not null) then 1 else 0 end | case when ('quantity' = any ($2)) and (s."quantity" is not null) then 2 else 0 end | case when ('price' = any ($2)) and (s."price" is not null) then 4 else 0 end | case when (true) and (s."order" is not null or s."@parent" is not null) then 8 else 0 end | case when ('product' = any ($2)) and (s."product" is not null) then 16 else 0 end)::bigint as "@mask 0"
        , case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end as description, t.description as "stored description"
        , case when s."quantity" is null then case when m.is_new then 1 else t.quantity end when s."quantity" = e'\x01' then 1 else case when $3 or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric') then s."quantity"::numeric(19,6) end end as quantity, t.quantity as "stored quantity"
        , case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end as price, t.price as "stored price"
        , coalesce(p.target, case when s."order" is null then t.order_id when s."order" <> e'\x01' then ref_order.id end) as order_id, t.order_id as "stored order_id"
        , case when s."product" is null then t.product_id when s."product" <> e'\x01' then ref_product.id end as product_id, t.product_id as "stored product_id"
    from pg_temp."map_orderItems" m
    join pg_temp."staged_orderItems" s on s."@ordinal" = m.ordinal
    left join data.order_items t on t.company_id = (select $1) and t.id = m.target and not m.is_new
    left join pg_temp."map_orders" p on p.ordinal = s."@parent"
    left join pg_temp."ref_orderItems_order" "ref_order" on 'order' = any ($2) and "ref_order".lookup = s."order"
    left join pg_temp."ref_orderItems_product" "ref_product" on 'product' = any ($2) and "ref_product".lookup = s."product"
    where m.phase = 1 and not m.is_same
    offset 0
) v
where v."@new"
    or ('description' = any ($2)) and v.description is distinct from v."stored description"
        or ('quantity' = any ($2)) and v.quantity is distinct from v."stored quantity"
        or ('price' = any ($2)) and v.price is distinct from v."stored price"
        or (true) and v.order_id is distinct from v."stored order_id"
        or ('product' = any ($2)) and v.product_id is distinct from v."stored product_id"


bds_import."fail_batches_orderItems"(boolean) returns void language plpgsql
begin
    with numbered as (
        select m.ordinal, m.phase, m.position, m.failed,
            (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
        from pg_temp."map_orderItems" m where m.parent is null
    ),
    batch as (
        select n.phase, n.number, min(n.ordinal) as first, min(n.position) as low, max(n.position) as high,
            count(*) filter (where n.failed) as failures
        from numbered n group by n.phase, n.number having bool_or(n.failed)
    ),
    marked as (
        update pg_temp."map_orderItems" m set failed = true
        from numbered n join batch b on b.phase = n.phase and b.number = n.number
        where m.ordinal = n.ordinal and not m.failed
    )
    insert into pg_temp.feed_errors (entity, ordinal, code, is_late, message)
    select 'orderItems', b.first, 'batch_failed', $1, format(
        'the batch %s[%s..%s] was not written, because of %s in it that failed', 'orderItems', b.low, b.high,
        case b.failures when 1 then 'a record' else b.failures || ' records' end)
    from batch b
    where not exists (
        select from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = b.first and e.code = 'batch_failed');
end

bds_import."fail_defaults_orderItems"(bds.imports) returns void language plpgsql
begin
    begin
        perform 1;
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
        with used as (
            update pg_temp."map_orderItems" m set is_same = true
            from pg_temp."staged_orderItems" s
            where s."@ordinal" = m.ordinal and m.phase = 1
                and (m.is_new and s."quantity" is null or true and s."quantity" = e'\x01')
            returning m.ordinal
        )
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', u.ordinal, 'quantity', 'invalid_value', 'the default of quantity raises an error' from used u
        where not exists (
            select from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = u.ordinal and e.field = 'quantity');
    end;
end

bds_import."fail_late_orderItems"(bds.imports) returns void language plpgsql
begin
    perform bds_import."mark_orderItems"();
    if import.atomic = 'batch' then
        perform bds_import."fail_batches_orderItems"(true);
    end if;
    update pg_temp.feed_entities f set failed = (select count(*) from pg_temp."map_orderItems" m where m.failed)
    where f.name = 'orderItems';
end

bds_import."fail_orphans_orderItems"(bds.imports,text[]) returns void language plpgsql
begin
    if 'orders' = any (members) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', s."@ordinal", 'order', 'lookup_not_found',
            format('orders has no row %s: the record of this document failed', r.lookup)
        from pg_temp."ref_orderItems_order" r
        join bds_import."named_orderItems_order"(import.company_id, array(select distinct o.kind from pg_temp."ref_orderItems_order" o)) n
            on n.lookup = r.lookup and n.id is distinct from r.id
        join pg_temp."staged_orderItems" s on s."order" = r.lookup
        join pg_temp."map_orderItems" m on m.ordinal = s."@ordinal" and not m.failed;
    end if;
    if 'products' = any (members) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', s."@ordinal", 'product', 'lookup_not_found',
            format('products has no row %s: the record of this document failed', r.lookup)
        from pg_temp."ref_orderItems_product" r
        join bds_import."named_orderItems_product"(import.company_id, array(select distinct o.kind from pg_temp."ref_orderItems_product" o)) n
            on n.lookup = r.lookup and n.id is distinct from r.id
        join pg_temp."staged_orderItems" s on s."product" = r.lookup
        join pg_temp."map_orderItems" m on m.ordinal = s."@ordinal" and not m.failed;
    end if;
end

bds_import."find_absent_orderItems"(text) returns void language plpgsql
begin
    -- the row of a failed record is unknown if all of them failed, or if what identifies the row is wrong
    if exists (
        select from pg_temp.feed_entities f
        where f.name = 'orderItems' and f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp."map_orderItems" m
            left join pg_temp.feed_errors e on e.entity = 'orderItems' and e.ordinal = m.ordinal
            where m.failed and (
                m.target is null and not m.is_new  -- of a condition
                or e.code = 'lookup_ambiguous'
                or m.is_new and (e.field = any ('{id}') or true)
            )
        ))
    ) then
        insert into pg_temp.feed_errors (entity, path, code, message, is_late)
        values (
            'orderItems', 'orderItems@removeAll', 'batch_failed', 'nothing was removed: the rows of failed records are unknown', true
        );
    else
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select 'orderItems', t.id, 'collection', 'orderItems', t.id
        from data.order_items t
        where t.company_id = $1 and not exists (select from pg_temp."map_orderItems" m where m.target = t.id)
            -- the rows of a mass delete are in the feed, too
            and not exists (select from pg_temp.feed_gone g where g.entity = 'orderItems' and g.kind = 'record' and g.id = t.id);
    end if;
end

bds_import."find_deleted_orderItems"(bds.imports) returns void language plpgsql
declare
    mass    record;
    known   text;
    problem boolean := false;
begin
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select 'orderItems', m.target, 'record', 'orderItems', m.ordinal
    from pg_temp."map_orderItems" m where m.phase = 3 and m.target is not null and not m.failed;
    for mass in
        select m.ordinal, s."@where" as condition, s."@lookups" as lookups
        from pg_temp."map_orderItems" m join pg_temp."staged_orderItems" s on s."@ordinal" = m.ordinal
        where m.phase = 3 and s."@where" is not null and not m.failed order by m.ordinal
    loop
        begin
            insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
            select 'orderItems', w.id, 'record', 'orderItems', mass.ordinal
            from bds_feed.rows_where(import.company_id, 'orderItems', mass.condition, mass.lookups) as w (id);
        exception when sqlstate 'BDF01' then
            get stacked diagnostics known = pg_exception_detail;
            perform bds_feed.add_errors(
                known::jsonb, jsonb_build_object('entity', 'orderItems', 'ordinal', mass.ordinal, 'is_late', true));
            problem := true;
        end;
    end loop;
    if problem then
        perform bds_import."keep_orderItems"(import);
    end if;
end

bds_import."find_removed_orderItems"(text) returns void language plpgsql
begin
end

bds_import."in_order_orderItems"(text,text[],boolean) returns TABLE(ordinal bigint, parent bigint, "position" bigint, phase integer, operation text, target bigint, is_new boolean, is_ambiguous boolean, is_same boolean, failed boolean, id text, id_kind text, home bigint, shape bigint) language sql
select i."@ordinal", i."@parent", coalesce(i."@position", i."@ordinal"),
    case when i."@operation" = 'delete' then 3 when i."@where" is not null then 2 else 1 end, coalesce(i."@operation", 'upsert'),
    coalesce(n.id, r.id, i."@id of new"), n.id is null and r.id is null and i."@where" is null, false,
    r.id is not null and i."@operation" is distinct from 'delete', false, i."@id", bds_feed.lookup_kind(i."@id")

    , i."@home", 0::bigint | case when i."description" is null then 0 else 1 end | case when i."quantity" is null then 0 else 2 end | case when i."price" is null then 0 else 4 end | case when i."product" is null then 0 else 8 end
from (
    -- an item of a new parent is new and gets its id here, in the order of the document
    select s.*, h.id as "@home", row_number() over (partition by h.id order by s."@ordinal") as "@nth",
        case
            when u.id is null and s."@id" is null and s."@where" is null and s."@operation" is distinct from 'delete'
                then nextval('data.order_items_id_seq')
        end as "@id of new"
        , case when h.id is not null then case when s."description" = e'\x01' then (null)::text else bds_feed.staged_text(s."description") end end as "=description"
        , case when h.id is not null then case when s."quantity" = e'\x01' then (1)::numeric(19,6) else case when $3 or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric') then s."quantity"::numeric(19,6) end end end as "=quantity"
        , case when h.id is not null then case when s."price" = e'\x01' then (null)::numeric(19,4) else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end end as "=price"
        , case when h.id is not null then ref_product.id end as "=product_id"
    from pg_temp."staged_orderItems" s
    left join pg_temp."map_orders" p on p.ordinal = s."@parent"
    left join pg_temp."ref_orderItems_order" "ref_order" on 'order' = any ($2) and "ref_order".lookup = s."order"
    left join pg_temp."ref_orderItems_product" "ref_product" on 'product' = any ($2) and "ref_product".lookup = s."product"
    cross join lateral (select coalesce(case when not p.is_new then p.target end, "ref_order".id)
         as id) u
    -- an item that creates, has an id or is a condition is not compared
    cross join lateral (
        select case when s."@id" is null and s."@where" is null and s."@operation" is distinct from 'create' then u.id end as id
    ) h
) i
left join (
    select t.*, row_number() over (partition by t.order_id order by t.id) as "@nth"
    from (
        select p.target as id from pg_temp."map_orders" p
        where not p.is_new and p.ordinal in (select s."@parent" from pg_temp."staged_orderItems" s)
        union
        select r.id from pg_temp."ref_orderItems_order" r where r.id is not null
    ) h
    join data.order_items t on t.company_id = (select $1) and t.order_id = h.id
    where not exists (select from pg_temp."named_orderItems" n where n.id = t.id)
-- + 0: both sides are sorted by parent, and a merge would compare each item of a parent with all of its rows
) r on r.order_id + 0 = i."@home" and r."@nth" = i."@nth"
    and (i."description" is null or i."=description" is not distinct from r.description)
    and (i."quantity" is null or i."=quantity" is not distinct from r.quantity)
    and (i."price" is null or i."=price" is not distinct from r.price)
    and (i."product" is null or i."=product_id" is not distinct from r.product_id)
left join pg_temp."named_orderItems" n on '@id' = any ($2) and n.ordinal = i."@ordinal"

bds_import."keep_orderItems"(bds.imports) returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, path, record, code, message, is_late)
    select distinct on (g.kind, g.ticket) 'orderItems', case when t.id is null then g.ticket end,
        case when t.id is not null then 'orderItems@removeAll' end,
        coalesce('id:' || t.id), g.code, g.message, true
    from pg_temp.feed_gone g
    left join data.order_items t on g.kind = 'collection' and t.company_id = (select import.company_id) and t.id = g.ticket
    where g.cause = 'orderItems' and g.code is not null;
    perform bds_import."fail_late_orderItems"(import);
    delete from pg_temp.feed_gone g
    where g.cause = 'orderItems' and (g.code is not null or g.kind = 'record' and exists (
        select from pg_temp."map_orderItems" m where m.ordinal = g.ticket and m.failed));
end

bds_import."leave_orderItems"() returns void language plpgsql
begin
    perform bds_import."mark_orderItems"();
    delete from pg_temp."diff_orderItems" d using pg_temp."map_orderItems" m where m.ordinal = d."@ordinal" and m.failed;
    delete from pg_temp.feed_gone g
    using pg_temp."map_orderItems" m where g.cause = 'orderItems' and m.ordinal = g.ticket and m.failed;
end

bds_import."link_equals_orderItems"(bds.imports,text[],boolean) returns void language plpgsql
begin
    -- among items with the same fields, equal ones agree with the same rows: exchanging their rows changes nothing
    insert into pg_temp."home_orderItems"
    select m.home, min(m.shape) <> max(m.shape), not 'orderItems' = any (import.remove_all)
    from pg_temp."map_orderItems" m where m.home is not null
    group by m.home having bool_or(m.is_new);
    perform bds_feed.filled(import, 'home_orderItems');
    if bds_feed.is_open('staged_orders') then  -- closed if the document has only items at the top
        update pg_temp."home_orderItems" h set keeps = false
        from pg_temp."map_orders" p join pg_temp."staged_orders" s on s."@ordinal" = p.ordinal
        where p.target = h.id and s."items@present";
    end if;
    perform bds_import."link_rows_orderItems"(import);
    if not exists (select from pg_temp."row_orderItems" r where r.is_free) then
        return;
    end if;
    perform bds_import."link_items_orderItems"(import, $2, $3);
    perform bds_import."link_paths_orderItems"(import);
    if exists (select from pg_temp."item_orderItems" i where i.target is null) then
        perform bds_import."link_weights_orderItems"(import);
    end if;
end

bds_import."link_items_orderItems"(bds.imports,text[],boolean) returns void language plpgsql
begin
    insert into pg_temp."item_orderItems"
        (ordinal, target, home, shape, h1, h2, h3, h4, t1, t4, key)
    select i."@ordinal", i."@target", i."@home", i."@shape"
        , h1
        , h2
        , h3
        , h4
        , case when says1 then h1 end
        , case when says4 then h4 end
        , hashint8extended(i."@shape", i."@home") # coalesce(h1, 0) # coalesce(h2, 0) # coalesce(h3, 0) # coalesce(h4, 0)
    from (
        select x."@ordinal", x."@target", x."@home", x."@shape"
            , case
                when x."description" is not null
                    then coalesce(hashtextextended(x."=description", x."@home" * 64 + 1), hashint8extended(1, -x."@home"))
            end as h1
            , case
                when x."quantity" is not null
                    then coalesce(hash_numeric_extended(x."=quantity", x."@home" * 64 + 2), hashint8extended(2, -x."@home"))
            end as h2
            , case
                when x."price" is not null
                    then coalesce(hash_numeric_extended(x."=price", x."@home" * 64 + 3), hashint8extended(3, -x."@home"))
            end as h3
            , case
                when x."product" is not null
                    then coalesce(hashint8extended(x."=product_id", x."@home" * 64 + 4), hashint8extended(4, -x."@home"))
            end as h4
            , x."=description"::text <> '' as says1
            , x."=product_id" is not null as says4
        from (
            select s.*, m.target as "@target", m.home as "@home", m.shape as "@shape"
                , case when s."description" = e'\x01' then (null)::text else bds_feed.staged_text(s."description") end as "=description"
                , case when s."quantity" = e'\x01' then (1)::numeric(19,6) else case when $3 or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric') then s."quantity"::numeric(19,6) end end as "=quantity"
                , case when s."price" = e'\x01' then (null)::numeric(19,4) else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end as "=price"
                , ref_product.id as "=product_id"
            from pg_temp."map_orderItems" m join pg_temp."staged_orderItems" s on s."@ordinal" = m.ordinal
            left join pg_temp."ref_orderItems_order" "ref_order" on 'order' = any ($2) and "ref_order".lookup = s."order"
            left join pg_temp."ref_orderItems_product" "ref_product" on 'product' = any ($2) and "ref_product".lookup = s."product"
            where m.home in (select r.home from pg_temp."row_orderItems" r where r.is_free)
                and (m.is_new or m.home in (select h.id from pg_temp."home_orderItems" h where h.is_whole))
        ) x
    ) i;
    perform bds_feed.filled(import, 'item_orderItems');
    insert into pg_temp."fit_orderItems"
    select k.key, r.id, bit_count((r.filled & ~s.shape)::bit(64))
    from (select distinct i.home, i.shape from pg_temp."item_orderItems" i) s join pg_temp."row_orderItems" r on r.home = s.home
    cross join lateral (
        select hashint8extended(s.shape, s.home)
            # case when s.shape & 1 <> 0 then r.h1 else 0 end
            # case when s.shape & 2 <> 0 then r.h2 else 0 end
            # case when s.shape & 4 <> 0 then r.h3 else 0 end
            # case when s.shape & 8 <> 0 then r.h4 else 0 end
            as key
    ) k
    where k.key in (select i.key from pg_temp."item_orderItems" i);
    perform bds_feed.filled(import, 'fit_orderItems');
end

bds_import."link_named_orderItems"(bds.imports) returns void language plpgsql
begin
    insert into pg_temp."named_orderItems"
    select n.ordinal, t.id
    from (
        select s."@ordinal" as ordinal, bds_feed.lookup_id(s."@id") as id
        from pg_temp."staged_orderItems" s where s."@id" is not null offset 0
    ) n
    join data.order_items t on t.company_id = (select import.company_id) and t.id = n.id;
    perform bds_feed.filled(import, 'named_orderItems');
end

bds_import."link_orderItems"(bds.imports,text[],boolean) returns void language plpgsql
begin
    if '@id' = any ($2) then
        perform bds_import."link_named_orderItems"(import);
    end if;
    insert into pg_temp."map_orderItems" select * from bds_import."in_order_orderItems"(import.company_id, $2, $3);
    perform bds_feed.filled(import, 'map_orderItems');
    if '@id' = any ($2) then
        perform bds_import."check_keys_orderItems"(import, $2, false, false);
    end if;
    if exists (select from pg_temp."map_orderItems" m where m.is_new and m.home is not null) then
        perform bds_import."link_equals_orderItems"(import, $2, $3);
        update pg_temp."map_orderItems" m set target = i.target, is_new = i.target is null, is_same = false
        from pg_temp."item_orderItems" i where i.ordinal = m.ordinal and i.target is distinct from m.target;
    end if;
    update pg_temp."map_orderItems" m set target = n.id  -- ids follow the document
    from (
        select o.ordinal, nextval('data.order_items_id_seq') as id
        from (select o.ordinal from pg_temp."map_orderItems" o where o.target is null and o.phase = 1 order by o.ordinal) o
    ) n
    where n.ordinal = m.ordinal;
end

bds_import."link_pairs_orderItems"(bds.imports) returns void language plpgsql
begin
    loop
        update pg_temp."item_orderItems" i set target = b.id
        from (
            select p.*, row_number() over (partition by p.ordinal order by p.weight desc, p.tie, p.id) as of_item,
                row_number() over (partition by p.id order by p.weight desc, p.tie, p.ordinal) as of_row
            from pg_temp."pair_orderItems" p where p.weight > 0
        ) b
        where b.of_item = 1 and b.of_row = 1 and i.ordinal = b.ordinal;
        exit when not found;
        delete from pg_temp."pair_orderItems" p using pg_temp."item_orderItems" i where i.ordinal = p.ordinal and i.target is not null;
        delete from pg_temp."pair_orderItems" p using pg_temp."item_orderItems" i where i.target = p.id;
        perform bds_feed.filled(import, 'pair_orderItems');
    end loop;
end

bds_import."link_paths_orderItems"(bds.imports) returns void language plpgsql
declare
    deepest int;  -- the number of items that get another row for one to get its first
begin
    <<search>> loop
        delete from pg_temp."way_orderItems";
        insert into pg_temp."way_orderItems"
        select distinct f.key, 0 from pg_temp."fit_orderItems" f
        where not exists (select from pg_temp."item_orderItems" i where i.target = f.id);
        deepest := 0;
        loop
            perform bds_feed.filled(import, 'way_orderItems');
            -- count, because the planner would expect exists to end early
            exit when (
                select count(*) from pg_temp."way_orderItems" w join pg_temp."item_orderItems" i on i.key = w.key
                where i.target is null and w.level = deepest) > 0;
            insert into pg_temp."way_orderItems"
            select distinct f.key, deepest + 1
            from pg_temp."way_orderItems" w
            join pg_temp."item_orderItems" i on i.key = w.key
            join pg_temp."fit_orderItems" f on f.id = i.target
            where w.level = deepest and not exists (select from pg_temp."way_orderItems" w where w.key = f.key);
            exit search when not found;
            deepest := deepest + 1;
        end loop;
        for depth in reverse deepest .. 0 loop  -- an item that loses its row at one level gets one of the next
            with taken as (
                select distinct on (o.id) i.ordinal, o.id
                from (
                    select i.ordinal, i.key, row_number() over (partition by i.key order by i.ordinal) as n
                    from pg_temp."item_orderItems" i join pg_temp."way_orderItems" w on w.key = i.key
                    where i.target is null and w.level = depth
                ) i
                join (
                    select f.*, row_number() over (partition by f.key order by f.more, hashint8extended(f.id, f.key)) as n
                    from pg_temp."fit_orderItems" f left join pg_temp."item_orderItems" i on i.target = f.id
                    left join pg_temp."way_orderItems" w on w.key = i.key
                    where case when i.target is null then 0 else w.level + 1 end = depth
                ) o on o.key = i.key and o.n = i.n
                order by o.id, o.more, i.ordinal
            ),
            evicted as (update pg_temp."item_orderItems" i set target = null from taken t where i.target = t.id)
            update pg_temp."item_orderItems" i set target = t.id from taken t where i.ordinal = t.ordinal;
        end loop;
    end loop;
end

bds_import."link_rows_orderItems"(bds.imports) returns void language plpgsql
begin
    insert into pg_temp."row_orderItems"
    select t.id, h.id, m.target is null, 0
        | case when t.description is distinct from (null)::text then 1 else 0 end
        | case when t.quantity is distinct from (1)::numeric(19,6) then 2 else 0 end
        | case when t.price is distinct from (null)::numeric(19,4) then 4 else 0 end
        | case when t.product_id is distinct from (null)::bigint then 8 else 0 end
        , coalesce(hashtextextended(t.description, h.id * 64 + 1), hashint8extended(1, -h.id))
        , coalesce(hash_numeric_extended(t.quantity, h.id * 64 + 2), hashint8extended(2, -h.id))
        , coalesce(hash_numeric_extended(t.price, h.id * 64 + 3), hashint8extended(3, -h.id))
        , coalesce(hashint8extended(t.product_id, h.id * 64 + 4), hashint8extended(4, -h.id))
    from pg_temp."home_orderItems" h
    join data.order_items t on t.company_id = (select import.company_id) and t.order_id = h.id
    left join pg_temp."map_orderItems" m on m.target = t.id
    where (m.target is null or h.is_whole)
        and not exists (select from pg_temp."named_orderItems" n where n.id = t.id)
        and not exists (select from pg_temp."row_orderItems" r where r.id = t.id);
    perform bds_feed.filled(import, 'row_orderItems');
end

bds_import."link_weights_orderItems"(bds.imports) returns void language plpgsql
begin
    -- an item with a part of the fields of another, which still has no row, is scored again: its row may fit the other better
    update pg_temp."item_orderItems" i set target = null, was = i.target
    where i.target is not null and exists (
        select from pg_temp."item_orderItems" o
        where o.home = i.home and o.target is null and o.shape & i.shape = i.shape and o.shape <> i.shape
            and not exists (select from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = o.ordinal)
    );
    perform bds_import."weigh_orderItems"(import);
    perform bds_import."link_pairs_orderItems"(import);
    if exists (select from pg_temp."pair_orderItems") then
        perform bds_import."weigh_rare_orderItems"(import);
        perform bds_import."link_pairs_orderItems"(import);
    end if;
end

bds_import."look_at_orderItems"() returns void language plpgsql
begin
    update pg_temp.feed_entities f set columns = l.columns, is_valid = l.is_valid, rows = l.rows
    from (
        select count(*) as rows,
            bool_and(true and (s."quantity" is null or s."quantity" = e'\x01' or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric')) and (s."price" is null or s."price" = e'\x01' or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric'))) is not false as is_valid,
            array_remove(array[
                case when count(s."@id") > 0 then '@id' end,
                case when count(s."@operation") > 0 then '@operation' end,
                case when count(s."@where") > 0 then '@where' end
                , case when count(s."description") > 0 then 'description' end
                , case when count(s."quantity") > 0 then 'quantity' end
                , case when count(s."price") > 0 then 'price' end
                , case when count(s."order") > 0 then 'order' end
                , case when count(s."product") > 0 then 'product' end
            ], null) as columns
        from pg_temp."staged_orderItems" s
    ) l
    where f.name = 'orderItems';
end

bds_import."mark_orderItems"() returns void language plpgsql
begin
    update pg_temp."map_orderItems" m set failed = true
    from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = m.ordinal and not m.failed;
end

bds_import."mass_orderItems"(bds.imports,text[],boolean,bigint,bigint) returns void language plpgsql
declare
    s        record;
    problems jsonb;
begin
    for s in
        select r.* from pg_temp."map_orderItems" m join pg_temp."staged_orderItems" r on r."@ordinal" = m.ordinal
        where m.phase = 2 and not m.failed and m.ordinal between $4 and $5 order by m.ordinal
    loop
        insert into pg_temp."diff_orderItems"
        select v."@ordinal", v.id, case when false
            or v.description is distinct from v."stored description"
            or v.quantity is distinct from v."stored quantity"
            or v.price is distinct from v."stored price"
            or v.order_id is distinct from v."stored order_id"
            or v.product_id is distinct from v."stored product_id"
            then false end, v."@mask 0", v.description, v.quantity, v.price, v.order_id, v.product_id
        from (
            select s."@ordinal", t.id
                , (case when ('description' = any ($2)) and (s."description" is not null) then 1 else 0 end | case when ('quantity' = any ($2)) and (s."quantity" is not null) then 2 else 0 end | case when ('price' = any ($2)) and (s."price" is not null) then 4 else 0 end | case when (true) and (s."order" is not null or s."@parent" is not null) then 8 else 0 end | case when ('product' = any ($2)) and (s."product" is not null) then 16 else 0 end)::bigint as "@mask 0"
                , case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end as description, t.description as "stored description"
                , case when s."quantity" is null then t.quantity when s."quantity" = e'\x01' then 1 else case when $3 or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric') then s."quantity"::numeric(19,6) end end as quantity, t.quantity as "stored quantity"
                , case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end as price, t.price as "stored price"
                , case when s."order" is null then t.order_id when s."order" <> e'\x01' then ref_order.id end as order_id, t.order_id as "stored order_id"
                , case when s."product" is null then t.product_id when s."product" <> e'\x01' then ref_product.id end as product_id, t.product_id as "stored product_id"
            from bds_feed.rows_where(import.company_id, 'orderItems', s."@where", s."@lookups") w (id)
            join data.order_items t on t.company_id = (select import.company_id) and t.id = w.id
            left join pg_temp."ref_orderItems_order" "ref_order" on 'order' = any ($2) and "ref_order".lookup = s."order"
            left join pg_temp."ref_orderItems_product" "ref_product" on 'product' = any ($2) and "ref_product".lookup = s."product"
            offset 0
        ) v;
        perform bds_import."check_rules_orderItems"(import, s."@ordinal", s."@ordinal");
        select jsonb_agg(distinct jsonb_build_object('field', e.field, 'code', e.code, 'message', e.message)) into problems
        from pg_temp.feed_errors e where e.entity = 'orderItems' and e.ordinal = s."@ordinal";
        if problems is not null then
            raise exception using errcode = 'BDF01', message = 'a mass update would break a rule', detail = problems;
        end if;
        perform bds_import."write_orderItems"(import.company_id, s."@ordinal", s."@ordinal", '{}', false);
    end loop;
end

bds_import."matched_orderItems"(text,text[],boolean,boolean) returns TABLE(ordinal bigint, parent bigint, "position" bigint, phase integer, operation text, target bigint, is_new boolean, is_ambiguous boolean, is_same boolean, failed boolean, id text, id_kind text, home bigint, shape bigint) language sql
select s."@ordinal", s."@parent", coalesce(s."@position", s."@ordinal"), s."@phase", coalesce(s."@operation", 'upsert'), m.target,
    m.target is null and s."@where" is null, m.is_ambiguous,
    case when $4 and t.id is not null and not m.is_ambiguous and s."@phase" = 1 then true
        and (not ('description' = any ($2)) or case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end is not distinct from t.description)
        and (not ('quantity' = any ($2)) or case when s."quantity" is null then case when m.is_new then 1 else t.quantity end when s."quantity" = e'\x01' then 1 else case when $3 or pg_input_is_valid(s."quantity", 'numeric(19,6)') and s."quantity" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."quantity", 'numeric') then s."quantity"::numeric(19,6) end end is not distinct from t.quantity)
        and (not ('price' = any ($2)) or case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end is not distinct from t.price)
        and (not (true) or coalesce(p.target, case when s."order" is null then t.order_id when s."order" <> e'\x01' then ref_order.id end) is not distinct from t.order_id)
        and (not ('product' = any ($2)) or case when s."product" is null then t.product_id when s."product" <> e'\x01' then ref_product.id end is not distinct from t.product_id)
    else false end,
    false, s."@id", s."@kind"
from (
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.kind as "@kind", case when '@id' = any ($2) then bds_feed.lookup_id(s."@id") end as "@find_id"
    from pg_temp."staged_orderItems" s
    cross join lateral (select case when '@id' = any ($2) then bds_feed.lookup_kind(s."@id") end,
        case when '@id' = any ($2) then bds_feed.lookup_value(s."@id") end) as l (kind, value)
    -- the unique fields of a mass update are values to write
    left join lateral (select ) as n on s."@where" is null
    cross join lateral (
        select
    ) as o
     offset 0  -- the others are linked
) s
left join data.order_items by_id on '@id' = any ($2) and by_id.company_id = (select $1) and by_id.id = s."@find_id"
cross join lateral (
    select least(by_id.id), greatest(by_id.id)
) as f (id, other)
left join data.order_items t on $4 and t.company_id = (select $1) and t.id = f.id
cross join lateral (
    select f.id as target, f.id <> f.other as is_ambiguous, false as is_new
) m
left join pg_temp."map_orders" p on $4 and p.ordinal = s."@parent"
left join pg_temp."ref_orderItems_order" "ref_order" on $4 and 'order' = any ($2) and "ref_order".lookup = s."order"
left join pg_temp."ref_orderItems_product" "ref_product" on $4 and 'product' = any ($2) and "ref_product".lookup = s."product"

bds_import."name_orderItems"(bds.imports,text[]) returns void language plpgsql
declare
    looked  record;
    outside boolean;  -- it refers only to rows outside of its family
begin
    perform bds_feed.show_progress(import, 'comparing', 'orderItems', 0);
    perform bds_import."look_at_orderItems"();
    select * into looked from pg_temp.feed_entities f where f.name = 'orderItems';
    if not looked.is_valid then
        perform bds_import."check_values_orderItems"();
    end if;
    outside := not ('orders' = any (members) and 'order' = any (looked.columns) or 'products' = any (members) and 'product' = any (looked.columns));
    if outside then
        perform bds_import."refer_orderItems"(import, looked.columns, false);
    end if;
    perform bds_feed.show_progress(import, 'comparing', 'orderItems', 1);
end

bds_import."named_orderItems_order"(text,text[]) returns TABLE(lookup text, kind text, id bigint) language sql
-- rows of the document come first: the import writes them
select d.lookup, d.kind, coalesce(
    "old_id".id, "new_code".target, "old_code".id
)
from (
    select l.lookup, l.kind
        , case when l.kind = 'id' then bds_feed.lookup_id(l.lookup) end as "value_id"
        , case when l.kind = 'code' then l.value end as "value_code"
    from pg_temp."lookup_orderItems_order" l offset 0
) d
left join data.orders "old_id"
    on 'id' = any ($2) and "old_id".company_id = (select $1) and "old_id".id = d."value_id"
left join pg_temp."map_orders" "new_code"
    on 'code' = any ($2) and "new_code"."key_code" = d."value_code" and not "new_code".failed
left join data.orders "old_code"
    on 'code' = any ($2) and "old_code".company_id = (select $1) and "old_code".code = d."value_code"

bds_import."named_orderItems_product"(text,text[]) returns TABLE(lookup text, kind text, id bigint) language sql
-- rows of the document come first: the import writes them
select d.lookup, d.kind, coalesce(
    "old_id".id, "new_code".target, "old_code".id, "new_barcode".target, "old_barcode".id
)
from (
    select l.lookup, l.kind
        , case when l.kind = 'id' then bds_feed.lookup_id(l.lookup) end as "value_id"
        , case when l.kind = 'code' then l.value end as "value_code"
        , case when l.kind = 'barcode' then l.value end as "value_barcode"
    from pg_temp."lookup_orderItems_product" l offset 0
) d
left join data.products "old_id"
    on 'id' = any ($2) and "old_id".company_id = (select $1) and "old_id".id = d."value_id"
left join pg_temp."map_products" "new_code"
    on 'code' = any ($2) and "new_code"."key_code" = d."value_code" and not "new_code".failed
left join data.products "old_code"
    on 'code' = any ($2) and "old_code".company_id = (select $1) and "old_code".code = d."value_code"
left join pg_temp."map_products" "new_barcode"
    on 'barcode' = any ($2) and "new_barcode"."key_barcode" = d."value_barcode" and not "new_barcode".failed
left join data.products "old_barcode"
    on 'barcode' = any ($2) and "old_barcode".company_id = (select $1) and "old_barcode".barcode = d."value_barcode"

bds_import."note_alone_orderItems"(text) returns void language plpgsql
begin
    update pg_temp.revert_waits w set is_alone = true
    from pg_temp."diff_orderItems" d
    join data.order_items t on t.company_id = (select $1) and t.id = d.id
    cross join (select f.columns from pg_temp.feed_entities f where f.name = 'orderItems') as f (given)
    where w.entity = 'orderItems' and w.n = d."@ordinal" and not d."@new" and not (
        false
        or 'description' = any (f.given) and t.description is distinct from d.description
        or 'quantity' = any (f.given) and record_image_ne(row(t.quantity::numeric(19,6)), row((d.quantity)::numeric(19,6)))
        or 'price' = any (f.given) and record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4)))
        or 'orderId' = any (f.given) and t.order_id is distinct from d.order_id
        or 'productId' = any (f.given) and t.product_id is distinct from d.product_id
    );
end

bds_import."odd_orderItems"(text,text[]) returns TABLE(n bigint, is_there boolean, is_wanted boolean, field text, wanted text, found text) language sql
select m.ordinal, t.id is not null, d.id is not null, v.field, v.wanted, v.found
from pg_temp."map_orderItems" m
join pg_temp.revert_rows r on r.n = m.ordinal
cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
left join pg_temp."diff_orderItems" d on d."@ordinal" = m.ordinal
left join data.order_items t on t.company_id = (select $1) and t.id = m.target
left join lateral (
    select f.field, f.wanted, f.found
    from (values
        (
            1, 'description', to_json(d.description)::text, to_json(t.description)::text,
            t.description is distinct from d.description and k.known ? 'description'
        )
,         (
            2, 'quantity', to_json(d.quantity)::text, to_json(t.quantity)::text,
            record_image_ne(row(t.quantity::numeric(19,6)), row((d.quantity)::numeric(19,6))) and k.known ? 'quantity'
        )
,         (
            3, 'price', to_json(d.price)::text, to_json(t.price)::text,
            record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4))) and k.known ? 'price'
        )
,         (
            1, 'orderId', to_json(d.order_id)::text, to_json(t.order_id)::text,
            t.order_id is distinct from d.order_id and k.known ? 'orderId'
        )
,         (
            4, 'productId', to_json(d.product_id)::text, to_json(t.product_id)::text,
            t.product_id is distinct from d.product_id and k.known ? 'productId'
        )
    ) as f (n, field, wanted, found, differs)
    where f.differs order by f.n limit 1
) v on t.id is not null and d.id is not null
where not m.failed and case
    when d.id is null then t.id is not null
    when t.id is null then true
    else
        'description' = any ($2) and t.description is distinct from d.description and k.known ? 'description'
 or         'quantity' = any ($2) and record_image_ne(row(t.quantity::numeric(19,6)), row((d.quantity)::numeric(19,6))) and k.known ? 'quantity'
 or         'price' = any ($2) and record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4))) and k.known ? 'price'
 or         'orderId' = any ($2) and t.order_id is distinct from d.order_id and k.known ? 'orderId'
 or         'productId' = any ($2) and t.product_id is distinct from d.product_id and k.known ? 'productId'
end

bds_import."paths_orderItems"() returns TABLE(ordinal bigint, path text, record text) language sql
-- a record without parent is in the collection of its entity
with staged as (
    select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position,
        coalesce(bds_feed.staged_text(s."@id")) as record
    from pg_temp."staged_orderItems" s
)select s.ordinal, format(
        '%s[%s]', coalesce(p.path || '.items', 'orderItems'), s.position
    ),
    coalesce(s.record, p.record)
from staged s
left join bds_import."paths_orders"() p on p.ordinal = s.parent

bds_import."read_orderItems"(bigint,bigint[],bigint[],jsonb[],boolean) returns void language plpgsql
begin
    insert into pg_temp."staged_orderItems" ("@ordinal", "@parent", "@position", "@id", "@operation"
        , description, quantity, price, "order", product)
    select $1 + u.n - 1, u.parent, u.position, bds_feed.to_stage(nullif(u.r -> 'id', 'null'), false),
        case jsonb_typeof(u.r -> '@operation') when 'string' then u.r ->> '@operation' end
        , bds_feed.to_stage(coalesce(u.r -> 'description', u.r -> 'description'), 'text' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'quantity', u.r -> 'quantity'), 'numeric(19,6)' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'price', u.r -> 'price'), 'numeric(19,4)' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'orderId', u.r -> 'order'), 'bigint' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'productId', u.r -> 'product'), 'bigint' = 'boolean')  -- categoryId beside category
    from unnest($2, $3, $4) with ordinality as u (parent, position, r, n);
end

bds_import."redo_orderItems"(text) returns void language plpgsql
declare
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = 'orderItems');
begin
    update pg_temp."diff_orderItems" d set "@new" = null where d."@new" is not null;
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select 'orderItems', r.id, 'undo', 'orderItems', o.n
    from bds_import."odd_orderItems"($1, given) o join pg_temp.revert_rows r on r.n = o.n where not o.is_wanted;
    update pg_temp."diff_orderItems" d
    set "@new" = not o.is_there
        , description = case when o.is_there and k.known ? 'description' is not true then t.description else d.description end
        , quantity = case when o.is_there and k.known ? 'quantity' is not true then t.quantity else d.quantity end
        , price = case when o.is_there and k.known ? 'price' is not true then t.price else d.price end
        , order_id = case when o.is_there and k.known ? 'orderId' is not true then t.order_id else d.order_id end
        , product_id = case when o.is_there and k.known ? 'productId' is not true then t.product_id else d.product_id end
    from bds_import."odd_orderItems"($1, given) o
    join pg_temp.revert_rows r on r.n = o.n
    cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
    left join data.order_items t on t.company_id = (select $1) and t.id = r.id
    where d."@ordinal" = o.n;
end

bds_import."refer_orderItems"(bds.imports,text[],boolean) returns void language plpgsql
declare
    "@lookups" bigint;
    "@matches" bigint;
begin
    if 'order' = any ($2) and not $3 then
        insert into pg_temp."lookup_orderItems_order"
        select r.lookup, bds_feed.lookup_kind(r.lookup), bds_feed.lookup_value(r.lookup)
        from (select distinct s."order" as lookup from pg_temp."staged_orderItems" s where s."order" <> e'\x01') r;
        get diagnostics "@lookups" = row_count;
        perform bds_feed.filled(import, 'lookup_orderItems_order');
        insert into pg_temp."ref_orderItems_order"
        select * from bds_import."named_orderItems_order"(import.company_id, array(select distinct l.kind from pg_temp."lookup_orderItems_order" l));
        get diagnostics "@matches" = row_count;
        if "@matches" > "@lookups" then
            perform bds_import."refuse_choices_orderItems_order"();
        end if;
        perform bds_feed.filled(import, 'ref_orderItems_order');
        if exists (select from pg_temp."ref_orderItems_order" r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'orderItems', s."@ordinal", 'order', e.code, e.message
            from pg_temp."ref_orderItems_order" r
            join pg_temp."staged_orderItems" s on s."order" = r.lookup
            cross join lateral (select left(bds_feed.staged_text(r.lookup), 100)) as g (lookup)
            cross join lateral (
                select 'lookup_not_found', 'orders has no row ' || g.lookup || case
                    -- a column of a CSV file holds codes, to which the kind is added
                    when g.lookup like format('%1$s:%1$s:%%', r.kind)
                        then format(': expected the %s alone, without ''%1$s:''', r.kind)
                    else ''
                end
                where r.kind = any ('{id,code}')
                union all
                select 'invalid_value', format('expected a lookup (id:..., code:...), got %L', g.lookup) where r.kind <> all ('{id,code}')
            ) as e (code, message)
            where r.id is null and (not (s."@operation" is not distinct from 'delete' and coalesce(s."@id", s."@where") is not null));
        end if;
    end if;
    if 'product' = any ($2) and not $3 then
        insert into pg_temp."lookup_orderItems_product"
        select r.lookup, bds_feed.lookup_kind(r.lookup), bds_feed.lookup_value(r.lookup)
        from (select distinct s."product" as lookup from pg_temp."staged_orderItems" s where s."product" <> e'\x01') r;
        get diagnostics "@lookups" = row_count;
        perform bds_feed.filled(import, 'lookup_orderItems_product');
        insert into pg_temp."ref_orderItems_product"
        select * from bds_import."named_orderItems_product"(import.company_id, array(select distinct l.kind from pg_temp."lookup_orderItems_product" l));
        get diagnostics "@matches" = row_count;
        if "@matches" > "@lookups" then
            perform bds_import."refuse_choices_orderItems_product"();
        end if;
        perform bds_feed.filled(import, 'ref_orderItems_product');
        if exists (select from pg_temp."ref_orderItems_product" r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'orderItems', s."@ordinal", 'product', e.code, e.message
            from pg_temp."ref_orderItems_product" r
            join pg_temp."staged_orderItems" s on s."product" = r.lookup
            cross join lateral (select left(bds_feed.staged_text(r.lookup), 100)) as g (lookup)
            cross join lateral (
                select 'lookup_not_found', 'products has no row ' || g.lookup || case
                    -- a column of a CSV file holds codes, to which the kind is added
                    when g.lookup like format('%1$s:%1$s:%%', r.kind)
                        then format(': expected the %s alone, without ''%1$s:''', r.kind)
                    else ''
                end
                where r.kind = any ('{id,code,barcode}')
                union all
                select 'invalid_value', format('expected a lookup (id:..., code:..., barcode:...), got %L', g.lookup) where r.kind <> all ('{id,code,barcode}')
            ) as e (code, message)
            where r.id is null and (not (s."@operation" is not distinct from 'delete' and coalesce(s."@id", s."@where") is not null));
        end if;
    end if;
end

bds_import."refuse_change_orderItems"(bigint,bigint) returns void language plpgsql
declare
    ordinals bigint[] := array(
        select distinct d."@ordinal" from pg_temp."diff_orderItems" d where not d."@new" and d."@ordinal" between $1 and $2);
begin
    raise exception using
        errcode = case cardinality(ordinals) when 1 then 'BDF01' else '27000' end, message = 'a trigger leaves rows out',
        detail = jsonb_build_array(jsonb_build_object(
            'entity', 'orderItems', 'ordinal', ordinals[1], 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being changed'));
end

bds_import."refuse_choices_orderItems_order"() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', s."@ordinal", 'order', 'lookup_ambiguous',
        format('orders has several rows %s: the key was dropped from the table', left(bds_feed.staged_text(r.lookup), 100))
    from (select o.lookup from pg_temp."ref_orderItems_order" o group by o.lookup having count(*) > 1) r
    join pg_temp."staged_orderItems" s on s."order" = r.lookup
    where not (s."@operation" is not distinct from 'delete' and coalesce(s."@id", s."@where") is not null);
    delete from pg_temp."ref_orderItems_order" r using pg_temp."ref_orderItems_order" o where o.lookup = r.lookup and o.ctid < r.ctid;
end

bds_import."refuse_choices_orderItems_product"() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'orderItems', s."@ordinal", 'product', 'lookup_ambiguous',
        format('products has several rows %s: the key was dropped from the table', left(bds_feed.staged_text(r.lookup), 100))
    from (select o.lookup from pg_temp."ref_orderItems_product" o group by o.lookup having count(*) > 1) r
    join pg_temp."staged_orderItems" s on s."product" = r.lookup
    where not (s."@operation" is not distinct from 'delete' and coalesce(s."@id", s."@where") is not null);
    delete from pg_temp."ref_orderItems_product" r using pg_temp."ref_orderItems_product" o where o.lookup = r.lookup and o.ctid < r.ctid;
end

bds_import."require_created_orderItems"(text,bigint,bigint) returns void language plpgsql
declare
    problems jsonb := (
        select jsonb_agg(jsonb_build_object(
            'entity', 'orderItems', 'ordinal', d."@ordinal", 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being created'))
        from pg_temp."diff_orderItems" d
        where d."@new" and d."@ordinal" between $2 and $3
            and not exists (select from data.order_items t where t.company_id = (select $1) and t.id = d.id));
begin
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'a trigger leaves rows out', detail = problems;
    end if;
end

bds_import."resume_orderItems"(boolean) returns void language plpgsql
begin
    update pg_temp."diff_orderItems" d set "@new" = null where d."@new" is not null;
    update pg_temp."diff_orderItems" d
    set "@new" = false
        , description = case when w.waiting ? 'description' then (w.waiting ->> 'description')::text else d.description end
        , quantity = case when w.waiting ? 'quantity' then (w.waiting ->> 'quantity')::numeric(19,6) else d.quantity end
        , price = case when w.waiting ? 'price' then (w.waiting ->> 'price')::numeric(19,4) else d.price end
        , order_id = case when w.waiting ? 'orderId' then (w.waiting ->> 'orderId')::bigint else d.order_id end
        , product_id = case when w.waiting ? 'productId' then (w.waiting ->> 'productId')::bigint else d.product_id end
    from (
        select o.n, jsonb_object_agg(o.field, o.value) as waiting
        from pg_temp.revert_waits o where o.entity = 'orderItems' group by o.n having bool_or(o.is_alone) = $1
    ) w
    where w.n = d."@ordinal";
end

bds_import."spare_orderItems"() returns void language plpgsql
begin
    delete from pg_temp.feed_gone g
    where g.entity = 'orderItems' and g.kind in ('array', 'collection')
        and exists (select from pg_temp."diff_orderItems" d where d.id = g.id);
end

bds_import."stage_orderItems"(jsonb) returns void language plpgsql
declare
    odd text;
begin
    insert into pg_temp."staged_orderItems" select * from jsonb_populate_recordset(null::pg_temp."staged_orderItems", $1);
    -- jsonb_populate_recordset ignores members that are not columns
    select string_agg(distinct k, ', ') into odd
    from jsonb_array_elements($1) r cross join jsonb_object_keys(r) k
    where k not in ('@ordinal', '@parent', '@position', '@id', '@operation', '@where', '@lookups'
        , 'description', 'quantity', 'price', 'order', 'product');
    if odd is not null then
        raise exception using errcode = 'undefined_column', message = format('no such column of orderItems: %s', odd);
    end if;
end

bds_import."undo_orderItems"(bds.imports) returns void language plpgsql
declare
    given text[] := (
        select array_remove(array[case when bool_or(r.old ? 'description') then 'description' end, case when bool_or(r.old ? 'quantity') then 'quantity' end, case when bool_or(r.old ? 'price') then 'price' end, case when bool_or(r.old ? 'orderId') then 'orderId' end, case when bool_or(r.old ? 'productId') then 'productId' end], null)
        from pg_temp.revert_rows r where r.entity = 'orderItems' and r.existed);
begin
    update pg_temp.feed_entities f set columns = given where f.name = 'orderItems';
    with compared as materialized (
        select * from bds_import."compared_orderItems"(import.company_id, import.is_forced, given)
    ),
    refused as (
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'orderItems', c."@ordinal", c."@field", c."@code", c."@message" from compared c where c."@code" is not null
    ),
    gone as (
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select 'orderItems', c.id, 'undo', 'orderItems', c."@ordinal" from compared c where c."@action" = 'delete' and c."@code" is null
    ),
    mapped as (
        insert into pg_temp."map_orderItems" (ordinal, phase, target, is_new, is_same, failed)
        select c."@ordinal", case when c."@action" = 'delete' then 3 else 1 end, c.id, coalesce(c."@action" = 'create', false),
            c."@action" is null, c."@code" is not null
        from compared c
    )
    insert into pg_temp."diff_orderItems"
    select c."@ordinal", c.id, case c."@action" when 'create' then true when 'update' then false end
        , c."@mask 0"
        , c.description
        , c.quantity
        , c.price
        , c.order_id
        , c.product_id
    from compared c where c."@existed" and c."@code" is null;
    if exists (select from pg_temp.feed_errors e where e.entity = 'orderItems') then
        perform bds_import."leave_orderItems"();
    end if;
    perform bds_feed.filled(import, 'map_orderItems'), bds_feed.filled(import, 'diff_orderItems');
end

bds_import."undone_orderItems"() returns TABLE(ordinal bigint, path text, record text) language sql
select m.ordinal, 'orderItems/' || m.target, coalesce('id:' || m.target)
from pg_temp."map_orderItems" m

bds_import."weigh_orderItems"(bds.imports) returns void language plpgsql
declare
    agrees  float8[];
    differs float8[];
begin
    select array_agg(w.agrees order by w.field), array_agg(w.differs order by w.field) into agrees, differs
    from bds_feed.weights_of('orderItems', array['description', 'quantity', 'price', 'product']::text[]) w;
    insert into pg_temp."pair_orderItems"
    with i as materialized (
        select i.*, h.keeps, row_number() over (partition by i.home order by i.ordinal) - 1 as nth
        from pg_temp."item_orderItems" i join pg_temp."home_orderItems" h on h.id = i.home where i.target is null
    ),
    r as materialized (
        select r.*, row_number() over (partition by r.home order by r.id) - 1 as nth
        from pg_temp."row_orderItems" r
        where (r.is_free or r.id in (select i.was from i))
            and r.id not in (select i.target from pg_temp."item_orderItems" i where i.target is not null)
    ),
    crowded as materialized (select i.home from i where i.nth >= 32 union select r.home from r where r.nth >= 32)
    select s.ordinal, s.id, s.weight,
        case when s.was = s.id then -2 when s.nth = s.nth_row then -1 else abs(hashint8extended(s.ordinal, s.id) / 2) end
    from (
        select p.*, case when p.shape = 0 then 1e-9 else 0 end  -- an item without fields fits any row
            + case p.h1 = p.r1 when true then agrees[1] when false then differs[1] else 0 end
            + case p.h2 = p.r2 when true then agrees[2] when false then differs[2] else 0 end
            + case p.h3 = p.r3 when true then agrees[3] when false then differs[3] else 0 end
            + case p.h4 = p.r4 when true then agrees[4] when false then differs[4] else 0 end
            as weight, 0 + case when p.h1 = p.r1 then 3 else 0 end + case when p.h4 = p.r4 then 3 else 0 end as if_rare
        from (
            -- pairs with similar numbers in their parent, and those that agree in a rare value
            select i.ordinal, i.was, i.shape, i.keeps, i.nth, r.id, r.nth as nth_row
                , i.h1, r.h1 as r1, i.h2, r.h2 as r2, i.h3, r.h3 as r3, i.h4, r.h4 as r4, i.t1, i.t4
            from i cross join (values (-1), (0), (1)) as d (part) join r on r.home = i.home and r.nth / 32 = i.nth / 32 + d.part
            union all
            select distinct i.ordinal, i.was, i.shape, i.keeps, i.nth, r.id, r.nth
                , i.h1, r.h1, i.h2, r.h2, i.h3, r.h3, i.h4, r.h4, i.t1, i.t4
            from (
                select i.*, v.hash from i cross join lateral (values (null::bigint), (i.h1), (i.h2), (i.h3), (i.h4)) as v (hash)
                where i.home in (select c.home from crowded c)
            ) i
            join (
                select r.*, v.hash, count(*) over (partition by v.hash) as others
                from r cross join lateral (values (null::bigint), (r.h1), (r.h2), (r.h3), (r.h4)) as v (hash)
                where r.home in (select c.home from crowded c)
            ) r on r.hash = i.hash and r.others <= 100
            where abs(r.nth / 32 - i.nth / 32) > 1
        ) p
        where not p.keeps
            or true and coalesce(p.h1 = p.r1, true) and coalesce(p.h2 = p.r2, true) and coalesce(p.h3 = p.r3, true) and coalesce(p.h4 = p.r4, true)
            or p.t1 = p.r1
            or p.t4 = p.r4
    ) s
    where s.weight + s.if_rare > 0;
    perform bds_feed.filled(import, 'pair_orderItems');
end

bds_import."weigh_rare_orderItems"(bds.imports) returns void language plpgsql
begin
    update pg_temp."home_orderItems" h set is_whole = true
    where h.id in (select i.home from pg_temp."pair_orderItems" p join pg_temp."item_orderItems" i on i.ordinal = p.ordinal);
    perform bds_import."link_rows_orderItems"(import);
    with agreed as materialized (
        select p.ordinal, p.id, i.home, v.field, v.hash
        from pg_temp."pair_orderItems" p
        join pg_temp."item_orderItems" i on i.ordinal = p.ordinal
        join pg_temp."row_orderItems" r on r.id = p.id
        cross join lateral (values
            (0, 0::bigint, null::bigint), (1, i.h1, r.h1), (4, i.h4, r.h4)
        ) as v (field, hash, of_row)
        where v.hash = v.of_row
    ),
    term as (
        select v.hash, count(*) as n
        from pg_temp."row_orderItems" r cross join lateral (values (null::bigint), (r.h1), (r.h4)) as v (hash)
        where v.hash in (select a.hash from agreed a) group by v.hash
    ),
    home as (select r.home, count(*) as total from pg_temp."row_orderItems" r group by r.home)
    update pg_temp."pair_orderItems" p set weight = p.weight + g.bits
    from (
        select a.ordinal, a.id,
            -- in place of u: how many of the other rows have the value, at most u and at least an eighth of it
            sum(-ln(greatest(0.125, least(1, coalesce((t.n - 1) / nullif(h.total - 1, 0)::float8, 0) / w.u))) / ln(2)) as bits
        from agreed a
        join term t on t.hash = a.hash
        join home h on h.home = a.home
        join bds_feed.weights_of('orderItems', array['description', 'quantity', 'price', 'product']::text[]) w on w.field = a.field
        group by a.ordinal, a.id
    ) g
    where g.ordinal = p.ordinal and g.id = p.id;
end

bds_import."write_orderItems"(text,bigint,bigint,text[],boolean) returns void language plpgsql
declare
    "@creates" boolean := exists (select from pg_temp."diff_orderItems" d where d."@new");
    "@changes" boolean := exists (select from pg_temp."diff_orderItems" d where not d."@new");
    "@apart"   boolean := false;
    "@written" bigint;
    "@outer"   text := coalesce(current_setting('bds.unchanged', true), '');  -- of the statement that has fired this one
begin
    perform set_config('bds.unchanged', pg_trigger_depth() + 1 || ':0', true);
    if "@creates" and "@changes" and not "@apart" then
        merge into data.order_items t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.description as description
                , d.quantity as quantity
                , d.price as price
                , d.order_id as order_id
                , d.product_id as product_id
            from pg_temp."diff_orderItems" d
            where d."@ordinal" between $2 and $3 and d."@new" is not null
        ) d
        on t.company_id = (select $1) and t.id = case when not d."@new" then d.id end
        when matched then update set description = case when d."@mask 0" & 1 <> 0 then d.description else t.description end,
            quantity = case when d."@mask 0" & 2 <> 0 then d.quantity else t.quantity end,
            price = case when d."@mask 0" & 4 <> 0 then d.price else t.price end,
            order_id = case when d."@mask 0" & 8 <> 0 then d.order_id else t.order_id end,
            product_id = case when d."@mask 0" & 16 <> 0 then d.product_id else t.product_id end
        when not matched and d."@new" then
            insert (company_id, id, description, quantity, price, order_id, product_id) overriding system value
            values ($1, d.id, d.description, d.quantity, d.price, d.order_id, d.product_id);
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_orderItems" d where d."@ordinal" between $2 and $3 and d."@new" is not null
        ) then
            perform bds_import."require_created_orderItems"($1, $2, $3);
            perform bds_import."refuse_change_orderItems"($2, $3);
        end if;
    end if;
    if "@creates" and (not "@changes" or "@apart") then
        merge into data.order_items t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.description as description
                , d.quantity as quantity
                , d.price as price
                , d.order_id as order_id
                , d.product_id as product_id
            from pg_temp."diff_orderItems" d
            where d."@ordinal" between $2 and $3 and d."@new"
        ) d
        on false
        when not matched and d."@new" then
            insert (company_id, id, description, quantity, price, order_id, product_id) overriding system value
            values ($1, d.id, d.description, d.quantity, d.price, d.order_id, d.product_id);
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_orderItems" d where d."@ordinal" between $2 and $3 and d."@new"
        ) then
            perform bds_import."require_created_orderItems"($1, $2, $3);
        end if;
    end if;
    if "@changes" and (not "@creates" or "@apart") then
        merge into data.order_items t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.description as description
                , d.quantity as quantity
                , d.price as price
                , d.order_id as order_id
                , d.product_id as product_id
            from pg_temp."diff_orderItems" d
            where d."@ordinal" between $2 and $3 and not d."@new"
        ) d
        on t.company_id = (select $1) and t.id = d.id
        when matched then update set description = case when d."@mask 0" & 1 <> 0 then d.description else t.description end,
            quantity = case when d."@mask 0" & 2 <> 0 then d.quantity else t.quantity end,
            price = case when d."@mask 0" & 4 <> 0 then d.price else t.price end,
            order_id = case when d."@mask 0" & 8 <> 0 then d.order_id else t.order_id end,
            product_id = case when d."@mask 0" & 16 <> 0 then d.product_id else t.product_id end
;
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_orderItems" d where d."@ordinal" between $2 and $3 and not d."@new"
        ) then
            perform bds_import."refuse_change_orderItems"($2, $3);
        end if;
    end if;
    perform set_config('bds.unchanged', "@outer", true);
end
