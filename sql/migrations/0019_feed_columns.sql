-- What the staged rows give is kept in the comparison's own table; errors that outlive a comparison are told from those that it finds.
drop function if exists bds.texts(jsonb);
drop function if exists bds.map_by_keys(text, bigint, text, text[], boolean);
drop function if exists bds.look_through(bigint, text);
drop function if exists bds.comparison(bigint, text, text[], regclass, text);
drop function if exists bds.plan_for(bigint);
drop function if exists bds.is_staged(bigint);
drop function if exists bds.removed(bigint, text, text, text);
drop function if exists bds.delete_statements(boolean);
drop function if exists bds.linkage_patterns(text, text[], bigint[]);  -- its body names the next one, whose result has changed
drop function if exists bds.linkage_columns(text, text[]);
do $$
declare
    name text;
begin
    for name in  -- of imports that are under way
        select format('staging.%I', c.relname) from pg_class c where c.relnamespace = 'staging'::regnamespace and c.relname ~ '^i[0-9]+_errors$'
    loop
        execute format('alter table %s add column if not exists is_kept boolean not null default true', name);
    end loop;
end
$$;
