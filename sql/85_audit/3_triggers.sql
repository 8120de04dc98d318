-- The tables of administration.  Each column of theirs is one, but those named here as the state of the service: last use, health,
-- positions, the steps of a move, times of changes.  A statement that changes only those notes nothing.

do $do$
declare
    watched   record;
    statement text;
    known     text;
begin
    for watched in
        with tables (name, kind, named, hidden, state) as (values
            ('api_keys', 'key', '{id}', '{hash}', '{last_used_at}'),
            ('users', 'user', '{email}', '{password_hash}', '{last_login_at}'),
            ('company_logins', 'login', '{role_name}', '{}', '{}'),
            ('hooks', 'hook', '{id}', '{}', '{since_id,problem,disabled_for,catalog_version,updated_at}'),
            ('hook_secrets', 'hook', '{hook_id}', '{secret,previous}', '{}'),
            ('mappers', 'mapper', '{name}', '{}', '{updated_at}'),
            ('companies', 'company', '{id}', '{}', '{}'),
            ('settings', 'settings', '{}', '{}', '{}'),
            ('places', 'place', '{name}', '{url,secret}', '{}'),
            ('directory', 'company', '{company_id}', '{}', '{phase,changed_at}'),
            ('entities', 'entity', '{name}', '{}', '{}'),
            ('column_history', 'entity', '{entity}', '{}', '{}')
        )
        select t.*, e.event, ('bds.' || t.name)::regclass as relation, 'bds_audit_' || e.event as trigger,
            -- as text: to PostgreSQL 30 days are a month
            format('(to_jsonb(old) - %1$L::text[]) <> (to_jsonb(new) - %1$L::text[])', t.state) as changes
        from tables t cross join unnest('{insert,update,delete,truncate}'::text[]) e (event)
    loop
        statement := format('create or replace trigger %I ', watched.trigger) || case
            when watched.event = 'truncate' then format(
                'before truncate on %s for each statement execute function bds_log.refuse_truncate(%L)',
                watched.relation, 'the audit'
            )
            else format(
                'after %s on %s for each row%s execute function bds_log.audit(%L, %L, %L, %L)', watched.event, watched.relation,
                case
                    -- maintenance removes a previous secret that no longer signs
                    when watched.event = 'update' and watched.name = 'hook_secrets' then format(
                        ' when (%s and ((to_jsonb(old) - %2$L::text[]) <> (to_jsonb(new) - %2$L::text[]) '
                        'or (old.ends_at <= now() and new.previous is null and new.ends_at is null) is not true))',
                        watched.changes, '{previous,ends_at}'
                    )
                    when watched.event = 'update' then format(' when (%s)', watched.changes)
                    -- maintenance deletes a hook that was deleted before
                    when watched.event = 'delete' and watched.name = 'hooks' then ' when (old.deleted_at is null)'
                    else ''
                end,
                watched.kind, watched.named, watched.hidden, watched.state
            )
        end;
        select obj_description(t.oid, 'pg_trigger') into known
        from pg_trigger t where t.tgrelid = watched.relation and t.tgname = watched.trigger;
        -- each locks its table: only those that differ are made
        continue when known = format('Notes changes in bds.audit (%s)', md5(statement));
        execute statement;
        execute format(
            'comment on trigger %I on %s is %L', watched.trigger, watched.relation,
            format('Notes changes in bds.audit (%s)', md5(statement))
        );
    end loop;
    if not exists (select from pg_trigger t where t.tgrelid = 'bds.audit_pending'::regclass and t.tgname = 'bds_number') then
        create constraint trigger bds_number after insert on bds.audit_pending deferrable initially deferred
            for each row execute function bds_log.number_audit();
        -- a restore notes itself, too, and passes over triggers
        alter table bds.audit_pending enable always trigger bds_number;
    end if;
end
$do$;
