-- Who has made an API key: what a key does stands in the change log under its id, and this leads on to a person.

set local role bds_owner;

alter table bds.api_keys add column actor text not null default '';
update bds.api_keys set actor = 'unknown';
alter table bds.api_keys alter column actor drop default;
comment on column bds.api_keys.actor is 'Who made it: as named by bds.set_context or bds.actor, else the database user';
