-- The trigger of the tables of administration: what a change of a row is called, and what is told of it.

create function bds_audit.shown(value jsonb)
    returns jsonb
    language sql
    immutable
    return case
        when jsonb_typeof(value) <> 'string' then value
        when char_length(value #>> '{}') > 10000 then jsonb_build_object(
            'characters', char_length(value #>> '{}'), 'sha256', encode(sha256(convert_to(value #>> '{}', 'UTF8')), 'hex')
        )
        else to_jsonb(regexp_replace(value #>> '{}', '(://)[^/?#[:space:]]*@', '\1', 'g'))
    end;
comment on function bds_audit.shown(jsonb) is
    'A value as records have it: of a text beyond 10,000 characters its length and hash; of a URL no user and password';

create function bds_audit.action_of(kind text, op text, before jsonb, after jsonb)
    returns text
    language sql
    stable
    return case
        when kind = 'entity' and op = 'DELETE'
            and not exists (select from bds.entities e where e.name in (before ->> 'entity', before ->> 'name')) then 'unregister'
        when kind = 'entity' then 'register'
        when coalesce(after, before) ? 'phase' and (op = 'UPDATE' or op = 'INSERT' and after ->> 'phase' is not null) then 'move'
        when op = 'INSERT' then 'create'
        when op = 'DELETE' or (before ->> 'deleted_at' is null and after ->> 'deleted_at' is not null) then 'delete'
        when before ->> 'revoked_at' is null and after ->> 'revoked_at' is not null then 'revoke'
        when kind = 'hook' and before ->> 'secret' <> after ->> 'secret' then 'rotate'
        else 'update'
    end;
comment on function bds_audit.action_of(text, text, jsonb, jsonb) is 'What a change of a row is called';

create function bds_audit.concerned(this jsonb)
    returns text[]
    language sql
    stable
as $$
    select case
        when this ->> 'is_administrator' = 'true' then null
        when jsonb_typeof(this -> 'companies') = 'array' then array(select jsonb_array_elements_text(this -> 'companies'))
        when this ->> 'company_id' is not null then array[this ->> 'company_id']
        when this ? 'log_retention' and this ? 'id' then array[this ->> 'id']
        when this ->> 'tenant_id' is not null then array(select c.id from bds.companies c where c.tenant_id = this ->> 'tenant_id')
    end;
$$;
comment on function bds_audit.concerned(jsonb) is 'The companies that a row of administration is about; null: every one';

create function bds_audit.column_of(this jsonb)
    returns jsonb
    language sql
    immutable
    strict
    return jsonb_build_object(
        'entity', this -> 'entity',
        concat('column ', this ->> 'column_name', ' until ' || nullif(this ->> 'until', 'infinity')),
        jsonb_strip_nulls(this - '{entity,column_name,until}'::text[] || jsonb_build_object(
            'expression', nullif(this ->> 'expression', ''), 'is_lost', nullif(this -> 'is_lost', 'false')
        ))
    );
comment on function bds_audit.column_of(jsonb) is
    'A row of bds.column_history as what it tells of its entity: {"entity": ..., "column code": {"type": "text", ...}}';

create function bds_audit.note_change(kind text, named text[], hidden text[], state text[], op text, before jsonb, after jsonb)
    returns void
    language plpgsql
as $$
declare
    this      jsonb := coalesce(after, before);
    changed   text[] := array(
        select c from jsonb_object_keys(coalesce(before, '{}') || this) c
        where c <> all (state) and before ->> c is distinct from after ->> c
    );
    detail    jsonb;
    companies text[] := case
        -- what goes from one company to another is told to both
        when kind in ('hook', 'mapper', 'login') then array[before ->> 'company_id', after ->> 'company_id']
        when kind = 'company' and op = 'UPDATE' and 'log_retention' = any (changed) then array[this ->> 'id']
        else array['']
    end;
begin
    select jsonb_strip_nulls(jsonb_build_object(
        'hidden', (select jsonb_agg(c order by c) from unnest(changed) c where c = any (hidden) and op <> 'DELETE')
    )) || coalesce(jsonb_object_agg(v.side, v.columns) filter (where v.columns is not null), '{}')
    into detail
    from (
        select s.side, jsonb_object_agg(c, bds_audit.shown(s.row -> c) order by c) as columns
        from (values ('old', before), ('new', after)) s (side, row)
        cross join unnest(changed) c
        where s.row ? c and c <> all (hidden)
            -- object and company tell these
            and (op = 'UPDATE' or s.row ->> c is not null and c <> all (named || array['company_id']))
        group by s.side
    ) v;
    perform bds_audit.note(
        t.company, bds_audit.action_of(kind, op, before, after),
        concat_ws(' ', kind, (select string_agg(this ->> n, '/') from unnest(named) n)), detail,
        case when before is null or after is null then bds_audit.concerned(this)
            -- null, which is every one, if either side is
            else (select array_agg(distinct c) from unnest(bds_audit.concerned(before) || bds_audit.concerned(after)) c
                where bds_audit.concerned(before) is not null and bds_audit.concerned(after) is not null) end
    )
    from (select distinct c from unnest(companies) c where c is not null) t (company);
end
$$;
comment on function bds_audit.note_change(text, text[], text[], text[], text, jsonb, jsonb) is
    'Notes the change of a row: named are the columns that name it, hidden those of which its record tells only that they have '
    'changed, state those that are not of administration; it tells all others';

create or replace function bds_log.audit()
    returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
declare
    before jsonb;
    after  jsonb;
begin
    if tg_op <> 'INSERT' then
        before := to_jsonb(old);
    end if;
    if tg_op <> 'DELETE' then
        after := to_jsonb(new);
    end if;
    if tg_relid = 'bds.column_history'::regclass then
        select bds_audit.column_of(before), bds_audit.column_of(after) into before, after;
    end if;
    perform bds_audit.note_change(
        tg_argv[0], tg_argv[1]::text[], tg_argv[2]::text[], tg_argv[3]::text[], tg_op, before, after
    );
    return null;
end
$$;
comment on function bds_log.audit() is
    'Row trigger of the tables of administration: notes the change in bds.audit. Its arguments are those of bds_audit.note_change';
