-- The id and time after a record are computed, and an infinite time would end sealing or verifying.
-- Not valid: what a superuser has written before stops no upgrade.

alter table bds.server_audit
    add constraint ids_go_on check (id < 9223372036854775807) not valid,
    add constraint times_are_finite check (isfinite(at)) not valid;
alter table bds.company_audit
    add constraint ids_go_on check (id < 9223372036854775807) not valid,
    add constraint times_are_finite check (isfinite(at)) not valid;
alter table bds.clocks
    add constraint ids_go_on check (last_id >= 0 and last_id < 4611686018427387904) not valid;
alter table bds.change_months
    add constraint ids_go_on check (first_id > 0 and first_id < 9223372036854775807) not valid,
    add constraint months_are_finite check (isfinite(month)) not valid;
alter table bds.seal_positions
    add constraint ids_go_on check (
        sealed_id >= 0 and verified_id >= 0 and greatest(sealed_id, verified_id) < 9223372036854775807
    ) not valid,
    add constraint times_are_finite check (isfinite(waits_since) and isfinite(begun_at) and isfinite(verified_at)) not valid;
