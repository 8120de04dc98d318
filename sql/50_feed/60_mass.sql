-- Conditions: the values of a record with a "@where" are written to every row that fulfils it, record by record in their order.
-- diff_<entity> has these rows, with "@new" null if nothing changes; they are checked and written as those of other records are.

create function bds_feed.rows_where(company text, entity_name text, condition text, lookups text)
    returns setof bigint
    language plpgsql
    rows 10
    stable  -- the text can be nothing but a query
    security definer  -- evaluated with the rights of a reader: another role than the caller may have staged it
    set search_path = pg_catalog, pg_temp
as $$
declare
    named    jsonb;  -- [entity, field, value]
    is_found boolean;
begin
    perform bds.require_company(company);
    for named in select l from jsonb_array_elements(lookups::jsonb) l loop
        execute format('select exists (select 1 from api.%I v where v.company_id = $1 and v.%I = %L)',
            named ->> 0, named ->> 1, named ->> 2) into is_found using company;
        if not is_found then
            raise exception using errcode = 'BDF01', message = 'a condition names a row that does not exist',
                detail = jsonb_build_array(jsonb_build_object('field', '@where', 'code', 'lookup_not_found',
                    'message', format('%s has no row %s:%s', named ->> 0, named ->> 1, named ->> 2)));
        end if;
    end loop;
    return query execute format('select v.id from api.%I v where v.company_id = $1 and (%s)', entity_name, condition) using company;
    -- set_config in a condition would change the search_path of what follows
    if current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
        raise exception using errcode = 'insufficient_privilege', message = 'a condition changes search_path';
    end if;
exception when others then
    if left(sqlstate, 2) in ('40', '53', '55', '57', '58', 'BD', 'XX') then
        raise;
    end if;
    raise exception using
        errcode = 'BDF01', message = 'a condition is not valid SQL',
        detail = jsonb_build_array(jsonb_build_object(
            'field', '@where', 'code', 'invalid_directive', 'message', 'the database cannot evaluate it'
        ));
end
$$;
comment on function bds_feed.rows_where(text, text, text, text) is
    'Ids of the company''s rows that fulfil a condition; the detail of BDF01 is the error of one that cannot be evaluated, or '
    'whose lookups, [[entity, field, value], ...], name no row';

create function bds_feed.mass_update(import bds.imports, entity_name text)
    returns void
    language plpgsql
    set client_min_messages = warning  -- a session of small imports has the index already
as $$
declare
    statement text := (
        select format('select bds_import.%I(%L, %L, %L, $2, $3)', 'mass_' || entity_name, import, f.columns, f.is_valid)
        from pg_temp.feed_entities f where f.name = entity_name);
    ordinals  bigint[];
    problems  jsonb[];
begin
    perform bds_feed.show_progress(import, 'updating', entity_name);
    execute format('truncate pg_temp.%I', 'diff_' || entity_name);  -- its rows are written
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'ranges_' || entity_name, 'diff_' || entity_name);
    for ordinals in execute format(
        $sql$
        select array_agg(m.ordinal order by m.ordinal)
        from (
            select m.ordinal, m.failed, (row_number() over (order by m.ordinal) - 1) / case $1 when 'batch' then 10000 end as batch
            from pg_temp.%I m where m.phase = 2 and m.parent is null
        ) m
        where not m.failed group by m.batch order by m.batch
        $sql$, 'map_' || entity_name) using import.atomic
    loop
        begin
            problems := bds_feed.write_in_ranges(import, array[statement], ordinals, true);
            if problems <> '{}' and import.atomic = 'batch' then
                raise exception using errcode = 'BDF02', message = 'a batch fails whole';
            end if;
        exception when sqlstate 'BDF02' then
            null;
        end;
        if problems <> '{}' then
            perform bds_feed.add_errors(
                coalesce(nullif(p -> 'known', 'null'), jsonb_build_array(bds_feed.refused_write(entity_name, p))),
                jsonb_build_object('entity', entity_name, 'ordinal', p -> 'key', 'is_late', true))
            from unnest(problems) as p;
            execute format('select bds_import.%I($1)', 'fail_late_' || entity_name) using import;
        end if;
    end loop;
    execute format(
        $sql$
        update pg_temp.feed_entities f set updated = f.updated + d.updated, unchanged = f.unchanged + d.rows - d.updated
        from (select count(o."@new") as updated, count(*) as rows from pg_temp.%I o) d where f.name = $1
        $sql$, 'diff_' || entity_name) using entity_name;
end
$$;
comment on function bds_feed.mass_update(bds.imports, text) is
    'Writes the records with a condition to every row that fulfils it, one after the other, as many as possible; in batch mode '
    'none of a batch in which one fails';

insert into bds_feed.templates (signature, of, result, purpose, body) values
('mass_{entity}(import bds.imports, given text[], is_valid boolean, first bigint, last bigint)', null, 'void',
'writes the records with a condition from $4 to $5; the detail of BDF01 is {field, code, message} of the first that fails', $sql$
declare
    s        record;
    problems jsonb;
begin
    for s in
        select r.* from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" r on r."@ordinal" = m.ordinal
        where m.phase = 2 and not m.failed and m.ordinal between $4 and $5 order by m.ordinal
    loop
        insert into pg_temp."diff_{entity}"
        select v."@ordinal", v.id, case when false
            {each columns}
            or {is_changed}
            {end columns}
            then false end{each masks}, v.{mask:I}{end masks}{each columns}, v.{column:I}{end columns}
        from (
            select s."@ordinal", t.id
                {each masks}
                , {given_bits} as {mask:I}
                {end masks}
                {each columns}
                , {mass} as {column:I}, {stored} as "stored {column}"
                {end columns}
            from bds_feed.rows_where(import.company_id, '{entity}', s."@where", s."@lookups") w (id)
            join {table} t on t.company_id = (select import.company_id) and t.id = w.id
            {each references}
            left join pg_temp."ref_{ref}" "ref_{name}" on '{name}' = any ($2) and "ref_{name}".lookup = {given}
            {end references}
            offset 0
        ) v;
        perform bds_import."check_rules_{entity}"(import, s."@ordinal", s."@ordinal");
        {each keys}
        if '{name}' = any ($2) and {given} is not null then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select '{entity}', s."@ordinal", '{name}',
                case when bool_or(t.id is null) then 'duplicate_record' else 'already_exists' end,
                case when bool_or(t.id is null) then 'a unique value cannot be set in several rows'
                    else format('row %s has {name} %L', min(t.id), min(d.{column:I}::text)) end
            from (
                select o.*, count(*) over () as changed
                from pg_temp."diff_{entity}" o where o."@ordinal" = s."@ordinal" and not o."@new"
            ) d
            left join {table} t on t.company_id = (select import.company_id) and {stored} = d.{column:I} and t.id <> d.id
            where d.{column:I} is not null and (t.id is not null or d.changed > 1)
            having count(*) > 0;
        end if;
        {end keys}
        select jsonb_agg(distinct jsonb_build_object('field', e.field, 'code', e.code, 'message', e.message)) into problems
        from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = s."@ordinal";
        if problems is not null then
            raise exception using errcode = 'BDF01', message = 'a mass update would break a rule', detail = problems;
        end if;
        perform bds_import."write_{entity}"(import.company_id, s."@ordinal", s."@ordinal", '{}', false);
    end loop;
end$sql$);
