-- Parts of the SQL that rebuilds an entity's rows as of a moment.  In them $1 is the company, $2 the version, $3 the time of that
-- version (bds_past.time_of), from which the log is read, and $4 the time whose columns the rows have.  That is the version's time
-- too, unless the moment is a time: a table may be registered, or a column added, between two changes of a company.
--
-- A row without a later change is as it was.  Other rows are rebuilt: the old values of all later changes of a row are merged, with
-- those of earlier changes replacing those of later ones, and then replace the values of the current row.

create function bds_past.is_deep(company text, entity text, later bigint)
    returns boolean
    language sql
    stable
as $$
    select later > 10000 + 0.3 * coalesce(
        bds_impl.rows_of(company, (select e.table_name from bds.entities e where e.name = is_deep.entity)), 0
    );
$$;
comment on function bds_past.is_deep(text, text, bigint) is
    'Whether so many changes lie between a version and now that each row of an entity is rebuilt by itself. Otherwise all later '
    'changes are read at once, which takes 10 us a change, but 1 us for a row without one; by itself a row takes 4 us and each of '
    'its changes 1.5 us';

create function bds_past.time_literal(at timestamptz)
    returns text
    language sql
    stable
    return quote_literal(case when isfinite(at) then bds_service.api_time(at) else at::text end);
comment on function bds_past.time_literal(timestamptz) is 'A time as a literal, the same whatever the session has set';

create function bds_past.around(company text, version bigint, out logged_at timestamptz, out is_whole boolean)
    language sql
    stable
as $$
    select
        case
            when version = 0 then '-infinity'
            else coalesce(
                max(l.created_at) filter (where l.id = version),
                -- the last version that is not kept: just before the next change
                max(l.created_at) - interval '1 microsecond',
                'infinity'
            )
        end,
        count(distinct l.transaction_id) = count(*)
    from bds.change_log l
    where l.company_id = company and l.id in (version, version + 1)
        -- months before are not searched
        and l.created_at >= coalesce(
            (select max(m.month) from bds.change_months m where m.company_id = company and m.first_id <= version), '-infinity'
        );
$$;
comment on function bds_past.around(text, bigint) is
    'What the change of a version and the next one tell: the time of the version, see bds_past.time_of, and whether they are of '
    'two transactions';

create function bds_past.time_of(company text, version bigint)
    returns timestamptz
    language sql
    stable
    return (select a.logged_at from bds_past.around(company, version) a);
comment on function bds_past.time_of(text, bigint) is
    'The time of a version: that of its change; -infinity for version 0';

create function bds_past.begin_of(entity text, ordinal int default null)
    returns timestamptz
    language sql
    stable
    return (
        select min(h.since) from bds.column_history h
        where h.entity = begin_of.entity and h.ordinal = coalesce(begin_of.ordinal, h.ordinal)
    );
comment on function bds_past.begin_of(text, int) is
    'The time at which an entity, or a column of its table, was first registered; -infinity if the table had no rows yet';

create function bds_past.model_time(company text, version bigint)
    returns timestamptz
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select case
        when version > 0 then bds_past.time_of(company, version)
        -- the empty company: an entity that had rows before is registered if they were those of others
        else least(
            (select c.created_at from bds.companies c where c.id = company),
            (select l.created_at from bds.change_log l where l.company_id = company and l.id = 1))
    end;
$$;
comment on function bds_past.model_time(text, bigint) is
    'The time whose registered entities and columns a version has: that of its change; for version 0 the begin of the company';

create function bds_past.is_registered(company text, entity text, version bigint)
    returns boolean
    language sql
    stable
    return coalesce(bds_past.begin_of(entity) <= bds_past.model_time(company, version), true);
comment on function bds_past.is_registered(text, text, bigint) is
    'Whether an entity was registered at a version of a company, so that the log has all changes of its rows since; true for no '
    'entity';

