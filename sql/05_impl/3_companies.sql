-- The error for a company that cannot be written here.

create function bds_impl.refuse_company(company text)
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select 1 from bds.companies c where c.id = company) then
        raise exception using
            errcode = 'BD002',
            message = format('company %L does not live in this database: it is at another place', company),
            hint = 'ask the database that is home: table bds.directory; bds company list';
    end if;
    raise exception using errcode = 'BD002', message = format('no such company: %s', coalesce(quote_literal(company), 'null'));
end
$$;
comment on function bds_impl.refuse_company(text) is 'Raises BD002 for a company that does not exist, or that lives at another place';
