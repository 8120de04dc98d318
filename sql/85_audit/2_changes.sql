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
    immutable
    return case
        when kind = 'entity' then case op when 'DELETE' then 'unregister' else 'register' end
        when coalesce(after, before) ? 'phase' and (op = 'UPDATE' or op = 'INSERT' and after ->> 'phase' is not null) then 'move'
        when op = 'INSERT' then 'create'
        when op = 'DELETE' or (before ->> 'deleted_at' is null and after ->> 'deleted_at' is not null) then 'delete'
        when before ->> 'revoked_at' is null and after ->> 'revoked_at' is not null then 'revoke'
        when kind = 'hook' and after ? 'secret' then 'rotate'
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
    return jsonb_build_object('entity', this -> 'entity') || case
        when this ->> 'until' = 'infinity' then jsonb_build_object('column ' || (this ->> 'column_name'), this -> 'type')
        else '{}'
    end;
comment on function bds_audit.column_of(jsonb) is
    'A row of bds.column_history as what it tells of its entity: {"column code": "text"}';

create function bds_audit.note_change(
    kind text, named text[], shown text[], hidden text[], op text, before jsonb, after jsonb
)
    returns void
    language plpgsql
as $$
declare
    this    jsonb := coalesce(after, before);
    changed text[] := array(select c from unnest(shown || hidden) c where before ->> c is distinct from after ->> c);
    detail  jsonb;
    company text := case
        when kind in ('hook', 'mapper', 'login') then this ->> 'company_id'
        when kind = 'company' and op = 'UPDATE' and 'log_retention' = any (changed) then this ->> 'id'
        else ''
    end;
begin
    select jsonb_strip_nulls(jsonb_build_object(
        'hidden', (select jsonb_agg(c) from unnest(changed) c where c = any (hidden) and op <> 'DELETE')
    )) || coalesce(jsonb_object_agg(v.side, v.columns) filter (where v.columns is not null), '{}')
    into detail
    from (
        select s.side, jsonb_object_agg(c, bds_audit.shown(s.row -> c) order by c) as columns
        from (values ('old', before), ('new', after)) s (side, row)
        cross join unnest(changed) c
        where s.row ? c and c <> all (hidden) and (op = 'UPDATE' or s.row ->> c is not null)
        group by s.side
    ) v;
    perform bds_audit.note(
        company, bds_audit.action_of(kind, op, before, after),
        concat_ws(' ', kind, (select string_agg(this ->> n, '/') from unnest(named) n)), detail,
        case when before is null or after is null then bds_audit.concerned(this)
            -- null, which is every one, if either side is
            else (select array_agg(distinct c) from unnest(bds_audit.concerned(before) || bds_audit.concerned(after)) c
                where bds_audit.concerned(before) is not null and bds_audit.concerned(after) is not null) end
    );
end
$$;
comment on function bds_audit.note_change(text, text[], text[], text[], text, jsonb, jsonb) is
    'Notes the change of a row: named are the columns that name it, shown those that its record tells, hidden those of which it '
    'tells that they have changed';

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
    shown  text[] := tg_argv[2];
begin
    if tg_op <> 'INSERT' then
        before := to_jsonb(old);
    end if;
    if tg_op <> 'DELETE' then
        after := to_jsonb(new);
    end if;
    if tg_relid = 'bds.column_history'::regclass then
        before := bds_audit.column_of(before);
        after := bds_audit.column_of(after);
        shown := array(select k from jsonb_object_keys(coalesce(before, '{}') || after) k where k <> 'entity');
    end if;
    perform bds_audit.note_change(tg_argv[0], tg_argv[1]::text[], shown, tg_argv[3]::text[], tg_op, before, after);
    return null;
end
$$;
comment on function bds_log.audit() is
    'Row trigger of the tables of administration: notes the change in bds.audit. Its arguments are those of bds_audit.note_change';
