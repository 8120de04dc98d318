-- Undoing: an import whose records come from the log.  revert_rows (sql/52_revert) has the rows to undo, with a number n in place
-- of the ordinal of a record.  They are compared with what is stored, and the tables of an import hold the result:
--
--     map_E      all rows: phase 3 is deleted, 1 created (is_new), updated or unchanged (is_same); key: the unique values
--     diff_E     rows that existed, with their new values; "@new" null if nothing is to be done
--     feed_gone  rows to be deleted, of kind undo
--
-- So they are written, deleted, tried and counted as those of documents.  The columns in feed_entities are the fields with old
-- values in the log: `given`, which the planner knows, so that an undo compares and checks no other column.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('undo_{entity}(import bds.imports)', null, 'void',
'puts the rows of revert_rows, compared with what is stored, into the tables of the import', $sql$
declare
    given text[] := (
        select array_remove(array[{each columns|, }case when bool_or(r.old ? {field:L}) then {field:L} end{end columns}], null)
        from pg_temp.revert_rows r where r.entity = '{entity}' and r.existed);
begin
    update pg_temp.feed_entities f set columns = given where f.name = '{entity}';
    with compared as materialized (
        select * from bds_import."compared_{entity}"(import.company_id, import.is_forced, given)
    ),
    refused as (
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', c."@ordinal", c."@field", c."@code", c."@message" from compared c where c."@code" is not null
    ),
    gone as (
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select '{entity}', c.id, 'undo', '{entity}', c."@ordinal" from compared c where c."@action" = 'delete' and c."@code" is null
    ),
    mapped as (
        insert into pg_temp."map_{entity}" (ordinal, phase, target, is_new, is_same, failed{each keys}, {key:I}{end keys})
        select c."@ordinal", case when c."@action" = 'delete' then 3 else 1 end, c.id, coalesce(c."@action" = 'create', false),
            c."@action" is null, c."@code" is not null{each keys}, c.{column:I}{end keys}
        from compared c
    )
    insert into pg_temp."diff_{entity}"
    select c."@ordinal", c.id, case c."@action" when 'create' then true when 'update' then false end
        {each masks}
        , c.{mask:I}
        {end masks}
        {each columns}
        , c.{column:I}
        {end columns}
    from compared c where c."@existed" and c."@code" is null;
    if exists (select from pg_temp.feed_errors e where e.entity = '{entity}') then
        perform bds_import."leave_{entity}"();
    end if;
    perform bds_feed.filled(import, 'map_{entity}'), bds_feed.filled(import, 'diff_{entity}');
end$sql$),

