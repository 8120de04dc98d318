-- Rows that are looked up one by one need no leave of the planner; whether rows are written by their key is said with the statement.
drop function if exists bds.probe_if_few(bigint, bigint);
drop function if exists bds.merge_statement(text, text, jsonb);
drop function if exists bds.delete_removed(text, regclass, bigint);
