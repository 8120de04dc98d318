-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_impl cascade;
create schema bds_impl;
comment on schema bds_impl is 'Internals that several folders share';
