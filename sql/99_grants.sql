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

-- mappers: read by everyone who acts for the company, written by the service
grant select on bds.mappers to bds_reader, bds_writer, bds_operator;
grant execute on function bds.put_mapper(text, text, text, text, text), bds.delete_mapper(text, text) to bds_service, bds_operator;
grant execute on function bds.import_note_places(text, uuid, bigint[], text[]) to bds_writer, bds_operator;
