-- Imports, the run: everything is compared before anything is written.  Written are upserts in the order of dependency, then mass
-- updates, then deletes against that order, then removals; all in one transaction, so that a crash leaves nothing.
--
-- What only the writing shows (a rule of a table that no check knows) undoes what was written, is found by halving, becomes an error
-- of the records that cause it, and everything is compared again without them.

create or replace function bds.import_run(company text, import_id uuid, atomic text default 'batch', remove_all text[] default '{}')
    returns json
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.find_import(company, import_id);
    counts   jsonb;
    outcome  text;
    problems jsonb;
begin
    if import.state = 'receiving' then
        perform bds.import_received(company, import_id, atomic, 0, bds.count_staged(import.number), remove_all);
    end if;
    loop
        perform bds.import_prepare(company, import_id);
        if not bds.import_may_write(company, import_id) then
            counts := bds.count_failed(import.number, '{}');
            outcome := 'failed';
            exit;
        end if;
        begin
            counts := bds.import_apply(company, import_id);
            outcome := bds.import_outcome(import.number);
            exit when not import.dry_run;
            problems := bds.late_errors(import.number);
            raise exception using errcode = 'BDF02', message = 'dry run';
        exception
            when sqlstate 'BDF02' then  -- what was written is undone, what was found out is kept
                perform bds.add_errors(import.number, problems);
                exit;
            when sqlstate 'BDF01' then
                get stacked diagnostics problems = pg_exception_detail;
            when others then
                problems := case when bds.is_fault_of_rows(sqlstate) then bds.find_culprits(company, import_id) end;
                if problems is null then
                    raise;
                end if;
        end;
        perform bds.add_errors(import.number, problems);
    end loop;
    return bds.import_finish(company, import_id, counts, outcome);
end
$$;
comment on function bds.import_run(text, uuid, text, text[]) is
    'Compares the staged rows with the stored ones, writes what differs, returns the report; rows of the entities in remove_all that the feed lacks go';

create or replace function bds.import_apply(company text, import_id uuid)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import      bds.imports := bds.find_import(company, import_id, 'running');
    ordered     text[] := bds.import_order(import.number);
    backwards   text[] := array(select o.name from unnest(ordered) with ordinality as o (name, n) order by o.n desc);
    entity_name text;
    counts      jsonb := '{}';
    done        bigint := 0;
    total       bigint := (select sum(bds.count_mapped(o.name)) from unnest(ordered) as o (name));
    problems    jsonb;
begin
    foreach entity_name in array ordered loop
        raise notice 'writing %: % of % rows done', entity_name, done, total;
        counts := bds.add_counts(counts, entity_name, bds.import_write(company, import_id, entity_name));
        done := done + bds.count_mapped(entity_name);
    end loop;
    foreach entity_name in array ordered loop
        counts := bds.add_counts(counts, entity_name, bds.import_mass_update(company, import_id, entity_name));
    end loop;
    foreach entity_name in array backwards loop
        counts := bds.import_delete(company, import_id, entity_name, counts);
    end loop;
    foreach entity_name in array backwards loop
        counts := bds.import_remove(company, import_id, entity_name, counts);
    end loop;
    foreach entity_name in array backwards loop
        continue when entity_name <> all (import.remove_all);
        counts := bds.import_remove_all(company, import_id, entity_name, counts);
    end loop;

    problems := bds.late_errors(import.number);
    if import.atomic = 'true' and problems is not null then
        raise exception using errcode = 'BDF01', message = 'all or nothing', detail = problems;
    end if;
    return bds.count_failed(import.number, counts);
end
$$;
comment on function bds.import_apply(text, uuid) is
    'Writes what was compared, phase by phase; returns {entity: {created, updated, deleted, unchanged, failed}}; BDF01 has in its detail '
    'errors without which nothing can be written';

create or replace function bds.add_counts(counts jsonb, entity_name text, more jsonb)
    returns jsonb
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
    return case when more is null then counts else counts || jsonb_build_object(entity_name, coalesce(counts -> entity_name, '{}') || (
        select coalesce(jsonb_object_agg(m.key, m.value::bigint + coalesce((counts -> entity_name ->> m.key)::bigint, 0)), '{}')
        from jsonb_each_text(more) m
    )) end;
comment on function bds.add_counts(jsonb, text, jsonb) is 'Adds {created: 1, ...} to the counts of an entity';

create or replace function bds.count_mapped(entity_name text)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    counted bigint;
begin
    execute format('select count(*) from pg_temp.%I', 'map_' || entity_name) into counted;
    return counted;
end
$$;
comment on function bds.count_mapped(text) is 'How many rows of an entity were compared';

create or replace function bds.has_phase(entity_name text, wanted int)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    is_there boolean;
begin
    execute format('select exists (select from pg_temp.%I where phase = $1 and not failed)', 'map_' || entity_name) into is_there using wanted;
    return is_there;
end
$$;
comment on function bds.has_phase(text, int) is 'Whether there is anything to do for an entity in a phase: 1 write, 2 update by condition, 3 delete';

create or replace function bds.count_failed(import_number bigint, counts jsonb)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    failed      bigint;
    kept        bigint;
begin
    foreach entity_name in array bds.import_order(import_number) loop
        execute format('select count(*) from pg_temp.%I where failed', 'map_' || entity_name) into failed;
        -- rows that could not be removed
        execute format('select count(*) from %s e where e.entity = $1 and e.ordinal is null', bds.staging_table(import_number, 'errors'))
            into kept using entity_name;
        counts := bds.add_counts(counts, entity_name, jsonb_build_object('failed', failed + kept));
    end loop;
    return counts;
