-- Comparing and writing: the rows that are new or differ, with their new values, and the statements that write them.

insert into bds_feed.templates (signature, of, result, purpose, body) values
('name_{entity}(import bds.imports, members text[])', null, 'void',
'reads what is staged and, if the entity has unique fields, finds the row of each record', $sql$
declare
    looked  record;
    outside boolean;  -- it refers only to rows outside of its family
begin
    perform bds_feed.show_progress(import, 'comparing', '{entity}', 0);
    perform bds_import."look_at_{entity}"();
    select * into looked from pg_temp.feed_entities f where f.name = '{entity}';
    if not looked.is_valid then
        perform bds_import."check_values_{entity}"();
    end if;
    outside := not ({refers_inside});
    if outside then
        perform bds_import."refer_{entity}"(import, looked.columns, false);
    {if key_references}
    else
        perform bds_import."refer_{entity}"(import, looked.columns, true);
    {end key_references}
    end if;
    {if matched_early}
    -- whether a row has moved to another parent can be compared only when the parent's rows are mapped
    perform bds_import."match_{entity}"(import, looked.columns, looked.is_valid, outside and not ({parent_later}));
    perform bds_import."check_{entity}"(looked.columns);
    {end matched_early}
    perform bds_feed.show_progress(import, 'comparing', '{entity}', 1);
end$sql$),

('compare_{entity}(import bds.imports, members text[])', null, 'void',
'links the other records, and finds the rows that differ', $sql$
declare
    looked record;
begin
    select * into looked from pg_temp.feed_entities f where f.name = '{entity}';
    if {refers_inside} then
        perform bds_import."refer_{entity}"(import, looked.columns, false);
    end if;
    {if matched_late}
    perform bds_import."match_{entity}"(import, looked.columns, looked.is_valid, true);
    perform bds_import."check_{entity}"(looked.columns);
    {end matched_late}
    {if linked}
    perform bds_import."link_{entity}"(import, looked.columns, looked.is_valid);
    perform bds_import."check_{entity}"(looked.columns);
    {end linked}
    perform bds_feed.show_progress(import, 'comparing', '{entity}', 2);
    if exists (select from pg_temp."map_{entity}" m where m.phase = 1 and not m.is_same) then
        begin
            insert into pg_temp."diff_{entity}"
            select * from bds_import."differing_{entity}"(import.company_id, looked.columns, looked.is_valid);
        exception when others then  -- a default may raise
            if not bds_feed.is_fault_of_rows(import, sqlstate) then
                raise;
            end if;
            perform bds_import."fail_defaults_{entity}"(import);
            insert into pg_temp."diff_{entity}"
            select * from bds_import."differing_{entity}"(import.company_id, looked.columns, looked.is_valid);
        end;
        perform bds_feed.filled(import, 'diff_{entity}');
    end if;
    {if upward}
    perform bds_import."check_nesting_{entity}"(looked.columns);
    {end upward}
    perform bds_import."check_rules_{entity}"(import, 0, 9223372036854775807);
    perform bds_feed.show_progress(import, 'comparing', '{entity}', 3);
end$sql$),

('fail_defaults_{entity}(import bds.imports)', null, 'void',
'fails the records that use a default which raises, and takes them out of the comparison', $sql$
begin
    {each defaulted}
    begin
        perform {default};
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
        with used as (
            update pg_temp."map_{entity}" m set is_same = true
            from pg_temp."staged_{entity}" s
            where s."@ordinal" = m.ordinal and m.phase = 1
                and (m.is_new and {given} is null or {required} and {given} = e'\x01')
            returning m.ordinal
        )
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select '{entity}', u.ordinal, '{name}', 'invalid_value', 'the default of {name} raises an error' from used u
        where not exists (
            select from pg_temp.feed_errors e where e.entity = '{entity}' and e.ordinal = u.ordinal and e.field = '{name}');
    end;
    {end defaulted}
end$sql$),

('fail_cleared_{entity}(import bds.imports)', 'fallible', 'boolean',
'fails the records that set a field to a default which raises, and takes the field out of them; whether there are any', $sql$
declare
    found_any boolean := false;
begin
    {each fallible}
    begin
        perform {default};
    exception when others then
        if not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
        with cleared as (
            update pg_temp."staged_{entity}" s set {name:I} = null
            where {given} = e'\x01' and s."@where" is null and not {only_identifies}
            returning s."@ordinal" as ordinal
        )
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message, is_kept)
        select '{entity}', c.ordinal, '{name}', 'invalid_value', 'the default of {name} raises an error', true from cleared c;
        found_any := found_any or found;
    end;
    {end fallible}
    return found_any;
end$sql$),

('differing_{entity}(company text, given text[], is_valid boolean)', null, 'diff_{entity}',
'the rows that are new or differ from what is stored, with their new values', $sql$
select v."@ordinal", v.id, v."@new"{each masks}, v.{mask:I}{end masks}{each columns}, v.{column:I}{end columns}
from (
    select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new"
        {each masks}
        , {given_bits} as {mask:I}
        {end masks}
        {each columns}
        , {written} as {column:I}, {stored} as "stored {column}"
        {end columns}
    from pg_temp."map_{entity}" m
    join pg_temp."staged_{entity}" s on s."@ordinal" = m.ordinal
    left join {table} t on t.company_id = (select $1) and t.id = m.target and not m.is_new
    {if parent}
    left join pg_temp."map_{parent}" p on p.ordinal = s."@parent"
    {end parent}
    {each references}
    left join pg_temp."ref_{ref}" "ref_{name}" on '{name}' = any ($2) and "ref_{name}".lookup = {given}
    {end references}
    where m.phase = 1 and not m.is_same
    offset 0
) v
where v."@new"
    {each columns}
    or ({gives}) and {is_changed}
    {end columns}
$sql$),

