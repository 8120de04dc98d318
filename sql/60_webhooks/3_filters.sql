-- Evaluates filters of hooks on rows as changes left them: the current row with later changes undone.
--
-- A compiled filter is SQL text that a worker has stored.  It runs in bds_webhooks.match_filters, which belongs to bds_reader: it
-- reads the views of the API, and neither hooks nor their secrets.

create function bds_webhooks.shape_of(joins text, condition text, types text[])
    returns text
    language sql
    stable
    return encode(sha256(convert_to(jsonb_build_array(joins, condition, types)::text, 'UTF8')), 'hex');
comment on function bds_webhooks.shape_of(text, text, text[]) is
    'The name of a compiled filter''s text: filters that differ only in values have the same name';

-- For the filter price > 10 the branch is
--
--     select h.id, t.bds_id from t join (
--         select h.id, (h."values"[1])::numeric as p0 from h where h.shape = '...' offset 0
--     ) h on t.price > h.p0
create function bds_webhooks.filter_branch(filter bds.hook_filters)
    returns text
    language plpgsql
    stable
as $$
begin
    return bds_impl.fill(
        $sql$select h.id, t.bds_id
from t{joins} join (
    select h.id{parameters} from h where h.shape = {shape:L} offset 0
) h on {condition}$sql$,
        'joins', filter.joins,
        'parameters', coalesce(
            (
                select string_agg(format(', (h."values"[%s])::%s as p%s', n, type::regtype, n - 1), '' order by n)
                from unnest(filter.types) with ordinality as parameters (type, n)
            ),
            ''
        ),
        'shape', filter.shape,
        'condition', filter.condition
    );
end
$$;
comment on function bds_webhooks.filter_branch(bds.hook_filters) is
    'The query of changes and of all hooks whose filter has the shape of this one';

create function bds_webhooks.filter_columns(entity_name text)
    returns text
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select string_agg(
        case when a.attname = 'company_id' then '$1'
            else format('case when g.state ? %L then %s else n.%I end', f.name, bds_past.value(f), f.name)
        end,
        ', ' order by a.attnum
    )
    from pg_attribute a left join bds.fields f on f.entity = entity_name and f.name = a.attname
    where a.attrelid = format('api.%I', entity_name)::regclass and a.attnum > 0 and not a.attisdropped;
$$;
comment on function bds_webhooks.filter_columns(text) is
    'The columns of an entity''s view, of those values that g.state has, else of the present row n';

create function bds_webhooks.log_terms(entity_name text, out old text, out since text)
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select bds_past.old_value(entity_name), bds_past.since(entity_name);
$$;
comment on function bds_webhooks.log_terms(text) is
    'SQL for the old values of a change l under present names, and for a further condition on changes l of an entity';

create function bds_webhooks.changes_to_match(entity_name text)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$f as (
    select l.row_id, min(l.id) as first_id
    from bds.changes l
    where l.company_id = $1 and l.entity = {entity:L} and l.id > $2 and l.id <= $3 and l.created_at >= $4{since}
    group by l.row_id
),
-- all records of these rows from the first of the changes on: later changes are undone
r as (
    select l.id, l.row_id, l.operation, l.last_updated_at, {old} as old
    from f
    cross join lateral (
        select x.id, x.row_id, x.operation, x.old, x.last_updated_at, x.created_at from bds.changes x
        where x.row_id = f.row_id and x.company_id = $1 and x.entity = {entity:L} and x.id >= f.first_id and x.created_at >= $4
        offset 0
    ) as l
),
u as (
    select r.id as bds_id, r.row_id as bds_row, case r.operation when 'delete' then r.old end as bds_state,
        past.merge(
            case r.operation when 'update' then r.old || jsonb_build_object('updatedAt', r.last_updated_at) else r.old end
        ) over (
            partition by r.row_id order by r.id desc rows between unbounded preceding and 1 preceding
        ) as bds_undone
    from r
),
c as materialized (select u.* from u where u.bds_id <= $3)$sql$,
        'entity', entity_name, 'since', t.since, 'old', t.old
    )
    from bds_webhooks.log_terms(entity_name) t;
$$;
comment on function bds_webhooks.changes_to_match(text) is
    'WITH query c: the changes to match, each with its row, the row itself if it was deleted, and the old values of later changes, '
    'to be merged into the current row';

create function bds_webhooks.filter_statement(company text, entity_name text, shapes text[])
    returns text
    language plpgsql
    stable
as $$
begin
    -- $1 company, $2 and $3 the ids before the first and of the last change, $4 the first one's month, $5 the hooks.  A row and its
    -- later changes are read here together: in two snapshots the row would have changes that are not undone.
    return bds_impl.fill(
        $sql$
with {changes},
h as materialized (select h.* from jsonb_to_recordset($5) as h (id uuid, shape text, "values" text[])),
t as materialized (
    select c.bds_id, v.*
    from c
    cross join lateral (
        -- of all indexes the key alone has this order
        select n.* from api.{entity:I} n where n.company_id = $1 and n.id between c.bds_row and c.bds_row order by n.id limit 1
    ) as v
    where c.bds_state is null and c.bds_undone is null
    union all
    select c.bds_id, {columns}
    from c
    cross join lateral (select coalesce(c.bds_state, c.bds_undone)) as g (state)
    left join lateral (
        select n.* from api.{entity:I} n
        where n.company_id = $1 and n.id between c.bds_row and c.bds_row and c.bds_state is null order by n.id limit 1
    ) as n on true
    where g.state is not null
)
{branches}$sql$,
        'entity', entity_name,
        'changes', bds_webhooks.changes_to_match(entity_name),
        'columns', bds_webhooks.filter_columns(entity_name),
        'branches', (
            select string_agg(bds_webhooks.filter_branch(f), ' union all ' order by f.shape)
            from (
                select distinct on (f.shape) f.* from bds.hook_filters f
                where f.company_id = company and f.entity = entity_name and f.shape = any (shapes)
                order by f.shape
            ) f
        )
    );
end
$$;
comment on function bds_webhooks.filter_statement(text, text, text[]) is
    'The statement that evaluates filters of these shapes on the rows of an entity as changes left them. The same hooks give the '
    'same text, for which the session has a plan';

create function bds_webhooks.match_filters(
    statement name, company text, from_id bigint, to_id bigint, since timestamptz, hooks jsonb,
    out hook_id uuid, out change_id bigint
)
    returns setof record
    language plpgsql
    security definer  -- bds_reader: see 99_grants.sql
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute format('execute %I (%L, %L, %L, %L, %L)', statement, company, from_id, to_id, since, hooks);
    -- A condition that sets search_path sets it for the callers of this function, too, which have more rights.
    if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
        raise exception using errcode = '42501', message = 'the condition of a hook has set search_path';
    end if;
end
$$;
comment on function bds_webhooks.match_filters(name, text, bigint, bigint, timestamptz, jsonb) is
    'Executes a prepared statement of bds_webhooks.filter_statement with the rights of bds_reader; returns which of these hooks, '
    'each with the shape and the values of its filter, match which changes';
