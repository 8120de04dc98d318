-- Undoing: whether the rows have their new values when all are written.  A trigger of the owner may have changed, removed or kept
-- some: these are written once more, and if a row still differs, nothing is undone.

create function bds_revert.verify(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    this record;
    odd  jsonb;
begin
    perform bds_feed.fire_deferred(import);  -- so that what deferred triggers do is compared
    if bds_revert.odd_rows(import.company_id) is null then
        return;
    end if;
    begin
        for this in select f.name from pg_temp.feed_entities f loop
            execute format('select bds_import.%I($1)', 'redo_' || this.name) using import.company_id;
        end loop;
        perform bds_revert.apply(import);
    exception when others then
        if sqlstate <> 'BDF01' and not bds_feed.is_fault_of_rows(import, sqlstate) then
            raise;
        end if;
    end;
    odd := bds_revert.odd_rows(import.company_id);
    if odd is not null then
        raise exception using errcode = 'BDF01', message = 'rows are not as they were to become', detail = odd, hint = 'all';
    end if;
end
$$;
comment on function bds_revert.verify(bds.imports) is
    'Writes rows once more that differ from their new values; the detail of BDF01, with the hint all, is those that still do. '
    'BDF03 if a deferred constraint is violated';

create function bds_revert.odd_rows(company text)
    returns jsonb
    language plpgsql
    set timezone = 'UTC'
    set intervalstyle = 'postgres'
    set bytea_output = 'hex'
as $$
declare
    this record;
    part jsonb;
    odd  jsonb;
begin
    for this in select f.name, f.columns from pg_temp.feed_entities f order by f.rank loop
        execute format(
            $sql$
            select jsonb_agg(jsonb_build_object(
                'entity', %L, 'ordinal', o.n, 'field', o.field, 'code', 'conflict', 'message', case
                    when not o.is_there then 'a trigger removes the row'
                    when not o.is_wanted then 'a trigger keeps the row'
                    else format('a trigger changes it: expected %%s, found %%s', left(o.wanted, 200), left(o.found, 200))
                end))
            -- offset 0: for the first 10,000 the planner would look up each row, though mostly there is none
            from (select * from (select * from bds_import.%I($1, $2) offset 0) w order by w.n limit 10000) o
            $sql$,
            this.name, 'odd_' || this.name
        ) into part using company, this.columns;
        odd := case when part is null then odd else coalesce(odd, '[]') || part end;
    end loop;
    return odd;
end
$$;
comment on function bds_revert.odd_rows(text) is
    'Errors of the rows that differ from their new values, up to 10,000 of an entity, null if there are none';
