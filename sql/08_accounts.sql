-- Accounts: API keys, users, sessions, and what is counted against guessing.  The service hashes a key before it asks, and a password
-- before it stores it, so that neither is ever in a statement or a log.

create or replace function bds.find_companies(companies text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    missing text;
begin
    select w into missing from unnest(companies) w where not exists (select from bds.companies c where c.id = w) limit 1;
    if found then
        raise exception using errcode = 'BD002', message = format('there is no company %L', missing);
    end if;
end
$$;
comment on function bds.find_companies(text[]) is 'Raises BD002 for one that is not there';

create or replace function bds.create_key(
    hash bytea, name text, companies text[], tenant text, scopes text[], expires_at timestamptz default null
)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    missing text;
    key_id  uuid;
begin
    perform bds.find_companies(companies);
    if tenant is not null and not exists (select from bds.tenants t where t.id = tenant) then
        raise exception using errcode = 'BD002', message = format('there is no tenant %L', tenant);
    end if;
    select w into missing from unnest(companies) w join bds.companies c on c.id = w where tenant <> coalesce(c.tenant_id, '') limit 1;
    if found then
        raise exception using errcode = 'BD005', message = format('company %L is not of tenant %L', missing, tenant);
    end if;
    insert into bds.api_keys (hash, name, companies, tenant_id, scopes, expires_at, actor)
    values (hash, name, companies, tenant, scopes, expires_at, coalesce(nullif(current_setting('bds.actor', true), ''), session_user))
    returning id into key_id;
    return key_id;
end
$$;
comment on function bds.create_key(bytea, text, text[], text, text[], timestamptz) is
    'Stores an API key by its SHA-256, for these companies or (null) for every company of the tenant';

create or replace function bds.revoke_key(key_id uuid)
    returns boolean
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    with revoked as (
        update bds.api_keys set revoked_at = clock_timestamp() where id = key_id and revoked_at is null returning id
    )
    select count(pg_notify('bds_keys', id::text)) > 0 from revoked;
$$;
comment on function bds.revoke_key(uuid) is 'Ends a key at once; false if there is no such key or it has ended';

create or replace function bds.keys_of(of_companies text[])
    returns table (
        id uuid, name text, companies text[], others int, tenant_id text, scopes text[], actor text, created_at timestamptz,
        expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, is_theirs boolean
    )
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select k.id, k.name, array(select c from unnest(opened.all) c where c = any (of_companies) order by c),
        (select count(*) from unnest(opened.all) c where c <> all (of_companies))::int,
        case when k.companies is null then k.tenant_id end, k.scopes, k.actor, k.created_at, k.expires_at, k.revoked_at, k.last_used_at,
        opened.all <@ of_companies
    from bds.api_keys k
    cross join lateral (
        select coalesce(k.companies, array(select c.id from bds.companies c where c.tenant_id = k.tenant_id)) as all
    ) opened
    where opened.all && of_companies;
$$;
comment on function bds.keys_of(text[]) is
    'The API keys that open any of these companies: which of them, how many others, and whether it is theirs because it opens no other';

create or replace function bds.whole_tenants(of_companies text[])
    returns setof text
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select c.tenant_id from bds.companies c where c.tenant_id is not null
    group by c.tenant_id having array_agg(c.id) <@ of_companies order by c.tenant_id;
$$;
comment on function bds.whole_tenants(text[]) is 'The tenants all of whose companies are among these';

create or replace function bds.authenticate(
    key_hash bytea,
    out key_id uuid, out tenant_id text, out companies text[], out scopes text[], out seconds_left double precision, out use_is_noted boolean
)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select k.id, k.tenant_id,
        coalesce(k.companies, (select coalesce(array_agg(c.id), '{}') from bds.companies c where c.tenant_id = k.tenant_id)),
        k.scopes,
        extract(epoch from k.expires_at - clock_timestamp()),
        coalesce(k.last_used_at > clock_timestamp() - interval '1 minute', false)
    from bds.api_keys k
    where k.hash = key_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp());
$$;
comment on function bds.authenticate(bytea) is
    'Whose key this is, by its SHA-256, and for how long (null: for ever); no row if it is unknown, revoked or expired';

create or replace function bds.note_use(key_id uuid)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.api_keys k set last_used_at = clock_timestamp()
    where k.id = key_id and k.last_used_at > clock_timestamp() - interval '1 minute' is not true;
