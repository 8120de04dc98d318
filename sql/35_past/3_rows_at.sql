-- All rows of an entity as of a version, as bds.row_at gives each.

create function bds_past.check_version(company text, version bigint)
    returns void
    language plpgsql
    stable
as $$
declare
    first bigint := bds_change_log.lock_first_change(company);
    last  bigint := (select c.last_id from bds.clocks c where c.company_id = company);
begin
    if last is null then
        raise exception using
            errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
    elsif version is null or version < 0 then
        raise exception using
            errcode = 'BD005',
            message = format('expected a version (the id of a change, or 0), got %s', coalesce(version::text, 'null'));
    elsif version > last then
        raise exception using
            errcode = 'BD002', message = format('company %s has no version %s yet: its last one is %s', company, version, last);
    elsif version < first - 1 then
        raise exception using
            errcode = 'BD006', detail = jsonb_build_object('firstId', first),
            message = format('the change log of company %s begins at version %s', company, first);
    end if;
end
$$;
comment on function bds_past.check_version(text, bigint) is
    'Raises BD002 for a company or a version that does not exist, BD005 for a malformed version, BD006 for one before the '
    'retained log; locks the log, so that no month goes after the check';

create function bds_past.objects(this bds.entities, names jsonb, is_deep boolean)
    returns text
    language sql
    stable
as $$
    select string_agg(
        format(
            'select %s from %s',
            case when names is null then p.row else format('bds_change_log.state_at(%s, %L)', p.row, names) end, p.source
        ),
        ' union all '
    )
    from (
        select format('json_object(%s returning json)::jsonb', bds_change_log.row_members(this, 't')) as present,
            bds_past.fitted(this.name) as fitted,
            format('jsonb_build_object(''id'', {id}, ''updatedAt'', %s)', bds_past.updated_at()) as own
    ) o
    cross join lateral (
        values (false, bds_past.unchanged(this), o.present),
            (false, bds_past.changed(this), concat_ws(' || ', o.present, o.fitted, replace(o.own, '{id}', 'g.row_id'))),
            (true, bds_past.present(this), format(
                'case when g.first_id is null then %s else %s end', o.present,
                concat_ws(' || ', o.present, o.fitted, replace(o.own, '{id}', 't.id')))),
            (true, bds_past.deleted(this), concat_ws(' || ', o.fitted, replace(o.own, '{id}', 'c.row_id')))
    ) p (is_deep, source, row)
    where p.is_deep = objects.is_deep;
$$;
comment on function bds_past.objects(bds.entities, jsonb, boolean) is
    'The query of an entity''s rows as of a version, as objects with the fields of names (null: the present ones); is_deep: each '
    'row by itself';

create or replace function bds.rows_at(company text, entity text, version bigint)
    returns setof jsonb
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
    -- a row costs far more to write as JSON than to pass between processes
    set parallel_tuple_cost = 0.01
as $$
#variable_conflict use_variable
declare
    this bds.entities;
    at   timestamptz;
begin
    perform bds.require_company(company);
    perform bds_past.check_version(company, version);
    at := bds_past.time_of(company, version);  -- after the check: a month may have been attached before it
    this := bds_change_log.entity_of(entity);
    return query execute bds_past.objects(
        this, case when at < bds_change_log.altered_at(entity) then bds_change_log.names_at(entity, at) end,
        bds_past.is_deep(company, entity, (select c.last_id from bds.clocks c where c.company_id = company) - version)
    )
    using company, version, at, at;
end
$$;
comment on function bds.rows_at(text, text, bigint) is
    'All rows of an entity as of a version (the id of a change of the company, or 0), each as bds.row_at gives it, in no order. '
    'Reads the current rows and the changes since. Raises BD006 for a version older than the retained log';
