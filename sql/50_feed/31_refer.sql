-- Reading what is staged, and finding the rows that its lookups name.

create function bds_feed.make_stage(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.make(
        entity_name, format('%I(given jsonb)', 'stage_' || entity_name), 'void', 'stages a few rows',
        bds_impl.fill(
            $sql$
begin
    insert into pg_temp.{staged:I} select * from jsonb_populate_recordset(null::pg_temp.{staged:I}, $1);
    -- a member that is no column would be lost
    if exists (select from jsonb_array_elements($1) r cross join jsonb_object_keys(r) k where k <> all ({names:L})) then
        raise exception using errcode = 'undefined_column', message = 'no such column of {entity}';
    end if;
end$sql$,
            'staged', 'staged_' || entity_name, 'entity', entity_name, 'names', (
                select array_agg(n.name)::text from (
                    select unnest('{@ordinal,@parent,@position,@id,@operation,@where,@lookups}'::text[]) as name
                    union all select c.name from bds.import_columns c where c.entity = entity_name
                    union all select h.collection || '@present' from bds_feed.children_of(entity_name) h
                ) n
            )));
end
$$;
comment on function bds_feed.make_stage(text) is 'Generates stage_<entity>';

create function bds_feed.make_look_at(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.make(
        entity_name, format('%I()', 'look_at_' || entity_name), 'void',
        'notes which columns a staged row gives, whether every text is a value of its field''s type, and the number of rows',
        bds_impl.fill(
            $sql$
begin
    update pg_temp.feed_entities f set columns = l.columns, is_valid = l.is_valid, rows = l.rows
    from (
        select count(*) as rows, count(*) filter (where not ({valid})) = 0 as is_valid,
            array_remove(array[{given}], null) as columns
        from pg_temp.{staged:I} s
    ) l
    where f.name = {entity:L};
end$sql$,
            'given', (
                select string_agg(format('case when count(s.%I) > 0 then %L end', c.name, c.name), E',\n            ' order by c.n)
                from (
                    select w.name, w.n from unnest(array['@id', '@operation', '@where']) with ordinality as w (name, n)
                    union all select i.name, 3 + i.ordinal from bds.import_columns i where i.entity = entity_name
                ) c
            ),
            'valid', bds_feed.valid_values(entity_name), 'staged', 'staged_' || entity_name, 'entity', entity_name
        ));
    perform bds_feed.make(
        entity_name, format('%I()', 'count_' || entity_name), 'void', 'counts what there is to do; to be called when records have failed',
        bds_impl.fill(
            $sql$
begin
    update pg_temp.feed_entities f
    set rows = c.rows, failed = c.failed, writes = c.writes, updates = c.updates, deletes = c.deletes
    from (
        select count(*) as rows, count(*) filter (where m.failed) as failed, count(*) filter (where m.phase = 1 and not m.failed) as writes,
            count(*) filter (where m.phase = 2 and not m.failed) as updates, count(*) filter (where m.phase = 3 and not m.failed) as deletes
        from pg_temp.{map:I} m
    ) c
    where f.name = {entity:L};
end$sql$,
            'map', 'map_' || entity_name, 'entity', entity_name));
    perform bds_feed.make(
        entity_name, format('%I(out has_new boolean)', 'number_' || entity_name), 'boolean', 'takes the ids of a few new rows ahead; whether there are any',
        bds_impl.fill(
            $sql$
begin
    update pg_temp.{map:I} m set target = n.id
    from (
        select o.ordinal, nextval({sequence:L}) as id from (select ordinal from pg_temp.{map:I} where target is null and phase = 1 order by ordinal) o
    ) n
    where n.ordinal = m.ordinal;
    has_new := found;
end$sql$,
            'map', 'map_' || entity_name,
            'sequence', (select pg_get_serial_sequence(e.table_name::text, 'id') from bds_feed.entities e where e.name = entity_name)));
end
$$;
comment on function bds_feed.make_look_at(text) is 'Generates look_at_<entity>, count_<entity> and number_<entity>';

create function bds_feed.make_refer(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    reference bds.import_columns;
    steps     text := '';
begin
    for reference in select * from bds.import_columns c where c.entity = entity_name and c.target is not null order by c.ordinal loop
        perform bds_feed.make_named(reference);
        steps := steps || bds_impl.fill(
            $sql$
    if {reference:L} = any ($2) then
        insert into pg_temp.{lookup:I}
        select r.lookup, {kind}, {value}
        from (select distinct s.{reference:I} as lookup from pg_temp.{staged:I} s where s.{reference:I} <> e'\x01') r;
        perform bds_feed.filled(import, {lookup:L});
        insert into pg_temp.{ref:I}
        select * from bds_import.{named:I}(import.company_id, array(select distinct l.kind from pg_temp.{lookup:I} l));
        perform bds_feed.filled(import, {ref:L});
        if exists (select from pg_temp.{ref:I} r where r.id is null) then
            insert into pg_temp.feed_errors (entity, ordinal, field, code, message)
            select {entity:L}, s."@ordinal", {reference:L},
                case when r.kind = any ({kinds:L}) then 'lookup_not_found' else 'invalid_value' end,
                case when r.kind = any ({kinds:L}) then format('%s has no row %s', {target:L}, left({shown}, 100))
                    else format('expected a lookup (%s), got %L', {known:L}, left({shown}, 100)) end
            from pg_temp.{ref:I} r join pg_temp.{staged:I} s on s.{reference:I} = r.lookup
            where r.id is null and not {identifies};
        end if;
    end if;$sql$,
            'reference', reference.name, 'entity', entity_name, 'target', reference.target, 'staged', 'staged_' || entity_name,
            'lookup', 'lookup_' || bds_feed.reference_name(entity_name, reference.name),
            'ref', 'ref_' || bds_feed.reference_name(entity_name, reference.name),
            'named', 'named_' || bds_feed.reference_name(entity_name, reference.name),
            'kind', bds_feed.lookup_kind('r.lookup'), 'value', bds_feed.lookup_value('r.lookup'), 'shown', bds_feed.staged_text('r.lookup'),
            'kinds', bds_feed.lookup_kinds(reference.target)::text,
            'known', array_to_string(array(select k || ':...' from unnest(bds_feed.lookup_kinds(reference.target)) k), ', '),
            'identifies', bds_feed.only_identifies(entity_name)
        );
    end loop;
    perform bds_feed.make(
        entity_name, format('%I(import bds.imports, given text[])', 'refer_' || entity_name), 'void',
        'finds the row that each distinct lookup names, in the document and in the database', format(E'begin%s\nend', steps));
end
$$;
comment on function bds_feed.make_refer(text) is 'Generates refer_<entity>';

create function bds_feed.make_named(reference bds.import_columns)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform (
        select bds_feed.make(
            reference.entity, format('%I(company text, used text[])', 'named_' || bds_feed.reference_name(reference.entity, reference.name)),
            'table (lookup text, kind text, id bigint)', 'the rows that the lookups of ' || reference.name || ' name; $2 are the kinds that are used',
            bds_impl.fill(
                $sql$
select d.lookup, d.kind, coalesce({ids})
from (select l.lookup, l.kind, {values} from pg_temp.{lookup:I} l offset 0) d
{joins}$sql$,
                -- the document's own rows first: theirs is the state that the import leaves
                'ids', string_agg(case when k.kind = 'id' then '' else format('%I.target, ', 'new_' || k.kind) end || format('%I.id', 'old_' || k.kind), ', ' order by k.n),
                'values', string_agg(format('case when l.kind = %L then %s end as %I', k.kind,
                    case k.kind when 'id' then bds_feed.lookup_id('l.value') else bds_feed.named_value('l.value', k.type, k.sql_type) end,
                    'value_' || k.kind), ', ' order by k.n),
                'joins', string_agg(
                    case when k.kind = 'id' then '' else format(
                        E'left join pg_temp.%1$I %2$I on %3$L = any ($2) and %2$I.%4$I = d.%5$I and not %2$I.failed\n',
                        'map_' || reference.target, 'new_' || k.kind, k.kind, 'key_' || k.kind, 'value_' || k.kind) end
                    || format('left join %1$s %2$I on %3$L = any ($2) and %2$I.company_id = (select $1) and %2$I.%4$I = d.%5$I',
                        k.table_name, 'old_' || k.kind, k.kind, k.column_name, 'value_' || k.kind), E'\n' order by k.n),
                'lookup', 'lookup_' || bds_feed.reference_name(reference.entity, reference.name)
            ))
        from (
            select kinds.kind, kinds.n, e.table_name, coalesce(c.column_name, 'id') as column_name, c.type, c.sql_type
            from unnest(bds_feed.lookup_kinds(reference.target)) with ordinality as kinds (kind, n)
            join bds.entities e on e.name = reference.target
            left join bds.import_columns c on c.entity = reference.target and c.name = kinds.kind
        ) k
    );
end
$$;
comment on function bds_feed.make_named(bds.import_columns) is 'Generates named_<entity>_<reference>';
