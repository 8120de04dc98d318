-- The views of schema past, with the columns of the views of schema api.  Each entity has two: one of the rows that have not changed
-- since the version that the session has named, and one of the rows that have.  Together they are the rows as of that version.
--
-- The first is read through the indexes of the table, as current rows are; the second rebuilds its rows from the changes since.

create function bds_past.in_session(parts text)
    returns text
    language sql
    immutable
    return replace(replace(replace(
        parts, '$1', $sql$current_setting('bds.company', true)$sql$),
        '$2', $sql$current_setting('bds.version', true)::bigint$sql$),
        '$3', $sql$current_setting('bds.version_time', true)::timestamptz$sql$
    );
comment on function bds_past.in_session(text) is
    'SQL with $1 to $3 replaced by the session''s settings, which the planner evaluates if the view itself contains them';

create function bds_past.columns(this bds.entities, is_rebuilt boolean)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select (
        select string_agg(
            format(
                case
                    -- null before the column was registered
                    when bds_past.begin_of(this.name, f.ordinal) > bds_past.begin_of(this.name)
                    then 'case when $3 >= ' || bds_past.moment(bds_past.begin_of(this.name, f.ordinal)) || ' then %s end'
                    else '%s'
                end,
                case
                    when not is_rebuilt then present.value
                    when f.name = 'id' then 'g.row_id'
                    when f.name = 'updatedAt' then bds_past.updated_at()
                    else bds_impl.fill(
                        'case when g.state ? {name:L} then {old} else {present} end',
                        'name', f.name, 'present', present.value,
                        'old', bds_impl.fill(
                            -- the column once had another type, whose values may not be valid now
                            case when h.types > 1 then 'case when pg_input_is_valid({text}, {type:L}) then ({text})::{type} end'
                                else '({text})::{type}'
                            end,
                            'text', format('g.state ->> %L', f.name), 'type', b.typname::text
                        )
                    )
                end
            ) || format(' as %I', f.name),
            E',\n    ' order by f.ordinal
        )
        from bds.fields f
        join pg_attribute a on a.attrelid = this.table_name and a.attnum = f.ordinal
        join pg_type t on t.oid = a.atttypid
        join pg_type b on b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
        cross join lateral (
            -- both views have the same types, so that the planner flattens their union
            select format(case when t.typtype = 'd' then 't.%I::' || b.typname else 't.%I' end, f.column_name) as value
        ) present
        cross join lateral (
            select count(distinct c.type) as types from bds.column_history c where c.entity = this.name and c.ordinal = f.ordinal
        ) h
        where f.entity = this.name
    )
$$;
comment on function bds_past.columns(bds.entities, boolean) is 'The columns of a view of the past';

create function bds_past.install_views(this bds.entities)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    view text;
begin
    foreach view in array array['changed', 'unchanged'] loop
        perform bds_registry.make_view(
            format('past.%I', this.name || '_' || view), this,
            bds_past.in_session(bds_impl.fill(
                E'as select {row}.company_id,\n    {columns}\nfrom {rows}',
                'row', case view when 'changed' then 'g' else 't' end,
                'columns', bds_past.columns(this, view = 'changed'),
                'rows', case view when 'changed' then bds_past.changed(this) else bds_past.unchanged(this) end
            ))
        );
        perform bds_registry.run(format('grant select on past.%I to bds_operator, bds_reader', this.name || '_' || view));
    end loop;
end
$$;
comment on function bds_past.install_views(bds.entities) is 'Creates the views of an entity''s rows as of a version';
