-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside of it may depend on them.

drop schema if exists bds_impl cascade;
create schema bds_impl;
comment on schema bds_impl is 'Helpers that several folders share';
