-- Erasing: removes old values of a row from the log and its archive, and records the erasure.

create function bds_change_log.names_then(entity text, columns text[], at timestamptz)
    returns text[]
    language sql
    stable
    return (
        select case
            when n.names is null then columns
            else array(select o.key from jsonb_each_text(n.names) o where o.value = any (columns))
        end
        from bds_change_log.names_at(entity, at) as n (names)
    );
comment on function bds_change_log.names_then(text, text[], timestamptz) is
    'The names that columns, given by their present names, had at a time';

create function bds_change_log.erase_values(
    log regclass, company text, entity text, id bigint, columns text[], last_id bigint, out records bigint, out "values" text[]
)
    returns record
    language plpgsql
as $$
begin
    execute bds_impl.fill(
        $sql$
        with found as materialized (
            select l.id, l.created_at, jsonb_object_agg(o.key, null) as erased, array_agg(o.value) as "values"
            from {log} l
            cross join lateral jsonb_each_text(l.old) o
            where l.company_id = $1 and l.row_id = $3 and l.entity = $2 and o.value is not null
                and o.key = any (bds_change_log.names_then($2, $4, l.created_at))
            group by l.id, l.created_at
        ),
        erased as (
            update {log} l set old = l.old || f.erased
            from found f
            where l.company_id = $1 and l.row_id = $3 and l.id = f.id and l.created_at = f.created_at
            returning 1
        )
        select (select count(*) from erased), (select array_agg(distinct v) from found f cross join unnest(f."values") v)
        $sql$,
        'log', log::text
    )
    into records, "values"
    using company, entity, id, columns;
    -- A hash of the row with the value could confirm a guess.  Rows are compared only with their last record, and not with the
    -- archive.
    execute format(
        'update %s l set row_hash = 0 where l.company_id = $1 and l.row_id = $3 and l.entity = $2 and l.row_hash <> 0 '
        'and l.id is distinct from $4',
        log
    )
    using company, entity, id, last_id;
end
$$;
comment on function bds_change_log.erase_values(regclass, text, text, bigint, text[], bigint) is
    'Sets old values of a row''s columns to null, in the log, its archive or a detached month, and the hashes of all of its '
    'records but the last one; returns the number of records and the values';

create function bds_change_log.records_to_erase(
    log regclass, company text, entity text, id bigint, columns text[], last_id bigint
)
    returns bigint[]
    language plpgsql
    stable
as $$
declare
    found bigint[];
begin
    execute format(
        'select array_agg(l.id) from %s l where l.company_id = $1 and l.row_id = $3 and l.entity = $2 and ('
        'l.row_hash <> 0 and l.id is distinct from $5 or exists (select from jsonb_each_text(l.old) o '
        'where o.value is not null and o.key = any (bds_change_log.names_then($2, $4, l.created_at))))',
        log
    )
    into found using company, entity, id, columns, last_id;
    return coalesce(found, '{}');
end
$$;
comment on function bds_change_log.records_to_erase(regclass, text, text, bigint, text[], bigint) is
    'The records that bds_change_log.erase_values changes';

create function bds_change_log.last_record(logs regclass[], company text, entity text, id bigint)
    returns bigint
    language plpgsql
    stable
as $$
declare
    log  regclass;
    last bigint;
begin
    foreach log in array logs loop
        execute format(
            'select greatest($4, max(l.id)) from %s l where l.company_id = $1 and l.row_id = $3 and l.entity = $2', log
        )
        into last
        using company, entity, id, last;
    end loop;
    return last;
end
$$;
comment on function bds_change_log.last_record(regclass[], text, text, bigint) is
    'The id of the last record of a row in some tables of the log; null if there is none';

create function bds_change_log.erase_quotes(company text, "values" text[])
    returns void
    language sql
