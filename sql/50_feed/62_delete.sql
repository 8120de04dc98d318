-- Deleting: all that goes of a family lies in feed_gone and is deleted at once, for entities that refer to one another in a circle can
-- only go together.  Each row has the reason why it goes, and stays if others refer to it, unless they go with it:
--     record      a record deletes it: ticket is the record's ordinal; if it stays, the record has failed
--     array       its parent's array, given whole, lacks it: ticket is the parent record's ordinal, which fails with all that it writes
--     collection  its collection, given whole, lacks it: ticket is the row; if it stays, that is an error of the collection

insert into bds_feed.templates (signature, of, result, purpose, body) values
('find_deleted_{entity}(import bds.imports)', null, 'void', 'puts the rows that records delete into feed_gone, by the record', $sql$
declare
    mass    record;
    known   text;
    problem boolean := false;
begin
    perform bds_feed.know_company('{entity}');
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select '{entity}', m.target, 'record', '{entity}', m.ordinal
    from pg_temp."map_{entity}" m where m.phase = 3 and m.target is not null and not m.failed;
    for mass in
        select m.ordinal, s."@where" as condition, s."@lookups" as lookups
        from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
        where m.phase = 3 and s."@where" is not null and not m.failed order by m.ordinal
    loop
        begin
            perform bds_feed.require_rows(import.company_id, mass.lookups);
            insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
            select '{entity}', w.id, 'record', '{entity}', mass.ordinal
            from bds_feed.rows_where(import.company_id, '{entity}', mass.condition) as w (id);
        exception when sqlstate 'BDF01' then
            get stacked diagnostics known = pg_exception_detail;
            perform bds_feed.add_errors(known::jsonb, jsonb_build_object('entity', '{entity}', 'ordinal', mass.ordinal, 'is_late', true));
            problem := true;
        end;
    end loop;
    delete from pg_temp.feed_gone g  -- the first record that names a row has it
    using (
        select o.ctid, row_number() over (partition by o.id order by o.ticket) as n
        from pg_temp.feed_gone o where o.entity = '{entity}' and o.kind = 'record'
    ) o
    where o.n > 1 and g.ctid = o.ctid;
    if problem then
        perform bds_import."keep_{entity}"(import);
    end if;
    insert into pg_temp.feed_done (entity, unchanged)  -- what is gone already
    select '{entity}', count(*) from pg_temp."map_{entity}" m where m.phase = 3 and m.is_new and not m.failed;
end$sql$),

('find_removed_{entity}(company text)', null, 'void',
'puts the children that their parents'' arrays, given whole, no longer contain into feed_gone, by the parent record', $sql$
begin
    {each children}
    if exists (select from pg_temp."staged_{entity}" s where s.{whole:I}) then
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select '{child}', c.id, 'array', '{entity}', c.ordinal
        from (
            select t.id, p.ordinal
            from pg_temp."map_{entity}" p join pg_temp."staged_{entity}" s on s."@ordinal" = p.ordinal
            join {table} t on t.company_id = (select $1) and t.{column:I} = p.target
            where s.{whole:I} and p.phase = 1 and not p.failed and not p.is_new
            offset 0
        ) c
        -- a record that failed protects its row, too
        where not exists (select from pg_temp."map_{child}" m where m.target = c.id);
    end if;
    {end children}
end$sql$),

('find_absent_{entity}(company text)', null, 'void', 'puts the rows that the collection, given whole, lacks into feed_gone', $sql$
begin
    -- records that failed may mean any row: all of them failed, or what says which row is meant is itself what is wrong
    if exists (
        select from pg_temp.feed_entities f
        where f.name = '{entity}' and f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp."map_{entity}" m join pg_temp.feed_errors e on e.entity = '{entity}' and e.ordinal = m.ordinal
            where m.failed and (e.code = 'lookup_ambiguous' or m.is_new and (e.field = any ({kinds:L}) or true{each keys} and m.{key:I} is null{end keys}))
        ))
    ) then
        insert into pg_temp.feed_errors (entity, path, code, message, is_late)
        values ('{entity}', '{entity}@removeAll', 'batch_failed', 'nothing was removed: the rows of failed records are unknown', true);
    else
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select '{entity}', t.id, 'collection', '{entity}', t.id
        from {table} t
        where t.company_id = $1 and not exists (select from pg_temp."map_{entity}" m where m.target = t.id);
    end if;
