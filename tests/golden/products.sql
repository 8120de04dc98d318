---- functions of products

-- functions of products
create or replace function bds_log.products_check() returns boolean language plpgsql immutable
set timezone = 'UTC'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
as $function$
declare
    this  bds.entities := (select e from bds.entities e where e.name = 'products');
    nulls text := format('(select t.* from (select) s left join %s t on false) n', this.table_name);
    found text;
    types regtype[];
begin
    execute format('select row_to_json(jsonb_populate_record(n.*, %L))::text from %s', '{"price": "0.01234567890123456789012345678901234567890", "updated_at": "2000-01-01 00:00:00.654321+00"}', nulls) into found;
    if found = '{"company_id":null,"id":null,"code":null,"name":null,"description":null,"barcode":null,"price":0.0123,"active":null,"category_id":null,"unit_id":null,"updated_at":"2000-01-01T00:00:00.654321+00:00"}' then
        execute format('select array[%s] from %s', 'pg_typeof(n.company_id), pg_typeof(n.id), pg_typeof(n.code), pg_typeof(n.name), pg_typeof(n.description), pg_typeof(n.barcode), pg_typeof(n.price), pg_typeof(n.active), pg_typeof(n.category_id), pg_typeof(n.unit_id), pg_typeof(n.updated_at)', nulls) into types;
    end if;
    if types = '{text,bigint,text,text,text,text,"numeric(19,4)",boolean,bigint,bigint,"timestamp with time zone"}'::regtype[] and not bds_registry.is_rewritten(this) then
        return true;
    end if;
    perform bds_change_log.refuse_altered(this);
-- a column rejects its probe; the table was dropped: then its name is a number; a type or its schema has another name by now
exception
    when data_exception or integrity_constraint_violation or syntax_error or undefined_object or invalid_schema_name then
        perform bds_change_log.refuse_altered(this);
end
$function$;
revoke all on function bds_log.products_check() from public;
alter function bds_log.products_check() owner to bds_owner;

create or replace function bds_log.products_stamp() returns trigger language plpgsql security definer
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
        perform bds_log.products_check();
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
revoke all on function bds_log.products_stamp() from public;
alter function bds_log.products_stamp() owner to bds_owner;

create or replace function bds_log.products_insert() returns trigger language plpgsql security definer
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
        where bds_log.products_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.products_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from new_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'products', changes, oldest, newest, case
                when date_trunc('month', oldest, 'UTC') = date_trunc('month', newest, 'UTC') then 0
                else (
                    select count(*) from new_rows r
                    where r.company_id = company and r.updated_at < date_trunc('month', newest, 'UTC')
                )
            end,
            null
        );
        base := turn.base;
        at := turn.at;
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, 'products', r.id, 'create',
                case when turn.overtaken then at else r.updated_at end,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                hash_record_extended(row(r.id, r.code, r.name, r.description, r.barcode, r.price, r.active, r.category_id, r.unit_id, r.updated_at), 0),
                null
            from new_rows r;
        else
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            -- Rows of inserts and deletes come in the order of the statement.  A change has the time of its row, but if the
            -- machine's clock went back meanwhile.
            select company, base + row_number() over w, 'products', r.id, 'create',
                case when turn.overtaken then at else max(r.updated_at) over w end,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                hash_record_extended(row(r.id, r.code, r.name, r.description, r.barcode, r.price, r.active, r.category_id, r.unit_id, r.updated_at), 0),
                null
            from new_rows r
            where r.company_id = company
            window w as (rows unbounded preceding);
        end if;
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass('data.products') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'products', 'insert', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.products t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'products', 'insert', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
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
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from new_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.products_insert() from public;
alter function bds_log.products_insert() owner to bds_owner;

create or replace function bds_log.products_update() returns trigger language plpgsql security definer
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
        where bds_log.products_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.products_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from new_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'products', changes, oldest, newest, case
                when date_trunc('month', oldest, 'UTC') = date_trunc('month', newest, 'UTC') then 0
                else (
                    select count(*) from new_rows r
                    where r.company_id = company and r.updated_at < date_trunc('month', newest, 'UTC')
                )
            end,
            null
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
                    select r.id, hash_record_extended(row(r.id, r.code, r.name, r.description, r.barcode, r.price, r.active, r.category_id, r.unit_id, r.updated_at), 0) as hash, json_object(
                'code' : case when o.code is distinct from r.code then coalesce(to_json(o.code), 'null'::json) end,
                'name' : case when o.name is distinct from r.name then coalesce(to_json(o.name), 'null'::json) end,
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'barcode' : case when o.barcode is distinct from r.barcode then coalesce(to_json(o.barcode), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'active' : case when o.active is distinct from r.active then coalesce(to_json(o.active), 'null'::json) end,
                'categoryId' : case when o.category_id is distinct from r.category_id then coalesce(to_json(o.category_id), 'null'::json) end,
                'unitId' : case when o.unit_id is distinct from r.unit_id then coalesce(to_json(o.unit_id), 'null'::json) end
                absent on null returning json
            )::jsonb as old
                    from new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id
                ) s
                join (
                    select w.row_id, max(w.id) as id
                    from bds.change_log w
                    where w.company_id = $1 and w.id between $2 and $3 and w.created_at > transaction_timestamp() - interval '1 day'
                        and w.created_at <= $4 and w.entity = 'products'
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
                        '%s of %s rows of %s have no change record of this transaction', changes - logged, changes, 'products'
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
            select company, base + 1, 'products', r.id, 'update',
                case when turn.overtaken then at else r.updated_at end,
                pg_current_xact_id(), actor, db_user, change_set,
                o.updated_at, case when turn.touched is not null then array[turn.touched] end,
                hash_record_extended(row(r.id, r.code, r.name, r.description, r.barcode, r.price, r.active, r.category_id, r.unit_id, r.updated_at), 0),
                json_object(
                'code' : case when o.code is distinct from r.code then coalesce(to_json(o.code), 'null'::json) end,
                'name' : case when o.name is distinct from r.name then coalesce(to_json(o.name), 'null'::json) end,
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'barcode' : case when o.barcode is distinct from r.barcode then coalesce(to_json(o.barcode), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'active' : case when o.active is distinct from r.active then coalesce(to_json(o.active), 'null'::json) end,
                'categoryId' : case when o.category_id is distinct from r.category_id then coalesce(to_json(o.category_id), 'null'::json) end,
                'unitId' : case when o.unit_id is distinct from r.unit_id then coalesce(to_json(o.unit_id), 'null'::json) end
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
            select company, base + row_number() over w, 'products', r.id, 'update',
                case when turn.overtaken then at else max(r.updated_at) over w end,
                pg_current_xact_id(), actor, db_user, change_set,
                o.updated_at,
                case when turn.touched is not null then array[turn.touched] end,
                hash_record_extended(row(r.id, r.code, r.name, r.description, r.barcode, r.price, r.active, r.category_id, r.unit_id, r.updated_at), 0),
                json_object(
                'code' : case when o.code is distinct from r.code then coalesce(to_json(o.code), 'null'::json) end,
                'name' : case when o.name is distinct from r.name then coalesce(to_json(o.name), 'null'::json) end,
                'description' : case when o.description is distinct from r.description then coalesce(to_json(o.description), 'null'::json) end,
                'barcode' : case when o.barcode is distinct from r.barcode then coalesce(to_json(o.barcode), 'null'::json) end,
                'price' : case when o.price is distinct from r.price then coalesce(to_json(o.price), 'null'::json) end,
                'active' : case when o.active is distinct from r.active then coalesce(to_json(o.active), 'null'::json) end,
                'categoryId' : case when o.category_id is distinct from r.category_id then coalesce(to_json(o.category_id), 'null'::json) end,
                'unitId' : case when o.unit_id is distinct from r.unit_id then coalesce(to_json(o.unit_id), 'null'::json) end
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
            if to_regclass('data.products') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'products', 'update', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from new_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.products t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.updated_at is distinct from r.updated_at
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'products', 'update', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
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
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from new_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.products_update() from public;
alter function bds_log.products_update() owner to bds_owner;

create or replace function bds_log.products_delete() returns trigger language plpgsql security definer
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
        where bds_log.products_check();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.products_check();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from old_rows r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, 'products', changes, null, null, 0,
            null
        );
        base := turn.base;
        at := turn.at;
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, 'products', r.id, 'delete',
                at,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                null,
                json_object(
                'id' : r.id,
                'code' : r.code,
                'name' : r.name,
                'description' : r.description,
                'barcode' : r.barcode,
                'price' : r.price,
                'active' : r.active,
                'categoryId' : r.category_id,
                'unitId' : r.unit_id,
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
            select company, base + row_number() over w, 'products', r.id, 'delete',
                at,
                pg_current_xact_id(), actor, db_user, change_set,
                null, null,
                null,
                json_object(
                'id' : r.id,
                'code' : r.code,
                'name' : r.name,
                'description' : r.description,
                'barcode' : r.barcode,
                'price' : r.price,
                'active' : r.active,
                'categoryId' : r.category_id,
                'unitId' : r.unit_id,
                'updatedAt' : r.updated_at
                returning jsonb
            )
            from old_rows r
            where r.company_id = company
            window w as (rows unbounded preceding);
        end if;
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass('data.products') = tg_relid then
                perform bds_change_log.put_in_order(
                    company, 'products', 'delete', array_agg(r.id), array_agg(r.updated_at), base, changes, newest
                )
                from old_rows r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from data.products t
                    where t.company_id = company and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = company
                    and t.id is not null
                having count(*) > 0;
            else  -- the table was renamed
                execute format($statement$select bds_change_log.put_in_order(
                    $1, 'products', 'delete', array_agg(r.id), array_agg(r.updated_at), $2, $3, $4
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
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from old_rows r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.products_delete() from public;
alter function bds_log.products_delete() owner to bds_owner;

---- views of products

-- views of products
create or replace view api.products as select company_id,
    id as id,
    code as code,
    name as name,
    description as description,
    barcode as barcode,
    price as price,
    active as active,
    category_id as "categoryId",
    unit_id as "unitId",
    updated_at as "updatedAt"
from data.products
where company_id = current_setting('bds.company', true);

alter view api.products owner to bds_owner;

revoke all on api.products from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view api.products is 'Things that are sold';

comment on column api.products.company_id is 'The company';

comment on column api.products.id is 'The row''s id, unique within the company';

comment on column api.products.code is 'Stock code';

comment on column api.products.name is 'Name';

comment on column api.products.description is 'Description';

comment on column api.products.barcode is 'Barcode, such as an EAN';

comment on column api.products.price is 'List price of one unit';

comment on column api.products.active is 'Whether it is on sale';

comment on column api.products."categoryId" is 'The product''s category';

comment on column api.products."unitId" is 'The unit that it is sold in';

comment on column api.products."updatedAt" is 'When the row last changed';

grant select on api.products to bds_reader, bds_writer, bds_operator;

create or replace view my.products with (security_barrier) as select
    id as id,
    code as code,
    name as name,
    description as description,
    barcode as barcode,
    price as price,
    active as active,
    category_id as "categoryId",
    unit_id as "unitId",
    updated_at as "updatedAt"
from data.products
where company_id = (
    select l.company_id from bds.company_logins l where l.role_name = session_user
);

alter view my.products owner to bds_owner;

revoke all on my.products from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view my.products is 'Things that are sold';

comment on column my.products.id is 'The row''s id, unique within the company';

comment on column my.products.code is 'Stock code';

comment on column my.products.name is 'Name';

comment on column my.products.description is 'Description';

comment on column my.products.barcode is 'Barcode, such as an EAN';

comment on column my.products.price is 'List price of one unit';

comment on column my.products.active is 'Whether it is on sale';

comment on column my.products."categoryId" is 'The product''s category';

comment on column my.products."unitId" is 'The unit that it is sold in';

comment on column my.products."updatedAt" is 'When the row last changed';

grant select on my.products to bds_analyst;

create or replace view past.products as select t.company_id as company_id,
    t.id as id,
    t.code as code,
    t.name as name,
    t.description as description,
    t.barcode as barcode,
    t.price as price,
    t.active as active,
    t.category_id as "categoryId",
    t.unit_id as "unitId",
    t.updated_at as "updatedAt"
from data.products t where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not exists (select 1 from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.row_id = t.id + 0) and not (select past.is_deep('products'))
union all
select t.company_id as company_id,
    t.id as id,
    case when g.state ? 'code' then (g.state ->> 'code')::text else t.code end as code,
    case when g.state ? 'name' then (g.state ->> 'name')::text else t.name end as name,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'barcode' then (g.state ->> 'barcode')::text else t.barcode end as barcode,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'active' then (g.state ->> 'active')::boolean else t.active end as active,
    case when g.state ? 'categoryId' then (g.state ->> 'categoryId')::bigint else t.category_id end as "categoryId",
    case when g.state ? 'unitId' then (g.state ->> 'unitId')::bigint else t.unit_id end as "unitId",
    case when g.first_id is null then t.updated_at else case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end end as "updatedAt"
from data.products t cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = t.id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
    ) g where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and (g.first_id is null or g.first_id is distinct from g.created_id) and (select past.is_deep('products'))
union all
select current_setting('bds.company', true) as company_id,
    c.row_id as id,
    (g.state ->> 'code')::text as code,
    (g.state ->> 'name')::text as name,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'barcode')::text as barcode,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'active')::boolean as active,
    (g.state ->> 'categoryId')::bigint as "categoryId",
    (g.state ->> 'unitId')::bigint as "unitId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select distinct l.row_id
    from past.ranges_with(current_setting('bds.company', true), 'products', nullif(current_setting('bds.version', true), '')::bigint) r
    cross join lateral (select l.* from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.id >= r.first_id and l.id <= r.last_id offset 0) l
    where l.operation = 'delete' and not exists (select from data.products t where t.company_id = current_setting('bds.company', true) and t.id = l.row_id)
) c
cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
    ) g
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and g.first_id is distinct from g.created_id and (select past.is_deep('products'))
union all
select g.company_id as company_id,
    g.row_id as id,
    case when g.state ? 'code' then (g.state ->> 'code')::text else t.code end as code,
    case when g.state ? 'name' then (g.state ->> 'name')::text else t.name end as name,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'barcode' then (g.state ->> 'barcode')::text else t.barcode end as barcode,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'active' then (g.state ->> 'active')::boolean else t.active end as active,
    case when g.state ? 'categoryId' then (g.state ->> 'categoryId')::bigint else t.category_id end as "categoryId",
    case when g.state ? 'unitId' then (g.state ->> 'unitId')::bigint else t.unit_id end as "unitId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select l.company_id, l.row_id, past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at,
        min(l.id) as first_id, min(l.id) filter (where l.operation = 'delete') as deleted_id
    from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz
    group by l.company_id, l.row_id
    -- a row whose first later change creates it did not exist
    having min(l.id) is distinct from min(l.id) filter (where l.operation = 'create')
) g
left join data.products t on t.company_id = current_setting('bds.company', true) and t.id = g.row_id
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not (select past.is_deep('products'));

alter view past.products owner to bds_owner;

revoke all on past.products from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products is 'Things that are sold';

comment on column past.products.company_id is 'The company';

comment on column past.products.id is 'The row''s id, unique within the company';

comment on column past.products.code is 'Stock code';

comment on column past.products.name is 'Name';

comment on column past.products.description is 'Description';

