-- Imports, the run: everything is compared before anything is written.  Written are upserts in the order of dependency, then mass
-- updates, then deletes against that order, then removals; all in one transaction, so that a crash leaves nothing.
--
-- What only the writing shows (a rule of a table that no check knows) undoes what was written, is found by halving, becomes an error
-- of the records that cause it, and everything is compared again without them.

create or replace function bds.import_run(company text, import_id uuid, atomic text default 'batch', remove_all text[] default '{}')
    returns json
    language plpgsql
    security definer
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
    elsif import.records > 0 and not bds.is_staged(import.number) then
        -- it waited, and the database crashed meanwhile
        raise exception using errcode = 'BD003', message = 'the database was restarted while the import waited: send it again';
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
            outcome := bds.import_outcome(import.number, counts);
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
    members     text[];
    counts      jsonb := '{}';
    done        bigint := 0;
    total       bigint := (select sum(bds.counted(o.name, 'rows')) from unnest(ordered) as o (name));
    problems    jsonb;
begin
    foreach entity_name in array ordered loop
        raise notice 'writing %: % of % rows done', entity_name, done, total;
        counts := bds.add_counts(counts, entity_name, bds.import_write(company, import_id, entity_name));
        done := done + bds.counted(entity_name, 'rows');
    end loop;
    -- entities that refer to one another in a circle: what had to wait for the other's rows
    perform bds.merge_diff(company, o.name)
    from unnest(ordered) as o (name) where bds.put_off(o.name) <> '{}';
    foreach entity_name in array ordered loop
        counts := bds.add_counts(counts, entity_name, bds.import_mass_update(company, import_id, entity_name));
    end loop;
    for members in select * from bds.family_members() loop
        counts := bds.import_delete(company, import_id, members, counts);
    end loop;
    foreach entity_name in array backwards loop
        counts := bds.import_remove(company, import_id, entity_name, counts);
    end loop;
    for members in select * from bds.family_members() loop
        counts := bds.import_remove_all(company, import_id, members, counts);
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

create or replace function bds.count_map(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        update pg_temp.family_ f
        set rows = m.rows, failed = m.failed, writes = m.writes, updates = m.updates, deletes = m.deletes
        from (
            select count(*) as rows, count(*) filter (where failed) as failed, count(*) filter (where phase = 1 and not failed) as writes,
                count(*) filter (where phase = 2 and not failed) as updates, count(*) filter (where phase = 3 and not failed) as deletes
            from pg_temp.%I
        ) m
        where f.name = $1
        $sql$, 'map_' || entity_name
    ) using entity_name;
end
$$;
comment on function bds.count_map(text) is 'Counts once what there is to do for an entity; to be called when records have failed';

create or replace function bds.counted(entity_name text, what text)
    returns bigint
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    counted bigint;
begin
    execute format('select f.%I from pg_temp.family_ f where f.name = $1', what) into counted using entity_name;
    return counted;
end
$$;
comment on function bds.counted(text, text) is 'What count_map has counted: rows, failed, writes, updates (by condition), deletes';

create or replace function bds.count_failed(import_number bigint, counts jsonb)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    kept        bigint;
begin
    foreach entity_name in array bds.import_order(import_number) loop
        -- rows that could not be removed
        execute format('select count(*) from %s e where e.entity = $1 and e.ordinal is null', bds.staging_table(import_number, 'errors'))
            into kept using entity_name;
        counts := bds.add_counts(counts, entity_name, jsonb_build_object('failed', bds.counted(entity_name, 'failed') + kept));
    end loop;
    return counts;
end
$$;
comment on function bds.count_failed(bigint, jsonb) is 'The counts, with those of the records that failed';

create or replace function bds.import_outcome(import_number bigint, counts jsonb)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    failed  bigint;
    kept    bigint;
    records bigint;
    deleted bigint := (select sum((c.value ->> 'deleted')::bigint) from jsonb_each(counts) c);
begin
    execute format(
        'select coalesce(sum(f.failed), 0), (select count(*) from %s where ordinal is null), sum(f.rows) from pg_temp.family_ f',
        bds.staging_table(import_number, 'errors')
    ) into failed, kept, records;
    return case
        when failed + kept = 0 then 'completed'
        when failed > 0 and failed = records and coalesce(deleted, 0) = 0 then 'failed'
        else 'partial'
    end;
end
$$;
comment on function bds.import_outcome(bigint, jsonb) is 'The state in which an import that has written ends';

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

create or replace function bds.depth_of(entity_name text)
    returns int
    language sql
    stable
    return (
        with recursive up (name, depth) as (
            select entity_name collate "C", 0
            union all
            select bds.parent_of(up.name) collate "C", up.depth + 1 from up where bds.parent_of(up.name) is not null and up.depth < 10
        )
        select max(depth) from up
    );
comment on function bds.depth_of(text) is 'How deep in the rows of others those of the entity are nested: 0 for a root';

