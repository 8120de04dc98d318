-- ...

create or replace function bds.create_user(email text, password_hash text, companies text[])
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    user_id uuid;
begin
    perform bds_accounts.require_companies(companies);
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
