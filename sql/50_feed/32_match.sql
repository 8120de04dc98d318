-- Matching: which stored row each record means, by its own lookup or by its unique fields.

create function bds_feed.make_match(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    keys text[] := array(select c.name from bds.import_columns c where c.entity = entity_name and c.is_unique order by c.ordinal);
    key  text;
    sole text := '';
begin
    perform bds_feed.make_matched(entity_name, null);
    foreach key in array keys loop
        perform bds_feed.make_matched(entity_name, key);
        sole := sole || bds_impl.fill(
            $sql$
    {word} says_one and {key:L} = any ($2) then
        insert into pg_temp.{map:I} select * from bds_import.{matched:I}(import.company_id, $2, $3, $4);$sql$,
            'word', case when sole = '' then 'if' else 'elsif' end, 'key', key, 'map', 'map_' || entity_name,
            'matched', format('matched_%s_by_%s', entity_name, key));
    end loop;
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[], is_valid boolean, compare boolean)', 'match_' || entity_name), 'void',
        'maps staged rows to stored ones, and compares them on the way if compare',
        bds_impl.fill(
            $sql$
declare
    -- a record that says one thing alone of itself cannot contradict itself
    says_one boolean := '@id' <> all ($2) and (select count(*) = 1 from unnest({keys:L}::text[]) k where k = any ($2));
    has_new  boolean;
begin{sole}
    else
        insert into pg_temp.{map:I} select * from bds_import.{matched:I}(import.company_id, $2, $3, $4);
    end if;
    perform bds_feed.filled(import, {map:L});
    has_new := case when import.is_small then bds_import.{number:I}() else bds_feed.number_new_rows({entity:L}) end;
    perform bds_import.{check_keys:I}(import, $2, says_one, has_new);
end$sql$,
            'keys', keys::text, 'sole', sole, 'map', 'map_' || entity_name, 'matched', 'matched_' || entity_name,
            'check_keys', 'check_keys_' || entity_name, 'number', 'number_' || entity_name, 'entity', entity_name));
end
$$;
comment on function bds_feed.make_match(text) is 'Generates match_<entity> and its queries';

