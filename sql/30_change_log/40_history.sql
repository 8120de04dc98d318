-- The change log as an audit trail: past states of a row, rebuilt from the current row and the old values of its changes.
-- 39_past_columns.sql translates the columns of records.

create function bds_change_log.entity_of(entity text)
    returns bds.entities
    language plpgsql
    stable
as $$
declare
    this bds.entities;
begin
    select * into this from bds.entities e where e.name = entity_of.entity;
    if not found then
        raise exception using errcode = 'BD002', message = format('no such entity: %s', coalesce(quote_literal(entity), 'null'));
    end if;
    return this;
end
$$;
comment on function bds_change_log.entity_of(text) is 'An entity by its name. Raises BD002 if there is none';

create function bds_change_log.row_now(company text, entity text, id bigint)
    returns jsonb
    language plpgsql
    stable
    -- the settings with which the log triggers store old values
    set timezone = 'UTC'
    set extra_float_digits = 1
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
declare
    this      bds.entities;
    statement text;
    state     jsonb;
begin
    perform bds.require_company(company);
    if not exists (select 1 from bds.companies c where c.id = company) then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    end if;
    this := bds_change_log.entity_of(entity);
    statement := format(
        'select json_object(%s returning json)::jsonb from %s r where r.company_id = $1 and r.id = $2',
        bds_change_log.row_members(this, 'r'), this.table_name
    );
    execute statement into state using company, id;
    return state;
end
$$;
comment on function bds_change_log.row_now(text, text, bigint) is
    'The current row, by API names; null if it does not exist. Raises BD002 if there is no such company or entity, BD007 if a '
    'column was dropped and the table not registered again';

create function bds_change_log.undo_step(state jsonb, operation bds.operation, undo jsonb)
    returns jsonb
    language sql
    immutable
    return case when operation = 'update' then state || undo else undo end;
comment on function bds_change_log.undo_step(jsonb, bds.operation, jsonb) is
    'The row before a change, computed from the row after it: the step of bds_change_log.undo';

create aggregate bds_change_log.undo(bds.operation, jsonb) (sfunc = bds_change_log.undo_step, stype = jsonb);
comment on aggregate bds_change_log.undo(bds.operation, jsonb) is
    'The row before the oldest of some steps of bds_change_log.undo_steps, given newest first; null if it did not exist';

create function bds_change_log.undo_steps(company text, entity text, id bigint, version bigint)
    returns table (change bds.change_log, operation bds.operation, undo jsonb, old jsonb, names jsonb)
    language sql
    stable
    -- the settings with which the log triggers store old values
    set timezone = 'UTC'
    set extra_float_digits = 1
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
    -- undoing begins with the current row, in a step without a change
    select null::bds.change_log, null, bds_change_log.row_now(company, entity, id), null, null
    union all
    select l, l.operation,
        case l.operation when 'update' then f.old || jsonb_build_object('updatedAt', l.last_updated_at) else f.old end,
        o.old, n.names
    from bds.change_log l
    cross join lateral (
        -- usually names have not changed since, and the call costs more than everything else
        select case
            when l.created_at < (select bds_change_log.altered_at(undo_steps.entity))
                then bds_change_log.names_at(undo_steps.entity, l.created_at)
        end
        offset 0  -- computed once, though it is used several times
    ) as n (names)
    cross join lateral (
        select case
            when n.names is null then l.old
            else bds_change_log.old_at(l.old, n.names, bds_change_log.texts_at(undo_steps.entity, l.created_at))
        end
        offset 0
    ) as o (old)
    cross join lateral (
        select case when n.names is null or o.old is null then o.old else bds_change_log.fitted(undo_steps.entity, o.old) end
    ) as f (old)
    where l.row_id = undo_steps.id and l.company_id = company and l.entity = undo_steps.entity and l.id > version
        -- not those of another table that was registered under this name before
        and l.created_at >= (select min(h.since) from bds.column_history h where h.entity = undo_steps.entity)
$$;
comment on function bds_change_log.undo_steps(text, text, bigint, bigint) is
    'The steps from the current row back to a version, in no order: one for each change after the version, with the values that '
    'undo it and the names at its time (bds_change_log.names_at), and one without a change, the newest, whose value is the current '
    'row';

create function bds_change_log.history(company text, entity text, id bigint, after bigint)
    returns table (version bigint, operation text, at timestamptz, actor text, change_set_id uuid, "row" jsonb, old jsonb)
    language sql
    stable
