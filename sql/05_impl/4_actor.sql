-- Who acts in a session.

create function bds_impl.refuse_actor(named text)
    returns text
    language plpgsql
as $$
begin
    raise exception using
        errcode = 'BD005', message = format('expected an actor of at most 200 characters, got %s', char_length(named)),
        hint = 'give a shorter one';
end
$$;
comment on function bds_impl.refuse_actor(text) is 'Raises BD005';

create function bds_impl.checked_actor(named text)
    returns text
    language sql
    volatile
    return case when char_length(named) > 200 then bds_impl.refuse_actor(named) else nullif(named, '') end;
comment on function bds_impl.checked_actor(text) is 'The actor; null for none. Raises BD005 if it has more than 200 characters';

create function bds_impl.actor(named text default null)
    returns text
    language sql
    volatile
    return coalesce(bds_impl.checked_actor(named), bds_impl.checked_actor(current_setting('bds.actor', true)), session_user);
comment on function bds_impl.actor(text) is
    'The actor that a caller names, else the one that the session has named, else its login. Raises BD005 as '
    'bds_impl.checked_actor: any session can set bds.actor';
