-- The feed's comparison: functions that are no more, or whose parameters or results have changed since.
drop function if exists bds.staged_columns(bigint, text);
drop function if exists bds.check_keys(text, bigint, text, text[]);
drop function if exists bds.refers_outside(text, text[]);
drop function if exists bds.number_new_rows(text, regclass);
drop function if exists bds.comparison(text, text[], regclass, text, boolean);
drop function if exists bds.import_drop_temporary();
