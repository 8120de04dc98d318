-- What each role may do; applied last, and whole, after every change.  A role has no right but these and those of the roles that it
-- is a member of: the writer's are the importer's too, the reader's are the dispatcher's and the worker's.
--
-- No role that a session acts as may look into a schema of internals, which is every bds_* but bds_service, or may change the log.
-- Entities are registered by members of bds_owner, to which the tables belong.

do $$
declare
    statement text;
begin
    for statement in  -- takes rights as well from whom the roles have given them to
        select format(
            'revoke all on %s %s from public, %s cascade', o.kind, string_agg(o.name, ', '),
            (select string_agg(r, ', ') from unnest(bds_impl.roles()) r where r not in ('bds_owner', o.owner))
        )
        from (
            select split_part(o.target, ' ', 1), substr(o.target, strpos(o.target, ' ') + 1), o.owner::regrole::text
            from bds_operation.owned() o
            where not o.is_month
        ) o (kind, name, owner)
        where o.owner = any (bds_impl.roles())
        group by o.kind, o.owner
    loop
        execute statement;
    end loop;
end
$$;
revoke all on all functions in schema bds_import from public;

-- Everybody ----------------------------------------------------------------------------------------------------------------------

grant usage on schema api, bds, bds_service to bds_operator, bds_reader, bds_service, bds_worker, bds_writer;
grant select on bds.entities, bds.fields, bds.navigations to bds_operator, bds_reader, bds_service, bds_writer;
grant execute on function bds.current_company, bds.is_operator, bds.require_company, bds_service.api_time
    to bds_operator, bds_reader, bds_service, bds_writer;

-- The reader: the views of the company that the session names ---------------------------------------------------------------------

grant select on
    bds.change_months, bds.change_sets, bds.changes, bds.company_positions, bds.erasures, bds.generations, bds.import_errors,
    bds.imports, bds.linkage_weights, bds.mappers, bds.positions, bds.versions
    to bds_operator, bds_reader, bds_writer;
grant execute on function
    bds.change_values, bds.diff, bds.first_change, bds.import_report, bds.log_head, bds.row_at, bds.row_history, bds.rows_at,
    bds.set_range, bds.set_version, bds.versions_between, bds.version_of, bds_service.change_sets, bds_service.find_changes,
    bds_service.find_version, bds_service.refuse_absent, bds_service.refuse_nameless
    to bds_operator, bds_reader, bds_writer;
grant usage on schema past to bds_operator, bds_reader, bds_importer;  -- its views are granted by bds.register
grant execute on function past.merge(jsonb) to bds_operator, bds_reader, bds_importer;
grant execute on function
    past.is_altered, past.is_deep, past.json_of, past.last_changes, past.number_of, past.ranges_with, past.require_registered
    to bds_operator, bds_reader;
grant execute on function past.double_of(real) to bds_analyst, bds_dispatcher, bds_importer, bds_operator, bds_reader, bds_writer;
grant execute on function bds_service.authenticate to bds_reader, bds_service;
grant execute on function bds_service.count_changes, bds_service.count_rows to bds_operator, bds_reader;

-- The analyst: the views of the company that its login is bound to; those of entities are granted by bds.register

grant usage on schema my to bds_analyst;
grant select on my.changes to bds_analyst;

-- The writer: rows of that company, and imports -----------------------------------------------------------------------------------

grant usage on schema data, staging to bds_operator, bds_writer;
grant select on bds.import_columns to bds_operator, bds_writer;
grant execute on function
    bds.forget_version, bds.import_begin, bds.import_cancel, bds.import_document, bds.import_fail, bds.import_progress,
    bds.import_rows, bds.import_run, bds.import_stage, bds.lock_company, bds.name_version, bds.restore, bds.revert,
    bds.revert_range, bds.set_context,
    bds_service.end_request, bds_service.import_note_positions, bds_service.import_received
    to bds_operator, bds_writer;

-- The service: accounts, mappers, and the hooks of the company that the session names ---------------------------------------------

grant select on bds.api_keys, bds.problem_counts, bds.versions to bds_operator, bds_service;
grant select on bds.company_positions, bds.generations to bds_service;
grant select on
    bds.deliveries, bds.delivery_attempts, bds.hook_columns, bds.hook_filters, bds.hook_health, bds.hook_positions, bds.hook_queue,
    bds.hook_states, bds.hooks
    to bds_operator, bds_service, bds_worker;
grant execute on function bds_service.delivery_json, bds_service.hook_json, bds_service.misfit
    to bds_operator, bds_service, bds_worker;
