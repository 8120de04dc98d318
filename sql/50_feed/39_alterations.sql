-- What the functions of imports spell out of a table: its name, its sequence, defaults, rules.  ALTER TABLE does not change them,
-- so imports of an altered table are refused until it is registered again.

create function bds_feed.spelled_out(this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        'server', bds_impl.server(),
        'table', this.table_name::text, 'sequence', bds_registry.sequence_of(this.table_name)::text,
        'defaults', coalesce(
            (select jsonb_object_agg(c.column_name, c.default_expression) from bds.import_columns c where c.entity = this.name),
            '{}'
        ),
        -- rules that were added are those of the database alone
        'rules', coalesce((select jsonb_object_agg(r ->> 'message', r) from jsonb_array_elements(bds_feed.rules_of(this)) r), '{}')
    );
$$;
comment on function bds_feed.spelled_out(bds_feed.entities) is
    'What the functions of imports of an entity spell out of its table as it is';

create function bds_feed.stamp(this bds_feed.entities)
    returns text
    language plpgsql
    stable
    set plan_cache_mode = force_generic_plan  -- else planned at each import
as $$
begin
    return concat_ws(
        ' ', current_setting('server_version_num'), this.table_name,
        -- statements name the tables beside theirs
        (select string_agg(b.table_name::text, ' ' order by b.name) from bds_feed.entities b where b.name = any (this.beside)),
        (
            select string_agg(s.oid::regclass::text, ' ' order by s.oid)
            from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'
            where d.refclassid = 'pg_class'::regclass and d.refobjid = this.table_name and d.classid = 'pg_class'::regclass
        ),
        (select string_agg(f.oid || ':' || f.xmin, ' ' order by f.oid) from pg_attrdef f where f.adrelid = this.table_name),
        (
            select string_agg(k.oid || ':' || k.xmin, ' ' order by k.oid)
            from pg_constraint k where k.conrelid = this.table_name and k.contype = 'c'
        ),
        (
            select string_agg(y.oid || ':' || y.xmin, ' ' order by a.attnum)
            from pg_attribute a join pg_type y on y.oid = a.atttypid and y.typtype = 'd' where a.attrelid = this.table_name
        )
    );
end
$$;
comment on function bds_feed.stamp(bds_feed.entities) is
    'A text that differs after each alteration of what is spelled out of a table, and takes a tenth of the time. It may differ '
    'without one, after a restore. It stays the same if a function or value to which an expression refers is renamed: then an '
    'import fails, unless another one has got the name';

create function bds_feed.alterations(names text[])
    returns table (entity text, is_name boolean, detail text)
    language sql
    stable
as $$
    select e.name, d.is_name, d.detail
    from bds_feed.entities e
    join bds_feed.versions v on v.entity = e.name
    cross join lateral (select v.spelled_out, bds_feed.spelled_out(e)) p (made, present)
    -- another version of PostgreSQL may print expressions otherwise; bds migrate notes them again
    cross join lateral (select p.made, p.present, p.made -> 'server' = p.present -> 'server') s (made, present, is_comparable)
    cross join lateral (
        select true, format('it was %s', s.made ->> 'table')
        where s.present -> 'table' <> s.made -> 'table'
        union all
        select false, format('its sequence was %s, and is %s', s.made ->> 'sequence', s.present ->> 'sequence')
        where s.present -> 'sequence' <> s.made -> 'sequence'
        union all
        select false,
            -- bds.fields has whether there is a default
            'column ' || quote_ident(o.key) || ' had the default ' || (o.value #>> '{}') || ', and has ' || (n.value #>> '{}')
        from jsonb_each(s.made -> 'defaults') o join jsonb_each(s.present -> 'defaults') n on n.key = o.key and n.value <> o.value
        where s.is_comparable
        union all
        select false, replace(format('%s is not as it was', o.key), 'it breaks the rule', 'the constraint')
        from jsonb_each(s.made -> 'rules') o
        where s.is_comparable and s.present -> 'rules' -> o.key is distinct from o.value
            -- what bds.register makes stays a rule, whether the table has lost it or not
            and not exists (select from bds_registry.finite_checks(e.table_name) f where o.key = 'it breaks the rule ' || f.name)
    ) d (is_name, detail)
    where e.name = any (names) and s.present <> s.made and exists (select from pg_class c where c.oid = e.table_name);
$$;
comment on function bds_feed.alterations(text[]) is
    'In what the tables of entities are not as the functions of imports spell them out; is_name: in their names; detail: null '
    'where bds.problems finds it otherwise';

create function bds_feed.require_unaltered(staged text[])
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- as bds_feed.install prints them
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
    set extra_float_digits = 1
    set quote_all_identifiers = off
as $$
begin
    perform bds_change_log.refuse_altered(e)
    from (
        select a.entity from bds_feed.alterations(staged) a
        union all
        select b.name
        from bds_feed.entities e join bds_feed.entities b on b.name = any (e.beside) join bds_feed.versions v on v.entity = b.name
        where e.name = any (staged) and b.table_name::text <> v.spelled_out ->> 'table'
    ) a
    join bds.entities e on e.name = a.entity;
end
$$;
comment on function bds_feed.require_unaltered(text[]) is
    'Raises BD007 if a table of these entities, or beside theirs, is not as their functions spell it out';

create function bds_feed.require_stamps()
    returns void
    language plpgsql
as $$
begin
    perform bds_feed.require_unaltered(s.names)
    from (
        select array_agg(e.name) as names
        from pg_temp.feed_entities f
        join bds_feed.entities e on e.name = f.name
        join bds_feed.versions v on v.entity = f.name and v.stamp <> bds_feed.stamp(e)
    ) s
    where s.names is not null;
end
$$;
comment on function bds_feed.require_stamps() is
    'Raises BD007 as bds_feed.require_unaltered does, for the entities of an import whose tables have another stamp';