comment on column past.products.barcode is 'Barcode, such as an EAN';

comment on column past.products.price is 'List price of one unit';

comment on column past.products.active is 'Whether it is on sale';

comment on column past.products."categoryId" is 'The product''s category';

comment on column past.products."unitId" is 'The unit that it is sold in';

comment on column past.products."updatedAt" is 'When the row last changed';

grant select on past.products to bds_operator, bds_reader;

create or replace view past.products_changed as select g.company_id as company_id,
    g.row_id as id,
    case when g.state ? 'code' then (g.state ->> 'code')::text else t.code end as code,
    case when g.state ? 'name' then (g.state ->> 'name')::text else t.name end as name,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'barcode' then (g.state ->> 'barcode')::text else t.barcode end as barcode,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'active' then (g.state ->> 'active')::boolean else t.active end as active,
    case when g.state ? 'categoryId' then (g.state ->> 'categoryId')::bigint else t.category_id end as "categoryId",
    case when g.state ? 'unitId' then (g.state ->> 'unitId')::bigint else t.unit_id end as "unitId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select l.company_id, l.row_id, past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at,
        min(l.id) as first_id, min(l.id) filter (where l.operation = 'delete') as deleted_id
    from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz
    group by l.company_id, l.row_id
    -- a row whose first later change creates it did not exist
    having min(l.id) is distinct from min(l.id) filter (where l.operation = 'create')
) g
left join data.products t on t.company_id = current_setting('bds.company', true) and t.id = g.row_id
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity';

alter view past.products_changed owner to bds_owner;

revoke all on past.products_changed from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_changed is 'Things that are sold';

comment on column past.products_changed.company_id is 'The company';

comment on column past.products_changed.id is 'The row''s id, unique within the company';

comment on column past.products_changed.code is 'Stock code';

comment on column past.products_changed.name is 'Name';

comment on column past.products_changed.description is 'Description';

comment on column past.products_changed.barcode is 'Barcode, such as an EAN';

comment on column past.products_changed.price is 'List price of one unit';

comment on column past.products_changed.active is 'Whether it is on sale';

comment on column past.products_changed."categoryId" is 'The product''s category';

comment on column past.products_changed."unitId" is 'The unit that it is sold in';

comment on column past.products_changed."updatedAt" is 'When the row last changed';

grant select on past.products_changed to bds_operator, bds_reader;

create or replace view past.products_deleted as select current_setting('bds.company', true) as company_id,
    c.row_id as id,
    (g.state ->> 'code')::text as code,
    (g.state ->> 'name')::text as name,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'barcode')::text as barcode,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'active')::boolean as active,
    (g.state ->> 'categoryId')::bigint as "categoryId",
    (g.state ->> 'unitId')::bigint as "unitId",
    case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end as "updatedAt"
from (
    select distinct l.row_id
    from past.ranges_with(current_setting('bds.company', true), 'products', nullif(current_setting('bds.version', true), '')::bigint) r
    cross join lateral (select l.* from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.id >= r.first_id and l.id <= r.last_id offset 0) l
    where l.operation = 'delete' and not exists (select from data.products t where t.company_id = current_setting('bds.company', true) and t.id = l.row_id)
) c
cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
    ) g
where nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and g.first_id is distinct from g.created_id;

alter view past.products_deleted owner to bds_owner;

revoke all on past.products_deleted from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_deleted is 'Things that are sold';

comment on column past.products_deleted.company_id is 'The company';

comment on column past.products_deleted.id is 'The row''s id, unique within the company';

comment on column past.products_deleted.code is 'Stock code';

comment on column past.products_deleted.name is 'Name';

comment on column past.products_deleted.description is 'Description';

comment on column past.products_deleted.barcode is 'Barcode, such as an EAN';

comment on column past.products_deleted.price is 'List price of one unit';

comment on column past.products_deleted.active is 'Whether it is on sale';

comment on column past.products_deleted."categoryId" is 'The product''s category';

comment on column past.products_deleted."unitId" is 'The unit that it is sold in';

comment on column past.products_deleted."updatedAt" is 'When the row last changed';

grant select on past.products_deleted to bds_operator, bds_reader;

create or replace view past.products_present as select t.company_id as company_id,
    t.id as id,
    case when g.state ? 'code' then (g.state ->> 'code')::text else t.code end as code,
    case when g.state ? 'name' then (g.state ->> 'name')::text else t.name end as name,
    case when g.state ? 'description' then (g.state ->> 'description')::text else t.description end as description,
    case when g.state ? 'barcode' then (g.state ->> 'barcode')::text else t.barcode end as barcode,
    case when g.state ? 'price' then (g.state ->> 'price')::numeric else t.price end as price,
    case when g.state ? 'active' then (g.state ->> 'active')::boolean else t.active end as active,
    case when g.state ? 'categoryId' then (g.state ->> 'categoryId')::bigint else t.category_id end as "categoryId",
    case when g.state ? 'unitId' then (g.state ->> 'unitId')::bigint else t.unit_id end as "unitId",
    case when g.first_id is null then t.updated_at else case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end end as "updatedAt"
from data.products t cross join lateral (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = t.id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
    ) g where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and (g.first_id is null or g.first_id is distinct from g.created_id);

alter view past.products_present owner to bds_owner;

revoke all on past.products_present from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_present is 'Things that are sold';

comment on column past.products_present.company_id is 'The company';

comment on column past.products_present.id is 'The row''s id, unique within the company';

comment on column past.products_present.code is 'Stock code';

comment on column past.products_present.name is 'Name';

comment on column past.products_present.description is 'Description';

comment on column past.products_present.barcode is 'Barcode, such as an EAN';

comment on column past.products_present.price is 'List price of one unit';

comment on column past.products_present.active is 'Whether it is on sale';

comment on column past.products_present."categoryId" is 'The product''s category';

comment on column past.products_present."unitId" is 'The unit that it is sold in';

comment on column past.products_present."updatedAt" is 'When the row last changed';

grant select on past.products_present to bds_operator, bds_reader;

create or replace view past.products_replaced as select g.company_id as company_id, g.id as "@id",
    g.row_id as id,
    (g.state ->> 'code')::text as code,
    (g.state ->> 'name')::text as name,
    (g.state ->> 'description')::text as description,
    (g.state ->> 'barcode')::text as barcode,
    (g.state ->> 'price')::numeric as price,
    (g.state ->> 'active')::boolean as active,
    (g.state ->> 'categoryId')::bigint as "categoryId",
    (g.state ->> 'unitId')::bigint as "unitId",
    (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt"
from (select l.company_id, l.id, l.row_id, l.old as state from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz) g;

alter view past.products_replaced owner to bds_owner;

revoke all on past.products_replaced from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_replaced is 'Things that are sold';

comment on column past.products_replaced.company_id is 'The company';

comment on column past.products_replaced.id is 'The row''s id, unique within the company';

comment on column past.products_replaced.code is 'Stock code';

comment on column past.products_replaced.name is 'Name';

comment on column past.products_replaced.description is 'Description';

comment on column past.products_replaced.barcode is 'Barcode, such as an EAN';

comment on column past.products_replaced.price is 'List price of one unit';

comment on column past.products_replaced.active is 'Whether it is on sale';

comment on column past.products_replaced."categoryId" is 'The product''s category';

comment on column past.products_replaced."unitId" is 'The unit that it is sold in';

comment on column past.products_replaced."updatedAt" is 'When the row last changed';

grant select on past.products_replaced to bds_operator, bds_reader;

create or replace view past.products_unchanged as select t.company_id as company_id,
    t.id as id,
    t.code as code,
    t.name as name,
    t.description as description,
    t.barcode as barcode,
    t.price as price,
    t.active as active,
    t.category_id as "categoryId",
    t.unit_id as "unitId",
    t.updated_at as "updatedAt"
from data.products t where t.company_id = current_setting('bds.company', true) and nullif(current_setting('bds.moment', true), '')::timestamptz > '-infinity' and not exists (select 1 from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.version', true), '')::bigint and l.created_at >= nullif(current_setting('bds.version_time', true), '')::timestamptz and l.row_id = t.id + 0);

alter view past.products_unchanged owner to bds_owner;

revoke all on past.products_unchanged from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_unchanged is 'Things that are sold';

comment on column past.products_unchanged.company_id is 'The company';

comment on column past.products_unchanged.id is 'The row''s id, unique within the company';

comment on column past.products_unchanged.code is 'Stock code';

comment on column past.products_unchanged.name is 'Name';

comment on column past.products_unchanged.description is 'Description';

comment on column past.products_unchanged.barcode is 'Barcode, such as an EAN';

comment on column past.products_unchanged.price is 'List price of one unit';

comment on column past.products_unchanged.active is 'Whether it is on sale';

comment on column past.products_unchanged."categoryId" is 'The product''s category';

comment on column past.products_unchanged."unitId" is 'The unit that it is sold in';

comment on column past.products_unchanged."updatedAt" is 'When the row last changed';

grant select on past.products_unchanged to bds_operator, bds_reader;

comment on column past.products_replaced."@id" is 'The change that has replaced the values';

create or replace view past.products_ends as select d.company_id, d.row_id as "@id", d."@version", d."@operation", d."@columns"
    , d.id, d."@2"
    , d.code, d."@3"
    , d.name, d."@4"
    , d.description, d."@5"
    , d.barcode, d."@6"
    , d.price, d."@7"
    , d.active, d."@8"
    , d."categoryId", d."@9"
    , d."unitId", d."@10"
    , d."updatedAt", d."@11"
from (select current_setting('bds.company', true) collate "C" as company_id, c.row_id, c.id as "@version", d.columns as "@columns", l.state as "@new", e.state as "@old",
    case
        when e.state is null and l.state is not null then 'create'
        when l.state is null and e.state is not null then 'delete'
        when l.state is not null then 'update'
    end as "@operation"
    , n.id, o.id as "@2"
    , n.code, o.code as "@3"
    , n.name, o.name as "@4"
    , n.description, o.description as "@5"
    , n.barcode, o.barcode as "@6"
    , n.price, o.price as "@7"
    , n.active, o.active as "@8"
    , n."categoryId", o."categoryId" as "@9"
    , n."unitId", o."unitId" as "@10"
    , n."updatedAt", o."updatedAt" as "@11"
from (
        (
        select c.row_id, c.id
        from bds.change_log c
        where c.company_id = current_setting('bds.company', true) and c.entity = 'products' and c.id > nullif(current_setting('bds.since', true), '')::bigint and c.id <= nullif(current_setting('bds.version', true), '')::bigint
            and c.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) and c.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) and (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is null
            and not exists (  -- a later change of the row stands for it
                select 1 from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > c.id and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products' and l.id <= (select nullif(current_setting('bds.version', true), '')::bigint) and l.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz)
            )
        order by c.id
    )
    union all
    (
        select g.row_id, g.id
        from past.last_changes(current_setting('bds.company', true), 'products', nullif(current_setting('bds.grouped_after', true), '')::bigint, nullif(current_setting('bds.since_time', true), '')::timestamptz, nullif(current_setting('bds.version', true), '')::bigint, nullif(current_setting('bds.version_time', true), '')::timestamptz) g
        where (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is not null
        order by g.id
    )

) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.products o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select case
        when g.first_id is null then case when t.id is not null then json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        when g.first_id is distinct from g.created_id
            then json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
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
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products' and l.id <= c.id
    ) g
    offset 0
) e
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'code')::text as code, (g.state ->> 'name')::text as name, (g.state ->> 'description')::text as description, (g.state ->> 'barcode')::text as barcode, (g.state ->> 'price')::numeric as price, (g.state ->> 'active')::boolean as active, (g.state ->> 'categoryId')::bigint as "categoryId", (g.state ->> 'unitId')::bigint as "unitId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select l.state) g) n
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'code')::text as code, (g.state ->> 'name')::text as name, (g.state ->> 'description')::text as description, (g.state ->> 'barcode')::text as barcode, (g.state ->> 'price')::numeric as price, (g.state ->> 'active')::boolean as active, (g.state ->> 'categoryId')::bigint as "categoryId", (g.state ->> 'unitId')::bigint as "unitId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select e.state) g) o
cross join lateral (
    select case
        when e.state is null and l.state is null then '{}'::text[]
        when e.state is null or l.state is null then '{id,code,name,description,barcode,price,active,categoryId,unitId,updatedAt}'::text[]
        else array_remove(array[
                        null
,

            case when o.code::text is distinct from n.code::text then 'code' end
,

            case when o.name::text is distinct from n.name::text then 'name' end
,

            case when o.description::text is distinct from n.description::text then 'description' end
,

            case when o.barcode::text is distinct from n.barcode::text then 'barcode' end
,

            case when o.price::text is distinct from n.price::text then 'price' end
,

            case when o.active::text is distinct from n.active::text then 'active' end
,

            case when o."categoryId"::text is distinct from n."categoryId"::text then 'categoryId' end
,

            case when o."unitId"::text is distinct from n."unitId"::text then 'unitId' end
,
                        null
        ]::text[], null)
    end as columns
    offset 0
) d
    ) d
where (select past.require_registered('products'));

alter view past.products_ends owner to bds_owner;

revoke all on past.products_ends from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_ends is 'Things that are sold';

comment on column past.products_ends.company_id is 'The company';

comment on column past.products_ends.id is 'The row''s id, unique within the company';

comment on column past.products_ends.code is 'Stock code';

comment on column past.products_ends.name is 'Name';

comment on column past.products_ends.description is 'Description';

comment on column past.products_ends.barcode is 'Barcode, such as an EAN';

comment on column past.products_ends.price is 'List price of one unit';

comment on column past.products_ends.active is 'Whether it is on sale';

comment on column past.products_ends."categoryId" is 'The product''s category';

comment on column past.products_ends."unitId" is 'The unit that it is sold in';

comment on column past.products_ends."updatedAt" is 'When the row last changed';

grant select on past.products_ends to bds_operator, bds_reader;

comment on column past.products_ends."@columns" is 'The fields that differ; of a create or delete all; none where only updatedAt does';

comment on column past.products_ends."@id" is 'The row''s id';

comment on column past.products_ends."@operation" is 'create, update or delete; null: it was created and deleted between the two versions';

comment on column past.products_ends."@version" is 'The row''s last change between the two versions';

comment on column past.products_ends."@2" is 'id as of the earlier version';

comment on column past.products_ends."@3" is 'code as of the earlier version';

comment on column past.products_ends."@4" is 'name as of the earlier version';

comment on column past.products_ends."@5" is 'description as of the earlier version';

comment on column past.products_ends."@6" is 'barcode as of the earlier version';

comment on column past.products_ends."@7" is 'price as of the earlier version';

comment on column past.products_ends."@8" is 'active as of the earlier version';

comment on column past.products_ends."@9" is 'categoryId as of the earlier version';

comment on column past.products_ends."@10" is 'unitId as of the earlier version';

comment on column past.products_ends."@11" is 'updatedAt as of the earlier version';

create or replace view past.products_diff as select d."@operation", d."@version", d."@columns"
    , case when d."@operation" = 'delete' then d."@2" else d.id end as id
    , case when d."@operation" = 'delete' then d."@3" else d.code end as code
    , case when d."@operation" = 'delete' then d."@4" else d.name end as name
    , case when d."@operation" = 'delete' then d."@5" else d.description end as description
    , case when d."@operation" = 'delete' then d."@6" else d.barcode end as barcode
    , case when d."@operation" = 'delete' then d."@7" else d.price end as price
    , case when d."@operation" = 'delete' then d."@8" else d.active end as active
    , case when d."@operation" = 'delete' then d."@9" else d."categoryId" end as "categoryId"
    , case when d."@operation" = 'delete' then d."@10" else d."unitId" end as "unitId"
    , case when d."@operation" = 'delete' then d."@11" else d."updatedAt" end as "updatedAt"
