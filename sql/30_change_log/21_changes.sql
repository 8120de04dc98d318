-- The views of the change log and of the positions in it.

create or replace view bds.entity_positions as
select c.company_id, p.key as entity, p.value::bigint as last_id
from bds.clocks c cross join jsonb_each_text(c.positions) p;
comment on view bds.entity_positions is 'The id of the last change of each entity, for every company';
comment on column bds.entity_positions.company_id is 'The company';
comment on column bds.entity_positions.entity is 'The entity''s API name';
comment on column bds.entity_positions.last_id is 'The id of its last change';

create or replace view bds.all_changes as
select l.company_id, l.id, l.entity, l.row_id, l.operation::text as operation, l.change_set_id, l.created_at,
    l.actor, l.db_user, l.transaction_id,
    case
        when l.operation = 'update' then
            array(select jsonb_object_keys(l.old)) || coalesce(l.collections, '{}')
        -- computed once for all rows of a query
        else coalesce(
            (
                (
                    select jsonb_object_agg(e.entity, e.columns)
                    from (
                        select c.entity, array_agg(c.name order by c.is_collection, c.ordinal)::text as columns
                        from (
                            select f.entity, f.name, f.ordinal, false as is_collection from bds.fields f where f.name <> 'updatedAt'
                            union all
                            select n.entity, n.name, n.ordinal, true from bds.navigations n where n.child
                        ) c
                        group by c.entity
                    ) e
                ) ->> l.entity
            )::text[],
            '{}'
        )
    end as columns,
    l.old, l.last_updated_at, l.row_hash
from bds.change_log l;
comment on view bds.all_changes is 'The change log of every company; bds.changes and my.changes show it to sessions of one company';
comment on column bds.all_changes.company_id is 'The company';
comment on column bds.all_changes.id is 'Version number: 1, 2, 3, ... within the company';
comment on column bds.all_changes.entity is 'The entity''s API name';
comment on column bds.all_changes.row_id is 'The row''s id';
comment on column bds.all_changes.operation is 'create, update or delete';
comment on column bds.all_changes.created_at is 'When the row was written';
comment on column bds.all_changes.actor is 'The actor named by bds.set_context, else the database user';
comment on column bds.all_changes.db_user is
    'The database user that the session logged in as; unlike the actor, a session cannot choose it';
comment on column bds.all_changes.transaction_id is 'PostgreSQL''s transaction id; all changes of a transaction share it';
comment on column bds.all_changes.change_set_id is 'Groups the changes of one import or one bds.set_context';
comment on column bds.all_changes.columns is
    'Changed columns and child collections, by API names; all of them for a create or delete';
comment on column bds.all_changes.old is 'For an update the old values of the changed columns, for a delete the row';
comment on column bds.all_changes.last_updated_at is 'For an update the row''s previous updatedAt';
comment on column bds.all_changes.row_hash is 'A hash of the row as it became, see bds.compare_log; null for a delete, 0: erased';

create or replace view bds.changes as
select c.* from bds.all_changes c
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.changes is
    'The change log: one row for each change of a row, in commit order within a company. A query without a condition on company_id '
    'reads the whole log';

create or replace view my.changes with (security_barrier) as
select c.id, c.entity, c.row_id, c.operation, c.change_set_id, c.created_at, c.actor, c.db_user, c.transaction_id, c.columns, c.old
from bds.all_changes c
where c.company_id = (select l.company_id from bds.company_logins l where l.role_name = session_user);
comment on view my.changes is
    'The change log of the company that the login is bound to: one row for each change of a row, in commit order';

do $$
declare
    field record;
begin
    for field in
        select v.attrelid::regclass as view, v.attname as name, col_description(a.attrelid, a.attnum) as description
        from pg_attribute a join pg_attribute v on v.attname = a.attname
        where a.attrelid = 'bds.all_changes'::regclass and v.attrelid in ('bds.changes'::regclass, 'my.changes'::regclass)
    loop
        execute format('comment on column %s.%I is %L', field.view, field.name, field.description);
    end loop;
end
$$;

create or replace view bds.positions as
select p.company_id, p.entity, p.last_id
from bds.entity_positions p
where p.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.positions is 'The id of the last change of each entity; it never decreases';
comment on column bds.positions.company_id is 'The company';
comment on column bds.positions.entity is 'The entity''s API name';
comment on column bds.positions.last_id is 'The id of its last change';

create or replace view bds.company_positions as
select c.company_id, c.positions, c.begun_at, cardinality(c.commons) + 1 as generation, c.last_id
from bds.clocks c
where c.company_id = current_setting('bds.company', true) or (select bds.is_operator());
comment on view bds.company_positions is 'The positions of each company as one value: the version of its data';
comment on column bds.company_positions.company_id is 'The company';
comment on column bds.company_positions.positions is 'The id of the last change of each entity, by its API name';
comment on column bds.company_positions.begun_at is
    'When its generation began: tells it from one that had its id, and the same positions, before';
comment on column bds.company_positions.generation is 'The generation of the company, see bds.generations';
comment on column bds.company_positions.last_id is 'The id of its last change';
