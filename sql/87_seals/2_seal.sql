-- Sealing.  A log is sealed in the order of its ids, up to the last one that is committed, by one session at a time, which has the
-- log's row of bds.seal_positions locked.  Writers of records take no part in it.

create function bds_seals.lock_position(company text, log text)
    returns bds.seal_positions
    language plpgsql
as $$
declare
    position bds.seal_positions;
begin
    insert into bds.seal_positions (company_id, log) values (company, log) on conflict do nothing;
    select p.* into strict position
    from bds.seal_positions p where p.company_id = company and p.log = lock_position.log
    for update;
    return position;
end
$$;
comment on function bds_seals.lock_position(text, text) is
    'Keeps others from sealing a log, and from changing its sealed records lawfully, until the end of the transaction';

create function bds_seals.measure(seal bds.seals)
    returns table (number bigint, ids bigint, hash bytea)
    language plpgsql
    stable
    -- whatever the planner expects of a company that its statistics do not have: ranges are read by the key
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
begin
    return query execute format(
        'select c.* from (select ($1::bds.seals).*) s cross join lateral %s c', bds_seals.content(seal.company_id, seal.log)
    ) using seal;
end
$$;
comment on function bds_seals.measure(bds.seals) is
    'What there is of the range of a seal: number of records and of ids, content hash under the key of the seal';

create function bds_seals.time_of(company text, log text, id bigint)
    returns timestamptz
    language sql
    stable
as $$
    select case
        when log = 'changes' then (
            select l.created_at from bds.change_log l where l.company_id = company and l.id = time_of.id limit 1
        )
        when company = '' then (select a.at from bds.server_audit a where a.id = time_of.id)
        else (select a.at from bds.company_audit a where a.company_id = company and a.id = time_of.id)
    end;
$$;
comment on function bds_seals.time_of(text, text, bigint) is 'When a record was written; null if it is not there';

create function bds_seals.end_of_range(company text, log text, first bigint, last bigint)
    returns bigint
    language sql
    stable
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
    with later as (
        select
            (date_trunc('month', bds_seals.time_of(company, log, first) at time zone 'UTC') + interval '1 month') at time zone 'UTC'
                as ends,
            least(last, first + bds_seals.most() - 1) as upto
    )
    select coalesce(case
        when log = 'changes' then (
            select min(l.id) from bds.change_log l
            where l.company_id = company and l.id > first and l.id <= t.upto and l.created_at >= t.ends
        )
        when company = '' then (select min(a.id) from bds.server_audit a where a.id > first and a.id <= t.upto and a.at >= t.ends)
        else (
            select min(a.id) from bds.company_audit a
            where a.company_id = company and a.id > first and a.id <= t.upto and a.at >= t.ends
        )
    end - 1, t.upto)
    from later t;
$$;
comment on function bds_seals.end_of_range(text, text, bigint, bigint) is
    'The last id of the range that begins with an id: at most so many records, of one month (UTC)';

create function bds_seals.seal_range(company text, log text, first bigint, last bigint)
    returns bigint
    language plpgsql
as $$
declare
    seal bds.seals;
    here record;
begin
    seal.company_id := company;
    seal.log := log;
    seal.first_id := first;
    seal.last_id := last;
    seal.generation := bds_seals.generation_of(company);
    seal.key := bds_seals.new_key();
    seal.previous := (bds_seals.last_seal(company, log)).hash;
    seal.sealed_at := clock_timestamp();
    select * into here from bds_seals.measure(seal);
    if here.ids < last - first + 1 then
        return null;
    end if;
    seal.sealed_hash := here.hash;
    seal.content_hash := here.hash;
    seal.hash := bds_seals.seal_hash(seal);
    insert into bds.seals select seal.*;
    return last;
end
$$;
comment on function bds_seals.seal_range(text, text, bigint, bigint) is 'Seals a range; null if a record of it is missing';

create function bds_seals.seal_log(company text, log text, age interval, ends_at timestamptz, out sealed bigint, out problem text)
    returns record
    language plpgsql
