-- Records keep the names that columns had when they were written.  bds.column_history translates them: history shows each value
-- under the column's present name, and each state with the columns of its time.

create function bds_change_log.altered_at(entity text)
    returns timestamptz
    language sql
    stable
    return (
        select max(greatest(h.since, nullif(h.until, 'infinity'))) from bds.column_history h where h.entity = altered_at.entity
    );
comment on function bds_change_log.altered_at(text) is
    'The time at which a column of an entity was last registered as added, renamed or dropped';

create function bds_change_log.names_at(entity text, at timestamptz)
    returns jsonb
    language sql
    stable
as $$
    with columns as (
        select h.ordinal, h.since, h.until, bds_registry.camel_case(h.column_name) as name
        from bds.column_history h
        where h.entity = names_at.entity and h.column_name <> 'company_id'
    ),
    latest as (select distinct on (c.ordinal) c.* from columns c order by c.ordinal, c.since desc),
    numbered as (
        select l.ordinal, l.name, l.until,
            count(*) over (partition by l.name) as namesakes,
            count(*) filter (where l.until < 'infinity') over (partition by l.name order by l.ordinal) as n
        from latest l
    )
    select jsonb_object_agg(
        c.name,
        l.name || case
            when l.until = 'infinity' or l.namesakes = 1 then ''
            when l.n = 1 then ' (dropped)'
            else format(' (dropped %s)', l.n)
        end
    )
    from columns c join numbered l on l.ordinal = c.ordinal
    where c.since <= at and at < c.until;
$$;
comment on function bds_change_log.names_at(text, timestamptz) is
    'The fields of an entity at a time, each with its present name: {"city": "town"}. A dropped field whose last name another one '
    'has, or had last, is called "<name> (dropped)", the next one of that name "<name> (dropped 2)"';

create function bds_change_log.state_at(state jsonb, names jsonb)
    returns jsonb
    language sql
    immutable
    parallel safe
    return case
        when names is null or state is null then state
        else (select jsonb_object_agg(n.value, state -> n.value) from jsonb_each_text(names) n)
    end;
comment on function bds_change_log.state_at(jsonb, jsonb) is
    'A state, restricted to the fields of a time (bds_change_log.names_at)';

create function bds_change_log.texts_at(entity text, at timestamptz)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_object_agg(bds_registry.camel_case(h.column_name), b.name)
    from bds.column_history h
    join bds.fields f on f.entity = h.entity and f.ordinal = h.ordinal
    cross join bds_registry.base_type(to_regtype(h.type)) b (name)
    where h.entity = texts_at.entity and h.since <= at and at < h.until and f.stored in ('text', 'bpchar')
        and b.name in ('jsonb', 'bpchar') and b.name <> f.stored;
$$;
comment on function bds_change_log.texts_at(text, timestamptz) is
    'The fields of an entity at a time, by their names of then, that are text now and whose records have the text in another form: '
    '{"note": "jsonb"} without its quotes, {"code": "bpchar"} with its padding. Null if there are none';

create function bds_change_log.old_at(old jsonb, names jsonb, texts jsonb)
    returns jsonb
    language sql
    immutable
    return case
        when names is null or old is null then old
        else (
            select coalesce(jsonb_object_agg(
                coalesce(names ->> o.key, o.key),
                case
                    when o.value = 'null' then o.value
                    when texts ->> o.key = 'jsonb' then to_jsonb(o.value::text)
                    when texts ->> o.key = 'bpchar' then to_jsonb(rtrim(o.value #>> '{}', ' '))
                    else o.value
                end
            ), '{}')
            from jsonb_each(old) o
        )
    end;
comment on function bds_change_log.old_at(jsonb, jsonb, jsonb) is
    'Old values of a record under present names; texts (bds_change_log.texts_at) as the views showed them';

create function bds_change_log.fitted(entity text, state jsonb)
    returns jsonb
    language plpgsql
    stable
as $$
begin
    -- OFFSET: the planner would evaluate casts of a constant, of values that are not of the type, too
    execute format('select %s from (select $1 offset 0) g (state)', bds_past.fitted(entity)) into state using state;
    return state;
end
$$;
comment on function bds_change_log.fitted(text, jsonb) is
    'Old values as the present types of their columns have them, null where they are none of these: what the views of the past '
    'show';
