-- Imports run as a role of their own: what is staged belongs to it, and nobody else reads, changes or drops it.

reset role;  -- the owner of the schemas makes no roles
do $$
begin
    begin
        create role bds_importer nologin;
    exception when duplicate_object or unique_violation then
        null;  -- another database of this cluster has made it, or is making it now
    end;
    grant bds_writer to bds_importer;  -- what it writes, it writes under the same row level security
    grant bds_importer, bds_reader to bds_owner;
    if not pg_has_role(current_user, 'bds_importer', 'set') then
        execute format('grant bds_importer to %I', current_user);
    end if;
exception when unique_violation then
    null;
end
$$;
set local role bds_owner;

revoke create on schema staging from bds_writer, bds_operator;

-- functions that are no more, or whose parameters have changed since
drop function if exists bds.merge_diff(text, text, text, bigint[], jsonb);
drop function if exists bds.import_mass_update(text, uuid, text, bigint[]);
drop function if exists bds.find_hits(text, bigint, text, bigint);
drop function if exists bds.check_change(text, bigint, text, text[], bigint);
drop function if exists bds.step_ordinals(text, text);
drop function if exists bds.write_in_halves(text, uuid, text, text, bigint[]);
drop function if exists bds.import_delete(text, uuid, text, jsonb, bigint[]);
drop function if exists bds.delete_gone(text, text, jsonb);
drop function if exists bds.keep_in_use(text, bds.imports, text);
drop function if exists bds.import_remove(text, uuid, text, jsonb, bigint[]);
drop function if exists bds.import_remove_all(text, uuid, text, jsonb);
