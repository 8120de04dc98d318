-- Matching: the stored row of each record, by its own lookup or by its unique fields.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('match_{entity}(import bds.imports, given text[], is_valid boolean, compare boolean)', 'has_keys', 'void',
'maps staged rows to stored ones, and compares them on the way if compare', $sql$
declare
    -- the identifying field of the document, if there is only one: then no record is ambiguous
    sole text := (
        select case when count(*) = 1 and '@id' <> all ($2) then min(k) end
        from unnest(array[{each keys|, }'{name}'{end keys}]) k
        where k = any ($2){each upward} or k = '{name}'{end upward});
    "@matches" bigint;
begin
    -- new rows get their ids, in the order of the document, before they are written: references need them
    {if fallible}
    loop begin
    {end fallible}
    {each ways}
    if {if sole}sole = '{sole}'{else sole}sole is null{end sole} then
        insert into pg_temp."map_{entity}"
        select o.ordinal, o.parent, o.position, o.phase, o.operation,
            coalesce(o.target, case when o.phase = 1 then nextval({sequence:L}) end),
            o.is_new, o.is_ambiguous, o.is_same, o.failed, o.id, o.id_kind{each keys}, o.{key:I}{end keys}
            {if linked_keys}
            , o.home, o.shape
            {end linked_keys}
        from (select * from bds_import."matched_{entity}{by}"(import.company_id, $2, $3, $4) order by ordinal) o;
        get diagnostics "@matches" = row_count;
    end if;
    {end ways}
    if "@matches" > (
        {if linked_keys}
        select count(*) from pg_temp."staged_{entity}" s where not {unnamed}
        {else linked_keys}
        select f.rows from pg_temp.feed_entities f where f.name = '{entity}'
        {end linked_keys}
    ) then
        perform bds_import."refuse_copies_{entity}"();
    end if;
    {if fallible}
        exit;
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) or not bds_import."fail_cleared_{entity}"(import) then
            raise;
        end if;
    end; end loop;
    {end fallible}
    perform bds_feed.filled(import, 'map_{entity}');
    perform bds_import."check_keys_{entity}"(
        import, $2, sole is not null, exists (select from pg_temp."map_{entity}" m where m.is_new and m.phase = 1));
end$sql$),

('matched_{entity}{by}(company text, given text[], is_valid boolean, compare boolean)', 'ways', 'map_{entity}',
'the row of each staged row{if sole}, if {sole} is their only identifying field{end sole}', $sql$
select s."@ordinal", s."@parent", coalesce(s."@position", s."@ordinal"), s."@phase", coalesce(s."@operation", 'upsert'), m.target,
    m.target is null and s."@where" is null, m.is_ambiguous,
    case when $4 and t.id is not null and not m.is_ambiguous and s."@phase" = 1 then true
        {each compared}
        and (not ({gives}) or {is_stored})
        {end compared}
    else false end,
    false, s."@id", s."@kind"{each keys}, m.{key:I}{end keys}{if linked_keys}, null::bigint, null::bigint{end linked_keys}
from (
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.kind as "@kind", case when '@id' = any ($2) then bds_feed.lookup_id(s."@id") end as "@find_id"
        {each keys}
        -- a delete uses only what identifies it; null clears the field by whose value the lookup has found the row
        , case
            when s."@operation" = 'delete' then o."{name}"
            when {given} is distinct from e'\x01' then coalesce(n."{name}", o."{name}")
        end as "@key_{name}"
        , o."{name}" as "@find_{name}"
        {end keys}
    from pg_temp."staged_{entity}" s {container_join}
    {each key_references}
    left join pg_temp."ref_{ref}" "own_{name}" on '{name}' = any ($2) and "own_{name}".lookup = {given}
    {end key_references}
    cross join lateral (select case when '@id' = any ($2) then {kind_of_id} end,
        case when '@id' = any ($2) then bds_feed.lookup_value(s."@id") end) as l (kind, value)
    -- the unique fields of a mass update are values to write
    left join lateral (select {each keys|, }{own} as "{name}"{end keys}) as n on s."@where" is null
    cross join lateral (
        select {each keys|, }case when s."@id" is null then n."{name}" when l.kind = '{name}' then {named} end as "{name}"{end keys}
    ) as o
    {if linked_keys}where not {unnamed}{end linked_keys} offset 0  -- the others are linked
) s
{if sole}
left join {table} t on t.company_id = (select $1) and {stored} = s."@find_{sole}"
{else sole}
{each keys}
left join {table} "by_{name}" on ({gives}) and "by_{name}".company_id = (select $1) and {found} = s."@find_{name}"
{end keys}
left join {table} by_id on '@id' = any ($2) and by_id.company_id = (select $1) and by_id.id = s."@find_id"
cross join lateral (
    select least(by_id.id{each keys}, "by_{name}".id{end keys}), greatest(by_id.id{each keys}, "by_{name}".id{end keys})
) as f (id, other)
left join {table} t on $4 and t.company_id = (select $1) and t.id = f.id
{end sole}
cross join lateral (
    select {if sole}t.id as target, false{else sole}f.id as target, f.id <> f.other{end sole} as is_ambiguous, false as is_new
        {each keys}
        , s."@key_{name}" as {key:I}
        {end keys}
) m
{if parent}
left join pg_temp."map_{parent}" p on $4 and p.ordinal = s."@parent"
{end parent}
{each references}
left join pg_temp."ref_{ref}" "ref_{name}" on $4 and '{name}' = any ($2) and "ref_{name}".lookup = {given}
{end references}
$sql$),

