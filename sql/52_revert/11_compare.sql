-- Reverting: the rows as they are and as they are to become again.  A table for each entity, revert_<entity>:
--
--     "@n"       the row's number
--     "@action"  create, update or delete, null if nothing is to be done
--     "@differs" an old value is not the present one
--     "@later"   others have changed it later, and it is not as the change set left it
--     "@failed"  it stays as it is, revert_errors says why
--     "@last"    values that can be written last alone (bds_revert.make_way), "@alone" if nothing else of the row changes
--     id, and every column as it is to become; of an update all but revert_entities.touched are those that are stored

create function bds_revert.columns_of(entity_name text)
    returns table (
        field text, column_name name, type text, sql_type text, required boolean, default_expression text, is_unique boolean, target text,
        logged text, is_altered boolean
    )
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select f.name, c.column_name, c.type, c.sql_type, c.required, c.default_expression, c.is_unique, c.target, t.logged,
        -- what the log has may not be a value of the present type
        exists (
            select from bds.column_history h where h.entity = c.entity and h.ordinal = c.ordinal and h.until < 'infinity'
        )
    from bds.import_columns c
    join bds.fields f on f.entity = c.entity and f.column_name = c.column_name
    join bds_impl.types t on t.name = c.type
    where c.entity = entity_name
    order by c.ordinal;
$$;
comment on function bds_revert.columns_of(text) is 'The columns of an entity that can be written';

create function bds_revert.note_entities()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    record;
    known   text[];
begin
    for this in
        select e.name, e.rank, e.table_name
        from bds_feed.entities e
        where e.name in (select r.entity from pg_temp.revert_rows r)
        order by e.rank
    loop
        execute format(
            'select array_remove(array[%s]::text[], null) from pg_temp.revert_rows r where r.entity = $1 and r.existed',
            (
                select string_agg(format('case when bool_or(r.old ? %L) then %L end', c.field, c.column_name), ', ')
                from bds_revert.columns_of(this.name) c
            )
        ) into known using this.name;
        insert into pg_temp.revert_entities (name, rank, table_name, touched) values (this.name, this.rank, this.table_name, known);
    end loop;
    -- of a table that is not registered any more, or was another one then, nothing can be undone
    insert into pg_temp.revert_errors (entity, n, code, message)
    select r.entity, r.n, 'conflict', format('%s is not an entity any more, or another table', r.entity)
    from pg_temp.revert_rows r
    where not exists (
        select from bds.column_history h join bds_feed.entities e on e.name = h.entity where h.entity = r.entity and h.since <= r.since
    );
end
$$;
comment on function bds_revert.note_entities() is 'Fills revert_entities';

create function bds_revert.note_actions(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        update pg_temp.revert_entities e set creates = x.creates, updates = x.updates, deletes = x.deletes
        from (
            select coalesce(bool_or(u."@action" = 'create'), false) as creates, coalesce(bool_or(u."@action" = 'update'), false) as updates,
                coalesce(bool_or(u."@action" = 'delete'), false) as deletes
            from pg_temp.%I u
        ) x
        where e.name = $1
        $sql$,
        'revert_' || entity_name
    ) using entity_name;
end
$$;
comment on function bds_revert.note_actions(text) is 'Notes in revert_entities what the rows of an entity need';

