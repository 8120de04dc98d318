-- The views of schema past.  E has the columns of the entity's view in schema api: its rows as of the version that the session has
-- named.  They are the union of E_unchanged, rows that have not changed since that version, and E_changed, rows that have.
--
-- E_unchanged is read through the indexes of the table, as current rows are; E_changed rebuilds its rows from the changes since.
-- E_replaced has the values that these changes have replaced, null for others: together with an index of the table it tells which
-- changed rows may have had a value, so that the others need not be rebuilt.
--
-- Settings of the session that the views read; app/database/past.py sets them:
--     bds.company
--     bds.version           the id of a change, or 0
--     bds.version_time      when this change was logged: no later change is older, which bounds the months that are read
--     bds.moment            the time of which the state is asked; columns and entities that came later are missing
--     bds.since, bds.since_time   the earlier end of a difference (4_difference.sql), as bds.version and bds.version_time
-- bds.version_is_whole is read by queries only (app/query/sql/past.py): whether the transaction of the change ends with it.

create function bds_past.in_session(parts text)
    returns text
    language sql
    immutable
    return replace(replace(replace(replace(replace(replace(
        parts, '$1', $sql$current_setting('bds.company', true)$sql$),
        '$2', $sql$current_setting('bds.version', true)::bigint$sql$),
        '$3', $sql$current_setting('bds.version_time', true)::timestamptz$sql$),
        '$4', $sql$current_setting('bds.moment', true)::timestamptz$sql$),
        '$5', $sql$current_setting('bds.since', true)::bigint$sql$),
        '$6', $sql$current_setting('bds.since_time', true)::timestamptz$sql$
    );
comment on function bds_past.in_session(text) is
    'SQL with $1 to $6 replaced by the settings of the session; the planner evaluates current_setting() only where it stands in '
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
            f.name, bds_past.value(f)
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
                    when part = 'unchanged' then present.value
                    when f.name = 'id' then 'g.row_id'
                    when part = 'replaced' then bds_past.value(f)
                    when f.name = 'updatedAt' then bds_past.updated_at()
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
comment on function bds_past.columns(bds.entities, text) is 'The columns of a view of the past: changed, unchanged or replaced';

create function bds_past.install_views(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    view       text;
    definition text;
begin
    for view, definition in
        with parts (part, row, source) as (
            values ('unchanged', 't', bds_past.unchanged(this)), ('changed', 'g', bds_past.changed(this)),
                ('replaced', 'g', bds_past.replaced(this))
        ),
        selects as (
            select p.part, bds_impl.fill(
                E'select {row}.company_id,\n    {columns}\nfrom {source}',
                'row', p.row, 'columns', bds_past.columns(this, p.part), 'source', p.source) as text
            from parts p
        )
        select format('past.%I', this.name || '_' || s.part), bds_past.in_session('as ' || s.text) from selects s
        union all
        select format('past.%I', this.name), bds_past.in_session('as ' || string_agg(s.text, E'\nunion all\n' order by s.part desc))
        from selects s where s.part <> 'replaced'
        order by 1
    loop
        perform bds_registry.make_view(view, this, definition);
        perform bds_registry.run(format('grant select on %s to bds_operator, bds_reader', view));
    end loop;
    perform bds_past.install_difference(this);
end
$$;
comment on function bds_past.install_views(bds.entities) is 'Creates the views of an entity in schema past';