as $function$
    update bds.import_errors e set message = 'erased', record = null
    where e.company_id = company and exists (
        select from unnest("values") v
        where substr(e.record, strpos(e.record, ':') + 1) = v
            -- a message quotes the first 100 characters
            or strpos(
                replace(e.message, $$''$$, $$'$$), case when length(v) < 4 then quote_literal(v) else left(v, 100) end
            ) > 0
    );
$function$;
comment on function bds_change_log.erase_quotes(text, text[]) is 'Empties errors of imports that quote any of these values';

create function bds_change_log.nulled(state jsonb, names text[])
    returns jsonb
    language sql
    immutable
    return case jsonb_typeof(state)
        when 'object' then
            state || (select coalesce(jsonb_object_agg(n, null), '{}') from unnest(names) n where state ? n)
        else state
    end;
comment on function bds_change_log.nulled(jsonb, text[]) is 'The values of a row, with null in place of those of some columns';

create function bds_change_log.erase_previews(company text, entity text, id bigint, columns text[])
    returns void
    language sql
as $$
    update bds.imports i set preview = (
        select jsonb_agg(
            case p.row ->> 'row'
                when format('%s/%s', entity, erase_previews.id) then
                    p.row || jsonb_build_object(
                        'old', bds_change_log.nulled(p.row -> 'old', n.names),
                        'new', bds_change_log.nulled(p.row -> 'new', n.names)
                    )
                else p.row
            end
            order by p.number
        )
        from jsonb_array_elements(i.preview) with ordinality p (row, number)
        cross join bds_change_log.names_then(entity, columns, i.started_at) n (names)
    )
    where i.company_id = company
        and i.preview @> jsonb_build_array(jsonb_build_object('row', format('%s/%s', entity, erase_previews.id)))
$$;
comment on function bds_change_log.erase_previews(text, text, bigint, text[]) is
    'Sets the values of a row''s columns to null in what dry runs of undos would change';

create function bds_change_log.require_columns(entity text, columns text[])
    returns void
    language plpgsql
    stable
as $$
#variable_conflict use_variable
declare
    known text[];
begin
    select array_agg(k.name) into known
    from (
        select f.name from bds.fields f where f.entity = entity
        union
        select n.value from bds.column_history h cross join lateral jsonb_each_text(bds_change_log.names_at(entity, h.since)) n
        where h.entity = entity
    ) k
    where k.name not in ('id', 'updatedAt');
    if known is null then
        raise exception using errcode = 'BD002', message = format('no such entity: %s', coalesce(quote_literal(entity), 'null'));
    elsif columns is null or columns = '{}' or not columns <@ known then
        raise exception using
            errcode = 'BD005',
            message = format(
                'expected some of the columns %s, got %s', array_to_string(known, ', '), coalesce(columns::text, 'null')
            );
    end if;
end
$$;
comment on function bds_change_log.require_columns(text, text[]) is
    'Raises BD002 unless the entity exists, BD005 unless these are some of its columns that can be erased, of now or of then';

create or replace function bds.erase(company text, entity text, id bigint, columns text[])
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $function$
#variable_conflict use_variable
declare
    -- detached months may become a part of the log again
    logs    constant regclass[] := array['bds.change_log', 'bds.change_archive']::regclass[]
        || array(select m from bds_change_log.detached_months() m);
    log     regclass;
    last_id bigint;
    part    record;
    records bigint := 0;
    opened  jsonb;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator erases values of the change log';
    end if;
    if id is null then
        raise exception using errcode = 'BD005', message = 'expected the id of a row, got null';
    end if;
    perform bds.lock_company(company);  -- no writer logs another value meanwhile
    perform bds_change_log.require_columns(entity, columns);
    last_id := bds_change_log.last_record(logs, company, entity, id);
    opened := bds_seals.open_ranges(company, bds_seals.ranges_of(company, (
        select array_agg(r) from unnest(logs) l
        cross join unnest(bds_change_log.records_to_erase(
            l, company, entity, id, columns, case when l <> 'bds.change_archive'::regclass then last_id end
        )) r
    )));
    foreach log in array logs loop
        part := bds_change_log.erase_values(
            log, company, entity, id, columns, case when log <> 'bds.change_archive'::regclass then last_id end
        );
        records := records + part.records;
        perform bds_change_log.erase_quotes(company, part."values");
    end loop;
    perform bds_change_log.erase_previews(company, entity, id, columns);
    insert into bds.erasures (company_id, entity, row_id, columns, records, actor, db_user)
    values (
        company, entity, id, columns, records,
        bds_impl.actor(), session_user
    );
    perform bds_audit.note(
        company, 'erase', format('row %s/%s', entity, id),
        jsonb_build_object('columns', columns, 'records', records) || bds_seals.closed(company, opened)
    );
    return records;
end
$function$;
comment on function bds.erase(text, text, bigint, text[]) is
    'Removes the old values of a row''s columns (API names) from the change log, its archive, detached months that are still in '
    'schema bds, errors of imports and dry runs of undos: they read as null from then on. bds.erasures records what was erased, '
    'when and by whom. The row itself is not changed: change or delete it first. Returns the number of records that had such a '
    'value';
