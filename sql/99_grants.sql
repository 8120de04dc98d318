-- What each role may do.  The reader: the views.  The writer: business rows of the company it has named, and imports.  The service:
-- accounts.  The operator: everything, of every company; but entities are registered by members of bds_owner, to whom the tables
-- belong.  None of them may change the log.

revoke all on all functions in schema bds from public;
revoke all on all functions in schema bds_log from public;

grant usage on schema bds, api to bds_reader, bds_writer, bds_service, bds_operator;
grant usage on schema data to bds_writer, bds_operator;
grant usage on schema staging to bds_writer;

grant select on bds.entities, bds.fields, bds.navigations to bds_reader, bds_writer, bds_service, bds_operator;
grant select on bds.changes, bds.positions, bds.company_positions to bds_reader, bds_writer, bds_operator;
grant select on bds.tenants, bds.companies, bds.clocks, bds.change_log to bds_operator;
grant select on bds.api_keys to bds_service, bds_operator;

grant execute on function bds.is_operator(), bds.current_company(), bds.require_company(text), bds.company_tenant(text)
    to bds_reader, bds_writer, bds_service, bds_operator;
grant execute on function bds.authenticate(bytea) to bds_reader, bds_service;
grant execute on function bds.set_context(text, text, uuid), bds.lock_company(text), bds.take_turn(text) to bds_writer, bds_operator;
grant execute on function
    bds.row_history(text, text, bigint), bds.row_at(text, text, bigint, bigint), bds.row_now(text, text, bigint), bds.first_change(text)
    to bds_reader, bds_writer, bds_operator;
grant execute on function bds.set_retention(interval) to bds_operator;
grant select on bds.settings, bds.first_changes, bds.entity_positions to bds_operator;
-- what the triggers of a table call as whoever writes
grant execute on function bds.only_company(), bds.lock_company_of_row(text, text), bds.lock_company_shortly(text),
    bds.floor_of(text) to bds_writer, bds_operator;
grant execute on function bds.create_key(bytea, text, text[], text, text[], timestamptz), bds.revoke_key(uuid)
    to bds_service, bds_operator;
grant execute on function
    bds.create_company(text, text)
    to bds_operator;

grant execute on function bds.reap_imports(interval), bds.forget_imports(interval), bds.make_partitions(int), bds.drop_old_changes()
    to bds_service, bds_operator;

-- imports: whoever writes begins them, stages rows and has them run; the run itself is the importer's, who has the writer's rights
-- and the staged rows; conditions that were staged are evaluated by the reader
grant select on bds.import_columns to bds_writer, bds_operator;
grant usage on schema staging to bds_operator;
grant usage, create on schema staging to bds_importer;
grant execute on function
    bds.staging_table(bigint, text), bds.find_import(text, uuid, text), bds.import_report(text, uuid, boolean)
    to bds_reader, bds_writer, bds_operator;
grant execute on function
    bds.import_begin(text, text, boolean), bds.import_stage(text, uuid, text), bds.check_staging_company(),
    bds.import_received(text, uuid, text, bigint, bigint, text[]), bds.import_progress(text, uuid, bigint, bigint, bigint),
    bds.import_run(text, uuid, text, text[]), bds.import_cancel(text, uuid), bds.import_fail(text, uuid, text, text, text)
    to bds_writer, bds_operator;
do $$
declare
    step regprocedure;
begin
    for step in
        select p.oid from pg_proc p
        where p.pronamespace = 'bds'::regnamespace and not p.prosecdef and p.proname = any (array[
            'enter_company', 'open_staging', 'import_finish', 'import_drop_staging', 'count_staged', 'analyze_changed',
            'import_apply', 'import_outcome', 'add_counts', 'count_map', 'counted', 'count_failed', 'root_of', 'depth_of', 'families',
            'family_members', 'put_off', 'reach', 'note_columns', 'noted_columns', 'has_keys', 'import_order', 'import_prepare', 'plan_for', 'is_few', 'about', 'can_probe', 'is_indexed', 'finds_few', 'stored_join',
            'import_drop_comparison', 'import_prepare_family', 'parent_of',
            'staged_text', 'staged_is_valid', 'staged_cast', 'staged_value', 'named_value', 'expected_value', 'valid_values', 'look_through', 'staged_operation',
            'only_identifies', 'check_values', 'check_required', 'make_diff', 'rules_of', 'check_constraints', 'check_names', 'check_nesting', 'check_operations',
            'lookup_kind', 'lookup_value', 'lookup_id', 'staged_lookup', 'lookup_kinds', 'map_by_keys', 'mapped_parent', 'is_divisible', 'reference_name', 'reference_alias', 'reference_table', 'reference_join', 'check_keys', 'resolve_references',
            'is_staged', 'refers_outside', 'all_valid', 'key_value', 'written_value', 'staged_or_checked', 'comparison', 'number_new_rows',
            'linkage_threshold', 'linkage_columns', 'map_by_linkage', 'cook_rows', 'find_candidates', 'link_named', 'check_named', 'linkage_content', 'make_room', 'open_rooms', 'close_rooms', 'find_crowded', 'index_crowded', 'search_room', 'move_links', 'linkage_patterns', 'link_rows',
            'link_pattern', 'set_apart_unlinked',
            'mark_failed', 'mark_known', 'spread_failures', 'fail_batches', 'fail_orphans', 'import_may_write', 'has_errors', 'late_errors', 'note_late', 'fail_late',
            'add_errors', 'import_collect_errors', 'place_of_rows',
            'is_fault_of_rows', 'refusal', 'refused', 'plan_for_ranges', 'range_statement', 'write_in_ranges', 'find_culprits', 'rehearse', 'rehearse_write', 'rehearse_remove',
            'import_write', 'merge_diff', 'merge_statement', 'import_mass_update', 'know_company', 'make_mass', 'mass_statement', 'mass_problems', 'write_batch', 'write_mass',
            'make_gone', 'count_gone', 'import_delete', 'find_gone', 'delete_gone', 'add_along', 'delete_statements', 'children_of', 'uses_of', 'find_used', 'keep_used',
            'rehearse_delete', 'import_remove', 'given_whole', 'count_whole', 'find_removed', 'delete_removed', 'hides_rows', 'import_remove_all', 'note_kept'
        ])
    loop
        execute format('revoke execute on function %s from bds_writer, bds_operator', step);
        execute format('grant execute on function %s to bds_importer', step);
    end loop;
