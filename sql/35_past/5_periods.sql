-- The versions of rows with the time for which each was valid, between two versions of the company.
--
-- A row's last change up to the earlier end (a row of nulls if there is none) and its later changes each begin a version of the
-- row, which the next one ends.  The state of a version is the current row with the later changes undone.
-- $1 to $6 are as for a difference.

create function bds_past.periods_scope(this bds.entities)
    returns jsonb
    language sql
    stable
as $$
    select bds_past.difference_scope(this) || jsonb_build_object(
        'old', bds_past.old_value(this.name), 'changes_since', bds_past.later(this.name, '$5', '$6'),
        'changes_of_row', bds_past.later_of_row(this.name, 'c.row_id', '(select $5)', '(select $6)'),
        'before_of_row', bds_impl.fill(
            'bds.change_log l where l.row_id = c.row_id and l.company_id = $1 and l.entity = {entity:L} and l.id <= $5 '
            'and l.created_at <= $6 and l.created_at >= {begins}',
            'entity', this.name, 'begins', bds_past.time_literal(bds_past.begin_of(this.name)))
    );
$$;
comment on function bds_past.periods_scope(bds.entities) is 'What the template of bds_past.periods may say of an entity';

create function bds_past.periods(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.expand($sql$
select c.company_id, c.row_id, v.id as "@version", v.created_at as "@validFrom",
    case when v.next_id <= $2 then v.next_at end as "@validTo", s.state as "@state"
    {each fields}
    , n.{field:I}
    {end fields}
from (
    select t.company_id, t.id as row_id from {table} t where t.company_id = $1
    union
    select l.company_id, l.row_id from {changes_since} and l.operation = 'delete'
) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from {table} o where o.company_id = (select $1) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select k.id, k.operation, k.created_at, lag(k.id) over newest_first as next_id, lag(k.created_at) over newest_first as next_at,
        lag(k.operation) over newest_first as next_operation, lag(k.last_updated_at) over newest_first as updated_at,
        past.merge(k.old) over (newest_first rows between unbounded preceding and 1 preceding) as undone
    from (
        select l.id, l.operation, l.created_at, l.last_updated_at, {old} as old from {changes_of_row}
        union all
        (
            select l.id, l.operation, l.created_at, null::timestamptz as last_updated_at, null::jsonb as old from {before_of_row}
            union all
            select null::bigint as id, null::bds.operation as operation, null::timestamptz as created_at,
                null::timestamptz as last_updated_at, null::jsonb as old
            order by id desc nulls last limit 1
        )
    ) k
    window newest_first as (order by k.id desc nulls last)
) v
cross join lateral (
    select case
        when v.next_id is null then case when t.id is not null then {present} end
        else {present} || coalesce({fitted}, '{}') || jsonb_build_object('id', c.row_id, 'updatedAt', case v.next_operation
            when 'delete' then (v.undone ->> 'updatedAt')::timestamptz else v.updated_at end)
    end{each late} - case when v.next_at <= {begins} or $4 < {begins} then {field:L} else '' end{end late} as state
    from (select v.undone) g (state)
    offset 0
) s
cross join lateral (select {each fields|, }{value} as {field:I}{end fields} from (select s.state) g) n
where (v.id <= $2 or v.id is null) and v.operation is distinct from 'delete' and s.state is not null
    and (v.id is not null or v.next_operation is distinct from 'create')
    $sql$, bds_past.periods_scope(this));
$$;
comment on function bds_past.periods(bds.entities) is
    'The query of the versions of an entity''s rows that were valid between two versions: company_id, row_id, "@version" (the '
    'change that began it, null for what was there before the log), "@validFrom", "@validTo" (null while it is valid at the later '
    'end), "@state" (the row) and each field';

create function bds_past.install_periods(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    view text := format('past.%I', this.name || '_versions');
begin
    perform bds_registry.make_view(view, this, bds_impl.expand(
        'as select p."@version", p."@validFrom", p."@validTo"
    {each fields}
    , p.{field:I}
    {end fields}
from ({rows}) p
where (select past.require_registered({entity:L}))',
        bds_past.periods_scope(this) || jsonb_build_object('rows', bds_past.in_session(bds_past.periods(this)))));
    perform bds_registry.run(format('grant select on %s to bds_operator, bds_reader', view));
    perform bds_registry.run(format('comment on column %s.%I is %L', view, c.name, c.description))
    from (
        values ('@version', 'The change that began this version of the row; null if it was there before the log'),
            ('@validFrom', 'When it began'), ('@validTo', 'When the next one, or none, took its place; null while it is valid')
    ) c (name, description);
end
$$;
comment on function bds_past.install_periods(bds.entities) is
    'Creates past."<entity>_versions": the versions of rows that were valid between the versions that the session has named '
    '(bds.set_range), each with its time';

create or replace function bds.versions_between(company text, entity text, from_version bigint, to_version bigint)
    returns table (row_id bigint, version bigint, valid_from timestamptz, valid_to timestamptz, "row" jsonb)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    -- the settings with which the log triggers store old values
    set timezone = 'UTC'
    set extra_float_digits = 1
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
    -- the changes of a row are found by its index alone, not also by the one of their times
    set enable_bitmapscan = off
    set jit = off
as $$
#variable_conflict use_variable
declare
    this     bds.entities;
    until_at timestamptz;
begin
    perform bds.require_company(company);
    this := bds_change_log.entity_of(entity);
    perform bds_past.check_range(company, from_version, to_version, entity);
    until_at := bds_past.time_of(company, to_version);
    return query execute format(
        $sql$
        select p.row_id, p."@version", p."@validFrom", p."@validTo",
            (select jsonb_object_agg(k, p."@state" -> k) from unnest(%L::text[]) k where p."@state" ? k)
        from (%s) p
        $sql$,
        bds_past.periods_scope(this) ->> 'names', bds_past.periods(this)
    )
    using company, to_version, until_at, until_at, from_version, bds_past.time_of(company, from_version);
end
$$;
comment on function bds.versions_between(text, text, bigint, bigint) is
    'Every version of a row of an entity that was valid at some moment after from_version up to to_version, in no order: the '
    'change that began it (null for what was there before the log), the time from valid_from up to, but without, valid_to (null '
    'while it is valid at to_version), and the row as bds.row_at gives it. Raises as bds.diff';