from (select current_setting('bds.company', true) collate "C" as company_id, c.row_id, c.id as "@version", d.columns as "@columns", l.state as "@new", e.state as "@old",
    case
        when e.state is null and l.state is not null then 'create'
        when l.state is null and e.state is not null then 'delete'
        when l.state is not null then 'update'
    end as "@operation"
    , n.id, o.id as "@2"
    , n.code, o.code as "@3"
    , n.name, o.name as "@4"
    , n.description, o.description as "@5"
    , n.barcode, o.barcode as "@6"
    , n.price, o.price as "@7"
    , n.active, o.active as "@8"
    , n."categoryId", o."categoryId" as "@9"
    , n."unitId", o."unitId" as "@10"
    , n."updatedAt", o."updatedAt" as "@11"
from (
        (
        select c.row_id, c.id
        from bds.change_log c
        where c.company_id = current_setting('bds.company', true) and c.entity = 'products' and c.id > nullif(current_setting('bds.since', true), '')::bigint and c.id <= nullif(current_setting('bds.version', true), '')::bigint
            and c.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) and c.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) and (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is null
            and not exists (  -- a later change of the row stands for it
                select 1 from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > c.id and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products' and l.id <= (select nullif(current_setting('bds.version', true), '')::bigint) and l.created_at <= (select nullif(current_setting('bds.version_time', true), '')::timestamptz)
            )
        order by c.id
    )
    union all
    (
        select g.row_id, g.id
        from past.last_changes(current_setting('bds.company', true), 'products', nullif(current_setting('bds.grouped_after', true), '')::bigint, nullif(current_setting('bds.since_time', true), '')::timestamptz, nullif(current_setting('bds.version', true), '')::bigint, nullif(current_setting('bds.version_time', true), '')::timestamptz) g
        where (select nullif(current_setting('bds.grouped_after', true), '')::bigint) is not null
        order by g.id
    )

) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.products o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select case
        when g.first_id is null then case when t.id is not null then json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        when g.first_id is distinct from g.created_id
            then json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb || g.state || jsonb_build_object('id', c.row_id, 'updatedAt', case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end)
    end as state
    from (
        select past.merge(l.old order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.version', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.version_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
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
        from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products' and l.id <= c.id
    ) g
    offset 0
) e
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'code')::text as code, (g.state ->> 'name')::text as name, (g.state ->> 'description')::text as description, (g.state ->> 'barcode')::text as barcode, (g.state ->> 'price')::numeric as price, (g.state ->> 'active')::boolean as active, (g.state ->> 'categoryId')::bigint as "categoryId", (g.state ->> 'unitId')::bigint as "unitId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select l.state) g) n
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'code')::text as code, (g.state ->> 'name')::text as name, (g.state ->> 'description')::text as description, (g.state ->> 'barcode')::text as barcode, (g.state ->> 'price')::numeric as price, (g.state ->> 'active')::boolean as active, (g.state ->> 'categoryId')::bigint as "categoryId", (g.state ->> 'unitId')::bigint as "unitId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select e.state) g) o
cross join lateral (
    select case
        when e.state is null and l.state is null then '{}'::text[]
        when e.state is null or l.state is null then '{id,code,name,description,barcode,price,active,categoryId,unitId,updatedAt}'::text[]
        else array_remove(array[
                        null
,

            case when o.code::text is distinct from n.code::text then 'code' end
,

            case when o.name::text is distinct from n.name::text then 'name' end
,

            case when o.description::text is distinct from n.description::text then 'description' end
,

            case when o.barcode::text is distinct from n.barcode::text then 'barcode' end
,

            case when o.price::text is distinct from n.price::text then 'price' end
,

            case when o.active::text is distinct from n.active::text then 'active' end
,

            case when o."categoryId"::text is distinct from n."categoryId"::text then 'categoryId' end
,

            case when o."unitId"::text is distinct from n."unitId"::text then 'unitId' end
,
                        null
        ]::text[], null)
    end as columns
    offset 0
) d
    ) d
where (select past.require_registered('products')) and d."@columns" <> '{}';

alter view past.products_diff owner to bds_owner;

revoke all on past.products_diff from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_diff is 'Things that are sold';

comment on column past.products_diff.id is 'The row''s id, unique within the company';

comment on column past.products_diff.code is 'Stock code';

comment on column past.products_diff.name is 'Name';

comment on column past.products_diff.description is 'Description';

comment on column past.products_diff.barcode is 'Barcode, such as an EAN';

comment on column past.products_diff.price is 'List price of one unit';

comment on column past.products_diff.active is 'Whether it is on sale';

comment on column past.products_diff."categoryId" is 'The product''s category';

comment on column past.products_diff."unitId" is 'The unit that it is sold in';

comment on column past.products_diff."updatedAt" is 'When the row last changed';

grant select on past.products_diff to bds_operator, bds_reader;

comment on column past.products_diff."@columns" is 'The fields that differ; of a create or delete all';

comment on column past.products_diff."@operation" is 'create, update or delete';

comment on column past.products_diff."@version" is 'The row''s last change between the two versions';

create or replace view past.products_versions as select p."@version", p."@validFrom", p."@validTo"
    , p.id
    , p.code
    , p.name
    , p.description
    , p.barcode
    , p.price
    , p.active
    , p."categoryId"
    , p."unitId"
    , p."updatedAt"
from (select c.company_id, c.row_id, v.id as "@version", v.created_at as "@validFrom",
    case when v.next_id <= nullif(current_setting('bds.version', true), '')::bigint then v.next_at end as "@validTo", s.state as "@state"
    , n.id
    , n.code
    , n.name
    , n.description
    , n.barcode
    , n.price
    , n.active
    , n."categoryId"
    , n."unitId"
    , n."updatedAt"
from (
    select t.company_id, t.id as row_id from data.products t where t.company_id = current_setting('bds.company', true)
    union
    select l.company_id, l.row_id from bds.change_log l where l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id > nullif(current_setting('bds.since', true), '')::bigint and l.created_at >= nullif(current_setting('bds.since_time', true), '')::timestamptz and l.operation = 'delete'
) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from data.products o where o.company_id = (select current_setting('bds.company', true)) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select k.id, k.operation, k.created_at, lag(k.id) over newest_first as next_id, lag(k.created_at) over newest_first as next_at,
        lag(k.operation) over newest_first as next_operation, lag(k.last_updated_at) over newest_first as updated_at,
        past.merge(k.old) over (newest_first rows between unbounded preceding and 1 preceding) as undone
    from (
        select l.id, l.operation, l.created_at, l.last_updated_at, l.old as old from (select o.* from bds.change_log o where o.row_id = c.row_id and o.id > (select nullif(current_setting('bds.since', true), '')::bigint) and o.created_at >= (select nullif(current_setting('bds.since_time', true), '')::timestamptz) offset 0) l where l.company_id = (select current_setting('bds.company', true)) and l.entity = 'products'
        union all
        (
            select l.id, l.operation, l.created_at, null::timestamptz as last_updated_at, null::jsonb as old from bds.change_log l where l.row_id = c.row_id and l.company_id = current_setting('bds.company', true) and l.entity = 'products' and l.id <= nullif(current_setting('bds.since', true), '')::bigint and l.created_at <= nullif(current_setting('bds.since_time', true), '')::timestamptz and l.created_at >= '-infinity'
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
        when v.next_id is null then case when t.id is not null then json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb end
        else json_object('id' : t.id, 'code' : t.code, 'name' : t.name, 'description' : t.description, 'barcode' : t.barcode, 'price' : t.price, 'active' : t.active, 'categoryId' : t.category_id, 'unitId' : t.unit_id, 'updatedAt' : t.updated_at returning json)::jsonb || coalesce(g.state, '{}') || jsonb_build_object('id', c.row_id, 'updatedAt', case v.next_operation
            when 'delete' then (v.undone ->> 'updatedAt')::timestamptz else v.updated_at end)
    end as state
    from (select v.undone) g (state)
    offset 0
) s
cross join lateral (select (g.state ->> 'id')::bigint as id, (g.state ->> 'code')::text as code, (g.state ->> 'name')::text as name, (g.state ->> 'description')::text as description, (g.state ->> 'barcode')::text as barcode, (g.state ->> 'price')::numeric as price, (g.state ->> 'active')::boolean as active, (g.state ->> 'categoryId')::bigint as "categoryId", (g.state ->> 'unitId')::bigint as "unitId", (g.state ->> 'updatedAt')::timestamp with time zone as "updatedAt" from (select s.state) g) n
where (v.id <= nullif(current_setting('bds.version', true), '')::bigint or v.id is null) and v.operation is distinct from 'delete' and s.state is not null
    and (v.id is not null or v.next_operation is distinct from 'create')
    ) p
where (select past.require_registered('products'));

alter view past.products_versions owner to bds_owner;

revoke all on past.products_versions from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

comment on view past.products_versions is 'Things that are sold';

comment on column past.products_versions.id is 'The row''s id, unique within the company';

comment on column past.products_versions.code is 'Stock code';

comment on column past.products_versions.name is 'Name';

comment on column past.products_versions.description is 'Description';

comment on column past.products_versions.barcode is 'Barcode, such as an EAN';

comment on column past.products_versions.price is 'List price of one unit';

comment on column past.products_versions.active is 'Whether it is on sale';

comment on column past.products_versions."categoryId" is 'The product''s category';

comment on column past.products_versions."unitId" is 'The unit that it is sold in';

comment on column past.products_versions."updatedAt" is 'When the row last changed';

grant select on past.products_versions to bds_operator, bds_reader;

comment on column past.products_versions."@version" is 'The change that began this version of the row; null if it was there before the log';

comment on column past.products_versions."@validFrom" is 'When it began';

comment on column past.products_versions."@validTo" is 'When the next one, or none, took its place; null while it is valid';

---- table of products

-- table of products
alter table data.products enable row level security;

drop policy if exists own_company on data.products;

drop policy if exists every_company on data.products;

create policy own_company on data.products to bds_writer using (company_id = current_setting('bds.company', true));

create policy every_company on data.products to bds_operator using (true);

revoke all on data.products from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

revoke all on sequence data.products_id_seq from public, bds_operator, bds_reader, bds_writer, bds_importer, bds_analyst, bds_service, bds_worker, bds_dispatcher cascade;

grant select, insert, update, delete on data.products to bds_writer, bds_operator;

grant maintain on data.products to bds_importer, bds_operator;

grant usage on sequence data.products_id_seq to bds_writer, bds_operator;

alter table data.products alter column updated_at set default clock_timestamp();
create or replace trigger bds_1_lock before insert or update or delete on data.products for each statement
    execute function bds_log.lock_named_company();
create or replace trigger bds_1_lock_old_row before delete on data.products for each row
    when (coalesce(
            old.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || old.company_id || '@') > 0
        ) is not true)
    execute function bds_log.lock_old_row_company();
create or replace trigger bds_2_stamp_new before insert on data.products for each row
    when (
        coalesce(
            new.company_id = nullif(current_setting('bds.company', true), ''),
            strpos(current_setting('bds.turns', true), ',' || new.company_id || '@') > 0
        ) is not true
        or coalesce(new.updated_at not between statement_timestamp() and clock_timestamp(), true)
        or strpos(current_setting('bds.turns', true), '@2') > 0  -- new rows have a floor: 2 begins its year, see take_turn
    )
    execute function bds_log.products_stamp();
create or replace trigger bds_2_stamp before update on data.products for each row
    execute function bds_log.products_stamp();
create or replace trigger bds_truncate before truncate on data.products for each statement
    execute function bds_log.refuse_truncate();
create or replace trigger bds_log_insert after insert on data.products
    referencing new table as new_rows for each statement
    execute function bds_log.products_insert();
create or replace trigger bds_log_update after update on data.products
    referencing old table as old_rows new table as new_rows for each statement
    execute function bds_log.products_update();
create or replace trigger bds_log_delete after delete on data.products
    referencing old table as old_rows for each statement
    execute function bds_log.products_delete();

---- tables of imports of products

diff_products
"@ordinal" bigint, id bigint, "@new" boolean, "@mask 0" bigint
, code text {storage}
, name text {storage}
, description text {storage}
, barcode text {storage}
, price numeric(19,4) {storage}
, active boolean {storage}
, category_id bigint {storage}
, unit_id bigint {storage}


lookup_products_category
lookup text {storage}, kind text {storage}, value text {storage}

lookup_products_unit
lookup text {storage}, kind text {storage}, value text {storage}

map_products
ordinal bigint, parent bigint, "position" bigint,
phase int,  -- 1 writes, 2 updates by a condition, 3 deletes
operation text {storage},
target bigint,  -- the row's id, taken ahead for a new row
is_new boolean, is_ambiguous boolean,
is_same boolean,  -- changes nothing
failed boolean,
id text {storage}, id_kind text {storage}  -- the record's own lookup
, key_code text {storage}
, key_barcode text {storage}


ref_products_category
lookup text {storage}, kind text {storage}, id bigint

ref_products_unit
lookup text {storage}, kind text {storage}, id bigint

staged_products
"@ordinal" bigint generated by default as identity (minvalue 0),  -- numbers the records
"@parent" bigint,  -- the ordinal of the record that contains it
"@position" bigint,  -- the number in its array; "@ordinal" if null
"@id" text {storage},  -- its own lookup
"@operation" text {storage},
"@where" text {storage},
"@lookups" text {storage}  -- of "@where": [[entity, field, value], ...]
, code text {storage}
, name text {storage}
, description text {storage}
, barcode text {storage}
, price text {storage}
, active text {storage}
, category text {storage}
, unit text {storage}
, "variants@present" boolean  -- the array is given whole

---- functions of imports of products

