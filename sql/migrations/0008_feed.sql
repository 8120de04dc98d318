-- Imports: collections that are given whole, and the wish that one ends.

set local role bds_owner;

alter table bds.imports
    add column remove_all text[] not null default '{}',
    add column is_cancelled boolean not null default false;
comment on column bds.imports.remove_all is 'Entities whose rows go unless the document has them';
comment on column bds.imports.is_cancelled is 'Somebody asked for its end: the process that runs it sees to it';

-- an import that fails whole says why, by the codes of the answer that it was given
alter table bds.import_errors
    drop constraint code_is_known,
    add constraint code_is_a_word check (code ~ '^[a-z_]+$');

-- functions whose parameters have changed since
drop function if exists bds.import_fail(text, uuid, text);
drop function if exists bds.fail_batches(bigint, text);
drop function if exists bds.import_run(text, uuid, text);
drop function if exists bds.import_received(text, uuid, text, bigint, bigint);
drop function if exists bds.import_remove(text, uuid, text, jsonb);
drop function if exists bds.import_finish(text, uuid, jsonb, boolean);
drop function if exists bds.import_add_error(text, uuid, text, text, text, text);
drop function if exists bds.check_constraints(text, bigint, text);
drop function if exists bds.make_diff(text, bigint, text, text[]);
-- and those that are no more
drop function if exists bds.link_equals(text, text[]);
drop function if exists bds.link_by_weight(text, text[]);