as $$
    select (v.change).id, (v.change).operation::text, (v.change).created_at, (v.change).actor, (v.change).change_set_id,
        case
            when v.operation = 'delete' then null
            when v.names is null then v.state
            else bds_change_log.state_at(v.state, v.names)
        end,
        v.old
    from (
        select s.change, s.operation, s.old, s.names,
            -- the row after a change is the row before the next one
            bds_change_log.undo(s.operation, s.undo) over (
                order by (s.change).id desc nulls first rows between unbounded preceding and 1 preceding
            ) as state
        from bds_change_log.undo_steps(company, entity, id, after) s
    ) v
    where v.operation is not null
    order by (v.change).id
$$;
comment on function bds_change_log.history(text, text, bigint, bigint) is
    'The versions of a row after a given version; see bds.row_history';

create function bds_change_log.lock_first_change(company text)
    returns bigint
    language plpgsql
    stable
as $$
begin
    perform from bds.change_log l where l.company_id = company limit 0;  -- locks the log: no month goes after the look
    return bds.first_change(company);
end
$$;
comment on function bds_change_log.lock_first_change(text) is
    'bds.first_change, which stays as it is until the end of the transaction. Older changes that are left are of no use: states '
    'are undone from the newest change back, and some in between are gone';

create or replace function bds.row_history(company text, entity text, id bigint)
    returns table (version bigint, operation text, at timestamptz, actor text, change_set_id uuid, "row" jsonb, old jsonb)
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select * from bds_change_log.history(company, entity, id, bds_change_log.lock_first_change(company) - 1)
$$;
comment on function bds.row_history(text, text, bigint) is
    'One row for each version of a row that is kept (bds.first_change): time, actor, the row after that change (null if deleted) '
    'and the old values, under the present names of the columns';

create or replace function bds.row_at(company text, entity text, id bigint, version bigint)
    returns jsonb
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    at timestamptz;
begin
    perform bds.require_company(company);
    perform bds_past.check_version(company, version);
    at := bds_past.time_of(company, version);  -- after the check: a month may have been attached before it
    return (
        select bds_change_log.state_at(
            case
                -- an entity has no rows in versions before it was registered
                when version > 0 and at >= bds_past.begin_of(row_at.entity)
                then bds_change_log.undo(s.operation, s.undo order by (s.change).id desc nulls first)
            end,
            case when at < bds_change_log.altered_at(row_at.entity) then bds_change_log.names_at(row_at.entity, at) end
        )
        from bds_change_log.undo_steps(company, entity, id, version) s
    );
end
$$;
comment on function bds.row_at(text, text, bigint, bigint) is
    'The row as of a version, which is the id of any change of the company, or null if it did not exist; under the present names '
    'of its columns. Raises BD002 for a version that is yet to come, BD006 for one older than the retained log';

-- Not a view: no condition on changes reaches its grouping, and the history of a row would be read for each of its changes.
create or replace function bds.change_values(
    company text, entity_name text default null, id bigint default null, after bigint default 0, up_to bigint default null,
    change_set uuid default null
)
    returns table (
        change_id bigint, entity text, row_id bigint, operation text, created_at timestamptz, actor text, change_set_id uuid,
        column_name text, old text, new text
    )
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_custom_plan  -- a condition that is not given is not in the plan
as $$
#variable_conflict use_variable
begin
    perform bds.require_company(company);
    if entity_name is not null then
        perform bds_change_log.entity_of(entity_name);
    end if;
    after := greatest(after, bds_change_log.lock_first_change(company) - 1);
    return query
        select h.version, r.entity, r.row_id, h.operation, h.at, h.actor, h.change_set_id, k.name,
            h.old ->> k.name, case when h.operation <> 'delete' then h."row" ->> k.name end
        from (
            -- each row once: its history is read from the first of these changes on
            select l.entity, l.row_id, min(l.id) - 1 as after
            from bds.change_log l join bds.entities e on e.name = l.entity
            where l.company_id = company and l.id > after and (up_to is null or l.id <= up_to)
                and (entity_name is null or l.entity = entity_name) and (id is null or l.row_id = id)
                and (change_set is null or l.change_set_id = change_set)
            group by l.entity, l.row_id
        ) r
        cross join lateral bds_change_log.history(company, r.entity, r.row_id, r.after) h
        cross join lateral jsonb_object_keys(case h.operation when 'create' then h."row" else h.old end) k (name)
        where (up_to is null or h.version <= up_to) and (change_set is null or h.change_set_id = change_set)
            and (h.operation = 'update' or k.name <> 'updatedAt' and coalesce(h."row", h.old) ->> k.name is not null)
        order by h.version, k.name collate "C";
end
$$;
comment on function bds.change_values(text, text, bigint, bigint, bigint, uuid) is
    'The values that changes of a company replaced and set: a row for each changed column of an update, for each column that is '
    'not null of a create or delete; old and new as text, under the column''s present name. Parameters select the changes of an '
    'entity, a row, ids greater than after and up to up_to, or a change set. Changes of unregistered entities are left out; raises '
    'BD002 for one that is named';
