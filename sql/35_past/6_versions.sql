-- Versions: ids of changes, and times that stand for them.

create function bds_past.search(company text, at timestamptz, first bigint, last bigint)
    returns bigint
    language plpgsql
    stable
as $$
#variable_conflict use_variable
declare
    low    bigint := first - 1;
    high   bigint := first - 1;
    middle bigint;
    begins timestamptz;  -- the month that is searched
    ends   timestamptz;
    time   timestamptz;
begin
    select m.month, m.first_id - 1 into begins, low
    from bds.change_months m
    where m.company_id = company and m.month <= at and m.first_id >= first
    order by m.month desc limit 1;
    if not found then
        return first - 1;
    end if;
    select m.month, m.first_id - 1 into ends, high
    from bds.change_months m
    where m.company_id = company and m.month > begins
    order by m.month limit 1;
    high := coalesce(high, last);
    while low < high loop  -- ids and times rise together, and ids have no gaps
        middle := (low + high + 1) / 2;
        select l.created_at into time
        from bds.change_log l
        where l.company_id = company and l.id = middle and l.created_at >= begins and l.created_at < coalesce(ends, 'infinity');
        if not found then
            return null;
        elsif time <= at then
            low := middle;
        else
            high := middle - 1;
        end if;
    end loop;
    return low;
end
$$;
comment on function bds_past.search(text, timestamptz, bigint, bigint) is
    'The last change that is not later than a time, of those that are kept, the one before them if all are later; null if '
    'retention has just dropped one of them';

create function bds_past.kept_since(company text, first bigint)
    returns timestamptz
    language sql
    stable
as $$
    select coalesce(
        -- a month that was dropped or detached is still noted; one whose changes a retention of the company has deleted is not
        (
            select (max(m.month) at time zone 'UTC' + interval '1 month') at time zone 'UTC'
            from bds.change_months m where m.company_id = company and m.first_id < first
        ),
        (select m.month from bds.change_months m where m.company_id = company and m.first_id = first),
        date_trunc('month', now(), 'UTC')
    );
$$;
comment on function bds_past.kept_since(text, bigint) is
    'The time from which on all changes of a company are kept for sure, first being the first one that is kept';

create function bds_past.latest(company text)
    returns timestamptz
    language sql
    stable
as $$
    select greatest(clock_timestamp(), (select c.last_updated_at from bds.clocks c where c.company_id = company));
$$;
comment on function bds_past.latest(text) is
    'The time after which everything is to come: now, or that of the company''s last change, if the clock went back since';

create or replace function bds_service.find_version(
    company text, version bigint default null, at timestamptz default null, name text default null, entity text default null,
    out id bigint, out logged_at timestamptz, out moment timestamptz, out first_id bigint, out last_id bigint, out erasures bigint,
    out is_to_come boolean, out is_unsure boolean, out is_whole boolean, out registered_id bigint
)
    returns record
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    perform bds.require_company(company);
    first_id := bds_change_log.first_kept(company);
    last_id := coalesce((select p.last_id from bds.company_positions p where p.company_id = company), 0);
    erasures := coalesce((select max(e.number) from bds.erasures e where e.company_id = company), 0);
    if name is not null then
        version := (select v.version from bds.versions v where v.company_id = company and v.name = name collate "C");
    elsif at is not null then
        is_to_come := at > bds_past.latest(company);
        is_unsure := at < bds_past.kept_since(company, first_id);
        version := bds_past.search(company, at, first_id, last_id);
    elsif version is null then
        version := last_id;
    end if;
    id := version;
    select a.logged_at, a.is_whole into logged_at, is_whole from bds_past.around(company, version) a;
    moment := coalesce(at, logged_at);
    if version is not null and entity is not null and not bds_past.is_registered(company, entity, version) then
        registered_id := bds_past.registered_at(company, entity);
    end if;
end
$$;
comment on function bds_service.find_version(text, bigint, timestamptz, text, text) is
    'A version by its id, as of a time or by its name, else the last one: its id (null if there is no such name, or a '
    'change was dropped meanwhile) and time, the time whose columns its rows have, the first change that is kept and the '
    'last one, the number of the last erasure; is_to_come and is_unsure of a time: it lies ahead, or before what is kept; '
    'is_whole: the version '
    'does not split the changes of a transaction; registered_id: the first version at which an entity is registered, null if it '
    'was at the version';

create or replace function bds.version_of(company text, "when" text)
    returns bigint
    language plpgsql
    stable
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set datestyle = 'ISO, YMD'
as $$
declare
    is_id   boolean := "when" ~ '^[0-9]{1,100}$';
    is_name boolean := "when" ~ '^[A-Za-z][A-Za-z0-9_-]{0,62}$';
    version record;
