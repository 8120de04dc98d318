-- Shards that Citus has placed on this node become partitions of their tables, and cease to be that when Citus has moved them away.
-- They belong to the superuser who distributed the tables, so a superuser calls these functions.

create function bds_shards.placed()
    returns table (divided regclass, shard text, number bigint, n bigint)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute $sql$
        select t.table_name, shard_name(s.logicalrelid, s.shardid), (s.shardminvalue::bigint + 2147483648) / (4294967296 / $1), t.n
        from bds_operation.company_tables() t
        join pg_dist_shard s on s.logicalrelid = to_regclass('shards.' || quote_ident(bds_shards.store_of(t.table_name)))
        join pg_dist_placement p on p.shardid = s.shardid and p.groupid = (select g.groupid from pg_dist_local_group g)
        where bds_shards.is_divided(t.table_name)
        order by t.n
    $sql$ using bds_shards.number_of_shards();
end
$$;
comment on function bds_shards.placed() is
    'The shards that Citus has placed on this node, each after those that its foreign keys refer to, with the tables that they '
    'belong to';

create function bds_shards.arrived()
    returns table (step bigint, divided regclass, shard text, number bigint)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    -- business tables and the log one by one; at last all others together: without the clock, which is one of them, a company takes
    -- no writes, and some of them are read across companies
    select case when p.divided::text ^@ 'data.' or p.divided = 'bds.change_log'::regclass then p.n end, p.divided, p.shard, p.number
    from bds_shards.placed() p
    where not exists (select from pg_inherits i where i.inhrelid = p.shard::regclass)
    order by 1, p.n;
$$;
comment on function bds_shards.arrived() is
    'Shards that have come to this node and are not partitions yet; those of one step become partitions in one transaction';

create function bds_shards.lock_as_writers_do(divided regclass)
    returns void
    language plpgsql
as $$
begin
    if divided in ('bds.clocks'::regclass, 'bds.companies'::regclass) then
        lock table bds.clocks in access exclusive mode;
    end if;
    lock table bds.companies in access exclusive mode;
end
$$;
comment on function bds_shards.lock_as_writers_do(regclass) is
    'Before a partition is attached or dropped: locks the tables that its foreign keys need exclusively, in the order in which '
    'bds.set_context reads them. In another order this session and a writer would wait for each other';

create function bds_shards.attach(divided regclass, shard text, number bigint)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    made    text;
    is_used boolean;
begin
    perform bds_shards.lock_as_writers_do(divided);
    perform set_config('citus.skip_constraint_validation', 'on', true);  -- the rows come from a partition with the same constraints
    if divided = 'bds.companies'::regclass then
        execute format(
            'insert into bds.tenants (id) select distinct c.tenant_id from %s c where c.tenant_id is not null '
            'on conflict do nothing', shard
        );
    end if;
    execute format('select exists (select from %s)', shard) into is_used;
    select string_agg(format('add constraint %I %s', k.conname, pg_get_constraintdef(k.oid)), ', ' order by k.conname) into made
    from pg_constraint k
    where k.conrelid = divided and k.conparentid = 0 and (k.contype = 'c' or k.contype = 'f' and is_used) and not exists (
        select from pg_constraint o where o.conrelid = shard::regclass and o.contype = k.contype and o.conname = k.conname
    );
    if made is not null then
        execute format('alter table %s %s', shard, made);
    end if;
    execute format('alter table %s owner to bds_owner', shard);
    execute format('grant maintain on %s to bds_importer, bds_operator', shard);
    execute format(
        'alter table %s attach partition %s for values with (modulus %s, remainder %s)',
        divided, shard, bds_shards.number_of_shards(), number
    );
    perform bds_shards.go_on_after(divided, shard::regclass);
    if divided = 'bds.import_errors'::regclass then
        perform bds_shards.end_imports(p.shard::regclass)
        from bds_shards.placed() p
        where p.divided = 'bds.imports'::regclass and p.number = attach.number;
    end if;
end
$$;
comment on function bds_shards.attach(regclass, text, bigint) is
    'Makes a shard that has come to this node a partition of its table; writers of the node wait meanwhile';

create function bds_shards.end_imports(arrived regclass)
    returns void
    language sql
as $$
    with ended as (
        update bds.imports i
        set state = 'failed', finished_at = clock_timestamp(), error_count = i.error_count + 1
        where i.finished_at is null and i.tableoid = arrived
        returning i.company_id, i.id, i.error_count
    )
    insert into bds.import_errors (company_id, import_id, n, path, code, message)
    select e.company_id, e.id, e.error_count, 'document', 'aborted', 'the company was moved to another place before the import ran'
    from ended e;
$$;
comment on function bds_shards.end_imports(regclass) is
    'Ends imports that were being received when their shard came: what they staged is at the other node, and tables of their '
    'number may be those of an import here';

create function bds_shards.go_on_after(divided regclass, shard regclass)
    returns void
    language plpgsql
as $$
declare
    numbered name;
    last     bigint;
