-- Users, their sessions, and the secrets of the service.  The service hashes a password before it calls these functions.

create function bds_accounts.lower_case(email text)
    returns text
    language sql
    immutable
    return lower(email collate pg_catalog.pg_c_utf8);
comment on function bds_accounts.lower_case(text) is
    'The address as bds.users has it; the same in every locale: Turkish lower case of I is another letter';

create function bds_accounts.require_administrator(act text)
    returns void
    language plpgsql
as $$
begin
    if not bds.is_operator() and not exists (
        select from bds.sessions s join bds.users u on u.id = s.user_id
        where s.id::text = current_setting('bds.session', true) and s.expires_at > clock_timestamp() and u.is_administrator
    ) then
        raise exception using errcode = 'BD001', message = format('only the operator and administrators %s', act);
    end if;
end
$$;
comment on function bds_accounts.require_administrator(text) is
    'Raises BD001 unless the session acts as the operator, or has the id of an administrator''s session in bds.session, which no '
    'role of the service can read: it comes with the administrator''s request';

create function bds_accounts.lock_users(email text)
    returns void
    language sql
as $$
    -- in one order, as a deletion of a company does
    select from (
        select 1 from bds.users u where u.is_administrator or u.email = bds_accounts.lower_case(lock_users.email)
        order by u.id for no key update
    ) locked;
$$;
comment on function bds_accounts.lock_users(text) is
    'Locks the administrators and the user of an address: two that end each other''s administration at once would both succeed';

create or replace function bds.create_user(email text, password_hash text, companies text[], is_administrator boolean default false)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    user_id uuid;
begin
    perform bds_accounts.require_administrator('create users'), bds_accounts.require_companies(companies);
    insert into bds.users (email, password_hash, companies, is_administrator)
    values (
        bds_accounts.lower_case(create_user.email), create_user.password_hash, create_user.companies, create_user.is_administrator
    )
    returning id into user_id;
    return user_id;
exception
    when unique_violation then
        raise exception using errcode = 'BD004', message = format('user %L already exists', bds_accounts.lower_case(email));
    when check_violation then
        if cardinality(companies) = 0 and not is_administrator then
            raise exception using errcode = 'BD005', message = 'expected one company or more, or an administrator';
        elsif char_length(email) > 195 then  -- so that it makes an actor
            raise exception using
                errcode = 'BD005',
                message = format('expected an email address of at most 195 characters, got %s', char_length(email));
        end if;
        raise exception using errcode = 'BD005', message = format('%L is not a valid email address', email);
end
$$;
comment on function bds.create_user(text, text, text[], boolean) is
    'Creates a user for these companies, with the Argon2id hash of a password; returns its id';

create or replace function bds.set_access(email text, companies text[], is_administrator boolean)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_accounts.lock_users(email);
    perform bds_accounts.require_administrator('change users'), bds_accounts.require_companies(companies);
    update bds.users u set companies = set_access.companies, is_administrator = set_access.is_administrator
    where u.email = bds_accounts.lower_case(set_access.email);
    return found;
exception when check_violation then
    raise exception using errcode = 'BD005', message = 'expected one company or more, or an administrator';
end
$$;
comment on function bds.set_access(text, text[], boolean) is
    'Sets the companies of a user, and whether it is an administrator, from the next request on; false if there is no such user';

create or replace function bds_service.join_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_accounts.require_administrator('join companies'), bds_accounts.require_companies(array[company]);
    update bds.users u set companies = u.companies || company
    from bds.sessions s
    where s.id::text = current_setting('bds.session', true) and u.id = s.user_id and u.is_administrator
        and company <> all (u.companies);
end
$$;
comment on function bds_service.join_company(text) is
    'Adds a company to those of the administrator whose session this is, whichever they are by now';

create or replace function bds.delete_user(email text)
    returns boolean
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select bds_accounts.lock_users(email);
    select bds_accounts.require_administrator('delete users');
    with gone as (
        delete from bds.users u where u.email = bds_accounts.lower_case(delete_user.email) returning u.id
    )
    select count(*) > 0 from gone;
$$;
comment on function bds.delete_user(text) is 'Deletes a user with all sessions; false if there is none of that address';

