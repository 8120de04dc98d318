-- Reading staged records, and finding the rows of their lookups.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('stage_{entity}(given jsonb)', null, 'void', 'stages a few rows', $sql$
declare
    odd text;
begin
    insert into pg_temp."staged_{entity}" select * from jsonb_populate_recordset(null::pg_temp."staged_{entity}", $1);
    -- jsonb_populate_recordset ignores members that are not columns
    select string_agg(distinct k, ', ') into odd
    from jsonb_array_elements($1) r cross join jsonb_object_keys(r) k
    where k not in ('@ordinal', '@parent', '@position', '@id', '@operation', '@where', '@lookups'
        {each columns}, {name:L}{end columns}{each children}, {whole:L}{end children});
    if odd is not null then
        raise exception using errcode = 'undefined_column', message = format('no such column of {entity}: %s', odd);
    end if;
end$sql$),

('read_{entity}(first bigint, parents bigint[], positions bigint[], records jsonb[], is_merge boolean)', null, 'void',
'stages records of a document in SQL, from the ordinal $1 on; child arrays are merged if is_merge', $sql$
begin
    insert into pg_temp."staged_{entity}" ("@ordinal", "@parent", "@position", "@id", "@operation"
        {each columns}, {name:I}{end columns}{each children}, {whole:I}{end children})
    select $1 + u.n - 1, u.parent, u.position, bds_feed.to_stage(nullif(u.r -> 'id', 'null'), false),
        case jsonb_typeof(u.r -> '@operation') when 'string' then u.r ->> '@operation' end
        {each columns}
        , bds_feed.to_stage(coalesce(u.r -> {field:L}, u.r -> {name:L}), {type:L} = 'boolean')  -- categoryId beside category
        {end columns}
        {each children}
        , case when u.r ? {collection:L} then coalesce(bds_feed.switch(u.r -> '{collection}@removeAll'),
            case when u.r -> '@operation' is distinct from '"delete"' then not $5 end) end
        {end children}
    from unnest($2, $3, $4) with ordinality as u (parent, position, r, n);
end$sql$),

('look_at_{entity}()', null, 'void',
'notes the columns of staged rows, whether every text is a value of its field''s type, and the number of rows', $sql$
begin
    update pg_temp.feed_entities f set columns = l.columns, is_valid = l.is_valid, rows = l.rows
    from (
        select count(*) as rows,
            bool_and(true{each checked} and {sound}{end checked}) is not false as is_valid,
            array_remove(array[
                case when count(s."@id") > 0 then '@id' end,
                case when count(s."@operation") > 0 then '@operation' end,
                case when count(s."@where") > 0 then '@where' end
                {each columns}
                , case when count({given}) > 0 then {name:L} end
                {end columns}
            ], null) as columns
        from pg_temp."staged_{entity}" s
    ) l
    where f.name = '{entity}';
end$sql$),

('count_{entity}()', null, 'void',
'counts the rows to be written and deleted, without those of failed records; to be called when records have failed', $sql$
begin
    if exists (select from pg_temp.feed_errors) then
        delete from pg_temp."diff_{entity}" d using pg_temp."map_{entity}" m where m.ordinal = d."@ordinal" and m.failed;
    end if;
    update pg_temp.feed_entities f
    set rows = m.rows, tops = m.tops, failed = m.failed, updates = m.updates, deletes = m.deletes,
        created = d.created, updated = d.rows - d.created, unchanged = m.writes - d.rows
    from (
        select count(*) as rows, count(*) filter (where o.parent is null) as tops, count(*) filter (where o.failed) as failed,
            count(*) filter (where o.phase = 1 and not o.failed) as writes,
            count(*) filter (where o.phase = 2 and not o.failed) as updates,
            count(*) filter (where o.phase = 3 and not o.failed) as deletes
        from pg_temp."map_{entity}" o
    ) m
    cross join (select count(o."@new") as rows, count(*) filter (where o."@new") as created from pg_temp."diff_{entity}" o) d
    where f.name = '{entity}';
end$sql$),

