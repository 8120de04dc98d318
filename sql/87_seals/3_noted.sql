-- What the audit and the months tell of changes: which have expired, and which were lawfully changed.

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
            -- one that is detached may have another name
            or exists (
                select from bds_change_log.detached_months() d
                where obj_description(d, 'pg_class') = 'Changes of ' || replace(m.month, '_', '-')
            )
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

create function bds_seals.standing_months(company text)
    returns int8multirange
    language sql
    stable
as $$
    select coalesce(range_agg(m.ids) filter (where m.is_there), '{}') - bds_seals.months_by_hand(company)
        - bds_seals.noted_expiries(company)
    from bds_seals.months(company) m;
$$;
comment on function bds_seals.standing_months(text) is 'The changes of months that are there, and have not expired there';

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
