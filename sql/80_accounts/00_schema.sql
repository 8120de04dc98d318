-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_accounts cascade;
create schema bds_accounts;
comment on schema bds_accounts is 'Internals of accounts, called by functions of bds';
