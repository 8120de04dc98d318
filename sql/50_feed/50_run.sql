-- The run of an import: everything is compared, family by family, those first on which others depend; then everything is written.

create function bds_feed.begin_run(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    staged record;
begin
    -- A row that is looked up costs four microseconds, one of an index or table that is read whole a third of one.  The defaults, made
    -- for disks, tell the planner a ratio of a hundred and more; these tell it seventeen.
    perform set_config('seq_page_cost', '0.1', true), set_config('random_page_cost', '0.1', true), set_config('cpu_operator_cost', '0.001', true);
    if import.is_small then
        return;  -- its tables are open
    end if;
    perform set_config('work_mem', case
        when pg_size_bytes(current_setting('work_mem')) < 96 << 20 then '96MB' else current_setting('work_mem') end, true);
    perform bds_feed.open_tables(import, bds_feed.staged_entities(import));
    for staged in select f.name, bds_feed.staging_table(import.number, f.name) as stage from pg_temp.feed_entities f loop
        execute 'analyze ' || staged.stage;
        update pg_temp.feed_entities f set rows = c.reltuples  -- an estimate until it is looked at
        from pg_class c where c.oid = staged.stage::regclass and f.name = staged.name;
    end loop;
end
$$;
comment on function bds_feed.begin_run(bds.imports) is 'Sets the planner for an import, until the end of the transaction, and notes what is staged';

create function bds_feed.plan(import bds.imports, is_comparison boolean)
    returns text
    language sql
as $$
    -- A small import has few rows and its plans ready.  A large one is compared by the statistics of what it has staged and for the
    -- columns that it gives; while it writes, the checks of foreign keys must not be planned anew for each row.
    select set_config('plan_cache_mode', case
        when import.is_small then 'force_generic_plan'
        when is_comparison then 'force_custom_plan'
        else 'auto'
    end, true);
$$;
comment on function bds_feed.plan(bds.imports, boolean) is 'Sets which plans the comparison, or the writing, of an import uses';

create function bds_feed.compare(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    members     text[];  -- of a family, in the order of writing
    entity_name text;
begin
    perform bds_feed.plan(import, true);
    for members in
        select array_agg(f.name order by f.place) from pg_temp.feed_entities f group by f.family order by f.family
    loop
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1, $2)', 'name_' || entity_name) using import, members;
        end loop;
        foreach entity_name in array members loop
            -- what a record that is refused says of itself is not a name for others
            if exists (select from pg_temp.feed_errors e where e.entity = entity_name) then
                execute format('select bds_import.%I()', 'mark_' || entity_name);
            end if;
        end loop;
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1, $2)', 'compare_' || entity_name) using import, members;
        end loop;
        if exists (select from pg_temp.feed_errors e where e.entity = any (members)) then
            perform bds_feed.mark_failed(import, members);
        end if;
        foreach entity_name in array members loop
            execute format('select bds_import.%I()', 'count_' || entity_name);
        end loop;
    end loop;
end
$$;
comment on function bds_feed.compare(bds.imports) is
    'Compares all that was staged with what is stored, family by family: first the records that can be named, then all';

create function bds_feed.show_progress(import bds.imports, phase text, entity_name text, steps int default 3)
    returns void
    language plpgsql
as $$
declare
    progress record;
begin
    if import.is_small then
        return;
    end if;
    -- A record is compared, which is half of it, in three steps: the first is done for the whole family before the others.
    select coalesce(sum(f.rows), 0) as total,
        coalesce(sum(f.rows * case
            when phase not in ('comparing', 'writing') then 1.0
            when phase = 'writing' then case when f.place < this.place then 1.0 else 0.5 end
            when f.family <> this.family then case when f.family < this.family then 0.5 else 0.0 end
            when f.place = this.place then steps / 6.0
            when f.place < this.place then case when steps < 2 then 1 else 3 end / 6.0
            else case when steps < 2 then 0 else 1 end / 6.0
        end), 0)::bigint as done
    into progress
    from pg_temp.feed_entities f cross join (select e.family, e.place from bds_feed.entities e where e.name = entity_name) this;
    raise notice '% %: % of % rows done', phase, entity_name, progress.done, greatest(progress.total, 1);
end
$$;
comment on function bds_feed.show_progress(bds.imports, text, text, int) is
    'Tells the program how many of a large import''s records are done, as a phase begins or ends a step with an entity';

