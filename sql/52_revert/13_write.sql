-- Reverting: the statements that write.  Each row is written once, but for values that have to wait: a unique value until the row that
-- has it gets another one or goes, and, in a circle of entities, a reference until the row comes back to which it refers.  They are
-- written last, as part of the change that is logged already.

create function bds_revert.steps()
    returns table (entity text, table_name regclass, statement text)
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- Parents come before their children, so that one record of a parent names both its fields and its collections.
    return query
        select e.name, e.table_name, bds_impl.fill(
            s.template || ' and not u."@failed" and u."@n" between $2 and $3',
            variadic array['rows', 'revert_' || e.name, 'table', e.table_name::text] || s.holes)
        from pg_temp.revert_entities e
        cross join lateral (
            select string_agg(format('%I', c.column_name), ', ') as columns, string_agg(format('u.%I', c.column_name), ', ') as values,
                string_agg(bds_impl.fill('{column:I} = u.{column:I}', 'column', c.column_name), ', ') filter (where c.column_name = any (e.touched)) as changes
            from bds_revert.columns_of(e.name) c
        ) list
        cross join lateral (values
            (
                1, e.creates, 'insert into {table} (company_id, id, {columns}) overriding system value '
                'select $1, u.id, {values} from pg_temp.{rows:I} u where u."@action" = ''create''',
                array['columns', list.columns, 'values', list.values]
            ),
            (
                2, e.updates and list.changes is not null, 'update {table} t set {changes} from pg_temp.{rows:I} u '
                'where t.company_id = (select $1) and t.id = u.id and u."@action" = ''update''',
                array['changes', list.changes]
            )
        ) as s (n, is_needed, template, holes)
        where s.is_needed
        order by e.rank, s.n;
end
$$;
comment on function bds_revert.steps() is
    'The statements that create and update rows, in their order; $1 is the company, $2 and $3 the first and last number of rows';

create function bds_revert.delete_statement()
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    -- One statement for all tables: keys are checked at its end, so rows may refer to one another in any way, and the deletion of
    -- children with their parent is not a change of the parent.
    return (
        select 'with ' || string_agg(
            bds_impl.fill(
                $sql$
                {gone:I} as (
                    delete from {table} t using pg_temp.{rows:I} u
                    where t.company_id = (select $1) and t.id = u.id and u."@action" = 'delete' and not u."@failed"
                        and u."@n" between least($2, $3) and greatest($2, $3)
                )
                $sql$,
                'gone', 'gone_' || e.name, 'table', e.table_name::text, 'rows', 'revert_' || e.name
            ),
            ', ' order by e.rank desc
        ) || ' select'
        from pg_temp.revert_entities e where e.deletes
    );
end
$$;
comment on function bds_revert.delete_statement() is
    'The statement that deletes the rows that are to go; $1 is the company, $2 and $3 the numbers of the first and last row; null if there '
    'are none';

