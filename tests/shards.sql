-- Shards on one server, as a distributed database would have them: run between the migrations and the functions.  Each table of
-- companies becomes four partitions by company, which generated code names as it would name the shards of Citus.

create schema bds_shards authorization bds_owner;
set local role bds_owner;

create function pg_temp.shard(name text, options text) returns void language plpgsql as $$
declare
    part  name := split_part(name, '.', 2);
    refer record;
    keys  text[] := array(
        select format('alter table %s add constraint %I %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid))
        from pg_constraint k
        where k.contype = 'f' and k.conparentid = 0 and name::regclass in (k.confrelid, k.conrelid)
    );
    key   text;
begin
    for refer in
        select k.conrelid::regclass as owner, k.conname from pg_constraint k
        where k.contype = 'f' and k.conparentid = 0 and name::regclass in (k.confrelid, k.conrelid)
    loop
        execute format('alter table %s drop constraint %I', refer.owner, refer.conname);
    end loop;
    execute format('alter table %s rename to %I', name, part || '_whole');
    execute format('create table %s (like %s including all) partition by hash (company_id)', name, name || '_whole');
    execute format('comment on table %s is %L', name, obj_description((name || '_whole')::regclass, 'pg_class'));
    execute format('drop table %s', name || '_whole');
    for n in 0 .. 3 loop
        execute format('create table %s partition of %s for values with (modulus 4, remainder %s) %s', name || '_shard_' || n, name, n, options);
    end loop;
    foreach key in array keys loop
        execute key;
    end loop;
end
$$;

select pg_temp.shard(c.oid::regclass::text, '') from pg_class c where c.relnamespace = 'data'::regnamespace and c.relkind = 'r';
select pg_temp.shard('bds.clocks', 'with (fillfactor = 20)');
reset role;
