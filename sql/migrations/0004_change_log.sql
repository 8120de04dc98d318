-- The change log: the clock knows the transaction whose turn it is, positions are kept in it, and the log can be given a retention.

set local role bds_owner;

-- One row is written by each statement instead of two; the state of a turn is where no session can forge it.
alter table bds.clocks
    add column number         int,
    add column transaction_id xid8,
    add column first_id       bigint not null default 1,
    add column floor          timestamptz not null default '-infinity',
    add column positions      jsonb not null default '{}';
update bds.clocks k
set number = c.number,
    positions = coalesce(
        (select jsonb_object_agg(p.entity, p.last_id) from bds.entity_positions p where p.company_id = k.company_id), '{}'
    )
from bds.companies c
where c.id = k.company_id;
alter table bds.clocks alter column number set not null;
comment on table bds.clocks is 'What each company has given out: change ids, times of updates, positions of its entities';
comment on column bds.clocks.company_id is 'The company';
comment on column bds.clocks.last_id is 'The last change id';
comment on column bds.clocks.last_updated_at is 'The last updatedAt';
comment on column bds.clocks.number is 'Names the company''s lock (bds.companies.number)';
comment on column bds.clocks.transaction_id is 'The transaction that wrote last';
comment on column bds.clocks.first_id is 'The first change id of that transaction';
comment on column bds.clocks.floor is 'The earliest updatedAt that that transaction could give out';
comment on column bds.clocks.positions is 'The last change id of each entity, by its name: {"units": 17}; it never goes back';

drop view if exists bds.positions;
drop view if exists bds.changes;  -- its row_id was text
drop table bds.entity_positions;
create view bds.entity_positions as
select c.company_id, p.key as entity, p.value::bigint as last_id
from bds.clocks c cross join jsonb_each_text(c.positions) p;
comment on view bds.entity_positions is 'The id of the last change of each company and entity';
comment on column bds.entity_positions.company_id is 'The company';
comment on column bds.entity_positions.entity is 'The entity''s API name';
comment on column bds.entity_positions.last_id is 'The id of its last change';

-- what is made anew under other names
do $$
declare
    entity bds.entities;
begin
    for entity in select e.* from bds.entities e where exists (select from pg_class c where c.oid = e.table_name) loop
        execute format('drop trigger if exists bds_1_lock_row on %s', entity.table_name);
        execute format('drop trigger if exists bds_1_lock_old_row on %s', entity.table_name);
    end loop;
end
$$;
drop function if exists bds.lock_row_company();
drop function if exists bds.advance(text, text, bigint, timestamptz);

-- Half as wide as the index that it replaces; still the row first, so that a probe for a row is served by no other index.
drop index bds.change_log_row;
create index change_log_row on bds.change_log (row_id, company_id);

-- By time, change set or actor: next to nothing to keep, and a part of the log to read.
create index change_log_time on bds.change_log
    using brin (created_at, change_set_id uuid_bloom_ops, actor text_bloom_ops) with (autosummarize = on);

comment on column bds.change_log.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.change_log.row_id is 'The row''s id';
comment on column bds.change_log.created_at is 'When the row was written, by the database''s clock';
comment on column bds.change_log.transaction_id is 'PostgreSQL''s transaction; the changes of one share it';
comment on column bds.change_log.last_updated_at is 'Of an update: the row''s updatedAt before it';
comment on column bds.change_log.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.change_log.operation is 'create, update or delete';
comment on column bds.change_log.company_id is 'The company';
comment on column bds.change_log.entity is 'The entity''s API name';
comment on column bds.change_log.actor is 'Who: as named by bds.set_context, else the database user';
comment on column bds.change_log.collections is 'Of an update: the child collections that changed with it';
comment on column bds.change_log.old is 'Of an update the old values of the columns that changed, of a delete the row; by API names';

-- Retention ----------------------------------------------------------------------------------------------------------------------

create table bds.settings (
    is_only        boolean primary key default true,
    log_retention  interval,

    constraint one_row_only check (is_only),
    constraint retention_is_a_day_or_more check (log_retention >= interval '1 day')
);
comment on table bds.settings is 'What the operator has set for all companies';
comment on column bds.settings.is_only is 'There is one row';
comment on column bds.settings.log_retention is 'For how long the change log is kept at least; null: for ever (see bds.set_retention)';
insert into bds.settings default values;

-- beside the clocks, whose rows belong to the writers
create table bds.first_changes (
    company_id  text collate "C" primary key references bds.clocks (company_id) on delete cascade,
    first_id    bigint not null
);
comment on table bds.first_changes is 'The first change that is kept, of companies of which changes were dropped';
comment on column bds.first_changes.company_id is 'The company';
comment on column bds.first_changes.first_id is 'Its first change that is kept';

comment on column bds.companies.id is 'The company''s id, in every path and row';
comment on column bds.companies.tenant_id is 'The tenant whose company it is; null: its own';
comment on column bds.companies.created_at is 'When it was made';
comment on column bds.tenants.id is 'The tenant''s id';
comment on column bds.tenants.created_at is 'When it was made';
