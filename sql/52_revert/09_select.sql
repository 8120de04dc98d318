-- Undoing: which changes.  A selection is an object, as clients give it and, checked, as bds.imports keeps it:
--
--     changeSet           a change set; or
--     to                  rows become as they were at that version: all later changes are undone; or
--     from, to            the changes after the one version up to the other, if it is given
--     entities, rows      these alone, with their children: ["products"], ["products/code:A1", "orders/12"]; checked, rows are ids
--                         of each entity: {"products": [1, 2]}
--     actor               the changes of this actor alone
--     late                checked: entities that were registered after the version

create function bds_revert.checked(company text, given jsonb)
    returns jsonb
    language plpgsql
    stable
as $$
declare
    known   constant text[] := '{changeSet,to,from,entities,rows,actor}';
    wrong   text := (select min(k) from jsonb_object_keys(given) k where k <> all (known));
    missing text := (select min(m.key) from jsonb_each(given) m where m.value = 'null');
    checked jsonb := given - 'rows';
    name    text;
begin
    if wrong is not null then
        raise exception using errcode = 'BD005', message = format('expected %s, got %s', array_to_string(known, ', '), wrong);
    elsif missing is not null then  -- without it more would be undone
        raise exception using
            errcode = 'BD005',
            message = case
                when missing in ('from', 'to') then 'expected a version (the id of a change, or 0), got null'
                else format('%s: expected a value, got null', missing)
            end;
    elsif (given ? 'changeSet')::int + (given ? 'to' or given ? 'from')::int <> 1 then
        raise exception using errcode = 'BD005', message = 'expected a change set, to, or from with or without to';
    elsif given ? 'actor' and given ? 'to' and not given ? 'from' then
        raise exception using
            errcode = 'BD005', message = 'expected no actor with to alone: rows become as they were, whoever changed them';
    end if;
    if given ? 'changeSet' then
        perform bds_revert.require(company, (given ->> 'changeSet')::uuid);
    end if;
    for name in select n from unnest(array['from', 'to']) n where given ? n loop
        checked := checked || jsonb_build_object(name, bds.version_of(company, given ->> name));
    end loop;
    if given ? 'from' and given ? 'to' then
        if (checked -> 'from')::bigint > (checked -> 'to')::bigint then
            raise exception using
                errcode = 'BD005',
                message = format(
                    'version %s comes after version %s: expected the earlier one first', checked -> 'from', checked -> 'to'
                );
        end if;
    end if;
    select min(coalesce(quote_literal(e), 'null')) into name
    from jsonb_array_elements_text(coalesce(given -> 'entities', '[]')) e
    where not exists (select from bds.entities o where o.name = e);
    if name is not null then
        raise exception using errcode = 'BD002', message = format('no such entity: %s', name);
    end if;
    if given ? 'rows' then
        checked := checked || jsonb_build_object('rows', bds_revert.found(company, checked, given -> 'rows'));
    end if;
    return checked;
end
$$;
comment on function bds_revert.checked(text, jsonb) is
    'A selection with ids in place of versions and lookups. Raises BD005 for a malformed one, BD002 for what there is not, BD004 '
    'for an import under way, BD006 for what is no longer kept';

create function bds_revert.version_before(company text, selection jsonb)
    returns bigint
    language sql
    stable
as $$
    select case
        when selection ? 'changeSet' then (
            select min(l.id) - 1 from bds.change_log l
            where l.company_id = company and l.change_set_id = (selection ->> 'changeSet')::uuid)
        else coalesce(selection -> 'from', selection -> 'to')::bigint
    end;
$$;
comment on function bds_revert.version_before(text, jsonb) is
    'The version before the first change of a checked selection; null of a change set that changed nothing';

create function bds_revert.begins(company text, selection jsonb)
    returns timestamptz
    language plpgsql
    stable
as $$
declare
    version bigint;
