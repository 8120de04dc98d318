-- The views of schema past.  E has the columns of the entity's view in schema api: its rows as of the version that the session has
-- named.  They are the union of
--
--     E_unchanged   rows that have not changed since that version, read through the indexes of the table, as current rows are
--     E_changed     rows that have, rebuilt from all changes since
--
-- or, where many changes have followed (past.is_deep), of
--
--     E_present     rows that exist now, each rebuilt by itself from its own changes since
--     E_deleted     rows that do not
--
-- so that in the order of ids no row waits for the changes of others.  E_replaced has the values that later changes have replaced,
-- null for others: together with an index of the table it tells which rows may have had a value.
--
-- E_diff and E_ends (4_difference.sql) have the rows that differ, E_versions (5_periods.sql) the versions of rows.
--
-- Settings of the session that the views read; app/database/past.py and bds_past.set_end set them:
--     bds.company
--     bds.version           the id of a change, or 0
--     bds.version_time      when this change was logged: no later change is older, which bounds the months that are read
--     bds.moment            the time of which the state is asked; columns and entities that came later are missing
--     bds.later             the number of changes of the company since
--     bds.since, bds.since_time   the earlier end of a difference (4_difference.sql), as bds.version and bds.version_time
--     bds.grouped_after     the change after which last changes of rows are found at once; empty: in the order of ids
-- bds.version_is_whole is read by queries only (app/query/sql/past.py): whether the transaction of the change ends with it.

create or replace function past.is_deep(entity text)
    returns boolean
    language plpgsql
    stable
    parallel safe
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_past.is_deep(
        current_setting('bds.company', true), entity, coalesce(nullif(current_setting('bds.later', true), ''), '0')::bigint);
end
$$;
comment on function past.is_deep(text) is 'bds_past.is_deep for the version of the session';

create or replace function past.is_altered(entity text)
    returns boolean
    language plpgsql
    stable
    parallel safe
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(bds_change_log.altered_at(entity) > nullif(current_setting('bds.since_time', true), '')::timestamptz, true);
end
$$;
comment on function past.is_altered(text) is
    'Whether a column of the entity was registered, or altered, after the earlier end of the session''s difference: there its '
    'values may be null';

create function bds_past.in_session(parts text)
    returns text
    language sql
    immutable
    return replace(replace(replace(replace(replace(replace(replace(
        parts, '$1', $sql$current_setting('bds.company', true)$sql$),
        '$2', $sql$nullif(current_setting('bds.version', true), '')::bigint$sql$),
        '$3', $sql$nullif(current_setting('bds.version_time', true), '')::timestamptz$sql$),
        '$4', $sql$nullif(current_setting('bds.moment', true), '')::timestamptz$sql$),
        '$5', $sql$nullif(current_setting('bds.since', true), '')::bigint$sql$),
        '$6', $sql$nullif(current_setting('bds.since_time', true), '')::timestamptz$sql$),
        '$7', $sql$nullif(current_setting('bds.grouped_after', true), '')::bigint$sql$
    );
comment on function bds_past.in_session(text) is
    'SQL with $1 to $7 replaced by the settings of the session; the planner evaluates current_setting() only where it stands in '
    'the view itself';

create function bds_past.value(this bds.fields)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        -- the column once had another type, whose values may not be valid now
        case when count(distinct h.type) > 1 then
            'case when pg_input_is_valid(({logged})::text, {type:L}) then ({logged})::{type} end'
            else '({logged})::{type}'
        end,
        'logged', bds_impl.fill(t.logged, 'state', 'g.state', 'field', this.name), 'type', t.shown::text
    )
    from bds_impl.types t
    join bds.column_history h on h.entity = this.entity and h.ordinal = this.ordinal
    where t.name = this.stored
    group by t.name
$$;
comment on function bds_past.value(bds.fields) is 'The value of a field in g.state, with its present type';

create function bds_past.fitted(entity text)
    returns text
    language sql
    stable
