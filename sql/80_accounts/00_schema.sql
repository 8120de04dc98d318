-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside of it may depend on them.

drop schema if exists bds_accounts cascade;
create schema bds_accounts;
comment on schema bds_accounts is 'Internals of accounts: bds.* call them';
