-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_webhooks cascade;
create schema bds_webhooks authorization bds_dispatcher;
comment on schema bds_webhooks is 'Internals of webhooks, called by functions of bds';
