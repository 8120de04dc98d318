-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_feed cascade;
create schema bds_feed authorization bds_importer;
comment on schema bds_feed is 'Internals of imports, called by bds.import_*';