('compared_{entity}(company text, is_forced boolean, given text[])', null,
$sql$table ("@ordinal" bigint, id bigint, "@existed" boolean, "@action" text, "@field" text, "@code" text, "@message" text
    {each masks}, {mask:I} bigint{end masks}{each columns}, {column:I} {type}{end columns})$sql$,
'the rows of revert_rows with their new values, the action for that, and why it is refused', $sql$
select r.n as "@ordinal", r.id, r.existed as "@existed", a.action as "@action", p.field as "@field", p.code as "@code",
    p.message as "@message"{each masks}, {known_bits} as {mask:I}{end masks}{each columns}, v.{column:I}{end columns}
from (
    -- an erased value cannot be restored: the row keeps its present one
    select o.*, o.old - coalesce(o.erased, '{}') as known from pg_temp.revert_rows o where o.entity = '{entity}' offset 0
) r
left join {table} t on t.company_id = (select $1) and t.id = r.id
cross join lateral (
    select
        {each columns|, }
        case when {field:L} = any ($3) and r.known ? {field:L} then {was} else {kept} end as {column:I}
        {end columns}
    offset 0
) v
cross join lateral (
    select {each columns| or }{field:L} = any ($3) and {v_differs}{end columns} as differs,
        false
        {each columns}
        or case when r.left_as ? {field:L} then {left_differs} else false end
        {end columns}
        as is_not_as_left,
        case when false then null{each altered} when not {fits} then {field:L}{end altered} end as unfit
) d
cross join lateral (
    select case
        when not r.existed then case when t.id is not null then 'delete' end
        when t.id is null then 'create'
        when r.erased is not null or d.differs then 'update'
    end as action,
    -- most rows need none of the checks that follow
    r.later is not null or r.erased is not null or d.unfit is not null or r.existed and (
        t.id is null and not r.is_whole{each required} or v.{column:I} is null{end required}
    ) as is_suspect
) a
left join lateral (
    select w.field, w.code, w.message
    from (values
        (1, a.action = 'create' and not r.is_whole, null, 'conflict', coalesce(
            format('change ' || r.later || ' by %s has deleted it', r.later_by),
            'the row cannot be found, though no change has deleted it: a policy of its table may hide it')),
        -- with force the other values of the row are undone
        (2, r.erased is not null and (not $2 or a.action = 'update' and not d.differs), r.erased[1], 'conflict',
            'the old value was erased'),
        (3, d.unfit is not null, d.unfit, 'conflict',
            format('the old value %s is not one of the present type', r.old ->> d.unfit)),
        (4, not $2 and r.later is not null
                and (r.left_as is null or r.has_left <> (t.id is not null) or t.id is not null and d.is_not_as_left),
            null, 'conflict', format('changed later, by change %s of %s', r.later, r.later_by))
        {each required}
        , (5, r.existed and v.{column:I} is null, {field:L}, 'required', 'a value is required, and no old one is known')
        {end required}
    ) as w (n, is_wrong, field, code, message)
    where a.is_suspect and w.is_wrong order by w.n limit 1
) p on a.action is not null$sql$),

('leave_{entity}()', null, 'void', 'takes rows that fail out of those that are written or deleted', $sql$
begin
    perform bds_import."mark_{entity}"();
    delete from pg_temp."diff_{entity}" d using pg_temp."map_{entity}" m where m.ordinal = d."@ordinal" and m.failed;
    delete from pg_temp.feed_gone g
    using pg_temp."map_{entity}" m where g.cause = '{entity}' and m.ordinal = g.ticket and m.failed;
end$sql$),

('check_undo_{entity}(company text)', null, 'void',
'finds rows whose new unique value another row keeps, and rows that would refer to a missing row; one error for a row', $sql$
declare
    -- what an undo does not change is as the keys and references of the table keep it
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = '{entity}');
begin
    {each keys}
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', h.n, {field:L}, 'conflict', format('{entity} %s has this value now', min(h.holder))
    from bds_import."holders_{entity}"($1, given) h where h.field = {field:L} and not h.is_leaving group by h.n;
    if found then
        perform bds_import."leave_{entity}"();
    end if;
    {end keys}
    {each references}
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', d."@ordinal", {field:L}, 'lookup_not_found',
        format('{target} %s, to which it referred, does not exist any more', d.{column:I})
    from pg_temp."diff_{entity}" d
    where d."@new" is not null and d.{column:I} is not null and (d."@new" or {field:L} = any (given))
        and not exists (select from {target_table} t where t.company_id = (select $1) and t.id = d.{column:I})
        and not exists (select from pg_temp."map_{target}" m where m.target = d.{column:I} and m.is_new and not m.failed);
    if found then
        perform bds_import."leave_{entity}"();
    end if;
    {end references}
end$sql$),

('holders_{entity}(company text, given text[])', 'has_keys', 'table (n bigint, field text, holder bigint, is_leaving boolean)',
'the rows that hold the new unique value of row n, and whether they are deleted or get another one', $sql$
{each keys| union all }
select d."@ordinal", {field:L}, t.id, m.target is not null and (o.id is null or o.{column:I} is distinct from {stored})
from pg_temp."diff_{entity}" d
join {table} t on t.company_id = (select $1) and {stored} = d.{column:I} and t.id <> d.id
left join pg_temp."map_{entity}" m on m.target = t.id and not m.failed
left join pg_temp."diff_{entity}" o on o.id = t.id
where d."@new" or d."@new" is not null and {field:L} = any ($2)
{end keys}$sql$),