-- A MERGE fires the triggers of each of its actions, even for no row, which takes a twentieth of the time of a small import.  So a
-- MERGE without a row to update has no update.  New rows need no join with the table.
--
-- The updates of a statement are logged before its inserts.  A row has to be logged before rows that refer to it: such updates have
-- a statement of their own.
--
-- A field that a record does not have is not written to its row: a trigger may have set it since the rows were compared.
('write_{entity}(company text, first bigint, last bigint, later text[], is_undo boolean)', null, 'void',
'writes the differing rows from $2 to $3, of stored rows what masks say, but no reference to a new row of entities in $4', $sql$
declare
    "@creates" boolean := exists (select from pg_temp."diff_{entity}" d where d."@new");
    "@changes" boolean := exists (select from pg_temp."diff_{entity}" d where not d."@new");
    "@apart"   boolean := false;
    "@written" bigint;
    "@outer"   text := coalesce(current_setting('bds.unchanged', true), '');  -- of the statement that has fired this one
begin
    perform set_config('bds.unchanged', pg_trigger_depth() + 1 || ':0', true);
    {each inside}
    "@apart" := "@apart" or "@creates" and "@changes" and exists (
        select from pg_temp."diff_{entity}" d join pg_temp."diff_{entity}" n on n."@new" and n.id = d.{column:I}
        where not d."@new");
    {end inside}
    {each writes}
    if {applies} then
        merge into {table} t
        using (
            select d."@new", d.id{each masks}, d.{mask:I}{end masks}
                {each columns}
                , {to_write} as {column:I}
                {end columns}
            from pg_temp."diff_{entity}" d
            where d."@ordinal" between $2 and $3 and {chosen}
        ) d
        on {matches}
        {if changes}
        when matched then update set {each changeable|,
            }{column:I} = case when d.{mask:I} & {bit} <> 0 then d.{column:I} else t.{column:I} end{end changeable}
        {end changes}
        {if creates}
        when not matched and d."@new" then
            insert (company_id, id{each columns}, {column:I}{end columns}) overriding system value
            values ($1, d.id{each columns}, d.{column:I}{end columns}){end creates};
        get diagnostics "@written" = row_count;
        -- an update is left out, too, if a trigger of the owner has taken its change back
        if not $5 and "@written" + split_part(current_setting('bds.unchanged'), ':', 2)::bigint < (
            select count(*) from pg_temp."diff_{entity}" d where d."@ordinal" between $2 and $3 and {chosen}
        ) then
            {if creates}
            perform bds_import."require_created_{entity}"($1, $2, $3);
            {end creates}
            {if changes}
            perform bds_import."refuse_change_{entity}"($2, $3);
            {end changes}
        end if;
    end if;
    {end writes}
    perform set_config('bds.unchanged', "@outer", true);
end$sql$),

('refuse_change_{entity}(first bigint, last bigint)', null, 'void',
'raises BDF01 with the record from $1 to $2 whose row a trigger of the owner does not let change; 27000 if it is one of several',
$sql$
declare
    ordinals bigint[] := array(
        select distinct d."@ordinal" from pg_temp."diff_{entity}" d where not d."@new" and d."@ordinal" between $1 and $2);
begin
    raise exception using
        errcode = case cardinality(ordinals) when 1 then 'BDF01' else '27000' end, message = 'a trigger leaves rows out',
        detail = jsonb_build_array(jsonb_build_object(
            'entity', '{entity}', 'ordinal', ordinals[1], 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being changed'));
end$sql$),

('resume_later_{entity}()', 'waits', 'void',
'marks only the rows to be written whose references to new rows were left out, with nothing but these references', $sql$
begin
    update pg_temp."diff_{entity}" d set {each masks|, }{mask:I} = {later_bits}{end masks} where d."@new" is not null;
    update pg_temp."diff_{entity}" d set "@new" = case when {each masks| or }d.{mask:I} <> 0{end masks} then false end
    where d."@new" is not null;
end$sql$),

('require_created_{entity}(company text, first bigint, last bigint)', null, 'void',
'raises BDF01 with the records from $2 to $3 whose new rows a trigger of the owner has left out', $sql$
declare
    problems jsonb := (
        select jsonb_agg(jsonb_build_object(
            'entity', '{entity}', 'ordinal', d."@ordinal", 'code', 'invalid_value',
            'message', 'a trigger keeps the row from being created'))
        from pg_temp."diff_{entity}" d
        where d."@new" and d."@ordinal" between $2 and $3
            and not exists (select from {table} t where t.company_id = (select $1) and t.id = d.id));
begin
    if problems is not null then
        raise exception using errcode = 'BDF01', message = 'a trigger leaves rows out', detail = problems;
    end if;
end$sql$);
