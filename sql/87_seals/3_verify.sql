-- Verifying: the records, wherever they are, are compared with the seals, and the seals with one another and with the audit.

create function bds_seals.ids_of(detail jsonb)
    returns int8range
    language plpgsql
    immutable
as $$
begin
    return case
        when jsonb_typeof(detail -> 'first_id') = 'number' and jsonb_typeof(detail -> 'last_id') = 'number'
            and detail -> 'first_id' > '0'
        then int8range((detail ->> 'first_id')::bigint, (detail ->> 'last_id')::bigint, '[]')
    end;
exception when data_exception then
    return null;
end
$$;
comment on function bds_seals.ids_of(jsonb) is 'The ids that a record of the audit names; null: they are none';

create function bds_seals.expiries(company text)
    returns table (number bigint, parent text, month text, ids int8range)
    language sql
    stable
as $$
    select row_number() over (order by a.id nulls last, a.at),
        case
            when a.detail -> 'archived' = 'true' then 'change_archive'
            when a.detail -> 'left' = '"behind a gap"' then 'change_log'
        end,
        case when jsonb_typeof(a.detail -> 'month') = 'string' then replace(left(a.detail ->> 'month', 7), '-', '_') end,
        bds_seals.ids_of(a.detail)
    from (
        select c.id, c.at, c.action, c.object, c.detail from bds.company_audit c where c.company_id = company
        union all
        select null, p.at, p.action, p.object, p.detail from bds.audit_pending p where p.chain = company  -- of this transaction
    ) a
    where a.action = 'expire' and a.object = 'changes' and bds_seals.ids_of(a.detail) is not null;
$$;
comment on function bds_seals.expiries(text) is
    'The changes that have left the log according to the audit, in the order of its records. parent: the month that has them has '
    'not been dropped but is one of the archive, or still one of the log, with a gap behind it; null: they are gone';

create function bds_seals.noted_expiries(company text)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(e.ids), '{}') from bds_seals.expiries(company) e where e.parent is null;
$$;
comment on function bds_seals.noted_expiries(text) is 'The changes that are gone according to the audit';

create function bds_seals.months(company text)
    returns table (month text, parent text, ids int8range, is_there boolean)
    language sql
    stable
as $$
    select m.month, m.parent, m.ids,
        bds_shards.is_divided('bds.change_log') or to_regclass(format('bds.%I', m.parent || '_' || m.month)) is not null
    from (
        select distinct on (t.month) t.month, t.parent, t.ids
        from (
            select 0 as number, 'change_log' as parent, to_char(c.month at time zone 'UTC', 'YYYY_MM') as month, int8range(
                c.first_id,
                greatest(c.first_id, lead(c.first_id, 1, bds_seals.last_id(company, 'changes') + 1) over (order by c.month))
            ) as ids
            from bds.change_months c where c.company_id = company
            union all
            select e.number, e.parent, e.month, e.ids from bds_seals.expiries(company) e where e.parent is not null
        ) t
        where t.month is not null
        order by t.month, t.number desc
    ) m;
$$;
comment on function bds_seals.months(text) is
    'The months of a company''s changes as far as they are known, such as 2020_01; the table that such a month is part of; and '
    'whether the month is there, attached or not: it is gone if a DBA has dropped it, or has given it another schema';

create function bds_seals.months_by_hand(company text)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(m.ids) filter (where not m.is_there), '{}') from bds_seals.months(company) m;
$$;
comment on function bds_seals.months_by_hand(text) is 'The changes of months that are gone, which a DBA has dropped unless noted';

create function bds_seals.notes(company text, first_id bigint)
    returns table (id bigint, at timestamptz, actor text, action text, object text, "before" text, "after" text)
    language sql
    stable
    set enable_bitmapscan = on  -- for company_audit_seals: this is asked of every range
as $$
    select a.id, a.at, a.actor, a.action, a.object, n.note ->> 'before', n.note ->> 'after'
    from (
        select c.id, c.at, c.actor, c.action, c.object, c.detail from bds.company_audit c
        where c.company_id = company and c.detail ? 'seals'
            and c.detail -> 'seals' @> jsonb_build_array(jsonb_build_object('first_id', notes.first_id))
        union all
        -- of this transaction
        select null, p.at, p.actor, p.action, p.object, p.detail from bds.audit_pending p
        where p.chain = company and p.detail ? 'seals'
    ) a
    cross join lateral jsonb_array_elements(
        case jsonb_typeof(a.detail -> 'seals') when 'array' then a.detail -> 'seals' end
    ) n (note)
    where n.note -> 'first_id' = to_jsonb(notes.first_id) and a.action in ('erase', 'rename')
    order by a.id nulls last, a.at;