create function bds_feed.make_matched(entity_name text, sole text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this    bds_feed.entities;
    is_same text := bds_feed.same_values(entity_name, coalesce('by_' || sole, 't'), sole);
    keys    record;
begin
    select * into strict this from bds_feed.entities e where e.name = entity_name;
    select
        string_agg(bds_impl.fill(
            $sql$coalesce(said.{field:I}, case when l.id_kind = {field:L} then {named} end) as {key:I},
        case when s."@id" is null then said.{field:I} when l.id_kind = {field:L} then {named} end as {find:I}$sql$,
            'field', c.name, 'named', bds_feed.named_value('l.id_value', c.type, c.sql_type), 'key', '@key_' || c.name, 'find', '@find_' || c.name),
            E',\n        ' order by c.ordinal) as found,
        string_agg(format('%s as %I', bds_feed.staged_value(format('s.%I', c.name), c.type, c.sql_type), c.name), ', ' order by c.ordinal) as said,
        string_agg(format('x.%I', '@key_' || c.name), ', ' order by c.ordinal) as keys,
        string_agg(format('left join %1$s %2$I on (%3$s) and %2$I.company_id = (select $1) and %2$I.%4$I = x.%5$I',
            this.table_name, 'by_' || c.name, bds_feed.gives(c.name, '@id'), c.column_name, '@find_' || c.name),
            E'\n' order by c.ordinal) filter (where sole is null or c.name = sole) as joins,
        string_agg(format('%I.id', 'by_' || c.name), ', ' order by c.ordinal) as ids
    into strict keys
    from bds.import_columns c where c.entity = entity_name and c.is_unique;
    perform bds_feed.make(
        entity_name, format('%I(company text, given text[], is_valid boolean, compare boolean)', concat_ws('_by_', 'matched_' || entity_name, sole)),
        bds_feed.rows_of('map_' || entity_name),
        'the row that each staged row means' || coalesce(', if all that they say of themselves is ' || sole, ''),
        bds_impl.fill(
            bds_feed.matched_template(), 'keys', keys.keys, 'found', keys.found, 'said', keys.said, 'is_same', is_same,
            'staged', 'staged_' || entity_name, 'joins', concat_ws(E'\n', keys.joins, case when sole is null then
                format('left join %s by_id on ''@id'' = any ($2) and by_id.company_id = (select $1) and by_id.id = x."@find_id"', this.table_name) end),
            'kind', bds_feed.lookup_kind('s."@id"'), 'value', bds_feed.lookup_value('s."@id"'), 'id', bds_feed.lookup_id('l.id_value'),
            'match', case when sole is not null then format('%I.id, false', 'by_' || sole)
                else format('least(%1$s, by_id.id), least(%1$s, by_id.id) <> greatest(%1$s, by_id.id)', keys.ids) end,
            'compared', concat_ws(E'\n',
                case when sole is null then format('left join %s t on $4 and t.company_id = (select $1) and t.id = m.target', this.table_name) end,
                bds_feed.parent_join(entity_name, 'x."@parent"', '$4'), bds_feed.reference_joins(entity_name, 'x.%I', '$4'))
        ));
end
$$;
comment on function bds_feed.make_matched(text, text) is 'Generates matched_<entity>, or matched_<entity>_by_<key> for documents that give that key alone';

create function bds_feed.matched_template()
    returns text
    language sql
    immutable
    return $sql$
select x."@ordinal", x."@parent", coalesce(x."@position", x."@ordinal"), x."@phase", coalesce(x."@operation", 'upsert'), m.target,
    m.target is null and x."@where" is null, m.is_ambiguous, {is_same}, false, x."@id", x."@kind", {keys}
from (
    -- behind a fence, because row level security keeps expressions that might tell what they see from the index
    select s.*, case when s."@operation" = 'delete' then 3 when s."@where" is not null then 2 else 1 end as "@phase",
        l.id_kind as "@kind", case when l.id_kind = 'id' then {id} end as "@find_id",
        {found}
    from pg_temp.{staged:I} s
    cross join lateral (select case when '@id' = any ($2) then {kind} end, case when '@id' = any ($2) then {value} end) as l (id_kind, id_value)
    -- what a mass update writes names no row
    left join lateral (select {said}) as said on s."@where" is null
    offset 0
) x
{joins}
cross join lateral (select {match}) as m (target, is_ambiguous)
{compared}$sql$;
comment on function bds_feed.matched_template() is 'The query of matched_<entity>';

create function bds_feed.same_values(entity_name text, stored text, sole text)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select format('case when $4 and %I.id is not null and not m.is_ambiguous and x."@phase" = 1 then true', stored)
            || coalesce(string_agg(format(
                E'\n    and (%s or %s is not distinct from %I.%I)',
                case when c.is_parent then 'false' when c.is_unique then format('not (%s)', bds_feed.gives(c.name, '@id'))
                    else format('not (%s)', bds_feed.gives(c.name)) end,
                case when c.is_parent then 'coalesce(p.target, ' else '' end
                    || bds_feed.written_value(c, format('x.%I', c.name), format('%I.%I', stored, c.column_name), format('x.%I', '@key_' || c.name))
                    || case when c.is_parent then ')' else '' end,
                stored, c.column_name), '' order by c.ordinal), '') || ' else false end'
        from bds.import_columns c
        where c.entity = entity_name and c.name is distinct from sole  -- what has found the row is the row's
    );
comment on function bds_feed.same_values(text, text, text) is 'SQL that tells whether a staged row x would change nothing in the stored row that it means';

create function bds_feed.number_new_rows(entity_name text)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    has_new  boolean;
    map      text := format('pg_temp.%I', 'map_' || entity_name);
    sequence text := (select pg_get_serial_sequence(e.table_name::text, 'id') from bds_feed.entities e where e.name = entity_name);
begin
    -- ids are taken ahead, so that references to new rows are known before they are written; they follow the document
    execute format('select exists (select 1 from %s m where m.target is null and m.phase = 1)', map) into has_new;
    if has_new then
        execute format('alter table %s rename to feed_unnumbered', map);
        execute format('create temporary table %I on commit delete rows as select * from pg_temp.feed_unnumbered with no data', 'map_' || entity_name);
        execute (
            select format('insert into %s select %s from (select * from pg_temp.feed_unnumbered order by ordinal) o', map, string_agg(
                case a.attname when 'target' then format('coalesce(o.target, case when o.phase = 1 then nextval(%L) end)', sequence)
                    else format('o.%I', a.attname) end, ', ' order by a.attnum))
            from pg_attribute a where a.attrelid = 'pg_temp.feed_unnumbered'::regclass and a.attnum > 0
        );
        drop table pg_temp.feed_unnumbered;
        execute format('analyze %s', map);
    end if;
    return has_new;
end
$$;
comment on function bds_feed.number_new_rows(text) is 'Takes the ids of the new rows of a large import ahead; whether there are any';

