-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_operation cascade;
create schema bds_operation;
comment on schema bds_operation is 'Internals of operation: the tables of a company, and what deletes and restores one';
