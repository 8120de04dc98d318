-- The schema is made anew with its functions whenever a file of this folder changes: no view and no SQL-standard body
-- outside it may depend on them.

drop schema if exists bds_seals cascade;
create schema bds_seals;
comment on schema bds_seals is 'Internals of the seals of the change log and of the audit';
