-- Comparing and writing: the rows that are new or differ, as they are to become, and the statements that write them.

create function bds_feed.make_compare(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds_feed.entities;
begin
    select * into strict this from bds_feed.entities e where e.name = entity_name;
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, members text[])', 'name_' || entity_name), 'void',
        'reads what is staged and, where rows can be told by unique fields, finds the row that each record means',
        bds_impl.fill(
            $sql$
declare
    looked  record;
    outside boolean;  -- what it refers to is known before the rows of its family
begin
    perform bds_feed.show_progress(import, 'comparing', {entity:L}, 0);
    perform bds_import.{look_at:I}();
    select * into looked from pg_temp.feed_entities f where f.name = {entity:L};
    if not looked.is_valid then
        perform bds_import.{check_values:I}(import, looked.columns);
    end if;
    outside := bds_feed.refers_outside({entity:L}, members, looked.columns);
    if outside then
        perform bds_import.{refer:I}(import, looked.columns);
    end if;{match}
    perform bds_feed.show_progress(import, 'comparing', {entity:L}, 1);
end$sql$,
            'entity', entity_name, 'look_at', 'look_at_' || entity_name, 'check_values', 'check_values_' || entity_name, 'refer', 'refer_' || entity_name,
            'match', case when this.has_keys then format(E'\n    perform bds_import.%I(import, looked.columns, looked.is_valid, outside and not (%s));\n'
                '    perform bds_import.%I(import, looked.columns);', 'match_' || entity_name,
                -- where its parent's rows are not mapped yet, it is not known either whether it has moved to another
                coalesce((select format('%L = any (members)', p.name) from bds_feed.entities p where p.name = this.parent and (not p.has_keys or p.name = entity_name)), 'false'),
                'check_' || entity_name) else '' end));
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, members text[])', 'compare_' || entity_name), 'void',
        'links the other records, and finds out which rows differ',
        bds_impl.fill(
            $sql$
declare
    looked record;
begin
    select * into looked from pg_temp.feed_entities f where f.name = {entity:L};
    if not bds_feed.refers_outside({entity:L}, members, looked.columns) then
        perform bds_import.{refer:I}(import, looked.columns);
    end if;{link}
    perform bds_feed.show_progress(import, 'comparing', {entity:L}, 2);
    perform bds_import.{diff:I}(import, looked.columns, looked.is_valid);
    perform bds_import.{check_rows:I}(import, looked.columns);
    perform bds_import.{check_rules:I}(import, 0, 9223372036854775807);
    perform bds_feed.show_progress(import, 'comparing', {entity:L}, 3);
end$sql$,
            'entity', entity_name, 'refer', 'refer_' || entity_name, 'diff', 'diff_' || entity_name, 'check_rows', 'check_rows_' || entity_name,
            'check_rules', 'check_rules_' || entity_name, 'link', case when this.has_keys then '' else format(E'\n    perform bds_import.%I(import, looked.columns);\n    perform bds_import.%I(import, looked.columns);',
                'link_' || entity_name, 'check_' || entity_name) end));
end
$$;
comment on function bds_feed.make_compare(text) is 'Generates name_<entity> and compare_<entity>, which call the other functions of an entity';

create function bds_feed.make_diff(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds_feed.entities;
    list record;
begin
    select * into strict this from bds_feed.entities e where e.name = entity_name;
    select
        string_agg(format('v.%I', c.column_name), ', ' order by c.ordinal) as names,
        string_agg(format('%s as %I, t.%I as %I', bds_feed.diff_value(c), c.column_name, c.column_name, 'stored ' || c.column_name), E',\n        ' order by c.ordinal) as values,
        string_agg(format('(%s) and v.%I is distinct from v.%I',
            case when c.is_parent then 'true' when c.is_unique then bds_feed.gives(c.name, '@id') else bds_feed.gives(c.name) end,
            c.column_name, 'stored ' || c.column_name), E'\n    or ' order by c.ordinal) as differences
    into list
    from bds.import_columns c where c.entity = entity_name;
    perform bds_feed.make(
        entity_name, format('%I(company text, given text[], is_valid boolean)', 'differing_' || entity_name),
        bds_feed.rows_of('diff_' || entity_name),
        'the rows that are new or differ from what is stored, as they are to become',
        bds_impl.fill(
            $sql$
select v."@ordinal", v.id, v."@new", {names}
from (
    select m.ordinal as "@ordinal", m.target as id, m.is_new as "@new",
        {values}
    from pg_temp.{map:I} m
    join pg_temp.{staged:I} s on s."@ordinal" = m.ordinal
    left join {table} t on t.company_id = (select $1) and t.id = m.target and not m.is_new
    {joins}
    where m.phase = 1 and not m.is_same
    offset 0
) v
where v."@new" or {differences}$sql$,
            'names', list.names, 'values', list.values, 'differences', list.differences, 'table', this.table_name::text,
            'map', 'map_' || entity_name, 'staged', 'staged_' || entity_name,
            'joins', concat_ws(E'\n', nullif(bds_feed.parent_join(entity_name, 's."@parent"', 'true'), ''), bds_feed.reference_joins(entity_name, 's.%I', 'true'))
        ));
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[], is_valid boolean)', 'diff_' || entity_name), 'void',
        'keeps the rows that are new or differ from what is stored',
        bds_impl.fill(
            $sql$
begin
    if exists (select from pg_temp.{map:I} m where m.phase = 1 and not m.is_same) then
        insert into pg_temp.{diff:I} select * from bds_import.{differing:I}(import.company_id, $2, $3);
        perform bds_feed.filled(import, {diff:L});
    end if;
end$sql$,
            'map', 'map_' || entity_name, 'diff', 'diff_' || entity_name, 'differing', 'differing_' || entity_name));
