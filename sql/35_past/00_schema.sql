-- The schema is made anew with its functions whenever a file of this folder changes: no view and no SQL-standard body outside it
-- may depend on them.

drop schema if exists bds_past cascade;
create schema bds_past;
comment on schema past is
    'Three views for each entity: its rows as of the version that the session has named (bds.set_version), the rows that differ '
    'between two (_diff), the versions of rows (_versions); the others, and its functions, are internals of these';
comment on schema bds_past is 'Internals of past states: generates the views of schema past';
