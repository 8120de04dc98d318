-- The feed's comparison: functions whose parameters have changed since.
drop function if exists bds.map_by_keys(text, bigint, text, text[]);
