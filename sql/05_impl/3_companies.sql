-- Which companies live here, and the error for one that does not.

-- The one place that decides it.  A company that is being copied here has no clock until it arrives, and one that has departed
-- keeps its clock until its rows are deleted: of neither do rows prove anything.  A row of the view can be locked, which is the
-- turn.
create or replace view bds.residents as
select c.company_id, c.last_id, c.last_updated_at, c.ctid as clock_at
from bds.clocks c
where c.departed_at is null;
comment on view bds.residents is
    'The companies that live here: they are written, their hooks matched and sent, and what is old deleted; rows of others are '
    'left alone';
comment on column bds.residents.company_id is 'The company';
comment on column bds.residents.last_id is 'The last change id';
comment on column bds.residents.last_updated_at is 'The last updatedAt, or the time of the last change if that is later';
comment on column bds.residents.clock_at is 'Where its row of bds.clocks is now';

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
comment on function bds_impl.refuse_company(text) is
    'Raises BD002 for a company that does not exist, or that lives at another place';

create function bds_impl.require_resident(company text)
    returns void
    language plpgsql
as $$
begin
    if not exists (select from bds.residents r where r.company_id = company) then
        perform bds_impl.refuse_company(company);
    end if;
end
$$;
comment on function bds_impl.require_resident(text) is
    'Raises BD002 unless the company lives here. To write without the turn, call it with a lock that the move of a company waits '
    'for (bds_operation.writers_of_others): then the company has not left in between';

create function bds_impl.event_prefix(company text)
    returns text
    language sql
    stable
as $$
    select case when c.commons = '{}' then '' else cardinality(c.commons) + 1 || ':' end
    from bds.clocks c where c.company_id = company
$$;
comment on function bds_impl.event_prefix(text) is
    'What precedes a change''s id where events and positions name it: nothing in the first generation, later the generation: 2:';

create function bds_impl.estimated_rows(table_name regclass, company text)
    returns bigint
    language plpgsql
    volatile  -- explain is refused in a stable function
as $$
declare
    plan json;
begin
    execute format('explain (format json) select 1 from %s r where r.company_id = %L', table_name, company) into plan;
    return (plan #>> '{0,Plan,Plan Rows}')::numeric;
end
$$;
comment on function bds_impl.estimated_rows(regclass, text) is
    'The number of rows of a company that the planner expects in a table, by its statistics';
