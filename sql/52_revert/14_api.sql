-- Undoing in SQL: listed, run and ended as an import.  All is written in one transaction.

create function bds_revert.open(company text, actor text, dry_run boolean, selection jsonb, force boolean, claimed_id uuid)
    returns uuid
    language plpgsql
    -- the lookups of rows are compared with stored values as texts
    set datestyle = 'ISO, MDY'
    set timezone = 'UTC'
    set intervalstyle = 'iso_8601'
    set bytea_output = 'hex'
    set extra_float_digits = 1
as $$
declare
    checked   jsonb := bds_revert.checked(company, selection);
    import_id uuid;
begin
    insert into bds.imports (company_id, id, actor, dry_run, state, atomic, reverts, undoes, is_forced)
    values (
        company, coalesce(claimed_id, gen_random_uuid()), actor, dry_run, 'running', 'false', (checked ->> 'changeSet')::uuid,
        checked || jsonb_strip_nulls(jsonb_build_object('late', bds_revert.late_entities(company, checked))), force
    )
    returning id into import_id;
    return import_id;
end
$$;
comment on function bds_revert.open(text, text, boolean, jsonb, boolean, uuid) is
    'Lists an undo among the imports; raises as bds_revert.checked';

create function bds_revert.preview(import bds.imports)
    returns jsonb
    language sql
    stable
    security definer  -- bds_importer has no right to read all that an undo reads
    set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        jsonb_agg(
            jsonb_build_object(
                'row', format('%s/%s', l.entity, l.row_id), 'operation', l.operation, 'columns', to_jsonb(c.columns),
                'old', case when l.operation <> 'create' then l.old end,
                'new', case l.operation
                    when 'create' then r.row
                    when 'update' then (select jsonb_object_agg(k, r.row -> k) from unnest(c.columns) k)
                end
            )
            order by l.id
        ),
        '[]'
    )
    from (
        select l.* from bds.change_log l
        where l.company_id = import.company_id and l.change_set_id = import.id and (l.operation <> 'update' or l.old <> '{}')
            and l.created_at > transaction_timestamp() - interval '1 day'
        order by l.id
        limit 1000
    ) l
    cross join lateral (
        select case when l.operation <> 'delete' then bds_change_log.row_now(import.company_id, l.entity, l.row_id) end
    ) r (row)
    cross join lateral (
        select array(select jsonb_object_keys(case l.operation when 'create' then r.row else l.old end))
    ) c (columns);
$$;
comment on function bds_revert.preview(bds.imports) is
    'The first 1,000 rows that an undo has changed: [{row, operation, columns, old, new}]';

create function bds_revert.run(company text, selection jsonb, dry_run boolean, force boolean, actor text default null)
    returns jsonb
    language plpgsql
as $$
declare
    named_actor      text := current_setting('bds.actor', true);
    named_change_set text := current_setting('bds.change_set', true);
    report           jsonb;
begin
    report := bds.import_run(company, bds.import_begin(company, actor, dry_run, undoes => selection, force => force));
    perform set_config('bds.actor', coalesce(named_actor, ''), true),
        set_config('bds.change_set', coalesce(named_change_set, ''), true);
    return report;
end
$$;
comment on function bds_revert.run(text, jsonb, boolean, boolean, text) is
    'Undoes what is selected, in a change set of its own; returns its report';

create or replace function bds.revert(
    company text, change_set uuid, dry_run boolean default false, force boolean default false, actor text default null
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if change_set is null then
        raise exception using errcode = 'BD002', message = 'no such change set: null';
    end if;
    return bds_revert.run(company, jsonb_build_object('changeSet', change_set), dry_run, force, actor);
end
$$;
comment on function bds.revert(text, uuid, boolean, boolean, text) is
    'Undoes a change set, in a change set of its own: what it created goes, what it deleted comes back under its id, what it '
    'changed gets its old values. Rows that were changed later stay, unless force, and so do rows that are referred to. Returns a '
    'report as an import''s';

create or replace function bds.restore(
    company text, version bigint, entities text[] default null, rows text[] default null, dry_run boolean default false,
    force boolean default false
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_revert.run(
        company,
        jsonb_build_object('to', version) || jsonb_strip_nulls(jsonb_build_object('entities', entities, 'rows', rows)),
        dry_run, force
    );
end
$$;
comment on function bds.restore(text, bigint, text[], text[], boolean, boolean) is
    'Makes the rows as they were at a version, in a change set of its own; of these entities, or rows such as products/code:A1, '
    'with their children. What was registered later stays. Returns a report as an import''s';

create or replace function bds.revert_range(
    company text, from_version bigint, to_version bigint default null, entities text[] default null, rows text[] default null,
    changes_of text default null, dry_run boolean default false, force boolean default false
)
    returns jsonb
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    return bds_revert.run(
        company,
        jsonb_build_object('from', from_version) || jsonb_strip_nulls(
            jsonb_build_object('to', to_version, 'entities', entities, 'rows', rows, 'actor', changes_of)
        ),
        dry_run, force
    );
end
$$;
comment on function bds.revert_range(text, bigint, bigint, text[], text[], text, boolean, boolean) is
    'Undoes the changes after one version up to another, or all after it, in a change set of its own; those of an actor, of '
    'entities, of rows with their children. Rows that were changed later stay, unless force. Returns a report as an import''s';
