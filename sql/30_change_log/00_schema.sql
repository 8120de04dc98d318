-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside of it may depend on them.

drop schema if exists bds_change_log cascade;
create schema bds_change_log;
comment on schema bds_change_log is 'Internals of the change log: triggers and bds.* call them';
