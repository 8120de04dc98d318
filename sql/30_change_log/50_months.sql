-- Months: the log has a partition for each, and bds.change_months has the first change of each company in each.
--
-- There is no default partition: a month can be added, or detached concurrently, without blocking readers or writers.  Maintenance
-- adds months in advance; a writer that finds no partition for its month adds it.

create function bds_change_log.partition_of(month timestamptz, parent text default 'change_log')
    returns text
    language sql
    stable
    return parent || to_char(month at time zone 'UTC', '_YYYY_MM');
comment on function bds_change_log.partition_of(timestamptz, text) is
    'The name of a month''s partition of the log, or of its archive, in schema bds';

create function bds_change_log.require_attached(month name, parent text)
    returns void
    language plpgsql
    stable
as $$
begin
    if pg_partition_root(to_regclass('bds.' || month)) is distinct from to_regclass('bds.' || parent) then
        raise exception using
            errcode = 'BD004',
            message = format('bds.%I is detached from bds.%I, which needs that month', month, parent),
            hint = format('attach it again, or give it another schema: alter table bds.%I set schema ...', month);
    end if;
end
$$;
comment on function bds_change_log.require_attached(name, text) is
    'Raises BD004 if a month of the log or of its archive is a table of its own';

create function bds_change_log.make_month(month timestamptz, parent text default 'change_log')
    returns void
    language plpgsql
    set timezone = 'UTC'
as $$
declare
    name text := bds_change_log.partition_of(month, parent);
begin
    if bds_shards.is_divided('bds.change_log') then
        return;  -- the log has no months there
    end if;
    -- Two sessions may begin the month.  Attaching takes this lock anyway; it stops neither readers nor writers of the log, and
    -- requires a privilege, unlike an advisory lock.
    execute format('lock table only bds.%I in share update exclusive mode', parent);
    if to_regclass('bds.' || name) is not null then
        perform bds_change_log.require_attached(name, parent);
        return;
    end if;
    perform bds_change_log.forget_month(month, parent);
    -- A table that is attached locks the log less than one that is created in it: readers and writers go on.  The CHECK lets the
    -- month be attached to the archive without being read.
    execute bds_impl.fill(
        $sql$
create table bds.{name:I} (
    like bds.{parent:I} including constraints including comments,
    primary key (company_id, id),
    constraint is_of_its_month check (created_at >= {starts:L} and created_at < {ends:L})
);
alter table bds.{name:I} owner to bds_owner;
comment on table bds.{name:I} is {comment:L};
alter table bds.{parent:I} attach partition bds.{name:I} for values from ({starts:L}) to ({ends:L})$sql$,
        'name', name, 'parent', parent, 'starts', month::text, 'ends', (month + interval '1 month')::text,
        'comment', 'Changes of ' || to_char(month, 'YYYY-MM')
    );
    -- An index of an empty table has a summary of its first blocks, which every row that comes would be worked into: a sixth of the
    -- time of a small import.  Blocks get theirs when they are full.
    perform brin_desummarize_range(i.indexrelid, 0)
    from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
    where i.indrelid = to_regclass('bds.' || name) and a.amname = 'brin';
end
$$;
comment on function bds_change_log.make_month(timestamptz, text) is
    'Creates a partition of the change log or of its archive, for the month that begins at that time (UTC), unless a table has '
    'its name';

create function bds_change_log.forget_month(month timestamptz, parent text)
    returns void
    language plpgsql
    set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    this text;
begin
    for this in
        select m.company_id from bds.change_months m where parent = 'change_log' and m.month = forget_month.month
        union
        select a.company_id from bds.company_audit a
        where a.action = 'expire' and a.object = 'changes' and a.detail -> 'month' = to_jsonb(forget_month.month)
    loop
        perform bds_seals.note_months(this, month, parent, 'by hand');
    end loop;
    if parent = 'change_log' and exists (select from bds.change_months m where m.month = forget_month.month) then
        -- a company whose last change was in this month has written nothing since: its next change is the first one that is kept
        update bds.change_months m set first_id = c.last_id + 1
        from bds.clocks c
        where m.month = forget_month.month and c.company_id = m.company_id and c.month = m.month;
        delete from bds.change_months m
        using bds.change_months lost join bds.clocks c on c.company_id = lost.company_id
        where lost.month = forget_month.month and m.company_id = lost.company_id and m.month <= lost.month
            and not (m.month = lost.month and c.month = lost.month);
    end if;
end
$$;
comment on function bds_change_log.forget_month(timestamptz, text) is
    'Notes that a month is about to be made again that was dropped from the log, or from its archive: of companies that had '
    'changes in a month of the log, neither these nor any earlier ones are kept';

create function bds_change_log.make_months(ahead int default 3)
    returns bigint
    language plpgsql
    -- Vacuum, or another session that changes the log's partitions, may hold the lock for long; the next call tries again.
    set lock_timeout = '100ms'
as $$
declare
    month timestamptz;
    made  bigint := 0;
