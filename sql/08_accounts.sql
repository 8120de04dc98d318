-- Accounts: API keys.  The service hashes a key before it asks, so that no key is ever in a statement or a log.

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
    select w into missing from unnest(companies) w where not exists (select from bds.companies c where c.id = w) limit 1;
    if found then
        raise exception using errcode = 'BD002', message = format('there is no company %L', missing);
    end if;
    if tenant is not null and not exists (select from bds.tenants t where t.id = tenant) then
        raise exception using errcode = 'BD002', message = format('there is no tenant %L', tenant);
    end if;
    select w into missing from unnest(companies) w join bds.companies c on c.id = w where tenant <> coalesce(c.tenant_id, '') limit 1;
    if found then
        raise exception using errcode = 'BD005', message = format('company %L is not of tenant %L', missing, tenant);
    end if;
    insert into bds.api_keys (hash, name, companies, tenant_id, scopes, expires_at)
    values (hash, name, companies, tenant, scopes, expires_at)
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

create or replace function bds.authenticate(
    key_hash bytea,
    out key_id uuid, out tenant_id text, out companies text[], out scopes text[]
)
    returns setof record
    language sql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
    select k.id, k.tenant_id,
        coalesce(k.companies, (select coalesce(array_agg(c.id), '{}') from bds.companies c where c.tenant_id = k.tenant_id)),
        k.scopes
    from bds.api_keys k
    where k.hash = key_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp());
$$;
comment on function bds.authenticate(bytea) is 'Whose key this is, by its SHA-256; no row if it is unknown, revoked or expired';
