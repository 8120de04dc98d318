-- The schema is made anew with its functions whenever a file of this folder changes: no view and no SQL-standard body outside it
-- may depend on them.

drop schema if exists bds_past cascade;
create schema bds_past;
comment on schema bds_past is 'Internals of past states: generates the views of schema past';