create function bds_revert.lists_of(entity_name text, touched text[])
    returns table (names text, "values" text, unfit text, differences text, changes text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select
        string_agg(format('w.%I', c.column_name), ', '),
        string_agg(
            format(
                'case when r.known ? %L then %s else %s end as %I', c.field, v.known,
                case when c.default_expression is null then format('t.%I', c.column_name)
                    else format('case when t.id is null then %s else t.%I end', c.default_expression, c.column_name) end,
                c.column_name
            ),
            E',\n            '
        ),
        string_agg(format('when not pg_input_is_valid((%s)::text, %L) then %L', v.logged, c.sql_type, c.field), ' ') filter (where c.is_altered),
        string_agg(bds_impl.fill('t.{column:I} is distinct from w.{column:I}', 'column', c.column_name), ' or ') filter (where c.column_name = any (touched)),
        string_agg(format('case when r.left_as ? %L then t.%I is distinct from %s else false end', c.field, c.column_name, v.left_as), ' or ')
    from bds_revert.columns_of(entity_name) c
    cross join lateral (
        select case
            when c.is_altered then 'case when pg_input_is_valid(({logged})::text, {type:L}) then ({logged})::{type} end' else '({logged})::{type}'
        end
    ) as x (template)
    cross join lateral (
        select bds_impl.fill(c.logged, 'state', 'r.known', 'field', c.field), bds_impl.fill(c.logged, 'state', 'r.left_as', 'field', c.field)
    ) as l (known, left_as)
    cross join lateral (
        select l.known, bds_impl.fill(x.template, 'logged', l.known, 'type', c.sql_type),
            bds_impl.fill(x.template, 'logged', l.left_as, 'type', c.sql_type)
    ) as v (logged, known, left_as);
$$;
comment on function bds_revert.lists_of(text, text[]) is
    'Parts of the statement of bds_revert.compare: the columns w, their values, which of these are not of the present type, and conditions: '
    'an old value is not the present one; what others have changed is not as the change set left it';

create function bds_revert.compare(company text, this record, force boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    list record;
begin
    select * into list from bds_revert.lists_of(this.name, this.touched);
    execute bds_impl.fill(
        $sql$
        create temporary table {rows:I} on commit drop as
        select r.n as "@n", w.id,
            case
                when not r.existed then case when t.id is not null then 'delete' end
                when t.id is null then 'create'
                when r.erased is not null or {differences} then 'update'
            end as "@action",
            coalesce({differences}, false) as "@differs",
            r.later is not null and (
                r.left_as is null or r.has_left <> (t.id is not null) or t.id is not null and ({changes})
            ) as "@later",
            false as "@failed", null::jsonb as "@last", false as "@alone", {unfit} as "@unfit", {names}
        from (
            -- what was erased cannot come back: a row that stays keeps what it has
            select r.*, case when r.erased is null then r.old else r.old - r.erased end as known
            from pg_temp.revert_rows r
            where r.entity = {entity:L} and not exists (select from pg_temp.revert_errors x where x.n = r.n)
            offset 0
        ) r
        left join {table} t on t.company_id = (select $1) and t.id = r.id
        cross join lateral (
            select r.id,
            {values}
            offset 0
        ) w
        $sql$,
        'rows', 'revert_' || this.name, 'entity', this.name, 'table', this.table_name::text, 'names', list.names, 'values', list.values,
        'differences', coalesce(list.differences, 'false'), 'changes', coalesce(list.changes, 'false'),
        'unfit', coalesce('case ' || list.unfit || ' end', 'null::text')
    ) using company;
    execute format('analyze pg_temp.%I', 'revert_' || this.name);
    perform bds_revert.find_conflicts(this.name, force);
    perform bds_revert.note_actions(this.name);
end
$$;
comment on function bds_revert.compare(text, record, boolean) is
    'Makes revert_<entity> of an entity of revert_entities, and finds the rows of it that conflict with later changes';

create function bds_revert.find_conflicts(entity_name text, force boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_revert.fail(
        entity_name,
        bds_impl.fill(
            $sql$
            select u."@n" as n,
                case when {erased} then r.erased[1] else u."@unfit" end as field,
                'conflict' as code,
                case
                    when u."@action" = 'create' and not r.is_whole then format('change %s by %s has deleted it', r.later, r.later_by)
                    when {erased} then 'the old value was erased'
                    when u."@unfit" is not null then format('the old value %s is not one of the present type', r.old ->> u."@unfit")
                    else format('changed later, by change %s of %s', r.later, r.later_by)
                end as message
            from pg_temp.{rows:I} u join pg_temp.revert_rows r on r.n = u."@n"
            where u."@action" is not null
                and (
                    not {force} and u."@later" or {erased}
                    or u."@unfit" is not null or u."@action" = 'create' and not r.is_whole
                )
            $sql$,
            'rows', 'revert_' || entity_name, 'force', force::text,
            -- forced, what else there is of the row is undone
            'erased', case when force then $sql$(r.erased is not null and u."@action" = 'update' and not u."@differs")$sql$
                else '(r.erased is not null)' end
        ),
        null
    );
    perform bds_revert.fail(
        entity_name,
        bds_impl.fill(
            $sql$
            select u."@n" as n, {field:L} as field, 'required' as code, 'a value is required, and no old one is known' as message
            from pg_temp.{rows:I} u
            where u."@action" in ('create', 'update') and u.{column:I} is null
            $sql$,
            'rows', 'revert_' || entity_name, 'field', c.field, 'column', c.column_name
        ),
        null
    )
    from bds_revert.columns_of(entity_name) c
    where c.required;
end
$$;
comment on function bds_revert.find_conflicts(text, boolean) is 'Fails the rows that others changed later, and those whose old values are not known or not valid';

create function bds_revert.fail(entity_name text, query text, company text)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    failed bigint;
begin
    execute bds_impl.fill(
        $sql$
        with problems as ({query}),
        marked as (
            update pg_temp.{rows:I} u set "@failed" = true
            from problems p
            where u."@n" = p.n and not u."@failed"
            returning p.n, p.field, p.code, p.message
        )
        insert into pg_temp.revert_errors (entity, n, field, code, message) select {entity:L}, m.n, m.field, m.code, m.message from marked m
        $sql$,
        'query', query, 'rows', 'revert_' || entity_name, 'entity', entity_name
    ) using company;
    get diagnostics failed = row_count;
    return failed;
end
$$;
comment on function bds_revert.fail(text, text, text) is
    'Fails the rows of an entity that a query returns as (n, field, code, message), $1 being the company; returns how many';
