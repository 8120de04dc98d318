-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_revert cascade;
create schema bds_revert;
comment on schema bds_revert is 'Internals of bds.revert';