bds_import.check_claims_products(bds.imports,text[],boolean,boolean) returns void language plpgsql
begin
    if true then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        with claimed as materialized (
            select m.ordinal, k.key
            from pg_temp."map_products" m
            -- a delete by an id that no row has claims the id
            cross join lateral (
                select coalesce(m.target, bds_feed.lookup_id(m.id))
            ) as k (key)
            where k.key is not null
                and (not m.is_new or m.phase = 3 and not m.failed)
        )
        select 'products', d.ordinal, null, 'duplicate_record',
            'an earlier record of this document names the same row'
        from (
            select c.ordinal, row_number() over (partition by c.key order by c.ordinal) as n from claimed c
            where c.key in (select o.key from claimed o group by o.key having count(*) > 1)
        ) d
        where d.n > 1 and not exists (
            select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = d.ordinal and e.code = 'duplicate_record'
        );
        if found then
            update pg_temp."map_products" m set failed = true  -- at once: no lookup may find it
            from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;
    end if;
    if ('code' = any ($2) or '@id' = any ($2)) and (not $3 or $4 or '@operation' = any ($2)) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        with claimed as materialized (
            select m.ordinal, k.key
            from pg_temp."map_products" m
            -- a delete by an id that no row has claims the id
            cross join lateral (
                select m.key_code
            ) as k (key)
            where k.key is not null
                and (not m.failed or m.is_new and m.id_kind = 'code' and m.key_code::text = bds_feed.lookup_value(m.id))
                and (m.is_new or not $3)
        )
        select 'products', d.ordinal, 'code', 'duplicate_record',
            'an earlier record of this document names the same row'
        from (
            select c.ordinal, row_number() over (partition by c.key order by c.ordinal) as n from claimed c
            where c.key in (select o.key from claimed o group by o.key having count(*) > 1)
        ) d
        where d.n > 1 and not exists (
            select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = d.ordinal and e.code = 'duplicate_record'
        );
        if found then
            update pg_temp."map_products" m set failed = true  -- at once: no lookup may find it
            from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;
    end if;
    if ('barcode' = any ($2) or '@id' = any ($2)) and (not $3 or $4 or '@operation' = any ($2)) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        with claimed as materialized (
            select m.ordinal, k.key
            from pg_temp."map_products" m
            -- a delete by an id that no row has claims the id
            cross join lateral (
                select m.key_barcode
            ) as k (key)
            where k.key is not null
                and (not m.failed or m.is_new and m.id_kind = 'barcode' and m.key_barcode::text = bds_feed.lookup_value(m.id))
                and (m.is_new or not $3)
        )
        select 'products', d.ordinal, 'barcode', 'duplicate_record',
            'an earlier record of this document names the same row'
        from (
            select c.ordinal, row_number() over (partition by c.key order by c.ordinal) as n from claimed c
            where c.key in (select o.key from claimed o group by o.key having count(*) > 1)
        ) d
        where d.n > 1 and not exists (
            select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = d.ordinal and e.code = 'duplicate_record'
        );
        if found then
            update pg_temp."map_products" m set failed = true  -- at once: no lookup may find it
            from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;
    end if;
end

bds_import.check_keys_products(bds.imports,text[],boolean,boolean) returns void language plpgsql
begin
    if not $3 then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', m.ordinal, v.field, v.code, v.message
        from pg_temp."map_products" m
        cross join lateral (values
            (m.id_kind <> all ('{id,code,barcode}'), 'id', 'invalid_value',
                format('expected a lookup (id:..., code:..., barcode:...), got %L', left(bds_feed.staged_text(m.id), 100))),
            (m.id_kind = 'id' and m.is_new and m.operation <> 'delete', 'id', 'not_found', format('no such row: %s', m.id)),
            (m.is_ambiguous, null, 'lookup_ambiguous', 'its unique fields name different rows')
        ) as v (is_wrong, field, code, message)
        where (m.id_kind <> all ('{id,code,barcode}') or m.id_kind = 'id' and m.is_new or m.is_ambiguous) and v.is_wrong;
    end if;
    if '@id' = any ($2) then
        -- a record without a lookup of its own matches the row with its value; only others can have the value of another row
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', m.ordinal, 'code', 'already_exists', format('row %s has %s %L', t.id, 'code', m.key_code)
        from pg_temp."map_products" m
        join data.products t on t.company_id = (select import.company_id) and t.code = m.key_code
        where m.id is not null and m.phase <> 3 and t.id <> m.target and not m.failed;
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', m.ordinal, 'barcode', 'already_exists', format('row %s has %s %L', t.id, 'barcode', m.key_barcode)
        from pg_temp."map_products" m
        join data.products t on t.company_id = (select import.company_id) and t.barcode = m.key_barcode
        where m.id is not null and m.phase <> 3 and t.id <> m.target and not m.failed;
        update pg_temp."map_products" m set failed = true  -- at once: other records may then have its unique values
        from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and m.id is not null;
    end if;
    if exists (select from pg_temp."map_products" m offset 1) then  -- one record has no duplicate
        perform bds_import."check_claims_products"(import, $2, $3, $4);
    end if;
end

bds_import.check_operations_products() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', m.ordinal, v.field, v.code, v.message
    from pg_temp."map_products" m join pg_temp."staged_products" s on s."@ordinal" = m.ordinal
    cross join lateral (
        select coalesce(s."@id", 'code:' || nullif(s."code", e'\x01'), 'barcode:' || nullif(s."barcode", e'\x01')
                ),
            coalesce(s."@id", s."@where", s."code", s."barcode")
    ) as n (lookup, identity)
    cross join lateral (values
        (m.operation not in ('create', 'update', 'upsert', 'delete'), '@operation', 'invalid_directive',
            format('expected create, update, upsert or delete, got %L', left(m.operation, 100))),
        (s."@where" is not null and m.operation not in ('update', 'delete'), '@where', 'invalid_directive',
            'expected only with "@operation": "update" or "delete"'),
        (s."@where" is not null and s."@id" is not null, '@where', 'invalid_directive', 'expected an id or @where, got both'),
        (s."@where" is not null and s."@parent" is not null, '@where', 'invalid_directive',
            'expected only in a record at the top level'),
        (s."@where" is not null and m.phase = 2 and coalesce(s."variants@present", null) is not null, '@where',
            'invalid_directive', 'expected no children beside a condition'),
        (s."@where" = '', '@where', 'invalid_directive', 'expected a condition, got nothing'),
        (m.operation = 'create' and m.phase = 1 and not m.is_new, null, 'already_exists', format('it is row %s', m.target)),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is null, null, 'required',
            'expected id or code or barcode of the row to update, or @where'),
        (m.operation = 'update' and m.is_new and s."@where" is null and n.lookup is not null, null, 'not_found',
            format('products has no row %s to update', left(n.lookup, 100))),
        -- to delete a row that does not exist is no error
        (m.operation = 'delete' and m.is_new and n.identity is null, null, 'required', 'expected id or code or barcode of the row to delete')
    ) as v (is_wrong, field, code, message)
    where (m.operation <> 'upsert' or s."@where" is not null) and v.is_wrong and not exists (
        select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and e.code = v.code
    );
end

bds_import.check_products(text[]) returns void language plpgsql
begin
    if $1 && '{@operation,@where}' then
        perform bds_import."check_operations_products"();
    end if;
    -- a record whose lookup finds no row is not new, and a refused value is not missing
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', m.ordinal, v.field, 'required', v.field || ' is required'
    from pg_temp."map_products" m join pg_temp."staged_products" s on s."@ordinal" = m.ordinal
    cross join lateral (values
        (null, false)
        , ('code', (s."code" = e'\x01' or m.is_new and m.operation <> 'update' and s."code" is null and m.key_code is null))
        , ('name', (s."name" = e'\x01' or m.is_new and m.operation <> 'update' and s."name" is null))
    ) as v (field, is_missing)
    where m.phase < 3 and (false or (s."code" = e'\x01' or m.is_new and m.operation <> 'update' and s."code" is null and m.key_code is null) or (s."name" = e'\x01' or m.is_new and m.operation <> 'update' and s."name" is null)) and v.is_missing
        and not bds_feed.is_completed('data.products') and not exists (
        select from pg_temp.feed_errors e
        where e.entity = 'products' and e.ordinal = m.ordinal and e.field in ('id', '@operation', '@where', v.field)
    );
    if '@id' = any ($1) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', m.ordinal, v.field, 'invalid_value',
            format('expected the value of the id, which matches no row: %s', left(m.id, 100))
        from pg_temp."map_products" m
        cross join lateral (select bds_feed.lookup_value(m.id)) as l (value)
        cross join lateral (values
            ('code', m.key_code is distinct from l.value)
,             ('barcode', m.key_barcode is distinct from l.value)
        ) as v (field, is_wrong)
        where m.is_new and m.id_kind = v.field and m.operation in ('create', 'upsert') and v.is_wrong and not exists (
            select from pg_temp.feed_errors e
            where e.entity = 'products' and e.ordinal = m.ordinal and e.field in ('id', v.field)
        );
    end if;
end

bds_import.check_rules_products(bds.imports,bigint,bigint) returns void language plpgsql
#variable_conflict use_column
begin  -- a rule may name columns that are called as the parameters are
    if not bds_feed.is_completed('data.products') then
    begin
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', d."@ordinal", 'price', 'invalid_value', 'it breaks the rule price_is_finite'
        from pg_temp."diff_products" d
        where d."@ordinal" between $2 and $3 and d."@new" is not null
            and (
                select not (((price > '-Infinity'::numeric) AND (price < 'Infinity'::numeric)))
                from (select import.company_id as company_id, d.id, d.code as code, d.name as name, d.description as description, d.barcode as barcode, d.price as price, d.active as active, d.category_id as category_id, d.unit_id as unit_id) as row_to_be
            );
    exception when others then  -- the rule raises for a record: the writing finds which
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
    end;
    end if;
end

bds_import.check_undo_products(text) returns void language plpgsql
declare
    -- what an undo does not change is as the keys and references of the table keep it
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = 'products');
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', h.n, 'code', 'conflict', format('products %s has this value now', min(h.holder))
    from bds_import."holders_products"($1, given) h where h.field = 'code' and not h.is_leaving group by h.n;
    if found then
        perform bds_import."leave_products"();
    end if;
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', h.n, 'barcode', 'conflict', format('products %s has this value now', min(h.holder))
    from bds_import."holders_products"($1, given) h where h.field = 'barcode' and not h.is_leaving group by h.n;
    if found then
        perform bds_import."leave_products"();
    end if;
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', d."@ordinal", 'categoryId', 'lookup_not_found',
        format('categories %s, to which it referred, does not exist any more', d.category_id)
    from pg_temp."diff_products" d
    where d."@new" is not null and d.category_id is not null and (d."@new" or 'categoryId' = any (given))
        and not exists (select from data.categories t where t.company_id = (select $1) and t.id = d.category_id)
        and not exists (select from pg_temp."map_categories" m where m.target = d.category_id and m.is_new and not m.failed);
    if found then
        perform bds_import."leave_products"();
    end if;
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', d."@ordinal", 'unitId', 'lookup_not_found',
        format('units %s, to which it referred, does not exist any more', d.unit_id)
    from pg_temp."diff_products" d
    where d."@new" is not null and d.unit_id is not null and (d."@new" or 'unitId' = any (given))
        and not exists (select from data.units t where t.company_id = (select $1) and t.id = d.unit_id)
        and not exists (select from pg_temp."map_units" m where m.target = d.unit_id and m.is_new and not m.failed);
    if found then
        perform bds_import."leave_products"();
    end if;
end