('note_alone_{entity}(company text)', null, 'void',
'notes in revert_waits the rows of which only values that wait change', $sql$
begin
    update pg_temp.revert_waits w set is_alone = true
    from pg_temp."diff_{entity}" d
    join {table} t on t.company_id = (select $1) and t.id = d.id
    cross join (select f.columns from pg_temp.feed_entities f where f.name = '{entity}') as f (given)
    where w.entity = '{entity}' and w.n = d."@ordinal" and not d."@new" and not (
        false
        {each columns}
        or {field:L} = any (f.given) and {d_differs}
        {end columns}
    );
end$sql$),

('resume_{entity}(is_alone boolean)', null, 'void',
'puts the values that have waited into the rows, and marks only these rows to be written', $sql$
begin
    update pg_temp."diff_{entity}" d set "@new" = null where d."@new" is not null;
    update pg_temp."diff_{entity}" d
    set "@new" = false
        {each columns}
        , {column:I} = case when w.waiting ? {field:L} then {waited} else d.{column:I} end
        {end columns}
    from (
        select o.n, jsonb_object_agg(o.field, o.value) as waiting
        from pg_temp.revert_waits o where o.entity = '{entity}' group by o.n having bool_or(o.is_alone) = $1
    ) w
    where w.n = d."@ordinal";
end$sql$),

('odd_{entity}(company text, given text[])', null,
'table (n bigint, is_there boolean, is_wanted boolean, field text, wanted text, found text)',
'the rows that differ from their new values, with the first value that differs', $sql$
select m.ordinal, t.id is not null, d.id is not null, v.field, v.wanted, v.found
from pg_temp."map_{entity}" m
join pg_temp.revert_rows r on r.n = m.ordinal
cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
left join pg_temp."diff_{entity}" d on d."@ordinal" = m.ordinal
left join {table} t on t.company_id = (select $1) and t.id = m.target
left join lateral (
    select f.field, f.wanted, f.found
    from (values
        {each columns|, }
        (
            {n}, {field:L}, to_json(d.{column:I})::text, to_json({stored})::text,
            {d_differs} and k.known ? {field:L}
        )
        {end columns}
    ) as f (n, field, wanted, found, differs)
    where f.differs order by f.n limit 1
) v on t.id is not null and d.id is not null
where not m.failed and case
    when d.id is null then t.id is not null
    when t.id is null then true
    else
        {each columns| or }
        {field:L} = any ($2) and {d_differs} and k.known ? {field:L}
        {end columns}
end$sql$),

('redo_{entity}(company text)', null, 'void',
'marks the rows that differ from their new values to be written or deleted', $sql$
declare
    given constant text[] := (select f.columns from pg_temp.feed_entities f where f.name = '{entity}');
begin
    update pg_temp."diff_{entity}" d set "@new" = null where d."@new" is not null;
    insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
    select '{entity}', r.id, 'undo', '{entity}', o.n
    from bds_import."odd_{entity}"($1, given) o join pg_temp.revert_rows r on r.n = o.n where not o.is_wanted;
    update pg_temp."diff_{entity}" d
    set "@new" = not o.is_there
        {each columns}
        , {column:I} = case when o.is_there and k.known ? {field:L} is not true then {stored} else d.{column:I} end
        {end columns}
    from bds_import."odd_{entity}"($1, given) o
    join pg_temp.revert_rows r on r.n = o.n
    cross join lateral (select r.old - coalesce(r.erased, '{}')) as k (known)
    left join {table} t on t.company_id = (select $1) and t.id = r.id
    where d."@ordinal" = o.n;
end$sql$),

('undone_{entity}()', null, 'table (ordinal bigint, path text, record text)',
'the paths of rows of an undo, and their lookups', $sql$
select m.ordinal, '{entity}/' || m.target, coalesce({each keys}{field:L} || ':' || m.{key:I}, {end keys}'id:' || m.target)
from pg_temp."map_{entity}" m$sql$);
