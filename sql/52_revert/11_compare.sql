-- Undoing: the rows of revert_rows as records of an import, the rows that stay because others refer to them, and their delete.

create function bds_revert.compare(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this   record;
    errors bigint;
begin
    perform set_config('plan_cache_mode', 'force_custom_plan', true);
    for this in select f.name from pg_temp.feed_entities f order by f.rank loop
        perform bds_feed.show_progress(import, 'comparing', this.name, 0);
        perform bds_change_log.require_unaltered(this.name);
        execute format('select bds_import.%I($1)', 'undo_' || this.name) using import;
        perform bds_feed.show_progress(import, 'comparing', this.name, 3);
    end loop;
    perform bds_feed.filled(import, 'feed_gone');
    loop  -- a row that stays may refer to others, which then stay
        errors := (select count(*) from pg_temp.feed_errors);
        while bds_feed.find_used(import) loop
            insert into pg_temp.feed_errors (entity, ordinal, code, message)
            select g.entity, g.ticket, g.code, g.message from pg_temp.feed_gone g where g.code is not null;
            for this in select distinct g.entity as name from pg_temp.feed_gone g where g.code is not null loop
                execute format('select bds_import.%I()', 'leave_' || this.name);
            end loop;
        end loop;
        for this in select f.name from pg_temp.feed_entities f order by f.rank loop
            execute format('select bds_import.%I($1)', 'check_undo_' || this.name) using import.company_id;
        end loop;
        exit when errors = (select count(*) from pg_temp.feed_errors);
    end loop;
    for this in select f.name from pg_temp.feed_entities f loop
        execute format('select bds_import.%I()', 'count_' || this.name);
    end loop;
end
$$;
comment on function bds_revert.compare(bds.imports) is
    'Compares the rows of revert_rows with what is stored; fails those that were changed later, and those to which rows refer that '
    'stay';

-- The service has no rights on tables of the owner that are not registered.  Their foreign keys refuse a delete, or change or
-- delete rows with it; the statistics of the transaction show such rows (bds_revert.delete_guarded).

create function bds_revert.note_referrers()
    returns void
    language plpgsql
as $$
begin
    insert into pg_temp.revert_referrers (entity, table_name, rule)
    with recursive reached (entity, table_name) as (  -- the tables from which a delete removes rows, by foreign keys
        select e.name, e.table_name from bds_feed.entities e join pg_temp.feed_entities f on f.name = e.name
        union
        select r.entity, u.table_name
        from reached r
        join pg_constraint k on k.contype = 'f' and k.confrelid = r.table_name and k.confdeltype = 'c' and k.conparentid = 0
        join bds.entities u on u.table_name = k.conrelid
    )
    select distinct e.entity, p.relid, k.conname
    from reached e
    join pg_constraint k on k.contype = 'f' and k.confrelid = e.table_name and k.confdeltype in ('c', 'n', 'd')
        and k.conparentid = 0
    cross join lateral (select k.conrelid::regclass union select t.relid from pg_partition_tree(k.conrelid) t) p (relid)
    where not exists (select from bds.entities u where u.table_name = k.conrelid);
    if found and not current_setting('track_counts')::boolean then
        raise exception using
            errcode = 'BD004',
            message = 'track_counts is off, so an undo cannot tell whether deletes change rows of tables that are not registered',
            hint = 'set track_counts = on';
    end if;
end
$$;
comment on function bds_revert.note_referrers() is
    'Fills revert_referrers; BD004 if the database does not count what a transaction does to tables';

create function bds_revert.losses()
    returns jsonb
    language plpgsql
as $$
begin
    return (
        select jsonb_object_agg(
            r.table_name::oid, pg_stat_get_xact_tuples_updated(r.table_name) + pg_stat_get_xact_tuples_deleted(r.table_name)
        )
        from pg_temp.revert_referrers r
    );
end
$$;
comment on function bds_revert.losses() is
    'The rows of the tables of revert_referrers that this transaction has changed or deleted: {oid: number}, null without tables';

create function bds_revert.delete_guarded(company text, first bigint, last bigint, statement text)
    returns void
    language plpgsql
as $$
declare
    before jsonb := bds_revert.losses();
    rule   name;
begin
    execute statement using company, first, last;
    select min(e.rule) into rule
    from pg_temp.revert_referrers e
    join jsonb_each(bds_revert.losses()) l on l.key = e.table_name::oid::text
    where l.value <> before -> l.key
        -- a trigger of the owner may have written to tables that refer to other rows
        and (first = 0 or first <> last or e.entity in (select g.entity from pg_temp.feed_gone g where g.n = first));
    if rule is not null then
        raise exception using
            errcode = 'foreign_key_violation', message = 'rows of a table that is not registered change or go along',
            constraint = rule, detail = 'guard';
    end if;
end
$$;
comment on function bds_revert.delete_guarded(text, bigint, bigint, text) is
    'Deletes rows with the statement of bds_feed.delete_statement; raises 23503 if the delete changes or deletes rows of tables '
    'that are not registered';