bds_import.check_values_products() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', s."@ordinal", v.field, 'invalid_value',
        format('expected %s, got %s', v.expected, quote_literal(left(bds_feed.staged_text(v.given), 100)))
    from pg_temp."staged_products" s
    cross join lateral (values
        (null, null, true, null, false)
        , ('price', s."price", pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric'), 'a number that fits numeric(19,4)', false)
        , ('active', s."active", pg_input_is_valid(s."active", 'boolean'), 'true or false', false)
    ) as v (field, given, is_valid, expected, identifies)
    where not (true and (s."price" is null or s."price" = e'\x01' or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric')) and (s."active" is null or s."active" = e'\x01' or pg_input_is_valid(s."active", 'boolean')))
        and v.given <> e'\x01' and not v.is_valid and (v.identifies or not (s."@operation" is not distinct from 'delete'));
end

bds_import.compare_products(bds.imports,text[]) returns void language plpgsql
declare
    looked record;
begin
    select * into looked from pg_temp.feed_entities f where f.name = 'products';
    if 'categories' = any (members) and 'category' = any (looked.columns) or 'units' = any (members) and 'unit' = any (looked.columns) then
        perform bds_import."refer_products"(import, looked.columns, false);
    end if;
    perform bds_feed.show_progress(import, 'comparing', 'products', 2);
    if exists (select from pg_temp."map_products" m where m.phase = 1 and not m.is_same) then
        begin
            insert into pg_temp."diff_products"
            select * from bds_import."differing_products"(import.company_id, looked.columns, looked.is_valid);
        exception when others then  -- a default may raise
            if not bds_feed.is_fault_of_rows(import, sqlstate) then
                raise;
            end if;
            perform bds_import."fail_defaults_products"(import);
            insert into pg_temp."diff_products"
            select * from bds_import."differing_products"(import.company_id, looked.columns, looked.is_valid);
        end;
        perform bds_feed.filled(import, 'diff_products');
    end if;
    perform bds_import."check_rules_products"(import, 0, 9223372036854775807);
    perform bds_feed.show_progress(import, 'comparing', 'products', 3);
end

bds_import.compared_products(text,boolean,text[]) returns TABLE("@ordinal" bigint, id bigint, "@existed" boolean, "@action" text, "@field" text, "@code" text, "@message" text, "@mask 0" bigint, code text, name text, description text, barcode text, price numeric, active boolean, category_id bigint, unit_id bigint) language sql
select r.n as "@ordinal", r.id, r.existed as "@existed", a.action as "@action", p.field as "@field", p.code as "@code",
    p.message as "@message", (case when 'code' = any ($3) and r.known ? 'code' then 1 else 0 end | case when 'name' = any ($3) and r.known ? 'name' then 2 else 0 end | case when 'description' = any ($3) and r.known ? 'description' then 4 else 0 end | case when 'barcode' = any ($3) and r.known ? 'barcode' then 8 else 0 end | case when 'price' = any ($3) and r.known ? 'price' then 16 else 0 end | case when 'active' = any ($3) and r.known ? 'active' then 32 else 0 end | case when 'categoryId' = any ($3) and r.known ? 'categoryId' then 64 else 0 end | case when 'unitId' = any ($3) and r.known ? 'unitId' then 128 else 0 end)::bigint as "@mask 0", v.code, v.name, v.description, v.barcode, v.price, v.active, v.category_id, v.unit_id
from (
    -- an erased value cannot be restored: the row keeps its present one
    select o.*, o.old - coalesce(o.erased, '{}') as known from pg_temp.revert_rows o where o.entity = 'products' offset 0
) r
left join data.products t on t.company_id = (select $1) and t.id = r.id
cross join lateral (
    select
        case when 'code' = any ($3) and r.known ? 'code' then (r.known ->> 'code')::text else t.code end as code
,         case when 'name' = any ($3) and r.known ? 'name' then (r.known ->> 'name')::text else t.name end as name
,         case when 'description' = any ($3) and r.known ? 'description' then (r.known ->> 'description')::text else t.description end as description
,         case when 'barcode' = any ($3) and r.known ? 'barcode' then (r.known ->> 'barcode')::text else t.barcode end as barcode
,         case when 'price' = any ($3) and r.known ? 'price' then (r.known ->> 'price')::numeric(19,4) else t.price end as price
,         case when 'active' = any ($3) and r.known ? 'active' then (r.known ->> 'active')::boolean else case when t.id is null then true else t.active end end as active
,         case when 'categoryId' = any ($3) and r.known ? 'categoryId' then (r.known ->> 'categoryId')::bigint else t.category_id end as category_id
,         case when 'unitId' = any ($3) and r.known ? 'unitId' then (r.known ->> 'unitId')::bigint else t.unit_id end as unit_id
    offset 0
) v
cross join lateral (
    select 'code' = any ($3) and t.code is distinct from v.code or 'name' = any ($3) and t.name is distinct from v.name or 'description' = any ($3) and t.description is distinct from v.description or 'barcode' = any ($3) and t.barcode is distinct from v.barcode or 'price' = any ($3) and record_image_ne(row(t.price::numeric(19,4)), row((v.price)::numeric(19,4))) or 'active' = any ($3) and t.active is distinct from v.active or 'categoryId' = any ($3) and t.category_id is distinct from v.category_id or 'unitId' = any ($3) and t.unit_id is distinct from v.unit_id as differs,
        false
        or case when r.left_as ? 'code' then t.code is distinct from (r.left_as ->> 'code')::text else false end
        or case when r.left_as ? 'name' then t.name is distinct from (r.left_as ->> 'name')::text else false end
        or case when r.left_as ? 'description' then t.description is distinct from (r.left_as ->> 'description')::text else false end
        or case when r.left_as ? 'barcode' then t.barcode is distinct from (r.left_as ->> 'barcode')::text else false end
        or case when r.left_as ? 'price' then record_image_ne(row(t.price::numeric(19,4)), row(((r.left_as ->> 'price')::numeric(19,4))::numeric(19,4))) else false end
        or case when r.left_as ? 'active' then t.active is distinct from (r.left_as ->> 'active')::boolean else false end
        or case when r.left_as ? 'categoryId' then t.category_id is distinct from (r.left_as ->> 'categoryId')::bigint else false end
        or case when r.left_as ? 'unitId' then t.unit_id is distinct from (r.left_as ->> 'unitId')::bigint else false end
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
        t.id is null and not r.is_whole or v.code is null or v.name is null or v.active is null
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
        , (5, r.existed and v.code is null, 'code', 'required', 'a value is required, and no old one is known')
        , (5, r.existed and v.name is null, 'name', 'required', 'a value is required, and no old one is known')
        , (5, r.existed and v.active is null, 'active', 'required', 'a value is required, and no old one is known')
    ) as w (n, is_wrong, field, code, message)
    where a.is_suspect and w.is_wrong order by w.n limit 1
) p on a.action is not null

bds_import.count_missing_products() returns void language plpgsql
begin
    update pg_temp.feed_entities f
    set unchanged = f.unchanged + m.rows
    from (select count(*) as rows from pg_temp."map_products" o where o.phase = 3 and o.is_new and not o.failed) m
    where f.name = 'products';
end

bds_import.count_products() returns void language plpgsql
begin
    if exists (select from pg_temp.feed_errors) then
        delete from pg_temp."diff_products" d using pg_temp."map_products" m where m.ordinal = d."@ordinal" and m.failed;
    end if;
    update pg_temp.feed_entities f
    set rows = m.rows, tops = m.tops, failed = m.failed, updates = m.updates, deletes = m.deletes,
        created = d.created, updated = d.rows - d.created, unchanged = m.writes - d.rows
    from (
        select count(*) as rows, count(*) filter (where o.parent is null) as tops, count(*) filter (where o.failed) as failed,
            count(*) filter (where o.phase = 1 and not o.failed) as writes,
            count(*) filter (where o.phase = 2 and not o.failed) as updates,
            count(*) filter (where o.phase = 3 and not o.failed) as deletes
        from pg_temp."map_products" o
    ) m
    cross join (select count(o."@new") as rows, count(*) filter (where o."@new") as created from pg_temp."diff_products" o) d
    where f.name = 'products';
end

bds_import.differing_products(text,text[],boolean) returns TABLE("@ordinal" bigint, id bigint, "@new" boolean, "@mask 0" bigint, code text, name text, description text, barcode text, price numeric, active boolean, category_id bigint, unit_id bigint) language sql
select v."@ordinal", v.id, v."@new", v."@mask 0", v.code, v.name, v.description, v.barcode, v.price, v.active, v.category_id, v.unit_id
from (
    select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new"
        , (case when ('code' = any ($2) or '@id' = any ($2)) and (s."code" is not null) then 1 else 0 end | case when ('name' = any ($2)) and (s."name" is not null) then 2 else 0 end | case when ('description' = any ($2)) and (s."description" is not null) then 4 else 0 end | case when ('barcode' = any ($2) or '@id' = any ($2)) and (s."barcode" is not null) then 8 else 0 end | case when ('price' = any ($2)) and (s."price" is not null) then 16 else 0 end | case when ('active' = any ($2)) and (s."active" is not null) then 32 else 0 end | case when ('category' = any ($2)) and (s."category" is not null) then 64 else 0 end | case when ('unit' = any ($2)) and (s."unit" is not null) then 128 else 0 end)::bigint as "@mask 0"
        , case
                    when m.key_code is not null then m.key_code
                    when s."code" is null then t.code
                    when s."code" = e'\x01' then null
                    else bds_feed.staged_text(s."code")
                end as code, t.code as "stored code"
        , case when s."name" is null then t.name when s."name" = e'\x01' then null else bds_feed.staged_text(s."name") end as name, t.name as "stored name"
        , case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end as description, t.description as "stored description"
        , case
                    when m.key_barcode is not null then m.key_barcode
                    when s."barcode" is null then t.barcode
                    when s."barcode" = e'\x01' then null
                    else bds_feed.staged_text(s."barcode")
                end as barcode, t.barcode as "stored barcode"
        , case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end as price, t.price as "stored price"
        , case when s."active" is null then case when m.is_new then true else t.active end when s."active" = e'\x01' then true else case when $3 or pg_input_is_valid(s."active", 'boolean') then s."active"::boolean end end as active, t.active as "stored active"
        , case when s."category" is null then t.category_id when s."category" <> e'\x01' then ref_category.id end as category_id, t.category_id as "stored category_id"
        , case when s."unit" is null then t.unit_id when s."unit" <> e'\x01' then ref_unit.id end as unit_id, t.unit_id as "stored unit_id"
    from pg_temp."map_products" m
    join pg_temp."staged_products" s on s."@ordinal" = m.ordinal
    left join data.products t on t.company_id = (select $1) and t.id = m.target and not m.is_new
    left join pg_temp."ref_products_category" "ref_category" on 'category' = any ($2) and "ref_category".lookup = s."category"
    left join pg_temp."ref_products_unit" "ref_unit" on 'unit' = any ($2) and "ref_unit".lookup = s."unit"
    where m.phase = 1 and not m.is_same
    offset 0
) v
where v."@new"
    or ('code' = any ($2) or '@id' = any ($2)) and v.code is distinct from v."stored code"
        or ('name' = any ($2)) and v.name is distinct from v."stored name"
        or ('description' = any ($2)) and v.description is distinct from v."stored description"
        or ('barcode' = any ($2) or '@id' = any ($2)) and v.barcode is distinct from v."stored barcode"
        or ('price' = any ($2)) and v.price is distinct from v."stored price"
        or ('active' = any ($2)) and v.active is distinct from v."stored active"
        or ('category' = any ($2)) and v.category_id is distinct from v."stored category_id"
        or ('unit' = any ($2)) and v.unit_id is distinct from v."stored unit_id"


bds_import.fail_batches_products(boolean) returns void language plpgsql
begin
    with numbered as (
        select m.ordinal, m.phase, m.position, m.failed,
            (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
        from pg_temp."map_products" m where m.parent is null
    ),
    batch as (
        select n.phase, n.number, min(n.ordinal) as first, min(n.position) as low, max(n.position) as high,
            count(*) filter (where n.failed) as failures
        from numbered n group by n.phase, n.number having bool_or(n.failed)
    ),
    marked as (
        update pg_temp."map_products" m set failed = true
        from numbered n join batch b on b.phase = n.phase and b.number = n.number
        where m.ordinal = n.ordinal and not m.failed
    )
    insert into pg_temp.feed_errors (entity, ordinal, code, is_late, message)
    select 'products', b.first, 'batch_failed', $1, format(
        'the batch %s[%s..%s] was not written, because of %s in it that failed', 'products', b.low, b.high,
        case b.failures when 1 then 'a record' else b.failures || ' records' end)
    from batch b
    where not exists (
        select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = b.first and e.code = 'batch_failed');
end

bds_import.fail_defaults_products(bds.imports) returns void language plpgsql
begin
    begin
        perform true;
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
        with used as (
            update pg_temp."map_products" m set is_same = true
            from pg_temp."staged_products" s
            where s."@ordinal" = m.ordinal and m.phase = 1
                and (m.is_new and s."active" is null or true and s."active" = e'\x01')
            returning m.ordinal
        )
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', u.ordinal, 'active', 'invalid_value', 'the default of active raises an error' from used u
        where not exists (
            select from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = u.ordinal and e.field = 'active');
    end;
end

bds_import.fail_late_products(bds.imports) returns void language plpgsql
begin
    perform bds_import."mark_products"();
    if import.atomic = 'batch' then
        perform bds_import."fail_batches_products"(true);
    end if;
    update pg_temp.feed_entities f set failed = (select count(*) from pg_temp."map_products" m where m.failed)
    where f.name = 'products';
end

bds_import.fail_orphans_products(bds.imports,text[]) returns void language plpgsql
begin
    if 'categories' = any (members) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', s."@ordinal", 'category', 'lookup_not_found',
            format('categories has no row %s: the record of this document failed', r.lookup)
        from pg_temp."ref_products_category" r
        join bds_import."named_products_category"(import.company_id, array(select distinct o.kind from pg_temp."ref_products_category" o)) n
            on n.lookup = r.lookup and n.id is distinct from r.id
        join pg_temp."staged_products" s on s."category" = r.lookup
        join pg_temp."map_products" m on m.ordinal = s."@ordinal" and not m.failed;
    end if;
    if 'units' = any (members) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', s."@ordinal", 'unit', 'lookup_not_found',
            format('units has no row %s: the record of this document failed', r.lookup)
        from pg_temp."ref_products_unit" r
        join bds_import."named_products_unit"(import.company_id, array(select distinct o.kind from pg_temp."ref_products_unit" o)) n
            on n.lookup = r.lookup and n.id is distinct from r.id
        join pg_temp."staged_products" s on s."unit" = r.lookup
        join pg_temp."map_products" m on m.ordinal = s."@ordinal" and not m.failed;
    end if;
end

bds_import.find_absent_products(text) returns void language plpgsql
begin
    -- the row of a failed record is unknown if all of them failed, or if what identifies the row is wrong
    if exists (
        select from pg_temp.feed_entities f
        where f.name = 'products' and f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp."map_products" m
            left join pg_temp.feed_errors e on e.entity = 'products' and e.ordinal = m.ordinal
            where m.failed and (
                m.target is null and not m.is_new  -- of a condition
                or e.code = 'lookup_ambiguous'
                or m.is_new and (e.field = any ('{id,code,barcode}') or true and m.key_code is null and m.key_barcode is null)
            )
        ))
    ) then
        insert into pg_temp.feed_errors (entity, path, code, message, is_late)
        values (
            'products', 'products@removeAll', 'batch_failed', 'nothing was removed: the rows of failed records are unknown', true
        );
    else
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select 'products', t.id, 'collection', 'products', t.id
        from data.products t
        where t.company_id = $1 and not exists (select from pg_temp."map_products" m where m.target = t.id)
            -- the rows of a mass delete are in the feed, too
            and not exists (select from pg_temp.feed_gone g where g.entity = 'products' and g.kind = 'record' and g.id = t.id);
    end if;
end

bds_import.find_deleted_products(bds.imports) returns void language plpgsql
declare
    mass    record;
    known   text;
    problem boolean := false;
begin
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select 'products', m.target, 'record', 'products', m.ordinal
    from pg_temp."map_products" m where m.phase = 3 and m.target is not null and not m.failed;
    for mass in
        select m.ordinal, s."@where" as condition, s."@lookups" as lookups
        from pg_temp."map_products" m join pg_temp."staged_products" s on s."@ordinal" = m.ordinal
        where m.phase = 3 and s."@where" is not null and not m.failed order by m.ordinal
    loop
        begin
            insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
            select 'products', w.id, 'record', 'products', mass.ordinal
            from bds_feed.rows_where(import.company_id, 'products', mass.condition, mass.lookups) as w (id);
        exception when sqlstate 'BDF01' then
            get stacked diagnostics known = pg_exception_detail;
            perform bds_feed.add_errors(
                known::jsonb, jsonb_build_object('entity', 'products', 'ordinal', mass.ordinal, 'is_late', true));
            problem := true;
        end;
    end loop;
    if problem then
        perform bds_import."keep_products"(import);
    end if;
end

bds_import.find_removed_products(text) returns void language plpgsql
begin
    if exists (select from pg_temp."staged_products" s where s."variants@present") then
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select 'productVariants', c.id, 'array', 'products', c.ordinal
        from (
            select t.id, p.ordinal
            from pg_temp."map_products" p join pg_temp."staged_products" s on s."@ordinal" = p.ordinal
            join data.product_variants t on t.company_id = (select $1) and t.product_id = p.target
            where s."variants@present" and p.phase = 1 and not p.failed and not p.is_new
            offset 0
        ) c
        -- the row of a failed record stays, too
        where not exists (select from pg_temp."map_productVariants" m where m.target = c.id);
    end if;
end

bds_import.holders_products(text,text[]) returns TABLE(n bigint, field text, holder bigint, is_leaving boolean) language sql
select d."@ordinal", 'code', t.id, m.target is not null and (o.id is null or o.code is distinct from t.code)
from pg_temp."diff_products" d
join data.products t on t.company_id = (select $1) and t.code = d.code and t.id <> d.id
left join pg_temp."map_products" m on m.target = t.id and not m.failed
left join pg_temp."diff_products" o on o.id = t.id
where d."@new" or d."@new" is not null and 'code' = any ($2)
 union all select d."@ordinal", 'barcode', t.id, m.target is not null and (o.id is null or o.barcode is distinct from t.barcode)
from pg_temp."diff_products" d
join data.products t on t.company_id = (select $1) and t.barcode = d.barcode and t.id <> d.id
left join pg_temp."map_products" m on m.target = t.id and not m.failed
left join pg_temp."diff_products" o on o.id = t.id
where d."@new" or d."@new" is not null and 'barcode' = any ($2)

bds_import.keep_products(bds.imports) returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, path, record, code, message, is_late)
    select distinct on (g.kind, g.ticket) 'products', case when t.id is null then g.ticket end,
        case when t.id is not null then 'products@removeAll' end,
        coalesce('code:' || t.code, 'barcode:' || t.barcode, 'id:' || t.id), g.code, g.message, true
    from pg_temp.feed_gone g
    left join data.products t on g.kind = 'collection' and t.company_id = (select import.company_id) and t.id = g.ticket
    where g.cause = 'products' and g.code is not null;
    perform bds_import."fail_late_products"(import);
    delete from pg_temp.feed_gone g
    where g.cause = 'products' and (g.code is not null or g.kind = 'record' and exists (
        select from pg_temp."map_products" m where m.ordinal = g.ticket and m.failed));
end

bds_import.leave_products() returns void language plpgsql
begin
    perform bds_import."mark_products"();
    delete from pg_temp."diff_products" d using pg_temp."map_products" m where m.ordinal = d."@ordinal" and m.failed;
    delete from pg_temp.feed_gone g
    using pg_temp."map_products" m where g.cause = 'products' and m.ordinal = g.ticket and m.failed;
end

