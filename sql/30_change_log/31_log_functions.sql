-- Generates the functions that log the inserts, updates and deletes of an entity.  They spell out the columns, and are three times as
-- fast as one function that looks them up.

create function bds_change_log.log_template()
    returns text
    language sql
    immutable
    return $body$
create or replace function bds_log.{function:I}() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- old values are stored in one format, whatever the session has set
set timezone = 'UTC'
set extra_float_digits = 1
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set enable_nestloop = on
set enable_hashjoin = on
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
    select min(r.company_id collate "C"), max(r.company_id collate "C"), count(*), min(r.updated_at), max(r.updated_at)
    into company, last, changes, oldest, newest
    from {rows} r
    where bds_log.{check:I}();
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from {rows} r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(company, {entity:L}, changes, {stamps}, {announces});
        base := turn.base;
        at := turn.at;{settle}
        if is_single then
            -- the same as below, without joining and numbering
            insert into bds.change_log ({columns})
            select company, base + 1, {record}
            from {row};{check_keys}
        else
            {avoid_nestloop}insert into bds.change_log ({columns})
            select company, base + row_number() over ({order}), {record}
            from {joined}
            where r.company_id = company;{check_keys}{allow_nestloop}
        end if;
        if turn.interleaved then
            {put_in_order}
        end if;{end}
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from {rows} r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$
    $body$;
comment on function bds_change_log.log_template() is
    'The template of the statement trigger''s function; bds_change_log.make_log_function fills its holes';

-- For an update of data.units, a table of one column, {record} and {joined} become
--
--     'units', r.id, 'update', at, pg_current_xact_id(), actor, db_user, change_set, o.updated_at,
--     case when turn.touched is not null then array[turn.touched] end,
--     hash_record_extended(row(r.id, r.code, r.updated_at), 0),
--     json_object('code' : case when o.code is distinct from r.code then coalesce(to_json(o.code), 'null'::json) end
--         absent on null returning json)::jsonb
--
--     new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id
create function bds_change_log.make_log_function(this bds.entities, operation text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    is_update boolean := operation = 'update';
    -- the rows that the statement has written or, for a delete, removed
    rows_of   text := case operation when 'delete' then 'old_rows' else 'new_rows' end;
begin
    perform bds_registry.run(bds_impl.fill(
        bds_change_log.log_template(),
        'function', bds_registry.function_of(this.name, operation),
        'check', bds_registry.function_of(this.name, 'check'),
        'entity', this.name,
        'rows', rows_of,
        'stamps', case operation when 'delete' then 'null, null' else 'oldest, newest' end,
        'announces', case when this.parent_navigation is null then 'null' else format('jsonb_build_object(depth + 1, %L)', this.collection) end,
        'settle', case when is_update then bds_change_log.confirm_statement() || bds_change_log.settle_statement(this) else '' end,
        'columns', 'company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id, '
            'last_updated_at, collections, row_hash, old',
        'record', bds_impl.fill(
            E'{entity:L}, r.id, {operation:L}, at, pg_current_xact_id(), actor, db_user, change_set, {last_update},\n'
            '            {collections}, {hash},\n            {old}',
            'entity', this.name,
            'operation', case operation when 'insert' then 'create' else operation end,
            'last_update', case when is_update then 'o.updated_at' else 'null' end,
            'collections', case when is_update then 'case when turn.touched is not null then array[turn.touched] end' else 'null' end,
            'hash', case operation when 'delete' then 'null' else bds_change_log.row_hash(this) end,
            'old', bds_change_log.old_value(this, operation)
        ),
        'row', case
            -- a condition without a join's machinery
            when is_update then 'new_rows r join old_rows o on (o.company_id, o.id) is not distinct from (r.company_id, r.id)'
            else rows_of || ' r'
        end,
        'joined', case
            when is_update then 'new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id'
            else rows_of || ' r'
        end,
        'order', case when is_update then 'order by r.id' else '' end,  -- other rows come in the order of the statement
        -- A plan made for one row is reused for a million, and to the planner both transition tables look alike: a nested loop
        -- between them would be quadratic.
        'avoid_nestloop', case when is_update then E'perform set_config(''enable_nestloop'', ''off'', true);\n            ' else '' end,
        'allow_nestloop', case when is_update then E'\n            perform set_config(''enable_nestloop'', ''on'', true);' else '' end,
        'check_keys', case when is_update then bds_change_log.check_statement() else '' end,
        'put_in_order', bds_change_log.order_statement(this, operation),
        'end', case when this.parent_navigation is null then '' else bds_change_log.touch_statement(this, operation) end
    ));
    perform bds_registry.run(format('revoke all on function bds_log.%I() from public', bds_registry.function_of(this.name, operation)));
    perform bds_registry.run(format('alter function bds_log.%I() owner to bds_owner', bds_registry.function_of(this.name, operation)));
end
$$;
comment on function bds_change_log.make_log_function(bds.entities, text) is
    'Creates the statement trigger''s function that logs inserts, updates or deletes of an entity';

create function bds_change_log.row_hash(this bds.entities)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select format('hash_record_extended(row(%s), 0)', string_agg(format('r.%I', f.column_name), ', ' order by f.ordinal))
        from bds.fields f
        where f.entity = this.name
    );
comment on function bds_change_log.row_hash(bds.entities) is 'The expression of a row r that is logged as row_hash';

