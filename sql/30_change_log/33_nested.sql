-- What triggers that others have added do to a statement that is logged: a trigger before it may change keys of its rows, which is
-- refused; a trigger after it may write the same rows again.
--
-- PostgreSQL fires triggers of rows, and triggers of statements by name, before the log's triggers: what they write, in nested
-- statements, is logged before the statement that fired them.  If a nested statement has written a row of the outer one, the records of
-- the outer one take the earlier ids.
--
-- The setting bds.nested has, for each statement under way whose triggers have logged something, the last id of the company before
-- that, by the depth of triggers at which the statement is logged: {"1": {"acme": 17}}.
--
-- An example: a trigger `after insert on data.orders for each row` inserts an item of the new order, after change 17.
--
--     step                                              change               settings afterwards
--     insert into data.orders: bds_1_lock                                    bds.turns ,acme@,  bds.clock (0,2)
--       trigger: insert into data.order_items
--         bds_log_insert of order_items, depth 2        18, item created     bds.nested {"1": {"acme": 17}}
--           updates the parent: an order without record                      bds.touching 3:items
--             bds_log_update of orders, depth 3         19, order updated    bds.nested {"1": {"acme": 17}, "2": {"acme": 18}}
--       bds_log_insert of orders, depth 1               20, order created    the same
--         put_in_order: 19 is of an order of this statement, so 20 becomes 18, 18 becomes 19, and 19 becomes 20

create function bds_change_log.check_statement()
    returns text
    language sql
    immutable
    return $sql$
        get diagnostics logged = row_count;
        if logged <> changes then
            raise exception using
                errcode = 'BD004',
                message = 'the company_id and the id of a row cannot be changed',
                hint = 'a trigger that fires after bds_2_stamp has changed them';
        end if;$sql$;
comment on function bds_change_log.check_statement() is 'The statements of an update''s log trigger that refuse new keys';

create function bds_change_log.forget_nested()
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select set_config('bds.nested', case pg_trigger_depth()
        when 1 then '' else (current_setting('bds.nested')::jsonb - pg_trigger_depth()::text)::text
    end, true);
$$;
comment on function bds_change_log.forget_nested() is
    'Begins a statement: removes what bds.nested has of an earlier statement of this depth';

create function bds_change_log.order_statement(this bds.entities)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select bds_impl.fill(
        $sql$
        if depth > 1 and touching is null or current_setting('bds.nested', true) <> '' then
            perform bds_change_log.put_in_order(company, {entity:L}, base, changes, newest);
        end if;$sql$,
        'entity', this.name
    );
$$;
comment on function bds_change_log.order_statement(bds.entities) is
    'The statements of a log trigger that put the records of its statement before those of nested statements';

create function bds_change_log.put_in_order(company text, entity_name text, base bigint, changes bigint, newest timestamptz)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    nested jsonb := coalesce(nullif(current_setting('bds.nested', true), ''), '{}');
    own    text[] := array[pg_trigger_depth()::text, company];
    split  bigint;
begin
    -- for each outer statement, unless an earlier nested one has noted it
    select coalesce(nested || jsonb_object_agg(d.depth, coalesce(nested -> d.depth, '{}') || jsonb_build_object(company, base)), nested)
    into nested
    from (select n::text as depth from generate_series(1, pg_trigger_depth() - 1) n) d
    where nested #> array[d.depth, company] is null;
    perform set_config('bds.nested', nested::text, true);
    if nested #> own is not null then
        split := bds_change_log.first_nested(company, entity_name, (nested #>> own)::bigint + 1, base, changes, newest);
        perform bds_change_log.put_before(company, split, base, changes) where split is not null;
    end if;
end
$$;
comment on function bds_change_log.put_in_order(text, text, bigint, bigint, timestamptz) is
    'For a statement whose records are those after base: if it is nested, notes in bds.nested that it has logged; if nested statements '
    'have written its rows, puts its records before theirs';

create function bds_change_log.first_nested(
    company text, entity_name text, first bigint, base bigint, changes bigint, newest timestamptz
)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    split bigint;
begin
    execute bds_impl.fill(
        $sql$
        with nested as (
            select l.id, l.row_id, l.operation, lag(l.id) over w is null as is_first, lead(l.operation) over w as next
            from bds.change_log l
            where l.company_id = $1 and l.entity = $2 and l.id between $3 and $4 and l.created_at > transaction_timestamp() - interval '1 day'
            window w as (partition by l.row_id order by l.id)
        ),
        found as (
            -- a trigger before an insert may have deleted another row with its id
            select n.id, o.operation = 'create' and n.operation = 'delete' and n.is_first
                and coalesce(n.next <> 'create', exists (select 1 from {table} t where t.company_id = $1 and t.id = n.row_id)) as is_before
            from nested n
            join bds.change_log o on o.company_id = $1 and o.entity = $2 and o.row_id = n.row_id and o.id > $4 and o.id <= $4 + $5
                and o.created_at > transaction_timestamp() - interval '1 day'
        )
        select greatest(
            -- what triggers after the statement have logged, since its last row was stamped
            (
                select min(l.id) from bds.change_log l
                where l.company_id = $1 and l.id between $3 and $4 and l.created_at > transaction_timestamp() - interval '1 day'
                    and l.created_at >= coalesce($6, '-infinity')
            ),
            max(f.id) filter (where f.is_before) + 1
        )
        from found f
        having count(*) filter (where not f.is_before) > 0
        $sql$,
        'table', (select e.table_name::text from bds.entities e where e.name = entity_name)
    ) into split using company, entity_name, first, base, changes, newest;
    return split;
end
$$;
comment on function bds_change_log.first_nested(text, text, bigint, bigint, bigint, timestamptz) is
    'The first of the records of nested statements (ids from first to base) that belongs after the records of the outer statement (the '
    'changes after base, its last row stamped at newest); null if no nested statement has written a row of the outer one';

create function bds_change_log.put_before(company text, split bigint, base bigint, changes bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    -- added to ids, so that no two records have the same one meanwhile
    away constant bigint := 1::bigint << 62;
begin
    update bds.change_log l
    set id = away + case when l.id > base then l.id - (base + 1 - split) else l.id + changes end,
        created_at = (select m.created_at from bds.change_log m where m.company_id = put_before.company and m.id = base + changes)
    where l.company_id = company and l.id between split and base + changes and l.created_at > transaction_timestamp() - interval '1 day';
    update bds.change_log l
    set id = l.id - away
    where l.company_id = company and l.id > away and l.created_at > transaction_timestamp() - interval '1 day';
    update bds.clocks c
    set positions = c.positions || (
        select jsonb_object_agg(p.entity, p.id)
        from (
            select l.entity, max(l.id) as id from bds.change_log l
            where l.company_id = put_before.company and l.id between split and base + changes
            group by l.entity
        ) p
    )
    where c.company_id = company;
end
$$;
comment on function bds_change_log.put_before(text, bigint, bigint, bigint) is
    'Moves records: those after base get the ids from split on, and those from split to base the ids that follow; all get the time of '
    'the last one';
