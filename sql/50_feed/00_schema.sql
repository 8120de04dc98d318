-- Both schemas are made anew with their functions whenever a file of this folder changes: nothing outside them may depend on them.

drop schema if exists bds_feed, bds_import cascade;
create schema bds_feed;
create schema bds_import;
comment on schema bds_feed is 'Internals of imports, called by bds.import_*';
comment on schema bds_import is
    'The statements of imports, spelled out for each entity: bds.register generates <step>_<entity>. Called by bds_feed';