grant execute on function
    bds.create_hook, bds.delete_hook, bds.forget_version, bds.name_version, bds.retry_delivery, bds.rotate_hook, bds.test_hook,
    bds.update_hook, bds_service.end_rest, bds_service.find_version, bds_service.lock_hook, bds_service.replay_hook
    to bds_operator, bds_service;
grant execute on function
    bds.create_key, bds.delete_mapper, bds.maintain, bds.put_mapper, bds.reap_imports, bds.revoke_key, bds.set_password,
    bds_service.audit, bds_service.backlog, bds_service.keys_of, bds_service.whole_tenants
    to bds_operator, bds_service;
-- each asks for an administrator's session
grant execute on function bds.create_company, bds.create_user, bds.delete_company, bds.delete_user, bds.set_access
    to bds_operator, bds_service;
grant execute on function bds_service.join_company to bds_service;
grant execute on function bds_service.last_generation to bds_operator, bds_service;
grant select on bds.companies to bds_operator, bds_service, bds_worker;
grant select (id, email, companies, is_administrator, created_at, last_login_at) on bds.users to bds_operator, bds_service;
grant execute on function
    bds_service.answer_request, bds_service.claim_request, bds_service.end_request, bds_service.note_request,
    bds_service.begin_attempt, bds_service.begin_session, bds_service.count_wrong, bds_service.end_attempt, bds_service.end_session,
    bds_service.keep_secret, bds_service.note_use, bds_service.password_of, bds_service.replace_password, bds_service.session
    to bds_service;

-- The worker: deliveries of every company -----------------------------------------------------------------------------------------

grant select on bds.change_log, bds.entity_positions, bds.unfit_hooks to bds_operator, bds_worker;
grant select on bds.clocks, bds.residents to bds_operator, bds_service, bds_worker;
grant select on bds.directory to bds_operator, bds_service;
grant select (name, url, is_draining, created_at) on bds.places to bds_operator, bds_service;
grant select (place) on bds.settings to bds_service;
grant execute on function bds.set_context to bds_service;
grant select, update on sequence bds.bell to bds_worker;
grant execute on function
    bds_service.claim_deliveries, bds_service.companies_behind, bds_service.disable_failing, bds_service.forget_deliveries,
    bds_service.next_due, bds_service.record_attempts, bds_service.refit_hook, bds_service.release_leases, bds_service.renew_leases,
    bds_service.route_changes
    to bds_operator, bds_worker;

-- The operator: every row of every company, the queue, and what is set for all ----------------------------------------------------

grant select on
    bds.change_archive, bds.column_history, bds.log_comparisons, bds.log_findings, bds.log_problems, bds.login_networks,
    bds.problems, bds.sessions, bds.settings, bds.tables, bds.tenants, bds.turns, bds.wrong_credentials,
    bds.wrong_logins
    to bds_operator;
grant insert, update, delete on
    bds.deliveries, bds.delivery_attempts, bds.hook_filters, bds.hook_positions, bds.hook_queue, bds.hook_states, bds.hooks,
    bds.linkage_weights
    to bds_operator;
grant select on bds.audit, bds.company_logins, bds.seal_findings, bds.seal_positions, bds.seals to bds_operator;
grant execute on function
    bds.compare_log, bds.erase, bds.grant_company, bds.revoke_company, bds.set_retention, bds.verify_log,
    bds_service.has_head, bds_service.table_problems, bds_service.turn_holders, bds_service.verify_sealed
    to bds_operator;

-- The importer: runs imports with the writer's rights, and owns what is staged; no session is it ----------------------------------

grant usage on schema bds_feed, bds_impl, bds_import, bds_past, bds_revert to bds_importer;
grant execute on function bds_past.begin_of, bds_past.is_registered, bds_past.model_time to bds_importer;
grant execute on all functions in schema bds_feed, bds_impl, bds_revert to bds_importer;
grant select on bds_impl.types to bds_importer;
-- reverts read the log, with the names that columns had
grant usage on schema bds_change_log, bds_registry to bds_importer;
grant execute on function
    bds_change_log.names_at, bds_change_log.note_change_set, bds_change_log.old_at, bds_change_log.require_unaltered,
    bds_change_log.settle, bds_change_log.texts_at, bds_registry.base_type, bds_registry.camel_case
    to bds_importer;
