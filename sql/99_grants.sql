-- What each role may do.  The reader: the views.  The writer: business rows of the company it has named, and imports.  The service:
-- accounts.  The operator: everything, of every company; but entities are registered by members of bds_owner, to whom the tables
-- belong.  None of them may change the log.

revoke all on all functions in schema bds from public;
revoke all on all functions in schema bds_log from public;

grant usage on schema bds, api to bds_reader, bds_writer, bds_service, bds_operator;
grant usage on schema data to bds_writer, bds_operator;
grant usage, create on schema staging to bds_writer;

grant select on bds.entities, bds.fields, bds.navigations to bds_reader, bds_writer, bds_service, bds_operator;
grant select on bds.changes, bds.positions to bds_reader, bds_writer, bds_operator;
grant select on bds.tenants, bds.companies, bds.clocks, bds.change_log to bds_operator;
grant select on bds.api_keys to bds_service, bds_operator;

grant execute on function bds.is_operator(), bds.current_company(), bds.require_company(text), bds.company_tenant(text)
    to bds_reader, bds_writer, bds_service, bds_operator;
grant execute on function bds.authenticate(bytea) to bds_reader, bds_service;
grant execute on function bds.set_context(text, text, uuid), bds.lock_company(text) to bds_writer, bds_operator;
grant execute on function bds.create_key(bytea, text, text[], text, text[], timestamptz), bds.revoke_key(uuid)
    to bds_service, bds_operator;
grant execute on function
    bds.create_company(text, text)
    to bds_operator;

grant execute on function bds.reap_imports(interval), bds.make_partitions(int) to bds_service, bds_operator;

-- imports run with the writer's own rights
grant select on bds.import_columns to bds_writer, bds_operator;
grant usage, create on schema staging to bds_operator;
grant execute on function
    bds.staging_table(bigint, text), bds.find_import(text, uuid, text), bds.import_report(text, uuid, boolean)
    to bds_reader, bds_writer, bds_operator;
grant execute on function
    bds.import_begin(text, text, boolean), bds.import_stage(text, uuid, text), bds.check_staging_company(),
    bds.import_received(text, uuid, text, bigint, bigint), bds.import_progress(text, uuid, bigint, bigint, bigint),
    bds.import_run(text, uuid, text), bds.import_drop_staging(bigint), bds.import_fail(text, uuid, text),
    bds.import_add_error(text, uuid, text, text, text, text), bds.import_finish(text, uuid, jsonb, boolean), bds.root_of(text),
    bds.import_order(bigint), bds.staged_text(text), bds.staged_is_valid(text, text, text), bds.staged_value(text, text, text),
    bds.expected_value(text, text), bds.staged_columns(bigint, text), bds.import_prepare(text, uuid), bds.import_drop_temporary(),
    bds.plan_for(bigint), bds.count_staged(bigint), bds.analyze_changed(jsonb), bds.import_prepare_family(text, bds.imports, text[]), bds.check_values(bigint, text, text[]), bds.lookup_kind(text),
    bds.lookup_value(text), bds.lookup_id(text), bds.lookup_kinds(text), bds.map_by_keys(text, bigint, text, text[]),
    bds.check_keys(text, bigint, text, text[]), bds.resolve_references(text, bigint, text, text[]), bds.check_required(bigint, text),
    bds.make_diff(text, bigint, text, text[]), bds.check_constraints(text, bigint, text), bds.mark_failed(bds.imports, text[]),
    bds.spread_failures(bds.imports, text[]), bds.parent_of(text), bds.fail_batches(bigint, text), bds.fail_orphans(bigint, text[]),
    bds.import_may_write(text, uuid), bds.import_write(text, uuid, text), bds.import_remove(text, uuid, text, jsonb),
    bds.import_collect_errors(text, uuid), bds.place_of_rows(bigint, text), bds.linkage_threshold(),
    bds.linkage_columns(text, text[]), bds.map_by_linkage(text, bigint, text, text[]),
    bds.cook_rows(text, bigint, bds.entities, text[]), bds.find_candidates(text, bds.entities, text[]), bds.link_named(text),
    bds.link_equals(text, text[]), bds.link_by_weight(text, text[])
    to bds_writer, bds_operator;

-- hooks are registered by the service, of the company that its session has named; the worker matches and delivers for every company
grant usage on schema bds, api to bds_worker;
grant select on bds.hook_columns to bds_worker, bds_operator;
grant execute on function
    bds.api_time(timestamptz), bds.hook_json(bds.hooks, text), bds.delivery_json(bds.deliveries), bds.find_hook(text, uuid), bds.make_secret(),
    bds.last_change(text), bds.create_hook(text, text, text, text, text[], boolean, boolean, jsonb, text),
    bds.store_filters(text, bds.hooks, jsonb), bds.hold_routing(text),
    bds.update_hook(text, uuid, text, text, text, text[], boolean, boolean, jsonb, text, text), bds.delete_hook(text, uuid),
    bds.cancel_queued(text, uuid), bds.test_hook(text, uuid), bds.retry_delivery(text, uuid, uuid), bds.wake_hook(text, uuid),
    bds.plan_batches(text[], uuid[], timestamptz), bds.make_batches_of(text[], uuid[], timestamptz)
    to bds_service, bds_worker, bds_operator;
grant execute on function
    bds.refit_hook(text, uuid, jsonb, text, text), bds.overlay(jsonb, jsonb), bds.undo(jsonb), bds.companies_behind(text[]), bds.route_changes(text, interval, bigint),
    bds.match_changes(text, text, bigint, bigint, timestamptz), bds.match_where(text, text), bds.match_branch(text, text, text[]),
    bds.queue_filtered(text, text, bigint, bigint, timestamptz, text[]), bds.changed_rows(text),
    bds.queue_matches(text, text, bigint, bigint, timestamptz, text, text), bds.make_batches(int),
    bds.claim_deliveries(int, interval), bds.lock_leases(jsonb), bds.record_attempts(jsonb, double precision[], interval),
    bds.end_leases(jsonb, uuid[], uuid[], interval), bds.renew_leases(jsonb, interval), bds.release_leases(jsonb), bds.next_due(),
    bds.forget_deliveries(interval, int)
    to bds_worker, bds_operator;
