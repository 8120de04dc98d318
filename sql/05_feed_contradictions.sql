-- Imports, the contradictions: a record that says of itself two things that cannot both be.

create or replace function bds.check_names(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    key record;
begin
    if '@id' <> all (columns) then
        return;
    end if;
    for key in select c.name, c.type, c.sql_type from bds.import_columns c where c.entity = entity_name and c.is_unique and c.name = any (columns) loop
        execute format(
            $sql$
            insert into %1$s (entity, ordinal, field, code, message)
            select %2$L, m.ordinal, %3$L, 'invalid_value', format('its id, which names no row, says %%s', left(m.id, 100))
            from pg_temp.%4$I m
            where m.is_new and m.id_kind = %3$L and m.operation in ('create', 'upsert') and m.%5$I <> %6$s
                and not exists (select from %1$s e where e.entity = %2$L and e.ordinal = m.ordinal and e.field = %3$L)
            $sql$,
            bds.staging_table(import_number, 'errors'), entity_name, key.name, 'map_' || entity_name, 'key_' || key.name,
            bds.named_value(bds.lookup_value('m.id'), key.type, key.sql_type)
        );
    end loop;
end
$$;
comment on function bds.check_names(bigint, text, text[]) is
    'Finds new rows whose lookup and whose field give two values of the same kind: id code:Q, code R';

create or replace function bds.check_nesting(import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent    text := bds.mapped_parent(entity_name);
    reference text := (select c.name from bds.import_columns c where c.entity = entity_name and c.is_parent);
begin
    if reference is null or reference <> all (columns) or parent is null then
        return;
    end if;
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, s."@ordinal", %3$L, 'invalid_value', format('it stands in another row of %%s than %%s', %4$L, left(r.lookup, 100))
        from %5$s s
        join %6$s r on r.lookup = s.%3$I
        join pg_temp.%7$I p on p.ordinal = s."@parent"
        where r.id <> p.target
        $sql$,
        bds.staging_table(import_number, 'errors'), entity_name, reference, parent, bds.staging_table(import_number, entity_name),
        bds.reference_table(import_number, entity_name, reference), 'map_' || parent
    );
end
$$;
comment on function bds.check_nesting(bigint, text, text[]) is 'Finds rows nested in one parent that name another as theirs';
