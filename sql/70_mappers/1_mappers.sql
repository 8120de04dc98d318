-- Mappers, stored by name; the service checks them first.  And the positions of a mapped import's errors in its source.

create or replace function bds.put_mapper(
    company text, mapper_name text, mapper_format text, mapper_text text, actor text default null
)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    created boolean;
    now_at  timestamptz := clock_timestamp();
begin
    perform bds.require_company(company);
    if mapper_name is null or mapper_name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$' then
        raise exception using
            errcode = 'BD005',
            message = format(
                '%s is not a valid mapper name: expected 1 to 63 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit',
                coalesce(quote_literal(mapper_name), 'null')
            );
    end if;
    insert into bds.mappers as m (company_id, name, format, text, actor)
    values (company, mapper_name, mapper_format, mapper_text, bds_impl.actor(put_mapper.actor))
    on conflict (company_id, name) do nothing;
    created := found;
    if not created then
        update bds.mappers m
        set format = mapper_format, text = mapper_text, actor = bds_impl.actor(put_mapper.actor), updated_at = now_at
        where m.company_id = company and m.name = mapper_name;
    end if;
    perform bds_impl.require_resident(company);
    return created;
end
$$;
comment on function bds.put_mapper(text, text, text, text, text) is
    'Stores a mapper, or replaces the one of that name; true if it is new';

create or replace function bds.delete_mapper(company text, mapper_name text)
    returns boolean
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    deleted boolean;
begin
    perform bds.require_company(company);
    delete from bds.mappers m where m.company_id = company and m.name = mapper_name;
    deleted := found;
    perform bds_impl.require_resident(company);
    return deleted;
end
$$;
comment on function bds.delete_mapper(text, text) is 'Deletes a mapper; false if there is none of that name';

create or replace function bds_service.import_note_positions(company text, import_id uuid, numbers bigint[], positions text[])
    returns void
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform bds_feed.enter_company(company);
    update bds.import_errors e
    set message = p.position || ': ' || e.message
    from unnest(numbers, positions) as p (n, position)
    where e.company_id = company and e.import_id = import_note_positions.import_id and e.n = p.n;
end
$$;
comment on function bds_service.import_note_positions(text, uuid, bigint[], text[]) is
    'Prefixes the messages of a mapped import''s errors with the position of their records in the source, such as line 17';