create function bds_feed.make_check_keys(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    taken      text;
    duplicates text;
begin
    select
        string_agg(bds_impl.fill(
            $sql$
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select {entity:L}, m.ordinal, {field:L}, 'already_exists', format('row %s has %s %L', t.id, {field:L}, m.{key:I})
        from (select * from pg_temp.{map:I} where id is not null and phase <> 3 offset 0) m
        join {table} t on t.company_id = (select import.company_id) and t.{column:I} = m.{key:I}
        where t.id <> m.target;$sql$,
            'entity', entity_name, 'field', c.name, 'key', 'key_' || c.name, 'map', 'map_' || entity_name,
            'table', e.table_name::text, 'column', c.column_name), '' order by c.ordinal),
        string_agg(bds_impl.fill(
            $sql$
    if {field:L} = any ($2) or '@id' = any ($2) then{step}
    end if;$sql$,
            'field', c.name, 'step', bds_feed.duplicates_step(entity_name, 'key_' || c.name, c.name, format(
                -- what a record that goes says beside its id is nothing that it claims
                $sql$m.%1$I is not null and (not m.failed or m.is_new and m.id_kind = %2$L and m.%1$I::text = %3$s)
            and (m.phase <> 3 or m.id is null) and (m.is_new or not $3)$sql$,
                'key_' || c.name, c.name, bds_feed.lookup_value('m.id')))), '' order by c.ordinal)
    into taken, duplicates
    from bds.import_columns c join bds.entities e on e.name = c.entity
    where c.entity = entity_name and c.is_unique;
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[], says_one boolean, has_new boolean)', 'check_keys_' || entity_name), 'void',
        'finds records whose lookup is wrong, ambiguous or unknown, and rows that are named twice',
        bds_impl.fill(
            bds_feed.check_keys_template(), 'entity', entity_name, 'map', 'map_' || entity_name,
            'kinds', bds_feed.lookup_kinds(entity_name)::text, 'shown', bds_feed.staged_text('m.id'),
            'known', array_to_string(array(select k || ':...' from unnest(bds_feed.lookup_kinds(entity_name)) k), ', '),
            'taken', taken, 'same_target', bds_feed.duplicates_step(entity_name, 'target', null, 'm.target is not null and not m.is_new'),
            'duplicates', duplicates));
end
$$;
comment on function bds_feed.make_check_keys(text) is 'Generates check_keys_<entity>';

create function bds_feed.check_keys_template()
    returns text
    language sql
    immutable
    return $sql$
begin
    if not $3 then
        insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
        select {entity:L}, m.ordinal, v.field, v.code, v.message
        from pg_temp.{map:I} m
        cross join lateral (values
            (m.id_kind <> all ({kinds:L}), 'id', 'invalid_value', format('expected a lookup (%s), got %L', {known:L}, left({shown}, 100))),
            (m.id_kind = 'id' and m.is_new and m.operation <> 'delete', 'id', 'not_found', format('no such row: %s', m.id)),
            (m.is_ambiguous, null, 'lookup_ambiguous', 'its unique fields name different rows')
        ) as v (is_wrong, field, code, message)
        where (m.id_kind <> all ({kinds:L}) or m.id_kind = 'id' and m.is_new or m.is_ambiguous) and v.is_wrong;
    end if;
    if '@id' = any ($2) then
        -- without a lookup of its own the record would have been matched by the value: only named ones can meet another's here
{taken}
        update pg_temp.{map:I} m set failed = true  -- at once: what they do not come to be called is left to others
        from pg_temp.feed_errors e where e.entity = {entity:L} and e.ordinal = m.ordinal and m.id is not null;
    end if;
{same_target}
    if $3 and not $4 and '@operation' <> all ($2) then
        return;
    end if;{duplicates}
end$sql$;
comment on function bds_feed.check_keys_template() is 'The body of check_keys_<entity>';

create function bds_feed.duplicates_step(entity_name text, key text, field text, condition text)
    returns text
    language plpgsql
    immutable
as $$
begin
    return bds_impl.fill(
        $sql$
        if (select count(m.{key:I}) > count(distinct m.{key:I}) from pg_temp.{map:I} m where {condition}) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select {entity:L}, d.ordinal, {field}, 'duplicate_record', 'an earlier record of this document names the same row'
            from (
                select m.ordinal, row_number() over (partition by m.{key:I} order by m.ordinal) as n from pg_temp.{map:I} m where {condition}
            ) d
            where d.n > 1 and not exists (
                select from pg_temp.feed_errors e where e.entity = {entity:L} and e.ordinal = d.ordinal and e.code = 'duplicate_record'
            );
            update pg_temp.{map:I} m set failed = true  -- at once: no lookup may find them
            from pg_temp.feed_errors e where e.entity = {entity:L} and e.ordinal = m.ordinal and e.code = 'duplicate_record';
        end if;$sql$,
        'key', key, 'map', 'map_' || entity_name, 'entity', entity_name, 'field', coalesce(quote_literal(field), 'null'), 'condition', condition);
end
$$;
comment on function bds_feed.duplicates_step(text, text, text, text) is 'The step of check_keys_<entity> that fails every later record with the key of an earlier one';
