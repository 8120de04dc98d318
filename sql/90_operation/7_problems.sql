-- What is wrong with a database, each problem with the statement that mends it.  Checks of the catalog are of now; differences
-- between rows and the log are those of the last bds.compare_log.

create or replace view bds.log_problems as
with partitions as (
    select c.oid, c.relname, c.oid::regclass::text as name
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'bds.change_log'::regclass and not i.inhdetachpending
)
select case when t.partition is null then 'missing partition' else 'detached partition' end as kind, null::text as company_id,
    null::text as entity, 'bds.' || m.name as object,
    case
        when t.partition is null then 'the first change of that month will have to make it'
        else 'no change of that month can be written'
    end as detail,
    case
        when t.partition is null then 'select * from bds.maintain()'
        else format(
            'alter table bds.change_log attach partition %s for values from (%L) to (%L)',
            t.partition, to_char(m.starts, 'YYYY-MM-DD"Z"'), to_char(m.starts + interval '1 month', 'YYYY-MM-DD"Z"')
        )
    end as mend
from (
    select s.starts, 'change_log_' || to_char(s.starts, 'YYYY_MM') as name
    from generate_series(0, 1) n
    cross join lateral (select date_trunc('month', now() at time zone 'UTC') + make_interval(months => n)) s (starts)
) m
cross join lateral to_regclass('bds.' || m.name) as t (partition)
where not exists (select from partitions p where p.relname = m.name)
    and not exists (select from pg_inherits i where i.inhrelid = t.partition and i.inhdetachpending)
    and exists (select from pg_partitioned_table t where t.partrelid = 'bds.change_log'::regclass and t.partstrat = 'r')
union all
select 'half-detached partition', null, null, i.inhrelid::regclass::text,
    'detach partition concurrently was interrupted: its changes cannot be read, and no other partition can be detached '
    'concurrently',
    format('alter table bds.change_log detach partition %s finalize', i.inhrelid::regclass)
from pg_inherits i
where i.inhparent = 'bds.change_log'::regclass and i.inhdetachpending
union all
select 'partition without key', null, null, p.name,
    'ids of this partition may not be unique, and while a publication has the table its records cannot be updated',
    format('alter table %s add primary key (company_id, id)', p.name)
from partitions p
where not exists (select from pg_constraint k where k.conrelid = p.oid and k.contype = 'p')
union all
select f.kind, f.company_id, nullif(f.entity, ''), coalesce(e.table_name::text, 'bds.change_log'),
    format('%s found at %s, ids such as %s', f.number, f.found_at::timestamptz(0), array_to_string(f.examples, ', '))
        || case f.kind when 'missing record' then '; restore the records, then compare again' else '' end,
    case f.kind
        when 'unknown company' then format(
            'select bds.create_company(%L) where not exists (select from bds.companies where id = %1$L); '
            'select bds.compare_log(%1$L, %L, record => true)',
            f.company_id, f.entity
        )
        when 'missing record' then null
        else format('select bds.compare_log(%L, %L, record => true)', f.company_id, f.entity)
    end
from bds.log_findings f left join bds.entities e on e.name = f.entity
union all
select 'log altered', nullif(s.company_id, ''), null,
    format('bds.%s %s-%s', s.log, s.first_id, s.last_id) collate "default",  -- the log is not
    format('%s, found at %s: %s', s.kind, s.found_at::timestamptz(0), s.detail), null
from bds.seal_findings s
union all
select 'log altered', c.id, null, 'bds.clocks', 'the company has no clock: nothing seals or verifies its log', null
from bds.companies c left join bds.directory d on d.company_id = c.id
where not exists (select from bds.clocks k where k.company_id = c.id) and d.phase is null and case
    when (select s.place from bds.settings s) = 'home' then coalesce(d.place, 'home') = 'home'
    else exists (select from bds.seal_positions p where p.company_id = c.id)  -- or it is arriving
end;
comment on view bds.log_problems is 'Problems of the change log; a part of bds.problems';
comment on column bds.log_problems.kind is 'The kind of problem';
comment on column bds.log_problems.company_id is 'The company; null: of all';
comment on column bds.log_problems.entity is 'The entity; null: of all';
comment on column bds.log_problems.object is 'The object that has it';
comment on column bds.log_problems.detail is 'What was found';
comment on column bds.log_problems.mend is 'The statement that mends it; null: only a person can decide';

create or replace view bds.problems as
select p.* from (
    select t.kind, null::text as company_id, t.entity, t.object, t.detail, t.mend from bds_service.table_problems() t
    union all
    select l.kind, l.company_id, l.entity, l.object, l.detail, l.mend from bds.log_problems l
    union all
    select 'stuck import', i.company_id, null, i.id::text, format('%s, without a sign of life since %s', i.state, i.heartbeat_at),
        'select bds.reap_imports()'
    from bds.imports i join bds.residents r on r.company_id = i.company_id
    where i.finished_at is null and i.heartbeat_at < clock_timestamp() - interval '1 minute'
    union all
    select 'resting hook', s.company_id, null, s.hook_id::text,
        format(
            '%s changes wait until %s; once its receiver answers again: %s', s.queued, s.rests_until,
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
        ) collate "default",  -- the ids are not
        null
    from bds.hook_health s join bds.residents r on r.company_id = s.company_id
    where s.state = 'resting'
) p
-- the order in which the mends are run: first what bds.register needs of tables (other ALTERs may come as early), then
-- bds.register, then comparisons of rows and rights, bds migrate last
order by
    case
        when p.mend ^@ 'alter table ' or p.mend ^@ 'select bds.unregister(' or p.kind = 'closed schema' then 1
        when p.mend ^@ 'select bds.register(' then 2
        when p.mend = 'bds migrate' then 4
        else 3
    end,
    p.kind collate "C", p.company_id, p.entity, p.object;
comment on view bds.problems is
    'What is wrong, each with the statement that mends it: altered tables, functions, rights, memberships, triggers, unlogged '
    'writes as bds.compare_log found them, partitions, imports, hooks. The mends, run in the order of the list, leave no problem '
    'that has one';
comment on column bds.problems.kind is 'The kind of problem';
comment on column bds.problems.company_id is 'The company; null: of all';
comment on column bds.problems.entity is 'The entity; null: of all';
comment on column bds.problems.object is 'The table, trigger, function, role, import or hook that has it';
comment on column bds.problems.detail is 'What was found';
comment on column bds.problems.mend is
    'The statement, or the command bds migrate, that mends it; null: only a person can decide, between what the detail names';
