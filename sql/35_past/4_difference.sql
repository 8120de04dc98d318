-- The difference of two versions: the rows that differ, each as it was at the one end and as it is at the other.
--
-- It is found from the log alone: a row that differs has a change between the two, and its last one stands for it.  From the
-- current row the later changes are undone, which gives the later end; from that the changes in between, which gives the earlier
-- one.  So the time follows the changes that are read, and a page in the order of the changes begins where the last one has ended.
--
-- Where rows change again and again, most changes are not the last of their row: to find that out for each takes longer than to
-- group all changes by their rows.  So the last changes are found in one of two ways: in the order of ids, or all that come after a
-- change at once.
--
-- Beside $1 to $4 (1_parts.sql), which are of the later end, $5 is the version of the earlier end, $6 its time, and $7 the change
-- after which last changes are found at once; null: they are found in the order of ids.

create or replace function past.last_changes(
    company text, entity text, after bigint, after_time timestamptz, until bigint, until_time timestamptz
)
    returns table (row_id bigint, id bigint)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_custom_plan
    -- groups are hashed, in as much memory as half a million rows need; more of them go to the disk
    set work_mem = '32MB'
as $$
declare
    begins timestamptz := greatest(after_time, bds_past.begin_of(entity));
begin
    perform bds.require_company(company);
    return query
        select l.row_id, max(l.id)
        from bds.change_log l
        where l.company_id = company and l.entity = last_changes.entity and l.id > after and l.id <= until
            and l.created_at >= begins and l.created_at <= until_time
        group by l.row_id;
end
$$;
comment on function past.last_changes(text, text, bigint, timestamptz, bigint, timestamptz) is
    'The last change of each row of an entity among those after one version up to another, whose times are given, too';

create or replace function past.json_of(value double precision)
    returns json
    language sql
    immutable
    parallel safe
    strict
    set extra_float_digits = 1
    return to_json(value);
comment on function past.json_of(double precision) is 'A double as JSON with all its digits, whatever the session has set';

create function bds_past.last_of_rows(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.expand($sql$
    (
        select c.row_id, c.id
        from bds.change_log c
        where c.company_id = $1 and c.entity = {entity:L} and c.id > $5 and c.id <= $2
            and c.created_at >= (select $6) and c.created_at <= (select $3) and (select $7) is null
            and not exists (  -- a later change of the row stands for it
                select 1 from {changes_between} and l.id <= (select $2) and l.created_at <= (select $3)
            )
        order by c.id
    )
    union all
    (
        select g.row_id, g.id
        from past.last_changes($1, {entity:L}, $7, $6, $2, $3) g
        where (select $7) is not null
        order by g.id
    )
    $sql$, jsonb_build_object(
        'entity', this.name, 'changes_between', bds_past.later_of_row(this.name, 'c.row_id', 'c.id', '(select $6)')));
$$;
comment on function bds_past.last_of_rows(bds.entities) is
    'The query of the last change between two versions of each row of an entity, in the order of ids: row by row, or of all rows '
    'at once';

create function bds_past.difference_scope(this bds.entities)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        'entity', this.name, 'table', this.table_name::text, 'updated_at', bds_past.updated_at(),
        'fitted', bds_past.fitted(this.name),
        'present', format('json_object(%s returning json)::jsonb', bds_change_log.row_members(this, 't')),
        'later', bds_past.merged(this, bds_past.later_of_row(this.name, 'c.row_id')),
        'between', bds_past.merged(
            this, bds_past.later_of_row(this.name, 'c.row_id', '(select $5)', '(select $6)') || ' and l.id <= c.id'
        ),
        'changed', bds_past.last_of_rows(this),
        'fields', jsonb_agg(
            jsonb_build_object(
                'field', f.name, 'n', f.ordinal, 'value', bds_past.value(f), 'compared', f.name not in ('id', 'updatedAt'),
                -- the session may have doubles printed with fewer digits
                'as_text', case when t.shown = 'float8'::regtype then '' else '::text' end)
            order by f.ordinal),
        'names', array_agg(f.name order by f.ordinal)::text,
        -- columns that the entity got later
        'late', coalesce(
            jsonb_agg(jsonb_build_object('field', f.name, 'begins', bds_past.time_literal(b.column_since)) order by f.ordinal)
                filter (where b.column_since > b.since),
            'null')
    )
    from bds.fields f
    join bds_impl.types t on t.name = f.stored
    cross join lateral (select bds_past.begin_of(f.entity), bds_past.begin_of(f.entity, f.ordinal)) b (since, column_since)
    where f.entity = this.name;
$$;
comment on function bds_past.difference_scope(bds.entities) is 'What the template of bds_past.difference may say of an entity';

create function bds_past.difference(this bds.entities)
    returns text
    language sql
    stable
