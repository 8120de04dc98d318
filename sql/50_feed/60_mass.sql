-- Conditions: what a record with a "@where" says goes to every row that fulfils it, record by record in their order, each in one
-- statement over mass_<entity>:
--     @ordinal, @where, @lookups, @hits, @written, and for each column that any of them gives: whether this one does ("given <column>"), the value

create function bds_feed.rows_where(company text, entity_name text, condition text)
    returns setof bigint
    language plpgsql
    rows 10
    stable  -- so that nothing but a query can come of the text
    security definer  -- who staged it need not be who runs it: it is evaluated with the rights of the reader, whoever calls
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    return query execute format('select v.id from api.%I v where v.company_id = $1 and (%s)', entity_name, condition) using company;
    -- a condition may call set_config, which outlives this function: nothing that follows may look names up elsewhere
    if current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
        raise exception using errcode = 'insufficient_privilege', message = 'a condition changes search_path';
    end if;
exception when others then
    if left(sqlstate, 2) in ('40', '53', '55', '57', '58', 'BD', 'XX') then
        raise;
    end if;
    raise exception using errcode = 'BDF01', message = 'a condition is not valid SQL', detail = jsonb_build_array(jsonb_build_object(
        'field', '@where', 'code', 'invalid_directive', 'message', 'the database cannot evaluate it'));
end
$$;
comment on function bds_feed.rows_where(text, text, text) is
    'Ids of the company''s rows that fulfil a condition; BDF01 has in its detail what is wrong with one that cannot be evaluated';

create function bds_feed.require_rows(company text, lookups text)
    returns void
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    lookup   record;
    is_found boolean;
begin
    for lookup in
        select e.table_name, f.column_name, e.name as entity, f.name as field, l ->> 2 as value
        from jsonb_array_elements(lookups::jsonb) l
        join bds.entities e on e.name = l ->> 0
        join bds.fields f on f.entity = e.name and f.name = l ->> 1
    loop
        execute format('select exists (select from %s t where t.company_id = $1 and t.%I = %L)', lookup.table_name, lookup.column_name, lookup.value)
            into is_found using company;
        if not is_found then
            raise exception using errcode = 'BDF01', message = 'a condition names a row that does not exist',
                detail = jsonb_build_array(jsonb_build_object('field', '@where', 'code', 'lookup_not_found',
                    'message', format('%s has no row %s:%s', lookup.entity, lookup.field, lookup.value)));
        end if;
    end loop;
end
$$;
comment on function bds_feed.require_rows(text, text) is
    'Raises BDF01 unless each lookup of a condition, [[entity, field, value], ...], names a row of the company; null is no lookup';

