-- Undoing: values that have to wait: a unique one until the row that has it is changed or deleted and, in a circle of entities, a
-- reference until its row is created.  A row first gets a stand-in, which is logged as its change.  The final value is written last
-- and completes that record, so that the log has one change of each row, from the old value to the new one.

-- A stand-in is a value that no row has: the first of these that the column's type and the table's checks accept for the row.
create function bds_revert.candidates(table_name regclass, this bds.import_columns)
    returns table (n bigint, expression text, checks text)
    language sql
    stable
as $$
    with checks as (
        select string_agg(format('(%s) is not false', pg_get_expr(k.conbin, k.conrelid)), ' and ') as condition
        from pg_constraint k
        cross join lateral (
            select array_agg(a.attname) as columns from pg_attribute a where a.attrelid = k.conrelid and a.attnum = any (k.conkey)
        ) a
        where k.conrelid = candidates.table_name and k.contype = 'c' and this.column_name = any (a.columns)
            and 0 <> all (k.conkey)  -- the whole row
            and a.columns <@ array(select c.column_name from bds.import_columns c where c.entity = this.entity)
    ),
    found as (
        select s.n, replace(replace(replace(replace(replace(replace(
            s.template, '{table}', candidates.table_name::text), '{column:I}', quote_ident(this.column_name)),
            '{type}', this.sql_type), '{type:L}', quote_literal(this.sql_type)), '{length}', coalesce(f.max_length, 32)::text),
            '{allowed:L}', coalesce(quote_literal(f.allowed), 'null')
        ) as expression
        from bds.fields f
        join bds_impl.types t on t.name = this.type
        cross join unnest(t.stand_ins) with ordinality s (template, n)
        where f.entity = this.entity and f.column_name = this.column_name
    )
    select f.n, f.expression, coalesce(k.condition, 'true') from found f cross join checks k
    union all
    -- if the checks accept none, one that they refuse: the error names the check
    select f.n + 100, f.expression, 'true' from found f cross join checks k where k.condition is not null and f.n = 1;
$$;
comment on function bds_revert.candidates(regclass, bds.import_columns) is
    'Candidates for the stand-in of a column, in their order, with the checks of the table';

create function bds_revert.stand_in(table_name regclass, this bds.import_columns)
    returns text
    language sql
    stable
as $$
    select coalesce(
        'coalesce(' || string_agg(
            bds_impl.fill(
                $sql$(
                    select c.{column:I}
                    from (
                        select case when pg_input_is_valid(e.value, {type:L}) then e.value::{type} end
                        from generate_series(1, 20) g (n) cross join lateral (select ({value})::text offset 0) e (value)
                        where u."@k" > 0  -- evaluated for each row, even if nothing else depends on the row
                        offset 0
                    ) c ({column:I})
                    where c.{column:I} is not null and ({checks})
                        and not exists (select from {table} t where t.company_id = $1 and {present} = {candidate})
                    limit 1
                )$sql$,
                'column', this.column_name, 'type', this.sql_type, 'table', table_name::text, 'value', c.expression,
                'checks', c.checks, 'present', bds_feed.present(this, 't'), 'candidate', bds_feed.present(this, 'c')
            ),
            ', ' order by c.n
        ) || ')',
        format('null::%s', this.sql_type)
    )
    from bds_revert.candidates(table_name, this) c
    where this.target is null;
$$;
comment on function bds_revert.stand_in(regclass, bds.import_columns) is
    'The SQL of a stand-in for a column, $1 being the company; null if there is none';

create function bds_revert.draw(rows text, table_name regclass, this bds.import_columns, field text, company text)
    returns void
    language plpgsql
as $$
declare
    statement constant text := bds_impl.fill(
        $sql$
        with waiting as (
            select o.*, o."@ordinal" as "@n", $2 + row_number() over (order by o."@ordinal") as "@k"
            from (
                select d.*, w.n is not null as waits,
                    row_number() over (partition by d.{column:I} order by w.n is not null, d."@ordinal") as nth
                from pg_temp.{rows:I} d
                left join pg_temp.revert_waits w on (w.entity, w.field, w.n) = ({entity:L}, {field:L}, d."@ordinal")
                where d."@new" is not null
            ) o
            where o.waits and ($2 = 0 or o.nth > 1 and o.{column:I} is not null)
        )
        update pg_temp.{rows:I} d set {column:I} = s.value
        from (select u."@n", ({value})::{type} as value from waiting u) s
        where d."@ordinal" = s."@n" and {is_possible}
        $sql$,
        'rows', rows, 'entity', this.entity, 'column', this.column_name, 'field', field,
        'value', bds_revert.stand_in(table_name, this), 'type', this.sql_type,
        'is_possible', case when this.required then 's.value is not null' else 'true' end
    );
    drawn bigint := 0;
    again bigint;
