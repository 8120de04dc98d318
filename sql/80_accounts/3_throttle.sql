-- Throttling of wrong credentials: counts for each network and minute.

create function bds_accounts.network_of(address inet)
    returns cidr
    language sql
    immutable
    return network(set_masklen(address, case family(address) when 4 then 32 else 64 end));
comment on function bds_accounts.network_of(inet) is
    'The network that guesses are counted for: an IPv4 address, or the IPv6 /64 of one subscriber';

create function bds_accounts.forget_wrong()
    returns void
    language sql
    set search_path = pg_catalog, pg_temp
as $$
    -- called at the end of a transaction, and waits for nobody: it cannot deadlock
    delete from bds.wrong_credentials w
    where w.address in (
        select o.address from bds.wrong_credentials o
        where o.first_at < clock_timestamp() - interval '1 minute'
        order by o.first_at
        limit 10
        for update skip locked
    );
$$;
comment on function bds_accounts.forget_wrong() is 'Deletes a few counts that are older than a minute: more than a call can add';

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
    returning case
        when w.count + w.pending > at_most then ceil(extract(epoch from w.first_at + interval '1 minute' - clock_timestamp()))
    end
    into wait;
    perform bds_accounts.forget_wrong();
    return case when wait is not null then greatest(wait, 1) end;
end
$$;
comment on function bds.count_wrong(inet, int) is
    'Counts wrong credentials of an address; returns null, or beyond the limit the seconds until the minute ends';

-- A login reserves one of the failures that an address may have in a minute, so that parallel guesses cannot exceed the limit and
-- parallel correct logins are not refused.
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
    loop  -- bds_accounts.forget_wrong may delete the row in between
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
    'Reserves one of the failures that an address may have in a minute, and returns the beginning of that minute; if there is '
    'none left, '
    'the seconds until the minute ends; neither while running attempts hold the rest';

create or replace function bds.end_attempt(address inet, began timestamptz, was_wrong boolean)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.wrong_credentials w
    set pending = greatest(w.pending - 1, 0), count = w.count + end_attempt.was_wrong::int
    where w.address = bds_accounts.network_of(end_attempt.address) and w.first_at = end_attempt.began;
    select bds_accounts.forget_wrong();
$$;
comment on function bds.end_attempt(inet, timestamptz, boolean) is
    'Ends a reservation of bds.begin_attempt: counts a wrong login, releases a correct one';
