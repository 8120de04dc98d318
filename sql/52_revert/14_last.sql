-- Reverting: values that have to wait.  A row gets another value for the moment, which is logged as its change; the true one is written
-- last and settles that record, so that the log has one change of each row, from the old value to the new one.

-- A value for the moment is one that no row has: the first of these that the column's type and the table's checks accept of the row.
create function bds_revert.candidates(entity_name text, table_name regclass, column_name name)
    returns table (n bigint, expression text, checks text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with checks as (
        select string_agg(format('(%s) is not false', pg_get_expr(k.conbin, k.conrelid)), ' and ') as condition
        from pg_constraint k
        cross join lateral (
            select array_agg(a.attname) as columns from pg_attribute a where a.attrelid = k.conrelid and a.attnum = any (k.conkey)
        ) a
        where k.conrelid = candidates.table_name and k.contype = 'c' and candidates.column_name = any (a.columns)
            and a.columns <@ array(select c.column_name from bds_revert.columns_of(entity_name) c)
    ),
    found as (
        select s.n, replace(
            replace(replace(replace(replace(s.template, '{table}', candidates.table_name::text), '{column:I}', quote_ident(f.column_name)),
                '{type}', c.sql_type), '{type:L}', quote_literal(c.sql_type)), '{length}', coalesce(f.max_length, 32)::text) as expression
        from bds.fields f
        join bds_revert.columns_of(entity_name) c on c.column_name = f.column_name
        join bds_impl.types t on t.name = c.type
        cross join unnest(t.stand_ins) with ordinality s (template, n)
        where f.entity = entity_name and f.column_name = candidates.column_name
    )
    select f.n, f.expression, coalesce(k.condition, 'true') from found f cross join checks k
    union all
    -- if they accept none, one that they refuse: the error names the check
    select f.n + 100, f.expression, 'true' from found f cross join checks k where k.condition is not null and f.n = 1;
$$;
comment on function bds_revert.candidates(text, regclass, name) is
    'Values that a column may have for the moment, in their order, with what the checks of the table say of them';

create function bds_revert.stand_in(entity_name text, table_name regclass, this record)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select coalesce(
            'coalesce(' || string_agg(
                bds_impl.fill(
                    $sql$(
                        select c.{column:I}
                        from (
                            select case when pg_input_is_valid(e.value, {type:L}) then e.value::{type} end
                            from generate_series(1, 20) g (n) cross join lateral (select ({value})::text offset 0) e (value)
                            where u."@k" > 0  -- evaluated for each row, though nothing else may depend on it
                            offset 0
                        ) c ({column:I})
                        where c.{column:I} is not null and ({checks})
                            and not exists (select from {table} t where t.company_id = $1 and t.{column:I} = c.{column:I})
                        limit 1
                    )$sql$,
                    'column', this.column_name, 'type', this.sql_type, 'table', table_name::text, 'value', c.expression,
                    'checks', c.checks
                ),
                ', ' order by c.n
            ) || ')',
            format('null::%s', this.sql_type)
        )
        from bds_revert.candidates(entity_name, table_name, this.column_name) c
        where this.target is null
    );
end
$$;
comment on function bds_revert.stand_in(text, regclass, record) is
    'The SQL of a value that a column may have for the moment, $1 being the company; null if there is none';

create function bds_revert.make_way(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this record;
begin
    for this in
        select e.name, c.column_name, c.required, w.value, w.condition
        from pg_temp.revert_entities e
        cross join lateral bds_revert.columns_of(e.name) c
        left join pg_temp.revert_entities x on x.name = c.target and x.rank > e.rank and x.creates
        cross join lateral (
            select bds_revert.stand_in(e.name, e.table_name, c),
                concat_ws(
                    ' or ',
                    case when c.is_unique then
                        format('u."@n" in (select h.n from (%s) h)', bds_revert.holders(e.name, e.table_name, c.column_name)) end,
                    case when x.name is not null then format(
                        'u.%I in (select w.id from pg_temp.%I w where w."@action" = ''create'' and not w."@failed")',
                        c.column_name, 'revert_' || x.name) end
                )
        ) as w (value, condition)
        where (e.creates or c.column_name = any (e.touched)) and w.condition <> ''
        order by e.rank
    loop
        execute bds_impl.fill(
            $sql$
            update pg_temp.{rows:I} w
            set "@last" = coalesce(w."@last", '{}') || jsonb_build_object({column:L}, w.{column:I}), {column:I} = s.value
            from (
                select u."@n", {value} as value
                from (
                    select u.*, row_number() over (order by u."@n") as "@k"
                    from pg_temp.{rows:I} u
                    where u."@action" in ('create', 'update') and not u."@failed" and ({condition})
                    offset 0
                ) u
            ) s
            where s."@n" = w."@n" and {is_possible}
            $sql$,
            'rows', 'revert_' || this.name, 'column', this.column_name, 'value', this.value, 'condition', this.condition,
            -- without one a value stays, and the database tells what is in its way
            'is_possible', case when this.required then 's.value is not null' else 'true' end
        ) using company;
    end loop;
    perform bds_revert.note_alone(company, e) from pg_temp.revert_entities e where e.updates;
end
$$;
comment on function bds_revert.make_way(text) is
    'Puts off the values that have to wait: rows get another value for the moment';

create function bds_revert.note_alone(company text, this record)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        update pg_temp.%I u set "@alone" = true
        from %s t
        where u."@last" is not null and u."@action" = 'update' and t.company_id = (select $1) and t.id = u.id and not (%s)
        $sql$,
        'revert_' || this.name, this.table_name,
        coalesce((select string_agg(bds_impl.fill('t.{column:I} is distinct from u.{column:I}', 'column', c), ' or ') from unnest(this.touched::text[]) c), 'false')
    ) using company;
end
$$;
comment on function bds_revert.note_alone(text, record) is 'Notes the rows of an entity of which nothing changes but values that wait';

create function bds_revert.last_steps()
    returns table (entity text, settles boolean, statement text)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    this  record;
    waits boolean;
begin
    for this in
        select e.name, e.table_name, string_agg(
            bds_impl.fill(
                '{column:I} = case when u."@last" ? {column:L} then ({value})::{type} else t.{column:I} end', 'column', c.column_name,
                'value', bds_impl.fill(c.logged, 'state', 'u."@last"', 'field', c.column_name), 'type', c.sql_type
            ),
            ', '
        ) as changes
        from pg_temp.revert_entities e cross join lateral bds_revert.columns_of(e.name) c
        where c.is_unique or c.target is not null
        group by e.rank, e.name, e.table_name
        order by e.rank
    loop
        execute format('select exists (select from pg_temp.%I u where u."@last" is not null)', 'revert_' || this.name) into waits;
        return query
            select this.name, not s.alone, bds_impl.fill(
                $sql$
                update {table} t set {changes}
                from pg_temp.{rows:I} u
                where t.company_id = (select $1) and t.id = u.id and u."@last" is not null and u."@alone" = {alone}
                    and not u."@failed" and u."@n" between $2 and $3
                $sql$,
                'alone', s.alone::text, 'table', this.table_name::text, 'rows', 'revert_' || this.name,
                'changes', this.changes
            )
            from (values (false), (true)) as s (alone)
            where waits;
    end loop;
end
$$;
comment on function bds_revert.last_steps() is
    'The statements that write the values that have waited: as part of the records that rows have already, else with records of their own; '
    '$1 is the company, $2 and $3 the first and last number of rows';