as $$
declare
    position bds.seal_positions := bds_seals.lock_position(company, log);
    before bigint := coalesce((bds_seals.last_seal(company, log)).last_id, 0);
    first bigint := greatest(before + 1, case when log = 'changes' then bds_change_log.first_kept(company) end);
    last  bigint := bds_seals.last_id(company, log);  -- every record up to it is committed
    upto  bigint;
    named constant text := format('%s of %s', log, coalesce(nullif(company, ''), 'the server'));
begin
    sealed := 0;
    if position.sealed_id > before then
        problem := format('seals of %s up to %s are gone', named, position.sealed_id);
        return;
    end if;
    while first <= last and clock_timestamp() < ends_at loop
        position.waits_since := bds_seals.time_of(company, log, first);
        -- a time in the future would put off sealing until then
        exit when last - first + 1 < bds_seals.most()
            and position.waits_since > clock_timestamp() - age and position.waits_since <= clock_timestamp();
        upto := bds_seals.seal_range(company, log, first, bds_seals.end_of_range(company, log, first, last));
        if upto is null then
            problem := format(
                'records of %s between %s and %s are missing', named, first, bds_seals.end_of_range(company, log, first, last)
            );
            exit;
        end if;
        sealed := sealed + upto - first + 1;
        first := upto + 1;
        position.sealed_id := upto;
        position.waits_since := null;
    end loop;
    update bds.seal_positions p set sealed_id = greatest(position.sealed_id, before), waits_since = position.waits_since
    where p.company_id = company and p.log = seal_log.log;
end
$$;
comment on function bds_seals.seal_log(text, text, interval, timestamptz) is
    'Seals what waits in a log, if it is enough or older than an age, for some time; returns how many records, and what is in the '
    'way';

create function bds_seals.waiting(age interval)
    returns table (company_id text, log text)
    language sql
    stable
as $$
    select w.company_id, w.log
    from (
        select r.company_id, 'changes' as log, r.last_id from bds.residents r
        union all
        select r.company_id, 'audit', a.id
        from bds.residents r
        cross join lateral (select a.id from bds.company_audit a where a.company_id = r.company_id order by a.id desc limit 1) a
        union all
        select '', 'audit', (select max(a.id) from bds.server_audit a)
    ) w
    left join bds.seal_positions p on p.company_id = w.company_id and p.log = w.log
    where w.last_id > coalesce(p.sealed_id, 0) and (
        p.waits_since is null or p.waits_since <= clock_timestamp() - age or p.waits_since > clock_timestamp()
        or w.last_id - p.sealed_id >= bds_seals.most()
    )
    order by p.waits_since nulls first;
$$;
comment on function bds_seals.waiting(interval) is 'The logs that have records to seal, or that are to be looked at';

create function bds_seals.seal_all(age interval, out done bigint, out problem text)
    returns record
    language plpgsql
as $$
declare
    oldest  constant interval := coalesce(age, 'infinity');
    ends_at constant timestamptz := case when age <= '0' then 'infinity' else clock_timestamp() + interval '1 second' end;
    this    record;
    sealed  record;
begin
    done := 0;
    -- A move waits for transactions with this lock (bds.tables.is_awaited): a company that is found afterwards has not left.
    lock table bds.seals in row exclusive mode;
    for this in select * from bds_seals.waiting(oldest) loop
        exit when clock_timestamp() >= ends_at;  -- the next call goes on
        begin
            perform from bds.companies c where c.id = this.company_id for key share;  -- or it is being deleted
            if this.company_id = '' or exists (select from bds.residents r where r.company_id = this.company_id) then
                sealed := bds_seals.seal_log(this.company_id, this.log, oldest, ends_at);
                done := done + sealed.sealed;
                problem := coalesce(problem || '; ' || sealed.problem, sealed.problem, problem);
            end if;
        exception
            when lock_not_available then
                null;  -- an erasure is under way: the next call seals
            when others then  -- a state that only a superuser can write, which must not keep other logs from being sealed
                problem := concat_ws('; ', problem, format(
                    '%s: %s of %s: %s', sqlstate, this.log, coalesce(nullif(this.company_id, ''), 'the server'), sqlerrm
                ));
        end;
    end loop;
end
$$;
comment on function bds_seals.seal_all(interval) is
    'Seals logs in which 10,000 records wait or the oldest is of an age (null: whatever its age), for a second (an age of 0: until '
    'all is sealed); returns the number of records, and what is in the way';