as $$
    select coalesce(
        '(g.state || (select coalesce(jsonb_object_agg(v.field, v.value), ''{}'') from (values '
            || string_agg(format('(%L, %s)', f.name, v.value), ', ') || ') v (field, value) where g.state ? v.field))',
        'g.state'
    )
    from bds.fields f
    join bds_impl.types t on t.name = f.stored
    cross join lateral (
        -- char(n) with its padding, as it is logged
        select format(
            case when t.shown = 'text'::regtype
                then 'case when jsonb_typeof(g.state -> %1$L) in (''string'', ''null'') then g.state -> %1$L '
                'else to_jsonb(g.state ->> %1$L) end' else 'to_jsonb(%2$s)' end,
            f.name, bds_change_log.exact(case when t.shown = 'float8'::regtype then 'float8' end, bds_past.value(f))
        )
    ) v (value)
    where f.entity = fitted.entity and f.stored <> 'jsonb'
        and (select count(distinct h.type) from bds.column_history h where h.entity = f.entity and h.ordinal = f.ordinal) > 1;
$$;
comment on function bds_past.fitted(text) is
    'SQL for g.state with the values of columns that had another type once as the views show them, in the form of the log';

create function bds_past.columns(this bds.entities, part text)
    returns text
    language sql
    stable
as $$
    select (
        select string_agg(
            format(
                case
                    -- null before the column was registered
                    when bds_past.begin_of(this.name, f.ordinal) > bds_past.begin_of(this.name)
                    then 'case when $4 >= ' || bds_past.time_literal(bds_past.begin_of(this.name, f.ordinal)) || ' then %s end'
                    else '%s'
                end,
                case
                    when part = 'unchanged' or part = 'present' and f.name = 'id' then present.value
                    when f.name = 'id' then case when part = 'deleted' then 'c.row_id' else 'g.row_id' end
                    when part = 'replaced' then bds_past.value(f)
                    when f.name = 'updatedAt' and part = 'present' then
                        format('case when g.first_id is null then %s else %s end', present.value, bds_past.updated_at())
                    when f.name = 'updatedAt' then bds_past.updated_at()
                    when part = 'deleted' then bds_past.value(f)
                    else format('case when g.state ? %L then %s else %s end', f.name, bds_past.value(f), present.value)
                end
            ) || format(' as %I', f.name),
            E',\n    ' order by f.ordinal
        )
        from bds.fields f
        -- all views have the same types, so that the planner flattens their union
        cross join lateral (select bds_registry.shown(f, format('t.%I', f.column_name))) present (value)
        where f.entity = this.name
    )
$$;
comment on function bds_past.columns(bds.entities, text) is
    'The columns of a part of the past: unchanged, changed, replaced, present or deleted';

create function bds_past.install_views(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    view       text;
    definition text;
begin
    for view, definition in
        with parts (part, company, source) as (
            values ('unchanged', 't.company_id', bds_past.unchanged(this)), ('changed', 'g.company_id', bds_past.changed(this)),
                ('present', 't.company_id', bds_past.present(this)), ('deleted', '$1', bds_past.deleted(this)),
                ('replaced', 'g.company_id', bds_past.replaced(this))
        ),
        selects (part, text) as (
            select p.part, bds_impl.fill(
                E'select {company} as company_id,{more}\n    {columns}\nfrom {source}',
                'company', p.company, 'columns', bds_past.columns(this, p.part), 'source', p.source,
                'more', case when p.part = 'replaced' then ' g.id as "@id",' else '' end)
            from parts p
        )
        select format('past.%I', this.name || '_' || s.part), bds_past.in_session('as ' || s.text) from selects s
        union all
        select format('past.%I', this.name), bds_past.in_session('as ' || string_agg(
            s.text || format(
                ' and %s(select past.is_deep(%L))', case when s.part in ('unchanged', 'changed') then 'not ' end, this.name),
            E'\nunion all\n' order by s.part desc
        ))
        from selects s where s.part <> 'replaced'
        order by 1
    loop
        perform bds_registry.make_view(view, this, definition);
        perform bds_registry.run(format('grant select on %s to bds_operator, bds_reader', view));
    end loop;
    perform bds_registry.run(format(
        'comment on column past.%I."@id" is %L', this.name || '_replaced', 'The change that has replaced the values'));
    perform bds_past.install_difference(this), bds_past.install_periods(this);
end
$$;
comment on function bds_past.install_views(bds.entities) is 'Creates the views of an entity in schema past';