bds_import.look_at_products() returns void language plpgsql
begin
    update pg_temp.feed_entities f set columns = l.columns, is_valid = l.is_valid, rows = l.rows
    from (
        select count(*) as rows,
            bool_and(true and (s."price" is null or s."price" = e'\x01' or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric')) and (s."active" is null or s."active" = e'\x01' or pg_input_is_valid(s."active", 'boolean'))) is not false as is_valid,
            array_remove(array[
                case when count(s."@id") > 0 then '@id' end,
                case when count(s."@operation") > 0 then '@operation' end,
                case when count(s."@where") > 0 then '@where' end
                , case when count(s."code") > 0 then 'code' end
                , case when count(s."name") > 0 then 'name' end
                , case when count(s."description") > 0 then 'description' end
                , case when count(s."barcode") > 0 then 'barcode' end
                , case when count(s."price") > 0 then 'price' end
                , case when count(s."active") > 0 then 'active' end
                , case when count(s."category") > 0 then 'category' end
                , case when count(s."unit") > 0 then 'unit' end
            ], null) as columns
        from pg_temp."staged_products" s
    ) l
    where f.name = 'products';
end

bds_import.mark_products() returns void language plpgsql
begin
    update pg_temp."map_products" m set failed = true
    from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and not m.failed;
end

bds_import.mass_products(bds.imports,text[],boolean,bigint,bigint) returns void language plpgsql
declare
    s        record;
    problems jsonb;
begin
    for s in
        select r.* from pg_temp."map_products" m join pg_temp."staged_products" r on r."@ordinal" = m.ordinal
        where m.phase = 2 and not m.failed and m.ordinal between $4 and $5 order by m.ordinal
    loop
        insert into pg_temp."diff_products"
        select v."@ordinal", v.id, case when false
            or v.code is distinct from v."stored code"
            or v.name is distinct from v."stored name"
            or v.description is distinct from v."stored description"
            or v.barcode is distinct from v."stored barcode"
            or v.price is distinct from v."stored price"
            or v.active is distinct from v."stored active"
            or v.category_id is distinct from v."stored category_id"
            or v.unit_id is distinct from v."stored unit_id"
            then false end, v."@mask 0", v.code, v.name, v.description, v.barcode, v.price, v.active, v.category_id, v.unit_id
        from (
            select s."@ordinal", t.id
                , (case when ('code' = any ($2) or '@id' = any ($2)) and (s."code" is not null) then 1 else 0 end | case when ('name' = any ($2)) and (s."name" is not null) then 2 else 0 end | case when ('description' = any ($2)) and (s."description" is not null) then 4 else 0 end | case when ('barcode' = any ($2) or '@id' = any ($2)) and (s."barcode" is not null) then 8 else 0 end | case when ('price' = any ($2)) and (s."price" is not null) then 16 else 0 end | case when ('active' = any ($2)) and (s."active" is not null) then 32 else 0 end | case when ('category' = any ($2)) and (s."category" is not null) then 64 else 0 end | case when ('unit' = any ($2)) and (s."unit" is not null) then 128 else 0 end)::bigint as "@mask 0"
                , case
                    when null::text is not null then null::text
                    when s."code" is null then t.code
                    when s."code" = e'\x01' then null
                    else bds_feed.staged_text(s."code")
                end as code, t.code as "stored code"
                , case when s."name" is null then t.name when s."name" = e'\x01' then null else bds_feed.staged_text(s."name") end as name, t.name as "stored name"
                , case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end as description, t.description as "stored description"
                , case
                    when null::text is not null then null::text
                    when s."barcode" is null then t.barcode
                    when s."barcode" = e'\x01' then null
                    else bds_feed.staged_text(s."barcode")
                end as barcode, t.barcode as "stored barcode"
                , case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end as price, t.price as "stored price"
                , case when s."active" is null then t.active when s."active" = e'\x01' then true else case when $3 or pg_input_is_valid(s."active", 'boolean') then s."active"::boolean end end as active, t.active as "stored active"
                , case when s."category" is null then t.category_id when s."category" <> e'\x01' then ref_category.id end as category_id, t.category_id as "stored category_id"
                , case when s."unit" is null then t.unit_id when s."unit" <> e'\x01' then ref_unit.id end as unit_id, t.unit_id as "stored unit_id"
            from bds_feed.rows_where(import.company_id, 'products', s."@where", s."@lookups") w (id)
            join data.products t on t.company_id = (select import.company_id) and t.id = w.id
            left join pg_temp."ref_products_category" "ref_category" on 'category' = any ($2) and "ref_category".lookup = s."category"
            left join pg_temp."ref_products_unit" "ref_unit" on 'unit' = any ($2) and "ref_unit".lookup = s."unit"
            offset 0
        ) v;
        perform bds_import."check_rules_products"(import, s."@ordinal", s."@ordinal");
        if 'code' = any ($2) and s."code" is not null then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'products', s."@ordinal", 'code',
                case when bool_or(t.id is null) then 'duplicate_record' else 'already_exists' end,
                case when bool_or(t.id is null) then 'a unique value cannot be set in several rows'
                    else format('row %s has code %L', min(t.id), min(d.code::text)) end
            from (
                select o.*, count(*) over () as changed
                from pg_temp."diff_products" o where o."@ordinal" = s."@ordinal" and not o."@new"
            ) d
            left join data.products t on t.company_id = (select import.company_id) and t.code = d.code and t.id <> d.id
            where d.code is not null and (t.id is not null or d.changed > 1)
            having count(*) > 0;
        end if;
        if 'barcode' = any ($2) and s."barcode" is not null then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'products', s."@ordinal", 'barcode',
                case when bool_or(t.id is null) then 'duplicate_record' else 'already_exists' end,
                case when bool_or(t.id is null) then 'a unique value cannot be set in several rows'
                    else format('row %s has barcode %L', min(t.id), min(d.barcode::text)) end
            from (
                select o.*, count(*) over () as changed
                from pg_temp."diff_products" o where o."@ordinal" = s."@ordinal" and not o."@new"
            ) d
            left join data.products t on t.company_id = (select import.company_id) and t.barcode = d.barcode and t.id <> d.id
            where d.barcode is not null and (t.id is not null or d.changed > 1)
            having count(*) > 0;
        end if;
        select jsonb_agg(distinct jsonb_build_object('field', e.field, 'code', e.code, 'message', e.message)) into problems
        from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = s."@ordinal";
        if problems is not null then
            raise exception using errcode = 'BDF01', message = 'a mass update would break a rule', detail = problems;
        end if;
        perform bds_import."write_products"(import.company_id, s."@ordinal", s."@ordinal", '{}', false);
    end loop;
end

bds_import.match_products(bds.imports,text[],boolean,boolean) returns void language plpgsql
declare
    -- the identifying field of the document, if there is only one: then no record is ambiguous
    sole text := (
        select case when count(*) = 1 and '@id' <> all ($2) then min(k) end
        from unnest(array['code', 'barcode']) k
        where k = any ($2));
    "@matches" bigint;
begin
    -- new rows get their ids, in the order of the document, before they are written: references need them
    if sole is null then
        insert into pg_temp."map_products"
        select o.ordinal, o.parent, o.position, o.phase, o.operation,
            coalesce(o.target, case when o.phase = 1 then nextval('data.products_id_seq') end),
            o.is_new, o.is_ambiguous, o.is_same, o.failed, o.id, o.id_kind, o.key_code, o.key_barcode
        from (select * from bds_import."matched_products"(import.company_id, $2, $3, $4) order by ordinal) o;
        get diagnostics "@matches" = row_count;
    end if;
    if sole = 'code' then
        insert into pg_temp."map_products"
        select o.ordinal, o.parent, o.position, o.phase, o.operation,
            coalesce(o.target, case when o.phase = 1 then nextval('data.products_id_seq') end),
            o.is_new, o.is_ambiguous, o.is_same, o.failed, o.id, o.id_kind, o.key_code, o.key_barcode
        from (select * from bds_import."matched_products_by_code"(import.company_id, $2, $3, $4) order by ordinal) o;
        get diagnostics "@matches" = row_count;
    end if;
    if sole = 'barcode' then
        insert into pg_temp."map_products"
        select o.ordinal, o.parent, o.position, o.phase, o.operation,
            coalesce(o.target, case when o.phase = 1 then nextval('data.products_id_seq') end),
            o.is_new, o.is_ambiguous, o.is_same, o.failed, o.id, o.id_kind, o.key_code, o.key_barcode
        from (select * from bds_import."matched_products_by_barcode"(import.company_id, $2, $3, $4) order by ordinal) o;
        get diagnostics "@matches" = row_count;
    end if;
    if "@matches" > (
        select f.rows from pg_temp.feed_entities f where f.name = 'products'
    ) then
        perform bds_import."refuse_copies_products"();
    end if;
    perform bds_feed.filled(import, 'map_products');
    perform bds_import."check_keys_products"(
        import, $2, sole is not null, exists (select from pg_temp."map_products" m where m.is_new and m.phase = 1));
end

bds_import.matched_products(text,text[],boolean,boolean) returns TABLE(ordinal bigint, parent bigint, "position" bigint, phase integer, operation text, target bigint, is_new boolean, is_ambiguous boolean, is_same boolean, failed boolean, id text, id_kind text, key_code text, key_barcode text) language sql
select s."@ordinal", s."@parent", coalesce(s."@position", s."@ordinal"), s."@phase", coalesce(s."@operation", 'upsert'), m.target,
    m.target is null and s."@where" is null, m.is_ambiguous,
    case when $4 and t.id is not null and not m.is_ambiguous and s."@phase" = 1 then true
        and (not ('code' = any ($2) or '@id' = any ($2)) or case
                    when m.key_code is not null then m.key_code
                    when s."code" is null then t.code
                    when s."code" = e'\x01' then null
                    else bds_feed.staged_text(s."code")
                end is not distinct from t.code)
        and (not ('name' = any ($2)) or case when s."name" is null then t.name when s."name" = e'\x01' then null else bds_feed.staged_text(s."name") end is not distinct from t.name)
        and (not ('description' = any ($2)) or case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end is not distinct from t.description)
        and (not ('barcode' = any ($2) or '@id' = any ($2)) or case
                    when m.key_barcode is not null then m.key_barcode
                    when s."barcode" is null then t.barcode
                    when s."barcode" = e'\x01' then null
                    else bds_feed.staged_text(s."barcode")
                end is not distinct from t.barcode)
        and (not ('price' = any ($2)) or case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end is not distinct from t.price)
        and (not ('active' = any ($2)) or case when s."active" is null then case when m.is_new then true else t.active end when s."active" = e'\x01' then true else case when $3 or pg_input_is_valid(s."active", 'boolean') then s."active"::boolean end end is not distinct from t.active)
        and (not ('category' = any ($2)) or case when s."category" is null then t.category_id when s."category" <> e'\x01' then ref_category.id end is not distinct from t.category_id)
        and (not ('unit' = any ($2)) or case when s."unit" is null then t.unit_id when s."unit" <> e'\x01' then ref_unit.id end is not distinct from t.unit_id)
    else false end,
    false, s."@id", s."@kind", m.key_code, m.key_barcode
from (
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.kind as "@kind", case when '@id' = any ($2) then bds_feed.lookup_id(s."@id") end as "@find_id"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."code"
            when s."code" is distinct from e'\x01' then coalesce(n."code", o."code")
        end as "@key_code"
        , o."code" as "@find_code"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."barcode"
            when s."barcode" is distinct from e'\x01' then coalesce(n."barcode", o."barcode")
        end as "@key_barcode"
        , o."barcode" as "@find_barcode"
    from pg_temp."staged_products" s
    cross join lateral (select case when '@id' = any ($2) then bds_feed.lookup_kind(s."@id") end,
        case when '@id' = any ($2) then bds_feed.lookup_value(s."@id") end) as l (kind, value)
    -- the unique fields of a mass update are values to write
    left join lateral (select bds_feed.staged_text(s."code") as "code", bds_feed.staged_text(s."barcode") as "barcode") as n on s."@where" is null
    cross join lateral (
        select case when s."@id" is null then n."code" when l.kind = 'code' then l.value end as "code", case when s."@id" is null then n."barcode" when l.kind = 'barcode' then l.value end as "barcode"
    ) as o
     offset 0  -- the others are linked
) s
left join data.products "by_code" on ('code' = any ($2) or '@id' = any ($2)) and "by_code".company_id = (select $1) and "by_code".code = s."@find_code"
left join data.products "by_barcode" on ('barcode' = any ($2) or '@id' = any ($2)) and "by_barcode".company_id = (select $1) and "by_barcode".barcode = s."@find_barcode"
left join data.products by_id on '@id' = any ($2) and by_id.company_id = (select $1) and by_id.id = s."@find_id"
cross join lateral (
    select least(by_id.id, "by_code".id, "by_barcode".id), greatest(by_id.id, "by_code".id, "by_barcode".id)
) as f (id, other)
left join data.products t on $4 and t.company_id = (select $1) and t.id = f.id
cross join lateral (
    select f.id as target, f.id <> f.other as is_ambiguous, false as is_new
        , s."@key_code" as key_code
        , s."@key_barcode" as key_barcode
) m
left join pg_temp."ref_products_category" "ref_category" on $4 and 'category' = any ($2) and "ref_category".lookup = s."category"
left join pg_temp."ref_products_unit" "ref_unit" on $4 and 'unit' = any ($2) and "ref_unit".lookup = s."unit"

bds_import.matched_products_by_barcode(text,text[],boolean,boolean) returns TABLE(ordinal bigint, parent bigint, "position" bigint, phase integer, operation text, target bigint, is_new boolean, is_ambiguous boolean, is_same boolean, failed boolean, id text, id_kind text, key_code text, key_barcode text) language sql
select s."@ordinal", s."@parent", coalesce(s."@position", s."@ordinal"), s."@phase", coalesce(s."@operation", 'upsert'), m.target,
    m.target is null and s."@where" is null, m.is_ambiguous,
    case when $4 and t.id is not null and not m.is_ambiguous and s."@phase" = 1 then true
        and (not ('code' = any ($2) or '@id' = any ($2)) or case
                    when m.key_code is not null then m.key_code
                    when s."code" is null then t.code
                    when s."code" = e'\x01' then null
                    else bds_feed.staged_text(s."code")
                end is not distinct from t.code)
        and (not ('name' = any ($2)) or case when s."name" is null then t.name when s."name" = e'\x01' then null else bds_feed.staged_text(s."name") end is not distinct from t.name)
        and (not ('description' = any ($2)) or case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end is not distinct from t.description)
        and (not ('price' = any ($2)) or case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end is not distinct from t.price)
        and (not ('active' = any ($2)) or case when s."active" is null then case when m.is_new then true else t.active end when s."active" = e'\x01' then true else case when $3 or pg_input_is_valid(s."active", 'boolean') then s."active"::boolean end end is not distinct from t.active)
        and (not ('category' = any ($2)) or case when s."category" is null then t.category_id when s."category" <> e'\x01' then ref_category.id end is not distinct from t.category_id)
        and (not ('unit' = any ($2)) or case when s."unit" is null then t.unit_id when s."unit" <> e'\x01' then ref_unit.id end is not distinct from t.unit_id)
    else false end,
    false, s."@id", s."@kind", m.key_code, m.key_barcode
from (
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.kind as "@kind", case when '@id' = any ($2) then bds_feed.lookup_id(s."@id") end as "@find_id"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."code"
            when s."code" is distinct from e'\x01' then coalesce(n."code", o."code")
        end as "@key_code"
        , o."code" as "@find_code"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."barcode"
            when s."barcode" is distinct from e'\x01' then coalesce(n."barcode", o."barcode")
        end as "@key_barcode"
        , o."barcode" as "@find_barcode"
    from pg_temp."staged_products" s
    cross join lateral (select case when '@id' = any ($2) then bds_feed.lookup_kind(s."@id") end,
        case when '@id' = any ($2) then bds_feed.lookup_value(s."@id") end) as l (kind, value)
    -- the unique fields of a mass update are values to write
    left join lateral (select bds_feed.staged_text(s."code") as "code", bds_feed.staged_text(s."barcode") as "barcode") as n on s."@where" is null
    cross join lateral (
        select case when s."@id" is null then n."code" when l.kind = 'code' then l.value end as "code", case when s."@id" is null then n."barcode" when l.kind = 'barcode' then l.value end as "barcode"
    ) as o
     offset 0  -- the others are linked
) s
left join data.products t on t.company_id = (select $1) and t.barcode = s."@find_barcode"
cross join lateral (
    select t.id as target, false as is_ambiguous, false as is_new
        , s."@key_code" as key_code
        , s."@key_barcode" as key_barcode
) m
left join pg_temp."ref_products_category" "ref_category" on $4 and 'category' = any ($2) and "ref_category".lookup = s."category"
left join pg_temp."ref_products_unit" "ref_unit" on $4 and 'unit' = any ($2) and "ref_unit".lookup = s."unit"

bds_import.matched_products_by_code(text,text[],boolean,boolean) returns TABLE(ordinal bigint, parent bigint, "position" bigint, phase integer, operation text, target bigint, is_new boolean, is_ambiguous boolean, is_same boolean, failed boolean, id text, id_kind text, key_code text, key_barcode text) language sql
select s."@ordinal", s."@parent", coalesce(s."@position", s."@ordinal"), s."@phase", coalesce(s."@operation", 'upsert'), m.target,
    m.target is null and s."@where" is null, m.is_ambiguous,
    case when $4 and t.id is not null and not m.is_ambiguous and s."@phase" = 1 then true
        and (not ('name' = any ($2)) or case when s."name" is null then t.name when s."name" = e'\x01' then null else bds_feed.staged_text(s."name") end is not distinct from t.name)
        and (not ('description' = any ($2)) or case when s."description" is null then t.description when s."description" = e'\x01' then null else bds_feed.staged_text(s."description") end is not distinct from t.description)
        and (not ('barcode' = any ($2) or '@id' = any ($2)) or case
                    when m.key_barcode is not null then m.key_barcode
                    when s."barcode" is null then t.barcode
                    when s."barcode" = e'\x01' then null
                    else bds_feed.staged_text(s."barcode")
                end is not distinct from t.barcode)
        and (not ('price' = any ($2)) or case when s."price" is null then t.price when s."price" = e'\x01' then null else case when $3 or pg_input_is_valid(s."price", 'numeric(19,4)') and s."price" !~ '[a-df-zA-DF-Z_]' and pg_input_is_valid(s."price", 'numeric') then s."price"::numeric(19,4) end end is not distinct from t.price)
        and (not ('active' = any ($2)) or case when s."active" is null then case when m.is_new then true else t.active end when s."active" = e'\x01' then true else case when $3 or pg_input_is_valid(s."active", 'boolean') then s."active"::boolean end end is not distinct from t.active)
        and (not ('category' = any ($2)) or case when s."category" is null then t.category_id when s."category" <> e'\x01' then ref_category.id end is not distinct from t.category_id)
        and (not ('unit' = any ($2)) or case when s."unit" is null then t.unit_id when s."unit" <> e'\x01' then ref_unit.id end is not distinct from t.unit_id)
    else false end,
    false, s."@id", s."@kind", m.key_code, m.key_barcode
from (
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.kind as "@kind", case when '@id' = any ($2) then bds_feed.lookup_id(s."@id") end as "@find_id"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."code"
            when s."code" is distinct from e'\x01' then coalesce(n."code", o."code")
        end as "@key_code"
        , o."code" as "@find_code"
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."barcode"
            when s."barcode" is distinct from e'\x01' then coalesce(n."barcode", o."barcode")
        end as "@key_barcode"
        , o."barcode" as "@find_barcode"
    from pg_temp."staged_products" s
    cross join lateral (select case when '@id' = any ($2) then bds_feed.lookup_kind(s."@id") end,
        case when '@id' = any ($2) then bds_feed.lookup_value(s."@id") end) as l (kind, value)
    -- the unique fields of a mass update are values to write
    left join lateral (select bds_feed.staged_text(s."code") as "code", bds_feed.staged_text(s."barcode") as "barcode") as n on s."@where" is null
    cross join lateral (
        select case when s."@id" is null then n."code" when l.kind = 'code' then l.value end as "code", case when s."@id" is null then n."barcode" when l.kind = 'barcode' then l.value end as "barcode"
    ) as o
     offset 0  -- the others are linked
) s
left join data.products t on t.company_id = (select $1) and t.code = s."@find_code"
cross join lateral (
    select t.id as target, false as is_ambiguous, false as is_new
        , s."@key_code" as key_code
        , s."@key_barcode" as key_barcode
) m
left join pg_temp."ref_products_category" "ref_category" on $4 and 'category' = any ($2) and "ref_category".lookup = s."category"
left join pg_temp."ref_products_unit" "ref_unit" on $4 and 'unit' = any ($2) and "ref_unit".lookup = s."unit"

bds_import.name_products(bds.imports,text[]) returns void language plpgsql
declare
    looked  record;
    outside boolean;  -- it refers only to rows outside of its family
begin
    perform bds_feed.show_progress(import, 'comparing', 'products', 0);
    perform bds_import."look_at_products"();
    select * into looked from pg_temp.feed_entities f where f.name = 'products';
    if not looked.is_valid then
        perform bds_import."check_values_products"();
    end if;
    outside := not ('categories' = any (members) and 'category' = any (looked.columns) or 'units' = any (members) and 'unit' = any (looked.columns));
    if outside then
        perform bds_import."refer_products"(import, looked.columns, false);
    end if;
    -- whether a row has moved to another parent can be compared only when the parent's rows are mapped
    perform bds_import."match_products"(import, looked.columns, looked.is_valid, outside and not (false));
    perform bds_import."check_products"(looked.columns);
    perform bds_feed.show_progress(import, 'comparing', 'products', 1);
end

bds_import.named_products_category(text,text[]) returns TABLE(lookup text, kind text, id bigint) language sql
-- rows of the document come first: the import writes them
select d.lookup, d.kind, coalesce(
    "old_id".id, "new_code".target, "old_code".id
)
from (
    select l.lookup, l.kind
        , case when l.kind = 'id' then bds_feed.lookup_id(l.lookup) end as "value_id"
        , case when l.kind = 'code' then l.value end as "value_code"
    from pg_temp."lookup_products_category" l offset 0
) d
left join data.categories "old_id"
    on 'id' = any ($2) and "old_id".company_id = (select $1) and "old_id".id = d."value_id"
left join pg_temp."map_categories" "new_code"
    on 'code' = any ($2) and "new_code"."key_code" = d."value_code" and not "new_code".failed
left join data.categories "old_code"
    on 'code' = any ($2) and "old_code".company_id = (select $1) and "old_code".code = d."value_code"

bds_import.named_products_unit(text,text[]) returns TABLE(lookup text, kind text, id bigint) language sql
-- rows of the document come first: the import writes them
select d.lookup, d.kind, coalesce(
    "old_id".id, "new_code".target, "old_code".id
)
from (
    select l.lookup, l.kind
        , case when l.kind = 'id' then bds_feed.lookup_id(l.lookup) end as "value_id"
        , case when l.kind = 'code' then l.value end as "value_code"
    from pg_temp."lookup_products_unit" l offset 0
) d
left join data.units "old_id"
    on 'id' = any ($2) and "old_id".company_id = (select $1) and "old_id".id = d."value_id"
left join pg_temp."map_units" "new_code"
    on 'code' = any ($2) and "new_code"."key_code" = d."value_code" and not "new_code".failed
left join data.units "old_code"
    on 'code' = any ($2) and "old_code".company_id = (select $1) and "old_code".code = d."value_code"

bds_import.note_alone_products(text) returns void language plpgsql
begin
    update pg_temp.revert_waits w set is_alone = true
    from pg_temp."diff_products" d
    join data.products t on t.company_id = (select $1) and t.id = d.id
    cross join (select f.columns from pg_temp.feed_entities f where f.name = 'products') as f (given)
    where w.entity = 'products' and w.n = d."@ordinal" and not d."@new" and not (
        false
        or 'code' = any (f.given) and t.code is distinct from d.code
        or 'name' = any (f.given) and t.name is distinct from d.name
        or 'description' = any (f.given) and t.description is distinct from d.description
        or 'barcode' = any (f.given) and t.barcode is distinct from d.barcode
        or 'price' = any (f.given) and record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4)))
        or 'active' = any (f.given) and t.active is distinct from d.active
        or 'categoryId' = any (f.given) and t.category_id is distinct from d.category_id
        or 'unitId' = any (f.given) and t.unit_id is distinct from d.unit_id
    );
