-- Logins that are being checked are kept apart from wrong ones: a right one need not be refused because others are under way.

set local role bds_owner;

alter table bds.wrong_credentials add column pending int not null default 0;
comment on column bds.wrong_credentials.pending is 'Logins under way, any of which may turn out to be wrong';

drop function if exists bds.uncount_wrong(inet);