('refer_{entity}(import bds.imports, given text[], is_early boolean)', null, 'void',
'finds the row of each distinct lookup, in the document and in the database; if is_early, of unique references those known by now',
$sql$
declare
    "@lookups" bigint;
    "@matches" bigint;
begin
    {each references}
    if {name:L} = any ($2){if unique}{else unique} and not $3{end unique} then
        {if unique}
        if exists (select from pg_temp."lookup_{ref}") then  -- of the early ones
            delete from pg_temp."lookup_{ref}";
            delete from pg_temp."ref_{ref}";
        end if;
        {end unique}
        insert into pg_temp."lookup_{ref}"
        select r.lookup, {kind_of}, bds_feed.lookup_value(r.lookup)
        from (select distinct {given} as lookup from pg_temp."staged_{entity}" s where {given} <> e'\x01') r;
        get diagnostics "@lookups" = row_count;
        perform bds_feed.filled(import, 'lookup_{ref}');
        insert into pg_temp."ref_{ref}"
        select * from bds_import."named_{ref}"(import.company_id, array(select distinct l.kind from pg_temp."lookup_{ref}" l));
        get diagnostics "@matches" = row_count;
        if "@matches" > "@lookups" then
            perform bds_import."refuse_choices_{ref}"();
        end if;
        perform bds_feed.filled(import, 'ref_{ref}');
        if {if unique}not $3 and {end unique}exists (select from pg_temp."ref_{ref}" r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select '{entity}', s."@ordinal", {name:L}, e.code, e.message
            from pg_temp."ref_{ref}" r
            join pg_temp."staged_{entity}" s on {given} = r.lookup
            cross join lateral (select left(bds_feed.staged_text(r.lookup), 100)) as g (lookup)
            cross join lateral (
                select 'lookup_not_found', '{target} has no row ' || g.lookup || case
                    -- a column of a CSV file holds codes, to which the kind is added
                    when g.lookup like format('%1$s:%1$s:%%', r.kind)
                        then format(': expected the %s alone, without ''%1$s:''', r.kind)
                    else ''
                end
                where r.kind = any ({kinds:L})
                union all
                select 'invalid_value', format('expected a lookup ({known}), got %L', g.lookup) where r.kind <> all ({kinds:L})
            ) as e (code, message)
            where r.id is null and ({if unique}e.code = 'invalid_value' or {end unique}not {only_identifies});
        end if;
    end if;
    {end references}
end$sql$),

('refuse_choices_{ref}()', 'references', 'void',
'fails records whose {name} matches several rows, and keeps one match of each', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
    select '{entity}', s."@ordinal", {name:L}, 'lookup_ambiguous',
        format('{target} has several rows %s: the key was dropped from the table', left(bds_feed.staged_text(r.lookup), 100))
    from (select o.lookup from pg_temp."ref_{ref}" o group by o.lookup having count(*) > 1) r
    join pg_temp."staged_{entity}" s on {given} = r.lookup
    where {if unique}true{else unique}not {only_identifies}{end unique};
    delete from pg_temp."ref_{ref}" r using pg_temp."ref_{ref}" o where o.lookup = r.lookup and o.ctid < r.ctid;
end$sql$),

('named_{ref}(company text, used text[])', 'references', 'table (lookup text, kind text, id bigint)',
'the rows of the lookups of {name}; $2 are the kinds that are used', $sql$
-- rows of the document come first: the import writes them
select d.lookup, d.kind, coalesce(
    {each lookup_kinds|, }{if is_key}"new_{kind}".target, {end is_key}"old_{kind}".id{end lookup_kinds}
)
from (
    select l.lookup, l.kind
        {each lookup_kinds}
        , case when l.kind = {kind:L} then {named} end as "value_{kind}"
        {end lookup_kinds}
    from pg_temp."lookup_{ref}" l offset 0
) d
{each lookup_kinds}
{if is_key}
left join pg_temp."map_{target}" "new_{kind}"
    on {kind:L} = any ($2) and "new_{kind}"."key_{kind}" = d."value_{kind}" and not "new_{kind}".failed
{end is_key}
left join {target_table} "old_{kind}"
    on {kind:L} = any ($2) and "old_{kind}".company_id = (select $1) and {holds} = d."value_{kind}"
{end lookup_kinds}$sql$);