end
$$;
comment on function bds_feed.make_diff(text) is 'Generates diff_<entity> and its query';

create function bds_feed.diff_value(c bds.import_columns)
    returns text
    language sql
    immutable
    return (
        select case when c.is_parent then format('coalesce(p.target, %s)', v.given) else v.given end
        -- what a row that does not give the column keeps or gets
        from (select case when c.default_expression is null then format('t.%I', c.column_name)
            else format('case when m.is_new then %s else t.%I end', c.default_expression, c.column_name) end) as o (otherwise)
        cross join lateral (select bds_feed.written_value(
            c, format('s.%I', c.name), o.otherwise, case when c.is_unique then format('m.%I', 'key_' || c.name) end)) as v (given)
    );
comment on function bds_feed.diff_value(bds.import_columns) is 'SQL for the value that a column of a row is to have';

create function bds_feed.make_write(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this bds_feed.entities;
    list record;
begin
    select * into strict this from bds_feed.entities e where e.name = entity_name;
    select
        string_agg(format('%I', c.column_name), ', ' order by c.ordinal) as columns,
        string_agg(v.value, ', ' order by c.ordinal) as values,
        string_agg(format('%I = %s', c.column_name, v.value), ', ' order by c.ordinal) as changes
    into list
    from bds.import_columns c
    cross join lateral (select
        -- In a circle of entities the other row may be written later: such a reference is null at first, and written again.
        case when c.target = any (this.waits) and not c.required then format(
            'case when %L = any ($4) and d.%I in (select w.target from pg_temp.%I w where w.is_new) then null else d.%2$I end',
            c.target, c.column_name, 'map_' || c.target)
        else format('d.%I', c.column_name) end) as v (value)
    where c.entity = entity_name;
    perform bds_feed.make(
        entity_name, format('%I(company text, first bigint, last bigint, later text[], out created bigint, out updated bigint)', 'write_' || entity_name),
        'record', 'writes the differing rows from $2 to $3, without references to new rows of the entities in $4',
        bds_impl.fill(
            $sql$
begin
    created := 0;
    updated := 0;
    -- a statement over no row costs its plan and its triggers
    if exists (select from pg_temp.{diff:I} d where d."@new") then
        insert into {table} (company_id, id, {columns})
        select $1, d.id, {values}
        from pg_temp.{diff:I} d
        where d."@new" and d."@ordinal" between $2 and $3;
        get diagnostics created = row_count;
    end if;
    -- after the new rows, to which it may refer
    if exists (select from pg_temp.{diff:I} d where not d."@new") then
        update {table} t set {changes}
        from pg_temp.{diff:I} d
        where t.company_id = (select $1) and t.id = d.id and not d."@new" and d."@ordinal" between $2 and $3;
        get diagnostics updated = row_count;
    end if;
end$sql$,
            'table', this.table_name::text, 'diff', 'diff_' || entity_name,
            'columns', list.columns, 'values', list.values, 'changes', list.changes));
end
$$;
comment on function bds_feed.make_write(text) is 'Generates write_<entity>';

create function bds_feed.make_remove(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    child  record;
    finds  text := '';
begin
    for child in select * from bds_feed.children_of(entity_name) loop
        finds := finds || bds_impl.fill(
            $sql$
    if exists (select from pg_temp.{staged:I} s where s.{whole:I}) then
        insert into pg_temp.feed_gone (entity, id, kind, cause, ticket)
        select {child:L}, c.id, 'array', {entity:L}, c.ordinal
        from (
            select t.id, p.ordinal
            from pg_temp.{map:I} p join pg_temp.{staged:I} s on s."@ordinal" = p.ordinal
            join {table} t on t.company_id = (select $1) and t.{column:I} = p.target
            where s.{whole:I} and p.phase = 1 and not p.failed and not p.is_new
            offset 0
        ) c
        -- a record that failed protects its row, too
        where not exists (select from pg_temp.{children:I} m where m.target = c.id);
    end if;$sql$,
            'staged', 'staged_' || entity_name, 'whole', child.collection || '@present', 'child', child.target, 'entity', entity_name,
            'map', 'map_' || entity_name, 'table', child.table_name::text, 'column', child.column_name, 'children', 'map_' || child.target);
    end loop;
    perform bds_feed.make(
        entity_name, format('%I(company text)', 'find_removed_' || entity_name), 'void',
        'puts the children that their parents'' arrays, given whole, no longer contain into feed_gone, by the parent record', format(E'begin%s\nend', finds));
end
$$;
comment on function bds_feed.make_remove(text) is 'Generates find_removed_<entity>';