create function bds_change_log.old_value(this bds.entities, operation text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return case operation
        when 'insert' then 'null'
        -- null for a column that was null, no member for an unchanged column; a table may have no columns of its own
        when 'update' then coalesce(
            (
                select E'json_object(\n                ' || string_agg(
                    format(
                        $sql$%L : case when o.%2$I is distinct from r.%2$I then coalesce(to_json(o.%2$I), 'null'::json) end$sql$,
                        f.name, f.column_name
                    ),
                    E',\n                ' order by f.ordinal
                ) || E'\n                absent on null returning json\n            )::jsonb'
                from bds.fields f
                where f.entity = this.name and f.name not in ('id', 'updatedAt')
            ),
            $sql$'{}'::jsonb$sql$
        )
        when 'delete' then (
            select E'json_object(\n                ' || string_agg(
                format('%L : r.%I', f.name, f.column_name), E',\n                ' order by f.ordinal
            ) || E'\n                returning jsonb\n            )'
            from bds.fields f
            where f.entity = this.name
        )
    end;
comment on function bds_change_log.old_value(bds.entities, text) is
    'The expression of old rows o and new rows r that is logged as old';

create function bds_change_log.confirm_statement()
    returns text
    language sql
    immutable
    return $sql$
        if coalesce(depth || ':' || turn.touched, '') <> (case when starts_with(claims, depth || ':') then claims else '' end) then
            raise exception using
                errcode = 'BD004', message = 'bds.touching was set, which only the change log sets', hint = 'reset bds.touching';
        end if;$sql$;
comment on function bds_change_log.confirm_statement() is
    'The statements of an update''s log trigger that refuse a session''s claim to touch parents: rows without a change have passed '
    'bds_2_stamp on it';

create function bds_change_log.settle_statement(this bds.entities)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    -- Triggers of others may have logged changes of these rows since the first was stamped; those keep their records.
    -- Planned with the transition tables as they are.
    select bds_impl.fill(
        $sql$
        if turn.settles then
            perform set_config('enable_nestloop', 'off', true);
            execute $statement$
                update bds.change_log l
                set row_hash = s.hash, old = case when l.operation = 'update' then s.old || l.old end
                from (select r.id, {hash} as hash, {old} as old from new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id) s
                join (
                    select w.row_id, max(w.id) as id
                    from bds.change_log w
                    where w.company_id = $1 and w.id between $2 and $3 and w.created_at > transaction_timestamp() - interval '1 day'
                        and w.created_at <= $4 and w.entity = {entity:L}
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
                    message = format('%s of %s rows of %s have no change record of this transaction', changes - logged, changes, {entity:L});
            end if;
            return null;
        end if;$sql$,
        'entity', this.name, 'hash', bds_change_log.row_hash(this), 'old', bds_change_log.old_value(this, 'update')
    );
$$;
comment on function bds_change_log.settle_statement(bds.entities) is
    'The statements of the update trigger''s function that, where the clock tells so (bds_change_log.settle), add what an update does to the '
    'change records that this transaction has already written of its rows: one record then says what the transaction did to a row';

create function bds_change_log.settle(company text, settles boolean)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.clocks c set settles = case when settle.settles then pg_trigger_depth() + 1 end
    where c.company_id = company and c.transaction_id = pg_current_xact_id();
$$;
comment on function bds_change_log.settle(text, boolean) is
    'From now on, updates at the caller''s depth of triggers complete the records that this transaction has written of their rows, or no '
    'longer do';

create function bds_change_log.parent_keys(key_column name, operation text)
    returns text
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    -- a child that was moved changes its old parent, too
    return (
        select string_agg(format('select distinct t.%I from %s t where t.company_id = company', key_column, t), ' union ')
        from unnest(case operation
            when 'insert' then array['new_rows'] when 'delete' then array['old_rows'] else array['new_rows', 'old_rows']
        end) t
    );
comment on function bds_change_log.parent_keys(name, text) is 'SQL for the parents that a statement''s new or old rows name in a column';

create function bds_change_log.touch_statement(child bds.entities, operation text)
    returns text
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent     bds.entities;
    key_column name;
begin
    select e.* into strict parent
    from bds.navigations n join bds.entities e on e.name = n.target
    where n.entity = child.name and n.name = child.parent_navigation;
    if not exists (select from pg_class c where c.oid = parent.table_name) then
        perform bds_change_log.refuse_altered(parent);
    end if;
    select f.column_name into strict key_column
    from bds.fields f
    where f.entity = child.name and f.reference = child.parent_navigation;
    return bds_impl.fill(
        $sql$

        if to_regclass({table:L}) is null then
            perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = {parent:L};
        end if;
        -- A parent changes with its children.  The company is locked: a parent stamped before the floor has no record of this
        -- transaction. For an array the planner expects ten elements: it probes the key for each, where `= any` would search the
        -- array for each parent.
        parents := array({keys});
        select
            array_agg(p.id) filter (where p.updated_at < turn.floor),
            array_agg(p.id) filter (where p.updated_at >= turn.floor)
        into parents, stamped
        from unnest(parents) k (id) join {table} p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, {parent:L}, {collection:L}, stamped);
        end if;
        logged := 0;
        if parents is not null then
            perform set_config('bds.touching', depth + 1 || ':' || {collection:L}, true);
            -- bds_2_stamp sets the time; with the old one, a trigger that skips updates without a change would skip this one
            update {table} p set updated_at = clock_timestamp() from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            get diagnostics logged = row_count;
            if logged <> cardinality(parents) then
                raise exception using
                    errcode = 'triggered_data_change_violation',
                    message = format('a trigger of %s skips the update that records the change of %L', {table:L}, {collection:L});
            end if;
            perform set_config('bds.touching', coalesce(claims, ''), true);
        end if;
        if logged = 0 then
            perform bds_change_log.withdraw(company);
        end if;$sql$,
        'parent', parent.name,
        'collection', child.collection,
        'table', parent.table_name::text,
        'keys', bds_change_log.parent_keys(key_column, operation)
    );
end
$$;
comment on function bds_change_log.touch_statement(bds.entities, text) is
    'The statements of a child''s log trigger that change the parents of its rows';