end
$$;
comment on function bds.count_failed(bigint, jsonb) is 'The counts, with those of the records that failed';

create or replace function bds.import_outcome(import_number bigint)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    failed      bigint;
    records     bigint;
    all_failed  bigint;
    all_records bigint := 0;
begin
    execute format('select count(*) from %s where ordinal is null', bds.staging_table(import_number, 'errors')) into all_failed;
    foreach entity_name in array bds.import_order(import_number) loop
        execute format('select count(*) filter (where failed), count(*) from pg_temp.%I', 'map_' || entity_name) into failed, records;
        all_failed := all_failed + failed;
        all_records := all_records + records;
    end loop;
    return case when all_failed = 0 then 'completed' when all_failed = all_records then 'failed' else 'partial' end;
end
$$;
comment on function bds.import_outcome(bigint) is 'The state in which an import that has written ends';

-- Order --------------------------------------------------------------------------------------------------------------------------

create or replace function bds.root_of(entity_name text)
    returns text
    language sql
    stable
    return (
        with recursive up (name, depth) as (
            select entity_name collate "C", 0
            union all
            select n.target, up.depth + 1
            from up
            join bds.entities e on e.name = up.name
            join bds.navigations n on n.entity = e.name and n.name = e.parent_navigation and not n.many
            where up.depth < 10
        )
        select name from up order by depth desc limit 1
    );
comment on function bds.root_of(text) is 'The entity in whose rows those of this one are nested, itself if there is none';

create or replace function bds.import_order(import_number bigint)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    roots    jsonb := (select jsonb_object_agg(e.name, bds.root_of(e.name)) from bds.entities e);
    -- which family refers to which
    links    jsonb := (
        select jsonb_object_agg(l.root, l.targets)
        from (
            select roots ->> v.entity as root, array_agg(distinct roots ->> v.target) as targets
            from bds.navigations v
            where not v.many and roots -> v.entity <> roots -> v.target
            group by 1
        ) l
    );
    families text[] := array(select e.name from bds.entities e where roots ->> e.name = e.name order by e.ordinal);
    ordered  text[] := '{}';
    next     text;
begin
    while cardinality(families) > 0 loop
        select f.root into next
        from unnest(families) with ordinality as f (root, n)
        -- a family is ready when nothing that it refers to is still to come; in a cycle the first one begins
        order by coalesce(links -> f.root ?| families, false), f.n
        limit 1;
        ordered := ordered || next;
        families := array_remove(families, next);
    end loop;
    return array(
        with recursive members (name, root, depth) as (
            select r.name collate "C", r.n, 0 from unnest(ordered) with ordinality as r (name, n)
            union all
            select n.target, members.root, members.depth + 1
            from members join bds.navigations n on n.entity = members.name and n.child
            where members.depth < 10
        )
        select m.name from members m join bds.entities e on e.name = m.name
        where to_regclass(bds.staging_table(import_number, m.name)) is not null
        order by m.root, m.depth, e.ordinal
    );
end
$$;
comment on function bds.import_order(bigint) is 'The staged entities of an import, each after those that it refers to';

-- Steps --------------------------------------------------------------------------------------------------------------------------

create or replace function bds.import_prepare(company text, import_id uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set lock_timeout = 0  -- imports queue without a limit
as $$
declare
    import      bds.imports := bds.find_import(company, import_id, 'running');
    ordered     text[] := bds.import_order(import.number);
    entity_name text;
    root        text;
begin
    perform bds.set_context(company, import.actor, import_id);
    perform bds.lock_company(company);
    perform bds.import_drop_temporary();
    perform bds.plan_for(import.records);
    for root in
        select r.root from unnest(ordered) with ordinality as o (name, n), bds.root_of(o.name) as r (root) group by r.root order by min(o.n)
    loop
        raise notice 'comparing %: 0 of % rows done', root, import.records;
        perform bds.import_prepare_family(
            company, import, array(select o.name from unnest(ordered) with ordinality as o (name, n) where bds.root_of(o.name) = root order by o.n)
        );
    end loop;
end
$$;
comment on function bds.import_prepare(text, uuid) is 'Compares all that was staged with what is stored; holds the company''s lock from here on';

create or replace function bds.plan_for(records bigint)
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
    -- A table that this very transaction fills has no statistics, and of many companies the planner expects one row: nested loops
    -- over all of both sides follow.  So a large feed hashes, whatever it seems to cost; a small one probes the indexes.
    begin atomic
        select set_config('enable_nestloop', case when records > 1000 then 'off' else 'on' end, true),
            set_config('enable_mergejoin', case when records > 1000 then 'off' else 'on' end, true),
            set_config('work_mem', case when records > 1000 then '64MB' else current_setting('work_mem') end, true);
    end;
comment on function bds.plan_for(bigint) is 'Sets the planner for the size of an import, until the end of the transaction';

create or replace function bds.import_drop_temporary()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in
        select format('pg_temp.%I', c.relname) from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind = 'r' and c.relname ~ '^(map|lookup|ref|diff|change|hit|gone|cook|link|candidate|open|rest)_'
    loop
        execute 'drop table ' || name;
    end loop;
end
$$;
comment on function bds.import_drop_temporary() is 'Drops the temporary tables of an earlier comparison of this session';