create function bds_feed.apply(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this record;
begin
    perform bds_feed.plan(import, false);
    for this in
        select f.name, f.writes, array(select o.name from pg_temp.feed_entities o where o.name = any (e.waits)) as later
        from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name order by f.place
    loop
        perform bds_feed.show_progress(import, 'writing', this.name);
        perform bds_feed.write(import, this.name, this.writes, this.later);
    end loop;
    for this in  -- references that had to wait for the rows of others
        select f.name from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name
        where exists (select from pg_temp.feed_entities o where o.name = any (e.waits)) order by f.place
    loop
        execute format('update pg_temp.%I set "@new" = false where "@new"', 'diff_' || this.name);
        perform bds_feed.write_rows(import, this.name, '{}');
    end loop;
    for this in select f.name from pg_temp.feed_entities f where f.updates > 0 order by f.place loop
        perform bds_feed.mass_update(import, this.name);
    end loop;
    perform bds_feed.delete_rows(import);
end
$$;
comment on function bds_feed.apply(bds.imports) is
    'Writes what was compared, phase by phase; BDF01 has in its detail errors without which nothing can be written';

create function bds_feed.write(import bds.imports, entity_name text, writes bigint, later text[])
    returns void
    language plpgsql
as $$
declare
    written record := bds_feed.write_rows(import, entity_name, later);
begin
    if later <> '{}' then  -- what differs in a reference to a row that is written later alone is written in the second round
        execute format('select $1 as created, count(*) as updated from pg_temp.%I where not "@new"', 'diff_' || entity_name)
            into written using written.created;
    end if;
    if not import.is_small then
        perform bds_feed.analyze_grown(e.table_name, written.created) from bds.entities e where e.name = entity_name;
    end if;
    insert into pg_temp.feed_done (entity, created, updated, unchanged)
    values (entity_name, written.created, written.updated, writes - written.created - written.updated);
end
$$;
comment on function bds_feed.write(bds.imports, text, bigint, text[]) is
    'Writes the rows of an entity that are new or differ, without references to new rows of later ones';

create function bds_feed.write_rows(import bds.imports, entity_name text, later text[], out created bigint, out updated bigint)
    language plpgsql
as $$
declare
    ordinals bigint[];
    problems jsonb[];
begin
    execute format('select * from bds_import.%I($1, 0, $2, $3)', 'write_' || entity_name)
        into created, updated using import.company_id, 9223372036854775807, later;
exception when others then
    if not bds_feed.is_fault_of_rows(sqlstate) then
        raise;
    end if;
    execute format('select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d', 'diff_' || entity_name) into ordinals;
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'ranges_' || entity_name, 'diff_' || entity_name);
    problems := bds_feed.write_in_ranges(
        array[format('select bds_import.%I($1, $2, $3, %L)', 'write_' || entity_name, later)], import.company_id, ordinals);
    if problems = '{}' then  -- it refuses none of them alone
        raise;
    end if;
    raise exception using errcode = 'BDF01', message = 'the database refuses records', detail = (
        select jsonb_agg(jsonb_build_object('entity', entity_name, 'ordinal', p -> 'key') || bds_feed.refusal(p, false))
        from unnest(problems) as p);
end
$$;
comment on function bds_feed.write_rows(bds.imports, text, text[]) is
    'Writes the rows of an entity; BDF01 has in its detail errors of the records that the database refuses, which are found in ranges';

create function bds_feed.analyze_grown(table_name regclass, added bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- Of a table that was empty when it was analyzed the planner expects one row: any index would do for the foreign keys of the rows
    -- that are written next.
    if added > (select greatest(c.reltuples, 1000) from pg_class c where c.oid = table_name) then
        execute 'analyze (skip_locked) ' || table_name;
    end if;
end
$$;
comment on function bds_feed.analyze_grown(regclass, bigint) is
    'Refreshes the statistics of a table to which so many rows were added, if it is more than it had';

create function bds_feed.result(import bds.imports, out counts jsonb, out outcome text)
    language plpgsql
    stable
as $$
declare
    failed  bigint;
    deleted bigint;
begin
    select jsonb_object_agg(c.entity, to_jsonb(c) - 'entity'), sum(c.failed), sum(c.deleted) into counts, failed, deleted
    from (
        select d.entity, coalesce(sum(d.created), 0) as created, coalesce(sum(d.updated), 0) as updated,
            coalesce(sum(d.deleted), 0) as deleted, coalesce(sum(d.unchanged), 0) as unchanged, coalesce(sum(d.failed), 0) as failed
        from (
            select o.*, 0 as failed from pg_temp.feed_done o
            union all
            select f.name, 0, 0, 0, 0, f.failed from pg_temp.feed_entities f
            union all
            select e.entity, 0, 0, 0, 0, 1 from pg_temp.feed_errors e where e.ordinal is null  -- a row that could not be removed
        ) d
        group by d.entity
    ) c;
    outcome := case
        when coalesce(failed, 0) = 0 then 'completed'
        when import.atomic = 'true' then 'failed'
        when deleted = 0 and (select sum(f.failed) > 0 and sum(f.failed) = sum(f.rows) from pg_temp.feed_entities f) then 'failed'
        else 'partial'
    end;
end
$$;
comment on function bds_feed.result(bds.imports) is
    'What an import has done, {entity: {created, updated, deleted, unchanged, failed}}, and the state in which it ends';

create function bds_feed.analyze_changed(counts jsonb)
    returns void
    language plpgsql
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