$$;
comment on function bds.note_use(uuid) is 'Records that a key was used; to the minute, so that a busy key is not written at each request';

-- Users ----------------------------------------------------------------------------------------------------------------------------

create or replace function bds.create_user(email text, password_hash text, companies text[])
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    user_id uuid;
begin
    perform bds.find_companies(companies);
    insert into bds.users (email, password_hash, companies)
    values (lower(create_user.email), create_user.password_hash, create_user.companies)
    returning id into user_id;
    return user_id;
exception
    when unique_violation then
        raise exception using errcode = 'BD004', message = format('user %L exists already', lower(email));
    when check_violation then
        raise exception using errcode = 'BD005', message = format('%L is no email address', email);
end
$$;
comment on function bds.create_user(text, text, text[]) is 'Makes a user, for these companies, by the Argon2id hash of a password';

create or replace function bds.delete_user(email text)
    returns boolean
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    with gone as (
        delete from bds.users u where u.email = lower(delete_user.email) returning u.id
    )
    select count(*) > 0 from gone;
$$;
comment on function bds.delete_user(text) is 'Deletes a user, and ends what they have signed in to; false if there is none';

create or replace function bds.set_password(email text, password_hash text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    update bds.users u set password_hash = set_password.password_hash where u.email = lower(set_password.email);
    if not found then
        return false;
    end if;
    -- A statement of its own: it sees the session of a login for which the update has waited.
    delete from bds.sessions s using bds.users u where s.user_id = u.id and u.email = lower(set_password.email);
    return true;
end
$$;
comment on function bds.set_password(text, text) is 'Gives a user a new password, and ends every session and token; false if there is no such user';

create or replace function bds.password_of(email text, out user_id uuid, out password_hash text)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select u.id, u.password_hash from bds.users u where u.email = lower(password_of.email);
$$;
comment on function bds.password_of(text) is 'What a password given at login is compared with';

-- Sessions -------------------------------------------------------------------------------------------------------------------------

create or replace function bds.begin_session(user_id uuid, password_hash text, lasts interval, new_hash text default null)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    session_id uuid;
begin
    delete from bds.sessions s where s.expires_at < clock_timestamp();
    -- The hash that was compared: a password that has been replaced meanwhile opens nothing.
    update bds.users u
    set last_login_at = clock_timestamp(), password_hash = coalesce(new_hash, u.password_hash)
    where u.id = begin_session.user_id and u.password_hash = begin_session.password_hash;
    if found then
        insert into bds.sessions (user_id, expires_at) values (begin_session.user_id, clock_timestamp() + lasts) returning id into session_id;
    end if;
    return session_id;
end
$$;
comment on function bds.begin_session(uuid, text, interval, text) is
    'Begins a session of a user whose password fitted this hash, and replaces the hash by one of today''s strength if one is given; null if the password is another one by now';

create or replace function bds.session(session_id uuid, out email text, out companies text[])
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select u.email, u.companies
    from bds.sessions s join bds.users u on u.id = s.user_id
    where s.id = session_id and s.expires_at > clock_timestamp();
$$;
comment on function bds.session(uuid) is 'Whose session this is; no row if it has ended';

create or replace function bds.end_session(session_id uuid)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    delete from bds.sessions s where s.id = session_id;
$$;
comment on function bds.end_session(uuid) is 'Ends a session at once, with its cookie and its tokens';

create or replace function bds.keep_secret(secret_name text, candidate text)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into bds.secrets (name, value) values (secret_name, candidate) on conflict do nothing;
    return (select s.value from bds.secrets s where s.name = secret_name);
end
$$;
comment on function bds.keep_secret(text, text) is 'The secret of that name: the candidate, if there was none';

-- Throttling -----------------------------------------------------------------------------------------------------------------------

create or replace function bds.network_of(address inet)
    returns cidr
    language sql
    immutable
    return network(set_masklen(address, case family(address) when 4 then 32 else 64 end));
comment on function bds.network_of(inet) is 'What guesses are counted for: an IPv4 address, or the IPv6 network that one subscriber has';

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
    values (bds.network_of(count_wrong.address), clock_timestamp(), 1)
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
    here constant cidr := bds.network_of(begin_attempt.address);
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
    where w.address = bds.network_of(end_attempt.address) and w.first_at = end_attempt.began;
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
