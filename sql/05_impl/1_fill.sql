-- Templates of generated SQL: text with named holes and blocks, so that a statement reads like the statement that it becomes.
--
--     {name}, {name:I}, {name:L}                a value as it is, as an identifier, as a literal
--     {each keys|, } ... {end keys}               repeats the text for each member of a set, with its values; ", " comes between
--                                                 them
--     {if parent} ... {else parent} ... {end parent}
--
-- A tag that stands alone in its line takes the line along.
--
--     bds_impl.fill('alter table {table} add check ({column:I} > {least:L})', 'table', 'data.units', 'column', 'Size',
--         'least', '0')
--     alter table data.units add check ("Size" > '0')

create function bds_impl.expanded(template text, scope jsonb, member jsonb)
    returns text
    language plpgsql
    immutable
as $$
declare
    parts  text[] := string_to_array(template, '{');
    filled text := coalesce(parts[1], '');
    n      int := 2;
    last   int;
    tag    text;
    rest   text;
    name   text;
    value  jsonb;
    halves text[];
begin
    while n <= cardinality(parts) loop
        tag := split_part(parts[n], '}', 1);
        rest := substr(parts[n], length(tag) + 2);
        name := substring(tag from '^(?:each |if )?([a-z_]+)');
        if tag ~ '^[a-z_]+(:[IL])?$' and length(tag) < length(parts[n]) then
            if coalesce(member ->> name, scope ->> name) is null then
                raise exception using errcode = '22023', message = format('hole {%s} of a template has no value', name);
            end if;
            filled := filled || case right(tag, 2)
                when ':I' then quote_ident(coalesce(member ->> name, scope ->> name))
                when ':L' then quote_literal(coalesce(member ->> name, scope ->> name))
                else coalesce(member ->> name, scope ->> name)
            end || rest;
        elsif tag ~ '^(each|if) [a-z_]+' then
            value := coalesce(member -> name, scope -> name);
            last := n + 1;
            while last <= cardinality(parts) and not parts[last] ^@ ('end ' || name || '}') loop
                last := last + 1;
            end loop;
            if value is null or last > cardinality(parts) then
                raise exception using errcode = '22023', message = format('nothing is called %s, or its block has no end', name);
            end if;
            rest := rest || coalesce('{' || nullif(array_to_string(parts[n + 1:last - 1], '{'), ''), '');
            if tag ^@ 'if' then
                halves := string_to_array(rest, format('{else %s}', name));
                rest := coalesce(halves[case when value in ('null', 'false', '[]') then 2 else 1 end], '');
                filled := filled || bds_impl.expanded(rest, scope, member);
            elsif value <> 'null' then
                filled := filled || coalesce((
                    select string_agg(bds_impl.expanded(rest, scope, member || e.value), substr(tag, length(name) + 7) order by e.n)
                    from jsonb_array_elements(value) with ordinality as e (value, n)
                ), '');
            end if;
            filled := filled || substr(parts[last], length(name) + 6);
            n := last;
        else
            filled := filled || '{' || parts[n];
        end if;
        n := n + 1;
    end loop;
    return filled;
end
$$;
comment on function bds_impl.expanded(text, jsonb, jsonb) is 'Does what bds_impl.expand promises, without a look at lines';

create function bds_impl.expand(template text, scope jsonb, member jsonb default '{}')
    returns text
    language sql
    immutable
    return bds_impl.expanded(
        regexp_replace(btrim(template, E'\n'), '^[ \t]*(\{(?:each|if|else|end) [^}]*\})[ \t]*\n', '\1', 'gn'), scope, member
    );
comment on function bds_impl.expand(text, jsonb, jsonb) is
    'Fills a template from what the member of a set has, and else the scope. Raises 22023 for a hole or block of which there is '
    'nothing';

create function bds_impl.fill(template text, variadic holes text[])
    returns text
    language plpgsql
    immutable
as $$
begin
    for n in 1 .. cardinality(holes) by 2 loop
        if strpos(template, '{' || holes[n] || '}') = 0 and strpos(template, '{' || holes[n] || ':') = 0 then
            raise exception using errcode = '22023', message = format('a template has no hole {%s}', holes[n]);
        end if;
    end loop;
    return bds_impl.expanded(template, jsonb_object(holes), '{}');
end
$$;
comment on function bds_impl.fill(text, text[]) is
    'Fills the holes of a template. Holes are given as name, value, name, value, ... Raises 22023 for a hole without a value and '
    'for a value without a hole';
