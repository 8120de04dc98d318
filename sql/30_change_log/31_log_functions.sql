-- Generates the functions that log the inserts, updates and deletes of an entity.  They spell out the columns, and are three times
-- as fast as one function that looks them up.  tests/golden has those of three entities.

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
        from {rows} r
        where bds_log.{check:I}();
    exception when undefined_column then  -- before the check is called, for a table without one of these columns
        perform bds_log.{check:I}();
        raise;
    end;
    is_single := changes = 1;
    while company is not null loop
        if changes is null or company <> last then
            select count(*), min(r.updated_at), max(r.updated_at) into changes, oldest, newest
            from {rows} r where r.company_id = company;
        end if;
        select * into turn from bds_change_log.advance(
            company, {entity:L}, changes, {if deletes}null, null, 0{else deletes}oldest, newest, case
                when date_trunc('month', oldest, 'UTC') = date_trunc('month', newest, 'UTC') then 0
                else (
                    select count(*) from {rows} r
                    where r.company_id = company and r.updated_at < date_trunc('month', newest, 'UTC')
                )
            end{end deletes},
            {if parent}jsonb_build_object(depth + 1, {collection:L}){else parent}null{end parent}
        );
        base := turn.base;
        at := turn.at;
        {if updates}
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
                    select r.id, {hash} as hash, {old} as old
                    from new_rows r join old_rows o on o.company_id = r.company_id and o.id = r.id
                ) s
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
                    message = format(
                        '%s of %s rows of %s have no change record of this transaction', changes - logged, changes, {entity:L}
                    );
            end if;
            return null;
        end if;
        {end updates}
        if is_single then
            -- the same as below, without numbering and the machinery of a join
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            select company, base + 1, {entity:L}, r.id, {operation:L},
                {if deletes}at{else deletes}case when turn.overtaken then at else r.updated_at end{end deletes},
                pg_current_xact_id(), actor, db_user, change_set,
                {if updates}
                o.updated_at, case when turn.touched is not null then array[turn.touched] end,
                {else updates}
                null, null,
                {end updates}
                {hash},
                {old}
            from {rows} r{if updates}
            join old_rows o on (o.company_id, o.id) is not distinct from (r.company_id, r.id){end updates};
        else
            {if updates}
            -- A plan made for one row is reused for a million, and to the planner both transition tables look alike: a nested loop
            -- between them would be quadratic.
            perform set_config('enable_nestloop', 'off', true);
            {end updates}
            insert into bds.change_log (
                company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id,
                last_updated_at, collections, row_hash, old
            )
            -- Rows of inserts and deletes come in the order of the statement.  A change has the time of its row, but if the
            -- machine's clock went back meanwhile.
            select company, base + row_number() over w, {entity:L}, r.id, {operation:L},
                {if deletes}at{else deletes}case when turn.overtaken then at else max(r.updated_at) over w end{end deletes},
                pg_current_xact_id(), actor, db_user, change_set,
                {if updates}o.updated_at,
                case when turn.touched is not null then array[turn.touched] end{else updates}null, null{end updates},
                {hash},
                {old}
            from {rows} r{if updates} join old_rows o on o.company_id = r.company_id and o.id = r.id{end updates}
            where r.company_id = company
            window w as ({if updates}order by r.updated_at, r.id {end updates}rows unbounded preceding);
        end if;
        {if updates}
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
        {end updates}
        if turn.interleaved then
            -- nested statements have written rows of this one
            if to_regclass({table:L}) = tg_relid then
                perform {in_order};
            else  -- the table was renamed
                execute format($statement$select {in_order_of_another}$statement$, tg_relid::regclass)
                using company, base, changes, newest;
            end if;
        end if;
        {if parent}
        if to_regclass({parent_table:L}) is null then
            perform bds_change_log.refuse_altered(e) from bds.entities e where e.name = {parent:L};
        end if;
        -- A parent changes with its children, an old one with a child that was moved.  The company is locked: a parent stamped
        -- before the floor has no record of this transaction.  For an array the planner expects ten elements: it probes the key for
        -- each, where `= any` would search the array for each parent.
        parents := array(
            select distinct t.{key:I} from {rows} t where t.company_id = company
            {if updates}
            union select t.{key:I} from old_rows t where t.company_id = company
            {end updates}
        );
        select
            array_agg(p.id) filter (where p.updated_at < turn.floor),
            array_agg(p.id) filter (where p.updated_at >= turn.floor)
        into parents, stamped
        from unnest(parents) k (id) join {parent_table} p on p.company_id = company and p.id = k.id;
        if stamped is not null then
            parents := parents || bds_change_log.name_collection(company, {parent:L}, {collection:L}, stamped);
        end if;
        logged := 0;
        if parents is not null then
            perform set_config('bds.touching', depth + 1 || ':' || {collection:L}, true);
            -- bds_2_stamp sets the time; with the old one, a trigger that skips updates without a change would skip this one
            update {parent_table} p set updated_at = clock_timestamp()
            from unnest(parents) k (id) where p.company_id = company and p.id = k.id;
            get diagnostics logged = row_count;
            if logged <> cardinality(parents) then
                raise exception using
                    errcode = 'triggered_data_change_violation',
                    message = format(
                        'a trigger of %s skips the update that records the change of %L', {parent_table:L}, {collection:L}
                    );
            end if;
            perform set_config('bds.touching', coalesce(claims, ''), true);
        end if;
        if logged = 0 then
            perform bds_change_log.withdraw(company);
        end if;
        {end parent}
        exit when company = last;
        changes := null;
        select min(r.company_id collate "C") into company from {rows} r where r.company_id collate "C" > company;
    end loop;
    return null;
