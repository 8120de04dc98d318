-- The rows to be deleted: feed_gone lists them, and one statement deletes them all, because rows may refer to one another in a
-- circle.  A row stays if another one refers to it that is not deleted.  Each has a reason, its kind:
--     record      a record deletes it: ticket is the record's ordinal; if it stays, the record has failed
--     array       its parent's array, given whole, lacks it: ticket is the parent record's ordinal, which fails as a whole
--     collection  its collection, given whole, lacks it: ticket is the row; if it stays, that is an error of the collection
--     undo        a change set that is undone has created it: ticket is its number; if it stays, everything is compared again
-- Rows that are deleted with it by foreign keys have the same reason.  All rows of a ticket that stays have code and message.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('find_deleted_{entity}(import bds.imports)', null, 'void', 'puts the rows that records delete into feed_gone, by the record', $sql$
declare
    mass    record;
    known   text;
    problem boolean := false;
begin
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select '{entity}', m.target, 'record', '{entity}', m.ordinal
    from pg_temp."map_{entity}" m where m.phase = 3 and m.target is not null and not m.failed;
    for mass in
        select m.ordinal, s."@where" as condition, s."@lookups" as lookups
        from pg_temp."map_{entity}" m join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
        where m.phase = 3 and s."@where" is not null and not m.failed order by m.ordinal
    loop
        begin
            insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
            select '{entity}', w.id, 'record', '{entity}', mass.ordinal
            from bds_feed.rows_where(import.company_id, '{entity}', mass.condition, mass.lookups) as w (id);
        exception when sqlstate 'BDF01' then
            get stacked diagnostics known = pg_exception_detail;
            perform bds_feed.add_errors(
                known::jsonb, jsonb_build_object('entity', '{entity}', 'ordinal', mass.ordinal, 'is_late', true));
            problem := true;
        end;
    end loop;
    if problem then
        perform bds_import."keep_{entity}"(import);
    end if;
end$sql$),

('count_missing_{entity}()', null, 'void', 'counts the deletes of rows that do not exist; to be called after all deletes', $sql$
begin
    update pg_temp.feed_entities f
    set unchanged = f.unchanged + m.rows
    from (select count(*) as rows from pg_temp."map_{entity}" o where o.phase = 3 and o.is_new and not o.failed) m
    where f.name = '{entity}';
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
        -- the row of a failed record stays, too
        where not exists (select from pg_temp."map_{child}" m where m.target = c.id);
    end if;
    {end children}
end$sql$),

('find_absent_{entity}(company text)', null, 'void', 'puts the rows that the collection, given whole, lacks into feed_gone', $sql$
begin
    -- the row of a failed record is unknown if all of them failed, or if what identifies the row is wrong
    if exists (
        select from pg_temp.feed_entities f
        where f.name = '{entity}' and f.failed > 0 and (f.failed = f.rows or exists (
            select from pg_temp."map_{entity}" m
            left join pg_temp.feed_errors e on e.entity = '{entity}' and e.ordinal = m.ordinal
            where m.failed and (
                m.target is null and not m.is_new  -- of a condition
                or e.code = 'lookup_ambiguous'
                or m.is_new and (e.field = any ({kinds:L}) or true{each keys} and m.{key:I} is null{end keys})
            )
        ))
    ) then
        insert into pg_temp.feed_errors (entity, path, code, message, is_late)
        values (
            '{entity}', '{entity}@removeAll', 'batch_failed', 'nothing was removed: the rows of failed records are unknown', true
        );
    else
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select '{entity}', t.id, 'collection', '{entity}', t.id
        from {table} t
        where t.company_id = $1 and not exists (select from pg_temp."map_{entity}" m where m.target = t.id)
            -- the rows of a mass delete are in the feed, too
            and not exists (select from pg_temp.feed_gone g where g.entity = '{entity}' and g.kind = 'record' and g.id = t.id);
    end if;
end$sql$),

('spare_{entity}()', null, 'void', 'takes the rows of mass updates, which the document has, out of feed_gone', $sql$
begin
    delete from pg_temp.feed_gone g
    where g.entity = '{entity}' and g.kind in ('array', 'collection')
        and exists (select from pg_temp."diff_{entity}" d where d.id = g.id);
end$sql$),

('keep_{entity}(import bds.imports)', null, 'void',
'notes which rows of feed_gone stay, as errors of records or of the collection; takes them and those of failed records out', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, path, record, code, message, is_late)
    select distinct on (g.kind, g.ticket) '{entity}', case when t.id is null then g.ticket end,
        case when t.id is not null then '{entity}@removeAll' end,
        coalesce({each keys}'{name}:' || t.{column:I}, {end keys}'id:' || t.id), g.code, g.message, true
    from pg_temp.feed_gone g
    left join {table} t on g.kind = 'collection' and t.company_id = (select import.company_id) and t.id = g.ticket
    where g.cause = '{entity}' and g.code is not null;
    perform bds_import."fail_late_{entity}"(import);
    delete from pg_temp.feed_gone g
    where g.cause = '{entity}' and (g.code is not null or g.kind = 'record' and exists (
        select from pg_temp."map_{entity}" m where m.ordinal = g.ticket and m.failed));
end$sql$);