begin
    if selection ? 'changeSet' then
        return bds_revert.require(company, (selection ->> 'changeSet')::uuid);
    end if;
    version := bds.version_of(company, bds_revert.version_before(company, selection)::text);
    return (select v.logged_at from bds_service.find_version(company, version) v);
end
$$;
comment on function bds_revert.begins(text, jsonb) is
    'The time from which on a checked selection has changes, null if there are none; raises BD006 if they are no longer kept';

create function bds_revert.found(company text, selection jsonb, rows jsonb)
    returns jsonb
    language plpgsql
    stable
as $$
declare
    version bigint := bds_revert.version_before(company, selection);
    this    record;
    found   jsonb := '{}';
    row_id  bigint;
begin
    for this in
        select r.text, split_part(r.text, '/', 1) as entity, k.kind, k.value, f.column_name
        from jsonb_array_elements_text(rows) r (text)
        cross join lateral (select substr(r.text, strpos(r.text, '/') + 1)) l (lookup)
        cross join lateral (select bds_feed.lookup_kind(l.lookup), bds_feed.lookup_value(l.lookup)) k (kind, value)
        left join bds.entities e on e.name = split_part(r.text, '/', 1)
        left join bds.fields f on f.entity = e.name and f.name = k.kind and (f.is_unique or f.name = 'id')
    loop
        if this.text !~ '^[^/]+/.' or this.kind = '' then
            raise exception using
                errcode = 'BD005',
                message = format('expected a row such as "products/code:A1" or "products/12", got %L', this.text);
        elsif not exists (select from bds.entities e where e.name = this.entity) then
            raise exception using errcode = 'BD002', message = format('no such entity: %L', this.entity);
        elsif this.column_name is null then
            raise exception using
                errcode = 'BD005',
                message = format('%L is not a lookup of %s: expected id or a unique field', this.kind, this.entity);
        end if;
        row_id := coalesce(
            case
                when bds_past.is_registered(company, this.entity, version) then
                    bds_revert.row_of(company, this.entity, this.kind, this.value, version)
            end,
            bds_revert.row_of(company, this.entity, this.kind, this.value, null)
        );
        if row_id is null then
            raise exception using errcode = 'BD002', message = format('no such row: %s, neither then nor now', this.text);
        end if;
        found := found || jsonb_build_object(this.entity, coalesce(found -> this.entity, '[]') || to_jsonb(row_id));
    end loop;
    return found;
end
$$;
comment on function bds_revert.found(text, jsonb, jsonb) is
    'The ids of the rows of texts such as "products/code:A1", by entity: as of the version before the selection, or else now. '
    'Raises BD005, BD002';

create function bds_revert.row_of(company text, entity_name text, kind text, value text, version bigint)
    returns bigint
    language plpgsql
    stable
as $$
declare
    this   bds.entities := (select e from bds.entities e where e.name = entity_name);
    field  bds.fields := (select f from bds.fields f where f.entity = entity_name and f.name = kind);
    row_id bigint;
begin
    if version is not null then  -- a row that has not changed since is found by its present value
        select d.row_id into row_id
        from bds.diff(company, entity_name, version, bds.version_of(company, (
            select v.last_id::text from bds_service.find_version(company) v))) d
        where case kind when 'id' then d.row_id::text else d.old ->> kind end = value;
    else
        execute format('select t.id from %s t where t.company_id = $1 and t.%I::text = $2', this.table_name, field.column_name)
            into row_id using company, value;
    end if;
    return row_id;
end
$$;
comment on function bds_revert.row_of(text, text, text, text, bigint) is
    'The id of the row that a lookup names now or, of rows that have changed since, at a version; null if there is none';

create function bds_revert.read_scope(import bds.imports, since timestamptz)
    returns void
    language plpgsql
as $$
declare
    version bigint := bds_revert.version_before(import.company_id, import.undoes);
    child   record;
    added   bigint := 1;
