-- Imports, the conditions: what a record with a "@where" says goes to every row that fulfils it, record by record in their order, each
-- in one statement over mass_<entity>:
--     @ordinal, @where, @hits, @written, and for each column that any of them gives: whether this one does ("given <column>"), the value

create function bds_feed.rows_where(company text, entity_name text, condition text, is_known boolean)
    returns setof bigint
    language plpgsql
    rows 10
    stable  -- so that nothing but a query can come of the text
    security definer  -- who staged it need not be who runs it: it is evaluated with the rights of the reader, whoever calls
    set search_path = pg_catalog, pg_temp
    set enable_hashjoin = on
    set enable_material = on
    set enable_nestloop = on
as $$
begin
    perform bds.require_company(company);
    if not is_known then  -- hashing reads all of the company's rows, and no more often than once
        perform set_config('enable_nestloop', 'off', true);
    end if;
    return query execute format('select v.id from api.%I v where v.company_id = $1 and (%s)', entity_name, condition) using company;
exception when others then
    if left(sqlstate, 2) in ('40', '53', '55', '57', '58', 'BD', 'XX') then
        raise;
    end if;
    raise exception using errcode = 'BDF01', message = 'a condition is not valid SQL', detail = jsonb_build_array(jsonb_build_object(
        'field', '@where', 'code', 'invalid_directive', 'message', 'the database cannot evaluate it'));
end
$$;
comment on function bds_feed.rows_where(text, text, text, boolean) is
    'Ids of the company''s rows that fulfil a condition, looked up by an index if the company is known to the planner; BDF01 has in its detail what is wrong with one that cannot be evaluated';

create function bds_feed.import_mass_update(company text, import_id uuid, entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import    bds.imports := bds.open_import(company, import_id, 'running');
    mass      text := 'mass_' || entity_name;
    statement text;
    ordinals  bigint[];
    counts    jsonb;
begin
    if bds_feed.counted(entity_name, 'updates') = 0 then
        return null;
    end if;
    raise notice 'updating %: 1 of 1 rows done', entity_name;
    perform bds_feed.make_mass(import, entity_name);
    statement := bds_feed.mass_statement(entity_name, mass, bds_feed.know_company(entity_name, bds_feed.counted(entity_name, 'updates')));
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
        perform bds_feed.write_batch(company, import, entity_name, statement, ordinals);
    end loop;
    execute format('select jsonb_build_object(''updated'', coalesce(sum("@written"), 0), ''unchanged'', coalesce(sum("@hits" - "@written"), 0)) from pg_temp.%I', mass)
        into counts;
    execute format('drop table pg_temp.%I', mass);
    return counts;
end
$$;
comment on function bds_feed.import_mass_update(text, uuid, text) is
    'Writes the records with a condition to every row that fulfils it, one after the other; returns {updated, unchanged}';

create function bds_feed.make_mass(import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    given text[] := bds_feed.noted_columns(entity_name);
    names text;
    joins text;
begin
    select
        coalesce(string_agg(format(', s.%1$I is not null as %2$I, case when s.%1$I <> e''\x01'' then %3$s else %4$s end as %5$I',
            c.name, 'given ' || c.column_name,
            case when c.target is null then bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type) else format('%I.id', bds_feed.reference_alias(entity_name, c.name)) end,
            case when c.required then coalesce(c.default_expression, 'null') else 'null' end, c.column_name), '' order by c.ordinal), ''),
        coalesce(string_agg(' ' || bds_feed.reference_join(import.number, entity_name, c.name, format('s.%I', c.name)), '')
            filter (where c.target is not null), '')
    into names, joins
    from bds.import_columns c where c.entity = entity_name and c.name = any (given);
    execute format(
        'create temporary table %I as '
        'select m.ordinal as "@ordinal", s."@where", 0::bigint as "@hits", 0::bigint as "@written"%s '
        'from pg_temp.%I m join %s s on s."@ordinal" = m.ordinal%s where m.phase = 2 and not m.failed',
        'mass_' || entity_name, names, 'map_' || entity_name, bds_feed.staging_table(import.number, entity_name), joins
    );
    execute format('alter table pg_temp.%I add primary key ("@ordinal")', 'mass_' || entity_name);
end
$$;
comment on function bds_feed.make_mass(bds.imports, text) is 'Makes mass_<entity>: the records of an entity that update by a condition';

create function bds_feed.mass_statement(entity_name text, mass text, is_known boolean)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    bds.entities;
    names   text;
    differs text;
    updates text;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    select
        string_agg(case when g.is_given then format('case when s.%2$I then s.%1$I else t.%1$I end as %1$I', c.column_name, 'given ' || c.column_name)
            else format('t.%I', c.column_name) end, ', ' order by c.ordinal),
        string_agg(format('(s.%2$I and t.%1$I is distinct from s.%1$I)', c.column_name, 'given ' || c.column_name), ' or ') filter (where g.is_given),
        string_agg(format('%1$I = d.%1$I', c.column_name), ', ') filter (where g.is_given)
    into names, differs, updates
    from bds.import_columns c
    cross join lateral (select exists (
        select from pg_attribute a
        where a.attrelid = to_regclass(format('pg_temp.%I', mass)) and a.attname = ('given ' || c.column_name)::name
    )) as g (is_given)
    where c.entity = entity_name;

    return format(
        $sql$
        with s as (select * from pg_temp.%1$I where "@ordinal" = $2),
        hit as materialized (
            select w.id from s cross join lateral bds_feed.rows_where($1, %2$L, s."@where", %8$L) as w (id)
        ),
        change as materialized (
            select t.id, %3$s
            from hit cross join s cross join lateral (select o.* from %4$s o where o.company_id = (select $1) and o.id = hit.id offset 0) t
            where %5$s
        ),
        problem as materialized (
            %6$s
        ),
        written as (
            %7$s returning 1
        ),
        counted as (select (select count(*) from hit) as hits, (select count(*) from written) as written)
        select c.hits, c.written, (select jsonb_agg(to_jsonb(p)) from problem p) as problems from counted c
        $sql$,
        mass, entity_name, names, this.table_name, coalesce(differs, 'false'), bds_feed.mass_problems(entity_name, mass),
        bds_feed.range_statement(this.table_name, '(select * from change where not exists (select from problem))', coalesce('update set ' || updates, 'do nothing')), is_known
    );
end
$$;
comment on function bds_feed.mass_statement(text, text, boolean) is
    'The statement that writes one record with a condition; $1 is the company, $2 its ordinal; gives hits, written, problems (null, or nothing was written)';

create function bds_feed.mass_problems(entity_name text, mass text)
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
            join pg_attribute a on a.attrelid = to_regclass(format('pg_temp.%I', mass)) and a.attname = ('given ' || c.column_name)::name
            where c.entity = entity_name and c.is_unique
        ) p
    );