create function bds_feed.find_gone(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this record;
begin
    for this in
        select f.name, f.deletes > 0 as has_deletes, f.updates > 0 as has_updates, e.children,
            f.name = any (import.remove_all) as is_whole
        from pg_temp.feed_entities f join bds_feed.entities e on e.name = f.name order by f.rank
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
        if this.has_updates then  -- the entity comes after its parent, and its arrays
            execute format('select bds_import.%I()', 'spare_' || this.name);
        end if;
    end loop;
    if exists (select from pg_temp.feed_gone) then
        perform bds_feed.add_along(import);
    end if;
end
$$;
comment on function bds_feed.find_gone(bds.imports) is
    'Lists in feed_gone the rows to be deleted, for every reason, with their children';

create function bds_feed.add_along(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    child record;
begin
    perform bds_feed.filled(import, 'feed_gone');
    for child in  -- and the children of children
        select e.name as parent, c.* from bds_feed.entities e cross join lateral bds_feed.children_of(e.name) c
        where e.root in (select o.root from bds_feed.entities o join pg_temp.feed_gone g on g.entity = o.name)
        order by e.depth
    loop
        continue when not exists (select from pg_temp.feed_gone g where g.entity = child.parent);
        execute format(
            'insert into pg_temp.feed_gone (entity, id, kind, cause, ticket) '
            'select %L, t.id, g.kind, g.cause, g.ticket '
            'from pg_temp.feed_gone g join %s t on t.company_id = (select $1) and t.%I = g.id where g.entity = %L',
            child.target, child.table_name, child.column_name, child.parent
        ) using import.company_id;
        perform bds_feed.filled(import, 'feed_gone');
    end loop;
end
$$;
comment on function bds_feed.add_along(bds.imports) is
    'Adds the children of the rows of feed_gone, and their children, to it';

create function bds_feed.find_used(import bds.imports)
    returns boolean
    language plpgsql
as $$
declare
    use record;
begin
    for use in
        -- All foreign keys of entities, whatever they do on delete: rows that they would delete or change would be in no report.
        -- In an undo, a row that the change set did not create keeps its references, unless the undo itself changes them.
        select e.name as used, e.table_name as used_table, u.name as user, u.table_name, c.condition, c.leaves
        from bds_feed.entities e
        join pg_constraint k on k.contype = 'f' and k.confrelid = e.table_name
        join bds_feed.entities u on u.table_name = k.conrelid
        left join pg_temp.feed_entities f on f.name = u.name and bds_feed.is_undo(import)
        cross join lateral (
            select string_agg(format('t.%I = r.%I', a.attname, b.attname), ' and ') as condition,
                string_agg(bds_impl.fill('d.{column:I} is distinct from t.{column:I}', 'column', a.attname), ' or ') filter (
                    where a.attname in (select i.column_name from bds.import_columns i where i.entity = f.name)) as leaves
            from unnest(k.conkey, k.confkey) as p (own, other)
            join pg_attribute a on a.attrelid = k.conrelid and a.attnum = p.own
            join pg_attribute b on b.attrelid = k.confrelid and b.attnum = p.other
        ) c
        where e.name in (select g.entity from pg_temp.feed_gone g)
    loop
        execute bds_impl.fill(
            $sql$
            update pg_temp.feed_gone g
            set code = 'in_use', message = least(g.message, case g.kind
                when 'collection' then format('row %s is not in the feed, but %s refer to it', g.ticket, {user:L})
                else format('row %s is referred to by %s %s', u.id, {user:L}, u.user_id) end)
            from (
                select o.kind, o.cause, o.ticket, min(o.id) as id, min(t.id) as user_id
                from pg_temp.feed_gone o
                join {used_table} r on r.company_id = (select $1) and r.id = o.id
                join {table} t on {condition}
                where o.entity = {used:L}
                    and not exists (select from pg_temp.feed_gone x where x.entity = {user:L} and x.id = t.id) {staying}
                group by o.kind, o.cause, o.ticket
            ) u
            where g.kind = u.kind and g.cause = u.cause and g.ticket = u.ticket
            $sql$,
            'user', use.user, 'used', use.used, 'used_table', use.used_table::text, 'table', use.table_name::text,
            'condition', use.condition, 'staying', case when use.leaves is not null then format(
                'and not exists (select from pg_temp.%I d where d.id = t.id and d."@new" is not null and (%s))',
                'diff_' || use.user, use.leaves
            ) else '' end
        ) using import.company_id;
    end loop;
    return exists (select from pg_temp.feed_gone g where g.code is not null);
end
$$;
comment on function bds_feed.find_used(bds.imports) is
    'Notes in feed_gone the rows to which a row refers that stays; returns whether there are any';

create function bds_feed.keep_used(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    problems jsonb := (
        select jsonb_agg(distinct jsonb_build_object('entity', g.cause, 'ordinal', g.ticket, 'code', g.code, 'message', g.message))
        from pg_temp.feed_gone g where g.kind in ('array', 'undo') and g.code is not null);
    cause    text;
begin
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'rows have to stay', detail = problems;
    end if;
    for cause in select distinct g.cause from pg_temp.feed_gone g where g.code is not null loop
        execute format('select bds_import.%I($1)', 'keep_' || cause) using import;
    end loop;
end
$$;
comment on function bds_feed.keep_used(bds.imports) is
    'Takes rows that have to stay out of feed_gone, and notes why; BDF01 where a parent has to fail with its array, and in an undo';
