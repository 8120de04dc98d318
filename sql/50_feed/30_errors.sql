-- Errors of an import, and the records that they fail.

create function bds_feed.has_errors(import_number bigint, entity_names text[] default null)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_any boolean;
begin
    execute format('select exists (select from %s where $1 is null or entity = any ($1))', bds_feed.staging_table(import_number, 'errors'))
        into found_any using entity_names;
    return found_any;
end
$$;
comment on function bds_feed.has_errors(bigint, text[]) is 'Whether anything is wrong with the rows of an import, or with those of some entities';

create function bds_feed.late_errors(import_number bigint)
    returns jsonb
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    errors jsonb;
begin
    execute format('select jsonb_agg(to_jsonb(e)) from %s e where e.is_late', bds_feed.staging_table(import_number, 'errors')) into errors;
    return errors;
end
$$;
comment on function bds_feed.late_errors(bigint) is 'The errors that the writing has found, to outlive what was written; null if there are none';

create function bds_feed.add_errors(import_number bigint, errors jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'insert into %1$s (entity, ordinal, field, code, message, path, record, is_late, is_kept) '
        'select e.entity, e.ordinal, e.field, e.code, e.message, e.path, e.record, e.is_late, true '
        'from jsonb_populate_recordset(null::%1$s, coalesce($1, ''[]'')) e',
        bds_feed.staging_table(import_number, 'errors')
    ) using errors;
end
$$;
comment on function bds_feed.add_errors(bigint, jsonb) is 'Adds errors, as late_errors gives them, which outlive the comparison';

