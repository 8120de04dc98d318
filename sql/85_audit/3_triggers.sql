-- The tables of administration, and the columns whose change is one.  Last use, health, positions and times are not among them: a
-- statement that sets only those fires no trigger.

do $do$
declare
    watched   record;
    statement text;
    known     text;
begin
    for watched in
        with tables (name, kind, named, shown, hidden, events) as (values
            ('api_keys', 'key', '{id}', '{name,tenant_id,companies,scopes,expires_at,revoked_at,actor}', '{hash}',
                'insert update delete'),
            ('users', 'user', '{email}', '{email,companies,is_administrator}', '{password_hash}', 'insert update delete'),
            ('company_logins', 'login', '{role_name}', '{role_name,company_id}', '{}', 'insert update delete'),
            ('hooks', 'hook', '{id}', '{entity,url,action,filter,columns,allow_in_change_set,disabled,deleted_at}', '{}',
                'insert update delete'),
            ('hook_secrets', 'hook', '{hook_id}', '{}', '{secret,previous}', 'insert update delete'),
            ('mappers', 'mapper', '{name}', '{name,format,text}', '{}', 'insert update delete'),
            ('companies', 'company', '{id}', '{id,tenant_id,log_retention}', '{}', 'insert update delete'),
            ('settings', 'settings', '{}', '{log_retention,log_archive,place}', '{}', 'update'),
            ('places', 'place', '{name}', '{name,is_draining}', '{url,secret}', 'insert update delete'),
            ('directory', 'company', '{company_id}', '{place,source,target}', '{}', 'insert update delete'),
            ('entities', 'entity', '{name}', '{table_name,singular,parent_navigation,collection}', '{}', 'insert update delete'),
            ('column_history', 'entity', '{entity}', '{column_name,type,until}', '{}', 'insert update')
        )
        select t.*, e.event, ('bds.' || t.name)::regclass as relation, 'bds_audit_' || e.event as trigger,
            (select string_agg(format('%I', c), ', ') from unnest(t.shown::text[] || t.hidden::text[]) c) as columns,
            (select string_agg(format('old.%1$I is distinct from new.%1$I', c), ' or ')
                from unnest(t.shown::text[] || t.hidden::text[]) c) as changes
        from tables t cross join unnest(string_to_array(t.events, ' ')) e (event)
    loop
        statement := format(
            'create or replace trigger %I after %s on %s for each row%s execute function bds_log.audit(%L, %L, %L, %L)',
            watched.trigger,
            case when watched.event = 'update' then 'update of ' || watched.columns else watched.event end,
            watched.relation,
            case
                -- maintenance removes a previous secret that no longer signs
                when watched.event = 'update' and watched.name = 'hook_secrets' then
                    format(
                        ' when ((%s) and (new.previous is not null or old.secret <> new.secret or old.ends_at > now()))',
                        watched.changes
                    )
                when watched.event = 'update' then format(' when (%s)', watched.changes)
                -- maintenance deletes a hook that was deleted before
                when watched.event = 'delete' and watched.name = 'hooks' then ' when (old.deleted_at is null)'
                else ''
            end,
            watched.kind, watched.named, watched.shown, watched.hidden
        );
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
