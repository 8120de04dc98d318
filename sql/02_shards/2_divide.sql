-- Turning a table without rows into a partitioned one of the same name, with all that belongs to it.

-- removal: drops a foreign key of or to the table; null for what is dropped with the table.  step: the order in which definitions
-- run.
create function bds_shards.definitions(stored_table regclass)
    returns table (name text, step int, removal text, definition text)
    language sql
    stable
as $$
    select k.conname, case k.contype when 'f' then 9 else 1 end,
        case when k.contype = 'f' then format('alter table %s drop constraint %I', k.conrelid::regclass, k.conname) end,
        format('alter table %s add constraint %I %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid))
    from pg_constraint k
    where k.conparentid = 0 and (
        k.contype in ('p', 'u') and k.conrelid = stored_table and exists (
            select from pg_attribute a
            where a.attrelid = k.conrelid and a.attnum = any (k.conkey) and a.attname = bds_shards.company_column(stored_table)
        )
        or k.contype = 'f' and stored_table in (k.conrelid, k.confrelid)
    )
    union all
    select i.indexrelid::regclass::text, 2, null, pg_get_indexdef(i.indexrelid)
    from pg_index i
    where i.indrelid = stored_table
        and not exists (select from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u'))
    union all
    select p.polname, 3, null, format(
        'create policy %I on %s as %s for %s to %s%s%s', p.polname, p.polrelid::regclass,
        case when p.polpermissive then 'permissive' else 'restrictive' end,
        case p.polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete' else 'all' end,
        (select string_agg(case r when 0 then 'public' else r::regrole::text end, ', ') from unnest(p.polroles) r),
        ' using (' || pg_get_expr(p.polqual, p.polrelid) || ')', ' with check (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')'
    )
    from pg_policy p
    where p.polrelid = stored_table
    union all
    select t.tgname, 3, null, pg_get_triggerdef(t.oid) from pg_trigger t where t.tgrelid = stored_table and not t.tgisinternal
    union all
    select 'row level security', 4, null, format('alter table %s enable row level security', stored_table)
    from pg_class c where c.oid = stored_table and c.relrowsecurity
    union all
    select 'owner', 5, null, format('alter table %s owner to %s', stored_table, c.relowner::regrole)
    from pg_class c where c.oid = stored_table
    union all
    select 'rights', 6, null, format(
        'grant %s on %s to %s', string_agg(a.privilege_type, ', '), stored_table,
        case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    )
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.oid = stored_table and a.grantee <> c.relowner
    group by a.grantee;
$$;
comment on function bds_shards.definitions(regclass) is
    'The keys, indexes, policies, rights and foreign keys of a table and those that refer to it, as statements';

create function bds_shards.make_shards(divided regclass, options text)
    returns void
    language plpgsql
as $$
declare
    store text := bds_shards.store_of(divided);
begin
    for n in 0 .. bds_shards.number_of_shards() - 1 loop
        execute format(
            'create table shards.%I partition of %s for values with (modulus %s, remainder %s)%s',
            store || '_' || n, divided, bds_shards.number_of_shards(), n, ' with (' || options || ')'
        );
        execute format('grant maintain on shards.%I to bds_importer, bds_operator', store || '_' || n);
    end loop;
end
$$;
comment on function bds_shards.make_shards(regclass, text) is
    'Without Citus: makes all shards of a table that has just been divided';

create function bds_shards.divide(whole regclass)
    returns regclass
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    name    constant text := whole::text;
    key     constant name := bds_shards.company_column(whole);
    home    constant regnamespace := (select c.relnamespace from pg_class c where c.oid = whole);
    options constant text := (select array_to_string(c.reloptions, ', ') from pg_class c where c.oid = whole);
    kept    text[];
    step    text;
    is_used boolean;
begin
    if bds_shards.is_divided(whole) then
        return whole;
    end if;
    execute format('select exists (select 1 from %s)', name) into is_used;
    if is_used then
        raise exception using
            errcode = 'BD004',
            message = format('%s has rows: expected a table without rows, because this database divides it into shards', name);
    end if;
    select array_agg(d.definition order by d.step, d.name) into kept from bds_shards.definitions(whole) d;
    for step in select d.removal from bds_shards.definitions(whole) d where d.removal is not null loop
        execute step;
    end loop;
    execute format('alter table %s rename to divided', name);
    execute format(
        'create table %s (like %s.divided including defaults including identity including generated including constraints '
        'including comments including storage including compression) partition by hash (%I shards.by_number)', name, home, key
    );
    execute format('comment on table %s is %L', name, obj_description(whole, 'pg_class'));
    execute format('drop table %s', whole);
    foreach step in array kept loop
        execute step;
    end loop;
    if name = 'bds.change_log' then
        alter table bds.change_log add primary key (company_id, id);
    end if;
    if not bds_shards.has_citus() then
        perform bds_shards.make_shards(name::regclass, options);
    elsif home = 'bds'::regnamespace and name not in ('bds.change_log', 'bds.companies') then
        execute format(
            'create trigger bds_hold before insert or update or delete on %s for each row execute function shards.hold(%s)',
            name, case when name = 'bds.clocks' then quote_literal('clock') else '' end
        );
    end if;
    return name::regclass;
end
$$;
comment on function bds_shards.divide(regclass) is
    'Divides a table without rows into shards: it becomes a partitioned one with the same columns, keys, indexes, policies and '
    'rights';