create function bds_feed.note_late(import bds.imports, entity_name text, problems jsonb[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'insert into %1$s (entity, ordinal, field, code, message, is_late) '
        'select $1, e.ordinal, e.field, e.code, e.message, true from unnest($2) as p cross join lateral jsonb_populate_record(null::%1$s, p) e',
        bds_feed.staging_table(import.number, 'errors')
    ) using entity_name, problems;
end
$$;
comment on function bds_feed.note_late(bds.imports, text, jsonb[]) is 'Notes {ordinal, field, code, message} that the writing has found out of records of an entity';

create function bds_feed.fail_late(import bds.imports, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'update pg_temp.%I m set failed = true from %s e where e.entity = $1 and e.ordinal = m.ordinal and e.is_late and not m.failed',
        'map_' || entity_name, bds_feed.staging_table(import.number, 'errors')
    ) using entity_name;
    if import.atomic = 'batch' then
        perform bds_feed.fail_batches(import.number, entity_name, true);
    end if;
    perform bds_feed.count_map(entity_name);
end
$$;
comment on function bds_feed.fail_late(bds.imports, text) is 'Fails the records whose errors were found late, and in batch mode their batches';

create function bds_feed.all_valid(import_number bigint, entity_name text)
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    valid boolean;
begin
    execute format('select not exists (select from %s e where e.entity = $1 and e.code = ''invalid_value'')', bds_feed.staging_table(import_number, 'errors'))
        into valid using entity_name;
    return valid;
end
$$;
comment on function bds_feed.all_valid(bigint, text) is 'Whether no value of the entity was found wrong';

create function bds_feed.mark_known(import_number bigint, members text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    entity_name text;
begin
    if not bds_feed.has_errors(import_number, members) then
        return;
    end if;
    foreach entity_name in array members loop
        if to_regclass('pg_temp.' || quote_ident('map_' || entity_name)) is not null then
            execute format(
                'update pg_temp.%I m set failed = true from %s e where e.entity = %L and e.ordinal = m.ordinal and not m.failed',
                'map_' || entity_name, bds_feed.staging_table(import_number, 'errors'), entity_name
            );
        end if;
    end loop;
end
$$;
comment on function bds_feed.mark_known(bigint, text[]) is 'Marks the rows of a family that have errors of their own';

create function bds_feed.fail_batches(import_number bigint, entity_name text, is_late boolean default false)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        with numbered as (
            select m.ordinal, m.phase, m.position, m.failed,
                (row_number() over (partition by m.phase order by m.ordinal) - 1) / 10000 as number
            from pg_temp.%1$I m where m.parent is null
        ),
        batch as (
            select n.phase, n.number, min(n.ordinal) as first, min(n.position) as low, max(n.position) as high,
                count(*) filter (where n.failed) as failures
            from numbered n group by n.phase, n.number having bool_or(n.failed)
        ),
        marked as (
            update pg_temp.%1$I m set failed = true
            from numbered n join batch b on b.phase = n.phase and b.number = n.number
            where m.ordinal = n.ordinal and not m.failed
        )
        insert into %2$s (entity, ordinal, code, is_late, message)
        select %3$L, b.first, 'batch_failed', $1, format(
            'the batch %%s[%%s..%%s] was not written, because of %%s in it that failed', %3$L, b.low, b.high,
            case b.failures when 1 then 'a record' else b.failures || ' records' end)
        from batch b
        where not exists (select from %2$s e where e.entity = %3$L and e.ordinal = b.first and e.code = 'batch_failed')
        $sql$,
        'map_' || entity_name, bds_feed.staging_table(import_number, 'errors'), entity_name
    ) using is_late;
end
$$;
comment on function bds_feed.fail_batches(bigint, text, boolean) is
    'Fails every batch, 10,000 top-level records of one phase, in which one fails';

create function bds_feed.import_may_write(company text, import_id uuid)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import bds.imports := bds.open_import(company, import_id, 'running');
begin
    return import.atomic <> 'true' or not bds_feed.has_errors(import.number);
end
$$;
comment on function bds_feed.import_may_write(text, uuid) is 'False when all or nothing was asked for and something fails';

create function bds_feed.import_collect_errors(company text, import_id uuid)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    import   bds.imports := bds.open_import(company, import_id);
    errors   text := bds_feed.staging_table(import.number, 'errors');
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
        place := bds_feed.place_of_rows(import.number, one.name);
        execute format(
            $sql$
            insert into bds.import_errors (company_id, import_id, n, path, record, code, message)
            select $1, $2, $3 + row_number() over (order by e.ordinal, e.code = 'batch_failed', e.field nulls first, e.code, e.record),
                coalesce(e.path, (%1$s) || coalesce('.' || e.field, '')), coalesce(e.record, %2$s), e.code, e.message
            from %3$s e
            left join %4$s r0 on r0."@ordinal" = e.ordinal
            %5$s
            where e.entity = $4
            $sql$,
            place.path, place.lookup, errors, bds_feed.staging_table(import.number, one.name), place.joins
        ) using company, import_id, first, one.name;
        get diagnostics added = row_count;
        problems := problems + added;
    end loop;
    return problems;
end
$$;
comment on function bds_feed.import_collect_errors(text, uuid) is 'Keeps the errors of an import, each with its path in the document; returns how many';

create function bds_feed.place_of_rows(
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
        select string_agg(format('%L || (%s)', c.name || ':', bds_feed.staged_text(format('r%s.%I', level, c.name))), ', ' order by c.ordinal) into own
        from bds.import_columns c where c.entity = this and c.is_unique;
        lookup := concat_ws(', ', lookup, bds_feed.staged_text(format('r%s."@id"', level)), own);
        above := bds_feed.parent_of(this);
        exit when above is null or to_regclass(bds_feed.staging_table(import_number, above)) is null;
        path := path || format('case when r%s."@parent" is null then %L || %s || %L else ', level, this || '[', place, ']');
        closed := format(' || %L || %s || %L end', '.' || (select e.collection from bds.entities e where e.name = this) || '[', place, ']')
            || closed;
        joins := joins || format(
            E'left join %s r%s on r%s."@ordinal" = r%s."@parent"\n', bds_feed.staging_table(import_number, above), level + 1, level + 1, level);
        this := above;
        level := level + 1;
    end loop;
    path := path || format('%L || %s || %L', this || '[', place, ']') || closed;
    lookup := format('coalesce(%s)', lookup);
end
$$;
comment on function bds_feed.place_of_rows(bigint, text) is
    'SQL for the path of staged rows in the document (products[3].variants[0]), for the lookup they go by, and the joins that both need';
