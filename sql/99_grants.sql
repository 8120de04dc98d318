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
    bds.create_company(text, text), bds.make_partitions(int)
    to bds_operator;
