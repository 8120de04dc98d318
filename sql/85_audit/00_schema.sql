-- The schema is made anew with its functions whenever a file of this folder changes: no view and no SQL-standard body
-- outside it may depend on them.

drop schema if exists bds_audit cascade;
create schema bds_audit;
comment on schema bds_audit is 'Internals of the audit of administration';