end
$$;
grant create on schema bds to bds_importer, bds_reader;  -- a function's new owner has to be somebody who might have made it
alter function bds.import_begin(text, text, boolean) owner to bds_importer;
alter function bds.import_stage(text, uuid, text) owner to bds_importer;
alter function bds.import_received(text, uuid, text, bigint, bigint, text[]) owner to bds_importer;
alter function bds.import_run(text, uuid, text, text[]) owner to bds_importer;
alter function bds.import_fail(text, uuid, text, text, text) owner to bds_importer;
alter function bds.rows_where(text, text, text, boolean) owner to bds_reader;
revoke create on schema bds from bds_importer, bds_reader;
grant execute on function bds.rows_where(text, text, text, boolean) to bds_importer;

-- hooks are registered by the service, of the company that its session has named; the worker matches and delivers for every company
grant usage on schema bds, api to bds_worker;
grant select on bds.hook_columns to bds_worker, bds_service, bds_operator;
grant select on bds.unfit_hooks to bds_worker, bds_operator;
grant execute on function
    bds.api_time(timestamptz), bds.hook_json(bds.hooks, text), bds.delivery_json(bds.deliveries), bds.find_hook(text, uuid), bds.make_secret(),
    bds.last_change(text), bds.check_hook(text, text, text[]), bds.misfit(text, text[]), bds.create_hook(text, text, text, text, text[], boolean, boolean, jsonb, text),
    bds.store_filters(text, bds.hooks, jsonb), bds.hold_routing(text),
    bds.update_hook(text, uuid, text, text, text, text[], boolean, boolean, jsonb, text, text), bds.delete_hook(text, uuid),
    bds.cancel_queued(text, uuid), bds.test_hook(text, uuid), bds.retry_delivery(text, uuid, uuid), bds.wake_hook(text, uuid),
    bds.plan_batches(text[], uuid[], timestamptz), bds.make_batches_of(text[], uuid[], timestamptz)
    to bds_service, bds_worker, bds_operator;
grant execute on function
    bds.refit_hook(text, uuid, jsonb, text, text), bds.overlay(jsonb, jsonb), bds.undo(jsonb), bds.companies_behind(text[]), bds.route_changes(text, interval, bigint),
    bds.match_changes(text, text, bigint, bigint, timestamptz), bds.match_where(text, text), bds.match_branch(text, text, text[]),
    bds.queue_filtered(text, text, bigint, bigint, timestamptz, text[]), bds.changed_rows(text),
    bds.prepare_once(text, regtype[]), bds.shape_of(text, text, text[]),
    bds.queue_matches(text, text, bigint, bigint, timestamptz, text, text), bds.make_batches(int),
    bds.claim_deliveries(int, interval), bds.lock_leases(jsonb), bds.record_attempts(jsonb, double precision[], interval),
    bds.end_leases(jsonb, uuid[], uuid[], interval), bds.renew_leases(jsonb, interval), bds.release_leases(jsonb), bds.next_due(),
    bds.forget_deliveries(interval, int)
    to bds_worker, bds_operator;

-- mappers: read by everyone who acts for the company, written by the service
grant select on bds.mappers to bds_reader, bds_writer, bds_operator;
grant execute on function bds.put_mapper(text, text, text, text, text), bds.delete_mapper(text, text) to bds_service, bds_operator;
grant execute on function bds.import_note_places(text, uuid, bigint[], text[]) to bds_writer, bds_operator;

grant execute on function bds.backlog(int) to bds_service, bds_operator;

-- accounts: the service alone sees hashes and the secret, and that by functions; the operator sees who there is
grant select (id, email, companies, created_at, last_login_at) on bds.users to bds_operator;
grant select on bds.sessions, bds.wrong_credentials to bds_operator;
grant execute on function
    bds.note_use(uuid), bds.password_of(text), bds.begin_session(uuid, text, interval, text), bds.session(uuid), bds.end_session(uuid),
    bds.keep_secret(text, text), bds.count_wrong(inet, int), bds.begin_attempt(inet, int),
    bds.end_attempt(inet, timestamptz, boolean), bds.forget_wrong()
    to bds_service;
grant execute on function bds.create_user(text, text, text[]), bds.delete_user(text) to bds_operator;
grant execute on function bds.set_password(text, text) to bds_service, bds_operator;

-- the web pages
grant execute on function bds.count_rows(text, int), bds.count_changes(text, timestamptz[]) to bds_reader, bds_operator;
grant execute on function bds.keys_of(text[]), bds.whole_tenants(text[]) to bds_service, bds_operator;