end$sql$),

('keep_{entity}(import bds.imports)', null, 'void',
'notes, as errors of records or of the collection, which rows of feed_use stay, and takes them and those of failed records out of feed_gone', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, code, message, is_late)
    select distinct on (u.ticket) '{entity}', u.ticket, u.code, u.message, true
    from pg_temp.feed_use u where u.cause = '{entity}' and u.kind = 'record'
    order by u.ticket, u.message;
    perform bds_feed.fail_late(import, '{entity}');
    delete from pg_temp.feed_gone g using pg_temp."map_{entity}" m
    where g.kind = 'record' and g.cause = '{entity}' and m.ordinal = g.ticket and m.failed;

    insert into pg_temp.feed_errors (entity, path, record, code, message, is_late)
    select '{entity}', '{entity}@removeAll', coalesce({each keys}'{name}:' || t.{column:I}, {end keys}'id:' || t.id), u.code, u.message, true
    from (
        select distinct on (u.ticket) u.* from pg_temp.feed_use u where u.kind = 'collection' and u.cause = '{entity}' order by u.ticket, u.message
    ) u
    join {table} t on t.company_id = (select import.company_id) and t.id = u.ticket;
    delete from pg_temp.feed_gone g using pg_temp.feed_use u
    where g.kind = 'collection' and g.cause = '{entity}' and u.kind = g.kind and u.cause = g.cause and u.ticket = g.ticket;
end$sql$);

create function bds_feed.delete_family(import bds.imports, members text[])
    returns void
    language plpgsql
as $$
declare
    this record;
begin
    for this in
        select f.name, f.deletes > 0 as has_deletes, e.children, f.name = any (import.remove_all) as is_whole
        from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name where f.name = any (members) order by f.place
    loop
        if this.has_deletes then
            perform bds_feed.show_progress(import, 'deleting', this.name);
            execute format('select bds_import.%I($1)', 'find_deleted_' || this.name) using import;
        end if;
        if this.children then
            execute format('select bds_import.%I($1)', 'find_removed_' || this.name) using import.company_id;
        end if;
        if this.is_whole then
            perform bds_feed.show_progress(import, 'removing', this.name);
            execute format('select bds_import.%I($1)', 'find_absent_' || this.name) using import.company_id;
        end if;
    end loop;
    if exists (select from pg_temp.feed_gone) then
        perform bds_feed.delete_gone(import);
    end if;
end
$$;
comment on function bds_feed.delete_family(bds.imports, text[]) is
    'Deletes what records of a family delete, and what its arrays and collections, given whole, no longer contain';

