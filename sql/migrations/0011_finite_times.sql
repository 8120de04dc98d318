-- Times that end no round: after a record at infinity none could get a later time, and a log that was verified then never would be again.
-- Not valid: what a superuser has written before stops no upgrade.

alter table bds.server_audit add constraint at_is_finite check (isfinite(at)) not valid;
alter table bds.company_audit add constraint at_is_finite check (isfinite(at)) not valid;
alter table bds.seal_positions
    add constraint times_are_finite check (isfinite(waits_since) and isfinite(begun_at) and isfinite(verified_at)) not valid;