create function bds_past.is_then(entity text)
    returns text
    language sql
    stable
    return coalesce(
        (select format('$4 >= %s', bds_past.time_literal(b)) from bds_past.begin_of(entity) b where b > '-infinity'),
        $sql$$4 > '-infinity'$sql$
    );
comment on function bds_past.is_then(text) is
    'SQL for a condition: the entity was registered at the time; before, it has no rows. Version 0, the empty company, has the '
    'time -infinity';

create function bds_past.since(entity text)
    returns text
    language sql
    stable
as $$
    select coalesce(
        (select ' and l.created_at >= ' || bds_past.time_literal(b) from bds_past.begin_of(entity) b where b > '-infinity'), ''
    );
$$;
comment on function bds_past.since(text) is
    'SQL for a further condition on changes l of an entity: not those of another table that was registered under its name before';

create function bds_past.later(entity text, version text default '$2', at text default '$3')
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        'bds.change_log l where l.company_id = $1 and l.entity = {entity:L} and l.id > {version} and l.created_at >= {at}{since}',
        'entity', entity, 'version', version, 'at', at, 'since', bds_past.since(entity)
    );
$$;
comment on function bds_past.later(text, text, text) is
    'SQL for the changes l of an entity after a version, whose time is given, too';

create function bds_past.unchanged(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        -- The addition keeps the planner from merging both by id: for a page it would read the log of all lesser ids.
        '{table} t where t.company_id = $1 and {is_then} and not exists (select 1 from {later} and l.row_id = t.id + 0)',
        'table', this.table_name::text, 'is_then', bds_past.is_then(this.name), 'later', bds_past.later(this.name)
    )
$$;
comment on function bds_past.unchanged(bds.entities) is 'SQL for the rows t without a later change';

create function bds_past.old_value(entity text)
    returns text
    language sql
    stable
as $$
    with bounds as (
        select b.at, lead(b.at) over (order by b.at) as until
        from (
            select h.since as at from bds.column_history h where h.entity = old_value.entity
            union
            select h.until from bds.column_history h where h.entity = old_value.entity and h.until < 'infinity'
        ) b
    ),
    times as (
        select b.*, bds_change_log.names_at(old_value.entity, b.at) as names,
            bds_change_log.texts_at(old_value.entity, b.at) as texts
        from bounds b
        where b.until is not null
    )
    select coalesce(
        'case ' || string_agg(
            -- as bds_change_log.old_at, which readers may not call
            bds_impl.fill(
                'when l.created_at >= {at} and l.created_at < {until} then coalesce((select jsonb_object_agg('
                'coalesce({names:L}::jsonb ->> o.key, o.key), {value}) from jsonb_each(l.old) o), ''{}''::jsonb)',
                'at', bds_past.time_literal(t.at), 'until', bds_past.time_literal(t.until), 'names', t.names::text,
                'value', case when t.texts is null then 'o.value' else bds_impl.fill(
                    'case when o.value = ''null'' then o.value '
                    'when {texts:L}::jsonb ->> o.key = ''jsonb'' then to_jsonb(o.value::text) '
                    'when {texts:L}::jsonb ->> o.key = ''bpchar'' then to_jsonb(rtrim(o.value #>> ''{}'', '' '')) else o.value end',
                    'texts', t.texts::text
                ) end
            ),
            ' ' order by t.at
        ) || ' else l.old end',
        'l.old'
    )
    from times t
    where t.texts is not null or exists (select from jsonb_each_text(t.names) n where n.key <> n.value);
$$;
comment on function bds_past.old_value(text) is
    'SQL for the old values of a change l under the present names of their columns; of a column that is text now, as the text that '
    'it was';