$$;
comment on function bds_seals.notes(text, bigint) is
    'The records of the audit that have noted a lawful change of a range, in their order, with its content hash before and after';

create function bds_seals.lawful(seal bds.seals)
    returns table (kind text, detail text)
    language plpgsql
    stable
as $$
declare
    led   text := encode(seal.sealed_hash, 'hex');
    note  record;
    acts  text[] := '{}';
begin
    if seal.log = 'changes' then
        for note in select * from bds_seals.notes(seal.company_id, seal.first_id) loop
            -- each one, also where content_hash is sealed_hash: an erasure that was undone is a fault
            led := case when note.before = led then note.after end;
            exit when led is null;
            acts := acts || format('%s of %s at %s by %s', note.action, note.object, bds_service.api_time(note.at), note.actor);
        end loop;
        return query
            select case split_part(a.act, ' ', 1) when 'erase' then 'erased' else 'renamed' end,
                string_agg(a.act, '; ' order by a.n)
            from unnest(acts) with ordinality a (act, n)
            group by 1;
    end if;
    if led is distinct from encode(seal.content_hash, 'hex') then
        return query select 'altered',
            'the erasures and renamings that the audit has do not lead from its sealed_hash to its content_hash';
    end if;
end
$$;
comment on function bds_seals.lawful(bds.seals) is
    'What was lawfully done to the records of a range according to the audit, and a fault if that does not explain its content '
    'hash';

create function bds_seals.chain_faults(seal bds.seals, previous bds.seals)
    returns setof text
    language sql
    stable
as $$
    select 'its previous hash is not the hash of the seal before' ||
        case when previous.hash is null then ', which is gone' else format(', of %s to %s', previous.first_id, previous.last_id) end
    where seal.previous is distinct from previous.hash
    union all
    select 'its hash is not that of its range, sealed_hash, generation and previous hash'
    where seal.hash <> bds_seals.seal_hash(seal)
    union all
    select format('it begins before the end of the seal before, %s', previous.last_id) where seal.first_id <= previous.last_id
    union all
    select format('it has more than %s records', bds_seals.most()) where seal.last_id - seal.first_id >= bds_seals.most();
$$;
comment on function bds_seals.chain_faults(bds.seals, bds.seals) is 'In what a seal does not fit itself and the one before';

create function bds_seals.record_faults(
    seal bds.seals, number bigint, ids bigint, hash bytea, noted int8multirange, by_hand int8multirange
)
    returns table (kind text, detail text)
    language sql
    stable
as $$
    with range as (select int8range(seal.first_id, seal.last_id, '[]') as ids, seal.last_id - seal.first_id + 1 as size)
    select case when number = 0 and r.ids <@ (noted + by_hand) then 'expired' else 'missing' end,
        case
            when number > 0 then format('%s of its %s records are not there', r.size - record_faults.ids, r.size)
            when r.ids <@ noted then 'its records have expired, as the audit says'
            when r.ids <@ (noted + by_hand) then 'its month was dropped or moved by hand, of which the audit has no record'
            else 'its records are not there, and have not expired'
        end
    from range r where record_faults.ids < r.size and r.size <= bds_seals.most()
    union all
    select 'added', format('%s more records have an id of its range', number - record_faults.ids) where number > record_faults.ids
    union all
    select 'altered', 'its records are not as they were sealed'
    from range r where number = r.size and record_faults.ids = r.size and record_faults.hash <> seal.content_hash;
$$;
comment on function bds_seals.record_faults(bds.seals, bigint, bigint, bytea, int8multirange, int8multirange) is
    'In what the records of a range differ from its seal: their number, the number of their ids, their content hash. noted, '
    'by_hand: the ids that are not kept and gone according to the audit, or whose months are';

create function bds_seals.gap(company text, log text, first bigint, last bigint)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language sql
    stable
as $$
    select case when g.is_kept then 'missing' else 'expired' end, first, last,
        case when g.is_kept then 'no seal has them, though later records are sealed' else 'they were never sealed' end
    from (select log <> 'changes' or last >= bds_change_log.first_kept(company)) g (is_kept)
    where first <= last;
$$;
comment on function bds_seals.gap(text, text, bigint, bigint) is 'What is to be said of ids between two seals, if there are any';

create function bds_seals.rest(company text, log text, sealed_id bigint)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language plpgsql
    stable
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
declare
    last  constant bigint := bds_seals.last_id(company, log);
    first constant bigint := greatest(sealed_id + 1, case when log = 'changes' then bds_change_log.first_kept(company) end);
    once  constant bigint := (select p.sealed_id from bds.seal_positions p where p.company_id = company and p.log = rest.log);
