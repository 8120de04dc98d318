-- Reverting: values that have to wait.  A row gets another value for the moment, which is logged as its change; the true one is written
-- last and settles that record, so that the log has one change of each row, from the old value to the new one.

-- A value for the moment is one that no row has: the first of these that the table's checks accept of the row.
create function bds_revert.candidates(table_name regclass, column_name name, type text, sql_type text)
    returns table (n bigint, expression text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select s.n, replace(replace(replace(s.template, '{table}', table_name::text), '{column:I}', quote_ident(column_name)), '{type}', sql_type)
    from bds_impl.types t cross join unnest(t.stand_ins) with ordinality s (template, n)
    where t.name = candidates.type;
$$;
comment on function bds_revert.candidates(regclass, name, text, text) is 'Values that a column may have for the moment, in their order';

create function bds_revert.stand_in(entity_name text, table_name regclass, this record)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (select case
            when this.target is not null or e.expressions is null then case when not this.required then 'null' end
            when k.checks is null then e.expressions[1]
            else bds_impl.fill(
                $sql$coalesce((
                    select c.{column:I} from ({candidates}) c ({column:I}, "@n")
                    where ({checks}) is not false
                        and not exists (select from {table} t where t.company_id = $1 and t.{column:I} = c.{column:I})
                    order by c."@n" limit 1
                ), {first})$sql$,
                'candidates', e.candidates, 'checks', k.checks, 'table', table_name::text, 'column', this.column_name,
                'first', e.expressions[1])
        end
    from (
        select array_agg(c.expression order by c.n) as expressions,
            string_agg(
                format('select %s, %s + g.n from generate_series(1, 20) g (n)', c.expression, c.n * 20),
                ' union all ' order by c.n
            ) as candidates
        from bds_revert.candidates(table_name, this.column_name, this.type, this.sql_type) c
    ) e
    cross join (
        select string_agg(pg_get_expr(k.conbin, k.conrelid), ' and ') as checks
        from pg_constraint k
        cross join lateral (
            select array_agg(a.attname) as columns from pg_attribute a where a.attrelid = k.conrelid and a.attnum = any (k.conkey)
        ) a
        where k.conrelid = table_name and k.contype = 'c' and this.column_name = any (a.columns)
            and a.columns <@ array(select c.column_name from bds_revert.columns_of(entity_name) c)
    ) k);
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
        select e.name, c.column_name, w.value, w.condition
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
        where (e.creates or c.column_name = any (e.touched)) and w.value is not null and w.condition <> ''
        order by e.rank
    loop
        execute bds_impl.fill(
            $sql$
            update pg_temp.{rows:I} u
            set "@last" = coalesce(u."@last", '{}') || jsonb_build_object({column:L}, u.{column:I}), {column:I} = {value}
            where u."@action" in ('create', 'update') and not u."@failed" and ({condition})
            $sql$,
            'rows', 'revert_' || this.name, 'column', this.column_name, 'value', this.value, 'condition', this.condition
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