create function bds_feed.keep_used(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    problems jsonb;
    cause    text;
begin
    select jsonb_agg(to_jsonb(u)) into problems from (
        select distinct on (u.cause, u.ticket) u.cause as entity, u.ticket as ordinal, u.code, u.message
        from pg_temp.feed_use u where u.kind = 'array'
        order by u.cause, u.ticket, u.message
    ) u;
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'an array lacks rows that have to stay', detail = problems;
    end if;
    for cause in select distinct u.cause from pg_temp.feed_use u loop
        execute format('select bds_import.%I($1)', 'keep_' || cause) using import;
    end loop;
    delete from pg_temp.feed_use;
end
$$;
comment on function bds_feed.keep_used(bds.imports) is
    'Takes out of feed_gone what feed_use has, and notes why; BDF01 where a parent has to fail with its array';

create function bds_feed.delete_gone(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    statement text;
begin
    perform bds_feed.add_along(import);
    loop
        perform bds_feed.filled(import, 'feed_gone');
        while bds_feed.find_used(import) loop
            perform bds_feed.keep_used(import);
        end loop;
        begin
            foreach statement in array bds_feed.delete_statements(false) loop
                execute statement using import.company_id;
            end loop;
            exit;
        exception when others then
            if not bds_feed.is_fault_of_rows(sqlstate) or not bds_feed.rehearse_delete(import) then
                raise;
            end if;
        end;
        perform bds_feed.keep_used(import);
    end loop;
    insert into pg_temp.feed_done (entity, deleted) select g.entity, count(distinct g.id) from pg_temp.feed_gone g group by g.entity;
    delete from pg_temp.feed_gone;
end
$$;
comment on function bds_feed.delete_gone(bds.imports) is 'Deletes the rows of feed_gone with their content, but for those that have to stay';

create function bds_feed.add_along(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    names text[];
    child record;
    at    int := 1;
    found_rows bigint;
begin
    -- parents first: what goes along takes its own content along
    select array_agg(e.name order by e.depth, e.name) into names
    from bds_feed.entities e where e.name in (select g.entity from pg_temp.feed_gone g);
    while at <= cardinality(names) loop
        perform bds_feed.filled(import, 'feed_gone');
        for child in select * from bds_feed.children_of(names[at]) loop
            execute format(
                'insert into pg_temp.feed_gone (entity, id, kind, cause, ticket, along) '
                'select $2, t.id, g.kind, g.cause, g.ticket, true from pg_temp.feed_gone g join %s t on t.company_id = (select $1) and t.%I = g.id where g.entity = $3',
                child.table_name, child.column_name
            ) using import.company_id, child.target, names[at];
            get diagnostics found_rows = row_count;
            if found_rows > 0 and child.target <> all (names) then
                names := names || child.target;
            end if;
        end loop;
        at := at + 1;
    end loop;
end
$$;
comment on function bds_feed.add_along(bds.imports) is 'Puts the content of the rows of feed_gone beside them, and the content of that';

create function bds_feed.delete_statements(in_ranges boolean)
    returns text[]
    language plpgsql
    stable
as $$
declare
    statements text[];
    is_circle  boolean := (
        select count(distinct e.root) > 1 from bds_feed.entities e where e.name in (select g.cause from pg_temp.feed_gone g));
begin
    -- Children go along by their foreign key: deleting them first would be a change of the parent as well.  In a circle none goes
    -- before the others: one statement has them all, with their content, whatever the order in which keys are then checked.
    select array_agg(
        bds_impl.fill(
            $sql$
            delete from {table} t
            using (
                select g.id from pg_temp.feed_gone g where g.entity = {entity:L} {range} group by g.id {alone}
            ) g
            where t.company_id = (select $1) and t.id = g.id
            $sql$,
            'table', e.table_name::text, 'entity', e.name,
            'range', case when in_ranges then 'and g.n between least($2, $3) and greatest($2, $3)' else '' end,
            'alone', case when is_circle or e.parent is null then ''
                when in_ranges then 'having not bool_or(g.along or g.id in (select o.id from pg_temp.feed_gone o where o.along and o.entity = g.entity))'
                else 'having not bool_or(g.along)' end)
        order by e.depth desc, e.place desc)
    into statements
    from bds_feed.entities e
    where e.name in (select g.entity from pg_temp.feed_gone g where is_circle or not g.along);
    if is_circle then
        select array[format('with %s select', string_agg(format('gone_%s as (%s)', s.n, s.statement), ', ' order by s.n))] into statements
        from unnest(statements) with ordinality as s (statement, n);
    end if;
    return coalesce(statements, '{}');
end
$$;
comment on function bds_feed.delete_statements(boolean) is
    'The statements that delete the rows of feed_gone, in this order; $1 is the company, $2 and $3 the first and last ticket if it is done in ranges';

create function bds_feed.find_used(import bds.imports)
    returns boolean
    language plpgsql
as $$
declare
    use       record;
    kept      bigint;
    found_any boolean := false;
begin
    for use in
        select n.entity as name, u.*, exists (select from pg_temp.feed_gone g where g.entity = u.user_name) as may_go
        from (select distinct g.entity from pg_temp.feed_gone g) n cross join lateral bds_feed.uses_of(n.entity) u
    loop
        execute bds_impl.fill(
            $sql$
            insert into pg_temp.feed_use (kind, cause, ticket, code, message)
            select u.kind, u.cause, u.ticket, 'in_use', case when u.kind = 'collection'
                then format('row %s is not in the feed, but %s refer to it', u.ticket, {user:L})
                else format('row %s is referred to by %s %s', min(u.id), {user:L}, min(u.user_id)) end
            from (
                select g.kind, g.cause, g.ticket, g.id, t.id as user_id
                from pg_temp.feed_gone g join {table} t on t.company_id = (select $1) and t.{column:I} = g.id
                where g.entity = {used:L}
            ) u
            {staying}
            group by u.kind, u.cause, u.ticket
            $sql$,
            'user', use.user_name, 'used', use.name, 'table', use.user_table::text, 'column', use.column_name,
            'staying', case when use.may_go
                then format('where not exists (select from pg_temp.feed_gone o where o.entity = %L and o.id = u.user_id)', use.user_name) else '' end
        ) using import.company_id;
        get diagnostics kept = row_count;
        found_any := found_any or kept > 0;
    end loop;
    return found_any;
end
$$;
comment on function bds_feed.find_used(bds.imports) is 'Notes in feed_use what would delete a row to which one refers that stays; whether there is any';

create function bds_feed.rehearse_delete(import bds.imports)
    returns boolean
    language plpgsql
as $$
declare
    problems jsonb[];
    tickets  bigint[];
    before   int := -1;
begin
    update pg_temp.feed_gone g set n = r.n
    from (
        select t.kind, t.cause, t.ticket, row_number() over (order by f.place desc, t.ticket) as n
        from (select distinct o.kind, o.cause, o.ticket from pg_temp.feed_gone o) t join pg_temp.feed_entities f on f.name = t.cause
    ) r
    where r.kind = g.kind and r.cause = g.cause and r.ticket = g.ticket;
    tickets := array(select generate_series(1, (select max(g.n) from pg_temp.feed_gone g)));
    begin
        create index on pg_temp.feed_gone (n);
        -- What is referred to by a row that goes after it is refused at first: another turn, the other way round.
        loop
            problems := bds_feed.write_in_ranges(bds_feed.delete_statements(true), import.company_id, tickets);
            exit when exists (select from unnest(problems) p where p ->> 'state' <> '23503') or cardinality(problems) in (0, before);
            before := cardinality(problems);
            tickets := array(select (p.problem ->> 'key')::bigint from unnest(problems) with ordinality as p (problem, n) order by p.n desc);
        end loop;
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    insert into pg_temp.feed_use (kind, cause, ticket, code, message)
    select distinct g.kind, g.cause, g.ticket, r ->> 'code',
        case when g.kind = 'collection' then format('row %s is not in the feed, but it stays: ', g.ticket) else '' end || (r ->> 'message')
    from unnest(problems) as p join pg_temp.feed_gone g on g.n = (p ->> 'key')::bigint
    cross join lateral bds_feed.refusal(p, true) r
    -- beside a row that is refused for itself, others may be in use only because that one stays: they come next
    where p ->> 'state' <> '23503' or not exists (select from unnest(problems) o where o ->> 'state' <> '23503');
    return cardinality(problems) > 0;
end
$$;
comment on function bds_feed.rehearse_delete(bds.imports) is
    'Notes in feed_use what the database refuses to delete, found in ranges of tickets; false if it refuses nothing by itself';

