-- Imports, the writing: what differs goes into the tables by MERGE, record by record or by a condition.

create or replace function bds.import_write(company text, import_id uuid, entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    later  jsonb := bds.put_off(entity_name);
    counts jsonb := bds.merge_diff(company, entity_name, 'diff_' || entity_name, null, later);
    differ bigint;
begin
    if later <> '{}' then  -- what differs in a reference that is put off alone is written in the second round
        execute format('select count(*) from pg_temp.%I where not "@new"', 'diff_' || entity_name) into differ;
        counts := counts || jsonb_build_object('updated', differ);
    end if;
    return counts || jsonb_build_object(
        'unchanged', bds.counted(entity_name, 'writes') - (counts ->> 'created')::bigint - (counts ->> 'updated')::bigint
    );
end
$$;
comment on function bds.import_write(text, uuid, text) is 'Writes the rows of an entity that are new or differ; returns {created, updated, unchanged}';

create or replace function bds.put_off(entity_name text)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    later jsonb;
begin
    execute $sql$
        select coalesce(jsonb_object_agg(c.column_name, c.target), '{}')
        from bds.import_columns c
        join pg_temp.family_ o on o.name = c.entity
        join pg_temp.family_ t on t.name = c.target and t.place > o.place
        where c.entity = $1 and not c.required
    $sql$ into later using entity_name;
    return later;
end
$$;
comment on function bds.put_off(text) is
    'References to rows that are written later, {column: entity}: null in new rows at first, so that the other can be written; then written again';

create or replace function bds.merge_diff(
    company text, entity_name text, diff_name text, ordinals bigint[] default null, put_off jsonb default '{}'
)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    this       bds.entities;
    updates    text;
    columns    text;
    new_values text;
    counts     jsonb;
    differ     bigint;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    execute format('select count(*) from pg_temp.%I', diff_name) into differ;
    perform bds.probe_if_few(coalesce(cardinality(ordinals), differ), bds.counted(entity_name, 'rows'));
    select
        string_agg(format('%I = %s', c.column_name, v.value), ', ' order by c.ordinal),
        string_agg(format('%I', c.column_name), ', ' order by c.ordinal),
        string_agg(v.value, ', ' order by c.ordinal)
    into updates, columns, new_values
    from bds.import_columns c
    cross join lateral (select case
        when put_off ? c.column_name then format(
            '(select nullif(d.%1$I, m.target) from (select d.%1$I) o left join pg_temp.%2$I m on m.target = d.%1$I and m.is_new)',
            c.column_name, 'map_' || (put_off ->> c.column_name))
        else format('d.%I', c.column_name)
    end) as v (value)
    where c.entity = entity_name;

    execute format(
        $sql$
        with merged as (
            merge into %1$s t
            using %2$s d on t.company_id = $1 and t.id = d.id
            when matched then
                update set %3$s
            when not matched then
                insert (company_id, id, %4$s) values ($1, d.id, %5$s)
            returning merge_action() as action
        )
        select jsonb_build_object('created', count(*) filter (where action = 'INSERT'), 'updated', count(*) filter (where action = 'UPDATE'))
        from merged
        $sql$,
        this.table_name,
        case when ordinals is null then format('pg_temp.%I', diff_name)
            else format('(select * from pg_temp.%I o where o."@ordinal" = any ($2))', diff_name) end,
        updates, columns, new_values
    ) into counts using company, ordinals;
    return counts;
end
$$;
comment on function bds.merge_diff(text, text, text, bigint[], jsonb) is
    'Writes rows as a table of differences has them, all or those of some records, without the references to new rows that are put off; '
    'returns {created, updated}';

-- Mass updates -------------------------------------------------------------------------------------------------------------------

create or replace function bds.import_mass_update(company text, import_id uuid, entity_name text, ordinals bigint[] default null)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import  bds.imports := bds.find_import(company, import_id, 'running');
    columns text[];
    mass    record;
    written jsonb;
    hits    bigint;
    counts  jsonb;
begin
    if bds.counted(entity_name, 'updates') = 0 then
        return null;
    end if;
    columns := bds.staged_columns(import.number, entity_name);
    raise notice 'updating %: 1 of 1 rows done', entity_name;
    for mass in execute format(
        'select m.ordinal from pg_temp.%I m where m.phase = 2 and not m.failed and ($1 is null or m.ordinal = any ($1)) order by m.ordinal',
        'map_' || entity_name) using ordinals
    loop
        hits := bds.find_hits(company, import.number, entity_name, mass.ordinal);
        perform bds.make_diff(company, import.number, entity_name, columns, 'hit_' || entity_name, 'change_' || entity_name);
        perform bds.check_change(company, import.number, entity_name, columns, mass.ordinal);
        written := bds.merge_diff(company, entity_name, 'change_' || entity_name);
        counts := bds.add_counts(coalesce(counts, '{}'), '', jsonb_build_object(
            'updated', written -> 'updated', 'unchanged', hits - (written ->> 'updated')::bigint));
        execute format('drop table pg_temp.%I, pg_temp.%I', 'hit_' || entity_name, 'change_' || entity_name);
    end loop;
    return counts -> '';
end
$$;
comment on function bds.import_mass_update(text, uuid, text, bigint[]) is
    'Writes the records with a condition to every row that fulfils it, one after the other; returns {updated, unchanged}';

create or replace function bds.find_hits(company text, import_number bigint, entity_name text, mass_ordinal bigint)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    condition text;
    keys      text;
    hits      bigint;
begin
    execute format('select "@where" from %s where "@ordinal" = $1', bds.staging_table(import_number, entity_name)) into condition using mass_ordinal;
    select string_agg(format(', null::%s as %I', c.sql_type, 'key_' || c.name), '' order by c.ordinal) into keys
    from bds.import_columns c where c.entity = entity_name and c.is_unique;
    execute format(
        'create temporary table %I as '
        'select $2 as ordinal, v.id as target, 1 as phase, false as is_new, false as is_same%s from api.%I v where v.company_id = $1 and (%s)',
        'hit_' || entity_name, keys, entity_name, condition
    ) using company, mass_ordinal;
    get diagnostics hits = row_count;
    return hits;
exception when syntax_error_or_access_rule_violation or data_exception or program_limit_exceeded then
    raise exception using errcode = 'BDF01', message = 'a condition is no SQL', detail = jsonb_build_array(jsonb_build_object(
        'entity', entity_name, 'ordinal', mass_ordinal, 'field', '@where', 'code', 'invalid_directive', 'is_late', false,
        'message', 'the database cannot evaluate it'));
end
$$;
comment on function bds.find_hits(text, bigint, text, bigint) is 'hit_<entity>: the rows that fulfil a record''s condition; returns how many';

create or replace function bds.check_change(company text, import_number bigint, entity_name text, columns text[], mass_ordinal bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    errors   text := bds.staging_table(import_number, 'errors');
    key      record;
    is_given boolean;
    problems jsonb;
begin
    perform bds.check_constraints(company, import_number, entity_name, 'change_' || entity_name);
    for key in
        select c.name, c.column_name, e.table_name from bds.import_columns c join bds.entities e on e.name = c.entity
        where c.entity = entity_name and c.is_unique and c.name = any (columns)
    loop
        execute format('select s.%1$I is not null and s.%1$I <> e''\x01'' from %2$s s where s."@ordinal" = $1', key.name, bds.staging_table(import_number, entity_name))
            into is_given using mass_ordinal;
        continue when not is_given;
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select $2, $3, %2$L, case when bool_or(t.id is null) then 'duplicate_record' else 'already_exists' end,
                case when bool_or(t.id is null) then 'one value cannot be that of several rows' else format('row %%s has %%s %%L', min(t.id), %2$L, min(d.%3$I::text)) end
            from pg_temp.%4$I d
            left join %5$s t on t.company_id = $1 and t.%3$I = d.%3$I and t.id <> d.id
            where t.id is not null or exists (select from pg_temp.%4$I o where o.%3$I = d.%3$I and o.id <> d.id)
            having count(*) > 0
            $sql$,
            errors, key.name, key.column_name, 'change_' || entity_name, key.table_name
        ) using company, entity_name, mass_ordinal;
    end loop;
    execute format('select jsonb_agg(distinct to_jsonb(e)) from %s e where e.entity = $1 and e.ordinal = $2', errors)
        into problems using entity_name, mass_ordinal;
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'a mass update would break a rule', detail = problems;
    end if;
end
$$;
comment on function bds.check_change(text, bigint, text, text[], bigint) is
    'Raises BDF01, with the errors in its detail, if the rows that a mass update changes would break a rule of the table';