end

bds_import.odd_products(text,text[]) returns TABLE(n bigint, is_there boolean, is_wanted boolean, field text, wanted text, found text) language sql
select m.ordinal, t.id is not null, d.id is not null, v.field, v.wanted, v.found
from pg_temp."map_products" m
join pg_temp.revert_rows r on r.n = m.ordinal
cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
left join pg_temp."diff_products" d on d."@ordinal" = m.ordinal
left join data.products t on t.company_id = (select $1) and t.id = m.target
left join lateral (
    select f.field, f.wanted, f.found
    from (values
        (
            1, 'code', to_json(d.code)::text, to_json(t.code)::text,
            t.code is distinct from d.code and k.known ? 'code'
        )
,         (
            2, 'name', to_json(d.name)::text, to_json(t.name)::text,
            t.name is distinct from d.name and k.known ? 'name'
        )
,         (
            3, 'description', to_json(d.description)::text, to_json(t.description)::text,
            t.description is distinct from d.description and k.known ? 'description'
        )
,         (
            4, 'barcode', to_json(d.barcode)::text, to_json(t.barcode)::text,
            t.barcode is distinct from d.barcode and k.known ? 'barcode'
        )
,         (
            5, 'price', to_json(d.price)::text, to_json(t.price)::text,
            record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4))) and k.known ? 'price'
        )
,         (
            6, 'active', to_json(d.active)::text, to_json(t.active)::text,
            t.active is distinct from d.active and k.known ? 'active'
        )
,         (
            1, 'categoryId', to_json(d.category_id)::text, to_json(t.category_id)::text,
            t.category_id is distinct from d.category_id and k.known ? 'categoryId'
        )
,         (
            2, 'unitId', to_json(d.unit_id)::text, to_json(t.unit_id)::text,
            t.unit_id is distinct from d.unit_id and k.known ? 'unitId'
        )
    ) as f (n, field, wanted, found, differs)
    where f.differs order by f.n limit 1
) v on t.id is not null and d.id is not null
where not m.failed and case
    when d.id is null then t.id is not null
    when t.id is null then true
    else
        'code' = any ($2) and t.code is distinct from d.code and k.known ? 'code'
 or         'name' = any ($2) and t.name is distinct from d.name and k.known ? 'name'
 or         'description' = any ($2) and t.description is distinct from d.description and k.known ? 'description'
 or         'barcode' = any ($2) and t.barcode is distinct from d.barcode and k.known ? 'barcode'
 or         'price' = any ($2) and record_image_ne(row(t.price::numeric(19,4)), row((d.price)::numeric(19,4))) and k.known ? 'price'
 or         'active' = any ($2) and t.active is distinct from d.active and k.known ? 'active'
 or         'categoryId' = any ($2) and t.category_id is distinct from d.category_id and k.known ? 'categoryId'
 or         'unitId' = any ($2) and t.unit_id is distinct from d.unit_id and k.known ? 'unitId'
end

bds_import.paths_products() returns TABLE(ordinal bigint, path text, record text) language sql
-- a record without parent is in the collection of its entity
with staged as (
    select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position,
        coalesce(bds_feed.staged_text(s."@id"), 'code:' || bds_feed.staged_text(s."code"), 'barcode:' || bds_feed.staged_text(s."barcode")) as record
    from pg_temp."staged_products" s
)select s.ordinal, format(
        '%s[%s]', 'products', s.position
    ),
    s.record
from staged s

bds_import.read_products(bigint,bigint[],bigint[],jsonb[],boolean) returns void language plpgsql
begin
    insert into pg_temp."staged_products" ("@ordinal", "@parent", "@position", "@id", "@operation"
        , code, name, description, barcode, price, active, category, unit, "variants@present")
    select $1 + u.n - 1, u.parent, u.position, bds_feed.to_stage(nullif(u.r -> 'id', 'null'), false),
        case jsonb_typeof(u.r -> '@operation') when 'string' then u.r ->> '@operation' end
        , bds_feed.to_stage(coalesce(u.r -> 'code', u.r -> 'code'), 'text' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'name', u.r -> 'name'), 'text' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'description', u.r -> 'description'), 'text' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'barcode', u.r -> 'barcode'), 'text' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'price', u.r -> 'price'), 'numeric(19,4)' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'active', u.r -> 'active'), 'boolean' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'categoryId', u.r -> 'category'), 'bigint' = 'boolean')  -- categoryId beside category
        , bds_feed.to_stage(coalesce(u.r -> 'unitId', u.r -> 'unit'), 'bigint' = 'boolean')  -- categoryId beside category
        , case when u.r ? 'variants' then coalesce(bds_feed.switch(u.r -> 'variants@removeAll'),
            case when u.r -> '@operation' is distinct from '"delete"' then not $5 end) end
    from unnest($2, $3, $4) with ordinality as u (parent, position, r, n);
end

bds_import.redo_products(text) returns void language plpgsql
declare
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = 'products');
begin
    update pg_temp."diff_products" d set "@new" = null where d."@new" is not null;
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select 'products', r.id, 'undo', 'products', o.n
    from bds_import."odd_products"($1, given) o join pg_temp.revert_rows r on r.n = o.n where not o.is_wanted;
    update pg_temp."diff_products" d
    set "@new" = not o.is_there
        , code = case when o.is_there and k.known ? 'code' is not true then t.code else d.code end
        , name = case when o.is_there and k.known ? 'name' is not true then t.name else d.name end
        , description = case when o.is_there and k.known ? 'description' is not true then t.description else d.description end
        , barcode = case when o.is_there and k.known ? 'barcode' is not true then t.barcode else d.barcode end
        , price = case when o.is_there and k.known ? 'price' is not true then t.price else d.price end
        , active = case when o.is_there and k.known ? 'active' is not true then t.active else d.active end
        , category_id = case when o.is_there and k.known ? 'categoryId' is not true then t.category_id else d.category_id end
        , unit_id = case when o.is_there and k.known ? 'unitId' is not true then t.unit_id else d.unit_id end
    from bds_import."odd_products"($1, given) o
    join pg_temp.revert_rows r on r.n = o.n
    cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
    left join data.products t on t.company_id = (select $1) and t.id = r.id
    where d."@ordinal" = o.n;
end

bds_import.refer_products(bds.imports,text[],boolean) returns void language plpgsql
declare
    "@lookups" bigint;
    "@matches" bigint;
