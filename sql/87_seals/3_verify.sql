-- Verifying: the records, wherever they are, are compared with the seals, and the seals with one another and with the audit.

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

create function bds_seals.left_unsealed(company text, first bigint, last bigint)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language sql
    stable
as $$
    select f.kind, pg_catalog.lower(r), pg_catalog.upper(r) - 1, f.detail
    from (
        select int8multirange(int8range(first, last, '[]')), bds_seals.present(company, first, last),
            bds_seals.standing_months(company)
    ) i (asked, there, stand)
    cross join lateral (values
        ('missing', i.asked * i.stand - i.there, 'they left the log before they were sealed, and are not there'),
        ('added', i.there - i.stand, 'they have expired, and are there'),
        ('expired', i.asked - (i.stand - i.there) - (i.there - i.stand), 'they were never sealed')
    ) f (kind, ids, detail)
    cross join unnest(f.ids) r;
$$;
comment on function bds_seals.left_unsealed(text, bigint, bigint) is
    'What is to be said of changes that were never sealed and are not kept: those of a month that stands, such as one of the '
    'archive, are there, and no other';

create function bds_seals.gap(company text, log text, first bigint, last bigint)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language plpgsql
    stable
as $$
begin
    if first > last then
        return;
    elsif log = 'changes' and last < bds_change_log.first_kept(company) then
        return query select * from bds_seals.left_unsealed(company, first, last);
    else
        return query select 'missing', first, last, 'no seal has them, though later records are sealed';
    end if;
end
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
