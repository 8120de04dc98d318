-- Failures: when a record fails, so do the records that need it, and in batch mode its batch.

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

('fail_batches_{entity}(is_late boolean)', null, 'void',
'fails every batch, 10,000 top-level records of one phase, in which one fails', $sql$
begin
    with numbered as (
        select m.ordinal, m.phase, m.position, m.failed,
            (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
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
    where not exists (
        select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = b.first and e.code = 'batch_failed');
end$sql$),

('fail_late_{entity}(import bds.imports)', null, 'void',
'fails the records whose errors were found while writing, and in batch mode their batches', $sql$
begin
    perform bds_import."mark_{entity}"();
    if import.atomic = 'batch' then
        perform bds_import."fail_batches_{entity}"(true);
    end if;
    update pg_temp.feed_entities f set failed = (select count(*) from pg_temp."map_{entity}" m where m.failed)
    where f.name = '{entity}';
end$sql$),

('fail_orphans_{entity}(import bds.imports, members text[])', null, 'void',
'fails records that refer to a failed record of the same family by a unique value that it does not have yet', $sql$
begin
    {each references}
    if '{target}' = any (members) then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', s."@ordinal", '{name}', 'lookup_not_found',
            format('{target} has no row %s: the record of this document failed', r.lookup)
        from pg_temp."ref_{ref}" r
        join bds_import."named_{ref}"(import.company_id, array(select distinct o.kind from pg_temp."ref_{ref}" o)) n
            on n.lookup = r.lookup and n.id is distinct from r.id
        join pg_temp."staged_{entity}" s on {given} = r.lookup
        join pg_temp."map_{entity}" m on m.ordinal = s."@ordinal" and not m.failed;
    end if;
    {end references}
end$sql$),

('paths_{entity}()', null, 'table (ordinal bigint, path text, record text)',
'the paths of staged records in the document (products[3].variants[0]), and their lookups', $sql$
-- a record without parent is in the collection of its entity
with {if is_nested}recursive {end is_nested}staged as (
    select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position,
        coalesce(bds_feed.staged_text(s."@id"){each keys}, '{name}:' || bds_feed.staged_text({given}){end keys}) as record
    from pg_temp."staged_{entity}" s
){if is_nested},
placed (ordinal, path, record) as (
    select s.ordinal, format('{entity}[%s]', s.position), s.record from staged s where s.parent is null
    union all
    select s.ordinal, format('%s.{collection}[%s]', p.path, s.position), coalesce(s.record, p.record)
    from placed p join staged s on s.parent = p.ordinal
)
select p.ordinal, p.path, p.record from placed p
{else is_nested}
select s.ordinal, format(
        '%s[%s]', {if container}coalesce(p.path || '.{collection}', '{entity}'){else container}'{entity}'{end container}, s.position
    ),
    {if container}coalesce(s.record, p.record){else container}s.record{end container}
from staged s
{if container}
left join bds_import."paths_{container}"() p on p.ordinal = s.parent
{end container}
{end is_nested}$sql$);

create function bds_feed.mark_failed(import bds.imports, members text[])
    returns void
    language plpgsql
as $$
declare
    entity_name text;
    child       bds_feed.entities;
    errors      bigint;
    pairs constant text := 'update pg_temp.%I a set failed = true from pg_temp.%I b where %s and b.failed and not a.failed';
begin
    loop
        foreach entity_name in array members loop
            execute format('select bds_import.%I()', 'mark_' || entity_name);
        end loop;
        -- a failing child fails its parent: from the leaves up
        for child in
            select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.rank desc
        loop
            execute format(pairs, 'map_' || child.parent, 'map_' || child.name, 'a.ordinal = b.parent');
        end loop;
        if import.atomic = 'batch' then
            foreach entity_name in array members loop
                execute format('select bds_import.%I(false)', 'fail_batches_' || entity_name);
            end loop;
        end if;
        -- and a failing parent its children: from the root down
        for child in
            select * from bds_feed.entities e where e.name = any (members) and e.parent = any (members) order by e.rank
        loop
            execute format(pairs, 'map_' || child.name, 'map_' || child.parent, 'a.parent = b.ordinal');
        end loop;
        -- records of the same family that refer to rows which are not created
        errors := (select count(*) from pg_temp.feed_errors);
        foreach entity_name in array members loop
            execute format('select bds_import.%I($1, $2)', 'fail_orphans_' || entity_name) using import, members;
        end loop;
        exit when errors = (select count(*) from pg_temp.feed_errors);
    end loop;
end
$$;
comment on function bds_feed.mark_failed(bds.imports, text[]) is
    'Marks the records of a family that fail: with a child its parent, with a parent its children, in batch mode the batch, and '
    'records that refer to new rows of failed ones';

create function bds_feed.collect_errors(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    is_undo     boolean := bds_feed.is_undo(import);
    entity_name text;
    paths       text;
    added       bigint;
    problems    bigint := 0;
begin
    if not is_undo then
        perform bds_feed.open_tables(import, array(  -- a path begins with the records that contain the failed one
            select e.name from bds_feed.entities e where e.root in (
                select o.root from bds_feed.entities o join pg_temp.feed_errors s on s.entity = o.name)));
    end if;
    for entity_name, paths in
        select s.entity, case
                when f.name is null then '(select null::bigint as ordinal, null as path, null as record)'
                else format('bds_import.%I()', case when is_undo then 'undone_' else 'paths_' end || f.name)
            end
        from pg_temp.feed_errors s
        left join bds.entities e on e.name = s.entity
        left join pg_temp.feed_entities f on f.name = s.entity
        group by s.entity, e.ordinal, f.name
        order by case when is_undo then min(s.ordinal) else e.ordinal end
    loop
        execute bds_impl.fill(
            $sql$
            insert into bds.import_errors (company_id, import_id, n, path, record, code, message)
            select $1, $2,
                $3 + row_number() over (order by e.ordinal, e.code = 'batch_failed', e.field nulls first, e.code, e.record),
                -- a value may have megabytes, and a report shows a thousand errors
                left(coalesce(e.path, p.path || coalesce('.' || e.field, '')), 1000), left(coalesce(e.record, p.record), 1000),
                e.code, left(e.message, 1000)
            from pg_temp.feed_errors e
            left join {paths} p on p.ordinal = e.ordinal
            where e.entity = {entity:L}
            $sql$,
            'paths', paths, 'entity', entity_name
        ) using import.company_id, import.id, problems;
        get diagnostics added = row_count;
        problems := problems + added;
    end loop;
end
$$;
comment on function bds_feed.collect_errors(bds.imports) is
    'Keeps the errors of an import, each with its path in the document';
