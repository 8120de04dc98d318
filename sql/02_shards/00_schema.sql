-- Tables that are divided into shards by the company, as on the workers of a Citus cluster.
--
-- data.products is then a table of PostgreSQL that is partitioned by the company's hash, of which Citus does not know.  Its
-- partitions are the shards that Citus has placed on the node of a table of its own, shards.data_products, with the same columns
-- and keys, but without triggers, policies and foreign keys.  So every statement, trigger and view is that of a single server, and
-- Citus stores and moves what is below.  Without Citus a database can be divided, too: it has all shards.

drop schema if exists bds_shards cascade;
create schema bds_shards;
comment on schema bds_shards is 'Internals of tables that are divided into shards, which a Citus cluster places';