create or replace function bds.reach(required_only boolean)
    returns table (name text, target text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        with recursive root (entity, name) as materialized (
            select e.name, bds.root_of(e.name) from bds.entities e
        ),
        link (name, target) as (
            select distinct r.name, t.name
            from bds.navigations v join root r on r.entity = v.entity join root t on t.entity = v.target
            where not v.many and (not required_only or exists (
                select from bds.import_columns c where c.entity = v.entity and c.name = v.name and c.required
            ))
        ),
        reached (name, target) as (
            select r.entity, r.entity from root r where r.entity = r.name
            union
            select reached.name, link.target from reached join link on link.name = reached.target
        )
        select reached.name, reached.target from reached;
    end;
comment on function bds.reach(boolean) is
    'The roots to which each root''s references lead, and theirs, and so on, itself included; all of them, or the required ones alone';

create or replace function bds.families()
    returns table (name text, family int, depth int)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        with reach as materialized (
            select r.name, r.target from bds.reach(false) r
        ),
        -- who refers to another reaches more than that one; in a circle all reach the same
        ranked (name, circle, reached) as (
            select r.name, min(e.ordinal) filter (where exists (select from reach b where b.name = r.target and b.target = r.name)), count(*)
            from reach r join bds.entities e on e.name = r.target
            group by r.name
        )
        select e.name, dense_rank() over (order by k.reached, k.circle)::int, (e.name <> k.name)::int
        from bds.entities e join ranked k on k.name = bds.root_of(e.name);
    end;
comment on function bds.families() is
    'Entities that are compared together: a root with its children, and roots that refer to one another in a circle; family numbers them, '
    'each after those that it refers to; depth is 0 for a root';

create or replace function bds.import_order(import_number bigint)
    returns text[]
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return array(
        select f.name
        from bds.families() f join bds.entities e on e.name = f.name
        join bds.entities r on r.name = bds.root_of(f.name)
        join (select n.name, count(*) as needed from bds.reach(true) n group by n.name) n on n.name = r.name
        where to_regclass(bds.staging_table(import_number, f.name)) is not null
        -- in a circle what is required comes first: what is not can wait
        order by f.family, n.needed, r.ordinal, f.depth, e.ordinal
    );
comment on function bds.import_order(bigint) is 'The staged entities of an import, each after those that it refers to';

create or replace function bds.family_members()
    returns setof text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute 'select array_agg(f.name order by f.place) from pg_temp.family_ f group by f.family order by f.family desc';
end
$$;
comment on function bds.family_members() is 'The staged entities of each family, those first that refer to others';

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
    members     text[];
begin
    perform bds.set_context(company, import.actor, import_id);
    perform bds.lock_company(company);
    perform bds.import_drop_comparison(import.number);
    execute format('delete from %s where not is_kept', bds.staging_table(import.number, 'errors'));
    perform bds.plan_for(import.number);
    create temporary table family_ as
    select o.name, o.n as place, f.family, null::text[] as columns, 0::bigint as rows, 0::bigint as failed, 0::bigint as writes, 0::bigint as updates, 0::bigint as deletes
    from unnest(ordered) with ordinality as o (name, n) join bds.families() f on f.name = o.name;
    for members in execute 'select array_agg(f.name order by f.place) from pg_temp.family_ f group by f.family order by f.family' loop
        raise notice 'comparing %: 0 of % rows done', members[1], import.records;
        perform bds.import_prepare_family(company, import, members);
        perform bds.count_map(m.name) from unnest(members) as m (name);
    end loop;
end
$$;
comment on function bds.import_prepare(text, uuid) is 'Compares all that was staged with what is stored; holds the company''s lock from here on';

create or replace function bds.import_drop_comparison(import_number bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    names constant text := '^((family|gone|use)_$|(map|lookup|ref|diff|mass|cook|link|candidate|open|rest)_)';
    name  text;
begin
    -- those of this role are of an earlier comparison; others are somebody's own
    for name in
        select format('pg_temp.%I', c.relname) from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind = 'r' and c.relname ~ names and c.relowner = 'bds_importer'::regrole
    loop
        execute 'drop table ' || name;
    end loop;
    for name in
        select format('staging.%I', c.relname) from pg_class c
        where c.relnamespace = 'staging'::regnamespace and c.relkind = 'r' and c.relname ^@ ('i' || import_number || '_') and strpos(c.relname, '@') > 0
    loop
        execute 'drop table ' || name;
    end loop;
    select c.relname into name from pg_class c
    where c.relnamespace = pg_my_temp_schema() and c.relname ~ names
        and exists (select from bds.entities e where strpos(c.relname, '_' || e.name) > 0 or c.relname ~ '_$');
    if found then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I of its own, where an import needs the name', name),
            hint = 'drop or rename it, or run the import in another session';
    end if;
end
$$;
comment on function bds.import_drop_comparison(bigint) is
    'Drops the tables of an earlier comparison, the temporary ones of this session; BD004 if one of somebody else''s is in the way';
