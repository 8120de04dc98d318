-- Verifying: the records, wherever they are, are compared with the seals, and the seals with one another and with the audit.

create function bds_seals.ids_of(detail jsonb)
    returns int8range
    language plpgsql
    immutable
as $$
begin
    return int8range((detail ->> 'first_id')::bigint, (detail ->> 'last_id')::bigint, '[]');
exception when data_exception then
    return null;
end
$$;
comment on function bds_seals.ids_of(jsonb) is 'The ids that a record of the audit names; null: they are none';

create function bds_seals.noted_expiries(company text)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(bds_seals.ids_of(a.detail)), '{}')
    from bds.company_audit a
    where a.company_id = company and a.action = 'expire' and a.object = 'changes'
        and a.detail ->> 'archived' is distinct from 'true';
$$;
comment on function bds_seals.noted_expiries(text) is 'The changes that have expired according to the audit';

create function bds_seals.months_by_hand(company text)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(int8range(m.first_id, m.upto, '[)')) filter (where m.upto > m.first_id), '{}')
    from (
        select c.month, c.first_id, lead(c.first_id) over (order by c.month) as upto
        from bds.change_months c where c.company_id = company
    ) m
    where not bds_shards.is_divided('bds.change_log')
        and pg_partition_root(to_regclass('bds.' || bds_change_log.partition_of(m.month)))
            is distinct from 'bds.change_log'::regclass;
$$;
comment on function bds_seals.months_by_hand(text) is 'The changes of months that a DBA has dropped or detached';

create function bds_seals.notes(company text, first_id bigint)
    returns table (id bigint, at timestamptz, actor text, action text, object text, "before" text, "after" text)
    language sql
    stable
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
    if seal.sealed_hash <> seal.content_hash and seal.log = 'changes' then
        for note in select * from bds_seals.notes(seal.company_id, seal.first_id) loop
            exit when note.before is distinct from led;
            led := note.after;
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
            'the audit has no record of an erasure or renaming that leads from its sealed_hash to its content_hash';
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
            when r.ids <@ (noted + by_hand) then 'its month was dropped or detached by hand, of which the audit has no record'
            else 'its records are not there, and the audit has no record of their expiry'
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
    'by_hand: the ids that have expired according to the audit, or whose months are no part of the log any more';

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
    most  bigint;
begin
    execute format('select max(l.id) from %s l where l.company_id = $1', bds_seals.records(company, log)) into most using company;
    return query
        select 'chain', sealed_id + 1, once, 'their seals are gone' where once > sealed_id
        union all
        select * from bds_seals.gap(company, log, sealed_id + 1, first - 1)
        union all
        select 'missing', first, first, 'it was not sealed yet, and is not there'
        where first <= last and bds_seals.time_of(company, log, first) is null
        union all
        select 'unsealed', first, last, format('%s records wait for bds.maintain()', last - first + 1) where first <= last
        union all
        select 'added', last + 1, most, 'their ids are beyond the last change of the company''s clock' where most > last;
end
$$;
comment on function bds_seals.rest(text, text, bigint) is 'What is to be said of the records after the last seal';

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
    noted    constant int8multirange := bds_seals.noted_expiries(company);
    by_hand  constant int8multirange := bds_seals.months_by_hand(company);
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
