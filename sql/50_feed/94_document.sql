-- A document as one jsonb, staged in SQL as app/feed/rows.py stages the bytes of a document, without the language of "@where".
-- jsonb keeps neither the order of members nor the first of those with the same name.

create function bds_feed.to_stage(value jsonb, is_boolean boolean)
    returns text
    language sql
    immutable
    return case jsonb_typeof(value)
        when 'null' then e'\x01'
        when 'string' then case when value #>> '{}' ^@ e'\x01' then e'\x01' else '' end || (value #>> '{}')
        when 'number' then value #>> '{}'
        when 'boolean' then case when is_boolean then value #>> '{}' end
    end;
comment on function bds_feed.to_stage(jsonb, boolean) is
    'A value as it is staged: chr(1) is the document''s null; null is a value that is absent or wrong';

create function bds_feed.listed(value jsonb)
    returns jsonb
    language sql
    immutable
    return case jsonb_typeof(value) when 'array' then value when 'null' then '[]' else jsonb_build_array(value) end;
comment on function bds_feed.listed(jsonb) is
    'The records of a collection as an array: an object is an array of one, null is empty';

create function bds_feed.switch(value jsonb)
    returns boolean
    language sql
    immutable
    return case when value in ('true', 'false', '"true"', '"false"') then (value #>> '{}')::boolean end;
comment on function bds_feed.switch(jsonb) is 'The boolean value of a directive; null for anything else';

create function bds_feed.kind_of(value jsonb)
    returns text
    language sql
    immutable
    return case jsonb_typeof(value)
        when 'null' then 'null'
        when 'object' then 'an object'
        when 'array' then 'an array'
        when 'string' then 'text'
        when 'boolean' then 'true or false'
        when 'number' then 'a number'
        else 'nothing'
    end;
comment on function bds_feed.kind_of(jsonb) is 'The kind of a value, for messages';

create or replace function bds.import_document(
    company text, document jsonb, actor text default null, dry_run boolean default false, raise_on_failure boolean default false
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    own_actor      text := coalesce(current_setting('bds.actor', true), '');
    own_change_set text := coalesce(current_setting('bds.change_set', true), '');
    report         jsonb;
begin
    perform bds_feed.enter_company(company);
    perform bds_feed.check_document(document);
    if pg_column_size(document) < 500000 then
        begin
            report := bds_feed.import_whole(company, document, actor, dry_run, raise_on_failure, true);
        exception when program_limit_exceeded then
            null;  -- a value is too long for the tables of a small import
        end;
    end if;
    if report is null then
        report := bds_feed.import_whole(company, document, actor, dry_run, raise_on_failure, false);
    end if;
    -- the import's context ends here
    perform set_config('bds.actor', own_actor, true), set_config('bds.change_set', own_change_set, true);
    return report;
end
$$;
comment on function bds.import_document(text, jsonb, text, boolean, boolean) is
    'Imports a document as POST /api/{companyId}/import does, in the caller''s transaction; returns the report. With '
    'raise_on_failure it raises BD008 if any record failed. BD005 for a malformed document and for @where, BD002 for an unknown '
    'entity';

create function bds_feed.import_whole(
    company text, document jsonb, actor text, dry_run boolean, raise_on_failure boolean, is_small boolean
)
    returns jsonb
    language plpgsql
as $$
declare
    import     bds.imports;
    atomic     text := coalesce(document ->> '@atomic', 'batch');
    whole      text[] := array(
        select split_part(m.key, '@', 1) from jsonb_each(document) m where m.key ~ '.@' and bds_feed.switch(m.value)
    );
    is_merge   boolean := coalesce(document ->> '@mode' = 'merge', false);
    collection record;
    total      bigint := 0;
begin
    if is_small then
        import := bds_feed.small_import(jsonb_build_object(
            'company_id', company, 'actor', bds_impl.actor(actor), 'dry_run', dry_run, 'atomic', atomic,
            'remove_all', whole, 'bytes', octet_length(document::text)), whole);
    else
        import.id := bds.import_begin(company, actor, dry_run);
        import := bds_feed.open_import(company, import.id);
    end if;
    for collection in
        select m.key as entity, array_agg(i.value order by i.n) as records, array_agg(i.n - 1 order by i.n) as positions
        from jsonb_each(document) m
        cross join lateral jsonb_array_elements(bds_feed.listed(m.value)) with ordinality as i (value, n)
        where m.key !~ '@'
        group by m.key
    loop
        perform bds_feed.stage_records(import, collection.entity, null, collection.positions, collection.records, is_merge);
        total := total + cardinality(collection.records);
    end loop;
    if is_small then
        import.records := total;
        return bds_feed.run(import, raise_on_failure);
    end if;
    perform bds_service.import_received(company, import.id, atomic, octet_length(document::text), total, whole);
    return bds.import_run(company, import.id, raise_on_failure => raise_on_failure);
end
$$;
comment on function bds_feed.import_whole(text, jsonb, text, boolean, boolean, boolean) is
    'Begins an import, stages a checked document and runs it; returns the report';

create function bds_feed.check_document(document jsonb)
    returns void
    language plpgsql
    stable
as $$
declare
    member  record;
    problem text;
begin
    if jsonb_typeof(document) is distinct from 'object' then
        raise exception using
            errcode = 'BD005',
            message = format('expected an object with an array for each entity, got %s', bds_feed.kind_of(document));
    end if;
    for member in select m.key, m.value, split_part(m.key, '@', 1) as entity from jsonb_each(document) m loop
        if member.entity <> '' and not exists (select from bds.entities e where e.name = member.entity) then
            raise exception using errcode = 'BD002', message = format('no such entity: %L', member.entity),
                hint = 'expected one of ' || (select string_agg(e.name, ', ' order by e.ordinal) from bds.entities e);
        end if;
        problem := case
            when member.key ~ '@' then bds_feed.wrong_directive(document, member.key, member.value)
            when jsonb_typeof(member.value) not in ('array', 'object', 'null') then
                format('%s: expected an array of records, got %s', member.key, bds_feed.kind_of(member.value))
            else (
                select format('%s[%s]: expected an object, got %s', member.key, i.n - 1, bds_feed.kind_of(i.value))
                from jsonb_array_elements(bds_feed.listed(member.value)) with ordinality as i (value, n)
                where jsonb_typeof(i.value) <> 'object' order by i.n limit 1
            )
        end;
        if problem is not null then
            raise exception using errcode = 'BD005', message = problem;
        end if;
    end loop;
end
$$;
comment on function bds_feed.check_document(jsonb) is
    'Raises BD005, BD002 for an unknown entity, unless it is an import document whose directives at the top are right';

create function bds_feed.wrong_directive(document jsonb, name text, value jsonb)
    returns text
    language sql
    immutable
    return case
        when value = 'null' then null
        when name = '@atomic' then
            case when value not in ('"batch"', 'true', 'false', '"true"', '"false"') then
                format('%s: expected "batch", true or false, got %s', name, value) end
        when name = '@mode' then
            case when value not in ('"array"', '"merge"') then format('%s: expected "array" or "merge", got %s', name, value) end
        when name !~ '^[^@]+@removeAll$' then
            format('%s: no such directive, expected @atomic, @mode or <collection>@removeAll', name)
        when bds_feed.switch(value) is null then format('%s: expected true or false, got %s', name, value)
        when not document ? split_part(name, '@', 1) then
            format('%s: expected an array %s in the document', name, split_part(name, '@', 1))
    end;
comment on function bds_feed.wrong_directive(jsonb, text, jsonb) is
    'What is wrong with a directive at the top of a document, or null';

create function bds_feed.stage_records(
    import bds.imports, entity_name text, parents bigint[], positions bigint[], records jsonb[], is_merge boolean
)
    returns void
    language plpgsql
as $$
declare
    at    bigint;  -- the first ordinal; before, the position of a record that is refused
    child record;
    items record;
begin
    if not import.is_small then
        perform bds.import_stage(import.company_id, import.id, entity_name);
    end if;
    perform bds_feed.open_tables(import, array[entity_name]);
    select u.position into at
    from unnest(positions, records) u (position, record) where jsonb_typeof(u.record -> '@where') <> 'null' limit 1;
    if found then
        raise exception using errcode = 'BD005', message = format('%s[%s].@where: conditions are not read in SQL', entity_name, at),
            hint = format('send the document to POST /api/%s/import, or update the view api.%I', import.company_id, entity_name);
    end if;
    execute format('select coalesce(max("@ordinal") + 1, 0) from pg_temp.%I', 'staged_' || entity_name) into at;
    execute format('select bds_import.%I($1, $2, $3, $4, $5)', 'read_' || entity_name)
        using at, parents, positions, records, is_merge;
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message, is_kept)
    select entity_name, at + w.n - 1, w.field, w.code, w.message, true from bds_feed.wrong_members(entity_name, records) w;
    for child in select * from bds_feed.children_of(entity_name) loop
        select array_agg(at + r.n - 1 order by r.n, i.n) as parents, array_agg(i.n - 1 order by r.n, i.n) as positions,
            array_agg(i.value order by r.n, i.n) as records
        into items
        from unnest(records) with ordinality as r (record, n)
        cross join lateral jsonb_array_elements(bds_feed.listed(r.record -> child.collection)) with ordinality as i (value, n)
        where r.record -> '@operation' is distinct from '"delete"' and jsonb_typeof(i.value) = 'object';
        if items.records is not null then
            perform bds_feed.stage_records(import, child.target, items.parents, items.positions, items.records, is_merge);
        end if;
    end loop;
end
$$;
comment on function bds_feed.stage_records(bds.imports, text, bigint[], bigint[], jsonb[], boolean) is
    'Stages records of an entity with their children; parents: the ordinals of the records that contain them, null at the top';

create function bds_feed.wrong_members(entity_name text, records jsonb[])
    returns table (n bigint, field text, code text, message text)
    language sql
    stable
    begin atomic
        with known (name, kind) as materialized (
            select v.name, case when v.name = 'updatedAt' or v.generated then 'fixed' else v.type end
            from bds.fields v where v.entity = entity_name
            union
            select v.reference, 'reference' from bds.fields v where v.entity = entity_name and v.reference is not null
            union
            select h.collection, 'child' from bds_feed.children_of(entity_name) h
        ),
        member as (
            select r.n, r.record, m.key, m.value, k.kind, jsonb_typeof(m.value) as type, split_part(m.key, '@', 1) as collection,
                m.key ~ '^[^@]+@removeAll$'
                    and exists (select from known c where c.kind = 'child' and c.name = split_part(m.key, '@', 1)) as is_removal
            from unnest(records) with ordinality as r (record, n)
            cross join lateral jsonb_each(r.record) m
            left join known k on k.name = m.key
        ),
        wrong as (
            select m.n, m.key as field,
                case
                    when m.key ~ '@' then 'invalid_directive'
                    when m.kind is null then 'unknown_field'
                    else 'invalid_value'
                end as code,
                case
                    when m.key ~ '@' and m.type = 'null' then null
                    when m.is_removal and bds_feed.switch(m.value) is null then
                        format('expected true or false, got %s', bds_feed.kind_of(m.value))
                    when m.is_removal then
                        case when not m.record ? m.collection then
                            format('expected an array %s in the same record', m.collection) end
                    when m.key = '@operation' then
                        case when m.type <> 'string' then format('expected text, got %s', bds_feed.kind_of(m.value)) end
                    when m.key ~ '@' then format('no such directive: %s', m.key)
                    when m.kind is null then format('%s has no field %s', entity_name, m.key)
                    when m.kind in ('fixed', 'child') or m.type in ('null', 'string', 'number') then null
                    when m.kind = 'bool' and m.type = 'boolean' then null
                    else format('expected a single value, got %s', bds_feed.kind_of(m.value))
                end as message
            from member m
            union all
            select m.n, format('%s[%s]', m.key, i.n - 1), 'invalid_value',
                format('expected an object, got %s', bds_feed.kind_of(i.value))
            from member m cross join lateral jsonb_array_elements(bds_feed.listed(m.value)) with ordinality as i (value, n)
            where m.kind = 'child' and jsonb_typeof(i.value) <> 'object' and m.record -> '@operation' is distinct from '"delete"'
        )
        select w.n, w.field, w.code, w.message from wrong w where w.message is not null;
    end;
comment on function bds_feed.wrong_members(text, jsonb[]) is
    'Members of records that cannot be staged, and why; n numbers the records';
