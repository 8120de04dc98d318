-- The id and time after a record are computed, and a log that was verified at infinity never would be again.
-- Not valid: what a superuser has written before stops no upgrade.

alter table bds.server_audit
    add constraint ids_go_on check (id < 9223372036854775807) not valid,
    add constraint times_are_finite check (isfinite(at)) not valid;
alter table bds.company_audit
    add constraint ids_go_on check (id < 9223372036854775807) not valid,
    add constraint times_are_finite check (isfinite(at)) not valid;
alter table bds.seal_positions
    add constraint times_are_finite check (isfinite(waits_since) and isfinite(begun_at) and isfinite(verified_at)) not valid;