begin
    for numbered in
        select a.attname from pg_attribute a where a.attrelid = divided and a.attidentity <> '' and not a.attisdropped
    loop
        execute format('select max(%I) from %s', numbered, shard) into last;
        perform setval(s.name, last)
        from (select pg_get_serial_sequence(divided::text, numbered)::regclass as name) s
        where last > coalesce(pg_sequence_last_value(s.name), 0);
    end loop;
end
$$;
comment on function bds_shards.go_on_after(regclass, regclass) is
    'Advances the sequences of a divided table beyond the ids of a shard that has come';

create function bds_shards.departed()
    returns table (divided regclass, shard text)
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    return query select t.table_name, format('shards.%I', c.relname)
    from bds_operation.company_tables() t
    join pg_inherits i on i.inhparent = t.table_name
    join pg_class c on c.oid = i.inhrelid
    where bds_shards.is_divided(t.table_name) and format('shards.%I', c.relname) not in (select p.shard from bds_shards.placed() p)
    order by t.n desc;
end
$$;
comment on function bds_shards.departed() is
    'Partitions that Citus has moved to another node, each before those that its foreign keys refer to';

create function bds_shards.on_departed(statement text, of_table regclass default null)
    returns bigint
    language plpgsql
as $$
declare
    this record;
    done bigint := 0;
begin
    perform set_config('session_replication_role', 'replica', true);  -- without triggers: nothing changes, the rows are elsewhere
    for this in select d.* from bds_shards.departed() d where d.divided = of_table or of_table is null loop
        begin
            execute format(statement, this.divided, this.shard);
            done := done + 1;
        exception when undefined_table then
            null;  -- Citus drops those that nothing refers to
        end;
    end loop;
    return done;
end
$$;
comment on function bds_shards.on_departed(text, regclass) is
    'Runs a statement for each partition that Citus has moved to another node, of one table if it is given; it takes the table '
    'and the partition. Returns how many';

create function bds_shards.note_departed()
    returns bigint
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    -- Ends leases, and leaves nothing due: to record an attempt of such a company would raise an error here, and the results of
    -- other companies in the same call would be lost.
    select bds_shards.on_departed('update %2$s s set lease = null, next_at = null, queued = 0, batch_at = null', 'bds.hook_states');
    select bds_shards.on_departed(
        'update %2$s c set departed_at = coalesce(c.departed_at, clock_timestamp()), transaction_id = null', 'bds.clocks'
    );
$$;
comment on function bds_shards.note_departed() is
    'Lets companies whose shard Citus has moved to another node take no writes here, and no longer delivers their webhooks from '
    'here';

create function bds_shards.empty_departed()
    returns bigint
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    select bds_shards.on_departed(
        'select bds_feed.drop_staging(i::bds.imports) from %2$s i where i.finished_at is null', 'bds.imports'
    );
    select bds_shards.on_departed('delete from %2$s');
$$;
comment on function bds_shards.empty_departed() is
    'Deletes the rows of partitions that Citus has moved to another node, so that no foreign key refers to them, and what their '
    'imports have staged; takes no lock for which other companies wait';

create function bds_shards.drop_departed(divided regclass, shard text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_shards.lock_as_writers_do(divided);
    execute format('alter table %s detach partition %s; drop table %2$s', divided, shard);
exception when undefined_table then
    null;  -- Citus drops those that nothing refers to
end
$$;
comment on function bds_shards.drop_departed(regclass, text) is
    'Drops an empty partition that Citus has moved to another node; locks its table exclusively';

create function bds_shards.align()
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    change text;
    done   bigint := 0;
begin
    for change in
        with columns as (
            select case a.attrelid when t.store then 'store' else 'own' end as side, t.table_name, t.store, a.attnum, a.attname,
                format_type(a.atttypid, a.atttypmod) as type,
                case when a.attcollation <> 0 then format(' collate %s', a.attcollation::regcollation) end as of_text,
                case when a.attgenerated <> '' then
                    format(' generated always as (%s) stored', pg_get_expr(d.adbin, d.adrelid))
                end as generated
            from (
                select o.table_name, to_regclass('shards.' || quote_ident(bds_shards.store_of(o.table_name))) as store
                from bds_operation.company_tables() o
            ) t
            join pg_attribute a on a.attrelid in (t.table_name, t.store) and a.attnum > 0 and not a.attisdropped
            left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
            where t.store is not null
        )
        select format('alter table %s ', coalesce(c.store, s.store)) || case
            when s.attname is null then format('add column %I %s%s%s', c.attname, c.type, c.of_text, c.generated)
            when c.attname is null then format('drop column %I', s.attname)
            else format('alter column %1$I type %2$s%3$s using %1$I::text::%2$s', c.attname, c.type, c.of_text)
        end
        from (select * from columns o where o.side = 'own') c
        full join (select * from columns o where o.side = 'store') s on s.store = c.store and s.attname = c.attname
        where c.attname is null or s.attname is null or s.type <> c.type
        order by c.table_name, c.attnum
    loop
        execute change;
        done := done + 1;
    end loop;
    return done;
end
$$;
comment on function bds_shards.align() is
    'Gives the tables that Citus knows on this node the columns of those that it does not know, because it makes shards like them; '
    'returns the number of changes';