('refuse_copies_{entity}()', 'has_keys', 'void', 'fails records that match several rows, and keeps one match of each', $sql$
begin
    insert into pg_temp.feed_errors (entity, ordinal, code, message)
    select '{entity}', m.ordinal, 'lookup_ambiguous', 'several rows have its unique value: the key was dropped from the table'
    from pg_temp."map_{entity}" m group by m.ordinal having count(*) > 1;
    delete from pg_temp."map_{entity}" m using pg_temp."map_{entity}" o where o.ordinal = m.ordinal and o.ctid < m.ctid;
    update pg_temp."map_{entity}" m set failed = true, is_same = true  -- at once: no lookup may find it
    from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = m.ordinal and e.code = 'lookup_ambiguous';
end$sql$),

('check_keys_{entity}(import bds.imports, given text[], says_one boolean, has_new boolean)', null, 'void',
'finds records whose lookup is wrong, ambiguous or unknown, and identities with two records', $sql$
begin
    if not $3 then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', m.ordinal, v.field, v.code, v.message
        from pg_temp."map_{entity}" m
        cross join lateral (values
            (m.id_kind <> all ({kinds:L}), 'id', 'invalid_value',
                format('expected a lookup ({known}), got %L', left(bds_feed.staged_text(m.id), 100))),
            (m.id_kind = 'id' and m.is_new and m.operation <> 'delete', 'id', 'not_found', format('no such row: %s', m.id)),
            (m.is_ambiguous, null, 'lookup_ambiguous', 'its unique fields name different rows')
        ) as v (is_wrong, field, code, message)
        where (m.id_kind <> all ({kinds:L}) or m.id_kind = 'id' and m.is_new or m.is_ambiguous) and v.is_wrong;
    end if;
    if '@id' = any ($2) then
        {each checked_keys}
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)  -- a text of another type
        select '{entity}', m.ordinal, 'id', 'invalid_value',
            format('expected %s, got %L', {expected:L}, left(bds_feed.staged_text(m.id), 100))
        from pg_temp."map_{entity}" m
        cross join lateral (select bds_feed.lookup_value(m.id)) as l (value)
        where m.is_new and m.id_kind = '{name}' and m.operation in ('create', 'upsert') and ({named}) is null;
        {end checked_keys}
        -- a record without a lookup of its own matches the row with its value; only others can have the value of another row
        {each keys}
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', m.ordinal, '{name}', 'already_exists', format('row %s has %s %L', t.id, '{name}', m.{key:I})
        from pg_temp."map_{entity}" m
        join {table} t on t.company_id = (select import.company_id) and {stored} = m.{key:I}
        where m.id is not null and m.phase <> 3 and t.id <> m.target and not m.failed;
        {end keys}
        update pg_temp."map_{entity}" m set failed = true  -- at once: other records may then have its unique values
        from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = m.ordinal and m.id is not null;
    end if;
    if exists (select from pg_temp."map_{entity}" m offset 1) then  -- one record has no duplicate
        perform bds_import."check_claims_{entity}"(import, $2, $3, $4);
    end if;
end$sql$),

('check_claims_{entity}(import bds.imports, given text[], says_one boolean, has_new boolean)', null, 'void',
'finds the second and later records with one identity', $sql$
begin
    {each claims}
    if {if unique}({gives}) and (not $3 or $4 or '@operation' = any ($2)){else unique}true{end unique} then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        with claimed as materialized (
            select m.ordinal, k.key
            from pg_temp."map_{entity}" m
            -- a delete by an id that no row has claims the id
            cross join lateral (
                select {if unique}m.{key:I}{else unique}coalesce(m.target, bds_feed.lookup_id(m.id)){end unique}
            ) as k (key)
            where k.key is not null
                {if unique}
                and (not m.failed or m.is_new and m.id_kind = '{name}' and m.{key:I}::text = bds_feed.lookup_value(m.id))
                and (m.is_new or not $3)
                {else unique}
                and (not m.is_new or m.phase = 3 and not m.failed)
                {end unique}
        )
        select '{entity}', d.ordinal, {if unique}'{name}'{else unique}null{end unique}, 'duplicate_record',
            'an earlier record of this document names the same row'
        from (
            select c.ordinal, row_number() over (partition by c.key order by c.ordinal) as n from claimed c
            where c.key in (select o.key from claimed o group by o.key having count(*) > 1)
        ) d
        where d.n > 1 and not exists (
            select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = d.ordinal and e.code = 'duplicate_record'
        );
        if found then
            update pg_temp."map_{entity}" m set failed = true  -- at once: no lookup may find it
            from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;
    end if;
    {end claims}
end$sql$);