create function bds_revert.delete_rows(company text, first bigint, last bigint, statement text, is_guarded boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    before jsonb := bds_revert.losses();
    rule   name;
begin
    execute statement using company, first, last;
    if is_guarded then
        select min(e.rule) into rule
        from pg_temp.revert_referrers e
        join jsonb_each(bds_revert.losses()) l on l.key = e.table_name::oid::text
        where l.value <> before -> l.key
            -- a trigger of the owner may have written where other rows are referred to
            and (first <> last or e.entity = (select r.entity from pg_temp.revert_rows r where r.n = first));
        if rule is not null then
            raise exception using
                errcode = 'foreign_key_violation', message = 'rows of a table that is not registered change or go along', constraint = rule,
                detail = 'guard';
        end if;
    end if;
end
$$;
comment on function bds_revert.delete_rows(text, bigint, bigint, text, boolean) is
    'Deletes rows with the statement of bds_revert.delete_statement; guarded, it raises 23503 as soon as rows of tables that are not registered '
    'change or go with them: those are references';

create function bds_revert.write(company text, is_guarded boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    record;
    deletes text := bds_revert.delete_statement();
    wanted  bigint := (select count(*) from pg_temp.revert_rows);
    done    bigint := 0;
    written bigint;
begin
    perform bds_revert.make_way(company);
    for this in select * from bds_revert.steps() loop
        raise notice 'writing %: % of % rows done', this.entity, done, greatest(wanted, 1);
        execute this.statement using company, 0, wanted;
        get diagnostics written = row_count;
        done := done + written;
        perform bds_feed.analyze_changed(this.table_name, written, 0);
    end loop;
    if deletes is not null then
        raise notice 'deleting: % of % rows done', done, greatest(wanted, 1);
        perform bds_revert.delete_rows(company, 0, wanted, deletes, is_guarded);
    end if;
    for this in select * from bds_revert.last_steps() loop
        perform bds_change_log.settle(company, this.settles);
        execute this.statement using company, 0, wanted;
    end loop;
    perform bds_change_log.settle(company, false);
end
$$;
comment on function bds_revert.write(text, boolean) is
    'Writes all rows that do not fail; is_guarded: as bds_revert.delete_rows says';

-- The unforeseen: rules of a table that no check knows.  Which rows they refuse is found as for imports.

create function bds_revert.find_refused(company text)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    refused jsonb;
begin
    begin
        refused := bds_revert.rehearse(company);
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    perform bds_revert.fail(
        e.name,
        format(
            $sql$
            select (p ->> 'n')::bigint as n, null as field, p ->> 'code' as code, p ->> 'message' as message
            from jsonb_array_elements(%L) p join pg_temp.revert_rows r on r.n = (p ->> 'n')::bigint and r.entity = %L
            $sql$,
            refused, e.name
        ),
        null
    )
    from pg_temp.revert_entities e
    where refused is not null;
    return refused is not null;
end
$$;
comment on function bds_revert.find_refused(text) is 'Fails the rows that the database refuses to write; false if it refuses none of them alone';

create function bds_revert.rehearse(company text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     record;
    problems jsonb[];
    numbers  bigint[];
    deletes  text := format('select bds_revert.delete_rows($1, $2, $3, %L, true)', bds_revert.delete_statement());
    before   int := -1;
begin
    set constraints all immediate;
    -- the steps of bds_revert.write, up to the first that finds any: what others would find may be their consequence
    perform bds_revert.make_way(company);
    for this in select * from bds_revert.steps() loop
        problems := bds_feed.write_in_ranges(array[this.statement], company, bds_revert.numbers(this.entity, array['create', 'update']));
        if cardinality(problems) > 0 then
            return bds_revert.refusals(problems, false);
        end if;
    end loop;
    select array_agg(n order by e.rank desc, n desc) into numbers
    from pg_temp.revert_entities e cross join lateral unnest(bds_revert.numbers(e.name, array['delete'])) n
    where e.deletes;
    loop
        problems := bds_feed.write_in_ranges(array[deletes], company, numbers);
        exit when cardinality(problems) in (0, before);
        before := cardinality(problems);
        -- what is referred to by a row that goes after it: another turn, the other way round
        numbers := array(select (p.problem ->> 'key')::bigint from unnest(problems) with ordinality as p (problem, n) order by p.n desc);
    end loop;
    if cardinality(problems) > 0 then
        return bds_revert.refusals(problems, true);
    end if;
    for this in select * from bds_revert.last_steps() loop
        perform bds_change_log.settle(company, this.settles);
        problems := bds_feed.write_in_ranges(array[this.statement], company, bds_revert.numbers(this.entity, array['create', 'update']));
        exit when cardinality(problems) > 0;
    end loop;
    perform bds_change_log.settle(company, false);
    return bds_revert.refusals(problems, false);
end
$$;
comment on function bds_revert.rehearse(text) is 'Writes, as far as can be; returns {n, code, message} of the rows that the database refuses, null if there are none';

create function bds_revert.numbers(entity_name text, actions text[])
    returns bigint[]
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_numbers bigint[];
begin
    execute format(
        'select array_agg(u."@n" order by u."@n") from pg_temp.%I u where u."@action" = any ($1) and not u."@failed"', 'revert_' || entity_name
    ) into found_numbers using actions;
    return found_numbers;
end
$$;
comment on function bds_revert.numbers(text, text[]) is 'The numbers of the rows of an entity that are to be written so';

create function bds_revert.refusals(problems jsonb[], is_delete boolean)
    returns jsonb
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
    select jsonb_agg(
        jsonb_build_object('n', p -> 'key')
            || case p ->> 'state'
                when '23505' then bds_feed.refusal(p, is_delete) || '{"code": "conflict"}'
                else bds_feed.refusal(p, is_delete)
            end
    )
    from unnest(problems) as p;
$$;
comment on function bds_revert.refusals(jsonb[], boolean) is 'What bds_feed.write_in_ranges has found as {n, code, message}; null if nothing';