begin
    if 'category' = any ($2) and not $3 then
        insert into pg_temp."lookup_products_category"
        select r.lookup, bds_feed.lookup_kind(r.lookup), bds_feed.lookup_value(r.lookup)
        from (select distinct s."category" as lookup from pg_temp."staged_products" s where s."category" <> e'\x01') r;
        get diagnostics "@lookups" = row_count;
        perform bds_feed.filled(import, 'lookup_products_category');
        insert into pg_temp."ref_products_category"
        select * from bds_import."named_products_category"(import.company_id, array(select distinct l.kind from pg_temp."lookup_products_category" l));
        get diagnostics "@matches" = row_count;
        if "@matches" > "@lookups" then
            perform bds_import."refuse_choices_products_category"();
        end if;
        perform bds_feed.filled(import, 'ref_products_category');
        if exists (select from pg_temp."ref_products_category" r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'products', s."@ordinal", 'category', e.code, e.message
            from pg_temp."ref_products_category" r
            join pg_temp."staged_products" s on s."category" = r.lookup
            cross join lateral (select left(bds_feed.staged_text(r.lookup), 100)) as g (lookup)
            cross join lateral (
                select 'lookup_not_found', 'categories has no row ' || g.lookup || case
                    -- a column of a CSV file holds codes, to which the kind is added
                    when g.lookup like format('%1$s:%1$s:%%', r.kind)
                        then format(': expected the %s alone, without ''%1$s:''', r.kind)
                    else ''
                end
                where r.kind = any ('{id,code}')
                union all
                select 'invalid_value', format('expected a lookup (id:..., code:...), got %L', g.lookup) where r.kind <> all ('{id,code}')
            ) as e (code, message)
            where r.id is null and (not (s."@operation" is not distinct from 'delete'));
        end if;
    end if;
    if 'unit' = any ($2) and not $3 then
        insert into pg_temp."lookup_products_unit"
        select r.lookup, bds_feed.lookup_kind(r.lookup), bds_feed.lookup_value(r.lookup)
        from (select distinct s."unit" as lookup from pg_temp."staged_products" s where s."unit" <> e'\x01') r;
        get diagnostics "@lookups" = row_count;
        perform bds_feed.filled(import, 'lookup_products_unit');
        insert into pg_temp."ref_products_unit"
        select * from bds_import."named_products_unit"(import.company_id, array(select distinct l.kind from pg_temp."lookup_products_unit" l));
        get diagnostics "@matches" = row_count;
        if "@matches" > "@lookups" then
            perform bds_import."refuse_choices_products_unit"();
        end if;
        perform bds_feed.filled(import, 'ref_products_unit');
        if exists (select from pg_temp."ref_products_unit" r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select 'products', s."@ordinal", 'unit', e.code, e.message
            from pg_temp."ref_products_unit" r
            join pg_temp."staged_products" s on s."unit" = r.lookup
            cross join lateral (select left(bds_feed.staged_text(r.lookup), 100)) as g (lookup)
            cross join lateral (
                select 'lookup_not_found', 'units has no row ' || g.lookup || case
                    -- a column of a CSV file holds codes, to which the kind is added
                    when g.lookup like format('%1$s:%1$s:%%', r.kind)
                        then format(': expected the %s alone, without ''%1$s:''', r.kind)
                    else ''
                end
                where r.kind = any ('{id,code}')
                union all
                select 'invalid_value', format('expected a lookup (id:..., code:...), got %L', g.lookup) where r.kind <> all ('{id,code}')
            ) as e (code, message)
            where r.id is null and (not (s."@operation" is not distinct from 'delete'));
        end if;
    end if;
end

bds_import.refuse_change_products(bigint,bigint) returns void language plpgsql
declare
    ordinals bigint[] := array(
        select distinct d."@ordinal" from pg_temp."diff_products" d where not d."@new" and d."@ordinal" between $1 and $2);
begin
    raise exception using
        errcode = case cardinality(ordinals) when 1 then 'BDF01' else '27000' end, message = 'a trigger leaves rows out',
        detail = jsonb_build_array(jsonb_build_object(
            'entity', 'products', 'ordinal', ordinals[1], 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being changed'));
end

bds_import.refuse_choices_products_category() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', s."@ordinal", 'category', 'lookup_ambiguous',
        format('categories has several rows %s: the key was dropped from the table', left(bds_feed.staged_text(r.lookup), 100))
    from (select o.lookup from pg_temp."ref_products_category" o group by o.lookup having count(*) > 1) r
    join pg_temp."staged_products" s on s."category" = r.lookup
    where not (s."@operation" is not distinct from 'delete');
    delete from pg_temp."ref_products_category" r using pg_temp."ref_products_category" o where o.lookup = r.lookup and o.ctid < r.ctid;
end

bds_import.refuse_choices_products_unit() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select 'products', s."@ordinal", 'unit', 'lookup_ambiguous',
        format('units has several rows %s: the key was dropped from the table', left(bds_feed.staged_text(r.lookup), 100))
    from (select o.lookup from pg_temp."ref_products_unit" o group by o.lookup having count(*) > 1) r
    join pg_temp."staged_products" s on s."unit" = r.lookup
    where not (s."@operation" is not distinct from 'delete');
    delete from pg_temp."ref_products_unit" r using pg_temp."ref_products_unit" o where o.lookup = r.lookup and o.ctid < r.ctid;
end

bds_import.refuse_copies_products() returns void language plpgsql
begin
    insert into pg_temp.feed_errors (entity, ordinal, code, message)
    select 'products', m.ordinal, 'lookup_ambiguous', 'several rows have its unique value: the key was dropped from the table'
    from pg_temp."map_products" m group by m.ordinal having count(*) > 1;
    delete from pg_temp."map_products" m using pg_temp."map_products" o where o.ordinal = m.ordinal and o.ctid < m.ctid;
    update pg_temp."map_products" m set failed = true, is_same = true  -- at once: no lookup may find it
    from pg_temp.feed_errors e where e.entity = 'products' and e.ordinal = m.ordinal and e.code = 'lookup_ambiguous';
end

bds_import.require_created_products(text,bigint,bigint) returns void language plpgsql
declare
    problems jsonb := (
        select jsonb_agg(jsonb_build_object(
            'entity', 'products', 'ordinal', d."@ordinal", 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being created'))
        from pg_temp."diff_products" d
        where d."@new" and d."@ordinal" between $2 and $3
            and not exists (select from data.products t where t.company_id = (select $1) and t.id = d.id));
begin
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'a trigger leaves rows out', detail = problems;
    end if;
end

bds_import.resume_products(boolean) returns void language plpgsql
begin
    update pg_temp."diff_products" d set "@new" = null where d."@new" is not null;
    update pg_temp."diff_products" d
    set "@new" = false
        , code = case when w.waiting ? 'code' then (w.waiting ->> 'code')::text else d.code end
        , name = case when w.waiting ? 'name' then (w.waiting ->> 'name')::text else d.name end
        , description = case when w.waiting ? 'description' then (w.waiting ->> 'description')::text else d.description end
        , barcode = case when w.waiting ? 'barcode' then (w.waiting ->> 'barcode')::text else d.barcode end
        , price = case when w.waiting ? 'price' then (w.waiting ->> 'price')::numeric(19,4) else d.price end
        , active = case when w.waiting ? 'active' then (w.waiting ->> 'active')::boolean else d.active end
        , category_id = case when w.waiting ? 'categoryId' then (w.waiting ->> 'categoryId')::bigint else d.category_id end
        , unit_id = case when w.waiting ? 'unitId' then (w.waiting ->> 'unitId')::bigint else d.unit_id end
    from (
        select o.n, jsonb_object_agg(o.field, o.value) as waiting
        from pg_temp.revert_waits o where o.entity = 'products' group by o.n having bool_or(o.is_alone) = $1
    ) w
    where w.n = d."@ordinal";
end

bds_import.spare_products() returns void language plpgsql
begin
    delete from pg_temp.feed_gone g
    where g.entity = 'products' and g.kind in ('array', 'collection')
        and exists (select from pg_temp."diff_products" d where d.id = g.id);
end

bds_import.stage_products(jsonb) returns void language plpgsql
declare
    odd text;
begin
    insert into pg_temp."staged_products" select * from jsonb_populate_recordset(null::pg_temp."staged_products", $1);
    -- jsonb_populate_recordset ignores members that are not columns
    select string_agg(distinct k, ', ') into odd
    from jsonb_array_elements($1) r cross join jsonb_object_keys(r) k
    where k not in ('@ordinal', '@parent', '@position', '@id', '@operation', '@where', '@lookups'
        , 'code', 'name', 'description', 'barcode', 'price', 'active', 'category', 'unit', 'variants@present');
    if odd is not null then
        raise exception using errcode = 'undefined_column', message = format('no such column of products: %s', odd);
    end if;
end

bds_import.undo_products(bds.imports) returns void language plpgsql
declare
    given text[] := (
        select array_remove(array[case when bool_or(r.old ? 'code') then 'code' end, case when bool_or(r.old ? 'name') then 'name' end, case when bool_or(r.old ? 'description') then 'description' end, case when bool_or(r.old ? 'barcode') then 'barcode' end, case when bool_or(r.old ? 'price') then 'price' end, case when bool_or(r.old ? 'active') then 'active' end, case when bool_or(r.old ? 'categoryId') then 'categoryId' end, case when bool_or(r.old ? 'unitId') then 'unitId' end], null)
        from pg_temp.revert_rows r where r.entity = 'products' and r.existed);
begin
    update pg_temp.feed_entities f set columns = given where f.name = 'products';
    with compared as materialized (
        select * from bds_import."compared_products"(import.company_id, import.is_forced, given)
    ),
    refused as (
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select 'products', c."@ordinal", c."@field", c."@code", c."@message" from compared c where c."@code" is not null
    ),
    gone as (
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select 'products', c.id, 'undo', 'products', c."@ordinal" from compared c where c."@action" = 'delete' and c."@code" is null
    ),
    mapped as (
        insert into pg_temp."map_products" (ordinal, phase, target, is_new, is_same, failed, key_code, key_barcode)
        select c."@ordinal", case when c."@action" = 'delete' then 3 else 1 end, c.id, coalesce(c."@action" = 'create', false),
            c."@action" is null, c."@code" is not null, c.code, c.barcode
        from compared c
    )
    insert into pg_temp."diff_products"
    select c."@ordinal", c.id, case c."@action" when 'create' then true when 'update' then false end
        , c."@mask 0"
        , c.code
        , c.name
        , c.description
        , c.barcode
        , c.price
        , c.active
        , c.category_id
        , c.unit_id
    from compared c where c."@existed" and c."@code" is null;
    if exists (select from pg_temp.feed_errors e where e.entity = 'products') then
        perform bds_import."leave_products"();
    end if;
    perform bds_feed.filled(import, 'map_products'), bds_feed.filled(import, 'diff_products');
end

bds_import.undone_products() returns TABLE(ordinal bigint, path text, record text) language sql
select m.ordinal, 'products/' || m.target, coalesce('code' || ':' || m.key_code, 'barcode' || ':' || m.key_barcode, 'id:' || m.target)
from pg_temp."map_products" m

bds_import.write_products(text,bigint,bigint,text[],boolean) returns void language plpgsql
declare
    "@creates" boolean := exists (select from pg_temp."diff_products" d where d."@new");
    "@changes" boolean := exists (select from pg_temp."diff_products" d where not d."@new");
    "@apart"   boolean := false;
    "@written" bigint;
    "@outer"   text := coalesce(current_setting('bds.unchanged', true), '');  -- of the statement that has fired this one
begin
    perform set_config('bds.unchanged', pg_trigger_depth() + 1 || ':0', true);
    if "@creates" and "@changes" and not "@apart" then
        merge into data.products t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.code as code
                , d.name as name
                , d.description as description
                , d.barcode as barcode
                , d.price as price
                , d.active as active
                , d.category_id as category_id
                , d.unit_id as unit_id
            from pg_temp."diff_products" d
            where d."@ordinal" between $2 and $3 and d."@new" is not null
        ) d
        on t.company_id = (select $1) and t.id = case when not d."@new" then d.id end
        when matched then update set code = case when d."@mask 0" & 1 <> 0 then d.code else t.code end,
            name = case when d."@mask 0" & 2 <> 0 then d.name else t.name end,
            description = case when d."@mask 0" & 4 <> 0 then d.description else t.description end,
            barcode = case when d."@mask 0" & 8 <> 0 then d.barcode else t.barcode end,
            price = case when d."@mask 0" & 16 <> 0 then d.price else t.price end,
            active = case when d."@mask 0" & 32 <> 0 then d.active else t.active end,
            category_id = case when d."@mask 0" & 64 <> 0 then d.category_id else t.category_id end,
            unit_id = case when d."@mask 0" & 128 <> 0 then d.unit_id else t.unit_id end
        when not matched and d."@new" then
            insert (company_id, id, code, name, description, barcode, price, active, category_id, unit_id) overriding system value
            values ($1, d.id, d.code, d.name, d.description, d.barcode, d.price, d.active, d.category_id, d.unit_id);
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_products" d where d."@ordinal" between $2 and $3 and d."@new" is not null
        ) then
            perform bds_import."require_created_products"($1, $2, $3);
            perform bds_import."refuse_change_products"($2, $3);
        end if;
    end if;
    if "@creates" and (not "@changes" or "@apart") then
        merge into data.products t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.code as code
                , d.name as name
                , d.description as description
                , d.barcode as barcode
                , d.price as price
                , d.active as active
                , d.category_id as category_id
                , d.unit_id as unit_id
            from pg_temp."diff_products" d
            where d."@ordinal" between $2 and $3 and d."@new"
        ) d
        on false
        when not matched and d."@new" then
            insert (company_id, id, code, name, description, barcode, price, active, category_id, unit_id) overriding system value
            values ($1, d.id, d.code, d.name, d.description, d.barcode, d.price, d.active, d.category_id, d.unit_id);
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_products" d where d."@ordinal" between $2 and $3 and d."@new"
        ) then
            perform bds_import."require_created_products"($1, $2, $3);
        end if;
    end if;
    if "@changes" and (not "@creates" or "@apart") then
        merge into data.products t
        using (
            select d."@new", d.id, d."@mask 0"
                , d.code as code
                , d.name as name
                , d.description as description
                , d.barcode as barcode
                , d.price as price
                , d.active as active
                , d.category_id as category_id
                , d.unit_id as unit_id
            from pg_temp."diff_products" d
            where d."@ordinal" between $2 and $3 and not d."@new"
        ) d
        on t.company_id = (select $1) and t.id = d.id
        when matched then update set code = case when d."@mask 0" & 1 <> 0 then d.code else t.code end,
            name = case when d."@mask 0" & 2 <> 0 then d.name else t.name end,
            description = case when d."@mask 0" & 4 <> 0 then d.description else t.description end,
            barcode = case when d."@mask 0" & 8 <> 0 then d.barcode else t.barcode end,
            price = case when d."@mask 0" & 16 <> 0 then d.price else t.price end,
            active = case when d."@mask 0" & 32 <> 0 then d.active else t.active end,
            category_id = case when d."@mask 0" & 64 <> 0 then d.category_id else t.category_id end,
            unit_id = case when d."@mask 0" & 128 <> 0 then d.unit_id else t.unit_id end
;
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_products" d where d."@ordinal" between $2 and $3 and not d."@new"
        ) then
            perform bds_import."refuse_change_products"($2, $3);
        end if;
    end if;
    perform set_config('bds.unchanged', "@outer", true);
end
