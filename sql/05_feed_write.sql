-- Imports, the writing: what differs goes into the tables by MERGE, what the feed no longer contains goes out, errors get their paths.

create or replace function bds.import_write(company text, import_id uuid, entity_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import    bds.imports := bds.find_import(company, import_id, 'running');
    this      bds.entities;
    updates   text;
    columns   text;
    new_values text;
    created   bigint;
    updated   bigint;
    good      bigint;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    select
        string_agg(format('%1$I = d.%1$I', c.column_name), ', ' order by c.ordinal),
        string_agg(format('%I', c.column_name), ', ' order by c.ordinal),
        string_agg(format('d.%I', c.column_name), ', ' order by c.ordinal)
    into updates, columns, new_values
    from bds.import_columns c
    where c.entity = entity_name;

    execute format(
        $sql$
        with merged as (
            merge into %1$s t
            using pg_temp.%2$I d on t.company_id = $1 and t.id = d.id
            when matched then
                update set %3$s
            when not matched then
                insert (company_id, id, %4$s) values ($1, d.id, %5$s)
            returning merge_action() as action
        )
        select count(*) filter (where action = 'INSERT'), count(*) filter (where action = 'UPDATE') from merged
        $sql$,
        this.table_name, 'diff_' || entity_name, updates, columns, new_values
    ) into created, updated using company;
    execute format('select count(*) from pg_temp.%I where not failed', 'map_' || entity_name) into good;
    return jsonb_build_object(entity_name, jsonb_build_object('created', created, 'updated', updated, 'unchanged', good - created - updated));
end
$$;
comment on function bds.import_write(text, uuid, text) is 'Writes the rows of an entity that are new or differ; returns {entity: {created, updated, unchanged}}';

create or replace function bds.import_remove(company text, import_id uuid, parent_name text, counts jsonb)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import  bds.imports := bds.find_import(company, import_id, 'running');
    child   record;
    deleted bigint;
begin
    for child in
        select n.name as collection, n.target, e.table_name, f.column_name
        from bds.navigations n
        join bds.entities e on e.name = n.target
        join bds.fields f on f.entity = n.target and f.name = n.field
        where n.entity = parent_name and n.child
        order by n.ordinal
    loop
        execute format(
            $sql$
            delete from %1$s t
            using pg_temp.%2$I p join %3$s s on s."@ordinal" = p.ordinal
            where t.company_id = $1 and t.%4$I = p.target and s.%5$I and not p.failed and not p.is_new%6$s
            $sql$,
            child.table_name, 'map_' || parent_name, bds.staging_table(import.number, parent_name), child.column_name,
            child.collection || '@present',
            case when to_regclass(format('pg_temp.%I', 'map_' || child.target)) is not null then
                -- a record that failed protects its row, too
                format(' and not exists (select from pg_temp.%I m where m.target = t.id)', 'map_' || child.target)
            else '' end
        ) using company;
        get diagnostics deleted = row_count;
        if deleted > 0 then
            counts := counts || jsonb_build_object(
                child.target, coalesce(counts -> child.target, '{}') || jsonb_build_object('deleted', deleted)
            );
        end if;
    end loop;
    return counts;
end
$$;
comment on function bds.import_remove(text, uuid, text, jsonb) is
    'Deletes the children that their parents'' arrays no longer contain; returns the counts with theirs';

create or replace function bds.import_collect_errors(company text, import_id uuid)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.find_import(company, import_id);
    errors   text := bds.staging_table(import.number, 'errors');
    first    bigint;
    place    record;
    one      record;
    added    bigint;
    problems bigint := 0;
begin
    for one in execute format(
        'select e.name from bds.entities e where exists (select from %s s where s.entity = e.name) order by e.ordinal', errors)
    loop
        select coalesce(max(e.n), 0) into first from bds.import_errors e where e.company_id = company and e.import_id = import_collect_errors.import_id;
        place := bds.place_of_rows(import.number, one.name);
        execute format(
            $sql$
            insert into bds.import_errors (company_id, import_id, n, path, record, code, message)
            select $1, $2, $3 + row_number() over (order by e.ordinal, e.code = 'batch_failed', e.field nulls first, e.code),
                (%1$s) || coalesce('.' || e.field, ''), %2$s, e.code, e.message
            from %3$s e
            join %4$s r0 on r0."@ordinal" = e.ordinal
            %5$s
            where e.entity = $4
            $sql$,
            place.path, place.lookup, errors, bds.staging_table(import.number, one.name), place.joins
        ) using company, import_id, first, one.name;
        get diagnostics added = row_count;
        problems := problems + added;
    end loop;
    return problems;
end
$$;
comment on function bds.import_collect_errors(text, uuid) is 'Keeps the errors of an import, each with its path in the document; returns how many';

create or replace function bds.place_of_rows(
    import_number bigint, entity_name text,
    out path text, out lookup text, out joins text
)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    level  int := 0;
    this   text := entity_name;
    above  text;
    own    text;
    place  text;
    closed text := '';
begin
    -- r0 is the row, r1 its parent, and so on up; a row without parent stands in the collection of its entity
    joins := '';
    path := '';
    loop
        place := format('coalesce(r%1$s."@position", r%1$s."@ordinal")', level);
        select string_agg(format($sql$%L || nullif(r%s.%I, e'\x01')$sql$, c.name || ':', level, c.name), ', ' order by c.ordinal) into own
        from bds.import_columns c where c.entity = this and c.is_unique;
        lookup := concat_ws(', ', lookup, format('r%s."@id"', level), own);
        above := bds.parent_of(this);
        exit when above is null or to_regclass(bds.staging_table(import_number, above)) is null;
        path := path || format('case when r%s."@parent" is null then %L || %s || %L else ', level, this || '[', place, ']');
        closed := format(' || %L || %s || %L end', '.' || (select e.collection from bds.entities e where e.name = this) || '[', place, ']')
            || closed;
        joins := joins || format(
            E'left join %s r%s on r%s."@ordinal" = r%s."@parent"\n', bds.staging_table(import_number, above), level + 1, level + 1, level);
        this := above;
        level := level + 1;
    end loop;
    path := path || format('%L || %s || %L', this || '[', place, ']') || closed;
    lookup := format('coalesce(%s)', lookup);
end
$$;
comment on function bds.place_of_rows(bigint, text) is
    'SQL for the path of staged rows in the document (products[3].variants[0]), for the lookup they go by, and the joins that both need';
