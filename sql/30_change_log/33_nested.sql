-- What triggers that others have added do to a statement that is logged: a trigger before it may change keys of its rows, which is
-- refused; a trigger after it, or a function that it calls, may write the same rows again.
--
-- PostgreSQL fires triggers of rows, and triggers of statements by name, before the log's triggers: what they write, in nested
-- statements, is logged before the statement that fired them.  If a nested statement has written a row of the outer one, the
-- records of the outer one take the earlier ids.  The rows themselves tell: then the table has another version of the row, or none,
-- and the first record of the row after the statement's own change names the version that this made, by its updated_at.
--
-- An example: a trigger `after insert on data.orders for each row` inserts an item of the new order, after change 17.
--
--     step                                                      change
--     insert into data.orders: the order, stamped 08:15:30.1
--       trigger: insert into data.order_items
--         bds_log_insert of order_items                         18, item created
--           updates the parent, an order without a record
--             bds_log_update of orders                          19, order updated, last_updated_at 08:15:30.1
--       bds_log_insert of orders                                20, order created, stamped 08:15:30.1
--         put_in_order: the order in the table is another       20 becomes 18, 18 becomes 19, and 19 becomes 20

create function bds_change_log.put_in_order(
    company text, entity_name text, operation text, row_ids bigint[], stamps timestamptz[], base bigint, changes bigint,
    newest timestamptz
)
    returns void
    language plpgsql
as $$
declare
    clock bds.clocks := (select c from bds.clocks c where c.company_id = company);
    split bigint;
begin
    with records as (
        select l.row_id, l.id, w.stamp, case l.operation
                when 'update' then l.last_updated_at
                when 'delete' then (l.old ->> 'updatedAt')::timestamptz
            end as replaced,
            l.operation, lag(l.operation) over (partition by l.row_id order by l.id) as previous
        from unnest(row_ids, stamps) as w (row_id, stamp)
        join bds.change_log l on l.row_id = w.row_id and l.company_id = put_in_order.company and l.entity = entity_name
            and l.id between clock.first_id and base and l.created_at > transaction_timestamp() - interval '1 day'
    ),
    firsts as (  -- of each row, the first record after the statement's own change
        select r.row_id, min(r.id) as id
        from records r
        where case put_in_order.operation
            -- where the deletion is missing: what creates the row follows what wrote it, or is the first record of an old row
            when 'delete' then r.operation = 'create' and coalesce(r.previous <> 'delete', r.stamp < clock.floor)
            else r.replaced = r.stamp
        end
        group by r.row_id
    )
    select greatest(
        least(
            min(f.id),
            -- what triggers after the statement have logged, since its last row was stamped
            (
                select min(l.id) from bds.change_log l
                where l.company_id = put_in_order.company and l.id between clock.first_id and base
                    and l.created_at > transaction_timestamp() - interval '1 day' and l.created_at >= newest
            )
        ),
        -- a trigger before an insert may have deleted another row with its id
        (select max(r.id) + 1 from records r join firsts f on f.row_id = r.row_id and r.id < f.id)
    )
    into split
    from firsts f
    having count(*) > 0;
    if split <= base then
        perform bds_change_log.put_before(company, split, base, changes);
    end if;
end
$$;
comment on function bds_change_log.put_in_order(text, text, text, bigint[], timestamptz[], bigint, bigint, timestamptz) is
    'For a statement whose records are those after base: row_ids are those of its rows that have changed since, stamps the '
    'updated_at that they had (of an insert or update: after it, of a delete: before it), newest is the last of its stamps, null '
    'for a delete. Puts its records before those of these changes';

create function bds_change_log.put_before(company text, split bigint, base bigint, changes bigint)
    returns void
    language plpgsql
as $$
declare
    -- added to ids, so that no two records have the same one meanwhile
    away constant bigint := 1::bigint << 62;
begin
    update bds.change_log l
    set id = away + case when l.id > base then l.id - (base + 1 - split) else l.id + changes end,
        created_at = (select m.created_at from bds.change_log m where m.company_id = put_before.company and m.id = base + changes)
    where l.company_id = company and l.id between split and base + changes
        and l.created_at > transaction_timestamp() - interval '1 day';
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
    'Moves records: those after base get the ids from split on, and those from split to base the ids that follow; all get the '
    'time of the last one';
