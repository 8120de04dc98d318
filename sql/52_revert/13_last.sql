-- Reverting: values that have to wait.  A row gets another value for the moment, which is logged as its change; the true one is written
-- last and settles that record, so that the log has one change of each row, from the old value to the new one.

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
        left join pg_temp.revert_entities x on x.name = c.target and x.place > e.place and x.creates
        cross join lateral (
            select case
                    when c.target is not null then case when not c.required then 'null' end
                    when c.type = 'text' then format('md5(random()::text || u.id)::%s', c.sql_type)
                    when c.type in ('int4', 'int8', 'numeric') then format(
                        '(select least(min(t.%I), 0) from %s t where t.company_id = $1) - u."@n"', c.column_name, e.table_name)
                    when c.type = 'uuid' then 'gen_random_uuid()'
                    when not c.required then 'null'
                end,
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
        order by e.place
    loop
        execute format(
            $sql$
            update pg_temp.%1$I u
            set "@last" = coalesce(u."@last", '{}') || jsonb_build_object(%2$L, u.%2$I), %2$I = %3$s
            where u."@action" in ('create', 'update') and not u."@failed" and (%4$s)
            $sql$,
            'revert_' || this.name, this.column_name, this.value, this.condition
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
        coalesce((select string_agg(format('t.%1$I is distinct from u.%1$I', c), ' or ') from unnest(this.touched::text[]) c), 'false')
    ) using company;
end
$$;
comment on function bds_revert.note_alone(text, record) is 'Notes the rows of an entity of which nothing changes but values that wait';

create function bds_revert.last_steps()
    returns table (entity text, settling text, statement text)
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
            format('%1$I = case when u."@last" ? %1$L then (u."@last" ->> %1$L)::%2$s else t.%1$I end', c.column_name, c.type), ', '
        ) as changes
        from pg_temp.revert_entities e cross join lateral bds_revert.columns_of(e.name) c
        where c.is_unique or c.target is not null
        group by e.place, e.name, e.table_name
        order by e.place
    loop
        execute format('select exists (select from pg_temp.%I u where u."@last" is not null)', 'revert_' || this.name) into waits;
        return query
            select this.name, s.settling, bds_impl.fill(
                $sql$
                update {table} t set {changes}
                from pg_temp.{rows:I} u
                where t.company_id = (select $1) and t.id = u.id and u."@last" is not null and u."@alone" = {alone}
                    and not u."@failed" and u."@n" between $2 and $3
                $sql$,
                'alone', s.alone::text, 'table', this.table_name::text, 'rows', 'revert_' || this.name,
                'changes', this.changes
            )
            from (values ((pg_trigger_depth() + 1)::text, false), ('', true)) as s (settling, alone)
            where waits;
    end loop;
end
$$;
comment on function bds_revert.last_steps() is
    'The statements that write the values that have waited: as part of the records that rows have already, else with records of their own; '
    '$1 is the company, $2 and $3 the first and last number of rows';
