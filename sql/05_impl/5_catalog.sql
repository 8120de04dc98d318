-- Functions and rights as the system catalogs show them: what is the same in every version of PostgreSQL wherever that can be.
-- They are called under pg_catalog, so that names are written in full.

create function bds_impl.roles()
    returns text[]
    language sql
    immutable
    return array[
        'bds_owner', 'bds_operator', 'bds_reader', 'bds_writer', 'bds_importer', 'bds_analyst', 'bds_service', 'bds_worker',
        'bds_dispatcher'
    ];
comment on function bds_impl.roles() is 'The roles of the service; the owner is the first one';

create function bds_impl.schemas()
    returns table (schema oid, name name, has_program boolean)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select n.oid, n.nspname, p.has_program
    from pg_namespace n
    cross join lateral (select n.nspname ~ '^bds(_|$)') p (has_program)
    where p.has_program or n.nspname in ('api', 'data', 'my', 'past', 'staging');
$$;
comment on function bds_impl.schemas() is
    'The schemas of the service; has_program: with what bds migrate makes, where others have what belongs to entities';

create function bds_impl.server()
    returns text
    language sql
    stable
    return current_setting('server_version_num')::int / 10000 || '';
comment on function bds_impl.server() is 'The major version of PostgreSQL';

create function bds_impl.printed(text text)
    returns text
    language sql
    immutable
    -- a column without a name gets that of its type when a dump is restored
    return regexp_replace(text, '(::[a-z0-9_ ]+(\[\])?) AS \w+(?=[,\n]|$)', '\1', 'g');
comment on function bds_impl.printed(text) is
    'The definition of a view or function as PostgreSQL prints it, equal after a dump and restore';

create function bds_impl.functions(those oid[])
    returns table (function oid, definition text, is_printed boolean)
    language sql
    stable
    set standard_conforming_strings = on  -- as texts are printed
as $$
    select p.oid,
        md5(concat_ws(
            chr(1), p.prokind, l.lanname, coalesce(bds_impl.printed(pg_get_function_sqlbody(p.oid)), p.prosrc),
            pg_get_function_arguments(p.oid),
            pg_get_function_result(p.oid), p.provolatile, p.proparallel, p.prosecdef, p.proleakproof, p.proisstrict, p.procost,
            p.prorows, p.prosupport, p.proconfig::text, a.aggtransfn::text, a.aggfinalfn::text, a.aggtranstype::regtype::text,
            a.agginitval
        )),
        p.prosqlbody is not null or p.pronargdefaults > 0
    from pg_proc p
    join pg_language l on l.oid = p.prolang
    left join pg_aggregate a on a.aggfnoid = p.oid
    where p.oid = any (those);
$$;
comment on function bds_impl.functions(oid[]) is
    'The functions, each with a hash of its text and attributes, which takes some 10 us; is_printed: PostgreSQL stores it parsed, '
    'and another version may write it differently';

create function bds_impl.rights(acl aclitem[], owner oid)
    returns jsonb
    language sql
    stable
as $$
    select coalesce(jsonb_object_agg(g.grantee, g.rights), '{}')
    from (
        -- an object of another owner is a problem of its own
        select case a.grantee when 0 then 'public' when owner then 'bds_owner' else a.grantee::regrole::text end as grantee,
            jsonb_agg(distinct lower(a.privilege_type collate "C") || case when a.is_grantable then '*' else '' end) as rights
        from aclexplode(acl) a
        group by 1
    ) g;
$$;
comment on function bds_impl.rights(aclitem[], oid) is
    'Rights by the role that has them: {"bds_reader": ["select"]}; select* can be passed on. Those of the owner are bds_owner''s';

create function bds_impl.rights_of_service(rights jsonb)
    returns jsonb
    language sql
    immutable
as $$
    select coalesce(jsonb_object_agg(r.key, r.value), '{}')
    from jsonb_each(rights) r
    where r.key = any (bds_impl.roles() || 'public'::text);
$$;
comment on function bds_impl.rights_of_service(jsonb) is 'The rights among them that roles of the service and PUBLIC have';

create function bds_impl.rights_differ(target text, made jsonb, present jsonb, out detail text, out mend text)
    returns record
    language sql
    immutable
as $$
    -- target: on table bds.clocks, on schema bds, (email) on table bds.users
    with names (columns, place) as (
        select btrim(m[1]), m[2] from regexp_match(target, '^(.*)(on (?:table|sequence|schema|routine|database) .*)$') m
    ),
    rights as (
        select g.grantee, r.name, p.made, p.present, p.can_pass_on
        from (select jsonb_object_keys(made || present)) g (grantee)
        cross join lateral (
            select coalesce(made -> g.grantee, '[]'), coalesce(present -> g.grantee, '[]')
        ) o (made, present)
        cross join lateral (select distinct rtrim(e, '*') from jsonb_array_elements_text(o.made || o.present) e) r (name)
        cross join lateral (
            select o.made ?| array[r.name, r.name || '*'], o.present ?| array[r.name, r.name || '*'],
                o.present ? (r.name || '*') and not o.made ? (r.name || '*')
        ) p (made, present, can_pass_on)
    ),
    steps as (
        select r.grantee, s.step, string_agg(r.name, ', ' order by r.name) as names,
            string_agg(concat(r.name, ' ' || nullif(n.columns, '')), ', ' order by r.name) as privileges, n.place
        from rights r
        cross join names n
        cross join lateral (
            select case when r.present and not r.made then 1 when r.made and not r.present then 3 when r.can_pass_on then 2 end
        ) s (step)
        where s.step is not null
        group by r.grantee, s.step, n.place
    )
    select
        string_agg(
            format(
                case s.step when 1 then '%s may %s' when 2 then '%s may pass on the right to %s' else '%s may not %s' end,
                s.grantee, s.names
            ),
            '; ' order by s.step, s.grantee
        ),
        string_agg(
            format(
                case s.step
                    when 1 then 'revoke %s %s from %s cascade'
                    when 2 then 'revoke grant option for %s %s from %s cascade'
                    else 'grant %s %s to %s'
                end,
                s.privileges, s.place, s.grantee
            ),
            '; ' order by s.step, s.grantee
        )
    from steps s;
$$;
comment on function bds_impl.rights_differ(text, jsonb, jsonb) is
    'In which rights an object differs from what was made, in words and as the statements that mend it';

create function bds_impl.rows_of(company text, "table" regclass)
    returns double precision
    language sql
    stable
as $$
    select greatest(c.reltuples, 0) * coalesce(
        (
            select f.frequency
            from unnest(s.most_common_vals::text::text[], s.most_common_freqs) f (value, frequency) where f.value = company
        ),
        s.most_common_freqs[cardinality(s.most_common_freqs)],  -- one that is not common has at most as many as the last that is
        1
    )
    from pg_class c
    left join pg_stats s on s.schemaname = c.relnamespace::regnamespace::name and s.tablename = c.relname
        and s.attname = 'company_id'
    where c.oid = "table";
$$;
comment on function bds_impl.rows_of(text, regclass) is
    'About how many rows of a table belong to a company, as the last ANALYZE has seen it: 0 before the first one';