create function bds_past.changed(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$(
    select l.company_id, l.row_id, past.merge({old} order by l.id desc) as state, min(l.last_updated_at) as updated_at,
        min(l.id) as first_id, min(l.id) filter (where l.operation = 'delete') as deleted_id
    from {later}
    group by l.company_id, l.row_id
    -- a row whose first later change creates it did not exist
    having min(l.id) is distinct from min(l.id) filter (where l.operation = 'create')
) g
left join {table} t on t.company_id = $1 and t.id = g.row_id
where {is_then}$sql$,
        'old', bds_past.old_value(this.name), 'later', bds_past.later(this.name), 'table', this.table_name::text,
        'is_then', bds_past.is_then(this.name)
    )
$$;
comment on function bds_past.changed(bds.entities) is
    'SQL for the rows with a later change: g with the merged old values (state), t with the current row, null if it was deleted';

create function bds_past.later_of_row(
    entity text, row_id text, version text default '(select $2)', at text default '(select $3)'
)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        -- Whatever the planner knows of a company, changes of a row can only be found by the row: other conditions are outside.
        '(select o.* from bds.change_log o where o.row_id = {row} and o.id > {version} and o.created_at >= {at} offset 0) l '
        'where l.company_id = (select $1) and l.entity = {entity:L}{since}',
        'row', row_id, 'version', version, 'at', at, 'entity', entity, 'since', bds_past.since(entity)
    );
$$;
comment on function bds_past.later_of_row(text, text, text, text) is
    'SQL for the changes l of a row after a version, whose time is given, too. Settings are read in subqueries: once for a query, '
    'where the planner need not know them';

create function bds_past.merged(this bds.entities, changes text)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$(
        select past.merge({old} order by l.id desc) as state, min(l.last_updated_at) as updated_at, min(l.id) as first_id,
            min(l.id) filter (where l.operation = 'create') as created_id,
            min(l.id) filter (where l.operation = 'delete') as deleted_id
        from {changes}
    )$sql$,
        'old', bds_past.old_value(this.name), 'changes', changes
    );
$$;
comment on function bds_past.merged(bds.entities, text) is
    'SQL for the changes l of a row as one row: their merged old values (state); nulls if there are none';

create function bds_past.present(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        '{table} t cross join lateral {later} g where t.company_id = $1 and {is_then}'
        -- a row whose first later change creates it did not exist
        ' and (g.first_id is null or g.first_id is distinct from g.created_id)',
        'table', this.table_name::text, 'is_then', bds_past.is_then(this.name),
        'later', bds_past.merged(this, bds_past.later_of_row(this.name, 't.id'))
    )
$$;
comment on function bds_past.present(bds.entities) is
    'SQL for the rows that exist now, each by itself: t with its later changes g, nulls if there are none';

create function bds_past.deleted(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$(
    select distinct l.row_id
    from past.ranges_with($1, {entity:L}, $2) r
    cross join lateral (select l.* from {deletes} and l.id >= r.first_id and l.id <= r.last_id offset 0) l
    where l.operation = 'delete' and not exists (select from {table} t where t.company_id = $1 and t.id = l.row_id)
) c
cross join lateral {later} g
where {is_then} and g.first_id is distinct from g.created_id$sql$,
        'entity', this.name, 'deletes', bds_past.later(this.name), 'table', this.table_name::text,
        'is_then', bds_past.is_then(this.name),
        'later', bds_past.merged(this, bds_past.later_of_row(this.name, 'c.row_id'))
    )
$$;
comment on function bds_past.deleted(bds.entities) is
    'SQL for the rows c that do not exist any more, each by itself, with their later changes g';

create function bds_past.replaced(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        '(select l.company_id, l.id, l.row_id, {old} as state from {later}) g',
        'old', bds_past.old_value(this.name), 'later', bds_past.later(this.name)
    )
$$;
comment on function bds_past.replaced(bds.entities) is 'SQL for the later changes g with their old values (state)';

create function bds_past.updated_at()
    returns text
    language sql
    immutable
    return $sql$case when g.deleted_id = g.first_id then (g.state ->> 'updatedAt')::timestamptz else g.updated_at end$sql$;
comment on function bds_past.updated_at() is
    'SQL for the updatedAt of a rebuilt row: a delete logs it with the row, an update by itself';
