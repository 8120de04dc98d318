-- Imports, the plans: what the planner cannot know of rows that this very transaction stages, and of one company among many.

create function bds_feed.plan_for(import_number bigint)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    -- A table that this very transaction fills has no statistics, and of many companies the planner expects one row: nested loops
    -- over all of both sides follow.  So a large feed hashes, whatever it seems to cost; a small one probes the indexes.
    begin atomic
        select set_config('enable_nestloop', case when f.is_large then 'off' else 'on' end, true),
            set_config('enable_mergejoin', case when f.is_large then 'off' else 'on' end, true),
            set_config('enable_hashjoin', 'on', true), set_config('enable_material', 'on', true),
            set_config('parallel_setup_cost', case when f.is_large then '100' else '1000' end, true),
            set_config('parallel_tuple_cost', case when f.is_large then '0.01' else '0.1' end, true),
            set_config('enable_parallel_hash', 'off', true),  -- of the memory that processes share there may be little
            set_config('work_mem', case
                when f.is_large and pg_size_bytes(current_setting('work_mem')) < 96 << 20 then '96MB' else current_setting('work_mem') end, true)
        from (select bds_feed.is_staged(import_number, 1000) offset 0) as f (is_large);
    end;
comment on function bds_feed.plan_for(bigint) is 'Sets the planner for the size of an import, until the end of the transaction';

create function bds_feed.plan_for_ranges()
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    -- of a company that the statistics do not know one row is expected, and then anything seems cheap: only looking each row up by its
    -- key takes no longer for few rows of many
    begin atomic
        select set_config('enable_nestloop', 'on', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('enable_material', 'off', true);
    end;
comment on function bds_feed.plan_for_ranges() is 'Sets the planner for statements that write a few rows of a source, until the end of the transaction or bds_feed.plan_for';

create function bds_feed.is_few(few bigint, many bigint)
    returns boolean
    language sql
    immutable
    return few <= 1000 or few * 10 <= many;
comment on function bds_feed.is_few(bigint, bigint) is 'Whether so few of so many rows are found sooner one by one, by an index, than by reading all';

create function bds_feed.about(stored_table regclass, company text)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    plan json;
begin
    execute format('explain (format json) select from %s where company_id = %L', stored_table, company) into plan;
    return plan -> 0 -> 'Plan' ->> 'Plan Rows';
end
$$;
comment on function bds_feed.about(regclass, text) is
    'About how many rows of a table are the company''s, as the planner knows it: very few of a company that its statistics do not know';

create function bds_feed.can_probe(type text)
    returns boolean
    language sql
    immutable
    return type is distinct from 'numeric';
comment on function bds_feed.can_probe(text) is
    'Whether row level security lets an index on a field of this type be probed; null is the id''s. The equality of numerics is not leakproof';

create function bds_feed.is_divisible(import_number bigint, entity_name text)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return pg_relation_size(to_regclass(bds_feed.staging_table(import_number, entity_name)))
        >= pg_size_bytes(current_setting('min_parallel_table_scan_size'));
comment on function bds_feed.is_divisible(bigint, text) is 'Whether so much is staged of an entity that several processes read it sooner than one';

create function bds_feed.is_indexed(stored_table regclass, column_name name)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return exists (
        select from pg_index i
        join pg_class x on x.oid = i.indexrelid
        join pg_am m on m.oid = x.relam and m.amname = 'btree'
        join pg_attribute a on a.attrelid = i.indrelid and a.attname = is_indexed.column_name
        left join pg_attribute c on c.attrelid = i.indrelid and c.attname = 'company_id'
        where i.indrelid = stored_table and i.indisvalid and i.indpred is null
            and (i.indkey[0] = a.attnum or (i.indkey[0] = c.attnum and i.indkey[1] = a.attnum))
    );
comment on function bds_feed.is_indexed(regclass, name) is 'Whether a company''s rows can be looked up by a column, be it unique or not';

create function bds_feed.finds_few(few bigint, stored_table regclass, company text, column_name name default 'id')
    returns boolean
    language sql
    set search_path = pg_catalog, pg_temp
    return bds_feed.is_few(few, bds_feed.about(stored_table, company)) and bds_feed.is_indexed(stored_table, column_name);
comment on function bds_feed.finds_few(bigint, regclass, text, name) is
    'Whether stored rows by so few values of a column are found sooner one by one, by an index, than by reading all of the company''s';

create function bds_feed.stored_join(stored_table regclass, alias text, column_name name, given text, is_few boolean)
    returns text
    language sql
    immutable
    -- The planner knows neither how few rows join nor how many the company has: it would read the whole table.  Of a company that its
    -- statistics do not know it expects one row, and every index seems as good as the right one; so it is not told which company it is.
    return case when is_few
        then format('left join lateral (select * from %1$s s where s.company_id = (select $1) and s.%3$I = %4$s offset 0) %2$I on true', stored_table, alias, column_name, given)
        else format('left join %1$s %2$I on %2$I.company_id = $1 and %2$I.%3$I = %4$s', stored_table, alias, column_name, given) end;
comment on function bds_feed.stored_join(regclass, text, name, text, boolean) is
    'SQL that joins stored rows by a column, by its index if there are few to be found; $1 is the company';

create function bds_feed.range_statement(table_name regclass, source text, action text)
    returns text
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    -- what is not matched is never inserted, but that it might be makes the source the outer side of the join: each row is looked up
    return format(
        'merge into %s t using %s d on t.company_id = (select $1) and t.id = d.id when matched then %s '
        'when not matched and false then insert (company_id, id) values ($1, d.id)',
        table_name, source, action);
comment on function bds_feed.range_statement(regclass, text, text) is
    'The statement that updates or deletes the rows of a source by their key, in time that depends on their number alone; $1 is the company';

create function bds_feed.know_company(entity_name text, conditions bigint)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this regclass := (select e.table_name from bds.entities e where e.name = entity_name);
begin
    if conditions < 10 then
        return false;
    end if;
    execute format('lock table %s in share update exclusive mode nowait', this);
    execute format('analyze %s', this);
    return true;
exception when lock_not_available then
    return false;  -- another import is at it, until it commits
end
$$;
comment on function bds_feed.know_company(text, bigint) is
    'Refreshes the statistics of a table for which there are many conditions; whether the planner may rely on them';

create function bds_feed.analyze_changed(counts jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    changed regclass;
begin
    for changed in
        select e.table_name from jsonb_each(counts) c join bds.entities e on e.name = c.key
        where (c.value ->> 'created')::bigint + (c.value ->> 'updated')::bigint > 10000
    loop
        execute 'analyze (skip_locked) ' || changed;  -- another import may be at it, and keeps the table until it commits
    end loop;
end
$$;
comment on function bds_feed.analyze_changed(jsonb) is 'Refreshes the statistics of tables that an import has filled: readers come before autovacuum does';
