-- Imports, the unforeseen: a rule of a table that no check knows (a trigger that raises, an exclusion constraint) refuses a whole
-- statement.  Which records it refuses is found by trying ranges of them under savepoints: what was refused is halved, what was taken
-- doubles, so that each row is tried a few times, however many are refused.

create function bds_feed.find_culprits(company text, import_id uuid)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.open_import(company, import_id, 'running');
    problems jsonb;
begin
    begin
        problems := bds_feed.rehearse(company, import);
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    return problems;
end
$$;
comment on function bds_feed.find_culprits(text, uuid) is 'Errors of the records that the database refuses, as bds_feed.add_errors takes them; null if it refuses none of them alone';

create function bds_feed.rehearse(company text, import bds.imports)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordered     text[] := bds_feed.import_order(import.number);
    entity_name text;
    problems    jsonb;
    members     text[];
begin
    -- the steps of bds_feed.import_apply, up to the first that finds any: what others would find may be their consequence
    foreach entity_name in array ordered loop
        problems := bds_feed.rehearse_write(company, entity_name, bds_feed.put_off(entity_name));
        if problems is not null then
            return problems;
        end if;
    end loop;
    foreach entity_name in array ordered loop
        problems := case when bds_feed.put_off(entity_name) <> '{}' then bds_feed.rehearse_write(company, entity_name, '{}') end;
        if problems is not null then
            return problems;
        end if;
    end loop;
    -- these see to their own errors
    perform bds_feed.plan_for(import.number);
    perform bds_feed.import_mass_update(company, import.id, o.name) from unnest(ordered) as o (name);
    for members in select * from bds_feed.family_members() loop
        perform bds_feed.import_delete(company, import.id, members, '{}');
    end loop;
    for entity_name in select o.name from unnest(ordered) with ordinality as o (name, n) order by o.n desc loop
        problems := bds_feed.rehearse_remove(company, import, entity_name);
        if problems is not null then
            return problems;
        end if;
    end loop;
    return null;
end
$$;
comment on function bds_feed.rehearse(text, bds.imports) is 'Writes, as far as can be; returns errors of the records that the database refuses, null if there are none';

create function bds_feed.rehearse_write(company text, entity_name text, put_off jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    diff     text := 'diff_' || entity_name;
    ordinals bigint[];
begin
    execute format('select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d', diff) into ordinals;
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'rehearsal_' || entity_name, diff);
    perform bds_feed.plan_for_ranges();
    return bds_feed.refused(entity_name, bds_feed.write_in_ranges(array[bds_feed.merge_statement(
        entity_name, format('(select * from pg_temp.%I o where o."@ordinal" between $2 and $3)', diff), put_off, true)], company, ordinals));
end
$$;
comment on function bds_feed.rehearse_write(text, text, jsonb) is 'Writes the differences of an entity, as far as can be; returns errors of the others';

create function bds_feed.rehearse_remove(company text, import bds.imports, parent_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child      record;
    statements text[] := '{}';
    ordinals   bigint[];
    problems   jsonb[];
begin
    perform bds_feed.make_gone();
    for child in select * from bds_feed.children_of(parent_name) loop
        perform bds_feed.find_removed(
            company, import.number, parent_name, child.collection, bds_feed.count_whole(import.number, parent_name, child.collection));
        statements := statements || bds_feed.range_statement(
            child.table_name, format('(select g.id from pg_temp.gone_ g where g.entity = %L and g.ticket between $2 and $3)', child.target), 'delete');
    end loop;
    execute 'create index on pg_temp.gone_ (ticket)';
    execute 'select array(select distinct g.ticket from pg_temp.gone_ g order by 1)' into ordinals;
    perform bds_feed.plan_for_ranges();
    problems := bds_feed.write_in_ranges(statements, company, ordinals);
    perform bds_feed.plan_for(import.number);
    drop table pg_temp.gone_, pg_temp.use_;
    return bds_feed.refused(parent_name, problems, true);
end
$$;
comment on function bds_feed.rehearse_remove(text, bds.imports, text) is
    'Removes what arrays no longer contain, as far as can be; returns errors of the parents whose array it is';
