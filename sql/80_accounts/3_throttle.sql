-- ...

create function bds_accounts.network_of(address inet)
    returns cidr
    language sql
    immutable
    return network(set_masklen(address, case family(address) when 4 then 32 else 64 end));
comment on function bds_accounts.network_of(inet) is 'What guesses are counted for: an IPv4 address, or the IPv6 network that one subscriber has';

create or replace function bds.count_wrong(address inet, at_most int)
    returns int
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    minute constant timestamptz := clock_timestamp() - interval '1 minute';
    wait   int;
begin
    insert into bds.wrong_credentials as w (address, first_at, count)
    values (bds_accounts.network_of(count_wrong.address), clock_timestamp(), 1)
    on conflict on constraint wrong_credentials_pkey do update
    set count = case when w.first_at > minute then least(w.count, at_most) + 1 else 1 end,
        pending = case when w.first_at > minute then w.pending else 0 end,
        first_at = case when w.first_at > minute then w.first_at else clock_timestamp() end
    returning case when w.count + w.pending > at_most then ceil(extract(epoch from w.first_at + interval '1 minute' - clock_timestamp())) end
    into wait;
    return case when wait is not null then greatest(wait, 1) end;
end
$$;
comment on function bds.count_wrong(inet, int) is
    'Counts wrong credentials of an address; null, or from the first that is too many in a minute, the seconds until that is over';

-- Of two attempts for which there is one place, one gets it: wrong ones at the same time are as many as those one after another.
create or replace function bds.begin_attempt(address inet, at_most int, out began timestamptz, out wait int)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    here constant cidr := bds_accounts.network_of(begin_attempt.address);
    now_at timestamptz;
    w      bds.wrong_credentials;
begin
    loop  -- it may be forgotten in between
        insert into bds.wrong_credentials (address, first_at, count) values (here, clock_timestamp(), 0) on conflict do nothing;
        select * into w from bds.wrong_credentials c where c.address = here for update;
        exit when found;
    end loop;
    now_at := clock_timestamp();
    if w.first_at <= now_at - interval '1 minute' then
        w := (here, now_at, 0, 0);
    end if;
    if w.count >= at_most then
        wait := greatest(ceil(extract(epoch from w.first_at + interval '1 minute' - now_at)), 1);
    elsif w.count + w.pending < at_most then
        w.pending := w.pending + 1;
        began := w.first_at;
    end if;
    update bds.wrong_credentials c set first_at = w.first_at, count = w.count, pending = w.pending where c.address = here;
end
$$;
comment on function bds.begin_attempt(inet, int) is
    'A place for a login of an address among those that may be wrong in a minute: since when that is counted; if there is none, the '
    'seconds until the minute is over; neither while attempts under way hold the places that are left';

create or replace function bds.end_attempt(address inet, began timestamptz, was_wrong boolean)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.wrong_credentials w
    set pending = greatest(w.pending - 1, 0), count = w.count + end_attempt.was_wrong::int
    where w.address = bds_accounts.network_of(end_attempt.address) and w.first_at = end_attempt.began;
$$;
comment on function bds.end_attempt(inet, timestamptz, boolean) is
    'Gives back the place of a login that was right, keeps that of one that was wrong; in the minute in which it had begun';

create or replace function bds.forget_wrong()
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    delete from bds.wrong_credentials w where w.first_at < clock_timestamp() - interval '1 minute';
$$;
comment on function bds.forget_wrong() is 'Drops what is counted no longer';
