-- Throttling of wrong credentials: counts for each network and minute, and of logins for each email address and hour.

create function bds_accounts.network_of(address inet, bits int default 32)
    returns cidr
    language sql
    immutable
    return network(set_masklen(address, case family(address) when 4 then bits else 64 end));
comment on function bds_accounts.network_of(inet, int) is
    'The network of an address: for IPv4 its first bits, for IPv6 the /64 of one subscriber. Guesses are counted for an IPv4 '
    'address (32); people stay in a /24 while their provider changes their address';

create function bds_accounts.has_signed_in(email text, address inet)
    returns boolean
    language sql
    stable
as $$
    select exists (
        select from bds.login_networks n join bds.users u on u.id = n.user_id
        where u.email = bds_accounts.lower_case(has_signed_in.email)
            and n.network = bds_accounts.network_of(has_signed_in.address, 24)
            and n.last_at >= clock_timestamp() - interval '30 days'
    );
$$;
comment on function bds_accounts.has_signed_in(text, inet) is
    'Whether a user of that email address has signed in from the network of the address within 30 days';

create function bds_accounts.forget_wrong()
    returns void
    language sql
as $$
    -- Called at the end of a transaction, and waits for nobody: it cannot deadlock.  An array is made once; a subquery of IN may be
    -- run for each row, and then finds other ten each time.
    delete from bds.wrong_credentials w
    where w.address = any (array(
        select o.address from bds.wrong_credentials o
        where o.first_at < clock_timestamp() - interval '1 minute'
        order by o.first_at
        limit 10
        for update skip locked
    ));
    delete from bds.wrong_logins w
    where w.email_hash = any (array(
        select o.email_hash from bds.wrong_logins o
        where o.first_at < clock_timestamp() - interval '1 hour'
        order by o.first_at
        limit 10
        for update skip locked
    ));
$$;
comment on function bds_accounts.forget_wrong() is
    'Deletes up to ten expired counts of addresses (a minute) and of email addresses (an hour): more than a call can add';

create or replace function bds_service.count_wrong(address inet, at_most int)
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
comment on function bds_service.count_wrong(inet, int) is
    'Counts wrong credentials of an address; returns null, or beyond the limit the seconds until the minute ends';

create function bds_accounts.lock_address(address cidr)
    returns bds.wrong_credentials
    language plpgsql
as $$
declare
    w bds.wrong_credentials;
begin
    loop  -- bds_accounts.forget_wrong may delete the row in between
        insert into bds.wrong_credentials (address, first_at, count)
        values (lock_address.address, clock_timestamp(), 0)
        on conflict do nothing;
        select * into w from bds.wrong_credentials c where c.address = lock_address.address for update;
        exit when found;
    end loop;
    if w.first_at <= clock_timestamp() - interval '1 minute' then
        w := (lock_address.address, clock_timestamp(), 0, 0);
    end if;
    return w;
end
$$;
comment on function bds_accounts.lock_address(cidr) is
    'Locks the count of an address until the end of the transaction, and returns it as of this minute';

create function bds_accounts.lock_email(email_hash bytea)
    returns bds.wrong_logins
    language plpgsql
as $$
declare
    w bds.wrong_logins;
begin
    loop  -- bds_accounts.forget_wrong may delete the row in between
        insert into bds.wrong_logins (email_hash, first_at, count)
        values (lock_email.email_hash, clock_timestamp(), 0)
        on conflict do nothing;
        select * into w from bds.wrong_logins c where c.email_hash = lock_email.email_hash for update;
        exit when found;
    end loop;
    if w.count = 0 or w.first_at <= clock_timestamp() - interval '1 hour' then
        w := (lock_email.email_hash, clock_timestamp(), 0);
    end if;
    return w;
end
$$;
comment on function bds_accounts.lock_email(bytea) is
    'Locks the count of an email address, by its hash, until the end of the transaction, and returns it as of this hour';

create function bds_accounts.hash_of_email(email text)
    returns bytea
    language sql
    immutable
    return sha256(convert_to(bds_accounts.lower_case(email), 'UTF8'));
comment on function bds_accounts.hash_of_email(text) is
    'The SHA-256 of an email address regardless of case, as bds.wrong_logins has it';

create function bds_accounts.seconds_until(moment timestamptz)
    returns int
    language sql
    volatile
    return greatest(ceil(extract(epoch from moment - clock_timestamp())), 1);
comment on function bds_accounts.seconds_until(timestamptz) is 'Seconds until a moment, at least one';

-- A login reserves one of the failures that an address may have in a minute, so that parallel guesses cannot exceed the limit and
-- parallel correct logins are not refused.  For its email address, whose limit nobody reaches by correct logins, it counts as wrong
-- until it turns out to be correct: so what a killed process leaves is a count too many, and no reservation that lasts an hour.
create or replace function bds_service.begin_attempt(
    address inet, email text, a_minute int, an_hour int,
    out minute_began timestamptz, out hour_began timestamptz, out wait int, out is_for_email boolean
)
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    by_address bds.wrong_credentials;
    by_email   bds.wrong_logins;
begin
    is_for_email := false;
    by_address := bds_accounts.lock_address(bds_accounts.network_of(begin_attempt.address));
    if by_address.count >= a_minute then
        wait := bds_accounts.seconds_until(by_address.first_at + interval '1 minute');
    elsif by_address.count + by_address.pending < a_minute then
        by_email := bds_accounts.lock_email(bds_accounts.hash_of_email(begin_attempt.email));
        is_for_email := by_email.count >= an_hour and not bds_accounts.has_signed_in(begin_attempt.email, begin_attempt.address);
        if is_for_email then
            wait := bds_accounts.seconds_until(by_email.first_at + interval '1 hour');
        else
            by_address.pending := by_address.pending + 1;
            minute_began := by_address.first_at;
            hour_began := by_email.first_at;
            update bds.wrong_logins w
            set first_at = by_email.first_at, count = by_email.count + 1
            where w.email_hash = by_email.email_hash;
        end if;
    end if;
    update bds.wrong_credentials w
    set first_at = by_address.first_at, count = by_address.count, pending = by_address.pending
    where w.address = by_address.address;
end
$$;
comment on function bds_service.begin_attempt(inet, text, int, int) is
    'Reserves one of the failures that an address may have in a minute and an email address in an hour, and returns the beginning '
    'of both; if none is left, the seconds until the minute or the hour ends; neither while running attempts hold the rest. The '
    'limit of the email address does not hold for a network from which its user has signed in within 30 days';

create or replace function bds_service.end_attempt(
    address inet, email text, minute_began timestamptz, hour_began timestamptz, was_wrong boolean
)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.wrong_credentials w
    set pending = greatest(w.pending - 1, 0), count = w.count + end_attempt.was_wrong::int
    where w.address = bds_accounts.network_of(end_attempt.address) and w.first_at = end_attempt.minute_began;
    update bds.wrong_logins w
    set count = greatest(w.count - 1, 0)
    where not end_attempt.was_wrong
        and w.email_hash = bds_accounts.hash_of_email(end_attempt.email) and w.first_at = end_attempt.hour_began;
    select bds_accounts.forget_wrong();
$$;
comment on function bds_service.end_attempt(inet, text, timestamptz, timestamptz, boolean) is
    'Ends a reservation of bds_service.begin_attempt: counts a wrong login, releases a correct one';
