-- Tenancy: companies, and the company that a session acts for.  A session names one company; views and policies show only its rows.

create or replace function bds.is_operator()
    returns boolean
    language sql
    stable
    -- Inside a security definer function current_user is the function's owner; the session's role is the one that it has set.
    return pg_has_role(
        case when current_setting('role') = 'none' then session_user else current_setting('role')::name end,
        'bds_operator', 'member'
    );
comment on function bds.is_operator() is 'Whether the session acts as the operator of the service, who may act for every company';

create or replace function bds.current_company()
    returns text
    language sql
    stable
    return nullif(current_setting('bds.company', true), '');
comment on function bds.current_company() is 'The company that the session has named, or null';

create or replace function bds.require_company(company text)
    returns void
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if company is not distinct from bds.current_company() then
        return;
    elsif not bds.is_operator() then
        raise exception using
            errcode = 'BD001',
            message = format('this session does not act for company %s', coalesce(quote_literal(company), 'null')),
            hint = 'name it with bds.set_context(company, actor, change_set)';
    end if;
    perform bds_impl.require_resident(company);
end
$$;
comment on function bds.require_company(text) is
    'Raises BD001 unless the session has named this company or acts as the operator, and BD002 if it is the operator and the '
    'company does not live here';

create or replace function bds_service.refuse_absent(company text)
    returns text
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_impl.refuse_company(company);
    return null;
end
$$;
comment on function bds_service.refuse_absent(text) is
    'Raises BD002, for a read that finds no clock of the company: it comes so late to a place that its rows are elsewhere already';

-- change_set takes a uuid, or text, so that malformed text gets an error that names the argument
create or replace function bds.set_context(company text, actor text default null, change_set anycompatible default null::uuid)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from bds.residents r where r.company_id = company) then  -- each transaction comes here: without a call
        perform bds_impl.refuse_company(company);
    end if;
    if not pg_input_is_valid(change_set::text, 'uuid') then
        raise exception using
            errcode = 'BD005',
            message = format('expected a UUID as the change set, got %L', change_set),
            hint = 'take gen_random_uuid(), or null for none';
    end if;
    perform
        set_config('bds.company', company, true),
        set_config('bds.actor', coalesce(bds_impl.checked_actor(actor), ''), true),
        set_config('bds.change_set', coalesce(change_set::text, ''), true);
end
$$;
comment on function bds.set_context(text, text, anycompatible) is
    'Names the company, the actor and the change set of this transaction: begin; select bds.set_context(''acme'', ''me''); ...';

create or replace function bds.create_company(company text, tenant text default null, place text default null)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    here text := (select s.place from bds.settings s);
begin
    -- elsewhere no request reaches it until an administrator has created it at home, too
    if here = 'home' then
        perform bds_accounts.require_administrator('create companies');
    end if;
    if company is null or company !~ '^[a-z0-9_-]{1,63}$' then
        raise exception using
            errcode = 'BD005',
            message = format(
                '%s is not a valid company id: expected 1 to 63 characters of a-z 0-9 - _', coalesce(quote_literal(company), 'null')
            );
    end if;
    if tenant !~ '^[a-z0-9_-]{1,63}$' then
        raise exception using
            errcode = 'BD005',
            message = format('%L is not a valid tenant id: expected 1 to 63 characters of a-z 0-9 - _', tenant);
    end if;
    if bds_impl.is_reserved(company) or exists (select from bds.entities e where e.name = company) then
        raise exception using
            errcode = 'BD005',
            message = format('company id %L is taken: it is the name of an entity or a word of the URLs', company);
    end if;
    insert into bds.tenants (id) select tenant where tenant is not null on conflict do nothing;
    -- At another place: takes over an empty company of that id, which an attempt that did not get to home has left.
    insert into bds.companies as c (id, tenant_id) values (company, tenant)
    on conflict (id) do update set tenant_id = excluded.tenant_id
    where here <> 'home' and exists (select from bds.residents r where r.company_id = c.id and r.last_id = 0);
    if not found then
        raise exception using errcode = 'BD004', message = format('company %L already exists', company);
    end if;
    if coalesce(place, here) = here then
        insert into bds.clocks (company_id) values (company) on conflict do nothing;
        -- readers may know changes of a company of this name that was deleted: its ids are given again
        perform bds_change_log.begin_generation(company, 0, k.generation)
        from bds_audit.deleted(company, null) d
        cross join lateral (select greatest(d.generation, bds_audit.told_generation())) k (generation)
        join bds.clocks c on c.company_id = company and cardinality(c.commons) < k.generation;
    elsif here = 'home' and exists (select 1 from bds.places p where p.name = place) then
        perform bds_operation.note_place(company, place);
    else
        raise exception using errcode = 'BD005', message = format('no such place: %L', place);
    end if;
end
$$;
comment on function bds.create_company(text, text, text) is
    'Creates a company, and its tenant if there is none of that id. For a company that lives at another place, call it at home '
    'with that place, then at the place without; bds company create does both. Its generation is above those of companies of that '
    'id that were deleted';