comment on function bds_feed.mass_problems(text, text) is 'SQL for {field, code, message} of what would be wrong with the rows of change: rules that they break, unique values';

create function bds_feed.write_batch(company text, import bds.imports, entity_name text, statement text, ordinals bigint[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb[];
begin
    begin
        problems := bds_feed.write_in_ranges(array[format('select bds_feed.write_mass($1, %L, %L, $2, $3)', entity_name, statement)], company, ordinals, true);
        if problems <> '{}' and import.atomic = 'batch' then
            raise exception using errcode = 'BDF02', message = 'a batch fails whole';
        end if;
    exception when sqlstate 'BDF02' then
        null;
    end;
    perform bds_feed.plan_for(import.number);
    if problems <> '{}' then
        perform bds_feed.note_late(import, entity_name, array(
            select coalesce(k.known, bds_feed.refusal(p, false)) || jsonb_build_object('ordinal', p -> 'key')
            from unnest(problems) as p
            left join lateral jsonb_array_elements(nullif(p -> 'known', 'null')) as k (known) on true
        ));
        perform bds_feed.fail_late(import, entity_name);
    end if;
end
$$;
comment on function bds_feed.write_batch(text, bds.imports, text, text, bigint[]) is
    'Writes records with a condition, as many as can be, and notes the errors of the others; in batch mode none if one fails';

create function bds_feed.write_mass(company text, entity_name text, statement text, first bigint, last bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordinal bigint;
    result  record;
begin
    perform bds_feed.plan_for_ranges();  -- a condition finds few rows or many: both are looked up by their key
    for ordinal in execute format('select m."@ordinal" from pg_temp.%I m where m."@ordinal" between $1 and $2 order by 1', 'mass_' || entity_name)
        using first, last
    loop
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
