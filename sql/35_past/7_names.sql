-- Names of versions.

create or replace function bds.name_version(company text, name text, version bigint default null, actor text default null)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    given   bigint := version;
    written timestamptz;
    is_new  boolean;
begin
    perform bds.require_company(company);
    actor := bds_impl.actor(actor);
    if name is null or name !~ '^[A-Za-z][A-Za-z0-9_-]{0,62}$'
        or lower(name collate "C") in ('now', 'today', 'yesterday', 'infinity', 'epoch')
    then
        raise exception using
            errcode = 'BD005',
            message = format(
                '%s is not a name of a version: expected a letter and up to 62 of A-Z a-z 0-9 _ -, and none of now, today, '
                'yesterday, infinity, epoch', coalesce(quote_literal(name), 'null'));
    end if;
    if given is null then
        given := (select v.last_id from bds_service.find_version(company) v);
    end if;
    perform bds_past.check_version(company, given);
    written := nullif(bds_past.time_of(company, given), '-infinity');
    loop  -- a table in shards does not tell whether `on conflict do update` has inserted
        insert into bds.versions (company_id, name, version, at, actor) values (company, name, given, written, actor)
        on conflict on constraint versions_pkey do nothing;
        is_new := found;
        exit when is_new;
        update bds.versions v set version = given, at = written, actor = name_version.actor, created_at = clock_timestamp()
        where v.company_id = company and v.name = name_version.name;
        exit when found;  -- else the name was taken away meanwhile
    end loop;
    perform bds_impl.require_resident(company);
    return is_new;
end
$$;
comment on function bds.name_version(text, text, bigint, text) is
    'Gives a version a name, the last one by default, or moves the name to it; true if the name is new. A name keeps nothing from '
    'expiring';

create or replace function bds.forget_version(company text, name text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    is_gone boolean;
begin
    perform bds.require_company(company);
    delete from bds.versions v where v.company_id = company and v.name = name;
    is_gone := found;
    perform bds_impl.require_resident(company);
    return is_gone;
end
$$;
comment on function bds.forget_version(text, text) is 'Takes a name from its version; false if there is no such name';
