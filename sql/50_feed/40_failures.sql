-- Failures: a record that is wrong takes along what cannot be without it, and in batch mode its batch.

create function bds_feed.add_errors(problems jsonb, given jsonb)
    returns void
    language plpgsql
as $$
begin
    insert into pg_temp.feed_errors
    select e.*
    from jsonb_array_elements(problems) p
    cross join lateral jsonb_populate_record(null::pg_temp.feed_errors, '{"is_late": false, "is_kept": false}' || p || given) e;
end
$$;
comment on function bds_feed.add_errors(jsonb, jsonb) is
    'Adds errors, objects with members as the columns of feed_errors; given are members that all of them have';

insert into bds_feed.templates (signature, of, result, purpose, body) values
('mark_{entity}()', null, 'void', 'marks the records that have errors of their own', $sql$
begin
    update pg_temp."map_{entity}" m set failed = true
    from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = m.ordinal and not m.failed;
end$sql$),

('forget_failed_{entity}()', null, 'void', 'leaves out the rows of failed records', $sql$
begin
    delete from pg_temp."diff_{entity}" d using pg_temp."map_{entity}" m where m.ordinal = d."@ordinal" and m.failed;
end$sql$),

('fail_batches_{entity}(is_late boolean)', null, 'void', 'fails every batch, 10,000 top-level records of one phase, in which one fails', $sql$
begin
    with numbered as (
        select m.ordinal, m.phase, m.position, m.failed, (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
        from pg_temp."map_{entity}" m where m.parent is null
    ),
    batch as (
        select n.phase, n.number, min(n.ordinal) as first, min(n.position) as low, max(n.position) as high,
            count(*) filter (where n.failed) as failures
        from numbered n group by n.phase, n.number having bool_or(n.failed)
    ),
    marked as (
        update pg_temp."map_{entity}" m set failed = true
        from numbered n join batch b on b.phase = n.phase and b.number = n.number
        where m.ordinal = n.ordinal and not m.failed
    )
    insert into pg_temp.feed_errors (entity, ordinal, code, is_late, message)
    select '{entity}', b.first, 'batch_failed', $1, format(
        'the batch %s[%s..%s] was not written, because of %s in it that failed', '{entity}', b.low, b.high,
        case b.failures when 1 then 'a record' else b.failures || ' records' end)
    from batch b
    where not exists (select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = b.first and e.code = 'batch_failed');
end$sql$),

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
                where x.id = t.target and case l.kind
                    {each lookup_kinds}
                    when '{kind}' then {if is_key}x.{kind_column:I} = {named}{else is_key}true{end is_key}
                    {end lookup_kinds}
                end
            ))
            -- a second record of the row, which is refused, takes no name from the first
            and not exists (
                select from pg_temp."map_{target}" o
                where o.target = t.target and not o.failed and case l.kind
                    {each lookup_kinds}
                    when '{kind}' then {if is_key}o."key_{kind}" = {named}{else is_key}true{end is_key}
                    {end lookup_kinds}
                end
            );
        found_any := found_any or found;
    end if;
    {end references}
end$sql$);

create function bds_feed.fail_late(import bds.imports, entity_name text)
    returns void
    language plpgsql
as $$
begin
    execute format('select bds_import.%I()', 'mark_' || entity_name);
    if import.atomic = 'batch' then
        execute format('select bds_import.%I(true)', 'fail_batches_' || entity_name);
    end if;
    execute format('select bds_import.%I()', 'count_' || entity_name);
end
$$;
comment on function bds_feed.fail_late(bds.imports, text) is 'Fails the records whose errors were found while writing, and in batch mode their batches';

create function bds_feed.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
as $$
declare
    entity_name text;
    is_orphaned boolean;
    found_any   boolean;
begin
    loop
        foreach entity_name in array members loop
            execute format('select bds_import.%I()', 'mark_' || entity_name);
        end loop;
        perform bds_feed.spread_failures(import, members);
        -- records of the same family that refer to what will not come to be
        found_any := false;
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1)', 'fail_orphans_' || entity_name) into is_orphaned using members;
            found_any := found_any or is_orphaned;
        end loop;
        exit when not found_any;
    end loop;
    foreach entity_name in array members loop
        execute format('select bds_import.%I()', 'forget_failed_' || entity_name);
    end loop;
end
$$;
comment on function bds_feed.mark_failed(bds.imports, text[]) is 'Marks the records of a family that fail, with those that fail because of them';

create function bds_feed.spread_failures(import bds.imports, members text[])
    returns void
    language plpgsql
as $$
declare
    entity_name text;
    child       bds_feed.entities;
    pairs constant text := 'update pg_temp.%I a set failed = true from pg_temp.%I b where %s and b.failed and not a.failed';
begin
    -- a failing child fails its parent: from the leaves up
    for child in select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.place desc loop
        execute format(pairs, 'map_' || child.parent, 'map_' || child.name, 'a.ordinal = b.parent');
    end loop;
    if import.atomic = 'batch' then
        foreach entity_name in array members loop
            execute format('select bds_import.%I(false)', 'fail_batches_' || entity_name);
        end loop;
    end if;
    -- and a failing parent its children: from the root down
    for child in select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.place loop
        execute format(pairs, 'map_' || child.name, 'map_' || child.parent, 'a.parent = b.ordinal');
    end loop;
end
$$;
comment on function bds_feed.spread_failures(bds.imports, text[]) is 'A failing child fails its parent, that its other children, and in batch mode its batch';

create function bds_feed.collect_errors(import bds.imports)
    returns bigint
    language plpgsql
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
