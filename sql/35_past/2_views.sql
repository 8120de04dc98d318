-- The views of schema past, which have the columns of the views of schema api: of each entity one with the rows that have not
-- changed since the version that the session has named, and one with those that have. Both together are the rows of then.
--
-- The first is read through the indexes of the table like the present rows; the second rebuilds its rows from the changes since.

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
    'SQL for the company, the version and its time that the session has named: in the view itself, where the planner sees them';

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
                    -- not there yet: null
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
                            -- a value of another type that the column had
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
            -- both views have the same types: the planner then takes their union apart
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
