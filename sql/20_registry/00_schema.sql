-- The schema is made anew with its functions whenever a file of this folder changes: nothing outside it may depend on them.

drop schema if exists bds_registry cascade;
create schema bds_registry;
comment on schema bds_registry is 'Internals of the registry, called by bds.register and bds.unregister';
