-- Imports, the deleting: what the feed says is to go, and what it no longer contains.  A row that others refer to stays, unless they go
-- with it.
--
-- gone_ holds what goes, of a whole family at once, for entities that refer to one another in a circle can only go together:
--     entity, id     a row
--     cause, ticket  what it goes by, and stays by: a record (its entity and ordinal) or a removed row (its entity and id)
--     along          it is content of another row that goes, and is taken along by its foreign key
--     n              numbers the tickets, once they are tried one by one
-- use_ holds what has to stay after all: cause, ticket, code, message.

create function bds_feed.make_gone()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    create temporary table gone_ (entity text not null, id bigint not null, cause text not null, ticket bigint not null, along boolean not null default false, n bigint);
    create temporary table use_ (cause text not null, ticket bigint not null, code text not null, message text not null);
end
$$;
comment on function bds_feed.make_gone() is 'Makes gone_ and use_, empty';

create function bds_feed.import_delete(company text, import_id uuid, members text[], counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import      bds.imports := bds.open_import(company, import_id, 'running');
    entity_name text;
begin
    if not exists (select from unnest(members) as m (name) where bds_feed.counted(m.name, 'deletes') > 0) then
        return counts;
    end if;
    perform bds_feed.make_gone();
    foreach entity_name in array members loop
        continue when bds_feed.counted(entity_name, 'deletes') = 0;
        raise notice 'deleting %: 1 of 1 rows done', entity_name;
        execute format(
            'insert into pg_temp.gone_ (entity, id, cause, ticket) '
            'select $1, m.target, $1, m.ordinal from pg_temp.%I m where m.phase = 3 and m.target is not null and not m.failed', 'map_' || entity_name
        ) using entity_name;
        perform bds_feed.find_gone(company, import, entity_name);
    end loop;
    counts := bds_feed.delete_gone(company, import, false, counts);
    drop table pg_temp.gone_, pg_temp.use_;
    return counts;
end
$$;
comment on function bds_feed.import_delete(text, uuid, text[], jsonb) is
    'Deletes the rows that records of a family say are to go; returns the counts with theirs';

create function bds_feed.find_gone(company text, import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    mass      record;
    known     text;
    is_first  boolean := true;
    is_known  boolean;
    found_any boolean := false;
begin
    for mass in execute format(
        'select m.ordinal, s."@where" as condition from pg_temp.%I m join %s s on s."@ordinal" = m.ordinal '
        'where m.phase = 3 and s."@where" is not null and not m.failed order by m.ordinal',
        'map_' || entity_name, bds_feed.staging_table(import.number, entity_name))
    loop
        if is_first then  -- the first record that names a row has it
            execute 'create unique index on pg_temp.gone_ (entity, id)';
            is_first := false;
            is_known := bds_feed.know_company(entity_name, bds_feed.counted(entity_name, 'deletes'));
        end if;
        begin
            execute 'insert into pg_temp.gone_ (entity, id, cause, ticket) select $2, w.id, $2, $4 from bds_feed.rows_where($1, $2, $3, $5) as w (id) on conflict do nothing'
                using company, entity_name, mass.condition, mass.ordinal, is_known;
        exception when sqlstate 'BDF01' then
            get stacked diagnostics known = pg_exception_detail;
            perform bds_feed.note_late(import, entity_name, array(select k || jsonb_build_object('ordinal', mass.ordinal) from jsonb_array_elements(known::jsonb) k));
            found_any := true;
        end;
    end loop;
    if not is_first then
        drop index pg_temp.gone__entity_id_idx;  -- content that goes along may be named by a record as well
    end if;
    if found_any then
        perform bds_feed.fail_late(import, entity_name);
        execute format('delete from pg_temp.gone_ g using pg_temp.%I m where g.cause = $1 and m.ordinal = g.ticket and m.failed', 'map_' || entity_name)
            using entity_name;
    end if;
end
$$;
comment on function bds_feed.find_gone(text, bds.imports, text) is 'Puts the rows into gone_ that fulfil a condition of a record that deletes';

create function bds_feed.delete_gone(company text, import bds.imports, is_removal boolean, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
    set enable_hashjoin = on
    set enable_mergejoin = off
    set enable_material = on
as $$
declare
    statement text;
    is_few    boolean;
    tally     record;
begin
    perform bds_feed.add_along(company);
    loop
        while bds_feed.find_used(company, is_removal) loop
            perform bds_feed.keep_used(company, import, is_removal);
        end loop;
        begin
            is_few := not exists (select from bds_feed.count_gone() g join bds.entities e on e.name = g.entity where not bds_feed.finds_few(g.rows, e.table_name, company));
            if is_few then
                perform bds_feed.plan_for_ranges();
            end if;
            foreach statement in array bds_feed.delete_statements(is_few, false) loop
                execute statement using company;
            end loop;
            exit;
        exception when others then
            if not bds_feed.is_fault_of_rows(sqlstate) or not bds_feed.rehearse_delete(company, is_removal) then
                raise;
            end if;
        end;
        perform bds_feed.keep_used(company, import, is_removal);
    end loop;
    for tally in select * from bds_feed.count_gone() loop
        counts := bds_feed.add_counts(counts, tally.entity, jsonb_build_object('deleted', tally.rows));
    end loop;
    return counts;
end
$$;
comment on function bds_feed.delete_gone(text, bds.imports, boolean, jsonb) is
    'Deletes the rows of gone_ with their content, but for those that have to stay; returns the counts with theirs';

create function bds_feed.count_gone()
    returns table (entity text, rows bigint)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute 'select g.entity, count(distinct g.id) from pg_temp.gone_ g group by g.entity';
end
$$;
comment on function bds_feed.count_gone() is 'How many rows of each entity gone_ holds';

create function bds_feed.add_along(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    names text[];
    child record;
    at    int := 1;
    gone  bigint;
    found_rows bigint;
begin
    -- parents first: what goes along takes its own content along
    select array_agg(n.name order by bds_feed.depth_of(n.name), n.name) into names from (select distinct g.entity as name from pg_temp.gone_ g) n;
    while at <= cardinality(names) loop
        execute 'select count(*) from pg_temp.gone_ g where g.entity = $1' into gone using names[at];
        for child in select * from bds_feed.children_of(names[at]) loop
            execute format(
                'insert into pg_temp.gone_ (entity, id, cause, ticket, along) '
                'select $2, t.id, g.cause, g.ticket, true from pg_temp.gone_ g %s where g.entity = $3 and t.id is not null',
                bds_feed.stored_join(child.table_name, 't', child.column_name, 'g.id', bds_feed.finds_few(gone, child.table_name, company, child.column_name))
            ) using company, child.target, names[at];
            get diagnostics found_rows = row_count;
            if found_rows > 0 and child.target <> all (names) then
                names := names || child.target;
            end if;
        end loop;
        at := at + 1;
    end loop;
end
$$;
comment on function bds_feed.add_along(text) is 'Puts the content of the rows of gone_ beside them, and the content of that';

create function bds_feed.delete_statements(by_key boolean, in_ranges boolean)
    returns text[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    statements text[];
    roots      bigint;
begin
    select count(distinct bds_feed.root_of(n.name)) into roots from (select distinct g.cause as name from pg_temp.gone_ g) n;
    -- Children go along by their foreign key: deleting them first would be a change of the parent as well.  In a circle none goes
    -- before the others: one statement has them all, with their content, whatever the order in which keys are then checked.
    select array_agg(
        case when by_key then bds_feed.range_statement(e.table_name, g.source, 'delete')
            else format('delete from %s t using %s g where t.company_id = $1 and t.id = g.id', e.table_name, g.source) end
        order by bds_feed.depth_of(e.name) desc, e.ordinal desc)
    into statements
    from bds.entities e
    cross join lateral (select roots > 1 or e.parent_navigation is null) as a (is_alone)
    cross join lateral (select format(
        case when in_ranges then '(select distinct g.id from pg_temp.gone_ g where g.entity = %L and g.n between least($2, $3) and greatest($2, $3)%s)'
            else '(select g.id from pg_temp.gone_ g where g.entity = %L group by g.id%s)' end, e.name,
        case when a.is_alone then ''
            when in_ranges then ' and not g.along and not exists (select from pg_temp.gone_ o where o.along and o.entity = g.entity and o.id = g.id)'
            else ' having not bool_or(g.along)' end)) as g (source)
    where e.name in (select g.entity from pg_temp.gone_ g where roots > 1 or not g.along);
    if roots > 1 then
        select array[format('with %s select', string_agg(format('gone_%s as (%s)', s.n, s.statement), ', ' order by s.n))] into statements
        from unnest(statements) with ordinality as s (statement, n);
    end if;
    return coalesce(statements, '{}');
end
$$;
comment on function bds_feed.delete_statements(boolean, boolean) is
    'The statements that delete the rows of gone_, in this order, each row looked up by its key or all at once; $1 is the company, $2 and $3 the '
    'first and last ticket if it is done in ranges';

create function bds_feed.find_used(company text, is_removal boolean)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    use       record;
    kept      bigint;
    found_any boolean := false;
begin
    for use in
        select n.entity as name, n.rows, u.*, exists (select from pg_temp.gone_ g where g.entity = u.user_name) as may_go
        from bds_feed.count_gone() n cross join lateral bds_feed.uses_of(n.entity) u
    loop
        execute format(
            $sql$
            insert into pg_temp.use_ (cause, ticket, code, message)
            select u.cause, u.ticket, 'in_use', case when $2
                then format('row %%s is not in the feed, but %%s refer to it', u.ticket, %1$L)
                else format('row %%s is referred to by %%s %%s', min(u.id), %1$L, min(u.user_id)) end
            from (select g.cause, g.ticket, g.id, t.id as user_id from pg_temp.gone_ g %2$s where g.entity = %3$L and t.id is not null offset 0) u
            %4$s
            group by u.cause, u.ticket
            $sql$,
            use.user_name,
            bds_feed.stored_join(use.user_table, 't', use.column_name, 'g.id', bds_feed.finds_few(use.rows, use.user_table, company, use.column_name)), use.name,
            case when use.may_go then format('where not exists (select from pg_temp.gone_ o where o.entity = %L and o.id = u.user_id)', use.user_name) else '' end
        ) using company, is_removal;
        get diagnostics kept = row_count;
        found_any := found_any or kept > 0;
    end loop;
    return found_any;
end
$$;
comment on function bds_feed.find_used(text, boolean) is 'Notes in use_ what would delete a row to which one refers that stays; whether there is any';

create function bds_feed.keep_used(company text, import bds.imports, is_removal boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
begin
    for entity_name in select distinct u.cause from pg_temp.use_ u loop
        if is_removal then
            perform bds_feed.note_kept(company, import, entity_name);
        else
            perform bds_feed.note_late(import, entity_name, array(
                select to_jsonb(u) from (
                    select distinct on (u.ticket) u.ticket as ordinal, u.code, u.message from pg_temp.use_ u where u.cause = entity_name
                    order by u.ticket, u.message
                ) u
            ));
            perform bds_feed.fail_late(import, entity_name);
            execute format(
                'delete from pg_temp.gone_ g using pg_temp.%I m where g.cause = $1 and m.ordinal = g.ticket and m.failed', 'map_' || entity_name
            ) using entity_name;
        end if;
    end loop;
    delete from pg_temp.use_;
end
$$;
comment on function bds_feed.keep_used(text, bds.imports, boolean) is 'Takes out of gone_ what use_ has, and notes why: as errors of records, or of removals';

create function bds_feed.rehearse_delete(company text, is_removal boolean)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb[];
    tickets  bigint[];
    before   int := -1;
begin
    execute $sql$
        update pg_temp.gone_ g set n = r.n
        from (
            select t.cause, t.ticket, row_number() over (order by f.place desc, t.ticket) as n
            from (select distinct cause, ticket from pg_temp.gone_) t join pg_temp.family_ f on f.name = t.cause
        ) r
        where r.cause = g.cause and r.ticket = g.ticket
    $sql$;
    execute 'select array(select generate_series(1, max(g.n)) from pg_temp.gone_ g)' into tickets;
    begin
        execute 'create index on pg_temp.gone_ (n)';
        execute 'create index on pg_temp.gone_ (entity, id) where along';
        perform bds_feed.plan_for_ranges();
        -- What is referred to by a row that goes after it is refused at first: another turn, the other way round.
        loop
            problems := bds_feed.write_in_ranges(bds_feed.delete_statements(true, true), company, tickets);
            exit when exists (select from unnest(problems) p where p ->> 'state' <> '23503') or cardinality(problems) in (0, before);
            before := cardinality(problems);
            tickets := array(select (p.problem ->> 'key')::bigint from unnest(problems) with ordinality as p (problem, n) order by p.n desc);
        end loop;
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    execute $sql$
        insert into pg_temp.use_ (cause, ticket, code, message)
        select distinct g.cause, g.ticket, r ->> 'code',
            case when $2 then format('row %s is not in the feed, but it stays: ', g.ticket) else '' end || (r ->> 'message')
        from unnest($1) as p join pg_temp.gone_ g on g.n = (p ->> 'key')::bigint
        cross join lateral bds_feed.refusal(p, true) r
        -- beside a row that is refused for itself, others may be in use only because that one stays: they come next
        where p ->> 'state' <> '23503' or not exists (select from unnest($1) o where o ->> 'state' <> '23503')
    $sql$ using problems, is_removal;
    return cardinality(problems) > 0;
end
$$;
comment on function bds_feed.rehearse_delete(text, boolean) is
    'Notes in use_ what the database refuses to delete, found in ranges of tickets; false if it refuses nothing by itself';
