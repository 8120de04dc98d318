-- Reverting: whether the rows are as they were to become, when all are written.  A trigger of the owner may have changed, removed or kept
-- some: these are written once more, and if a row still differs, nothing is undone.

create function bds_revert.lists_of_wanted(entity_name text)
    returns table (differs text, "values" text, fields text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(string_agg(v.differs, ' or '), 'false'),
        string_agg(
            bds_impl.fill(
                ', case when t.id is null or {is_known} then {wanted} else t.{column:I} end as {column:I}',
                'is_known', v.is_known, 'wanted', v.wanted, 'column', c.column_name
            ),
            ''
        ),
        coalesce(
            string_agg(
                format('(%s, %L, to_json(%s)::text, to_json(t.%I)::text, %s)', c.n, c.field, v.wanted, c.column_name, v.differs), ', '
            ),
            '(0, null, null, null, false)'
        )
    from (select o.*, row_number() over () as n from bds_revert.columns_of(entity_name) o) c
    cross join lateral (
        select format('coalesce(k.known ? %L, false)', c.field) as is_known,
            case when c.is_unique or c.target is not null
                then bds_impl.fill(
                    'case when u."@last" ? {column:L} then ({value})::{type} else u.{column:I}::{type} end', 'column', c.column_name,
                    'value', bds_impl.fill(c.logged, 'state', 'u."@last"', 'field', c.column_name), 'type', c.sql_type
                )
                else format('u.%I::%s', c.column_name, c.sql_type)
            end as wanted
    ) w
    cross join lateral (
        select w.is_known, w.wanted, format('%s and t.%I is distinct from %s', w.is_known, c.column_name, w.wanted) as differs
    ) v;
$$;
comment on function bds_revert.lists_of_wanted(text) is
    'Parts of the statements over bds_revert.odd_rows: a condition, a value that is known is not the wanted one; the columns as they are to be '
    'written once more, where others keep what they have; (n, field, wanted, found, differs) of each column';

create function bds_revert.odd_rows(entity_name text, table_name regclass, columns text, more text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select bds_impl.fill(
        $sql$
        select u."@n", r.existed, t.id is not null as is_there{columns}
        from pg_temp.{rows:I} u
        join pg_temp.revert_rows r on r.n = u."@n"
        cross join lateral (select r.old - coalesce(r.erased, '{}') as known) k
        left join {table} t on t.company_id = (select $1) and t.id = u.id
        {more}
        where not u."@failed" and case when r.existed then t.id is null or {differs} else t.id is not null end
        $sql$,
        'columns', columns, 'rows', 'revert_' || entity_name, 'table', odd_rows.table_name::text, 'more', more, 'differs', l.differs
    )
    from bds_revert.lists_of_wanted(entity_name) l;
$$;
comment on function bds_revert.odd_rows(text, regclass, text, text) is
    'SQL for the rows of an entity that are not as they were to become, with more columns and joins; $1 is the company';

create function bds_revert.note_odd(company text, this record)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    rows text := 'revert_' || this.name;
begin
    execute format('update pg_temp.%I set "@action" = null, "@alone" = false', rows);
    execute format(
        $sql$
        update pg_temp.%I u
        set "@action" = case when not o.is_there then 'create' when o.existed then 'update' else 'delete' end, "@last" = null%s
        from (%s) o
        where u."@n" = o."@n"
        $sql$,
        rows,
        (select string_agg(bds_impl.fill(', {column:I} = o.{column:I}', 'column', c.column_name), '') from bds_revert.columns_of(this.name) c),
        bds_revert.odd_rows(this.name, this.table_name, (select l.values from bds_revert.lists_of_wanted(this.name) l), '')
    ) using company;
    perform bds_revert.note_actions(this.name);
end
$$;
comment on function bds_revert.note_odd(text, record) is
    'Notes for the rows of an entity that are not as they were to become what makes them so, for all others that nothing is to be done';

create function bds_revert.correct(company text, is_guarded boolean)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
declare
    this   record;
    is_odd boolean := false;
    odd    jsonb;
begin
    -- triggers and checks that wait for the end of the transaction: now, while what they do can be seen
    set constraints all immediate;
    for this in select * from pg_temp.revert_entities e loop
        execute format('select exists (%s)', bds_revert.odd_rows(this.name, this.table_name, '', '')) into is_odd using company;
        exit when is_odd;
    end loop;
    if not is_odd then
        return null;
    end if;
    perform bds_revert.note_odd(company, e) from pg_temp.revert_entities e;
    begin
        perform bds_revert.write(company, is_guarded);
    exception when others then
        if not bds_feed.is_fault_of_rows(sqlstate) then
            raise;
        end if;
    end;
    for this in select * from pg_temp.revert_entities e order by e.rank loop
        execute format(
            $sql$
            select coalesce($2, '{}') || coalesce(jsonb_object_agg(o."@n", jsonb_build_object(
                'entity', $3, 'field', o.field, 'message', case
                    when not o.is_there then 'a trigger removes the row'
                    when not o.existed then 'a trigger keeps the row'
                    else format('a trigger changes it: expected %%s, found %%s', left(o.wanted, 200), left(o.found, 200)) end)), '{}')
            from (%s order by u."@n" limit 10000) o
            $sql$,
            bds_revert.odd_rows(
                this.name, this.table_name, ', d.field, d.wanted, d.found',
                (
                    select format(
                        'left join lateral (select v.* from (values %s) v (n, field, wanted, found, differs) where v.differs '
                        'order by v.n limit 1) d on t.id is not null',
                        l.fields
                    )
                    from bds_revert.lists_of_wanted(this.name) l
                )
            )
        ) into odd using company, odd, this.name;
    end loop;
    return nullif(odd, '{}');
end
$$;
comment on function bds_revert.correct(text, boolean) is
    'Writes rows once more that are not as they were to become; returns {n: {entity, field, message}} of those that still are not, up to '
    '10,000 of an entity, null if there are none';

create function bds_revert.fail_all(odd jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this record;
begin
    insert into pg_temp.revert_errors (entity, n, field, code, message)
    select o.value ->> 'entity', o.key::bigint, o.value ->> 'field', 'conflict', o.value ->> 'message'
    from jsonb_each(odd) o;
    for this in select e.name from pg_temp.revert_entities e loop
        execute format('update pg_temp.%I set "@failed" = true', 'revert_' || this.name);
    end loop;
end
$$;
comment on function bds_revert.fail_all(jsonb) is 'Fails all rows, because of those that bds_revert.correct has returned';
