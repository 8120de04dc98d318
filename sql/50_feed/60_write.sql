-- Imports, the writing: what differs goes into the tables by MERGE.

create function bds_feed.import_write(company text, import_id uuid, entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    later  jsonb := bds_feed.put_off(entity_name);
    counts jsonb := bds_feed.merge_diff(company, entity_name, later);
    differ bigint;
begin
    if later <> '{}' then  -- what differs in a reference that is put off alone is written in the second round
        execute format('select count(*) from pg_temp.%I where not "@new"', 'diff_' || entity_name) into differ;
        counts := counts || jsonb_build_object('updated', differ);
    end if;
    return counts || jsonb_build_object(
        'unchanged', bds_feed.counted(entity_name, 'writes') - (counts ->> 'created')::bigint - (counts ->> 'updated')::bigint
    );
end
$$;
comment on function bds_feed.import_write(text, uuid, text) is 'Writes the rows of an entity that are new or differ; returns {created, updated, unchanged}';

create function bds_feed.put_off(entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set client_min_messages = warning  -- an index may be there already
as $$
declare
    later  jsonb;
    target text;
begin
    execute $sql$
        select coalesce(jsonb_object_agg(c.column_name, c.target), '{}')
        from bds.import_columns c
        join pg_temp.family_ o on o.name = c.entity
        join pg_temp.family_ t on t.name = c.target and t.place > o.place
        where c.entity = $1 and not c.required
    $sql$ into later using entity_name;
    for target in select distinct t.value from jsonb_each_text(later) t loop  -- every row that is written looks there
        execute format('create index if not exists %I on pg_temp.%I (target)', 'by_target_' || target, 'map_' || target);
    end loop;
    return later;
end
$$;
comment on function bds_feed.put_off(text) is
    'References to rows that are written later, {column: entity}: null in new rows at first, so that the other can be written; then written again';

create function bds_feed.merge_diff(company text, entity_name text, put_off jsonb default '{}')
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
    set enable_hashjoin = on
    set enable_mergejoin = off
    set enable_material = on
as $$
declare
    counts jsonb;
    differ bigint;
    by_key boolean;
begin
    execute format('select count(*) from pg_temp.%I', 'diff_' || entity_name) into differ;
    by_key := bds_feed.finds_few(differ, (select e.table_name from bds.entities e where e.name = entity_name), company);
    if by_key then
        perform bds_feed.plan_for_ranges();
    end if;
    execute bds_feed.merge_statement(entity_name, format('pg_temp.%I', 'diff_' || entity_name), put_off, by_key) into counts using company;
    return counts;
end
$$;
comment on function bds_feed.merge_diff(text, text, jsonb) is
    'Writes rows as diff_<entity> has them, without the references to new rows that are put off; returns {created, updated}';

create function bds_feed.merge_statement(entity_name text, source text, put_off jsonb, by_key boolean)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    this       bds.entities;
    updates    text;
    columns    text;
    new_values text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    select
        string_agg(format('%I = %s', c.column_name, v.value), ', ' order by c.ordinal),
        string_agg(format('%I', c.column_name), ', ' order by c.ordinal),
        string_agg(v.value, ', ' order by c.ordinal)
    into updates, columns, new_values
    from bds.import_columns c
    cross join lateral (select case
        when put_off ? c.column_name then format(
            '(select nullif(d.%1$I, m.target) from (select d.%1$I) o left join pg_temp.%2$I m on m.target = d.%1$I and m.is_new)',
            c.column_name, 'map_' || (put_off ->> c.column_name))
        else format('d.%I', c.column_name)
    end) as v (value)
    where c.entity = entity_name;

    return format(
        $sql$
        with merged as (
            merge into %1$s t
            using %2$s d on t.company_id = %6$s and t.id = d.id
            when matched then
                update set %3$s
            when not matched then
                insert (company_id, id, %4$s) values ($1, d.id, %5$s)
            returning merge_action() as action
        )
        select jsonb_build_object('created', count(*) filter (where action = 'INSERT'), 'updated', count(*) filter (where action = 'UPDATE'))
        from merged
        $sql$,
        this.table_name, source, updates, columns, new_values, case when by_key then '(select $1)' else '$1' end
    );
end
$$;
comment on function bds_feed.merge_statement(text, text, jsonb, boolean) is
    'The statement that writes rows of a source of differences, each looked up by its key or all at once; $1 is the company';
