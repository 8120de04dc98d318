-- The tables of the service: whose rows they have, what a dump and a move take along, and how long rows are kept.
--
-- A table that is added to schema bds is added here, else tests/database/test_tables.py fails.  Deleting, dumping, restoring and
-- moving a company go by bds_operation.company_tables, which is this list over the catalog; so do shards (02_shards), bds query
-- (app/places/everywhere.py) and the expiry of rows by bds.maintain.

create or replace view bds.tables (name, company_column, stands, is_dumped, is_moved, is_awaited, age_column, age, kept) as
select * from (values
    -- at home alone
    ('bds.tenants',           null::name,   'home',    false, false, false, null::name,    null, 'for ever'),
    ('bds.companies',         'id',         'home',    true,  false, false, null,          null, 'until bds.delete_company'),
    ('bds.api_keys',          'companies',  'home',    true,  false, false, null,          null,
        'until its last company is deleted, revoked or not'),
    -- bds.delete_company takes the company from users, and deletes those of it alone that administer nothing
    ('bds.users',             null,         'home',    false, false, false, null,          null,
        'until bds.delete_user, or its last company is deleted'),
    ('bds.sessions',          null,         'home',    false, false, false, null,          null,
        'until it ends, and to the next login'),
    ('bds.secrets',           null,         'home',    false, false, false, null,          null, 'for ever'),
    ('bds.wrong_credentials', null,         'home',    false, false, false, null,          null, 'a minute'),
    ('bds.wrong_logins',      null,         'home',    false, false, false, null,          null, 'an hour'),
    ('bds.login_networks',    null,         'home',    false, false, false, null,          null,
        '30 days after the last login from there, and to the next login'),
    ('bds.places',            null,         'home',    false, false, false, null,          null, 'until it is deleted by hand'),
    ('bds.directory',         'company_id', 'home',    false, false, false, null,          null, 'as long as the company'),
    ('bds.server_audit',      null,         'place',   false, false, false, null,          null, 'for ever'),
    ('bds.audit_pending',     null,         'place',   false, false, false, null,          null, 'until the transaction ends'),
    -- of a company, where it lives; its clock arrives last
    ('bds.clocks',            'company_id', 'company', true,  false, false, null,          null, 'as long as the company'),
    ('bds.change_log',        'company_id', 'company', true,  true,  false, null,          null,
        'as bds.set_retention says, for ever without'),
    ('bds.change_months',     'company_id', 'company', true,  true,  false, null,          null,
        'as long as the changes of the month'),
    ('bds.change_archive',    'company_id', 'company', true,  true,  false, null,          null, 'for ever'),
    ('bds.erasures',          'company_id', 'company', true,  true,  false, null,          null, 'for ever'),
    ('bds.versions',          'company_id', 'company', true,  true,  true,  null,          null, 'until bds.forget_version'),
    -- bds.maintain writes both in one transaction: what a move loses of it is counted again
    ('bds.counted_change_sets', 'company_id', 'company', true, true,  false, null,         null,
        'as long as the last change of the set'),
    ('bds.change_set_positions', 'company_id', 'company', true, true, false, null,         null, 'as long as the company'),
    ('bds.imports',           'company_id', 'company', true,  true,  false, 'finished_at', 'import_age',
        'BDS_IMPORT_RETENTION days after its end'),
    ('bds.import_errors',     'company_id', 'company', true,  true,  false, null,          null, 'as long as the import'),
    ('bds.import_keys',       'company_id', 'company', true,  true,  true,  null,          null,
        'a day, or until its import ends without an answer'),
    ('bds.company_audit',     'company_id', 'company', true,  true,  true,  null,          null, 'as long as the company'),
    -- of the company '' those of the server's audit; bds.maintain seals
    ('bds.seals',             'company_id', 'company', true,  true,  true,  null,          null, 'for ever'),
    ('bds.mappers',           'company_id', 'company', true,  true,  true,  null,          null, 'until bds.delete_mapper'),
    ('bds.hooks',             'company_id', 'company', true,  true,  true,  null,          null,
        'until its last delivery is, after bds.delete_hook'),
    ('bds.hook_secrets',      'company_id', 'company', true,  true,  true,  null,          null,
        'until bds.delete_hook; the previous one a day'),
    ('bds.hook_filters',      'company_id', 'company', true,  true,  true,  null,          null, 'until bds.delete_hook'),
    ('bds.hook_positions',    'company_id', 'company', true,  true,  true,  null,          null, 'as long as the company'),
    ('bds.hook_states',       'company_id', 'company', true,  true,  true,  null,          null, 'as long as the hook'),
    ('bds.hook_queue',        'company_id', 'company', true,  true,  true,  null,          null, 'until it is in a delivery'),
    ('bds.deliveries',        'company_id', 'company', true,  true,  true,  null,          null,
        'BDS_WEBHOOK_RETENTION days after its end (bds_service.forget_deliveries)'),
    ('bds.delivery_attempts', 'company_id', 'company', true,  true,  true,  null,          null, 'as long as the delivery'),
    ('bds.company_logins',    'company_id', 'company', false, false, false, null,          null,
        'until bds.revoke_company, or the company leaves'),
    ('bds.log_findings',      'company_id', 'company', false, false, false, null,          null, 'until the next bds.compare_log'),
    ('bds.seal_positions',    'company_id', 'company', false, false, false, null,          null, 'as long as the company'),
    ('bds.seal_findings',     'company_id', 'company', false, false, false, null,          null,
        'until the range is verified again'),
    ('data.*',                'company_id', 'company', true,  true,  false, null,          null,
        'until it is deleted; what it was, in bds.change_log'),
    ('staging.*',             'company_id', 'company', false, false, false, null,          null, 'until its import ends'),
    -- of this server
    ('bds.change_log_*',      'company_id', 'place',   false, false, false, null,          null,
        'until the detached month is dropped by hand'),
    ('bds.log_comparisons',   null,         'place',   false, false, false, null,          null, 'as long as the entity'),
    ('bds.problem_counts',    null,         'place',   false, false, false, null,          null, 'for ever'),
    ('bds.settings',          null,         'place',   false, false, false, null,          null, 'for ever'),
    ('bds.linkage_weights',   null,         'place',   false, false, false, null,          null, 'until it is deleted by hand'),
    ('bds.entities',          null,         'place',   false, false, false, null,          null, 'until bds.unregister'),
    ('bds.fields',            null,         'place',   false, false, false, null,          null, 'as long as the entity'),
    ('bds.navigations',       null,         'place',   false, false, false, null,          null, 'as long as the entity'),
    ('bds.column_history',    null,         'place',   false, false, false, null,          null, 'as long as the entity'),
    ('bds.generated',         null,         'place',   false, false, false, null,          null, 'as long as the entity')
) t;
comment on view bds.tables is
    'The tables of the service: whose rows they have, what dumps and moves of a company take along, how long rows are kept. '
    'data.* is every registered table, and every one of schema data with the company''s column';
comment on column bds.tables.name is
    'Schema and table; data.*: of entities, staging.*: of imports under way, bds.change_log_*: detached months';
comment on column bds.tables.company_column is 'The column that tells the company of a row; null: rows are not of one company';
comment on column bds.tables.stands is
    'home: rows are at home alone; company: where their company lives, and they are deleted where it has left; place: at each '
    'server its own';
comment on column bds.tables.is_dumped is 'Whether a dump of the company has its rows';
comment on column bds.tables.is_moved is 'Whether its rows are replicated when the company moves';
comment on column bds.tables.is_awaited is
    'Whether it is written without the company''s turn: the move of a company waits for transactions that have locked it';
comment on column bds.tables.age_column is
    'The time whose age decides when bds.maintain deletes a row; null: it deletes none by age';
comment on column bds.tables.age is 'The argument of bds.maintain that is the age';
comment on column bds.tables.kept is
    'How long a row is kept; all rows of a company go with it at the latest, but those of detached months';