begin
    for month in
        select m.month
        from generate_series(0, ahead) n
        cross join lateral (select date_trunc('month', now(), 'UTC') at time zone 'UTC' + make_interval(months => n)) u (month)
        cross join lateral (select u.month at time zone 'UTC') m (month)
        where to_regclass('bds.' || bds_change_log.partition_of(m.month)) is null and not bds_shards.is_divided('bds.change_log')
        order by n
    loop
        perform bds_change_log.make_month(month);
        made := made + 1;
    end loop;
    return made;
exception when lock_not_available then
    return 0;
end
$$;
comment on function bds_change_log.make_months(int) is
    'Creates the change log''s partitions of this month and the next ones; returns the number of new ones';

select bds_change_log.make_months();

create function bds_change_log.begin_month(company text, month timestamptz, first_id bigint)
    returns void
    language plpgsql
as $$
begin
    if to_regclass('bds.' || bds_change_log.partition_of(month)) is null then
        perform bds_change_log.make_month(month);
    end if;
    insert into bds.change_months (company_id, month, first_id) values (company, month, first_id);
end
$$;
comment on function bds_change_log.begin_month(text, timestamptz, bigint) is
    'Stores the first change of a company in a month, and makes the month''s partition if maintenance has not';

create function bds_change_log.partitions(out name name, out partition regclass, out starts timestamptz, out ends timestamptz)
    returns setof record
    language sql
    stable
    set timezone = 'UTC'
as $$
    select c.relname, c.oid, bounds.found[1]::timestamptz, bounds.found[2]::timestamptz
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), $r$FROM \('(.+)'\) TO \('(.+)'\)$r$) as bounds (found)
    where i.inhparent = 'bds.change_log'::regclass and not i.inhdetachpending and not bds_shards.is_divided(i.inhparent)
    union all
    select distinct bds_change_log.partition_of(m.month), 'bds.change_log'::regclass, m.month, m.month + interval '1 month'
    from bds.change_months m
    where bds_shards.is_divided('bds.change_log');
$$;
comment on function bds_change_log.partitions() is
    'The partitions of the change log, looked up by name (bds_change_log.partition_of), because a DBA may drop or detach one by '
    'hand';

create function bds_change_log.tables_of_months(out name regclass, out is_month boolean)
    returns setof record
    language sql
    stable
as $$
    select c.oid,
        c.relkind = 'r' and c.relowner = l.relowner and has_table_privilege(c.relowner, c.oid, 'select')
            and has_table_privilege(c.relowner, c.oid, 'update') and not exists (
                select a.attname, a.atttypid, a.attcollation
                from pg_attribute a where a.attrelid = l.oid and a.attnum > 0 and not a.attisdropped
                except
                select a.attname, a.atttypid, a.attcollation from pg_attribute a where a.attrelid = c.oid
            )
    from pg_class c
    join pg_constraint k on k.conrelid = c.oid and k.conname = 'is_of_its_month'
    join pg_class l on l.oid = 'bds.change_log'::regclass
    where c.relnamespace = 'bds'::regnamespace and (
        not c.relispartition or exists (select from pg_inherits i where i.inhrelid = c.oid and i.inhdetachpending)
    );
$$;
comment on function bds_change_log.tables_of_months() is
    'Tables of schema bds with the CHECK of a month that are no partitions; is_month: whether they have the columns of the log, '
    'and its owner, who may read and update them';

create function bds_change_log.detached_months()
    returns setof regclass
    language sql
    stable
as $$
    select t.name from bds_change_log.tables_of_months() t where t.is_month;
$$;
comment on function bds_change_log.detached_months() is
    'Tables of schema bds that were months of the change log or of its archive until a DBA detached them: nothing reads them, but '
    'they may be attached again';

create function bds_change_log.first_kept(company text)
    returns bigint
    language plpgsql
    stable
as $$
declare
    lost  timestamptz;
    first bigint;
begin
    -- The partitions of now, whatever the snapshot: a reader that waited for a lock may have one from before a month was dropped.
    select max(m.month) into lost
    from bds.change_months m
    where m.company_id = company and not bds_shards.is_divided('bds.change_log')
        and pg_partition_root(to_regclass('bds.' || bds_change_log.partition_of(m.month)))
            is distinct from 'bds.change_log'::regclass;
    select min(m.first_id) into first
    from bds.change_months m
    where m.company_id = company and m.month > coalesce(lost, '-infinity');
    -- without a month there are no changes, or none is kept
    return coalesce(first, (select c.last_id + 1 from bds.clocks c where c.company_id = company), 1);
end
$$;
comment on function bds_change_log.first_kept(text) is 'As bds.first_change, for a company of any session';

create or replace function bds.first_change(company text)
    returns bigint
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds.require_company(company);
    return bds_change_log.first_kept(company);
end
$$;
comment on function bds.first_change(text) is
    'The id of the first change from which on every change is kept: 1, unless months were dropped, archived or detached. Call it '
    'after reading the log, or with the log locked: a month may be dropped in between';