begin
    -- two rows may draw the same value, or one that another row is given
    for turn in 0 .. 20 loop
        execute statement using company, drawn;
        get diagnostics again = row_count;
        exit when again = 0;
        drawn := drawn + again;
    end loop;
    -- without a stand-in the value is written at once, and the database refuses it if it has to wait
    execute bds_impl.fill(
        $sql$
        delete from pg_temp.revert_waits w using pg_temp.{rows:I} d
        where (w.entity, w.field, w.n) = ({entity:L}, {field:L}, d."@ordinal")
            and to_jsonb(d.{column:I}) is not distinct from w.value
        $sql$,
        'rows', rows, 'entity', this.entity, 'column', this.column_name, 'field', field
    );
end
$$;
comment on function bds_revert.draw(text, regclass, bds.import_columns, text, text) is
    'Gives each row that waits with a column a stand-in of its own, in a temporary table of rows to be written';

create function bds_revert.make_way(company text)
    returns void
    language plpgsql
as $$
declare
    this record;
    found_rows bigint;
begin
    delete from pg_temp.revert_waits;
    for this in
        select e.name, e.table_name, c as import_column, f.name as field, 'diff_' || e.name as rows, w.condition
        from pg_temp.feed_entities o
        join bds_feed.entities e on e.name = o.name
        join bds.import_columns c on c.entity = e.name
        join bds.fields f on f.entity = e.name and f.column_name = c.column_name and f.name = any (o.columns)
        left join pg_temp.feed_entities x on x.name = c.target and x.rank > o.rank and x.created > 0
        cross join lateral concat_ws(
            ' or ',
            case when c.is_unique then format(
                'u."@ordinal" in (select h.n from bds_import.%I($1, %L) h where h.field = %L)',
                'holders_' || e.name, array[f.name], f.name) end,
            case when x.name is not null then format(
                'u.%I in (select m.target from pg_temp.%I m where m.is_new and not m.failed)', c.column_name, 'map_' || x.name) end
        ) as w (condition)
        where w.condition <> ''
        order by o.rank
    loop
        execute bds_impl.fill(
            $sql$
            insert into pg_temp.revert_waits (entity, n, field, value)
            select {entity:L}, u."@ordinal", {field:L}, to_jsonb(u.{column:I})
            from pg_temp.{rows:I} u where u."@new" is not null and ({condition})
            $sql$,
            'rows', this.rows, 'entity', this.name, 'column', (this.import_column).column_name, 'field', this.field,
            'condition', this.condition
        ) using company;
        get diagnostics found_rows = row_count;
        if found_rows > 0 then
            perform bds_revert.draw(this.rows, this.table_name, this.import_column, this.field, company);
        end if;
    end loop;
    for this in select distinct w.entity as name from pg_temp.revert_waits w loop
        execute format('select bds_import.%I($1)', 'note_alone_' || this.name) using company;
    end loop;
end
$$;
comment on function bds_revert.make_way(text) is
    'Replaces the values that have to wait with stand-ins, and notes them in revert_waits';

create function bds_revert.apply(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this record;
begin
    perform bds_revert.make_way(import.company_id);
    perform bds_feed.apply(import);
    for this in
        select f.name, w.is_alone
        from (select o.entity, o.n, bool_or(o.is_alone) as is_alone from pg_temp.revert_waits o group by o.entity, o.n) w
        join pg_temp.feed_entities f on f.name = w.entity
        group by f.name, f.rank, w.is_alone order by w.is_alone, f.rank
    loop
        execute format('select bds_import.%I($1)', 'resume_' || this.name) using this.is_alone;
        perform bds_change_log.settle(import.company_id, not this.is_alone);
        perform bds_feed.write(import, this.name, '{}');
    end loop;
    perform bds_change_log.settle(import.company_id, false);
end
$$;
comment on function bds_revert.apply(bds.imports) is
    'Writes what was compared, as bds_feed.apply does, then the values that have waited: these complete the records that rows have '
    'already, or get records of their own';
