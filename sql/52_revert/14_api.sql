-- Undoing in SQL: listed, run and ended as an import.  All is written in one transaction.

create function bds_revert.open(company text, actor text, dry_run boolean, change_set uuid, force boolean)
    returns uuid
    language plpgsql
as $$
declare
    import_id uuid;
begin
    perform bds_revert.require(company, change_set);
    insert into bds.imports (company_id, actor, dry_run, state, atomic, reverts, is_forced)
    values (company, actor, dry_run, 'running', 'false', change_set, force)
    returning id into import_id;
    return import_id;
end
$$;
comment on function bds_revert.open(text, text, boolean, uuid, boolean) is
    'Lists the revert of a change set among the imports; raises as bds_revert.require';

create or replace function bds.revert(
    company text, change_set uuid, dry_run boolean default false, force boolean default false, actor text default null
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    named_actor      text := current_setting('bds.actor', true);
    named_change_set text := current_setting('bds.change_set', true);
    report           jsonb;
begin
    if change_set is null then
        raise exception using errcode = 'BD002', message = 'no such change set: null';
    end if;
    report := bds.import_run(company, bds.import_begin(company, actor, dry_run, reverts => change_set, force => force));
    perform set_config('bds.actor', coalesce(named_actor, ''), true),
        set_config('bds.change_set', coalesce(named_change_set, ''), true);
    return report;
end
$$;
comment on function bds.revert(text, uuid, boolean, boolean, text) is
    'Undoes a change set, in a change set of its own: what it created goes, what it deleted comes back under its id, what it '
    'changed gets '
    'its old values. Rows that were changed later stay, unless force, and so do rows that are referred to. Returns a report as '
    'an import''s';