grant select on bds.change_log, bds.clocks, bds.column_history, bds.residents to bds_importer;
grant select on all tables in schema bds_feed to bds_importer;
grant create on schema staging to bds_importer;
grant insert, update, delete on bds.import_errors, bds.imports to bds_importer, bds_operator;
grant select, insert, update, delete on bds.import_keys to bds_importer, bds_operator;
grant usage on schema bds_log to bds_importer;
grant execute on function bds_log.check_staging_company to bds_importer;  -- the trigger of the tables that it makes
-- a new owner of a function needs the right to create it
grant create on schema bds, bds_service to bds_importer;
alter function bds.import_begin owner to bds_importer;
alter function bds.import_cancel owner to bds_importer;
alter function bds.import_document owner to bds_importer;
alter function bds.import_fail owner to bds_importer;
alter function bds.import_progress owner to bds_importer;
alter function bds.import_report owner to bds_importer;
alter function bds.import_rows owner to bds_importer;
alter function bds.import_run owner to bds_importer;
alter function bds.import_stage owner to bds_importer;
alter function bds.restore owner to bds_importer;
alter function bds.revert owner to bds_importer;
alter function bds.revert_range owner to bds_importer;
alter function bds_service.answer_request owner to bds_importer;
alter function bds_service.claim_request owner to bds_importer;
alter function bds_service.end_request owner to bds_importer;
alter function bds_service.note_request owner to bds_importer;
alter function bds_service.import_note_positions owner to bds_importer;
alter function bds_service.import_received owner to bds_importer;
revoke create on schema bds, bds_service from bds_importer;
-- conditions of records and of hooks are evaluated by a reader
grant create on schema bds_feed, bds_webhooks to bds_reader;
alter function bds_feed.rows_where owner to bds_reader;
alter function bds_webhooks.match_filters owner to bds_reader;
revoke create on schema bds_feed, bds_webhooks from bds_reader;

-- The dispatcher: matches changes with hooks, and keeps the queue and the secrets; no session is it -------------------------------

grant usage on schema bds_impl to bds_dispatcher;
grant execute on all functions in schema bds_impl, bds_webhooks to bds_dispatcher;
grant execute on function
    bds_service.companies_behind, bds_service.delivery_json, bds_service.hook_json, bds_service.lock_hook, bds_service.misfit
    to bds_dispatcher;
grant select on bds.change_log, bds.clocks, bds.companies, bds.entity_positions, bds.hook_columns, bds.hook_health, bds.residents
    to bds_dispatcher;
grant select, insert, update, delete on
    bds.deliveries, bds.delivery_attempts, bds.hook_filters, bds.hook_positions, bds.hook_queue, bds.hook_secrets, bds.hook_states,
    bds.hooks
    to bds_dispatcher;
grant create on schema bds, bds_service to bds_dispatcher;
alter function bds.create_hook owner to bds_dispatcher;
alter function bds.delete_hook owner to bds_dispatcher;
alter function bds.retry_delivery owner to bds_dispatcher;
alter function bds.rotate_hook owner to bds_dispatcher;
alter function bds.test_hook owner to bds_dispatcher;
alter function bds.update_hook owner to bds_dispatcher;
alter function bds_service.claim_deliveries owner to bds_dispatcher;
alter function bds_service.disable_failing owner to bds_dispatcher;
alter function bds_service.end_rest owner to bds_dispatcher;
alter function bds_service.forget_deliveries owner to bds_dispatcher;
alter function bds_service.lock_hook owner to bds_dispatcher;
alter function bds_service.record_attempts owner to bds_dispatcher;
alter function bds_service.refit_hook owner to bds_dispatcher;
alter function bds_service.release_leases owner to bds_dispatcher;
alter function bds_service.renew_leases owner to bds_dispatcher;
alter function bds_service.replay_hook owner to bds_dispatcher;
alter function bds_service.route_changes owner to bds_dispatcher;
revoke create on schema bds, bds_service from bds_dispatcher;

-- Names and definitions that are compared with those of another session are printed alike, whatever either has set.  What is
-- generated (bds_log, bds_import) prints none. ------------------------------------------------------------------------------------

do $$
declare
    printing record;
begin
    for printing in
        select p.oid::regprocedure as function, p.prosrc ~ 'pg_get_(expr|function_sqlbody|[a-z]+def)\(' as prints_values
        from pg_proc p join bds_impl.schemas() s on s.schema = p.pronamespace
        where s.has_program and s.name not in ('bds_log', 'bds_import')
            and p.prosrc ~ '%I|%\d\$I|quote_ident|::reg|pg_get_|bds_impl\.(fill|expand)|bds_registry\.statements'
            -- those of imports print within functions that do as well, for each row
            and (s.name <> 'bds_feed' or p.proconfig is not null or p.prosrc ~ 'pg_get_')
    loop
        execute format(
            'alter function %s set quote_all_identifiers = off %s', printing.function,
            case when printing.prints_values then
                'set datestyle = ''ISO, MDY'' set timezone = ''UTC'' set intervalstyle = ''postgres'' set bytea_output = ''hex'' '
                'set extra_float_digits = 1'
            end
        );
    end loop;
end
$$;
