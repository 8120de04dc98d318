-- Templates of generated SQL: text with named holes, so that a statement reads like the statement that it becomes.
--
--     bds_impl.fill('alter table {table} add check ({column:I} > {least:L})', 'table', 'data.units', 'column', 'Size',
--         'least', '0')
--     alter table data.units add check ("Size" > '0')

create function bds_impl.fill(template text, variadic holes text[])
    returns text
    language plpgsql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
declare
    pattern constant text := '\{([a-z_]+)(?::([IL]))?\}';
    given   jsonb := jsonb_object(holes);
    between text[] := regexp_split_to_array(template, pattern);
    used    text[] := '{}';
    filled  text := between[1];
    hole    record;
begin
    -- one pass: a value that looks like a hole stays as it is
    for hole in
        select m[1] as name, m[2] as quoted, n from regexp_matches(template, pattern, 'g') with ordinality as found (m, n)
    loop
        if given ->> hole.name is null then
            raise exception using errcode = '22023', message = format('hole {%s} of a template has no value', hole.name);
        end if;
        used := used || hole.name;
        filled := filled || case hole.quoted
            when 'I' then quote_ident(given ->> hole.name)
            when 'L' then quote_literal(given ->> hole.name)
            else given ->> hole.name
        end || between[hole.n + 1];
    end loop;
    if exists (select from jsonb_object_keys(given) k where k <> all (used)) then
        raise exception using errcode = '22023', message = format('a template uses %s of the holes %s', used, given);
    end if;
    return filled;
end
$$;
comment on function bds_impl.fill(text, text[]) is
    'Fills the holes of a template: {name} with a value as it is, {name:I} as an identifier, {name:L} as a literal. Holes are '
    'given as '
    'name, value, name, value, ... Raises 22023 for a hole without a value and for a value without a hole';