begin
    if not coalesce(
        is_id or is_name or "when" ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}' and pg_input_is_valid("when", 'timestamptz'), false
    ) then
        raise exception using
            errcode = 'BD005',
            message = format(
                'expected a version such as 17, a name or a time such as 2026-01-01T14:30:00Z, got %s',
                coalesce(quote_literal("when"), 'null'));
    end if;
    perform bds_change_log.lock_first_change(company);
    select * into version
    from bds_service.find_version(
        company, case when is_id then least("when"::numeric, 9223372036854775806)::bigint end,
        case when not is_id and not is_name then "when"::timestamptz end, case when is_name then "when" end
    );
    if version.is_to_come then
        raise exception using errcode = 'BD002', message = format('%s is in the future', "when");
    elsif version.id is null then
        raise exception using errcode = 'BD002', message = format('company %s has no version %s', company, "when");
    elsif version.id = version.first_id - 1 and version.first_id > 1 and version.is_unsure then
        raise exception using
            errcode = 'BD006', detail = jsonb_build_object('firstId', version.first_id),
            message = format('the change log of company %s begins at version %s', company, version.first_id);
    end if;
    perform bds_past.check_version(company, version.id);
    return version.id;
end
$$;
comment on function bds.version_of(text, text) is
    'The version that an id, a name or a time (ISO 8601, without a zone UTC) means: the id of a change of the company, or 0. '
    'Raises BD005 for what is none of these, BD002 for a name that nobody has given and for what is in the future, BD006 for what '
    'is no longer kept';

create or replace function past.require_registered(entity text)
    returns boolean
    language plpgsql
    stable
    parallel safe
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := nullif(current_setting('bds.company', true), '');
    version bigint := nullif(current_setting('bds.since', true), '');
begin
    if version is not null and not bds_past.is_registered(company, entity, version) then
        perform bds_past.check_range(company, version, version, entity);
    end if;
    return true;
end
$$;
comment on function past.require_registered(text) is
    'Raises BD006 unless an entity was registered at the earlier version that the session has named';

create function bds_past.check_range(company text, from_version bigint, to_version bigint, entity text default null)
    returns void
    language plpgsql
    stable
as $$
declare
    first bigint;
begin
    perform bds_past.check_version(company, from_version), bds_past.check_version(company, to_version);
    if not bds_past.is_registered(company, entity, from_version) then
        first := bds_past.registered_at(company, entity);
        raise exception using
            errcode = 'BD006', detail = jsonb_build_object('firstId', first),
            message = format('%s was not registered at version %s: expected %s or later', entity, from_version, first);
    elsif from_version > to_version then
        raise exception using
            errcode = 'BD005',
            message = format('version %s comes after version %s: expected the earlier one first', from_version, to_version);
    end if;
end
$$;
comment on function bds_past.check_range(text, bigint, bigint, text) is
    'Raises as bds_past.check_version, BD005 for ends in the wrong order, and BD006 for a version at which the entity was not '
    'registered';

create function bds_past.registered_at(company text, entity text)
    returns bigint
    language sql
    stable
as $$
    select v.id + case when v.logged_at < b.at then 1 else 0 end
    from bds_past.begin_of(entity) b (at)
    cross join lateral bds_service.find_version(company, at => least(b.at, bds_past.latest(company))) v;
$$;
comment on function bds_past.registered_at(text, text) is 'The first version at which an entity was registered';

create or replace function bds.set_version(company text, version bigint)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set datestyle = 'ISO, YMD'
as $$
begin
    perform bds_past.enter(company);
    perform bds_past.check_version(company, version);
    perform bds_past.set_end(company, version);
end
$$;
comment on function bds.set_version(text, bigint) is
    'Names the company and a version for this transaction: past."<entity>" has the rows as of then. Raises as bds.row_at';

create or replace function bds.set_range(company text, from_version bigint, to_version bigint)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
    set datestyle = 'ISO, YMD'
as $$
begin
    perform bds_past.enter(company);
    perform bds_past.check_range(company, from_version, to_version);
    perform bds_past.set_end(company, to_version);
    perform
        set_config('bds.since', from_version::text, true),
        set_config('bds.since_time', bds_past.time_of(company, from_version)::text, true),
        set_config('bds.grouped_after', case when to_version - from_version > 1000000 then from_version::text else '' end, true);
end
$$;
comment on function bds.set_range(text, bigint, bigint) is
    'Names the company and two versions for this transaction: past."<entity>_diff" has the rows that differ, '
    'past."<entity>_versions" the versions that were valid between them. Raises BD002, BD005 for wrong ends, BD006';

create function bds_past.enter(company text)
    returns void
    language plpgsql
as $$
begin
    perform bds_impl.require_resident(company);
    perform set_config('bds.company', company, true);
end
$$;
comment on function bds_past.enter(text) is 'Names the company for this transaction';

create function bds_past.set_end(company text, version bigint)
    returns void
    language sql
as $$
    select set_config('bds.version', v.id::text, true), set_config('bds.version_time', v.logged_at::text, true),
        set_config('bds.moment', v.moment::text, true), set_config('bds.version_is_whole', v.is_whole::text, true),
        set_config('bds.later', (v.last_id - v.id)::text, true)
    from bds_service.find_version(company, version) v;
$$;
comment on function bds_past.set_end(text, bigint) is 'Sets the settings that the views of the past read';
