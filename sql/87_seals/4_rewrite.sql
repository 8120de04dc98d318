-- Lawful changes of sealed records: erasures, and the renaming of columns in a log that arrives from another server.  Whoever makes
-- one calls open_ranges, changes the records, calls close_ranges and notes what that returns in the audit.

create function bds_seals.ranges_of(company text, ids bigint[])
    returns bigint[]
    language sql
    stable
as $$
    select coalesce(array_agg(distinct s.first_id), '{}')
    from unnest(ids) i (id)
    cross join lateral (
        select c.first_id, c.last_id from bds.seals c
        where c.company_id = company and c.log = 'changes' and c.first_id <= i.id
        order by c.first_id desc
        limit 1
    ) s
    where i.id <= s.last_id;
$$;
comment on function bds_seals.ranges_of(text, bigint[]) is 'The sealed ranges that have some changes, by the first id of each';

create function bds_seals.open_ranges(company text, ranges bigint[])
    returns jsonb
    language plpgsql
as $$
declare
    opened jsonb;
begin
    perform bds_seals.lock_position(company, 'changes');
    -- What is there, not what the seal says: after a change that was not lawful the audit does not lead to it, so that the range
    -- stays altered.
    select coalesce(jsonb_agg(jsonb_build_object('first_id', s.first_id, 'before', encode(m.hash, 'hex'))), '[]') into opened
    from bds.seals s cross join lateral bds_seals.measure(s) m
    where s.company_id = company and s.log = 'changes' and s.first_id = any (ranges);
    return opened;
end
$$;
comment on function bds_seals.open_ranges(text, bigint[]) is
    'Verifies ranges whose records are about to change: [{first_id, before}], the content hash of each';

create function bds_seals.close_ranges(company text, opened jsonb)
    returns jsonb
    language plpgsql
as $$
declare
    closed jsonb := '[]';
    this   record;
    seal   bds.seals;
begin
    for this in select o.first_id, o.before from jsonb_to_recordset(opened) o (first_id bigint, before text) order by 1 loop
        select s.* into seal
        from bds.seals s where s.company_id = company and s.log = 'changes' and s.first_id = this.first_id;
        seal.key := bds_seals.new_key();
        seal.content_hash := (select m.hash from bds_seals.measure(seal) m);
        update bds.seals s set key = seal.key, content_hash = seal.content_hash
        where s.company_id = company and s.log = 'changes' and s.first_id = this.first_id;
        closed := closed || jsonb_build_object(
            'first_id', this.first_id, 'before', this.before, 'after', encode(seal.content_hash, 'hex')
        );
    end loop;
    return closed;
end
$$;
comment on function bds_seals.close_ranges(text, jsonb) is
    'Gives the ranges that were opened new keys and content hashes, and returns [{first_id, before, after}] for the audit';

create function bds_seals.closed(company text, opened jsonb)
    returns jsonb
    language plpgsql
as $$
begin
    return case when opened <> '[]' then jsonb_build_object('seals', bds_seals.close_ranges(company, opened)) else '{}' end;
end
$$;
comment on function bds_seals.closed(text, jsonb) is
    'Closes ranges (close_ranges): {"seals": [...]} for the detail of a record of the audit; {} if no sealed range was opened';

create function bds_seals.note_lost(company text, lost int8multirange)
    returns void
    language sql
as $$
    select bds_audit.note(
        company, 'expire', 'changes',
        jsonb_build_object(
            'first_id', pg_catalog.lower(r), 'last_id', pg_catalog.upper(r) - 1, 'left', 'by the server that it came from'
        )
    )
    from unnest((
        with sealed (ids, number) as (
            select int8range(s.first_id, s.last_id, '[]'), m.number
            from bds.seals s cross join lateral bds_seals.measure(s) m
            where s.company_id = company and s.log = 'changes' and int8range(s.first_id, s.last_id, '[]') && lost
        )
        select range_agg(l.ids)
        from (
            select s.ids from sealed s where s.ids <@ lost and s.number = 0
            union all
            select u from unnest(lost - (select coalesce(range_agg(s.ids), '{}') from sealed s)) u
            where isempty(bds_seals.present(company, pg_catalog.lower(u), pg_catalog.upper(u) - 1))
        ) l
        where not l.ids <@ bds_seals.noted_expiries(company)
    )) r;
$$;
comment on function bds_seals.note_lost(text, int8multirange) is
    'Notes which changes a copy of a company lacks, of those whose months its source did not have, or had detached';

create function bds_seals.note_months(company text, upto timestamptz, parent text, left_by text)
    returns void
    language sql
as $$
    select bds_audit.note(
        company, 'expire', 'changes',
        jsonb_build_object(
            'month', replace(m.month, '_', '-') || '-01T00:00:00+00:00',
            'left', case when m.is_there then 'behind a gap' else left_by end,
            'first_id', pg_catalog.lower(m.ids), 'last_id', pg_catalog.upper(m.ids) - 1
        )
    )
    from bds.residents r cross join bds_seals.months(r.company_id) m
    where r.company_id = company and m.parent = note_months.parent and not isempty(m.ids)
        and (m.month = to_char(upto at time zone 'UTC', 'YYYY_MM') or m.parent = 'change_log' and m.month in (
            select to_char(c.month at time zone 'UTC', 'YYYY_MM')
            from bds.change_months c where c.company_id = company and c.month < upto
        ))
        and (m.is_there or left_by is not null) and not m.ids <@ bds_seals.noted_expiries(company);
$$;
comment on function bds_seals.note_months(text, timestamptz, text, text) is
    'Notes that a company''s changes of a month, and of the log''s earlier ones, are not kept: those of a month that is gone as '
    'left by something (null: does not note them), the others as behind a gap';
