-- The checks that a table needs: numbers and times are values that JSON can represent.

create function bds_registry.plain(expression text)
    returns text
    language sql
    immutable
    -- (price)::numeric of a domain
    return regexp_replace(lower(expression collate "C"), '[() ]|::(timestamp with time zone|double precision|[a-z0-9]+)', '', 'g');
comment on function bds_registry.plain(text) is 'The text of a condition without spaces, parentheses and casts, to be compared';

create function bds_registry.finite_checks(
    table_name regclass, out name text, out column_name name, out condition text, out standing name
)
    returns setof record
    language sql
    stable
as $$
    select case when octet_length(c.attname) <= 53 then c.attname else md5(c.attname) end || '_is_finite', c.attname, d.condition, (
        select min(k.conname) from pg_constraint k
        where k.conrelid = table_name and k.contype = 'c' and k.conkey = array[c.attnum]
            and bds_registry.plain(pg_get_expr(k.conbin, k.conrelid)) = bds_registry.plain(d.condition)
    )
    from bds_registry.typed_columns(table_name) c
    join bds_impl.types t on t.name = c.type and t.finite is not null
    cross join lateral (select bds_impl.fill(t.finite, 'column', c.attname)) as d (condition)
    where c.attname <> 'updated_at';
$$;
comment on function bds_registry.finite_checks(regclass) is
    'The CHECKs that a table needs against values that JSON cannot represent; standing: the constraint that is there, whatever '
    'its name';

create function bds_registry.is_of_former_type(rule pg_constraint, column_name name)
    returns boolean
    language sql
    stable
as $$
    select rule.contype = 'c' and exists (
        select from bds_impl.types t
        where bds_registry.plain(pg_get_expr(rule.conbin, rule.conrelid))
            = bds_registry.plain(bds_impl.fill(t.finite, 'column', column_name))
    );
$$;
comment on function bds_registry.is_of_former_type(pg_constraint, name) is
    'Whether bds.register made a CHECK for the type that its column had before';

create function bds_registry.install_checks(this bds.entities)
    returns void
    language plpgsql
as $$
declare
    due record;
begin
    for due in
        select c.*, k.oid is not null as replaces
        from bds_registry.finite_checks(this.table_name) c
        left join pg_constraint k on k.conrelid = this.table_name and k.conname = c.name
        where c.standing is null
    loop
        if due.replaces then
            perform bds_registry.run(format('alter table %s drop constraint %I', this.table_name, due.name), is_mend => true);
        end if;
        perform bds_registry.run(
            format('alter table %s add constraint %I check (%s) not valid', this.table_name, due.name, due.condition),
            is_mend => true
        );
        begin
            perform bds_registry.run(
                format('alter table %s validate constraint %I', this.table_name, due.name), is_mend => true
            );
        exception when check_violation then
            raise warning using
                message = format(
                    '%s has rows whose %I is not valid in JSON; they are shown as text or null', this.table_name, due.column_name
                ),
                hint = format('correct them, then: alter table %s validate constraint %I', this.table_name, due.name);
        end;
    end loop;
end
$$;
comment on function bds_registry.install_checks(bds.entities) is
    'Adds CHECK constraints against values that JSON cannot represent: NaN, infinity, dates outside the years 1 to 9999';