end
$function$;
revoke all on function bds_log.{function:I}() from public;
alter function bds_log.{function:I}() owner to bds_owner;
    $body$;
comment on function bds_change_log.log_template() is
    'The template of the statement trigger''s function; bds_change_log.make_log_function fills it';

create function bds_change_log.in_order(
    this bds.entities, event text, of_table text, company text, base text, changes text, newest text
)
    returns text
    language sql
    immutable
as $$
    select bds_impl.fill(
        $sql$bds_change_log.put_in_order(
                    {company}, {entity:L}, {event:L}, array_agg(r.id), array_agg(r.updated_at), {base}, {changes}, {newest}
                )
                from {rows} r
                left join lateral (
                    -- For a company without statistics, or a table that has been filled since, the planner expects one row, for
                    -- which any index costs the same: only the key has this order without a sort.
                    select t.id, t.updated_at from {table} t
                    where t.company_id = {company} and t.id between r.id and r.id order by t.id limit 1
                ) t on true
                where r.company_id = {company}
                    and {is_other}
                having count(*) > 0$sql$,
        'company', company, 'entity', (this).name, 'event', event, 'base', base, 'changes', changes, 'newest', newest,
        'rows', case event when 'delete' then 'old_rows' else 'new_rows' end, 'table', of_table,
        'is_other', case event when 'delete' then 't.id is not null' else 't.updated_at is distinct from r.updated_at' end
    );
$$;
comment on function bds_change_log.in_order(bds.entities, text, text, text, text, text, text) is
    'The call of bds_change_log.put_in_order with the rows of a statement that have changed in the table since, without a verb; '
    'company, base, changes and newest are SQL expressions of its arguments';

create function bds_change_log.parent_scope(child bds.entities)
    returns jsonb
    language plpgsql
    stable
as $$
declare
    parent bds.entities;
begin
    select e.* into strict parent
    from bds.navigations n join bds.entities e on e.name = n.target
    where n.entity = child.name and n.name = child.parent_navigation;
    if not exists (select from pg_class c where c.oid = parent.table_name) then
        perform bds_change_log.refuse_altered(parent);
    end if;
    return jsonb_build_object(
        'parent', parent.name, 'parent_table', parent.table_name::text, 'collection', child.collection,
        'key', (select f.column_name from bds.fields f where f.entity = child.name and f.reference = child.parent_navigation)
    );
end
$$;
comment on function bds_change_log.parent_scope(bds.entities) is 'What templates may say of the parent of a child entity';

create function bds_change_log.make_log_function(this bds.entities, event text)
    returns void
    language plpgsql
as $$
begin
    perform bds_registry.run(bds_impl.expand(bds_change_log.log_template(), jsonb_build_object(
        'function', bds_registry.function_of(this.name, event),
        'check', bds_registry.function_of(this.name, 'check'),
        'entity', this.name,
        'table', this.table_name::text,
        'in_order', bds_change_log.in_order(this, event, this.table_name::text, 'company', 'base', 'changes', 'newest'),
        'in_order_of_another', bds_change_log.in_order(this, event, '%s', '$1', '$2', '$3', '$4'),
        -- the rows that the statement has written or, for a delete, removed
        'rows', case event when 'delete' then 'old_rows' else 'new_rows' end,
        'event', event,
        'operation', case event when 'insert' then 'create' else event end,
        'updates', event = 'update',
        'deletes', event = 'delete',
        'hash', case event when 'delete' then 'null' else bds_change_log.row_hash(this) end,
        'old', bds_change_log.old_value(this, event),
        'parent', null
    ) || case when this.parent_navigation is null then '{}' else bds_change_log.parent_scope(this) end));
end
$$;
comment on function bds_change_log.make_log_function(bds.entities, text) is
    'Creates the statement trigger''s function that logs inserts, updates or deletes of an entity';

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
    'From now on, updates at the caller''s depth of triggers complete the records that this transaction has written of their '
    'rows, or no longer do';
