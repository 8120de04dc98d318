-- What a DBA calls.

create or replace function bds.verify_log(
    company text, from_id bigint default null, to_id bigint default null, log text default 'changes'
)
    returns table (kind text, first_id bigint, last_id bigint, detail text)
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    last bigint;
begin
    if not bds.is_operator() then
        raise exception using errcode = 'BD001', message = 'only the operator verifies logs';
    elsif log is null or log not in ('changes', 'audit') then
        raise exception using
            errcode = 'BD005',
            message = format('expected changes or audit as the log, got %s', coalesce(quote_literal(log), 'null'));
    elsif company is null or company <> '' or log = 'changes' then
        perform bds_impl.require_resident(company);
    end if;
    last := bds_seals.last_id(company, log);
    if from_id > to_id then
        raise exception using
            errcode = 'BD005', message = format('expected from_id not to be beyond to_id, got %s and %s', from_id, to_id);
    elsif least(from_id, to_id) < 1 or greatest(from_id, to_id) > last then
        raise exception using
            errcode = 'BD005',
            message = format(
                'expected ids from 1 to %s, the last one of the log, got %s', last,
                case when from_id between 1 and last then to_id else coalesce(from_id, to_id) end
            );
    end if;
    return query select v.* from bds_seals.verify(company, log, coalesce(from_id, 1), to_id, 'infinity') v;
end
$$;
comment on function bds.verify_log(text, bigint, bigint, text) is
    'Compares the change log of a company, or the audit (log => ''audit''; company '''': of the server), with its seals. Returns a '
    'row for each range that is not simply right: altered, missing, added, chain (the seals do not follow one another); and, '
    'which are no faults, erased, renamed, expired, unsealed. from_id, to_id: the ranges that have one of these ids';

create or replace function bds_service.has_head(company text, log text, version bigint, head bytea)
    returns boolean
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(bool_or((c.seal).last_id = version and (c.seal).hash = head) and bool_and(not exists (
        select from bds_seals.chain_faults(c.seal, c.previous)
    )), false)
    from (
        select s as seal, lag(s) over (order by s.first_id) as previous
        from bds.seals s
        where s.company_id = company and s.log = has_head.log and s.last_id <= version
    ) c;
$$;
comment on function bds_service.has_head(text, text, bigint, bytea) is
    'Whether the chain of a log contains a head: a seal that ends with that id and has that hash, and from the first one on '
    'each follows the one before';

create or replace function bds.log_head(company text, out version bigint, out hash bytea, out sealed_at timestamptz)
    returns record
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    seal bds.seals;
begin
    perform bds.require_company(company);
    seal := bds_seals.last_seal(company, 'changes');
    version := seal.last_id;
    hash := seal.hash;
    sealed_at := seal.sealed_at;
end
$$;
comment on function bds.log_head(text) is
    'The last seal of a company''s change log: the id of its last change, its hash, its time; nulls before the first. Kept '
    'elsewhere it proves that the log up to there was not rebuilt (bds doctor --head)';