begin
    return query
        select 'chain', sealed_id + 1, once, 'their seals are gone' where once > sealed_id
        union all
        select * from bds_seals.gap(company, log, sealed_id + 1, first - 1);
    return query execute bds_impl.fill(
        -- ranges of numeric, because the last id has no next one
        $sql$
    with ids as (
        select l.id, count(*) as records from {records} l where l.company_id = $1 and l.id > $5 group by l.id
    ), runs as (
        select min(r.id) as first_id, max(r.id) as last_id, r.is_given
        from (select i.id, i.id <= $3 as is_given, i.id - row_number() over (order by i.id) as run from ids i where i.id >= $2) r
        group by r.run, r.is_given
    )
    select 'unsealed', r.first_id, r.last_id, format('%s records wait for bds.maintain()', r.last_id - r.first_id + 1)
    from runs r where r.is_given
    union all
    select 'missing', pg_catalog.lower(g)::bigint, (pg_catalog.upper(g) - 1)::bigint, 'they were not sealed yet, and are not there'
    from unnest(nummultirange(numrange($2, greatest($2, $4::numeric + 1))) - coalesce(
        (select range_agg(numrange(r.first_id, r.last_id::numeric + 1)) from runs r), '{}'
    )) g
    union all
    select 'added', i.id, i.id, format('%s more records have this id', i.records - 1) from ids i where i.records > 1 and i.id >= $2
    union all
    select 'added', min(i.id), max(i.id), 'their ids are beyond the last change of the company''s clock'
    from ids i where i.id > $3 having count(*) > 0
$sql$,
        'records', bds_seals.records(company, log)
    ) using company, first, last, greatest(last, once), least(first - 1, last);
end
$$;
comment on function bds_seals.rest(text, text, bigint) is
    'What is to be said of the records after the last seal: up to the last id that was given, and no other, each is there';

create function bds_seals.verify(company text, log text, from_id bigint, to_id bigint, ends_at timestamptz)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language plpgsql
    stable
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    ranges   refcursor;  -- not a loop over a query, which fetches 50 ranges at a time
    this     record;
    seal     bds.seals;
    dropped  int8multirange;  -- what is not kept
    noted    int8multirange := '{}';
    by_hand  int8multirange := '{}';
    previous bds.seals;
begin
    select s.* into previous from bds.seals s
    where s.company_id = company and s.log = verify.log and s.first_id < from_id and s.last_id < from_id
    order by s.first_id desc limit 1;
    open ranges for execute format(  -- of one snapshot: an erasure changes records, seal and audit at once
        'select s as seal, c.* from bds.seals s cross join lateral %s c '
        'where s.company_id = $1 and s.log = $2 and s.first_id > $3 and s.first_id <= $4 order by s.first_id',
        bds_seals.content(company, log)
    ) using company, log, coalesce(previous.first_id, 0), coalesce(to_id, 9223372036854775807);
    if log = 'changes' then  -- no month is dropped from here on: the log is locked
        dropped := int8multirange(int8range(null, bds_change_log.first_kept(company)));
        noted := dropped * bds_seals.noted_expiries(company);
        by_hand := dropped * bds_seals.months_by_hand(company);
    end if;
    loop
        fetch ranges into this;
        exit when not found;
        seal := this.seal;
        return query select * from bds_seals.gap(company, log, coalesce(previous.last_id, 0) + 1, seal.first_id - 1);
        return query
            select f.kind, seal.first_id, seal.last_id, string_agg(f.detail, '; ')
            from (
                select 'chain' as kind, c as detail from bds_seals.chain_faults(seal, previous) c
                union all select * from bds_seals.record_faults(seal, this.number, this.ids, this.hash, noted, by_hand)
                union all select * from bds_seals.lawful(seal)
            ) f
            group by f.kind;
        previous := seal;
        if clock_timestamp() >= ends_at then
            return query select null, null::bigint, seal.last_id, null;
            close ranges;
            return;
        end if;
    end loop;
    close ranges;  -- or no month can be dropped in this transaction
    if to_id is null or to_id > coalesce(previous.last_id, 0) then
        return query select * from bds_seals.rest(company, log, coalesce(previous.last_id, 0));
    end if;
end
$$;
comment on function bds_seals.verify(text, text, bigint, bigint, timestamptz) is
    'Verifies the ranges from one id to another (null: the end). After ends_at a last row has no kind and the last id that was '
    'verified';