create function bds_feed.know_company(entity_name text, conditions bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this regclass := (select e.table_name from bds_feed.entities e where e.name = entity_name);
begin
    if conditions >= 10 then
        execute format('lock table %s in share update exclusive mode nowait', this);
        execute format('analyze %s', this);
    end if;
exception when lock_not_available then
    null;  -- another import is at it, until it commits
end
$$;
comment on function bds_feed.know_company(text, bigint) is 'Refreshes the statistics of a table for which there are many conditions';

create function bds_feed.mass_update(import bds.imports, entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    statement text;
    ordinals  bigint[];
    counts    jsonb;
begin
    perform bds_feed.show_progress(import, 'updating', entity_name);
    perform bds_feed.make_mass(entity_name);
    perform bds_feed.know_company(entity_name, bds_feed.conditions(entity_name));
    statement := bds_feed.mass_statement(entity_name);
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
        perform bds_feed.write_batch(import, entity_name, statement, ordinals);
    end loop;
    execute format('select jsonb_build_object(''updated'', coalesce(sum("@written"), 0), ''unchanged'', coalesce(sum("@hits" - "@written"), 0)) from pg_temp.%I',
        'mass_' || entity_name) into counts;
    execute format('drop table pg_temp.%I', 'mass_' || entity_name);
    return counts;
end
$$;
comment on function bds_feed.mass_update(bds.imports, text) is
    'Writes the records with a condition to every row that fulfils it, one after the other; returns {updated, unchanged}';

create function bds_feed.make_mass(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    given text[];
    names text;
begin
    select f.columns into given from pg_temp.feed_entities f where f.name = entity_name;
    select coalesce(string_agg(format(', s.%1$I is not null as %2$I, case when s.%1$I <> e''\x01'' then %3$s else %4$s end as %5$I',
        c.name, 'given ' || c.column_name,
        case when c.target is null then bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type) else format('%I.id', 'ref_' || c.name) end,
        case when c.required then coalesce(c.default_expression, 'null') else 'null' end, c.column_name), '' order by c.ordinal), '')
    into names
    from bds.import_columns c where c.entity = entity_name and c.name = any (given);
    execute bds_impl.fill(
        'create temporary table {mass:I} as '
        'select m.ordinal as "@ordinal", s."@where", s."@lookups", 0::bigint as "@hits", 0::bigint as "@written"{names} '
        'from pg_temp.{map:I} m join pg_temp.{staged:I} s on s."@ordinal" = m.ordinal {joins} where m.phase = 2 and not m.failed',
        'mass', 'mass_' || entity_name, 'names', names, 'map', 'map_' || entity_name, 'staged', 'staged_' || entity_name,
        'joins', replace(bds_feed.reference_joins(entity_name, 's.%I', 'true'), '$2', quote_literal(given) || '::text[]'));
    execute format('alter table pg_temp.%I add primary key ("@ordinal")', 'mass_' || entity_name);
end
$$;
comment on function bds_feed.make_mass(text) is 'Makes mass_<entity>: the records of an entity that update by a condition';

create function bds_feed.mass_statement(entity_name text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    list record;
begin
    select
        string_agg(case when g.is_given then format('case when s.%2$I then s.%1$I else t.%1$I end as %1$I', c.column_name, 'given ' || c.column_name)
            else format('t.%I', c.column_name) end, ', ' order by c.ordinal) as columns,
        coalesce(string_agg(format('(s.%2$I and t.%1$I is distinct from s.%1$I)', c.column_name, 'given ' || c.column_name), ' or ')
            filter (where g.is_given), 'false') as differences,
        string_agg(format('%1$I = d.%1$I', c.column_name), ', ') filter (where g.is_given) as changes
    into list
    from bds.import_columns c
    cross join lateral (select bds_feed.gives_mass(c)) as g (is_given)
    where c.entity = entity_name;
    return bds_impl.fill(
        $sql$
        with s as (select * from pg_temp.{mass:I} where "@ordinal" = $2),
        hit as materialized (
            select w.id from s cross join lateral bds_feed.rows_where($1, {entity:L}, s."@where") as w (id)
        ),
        change as materialized (
            select t.id, {columns} from hit cross join s join {table} t on t.company_id = (select $1) and t.id = hit.id where {differences}
        ),
        problem as materialized ({problems}),
        written as ({write}),
        counted as (select (select count(*) from hit) as hits, (select count(*) from written) as written)
        select c.hits, c.written, (select jsonb_agg(to_jsonb(p)) from problem p) as problems from counted c
        $sql$,
        'mass', 'mass_' || entity_name, 'entity', entity_name, 'columns', list.columns, 'differences', list.differences,
        'table', (select e.table_name::text from bds_feed.entities e where e.name = entity_name), 'problems', bds_feed.mass_problems(entity_name),
        'write', coalesce((
            select format('update %s t set %s from change d where t.company_id = (select $1) and t.id = d.id and not exists (select from problem) returning 1',
                e.table_name, list.changes)
            from bds_feed.entities e where e.name = entity_name), 'select 1 where false'));
end
$$;
comment on function bds_feed.mass_statement(text) is
    'The statement that writes one record with a condition; $1 is the company, $2 its ordinal; gives hits, written, problems (null, or nothing was written)';

create function bds_feed.gives_mass(c bds.import_columns)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return exists (
        select from pg_attribute a
        where a.attrelid = to_regclass(format('pg_temp.%I', 'mass_' || c.entity)) and a.attname = ('given ' || c.column_name)::name
    );
comment on function bds_feed.gives_mass(bds.import_columns) is 'Whether a record of mass_<entity> gives the column';

create function bds_feed.mass_problems(entity_name text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select 'select null::text as field, null::text as code, null::text as message where false' || coalesce(string_agg(p.query, ''), '')
        from (
            select format(
                $sql$ union all select %L, 'invalid_value', %L where exists (
                    select from change d where (select not (%s) from (select $1 as company_id, d.*) as row_to_be))$sql$,
                r.field, format('it breaks the rule %s', r.name), r.expression) as query
            from bds_feed.rules_of(entity_name) r
            union all
            select format(
                $sql$ union all (select %1$L, case when bool_or(t.id is null) then 'duplicate_record' else 'already_exists' end,
                    case when bool_or(t.id is null) then 'a unique value cannot be set in several rows'
                        else format('row %%s has %%s %%L', min(t.id), %1$L, min(d.%2$I::text)) end
                from s cross join change d left join %3$s t on t.company_id = (select $1) and t.%2$I = d.%2$I and t.id <> d.id
                where s.%4$I and s.%2$I is not null and (t.id is not null or (select count(*) > 1 from change))
                having count(*) > 0)$sql$,
                c.name, c.column_name, e.table_name, 'given ' || c.column_name)
            from bds.import_columns c join bds.entities e on e.name = c.entity
            where c.entity = entity_name and c.is_unique and bds_feed.gives_mass(c)
        ) p
    );
comment on function bds_feed.mass_problems(text) is 'SQL for {field, code, message} of what would be wrong with the rows of change: rules that they break, unique values';

create function bds_feed.write_batch(import bds.imports, entity_name text, statement text, ordinals bigint[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb[];
begin
    begin
        problems := bds_feed.write_in_ranges(
            array[format('select bds_feed.write_mass($1, %L, %L, $2, $3)', entity_name, statement)], import.company_id, ordinals, true);
        if problems <> '{}' and import.atomic = 'batch' then
            raise exception using errcode = 'BDF02', message = 'a batch fails whole';
        end if;
    exception when sqlstate 'BDF02' then
        null;
    end;
    if problems <> '{}' then
        perform bds_feed.note_late(entity_name, array(
            select coalesce(k.known, bds_feed.refusal(p, false)) || jsonb_build_object('ordinal', p -> 'key')
            from unnest(problems) as p
            left join lateral jsonb_array_elements(nullif(p -> 'known', 'null')) as k (known) on true
        ));
        perform bds_feed.fail_late(import, entity_name);
    end if;
end
$$;
comment on function bds_feed.write_batch(bds.imports, text, text, bigint[]) is
    'Writes records with a condition, as many as can be, and notes the errors of the others; in batch mode none if one fails';

create function bds_feed.write_mass(company text, entity_name text, statement text, first bigint, last bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordinal bigint;
    lookups text;
    result  record;
begin
    for ordinal, lookups in
        execute format('select m."@ordinal", m."@lookups" from pg_temp.%I m where m."@ordinal" between $1 and $2 order by 1', 'mass_' || entity_name)
        using first, last
    loop
        perform bds_feed.require_rows(company, lookups);
        execute statement into result using company, ordinal;
        if result.problems is not null then
            raise exception using errcode = 'BDF01', message = 'a mass update would break a rule', detail = result.problems;
        end if;
        execute format('update pg_temp.%I set "@hits" = $2, "@written" = $3 where "@ordinal" = $1', 'mass_' || entity_name)
            using ordinal, result.hits, result.written;
    end loop;
end
$$;
comment on function bds_feed.write_mass(text, text, text, bigint, bigint) is
    'Runs the statement for each record of a range; BDF01 has in its detail the problems of the first that has any';
