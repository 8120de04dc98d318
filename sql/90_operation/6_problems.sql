-- What is wrong with a database, each problem with the statement that mends it.  Checks of the catalog are of now; differences
-- between rows and the log are those of the last bds.compare_log.

create or replace view bds.table_problems as
with tables as (
    select e.name, e.table_name,
        format(
            'select bds.register(%L, entity => %L%s, singular => %L)', e.table_name, e.name,
            (
                select format(', parent => %L, collection => %L', a.attname, e.collection)
                from bds.fields f join pg_attribute a on a.attrelid = e.table_name and a.attnum = f.ordinal
                where f.entity = e.name and f.reference = e.parent_navigation
            ),
            e.singular
        ) as again
    from bds.entities e
    where exists (select from pg_class c where c.oid = e.table_name)
)
select 'missing table' as kind, e.name as entity, e.table_name::text as object, 'the table was dropped' as detail,
    format('select bds.unregister(%L)', e.name) as mend
from bds.entities e
where not exists (select from pg_class c where c.oid = e.table_name)
union all
select 'altered table', t.name, t.table_name::text, string_agg(d.detail, '; ' order by d.ordinal), t.again
from tables t
cross join lateral (
    select coalesce(h.ordinal, a.attnum) as ordinal,
        case
            when h.ordinal is null then format('column %I is not registered', a.attname)
            when a.attnum is null then format('column %I was dropped', h.column_name)
            when a.attname <> h.column_name then format('column %I was renamed to %I', h.column_name, a.attname)
            when format_type(a.atttypid, null) <> h.type then
                format('column %I was %s, and is %s', a.attname, h.type, format_type(a.atttypid, null))
        end as detail
    from (select * from bds.column_history c where c.entity = t.name and c.until = 'infinity') h
    full join (select * from pg_attribute c where c.attrelid = t.table_name and c.attnum > 0 and not c.attisdropped) a
        on a.attnum = h.ordinal
) d
where d.detail is not null
group by t.name, t.table_name, t.again
union all
select 'lost column', h.entity, format('%s.%I', t.table_name, h.column_name),
    format('it was dropped by other means than bds.drop_column before %s: values that no record has are lost', h.until),
    format('update bds.column_history set is_lost = false where entity = %L and ordinal = %s', h.entity, h.ordinal)
from bds.column_history h join tables t on t.name = h.entity
where h.is_lost
union all
select case when g.tgname is null then 'missing trigger' else 'disabled trigger' end, t.name,
    format('%I on %s', n.name, t.table_name), 'writes are not logged as they should be',
    case when g.tgname is null then t.again else format('alter table %s enable trigger %I', t.table_name, n.name) end
from tables t
cross join unnest(array[
    'bds_1_lock', 'bds_1_lock_old_row', 'bds_2_stamp', 'bds_2_stamp_new', 'bds_log_delete', 'bds_log_insert', 'bds_log_update',
    'bds_truncate'
]) as n (name)
left join pg_trigger g on g.tgrelid = t.table_name and g.tgname = n.name
where g.tgname is null or g.tgenabled in ('D', 'R')
union all
select 'missing view', t.name, format('%I.%I', n.nspname, t.name), 'the entity cannot be read through it', t.again
from tables t cross join pg_namespace n
where n.nspname in ('api', 'my') and not exists (select from pg_class c where c.relnamespace = n.oid and c.relname = t.name)
union all
select 'invalid constraint', t.name, format('%I on %s', k.conname, t.table_name), 'there may be rows that it does not allow',
    format('alter table %s validate constraint %I', t.table_name, k.conname)
from tables t join pg_constraint k on k.conrelid = t.table_name
where not k.convalidated
union all
select 'invalid index', t.name, i.indexrelid::regclass::text, 'queries do not use it, and a unique one proves nothing',
    format('reindex index %s', i.indexrelid::regclass)
