-- API keys.  The service hashes a key before it calls these functions, so that no statement and no log contains a key.

create function bds_accounts.require_companies(companies text[])
    returns void
    language plpgsql
as $$
declare
    missing text;
begin
    select w into missing from unnest(companies) w where not exists (select 1 from bds.companies c where c.id = w) limit 1;
    if found then
        raise exception using errcode = 'BD002', message = format('no such company: %L', missing);
    end if;
end
$$;
comment on function bds_accounts.require_companies(text[]) is 'Raises BD002 for a company that does not exist';

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
    perform bds_accounts.require_companies(companies);
    if tenant is not null and not exists (select 1 from bds.tenants t where t.id = tenant) then
        raise exception using errcode = 'BD002', message = format('no such tenant: %L', tenant);
    end if;
    select w into missing
    from unnest(companies) w join bds.companies c on c.id = w where tenant <> coalesce(c.tenant_id, '') limit 1;
    if found then
        raise exception using errcode = 'BD005', message = format('company %L does not belong to tenant %L', missing, tenant);
    end if;
    insert into bds.api_keys (hash, name, companies, tenant_id, scopes, expires_at, actor)
    values (hash, name, companies, tenant, scopes, expires_at, bds_impl.actor())
    returning id into key_id;
    return key_id;
end
$$;
comment on function bds.create_key(bytea, text, text[], text, text[], timestamptz) is
    'Stores an API key by its SHA-256, for these companies or (null) for every company of the tenant; returns its id';

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
comment on function bds.revoke_key(uuid) is 'Revokes a key at once; false if there is no such key or it is already revoked';

create or replace function bds_service.keys_of(of_companies text[])
    returns table (
        id uuid, name text, companies text[], others int, tenant_id text, scopes text[], actor text, created_at timestamptz,
        expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, is_theirs boolean
    )
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select k.id, k.name, array(select c from unnest(opened.all) c where c = any (of_companies) order by c collate "C"),
        (select count(*) from unnest(opened.all) c where c <> all (of_companies))::int,
        case when k.companies is null then k.tenant_id end, k.scopes, k.actor, k.created_at, k.expires_at, k.revoked_at,
        k.last_used_at,
        opened.all <@ of_companies
    from bds.api_keys k
    cross join lateral (
        select coalesce(k.companies, array(select c.id from bds.companies c where c.tenant_id = k.tenant_id)) as all
    ) opened
    where opened.all && of_companies;
$$;
comment on function bds_service.keys_of(text[]) is
    'The API keys for any of these companies: which of them, the number of other companies, and is_theirs if there is no other one';

create or replace function bds_service.whole_tenants(of_companies text[])
    returns setof text
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select c.tenant_id from bds.companies c where c.tenant_id is not null
    group by c.tenant_id having array_agg(c.id) <@ of_companies order by c.tenant_id;
$$;
comment on function bds_service.whole_tenants(text[]) is 'Tenants whose companies are all among these';

create or replace function bds_service.authenticate(
    key_hash bytea,
    out key_id uuid, out tenant_id text, out companies text[], out scopes text[], out seconds_left double precision,
    out use_is_noted boolean
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
comment on function bds_service.authenticate(bytea) is
    'The key with this SHA-256 and its seconds to live (null: unlimited); no row if it is unknown, revoked or expired';

create or replace function bds_service.note_use(key_id uuid)
    returns void
    language sql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    update bds.api_keys k set last_used_at = clock_timestamp()
    where k.id = (
        select u.id from bds.api_keys u
        where u.id = key_id and u.last_used_at > clock_timestamp() - interval '1 minute' is not true
        for no key update skip locked  -- the session that holds the row deletes a company, which takes long
    );
$$;
comment on function bds_service.note_use(uuid) is
    'Records the use of a key, at most once a minute, so that a busy key is not written at each request';