begin
    insert into pg_temp.revert_scope (entity, id)
    select e, null from jsonb_array_elements_text(coalesce(import.undoes -> 'entities', '[]')) e
    union all
    select e.key, i::bigint
    from jsonb_each(coalesce(import.undoes -> 'rows', '{}')) e cross join jsonb_array_elements_text(e.value) i;
    while added > 0 loop  -- until no further children are found
        added := 0;
        for child in
            select distinct s.entity, c.target, c.table_name, c.column_name, f.name as field
            from pg_temp.revert_scope s
            cross join lateral bds_feed.children_of(s.entity) c
            join bds.fields f on f.entity = c.target and f.column_name = c.column_name
        loop
            execute bds_impl.fill(
                $sql$
                with parents as (select s.id from pg_temp.revert_scope s where s.entity = {parent:L})
                insert into pg_temp.revert_scope (entity, id)
                select {child:L}, c.id
                from (
                    select null::bigint as id from parents p where p.id is null
                    union
                    select t.id from {table} t where t.company_id = $1 and t.{column:I} in (select p.id from parents p)
                    union  -- those that were children then: not those that came and went in between
                    select l.row_id from bds.change_log l
                    where l.company_id = $1 and l.entity = {child:L} and l.created_at >= $2
                        and (l.old ->> {field:L})::bigint in (select p.id from parents p)
                        and l.id = (
                            select min(o.id) from bds.change_log o
                            where o.row_id = l.row_id and o.company_id = $1 and o.entity = {child:L} and o.id > $3
                                and o.created_at >= $2 and (o.operation = 'create' or o.old ? {field:L})
                        )
                ) c
                where not exists (
                    select from pg_temp.revert_scope s where s.entity = {child:L} and s.id is not distinct from c.id
                )
                $sql$,
                'parent', child.entity, 'child', child.target, 'table', child.table_name::text, 'column', child.column_name,
                'field', child.field
            ) using import.company_id, coalesce(since, 'infinity'), version;
            get diagnostics added = row_count;
            exit when added > 0;
        end loop;
    end loop;
end
$$;
comment on function bds_revert.read_scope(bds.imports, timestamptz) is
    'Fills revert_scope with the entities and rows that an undo is restricted to, and with their children, now and then';

create function bds_revert.late_entities(company text, selection jsonb)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_agg(e.name order by e.ordinal)
    from bds.entities e
    where not selection ? 'changeSet'
        and not bds_past.is_registered(company, e.name, bds_revert.version_before(company, selection))
$$;
comment on function bds_revert.late_entities(text, jsonb) is
    'The entities that were registered after a version; null if there are none';

create function bds_revert.leave_late(import bds.imports)
    returns text[]
    language plpgsql
as $$
declare
    version bigint := bds_revert.version_before(import.company_id, import.undoes);
    late    record;
    notices text[] := array(
        select format('%s was registered after version %s: its rows stay as they are', e, version)
        from jsonb_array_elements_text(coalesce(import.undoes -> 'late', '[]')) e
    );
begin
    for late in
        select f.entity, e.table_name, array_agg(f.name order by f.ordinal) as names
        from bds.fields f
        join bds.entities e on e.name = f.entity
        cross join lateral (select bds_past.begin_of(f.entity), bds_past.begin_of(f.entity, f.ordinal)) b (since, column_since)
        where not import.undoes ? 'changeSet'
            and b.column_since > greatest(b.since, bds_past.model_time(import.company_id, version))
            and f.entity in (select r.entity from pg_temp.revert_rows r)
        group by f.entity, e.table_name
    loop
        execute format(
            'update pg_temp.revert_rows r set old = r.old - $1 from %s t where r.entity = $2 and t.company_id = $3 and t.id = r.id',
            late.table_name
        ) using late.names, late.entity, import.company_id;
        notices := notices || array(
            select format('%s.%s was registered after version %s: its values stay as they are', late.entity, n, version)
            from unnest(late.names) n
        );
    end loop;
    return notices;
end
$$;
comment on function bds_revert.leave_late(bds.imports) is
    'Removes columns that were registered later from the old values of rows that exist; returns notices of what stays';
