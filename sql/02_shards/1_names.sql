-- Which tables are divided, into how many shards, and what these are called.

create function bds_shards.number_of_shards()
    returns int
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select s.shards from bds.settings s;
$$;
comment on function bds_shards.number_of_shards() is 'Into how many shards the tables are divided; null: they are whole';

create function bds_shards.has_citus()
    returns boolean
    language sql
    stable
    return exists (select from pg_extension e where e.extname = 'citus');
comment on function bds_shards.has_citus() is 'Whether Citus places the shards; else this database has all of them';

create function bds_shards.is_divided(stored_table regclass)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_partitioned_table p join pg_opclass o on o.oid = p.partclass[0]
        where p.partrelid = stored_table and p.partstrat = 'h' and o.opcname = 'by_number'
            and o.opcnamespace = to_regnamespace('shards')
    );
comment on function bds_shards.is_divided(regclass) is 'Whether a table is divided into shards';

create function bds_shards.company_column(stored_table regclass)
    returns name
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select case when stored_table = 'bds.companies'::regclass then 'id' else 'company_id' end;
$$;
comment on function bds_shards.company_column(regclass) is 'The column by which a table is divided';

create function bds_shards.store_of(stored_table regclass)
    returns text
    language sql
    stable
    return (
        select n.nspname || '_' || c.relname
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = stored_table
    );
comment on function bds_shards.store_of(regclass) is
    'The name in schema shards of the table that Citus knows, whose shards are the partitions';

create function bds_shards.whole_tables()
    returns setof regclass
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select c.oid
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attname = bds_shards.company_column(c.oid) and not a.attisdropped
    where n.nspname in ('bds', 'data') and c.relkind in ('r', 'p') and c.relpersistence = 'p' and not c.relispartition
        and not bds_shards.is_divided(c.oid)
        -- what does not move stays whole; and expired changes of divided logs are not archived
        and not exists (
            select from bds.tables t
            where t.name = n.nspname || '.' || c.relname and (not t.is_dumped or t.name = 'bds.change_archive')
        )
    order by n.nspname, c.relname;
$$;
comment on function bds_shards.whole_tables() is 'The tables with rows of companies that are not divided';