as $$
    select bds_impl.expand($sql$
select $1 collate "C" as company_id, c.row_id, c.id as "@version", d.columns as "@columns", l.state as "@new", e.state as "@old",
    case
        when e.state is null and l.state is not null then 'create'
        when l.state is null and e.state is not null then 'delete'
        when l.state is not null then 'update'
    end as "@operation"
    {each fields}
    , n.{field:I}, o.{field:I} as "@{n}"
    {end fields}
from (
    {changed}
) c
left join lateral (
    -- of all indexes the key alone has this order
    select o.* from {table} o where o.company_id = (select $1) and o.id between c.row_id and c.row_id order by o.id limit 1
) t on true
cross join lateral (
    select case
        when g.first_id is null then case when t.id is not null then {present} end
        when g.first_id is distinct from g.created_id
            then {present} || {fitted} || jsonb_build_object('id', c.row_id, 'updatedAt', {updated_at})
    end{each late} - case when $4 < {begins} then {field:L} else '' end{end late} as state
    from {later} g
    offset 0
) l
cross join lateral (
    select case
        when g.first_id is distinct from g.created_id
            then coalesce(l.state, '{}') || {fitted} || jsonb_build_object('id', c.row_id, 'updatedAt', {updated_at})
    end{each late} - case when $6 < {begins} then {field:L} else '' end{end late} as state
    from {between} g
    offset 0
) e
cross join lateral (select {each fields|, }{value} as {field:I}{end fields} from (select l.state) g) n
cross join lateral (select {each fields|, }{value} as {field:I}{end fields} from (select e.state) g) o
cross join lateral (
    select case
        when e.state is null and l.state is null then '{}'::text[]
        when e.state is null or l.state is null then {names:L}::text[]
        else array_remove(array[
            {each fields|,
            }{if compared}
            case when o.{field:I}{as_text} is distinct from n.{field:I}{as_text} then {field:L} end
            {else compared}
            null
            {end compared}
            {end fields}
        ]::text[], null)
    end as columns
    offset 0
) d
    $sql$, bds_past.difference_scope(this));
$$;
comment on function bds_past.difference(bds.entities) is
    'The query of the rows of an entity that changed between two versions: company_id, row_id, "@version" (the last change in '
    'between), "@operation" (null for a row that came and went), "@columns" (those that differ; of a create or delete all; none '
    'for a row that does not differ), "@old" and "@new" (whole rows, null where there was none), and each field of the later end '
    'under its name, of the earlier end under the number of its column, "@5"';

create function bds_past.install_difference(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    scope jsonb := bds_past.difference_scope(this) || jsonb_build_object('rows', bds_past.in_session(bds_past.difference(this)));
    view  text;
    part  record;
begin
    for part in values
        ('ends', 'as select d.company_id, d.row_id as "@id", d."@version", d."@operation", d."@columns"
    {each fields}
    , d.{field:I}, d."@{n}"
    {end fields}
from ({rows}) d
where (select past.require_registered({entity:L}))'),
        ('diff', 'as select d."@operation", d."@version", d."@columns"
    {each fields}
    , case when d."@operation" = ''delete'' then d."@{n}" else d.{field:I} end as {field:I}
    {end fields}
from ({rows}) d
where (select past.require_registered({entity:L})) and d."@columns" <> ''{}''')
    loop
        view := format('past.%I', this.name || '_' || part.column1);
        perform bds_registry.make_view(view, this, bds_impl.expand(part.column2, scope));
        perform bds_registry.run(format('grant select on %s to bds_operator, bds_reader', view));
        perform bds_registry.run(format('comment on column %s.%I is %L', view, c.name, c.description))
        from (
            values (0, '@id', 'The row''s id', 'ends'), (0, '@version', 'The row''s last change between the two versions', null),
                (0, '@operation', 'create, update or delete', 'diff'),
                (0, '@operation', 'create, update or delete; null: it was created and deleted between the two versions', 'ends'),
                (0, '@columns', 'The fields that differ; of a create or delete all', 'diff'),
                (0, '@columns', 'The fields that differ; of a create or delete all; none where only updatedAt does', 'ends')
            union all
            select f.ordinal, '@' || f.ordinal, f.name || ' as of the earlier version', 'ends'
            from bds.fields f where f.entity = this.name
        ) c (n, name, description, alone)
        where c.alone is null or c.alone = part.column1
        order by c.n, c.name;
    end loop;
end
$$;
comment on function bds_past.install_difference(bds.entities) is
    'Creates past."<entity>_diff", the rows that differ between the versions that the session has named (bds.set_range), and '
    'past."<entity>_ends", all rows that changed between them, with the values of both ends';

create or replace function bds.diff(company text, entity text, from_version bigint, to_version bigint)
    returns table (row_id bigint, operation text, columns text[], old jsonb, new jsonb, version bigint)
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
    -- each row by its index, as a page is read: what is between two versions is little beside the log
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off
as $$
#variable_conflict use_variable
declare
    this     bds.entities;
    since_at timestamptz;
    until_at timestamptz;
begin
    perform bds.require_company(company);
    this := bds_change_log.entity_of(entity);
    perform bds_past.check_range(company, from_version, to_version, entity);
    since_at := bds_past.time_of(company, from_version);
    until_at := bds_past.time_of(company, to_version);
    return query execute format(
        $sql$
        select d.row_id, d."@operation", d."@columns",
            case when d."@operation" <> 'create' then (select jsonb_object_agg(k, d."@old" -> k) from unnest(d."@columns") k) end,
            case when d."@operation" <> 'delete' then (select jsonb_object_agg(k, d."@new" -> k) from unnest(d."@columns") k) end,
            d."@version"
        from (%s) d
        where d."@columns" <> '{}'
        order by d."@version"
        $sql$,
        bds_past.difference(this)
    )
    using company, to_version, until_at, until_at, from_version, since_at, from_version;
end
$$;
comment on function bds.diff(text, text, bigint, bigint) is
    'The rows of an entity that differ between two versions, in the order of their last changes in between: operation (create, '
    'update, delete), columns, and their values at the two ends, of a create or delete the whole row, as bds.row_at gives it; '
    'version is that last change. updatedAt is not compared. Raises BD002, BD005 and BD006 as bds.version_of does, BD005 for ends '
    'in the wrong order, BD006 for a version at which the entity was not registered';
