-- Who acts in a session.

create function bds_impl.refuse_actor(named text)
    returns text
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'BD005', message = format('expected an actor of at most 200 characters, got %s', char_length(named)),
        hint = 'call bds.set_context(company, actor, change_set) with a shorter one';
end
$$;
comment on function bds_impl.refuse_actor(text) is 'Raises BD005';

create function bds_impl.actor()
    returns text
    language sql
    volatile
    return case
        when char_length(current_setting('bds.actor', true)) > 200 then bds_impl.refuse_actor(current_setting('bds.actor'))
        else coalesce(nullif(current_setting('bds.actor', true), ''), session_user)
    end;
comment on function bds_impl.actor() is
    'The actor that the session has named, else its login. Raises BD005 if it has more than 200 characters: any session can set bds.actor';
