-- References of past rows to rows that had no code yet.

create or replace function bds_service.refuse_nameless(code anyelement, entity text, row_id bigint)
    returns anyelement
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'BD009',
        message = format('row %s of %s had no code at this version: expected json or xml, which refer to it by id', row_id, entity);
end
$$;
comment on function bds_service.refuse_nameless(anyelement, text, bigint) is
    'Raises BD009, for a reference of an export that only a code can tell, to a row that had none; code: the missing one';
