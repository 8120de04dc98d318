-- Failures: a record that is wrong takes along what cannot be without it, and in batch mode its batch.

create function bds_feed.has_errors(entity_names text[] default null)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select from pg_temp.feed_errors e where entity_names is null or e.entity = any (entity_names));
end
$$;
comment on function bds_feed.has_errors(text[]) is 'Whether anything is wrong with the records of an import, or with those of some entities';

create function bds_feed.late_errors()
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select jsonb_agg(to_jsonb(e)) from pg_temp.feed_errors e where e.is_late);
end
$$;
comment on function bds_feed.late_errors() is 'The errors that the writing has found, to outlive what was written; null if there are none';

create function bds_feed.keep_errors(errors jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message, path, record, is_late, is_kept)
    select e.entity, e.ordinal, e.field, e.code, e.message, e.path, e.record, coalesce(e.is_late, false), true
    from jsonb_to_recordset(errors) as e (
        entity text, ordinal bigint, field text, code text, message text, path text, record text, is_late boolean);
end
$$;
comment on function bds_feed.keep_errors(jsonb) is 'Adds errors, as late_errors gives them, which outlive the comparison';

create function bds_feed.note_late(entity_name text, problems jsonb[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message, is_late)
    select entity_name, (p ->> 'ordinal')::bigint, p ->> 'field', p ->> 'code', p ->> 'message', true from unnest(problems) as p;
end
$$;
comment on function bds_feed.note_late(text, jsonb[]) is 'Notes {ordinal, field, code, message} that the writing has found out of records of an entity';

create function bds_feed.mark_known(members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
begin
    foreach entity_name in array members loop
        execute format(
            'update pg_temp.%I m set failed = true from pg_temp.feed_errors e where e.entity = $1 and e.ordinal = m.ordinal and not m.failed',
            'map_' || entity_name
        ) using entity_name;
    end loop;
end
$$;
comment on function bds_feed.mark_known(text[]) is 'Marks the records of some entities that have errors of their own';

create function bds_feed.fail_late(import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.mark_known(array[entity_name]);
    if import.atomic = 'batch' then
        perform bds_feed.fail_batches(entity_name, true);
    end if;
    execute format('select bds_import.%I()', 'count_' || entity_name);
end
$$;
comment on function bds_feed.fail_late(bds.imports, text) is 'Fails the records whose errors were found while writing, and in batch mode their batches';

create function bds_feed.fail_batches(entity_name text, is_late boolean default false)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute bds_impl.fill(
        $sql$
        with numbered as (
            select m.ordinal, m.phase, m.position, m.failed,
                (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
            from pg_temp.{map:I} m where m.parent is null
        ),
        batch as (
            select n.phase, n.number, min(n.ordinal) as first, min(n.position) as low, max(n.position) as high,
                count(*) filter (where n.failed) as failures
            from numbered n group by n.phase, n.number having bool_or(n.failed)
        ),
        marked as (
            update pg_temp.{map:I} m set failed = true
            from numbered n join batch b on b.phase = n.phase and b.number = n.number
            where m.ordinal = n.ordinal and not m.failed
        )
        insert into pg_temp.feed_errors (entity, ordinal, code, is_late, message)
        select $1, b.first, 'batch_failed', $2, format(
            'the batch %s[%s..%s] was not written, because of %s in it that failed', $1, b.low, b.high,
            case b.failures when 1 then 'a record' else b.failures || ' records' end)
        from batch b
        where not exists (select from pg_temp.feed_errors e where e.entity = $1 and e.ordinal = b.first and e.code = 'batch_failed')
        $sql$,
        'map', 'map_' || entity_name
    ) using entity_name, is_late;
end
$$;
comment on function bds_feed.fail_batches(text, boolean) is 'Fails every batch, 10,000 top-level records of one phase, in which one fails';

create function bds_feed.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    found_any   boolean;
    found_more  boolean;
begin
    if not bds_feed.has_errors(members) then
        return;
    end if;
    loop
        perform bds_feed.mark_known(members);
        perform bds_feed.spread_failures(import, members);
        -- records of the same family that refer to what will not come to be
        found_any := false;
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1)', 'fail_orphans_' || entity_name) into found_more using members;
            found_any := found_any or found_more;
        end loop;
        exit when not found_any;
    end loop;
    foreach entity_name in array members loop
        execute format(
            'delete from pg_temp.%I d using pg_temp.%I m where m.ordinal = d."@ordinal" and m.failed', 'diff_' || entity_name, 'map_' || entity_name);
    end loop;
end
$$;
comment on function bds_feed.mark_failed(bds.imports, text[]) is 'Marks the records of a family that fail, with those that fail because of them';

create function bds_feed.spread_failures(import bds.imports, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child bds_feed.entities;
    pairs constant text := 'update pg_temp.%I a set failed = true from pg_temp.%I b where %s and b.failed and not a.failed';
begin
    -- a failing child fails its parent: from the leaves up
    for child in select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.place desc loop
        execute format(pairs, 'map_' || child.parent, 'map_' || child.name, 'a.ordinal = b.parent');
    end loop;
    if import.atomic = 'batch' then
        perform bds_feed.fail_batches(m.name) from unnest(members) as m (name);
    end if;
    -- and a failing parent its children: from the root down
    for child in select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.place loop
        execute format(pairs, 'map_' || child.name, 'map_' || child.parent, 'a.parent = b.ordinal');
    end loop;
end
$$;
comment on function bds_feed.spread_failures(bds.imports, text[]) is 'A failing child fails its parent, that its other children, and in batch mode its batch';

insert into bds_feed.templates (signature, of, result, purpose, body) values
('fail_orphans_{entity}(members text[], out found_any boolean)', null, 'boolean',
'fails records that refer to a failed record of the same family by a name that it would only have got; whether there were any', $sql$
begin
    found_any := false;
    {each references}
    if '{target}' = any (members) and exists (select from pg_temp."ref_{ref}") then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', s."@ordinal", '{name}', 'lookup_not_found',
            format('{target} has no row %s: the record of this document failed', l.lookup)
        from pg_temp."staged_{entity}" s
        join (
            select r.lookup, r.kind, r.id, bds_feed.lookup_value(r.lookup) as value from pg_temp."ref_{ref}" r
        ) l on l.lookup = {given}
        join pg_temp."map_{target}" t on t.target = l.id and t.failed
        join pg_temp."map_{entity}" m on m.ordinal = s."@ordinal" and not m.failed
        where (t.is_new or not exists (
                select 1 from {target_table} x
                where x.id = t.target and case l.kind{each lookup_kinds} when '{kind}' then {if is_key}x.{kind_column:I} = {named}{else is_key}true{end is_key}{end lookup_kinds} end))
            -- a second record of the row, which is refused, takes no name from the first
            and not exists (
                select from pg_temp."map_{target}" o
                where o.target = t.target and not o.failed and case l.kind{each lookup_kinds} when '{kind}' then {if is_key}o."key_{kind}" = {named}{else is_key}true{end is_key}{end lookup_kinds} end);
        found_any := found_any or found;
    end if;
    {end references}
end$sql$);

create function bds_feed.collect_errors(import bds.imports)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
    place       record;
    added       bigint;
    problems    bigint := 0;
begin
    for entity_name in
        select e.name from bds.entities e where exists (select from pg_temp.feed_errors s where s.entity = e.name) order by e.ordinal
    loop
        place := bds_feed.place_of_rows(entity_name);
        execute bds_impl.fill(
            $sql$
            insert into bds.import_errors (company_id, import_id, n, path, record, code, message)
            select $1, $2, $3 + row_number() over (order by e.ordinal, e.code = 'batch_failed', e.field nulls first, e.code, e.record),
                -- a value may have megabytes, and a report shows a thousand errors
                left(coalesce(e.path, ({path}) || coalesce('.' || e.field, '')), 1000), left(coalesce(e.record, {record}), 1000), e.code,
                left(e.message, 1000)
            from pg_temp.feed_errors e
            left join pg_temp.{staged:I} r0 on r0."@ordinal" = e.ordinal
            {joins}
            where e.entity = {entity:L}
            $sql$,
            'path', place.path, 'record', place.record, 'joins', place.joins, 'staged', 'staged_' || entity_name, 'entity', entity_name
        ) using import.company_id, import.id, import.error_count + problems;
        get diagnostics added = row_count;
        problems := problems + added;
    end loop;
    return problems;
end
$$;
comment on function bds_feed.collect_errors(bds.imports) is 'Keeps the errors of an import, each with its path in the document; returns how many';

create function bds_feed.place_of_rows(entity_name text, out path text, out record text, out joins text)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    level  int := 0;
    this   bds_feed.entities;
    own    text;
    place  text;
    closed text := '';
begin
    -- r0 is the record, r1 its parent, and so on up; a record without parent stands in the collection of its entity
    joins := '';
    path := '';
    loop
        select * into strict this from bds_feed.entities e where e.name = coalesce(this.parent, entity_name);
        place := format('coalesce(r%1$s."@position", r%1$s."@ordinal")', level);
        select string_agg(format('%L || (%s)', c.name || ':', format('bds_feed.staged_text(r%s.%I)', level, c.name)), ', ' order by c.ordinal) into own
        from bds.import_columns c where c.entity = this.name and c.is_unique;
        record := concat_ws(', ', record, format('bds_feed.staged_text(r%s."@id")', level), own);
        exit when this.parent is null or not exists (select from pg_temp.feed_entities f where f.name = this.parent);
        path := path || format('case when r%s."@parent" is null then %L || %s || %L else ', level, this.name || '[', place, ']');
        closed := format(' || %L || %s || %L end', '.' || (select e.collection from bds.entities e where e.name = this.name) || '[', place, ']')
            || closed;
        joins := joins || format(
            E'left join pg_temp.%I r%s on r%s."@ordinal" = r%s."@parent"\n', 'staged_' || this.parent, level + 1, level + 1, level);
        level := level + 1;
    end loop;
    path := path || format('%L || %s || %L', this.name || '[', place, ']') || closed;
    record := format('coalesce(%s)', record);
end
$$;
comment on function bds_feed.place_of_rows(text) is
    'SQL for the path of staged records in the document (products[3].variants[0]), for the lookup they go by, and the joins that both need';
