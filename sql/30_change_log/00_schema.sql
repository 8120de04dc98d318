-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_change_log cascade;
create schema bds_change_log;
comment on schema bds_change_log is 'Internals of the change log, called by triggers and by functions of bds';
