-- What is verified by itself, and what was found.

create function bds_seals.verify_part(company text, log text, ends_at timestamptz)
    returns bigint
    language plpgsql
as $$
declare
    position bds.seal_positions := bds_seals.lock_position(company, log);
    last     constant bigint := coalesce((bds_seals.last_seal(company, log)).last_id, 0);
    since    constant bigint := case when position.verified_id <= last then position.verified_id else 0 end;
    upto     bigint;
    found    record;
    faults   bds.seal_findings[] := '{}';
begin
    begin
        for found in select * from bds_seals.verify(company, log, since + 1, null, ends_at) loop
            if found.kind is null then
                upto := found.last_id;
            elsif found.kind in ('altered', 'missing', 'added', 'chain') then
                faults := faults || row(
                    company, log, found.first_id, found.last_id, found.kind, found.detail, clock_timestamp()
                )::bds.seal_findings;
            end if;
        end loop;
    exception
        when lock_not_available then raise;  -- the next call tries again
        when others then  -- a state that only a superuser can write, which must not keep other logs from being verified
            faults := faults || row(
                company, log, since + 1, greatest(last, since + 1), 'altered',
                format('it cannot be verified: %s: %s', sqlstate, sqlerrm), clock_timestamp()
            )::bds.seal_findings;
    end;
    delete from bds.seal_findings f
    where f.company_id = company and f.log = verify_part.log and f.first_id > since
        and (upto is null or f.first_id <= upto);
    insert into bds.seal_findings select f.* from unnest(faults) f on conflict do nothing;
    update bds.seal_positions p
    set verified_id = coalesce(upto, 0),
        begun_at = case when upto is not null then least(p.begun_at, clock_timestamp()) end,
        verified_at = case when upto is null then least(p.begun_at, clock_timestamp()) else p.verified_at end
    where p.company_id = company and p.log = verify_part.log;
    return least(coalesce(upto, last) - since, 1000000000000);  -- what a superuser has made of the ids must not end their sum
end
$$;
comment on function bds_seals.verify_part(text, text, timestamptz) is
    'Goes on verifying a log where the last call has stopped, for some time, and keeps what it finds, also an error; returns the '
    'number of ids';

create function bds_seals.verify_next(out done bigint, out problem text)
    returns record
    language plpgsql
as $$
declare
    ends_at constant timestamptz := clock_timestamp() + interval '0.25 seconds';
    this    record;
begin
    done := 0;
    for this in
        select p.company_id, p.log
        from bds.seal_positions p
        where (p.verified_at between clock_timestamp() - interval '6 days' and clock_timestamp()) is not true
            and (p.company_id = '' or exists (select from bds.residents r where r.company_id = p.company_id))
        order by p.begun_at nulls last, p.verified_at nulls first
    loop
        exit when clock_timestamp() >= ends_at;  -- the next call goes on
        begin
            done := done + bds_seals.verify_part(this.company_id, this.log, ends_at);
        exception when lock_not_available then
            problem := concat_ws(
                '; ', problem, format(
                    '55P03: %s of %s is put off: another session has held a lock for 0.1 s',
                    this.log, coalesce(nullif(this.company_id, ''), 'the server')
                )
            );
        end;
    end loop;
end
$$;
comment on function bds_seals.verify_next() is
    'Verifies a part of what is sealed, for a quarter of a second, so that all is verified once a week; returns the number of '
    'records';

create or replace function bds_service.verify_sealed(company text)
    returns bigint
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     text;
    verified bigint := 0;
begin
    foreach this in array case company when '' then array['audit'] else array['changes', 'audit'] end loop
        perform bds_seals.lock_position(company, this);
        update bds.seal_positions p set verified_id = 0, begun_at = null where p.company_id = company and p.log = this;
        verified := verified + bds_seals.verify_part(company, this, 'infinity');
    end loop;
    return verified;
end
$$;
comment on function bds_service.verify_sealed(text) is
    'Verifies all that is sealed of a company, or of the server (empty), and keeps what it finds for bds.problems; returns the '
    'number of records';
