-- What only a superuser makes on a database whose tables are divided into shards (02_shards), before any is divided;
-- bds.settings.shards has their number.  bds migrate runs it there, and nowhere else.

create schema if not exists shards;
comment on schema shards is 'Shards of the tables with rows of companies, and what divides the tables';
grant usage, create on schema shards to bds_owner;

-- Citus has one range of hash values for each shard.  PostgreSQL adds a constant to the hash of a partition key, which is taken off
-- here: what is left modulo the number of shards is the shard's place among them.
do $do$
begin
    execute format(
        $sql$
create or replace function shards.number_of(company text, seed bigint)
    returns bigint
    language plpgsql
    immutable
    strict
    parallel safe
as $$
begin
    return (hashtext(company)::bigint + 2147483648) / %s - 5305509591434766563;
end
$$
        $sql$,
        4294967296 / (select s.shards from bds.settings s)
    );
    create operator class shards.by_number for type text using hash as operator 1 =, function 2 shards.number_of(text, bigint);
exception when duplicate_object then
    null;
end
$do$;
comment on function shards.number_of(text, bigint) is
    'The number of the shard of a company, from 0, as a hash of PostgreSQL''s partitions';

create or replace function shards.hold()
    returns trigger
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := case tg_op when 'DELETE' then old.company_id else new.company_id end;
    shard   bigint := get_shard_id_for_distribution_column('shards.bds_clocks', company);
    held    text := coalesce(nullif(current_setting('bds.held', true), ''), ',');
    -- Any session can set bds.held: the first update of a clock in a transaction, which precedes its first record, does not trust
    -- it.
    trusts  boolean := true;
begin
    if tg_nargs > 0 and tg_op = 'UPDATE' then
        trusts := old.transaction_id is not distinct from new.transaction_id;
    end if;
    if strpos(held, ',' || shard || ',') = 0 or not trusts then
        perform lock_shard_metadata(5, array[shard]);  -- SHARE; until the end of the transaction
        if current_setting('transaction_isolation') <> 'read committed' then  -- whose snapshot may be older than the move
            perform from pg_dist_placement p where p.shardid = shard for key share;  -- raises 40001 then
        end if;
        if not exists (
            select from pg_dist_placement p
            where p.shardid = shard and p.groupid = (select g.groupid from pg_dist_local_group g)
        ) then
            raise exception using
                errcode = 'BD002',
                message = format('company %L does not live in this database: it is at another place', company),
                hint = 'ask the database that is home: table bds.directory; bds company list';
        end if;
        perform set_config('bds.held', held || shard || ',', true);
    end if;
    return case tg_op when 'DELETE' then old else new end;
end
$$;
comment on function shards.hold() is
    'Row trigger: takes a lock for which Citus waits before it moves the company, and raises BD002 after the move. On a cluster it '
    'replaces the locks of app/database/servers/place.py';
revoke all on function shards.hold() from public;
grant execute on function shards.hold() to bds_owner;
