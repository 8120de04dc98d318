-- The holders of turns and the sessions that wait for them, read from PostgreSQL's locks.

create function bds_change_log.lockers(row_xmax xid)
    returns setof xid
    language plpgsql
    stable
as $$
begin
    return next row_xmax;
    begin
        return query select m.xid from pg_get_multixact_members(row_xmax) m;
    exception when others then
        null;  -- it is the id of a transaction, not of a multixact
    end;
end
$$;
comment on function bds_change_log.lockers(xid) is
    'The transactions that a row''s xmax may denote: that transaction, or the members of a multixact, which the holder''s lock '
    'becomes after a savepoint';

create or replace function bds_service.turn_holders(
    out company_id text, out pid int, out actor text, out db_user text, out application_name text, out since timestamptz,
    out runs text, out statement text, out waiters int[]
)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    with locks as materialized (
        select l.*, c.oid is not null as of_clocks
        from pg_locks l
        left join pg_class c on c.oid = l.relation and c.oid = 'bds.clocks'::regclass
            and l.database = (select d.oid from pg_database d where d.datname = current_database())
    )
    select distinct on (c.company_id) c.company_id, t.pid,
        coalesce(name.parts[2], a.usename, p.owner), coalesce(a.usename, p.owner),
        case when p.gid is null then coalesce(name.parts[1], a.application_name) else p.gid end, coalesce(a.xact_start, p.prepared),
        case
            when p.gid is not null then 'prepared transaction'
            when a.query collate "C" ~* '[[:<:]]bds[.]import_' then 'import'
            else 'session'
        end,
        a.query,
        array(
            select distinct w.pid
            from locks w
            where w.pid is distinct from t.pid and (
                -- the first of the queue waits for the transaction and has the row's own lock, the others wait for that
                w.locktype = 'tuple' and w.of_clocks and c.ctid::text = format('(%s,%s)', w.page, w.tuple)
                or w.locktype = 'transactionid' and not w.granted and w.transactionid in (
                    select g.transactionid from locks g where g.granted and g.virtualtransaction = t.virtualtransaction
                )
            )
        )
    from bds.clocks c
    cross join lateral (
        select l.pid, l.virtualtransaction, l.transactionid, 1 as rank
        from bds_change_log.lockers(c.xmax) x (xid)
        join locks l on l.locktype = 'transactionid' and l.granted and l.transactionid = x.xid
        union all
        -- a savepoint that took the turn and was released no longer has the lock of its own id
        select l.pid, l.virtualtransaction, l.transactionid, 2
        from locks m
        join locks l on l.locktype = 'transactionid' and l.granted and l.virtualtransaction = m.virtualtransaction
        where m.locktype = 'advisory' and m.granted and m.mode = 'ShareLock' and m.objsubid = 1
            and m.classid::bigint << 32 | m.objid::bigint = bds_change_log.turn_mark(c.company_id)
            and m.database = (select d.oid from pg_database d where d.datname = current_database())
    ) t
    left join pg_stat_activity a on a.pid = t.pid
    left join pg_prepared_xacts p on p.transaction = t.transactionid
    cross join lateral (select regexp_match(a.application_name, '^(.*?) [[](.*?)[]]?$') as parts) name
    where c.xmax <> '0' and exists (
        -- a number of another kind that happens to be equal is not its transaction
        select from locks r
        where r.of_clocks and r.mode in ('RowShareLock', 'RowExclusiveLock') and r.virtualtransaction = t.virtualtransaction
    )
    order by c.company_id, t.rank
$$;
comment on function bds_service.turn_holders() is 'The rows of bds.turns, read with the owner''s right to see other sessions';

create function bds_change_log.describe_holder(company text)
    returns text
    language sql
    stable
as $$
    select format(
        '%s, %s, since %s',
        coalesce('pid ' || h.pid, 'prepared transaction ' || h.application_name), h.actor, date_trunc('second', h.since)
    )
    from bds_service.turn_holders() h
    where h.company_id = company;
$$;
comment on function bds_change_log.describe_holder(text) is
    'The holder of a company''s turn, as notices and errors name it; null if there is none';

create or replace view bds.turns as
select h.company_id, h.pid, h.actor, h.db_user, h.application_name, h.since, h.runs, h.statement, h.waiters
from bds_service.turn_holders() h;
comment on view bds.turns is 'Companies whose turn to write a transaction holds, and the sessions that wait for it';
comment on column bds.turns.company_id is 'The company';
comment on column bds.turns.pid is 'The server process of the holder, for pg_terminate_backend; null for a prepared transaction';
comment on column bds.turns.actor is 'The actor that the holder has named by bds.set_context, else its database user';
comment on column bds.turns.db_user is 'The login of the holder';
comment on column bds.turns.application_name is 'The holder''s program; for a prepared transaction its identifier';
comment on column bds.turns.since is 'When the holder''s transaction began';
comment on column bds.turns.runs is 'import, session or prepared transaction';
comment on column bds.turns.statement is 'The statement that the holder runs or ran last';
comment on column bds.turns.waiters is 'The server processes that wait for this turn; empty if none does';
