-- The run of an import: everything is compared, family by family, those first on which others depend; then everything is written.

create function bds_feed.open_staged(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    staged record;
begin
    perform bds_feed.begin_tables(import);
    perform bds_feed.open_tables(import, bds_feed.staged_entities(import));
    for staged in select f.name, bds_feed.staging_table(import.number, f.name) as stage from pg_temp.feed_entities f loop
        perform bds_feed.sample(staged.stage);
        update pg_temp.feed_entities f
        set rows = c.reltuples,  -- an estimate until it is looked at
            -- null if it was altered
            version = case when obj_description(c.oid, 'pg_class') = bds_feed.model_of(f.name) then f.version end
        from pg_class c where c.oid = staged.stage::regclass and f.name = staged.name;
    end loop;
end
$$;
comment on function bds_feed.open_staged(bds.imports) is 'Opens what a large import has staged, with its statistics';

create function bds_feed.compare(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    members     text[];  -- of a family, in the order of writing
    entity_name text;
begin
    -- The plans of a small import are cached.  Those of a large one depend on the statistics and the columns of what it has staged.
    perform set_config(
        'plan_cache_mode', case when import.is_small then 'force_generic_plan' else 'force_custom_plan' end, true);
    -- an entity that was registered meanwhile may have changed the numbers of others
    update pg_temp.feed_entities f set rank = e.rank, family = e.family
    from bds_feed.entities e where e.name = f.name and (e.rank, e.family) is distinct from (f.rank, f.family);
    for members in
        select array_agg(f.name order by f.rank) from pg_temp.feed_entities f group by f.family order by f.family
    loop
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1, $2)', 'name_' || entity_name) using import, members;
        end loop;
        foreach entity_name in array members loop
            -- the unique values of a refused record name no row
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

create function bds_feed.show_progress(import bds.imports, phase text, entity_name text, sixths int default null)
    returns void
    language plpgsql
as $$
declare
    progress record;
begin
    if import.is_small then
        return;
    end if;
    update pg_temp.feed_entities f set sixths = coalesce(show_progress.sixths, f.sixths) where f.name = entity_name;
    select greatest(sum(f.rows), 1) as total, div(sum(f.rows * f.sixths), 6) as done into progress
    from pg_temp.feed_entities f;
    raise notice '% %: % of % rows done', phase, entity_name, progress.done, progress.total;
end
$$;
comment on function bds_feed.show_progress(bds.imports, text, text, int) is
    'Sends a notice with the number of records that are done of a large import, as a phase begins or ends a step with an entity; '
    'comparing is three sixths of the work, writing the others';

create function bds_feed.apply(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this           record;
    has_later      boolean := false;
    has_conditions boolean := false;
begin
    -- the checks of foreign keys must not be planned anew for each row
    perform set_config('plan_cache_mode', case when import.is_small then 'force_generic_plan' else 'auto' end, true);
    for this in
        -- in an undo they are written with other values that wait (bds_revert.make_way)
        select f.*, e.table_name, array(
            select o.name from pg_temp.feed_entities o where o.name = any (e.waits) and not bds_feed.is_undo(import)) as later
        from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name order by f.rank
    loop
        perform bds_feed.show_progress(import, 'writing', this.name);
        perform bds_feed.write(import, this.name, this.later);
        if not import.is_small then
            update pg_temp.feed_entities f set sixths = 6 where f.name = this.name;
            perform bds_feed.analyze_changed(this.table_name, this.created, this.updated);
        end if;
        has_later := has_later or this.later <> '{}';
        has_conditions := has_conditions or '@where' = any (this.columns);
    end loop;
    if has_later then
        for this in  -- references to rows that were written later
            select f.name from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name
            where exists (select from pg_temp.feed_entities o where o.name = any (e.waits)) order by f.rank
        loop
            execute format('select bds_import.%I()', 'resume_later_' || this.name);
            perform bds_feed.write(import, this.name, '{}');
        end loop;
    end if;
    if has_conditions then
        for this in
            select f.name, f.updates, f.updates + f.deletes >= 10 as are_many, e.table_name
            from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name
            where '@where' = any (f.columns) order by f.rank
        loop
            if this.are_many then  -- their plans need the present statistics
                execute 'analyze (skip_locked) ' || this.table_name;
            end if;
            if this.updates > 0 then
                perform bds_feed.mass_update(import, this.name);
            end if;
        end loop;
    end if;
    perform bds_feed.delete_rows(import);
    for this in select f.name from pg_temp.feed_entities f where f.deletes > 0 and not bds_feed.is_undo(import) loop
        execute format('select bds_import.%I()', 'count_missing_' || this.name);
    end loop;
end
$$;
comment on function bds_feed.apply(bds.imports) is
    'Writes what was compared, phase by phase; BDF01 has in its detail errors without which nothing can be written';

create function bds_feed.write(import bds.imports, entity_name text, later text[])
    returns void
    language plpgsql
as $$
declare
    ordinals bigint[];
    problems jsonb[];
    is_undo  boolean := bds_feed.is_undo(import);
begin
    execute format('select bds_import.%I($1, 0, $2, $3, $4)', 'write_' || entity_name)
        using import.company_id, 9223372036854775807, later, is_undo;
exception when others then
    if not bds_feed.is_fault_of_rows(import, sqlstate) then
        raise;
    end if;
    execute format(
        'select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d where d."@new" is not null', 'diff_' || entity_name
    ) into ordinals;
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'ranges_' || entity_name, 'diff_' || entity_name);
    problems := bds_feed.write_in_ranges(
        import, array[format('select bds_import.%I($1, $2, $3, %L, %L)', 'write_' || entity_name, later, is_undo)], ordinals);
    if problems = '{}' then  -- none of them is refused alone
        raise;
    end if;
    raise exception using errcode = 'BDF01', message = 'the database refuses records', detail = (
        select jsonb_agg(
            jsonb_build_object('entity', entity_name, 'ordinal', p -> 'key')
                || coalesce(p #> '{known,0}', bds_feed.refused_write(entity_name, p))
                || case when is_undo and p ->> 'state' = '23505' then '{"code": "conflict"}' else '{}' end::jsonb)
        from unnest(problems) as p);
end
$$;
comment on function bds_feed.write(bds.imports, text, text[]) is
    'Writes the rows of an entity that are new or differ, without references to new rows of later ones; BDF01 has in its '
    'detail errors of the records that the database refuses, which are found in ranges';

create function bds_feed.analyze_changed(table_name regclass, added bigint, updated bigint)
    returns void
    language plpgsql
as $$
begin
    -- The planner expects one row of a table that was empty when it was analyzed, and may then check foreign keys to it with a
    -- wrong index.  Autovacuum would come after the next readers.
    if added + updated > 10000
        or added > (select greatest(c.reltuples, 1000) from pg_class c where c.oid = table_name)
    then  -- another import may hold the lock until it commits
        execute 'analyze (skip_locked) ' || table_name;
    end if;
end
$$;
comment on function bds_feed.analyze_changed(regclass, bigint, bigint) is
    'Refreshes the statistics of a table of which many rows were written, or more were added than it had';

create function bds_feed.result(import bds.imports)
    returns bds.imports
    language plpgsql
    stable
as $$
declare
    deleted bigint;
begin
    select coalesce(jsonb_object_agg(f.name, jsonb_build_object(
            'created', f.created, 'updated', f.updated, 'deleted', f.deleted, 'unchanged', f.unchanged,
            'failed', f.failed + r.stay)), '{}'),
        coalesce(sum(f.deleted), 0)
    into import.entities, deleted
    from pg_temp.feed_entities f
    -- rows that stay
    cross join lateral (select count(*) as stay from pg_temp.feed_errors e where e.entity = f.name and e.ordinal is null) r;
    if (select coalesce(sum(f.tops), 0) < import.records from pg_temp.feed_entities f) then
        raise exception using
            errcode = 'BD003',
            message = 'not all records of the document are there to be imported; nothing was written: send it again';
    end if;
    import.state := case
        when not exists (select from pg_temp.feed_errors) then 'completed'
        when import.atomic = 'true' then 'failed'
        when deleted = 0 and (
            select (sum(f.failed) > 0 or bds_feed.is_undo(import)) and coalesce(sum(f.failed) = sum(f.rows), true)
            from pg_temp.feed_entities f
        ) then 'failed'
        else 'partial'
    end;
    return import;
end
$$;
comment on function bds_feed.result(bds.imports) is
    'What an import has done, {entity: {created, updated, deleted, unchanged, failed}}, and the state in which it ends';