from tables t join pg_index i on i.indrelid = t.table_name
where not (i.indisvalid and i.indisready);
comment on view bds.table_problems is 'Problems of registered tables; a part of bds.problems';
comment on column bds.table_problems.kind is 'The kind of problem';
comment on column bds.table_problems.entity is 'The entity';
comment on column bds.table_problems.object is 'The object that has it';
comment on column bds.table_problems.detail is 'What was found';
comment on column bds.table_problems.mend is 'The statement that mends it';

create or replace view bds.log_problems as
with partitions as (
    select c.oid, c.relname, c.oid::regclass::text as name
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'bds.change_log'::regclass and not i.inhdetachpending
)
select 'missing partition' as kind, null::text as company_id, null::text as entity, 'bds.' || m.name as object,
    'the first change of that month will have to make it' as detail, 'select * from bds.maintain()' as mend
from (
    select 'change_log_' || to_char(date_trunc('month', now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM') as name
    from generate_series(0, 1) n
) m
where not exists (select from partitions p where p.relname = m.name)
union all
select 'partition without key', null, null, p.name, 'ids of this partition may not be unique, and a publication cannot update them',
    format('alter table %s add primary key (company_id, id)', p.name)
from partitions p
where not exists (select from pg_constraint k where k.conrelid = p.oid and k.contype = 'p')
union all
select f.kind, f.company_id, nullif(f.entity, ''), coalesce(e.table_name::text, 'bds.change_log'),
    format('%s found %s, such as %s', f.number, f.found_at::timestamp(0), array_to_string(f.examples, ', ')),
    case f.kind
        when 'unknown company' then format('select bds.create_company(%L)', f.company_id)
        when 'missing record' then format('select bds.compare_log(%L)  -- after the records were restored', f.company_id)
        else format('select bds.compare_log(%L, %L, record => true)', f.company_id, f.entity)
    end
from bds.log_findings f left join bds.entities e on e.name = f.entity;
comment on view bds.log_problems is 'Problems of the change log; a part of bds.problems';
comment on column bds.log_problems.kind is 'The kind of problem';
comment on column bds.log_problems.company_id is 'The company; null: of all';
comment on column bds.log_problems.entity is 'The entity; null: of all';
comment on column bds.log_problems.object is 'The object that has it';
comment on column bds.log_problems.detail is 'What was found';
comment on column bds.log_problems.mend is 'The statement that mends it';

create or replace view bds.problems as
select t.kind, null::text as company_id, t.entity, t.object, t.detail, t.mend from bds.table_problems t
union all
select l.kind, l.company_id, l.entity, l.object, l.detail, l.mend from bds.log_problems l
union all
select 'stuck import', i.company_id, null, i.id::text, format('%s, without a sign of life since %s', i.state, i.heartbeat_at),
    'select bds.reap_imports()'
from bds.imports i
where i.finished_at is null and i.heartbeat_at < clock_timestamp() - interval '1 minute'
union all
select 'resting hook', s.company_id, null, s.hook_id::text, format('%s changes wait until %s', s.queued, s.rests_until),
    coalesce(
        (
            select format('select bds.retry_delivery(%L, %L, %L)', d.company_id, d.hook_id, d.id)
            from bds.deliveries d
            where d.company_id = s.company_id and d.hook_id = s.hook_id and d.state = 'failed'
            order by d.finished_at desc
            limit 1
        ),
        format('select bds.test_hook(%L, %L)', s.company_id, s.hook_id)
    )
from bds.hook_health s
where s.state = 'resting';
comment on view bds.problems is
    'What is wrong, each with the statement that mends it: altered tables, triggers, unlogged writes as bds.compare_log found '
    'them, partitions, imports, hooks';
comment on column bds.problems.kind is 'The kind of problem';
comment on column bds.problems.company_id is 'The company; null: of all';
comment on column bds.problems.entity is 'The entity; null: of all';
comment on column bds.problems.object is 'The table, trigger, index, import or hook that has it';
comment on column bds.problems.detail is 'What was found';
comment on column bds.problems.mend is 'The statement that mends it';