create or replace function bds.set_password(email text, password_hash text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    update bds.users u set password_hash = set_password.password_hash where u.email = bds_accounts.lower_case(set_password.email);
    if not found then
        return false;
    end if;
    -- a statement of its own: it sees the session of a login that the update has waited for
    delete from bds.sessions s using bds.users u where s.user_id = u.id and u.email = bds_accounts.lower_case(set_password.email);
    return true;
end
$$;
comment on function bds.set_password(text, text) is
    'Sets a user''s password and ends every session and token of the user; false if there is no such user';

create or replace function bds_service.replace_password(user_id uuid, password_hash text, new_hash text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_email text;
begin
    -- the hash that the old password was checked against: one that was replaced in the meantime stays
    select u.email into found_email
    from bds.users u
    where u.id = replace_password.user_id and u.password_hash = replace_password.password_hash
    for no key update;
    return bds.set_password(found_email, new_hash);
end
$$;
comment on function bds_service.replace_password(uuid, text, text) is
    'Sets the password of a user whose old one matched this hash, as bds.set_password does; false if it was replaced in the '
    'meantime';

create or replace function bds_service.password_of(email text, out user_id uuid, out password_hash text)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select u.id, u.password_hash from bds.users u where u.email = bds_accounts.lower_case(password_of.email);
$$;
comment on function bds_service.password_of(text) is
    'The user''s id and password hash, for a login; no row if there is no such user';

create function bds_accounts.forget_sessions()
    returns void
    language sql
as $$
    -- called at the end of a transaction, and waits for nobody: it cannot deadlock
    delete from bds.sessions s
    where s.id in (select e.id from bds.sessions e where e.expires_at < clock_timestamp() for update skip locked);
    delete from bds.login_networks n
    where (n.user_id, n.network) in (
        select e.user_id, e.network from bds.login_networks e
        where e.last_at < clock_timestamp() - interval '30 days'
        for update skip locked
    );
$$;
comment on function bds_accounts.forget_sessions() is
    'Deletes sessions that have ended, and networks from which nobody has signed in for 30 days';

create or replace function bds_service.begin_session(
    user_id uuid, password_hash text, lasts interval, new_hash text default null, address inet default null
)
    returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    session_id uuid;
begin
    -- the hash that the login was checked against: a password that was replaced in the meantime begins no session
    update bds.users u
    set last_login_at = clock_timestamp(), password_hash = coalesce(new_hash, u.password_hash)
    where u.id = begin_session.user_id and u.password_hash = begin_session.password_hash;
    if found then
        insert into bds.sessions (user_id, expires_at)
        values (begin_session.user_id, clock_timestamp() + lasts)
        returning id into session_id;
        if address is not null then
            insert into bds.login_networks (user_id, network, last_at)
            values (begin_session.user_id, bds_accounts.network_of(address, 24), clock_timestamp())
            on conflict (user_id, network) do update set last_at = excluded.last_at;
        end if;
    end if;
    perform bds_accounts.forget_sessions();
    return session_id;
end
$$;
comment on function bds_service.begin_session(uuid, text, interval, text, inet) is
    'Begins a session of a user whose password matched this hash, stores new_hash if it is given, and notes the network of the '
    'address; returns the session''s id, or null if the password was changed in the meantime';

create or replace function bds_service.session(
    session_id uuid, user_id uuid, out email text, out companies text[], out is_administrator boolean
)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select u.email, u.companies, u.is_administrator
    from bds.sessions s join bds.users u on u.id = s.user_id
    where s.id = session.session_id and s.user_id = session.user_id and s.expires_at > clock_timestamp();
$$;
comment on function bds_service.session(uuid, uuid) is
    'The user of a session, the user''s companies, and whether it is an administrator; no row if the session has ended, or is '
    'another user''s';

create or replace function bds_service.end_session(session_id uuid)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    delete from bds.sessions s where s.id = session_id;
$$;
comment on function bds_service.end_session(uuid) is 'Ends a session at once, and with it its cookie and tokens';

create or replace function bds_service.keep_secret(secret_name text, candidate text)
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
comment on function bds_service.keep_secret(text, text) is 'The secret of that name; if there is none, the candidate becomes it';
