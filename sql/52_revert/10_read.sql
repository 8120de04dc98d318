-- Undoing: the rows, their old values, and later changes by others, read from the change log into revert_rows.  The next steps read
-- only that table.  The tables of an undo are temporary; sql/50_feed/70_undo.sql describes those of its import:
--
--     revert_rows       rows of which own fields were changed: n (numbers them in the order of writing), entity, id;
--                       since, first_id (the first record that is undone), last_id (the last one); existed (before), is_whole
--                       (old has every field), old (the values before, by present API names), erased (fields whose old values
--                       were erased);
--                       later, later_by (the last change by others), left_as (the values that the records left and others changed,
--                       null if a change by others came before the last of them), has_left (the row existed after the records)
--     revert_scope      what is undone, if not all: entities, and rows of them; id is null for a whole entity
--     revert_referrers  tables that are not registered and whose foreign keys change or delete their rows with those of an entity:
--                       entity, table_name, rule (the foreign key)
--     revert_waits      values that are written last: entity, n, field, value; is_alone if nothing else of the row changes

create function bds_revert.past_names()
    returns table (entity text, since timestamptz, until timestamptz, names jsonb, texts jsonb)
    language sql
    stable
    rows 5
as $$
    select p.entity, p.since, p.until, bds_change_log.names_at(p.entity, p.since), bds_change_log.texts_at(p.entity, p.since)
    from (
        select h.entity, v.since, lead(v.since) over (partition by h.entity order by v.since) as until
        from bds.column_history h cross join lateral (values (h.since), (h.until)) as v (since)
        where v.since < 'infinity'
        group by h.entity, v.since
    ) p
    where p.until is not null;
$$;
comment on function bds_revert.past_names() is
    'For each period in which columns of an entity were others, or had other names: their present names '
    '(bds_change_log.names_at), and which were text in another form (bds_change_log.texts_at)';

create function bds_revert.require(company text, change_set uuid)
    returns timestamptz
    language plpgsql
    stable
as $$
declare
    import bds.imports;
    first  record;
    kept   bigint;
begin
    select * into import from bds.imports i where i.company_id = company and i.id = change_set;
    if import.id is not null and import.finished_at is null then
        raise exception using
            errcode = 'BD004', message = format('import %s is %s', change_set, import.state), hint = 'revert it when it has ended';
    end if;
    select min(l.id) as id, min(l.created_at) as at into first
    from bds.change_log l
    where l.company_id = company and l.change_set_id = change_set;
    kept := bds.first_change(company);  -- with the log locked: no month is dropped until the end of the transaction
    if first.id is null and import.id is null then
        raise exception using errcode = 'BD002', message = format('company %s has no change set %s', company, change_set);
    elsif first.id is null and bds_revert.has_written(import)
        or first.id < kept  -- what comes before a gap is of no use
        or kept > 1 and bds_revert.may_have_lost(
            company, change_set, kept,
            first.id = kept and date_trunc('month', first.at, 'UTC') > coalesce(import.started_at, '-infinity'))
    then
        raise exception using
            errcode = 'BD006', detail = jsonb_build_object('firstId', kept),
            message = format(
                'the log of company %s begins at version %s: not all changes of %s are kept', company, kept, change_set
            );
    end if;
    return first.at;
end
$$;
comment on function bds_revert.require(text, uuid) is
    'The time of the first change of a change set that can be reverted, null of an import that changed nothing; raises BD002 if '
    'there is no such change set, BD004 if it is an import under way, BD006 if its changes are no longer kept';

create function bds_revert.may_have_lost(company text, change_set uuid, kept bigint, is_first boolean)
    returns boolean
    language plpgsql
    stable
    security definer  -- bds_importer has no right to read months that are no part of the log
    set search_path = pg_catalog, pg_temp
as $$
declare
    counted record;
    log     regclass;
    is_in   boolean;
begin
    select s.first_id, s.noted_from into counted
    from bds.counted_change_sets s
    where s.company_id = company and s.change_set_id = change_set;
    if counted.noted_from >= kept then
        return false;  -- an import or revert notes all of its changes
    elsif counted.first_id < kept then
        return true;
    end if;
    -- months that are no part of the log any more, but are still there
    for log in select 'bds.change_archive'::regclass union all select m from bds_change_log.detached_months() m loop
        execute format('select exists (select from %s l where l.company_id = $1 and l.change_set_id = $2)', log)
            into is_in using company, change_set;
        if is_in then
            return true;
        end if;
    end loop;
    return is_first and not coalesce((
        select min(m.first_id) = 1 and bool_and(
            m.first_id >= kept
            or to_regclass('bds.' || bds_change_log.partition_of(m.month)) is not null
            or to_regclass('bds.' || bds_change_log.partition_of(m.month, 'change_archive')) is not null
        )
        from bds.change_months m
        where m.company_id = company
    ), false);
end
$$;
comment on function bds_revert.may_have_lost(text, uuid, bigint, boolean) is
    'Whether a change set has changes before the first one that is kept, as counts, archived and detached months tell; where a '
    'month was dropped, whether it may have, because it has the first one that is kept (is_first)';

create function bds_revert.has_written(import bds.imports)
    returns boolean
    language sql
    stable
as $$
    select not import.dry_run and import.state in ('completed', 'partial') and exists (
        select from jsonb_each(import.entities) e cross join lateral jsonb_each_text(e.value) c
        where c.key in ('created', 'updated', 'deleted') and c.value::bigint > 0
    );
$$;
comment on function bds_revert.has_written(bds.imports) is 'Whether an import has changed any row';

create function bds_revert.make_tables(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    other name;
begin
    perform bds_feed.begin_tables(import);
    select c.relname into other from pg_class c where c.relnamespace = pg_my_temp_schema() and c.relname ^@ 'revert_';
    if found then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I, a name that the revert needs', other),
            hint = 'drop or rename it, or run the revert in another session';
    end if;
    create temporary table revert_rows (
        n bigint, entity text, id bigint, since timestamptz, first_id bigint, last_id bigint, existed boolean, is_whole boolean,
        old jsonb, erased text[], later bigint, later_by text, left_as jsonb, has_left boolean
    ) on commit drop;
    create temporary table revert_scope (entity text, id bigint) on commit drop;
    create temporary table revert_referrers (entity text, table_name regclass, rule name) on commit drop;
    create temporary table revert_waits (
        entity text, n bigint, field text, value jsonb, is_alone boolean default false
    ) on commit drop;
end
$$;
comment on function bds_revert.make_tables(bds.imports) is
    'Makes the tables of an undo; BD004 if another temporary table has such a name';

create function bds_revert.selected(import bds.imports)
    returns text
    language sql
    immutable
as $$
    select format('(%s)', concat_ws(' and ',
        case when u ? 'changeSet' then format('coalesce(l.change_set_id = %L, false)', u ->> 'changeSet') end,
        case when u ? 'from' or u ? 'to' then format('l.id > %s', coalesce(u -> 'from', u -> 'to')) end,
        case when u ? 'from' and u ? 'to' then format('l.id <= %s', u -> 'to') end,
        case when u ? 'actor' then format('l.actor = %L', u ->> 'actor') end,
        case when u ? 'late' then format('l.entity <> all (array(select jsonb_array_elements_text(%L)))', u -> 'late') end,
        case when u ? 'entities' or u ? 'rows' then
            'exists (select from pg_temp.revert_scope s where s.entity = l.entity and (s.id is null or s.id = l.row_id))' end
    )) from (select import.undoes) s (u);
$$;
comment on function bds_revert.selected(bds.imports) is 'SQL: whether a record l of the log is one of those that are undone';

create function bds_revert.read(import bds.imports)
    returns bds.imports
    language plpgsql
as $$
declare
    since timestamptz := bds_revert.begins(import.company_id, import.undoes);
begin
    perform bds_revert.make_tables(import);
    raise notice 'reading the log: % of % rows done', 0, 1;
    perform bds_revert.read_scope(import, since);
    import.records := bds_revert.read_records(import.company_id, bds_revert.selected(import), coalesce(since, 'infinity'));
    perform bds_revert.read_later(import.company_id, bds_revert.selected(import));
    perform bds_revert.read_erased(import.company_id);
    perform bds_feed.open_tables(import, array(
        select distinct r.entity from pg_temp.revert_rows r join bds_feed.tables t on t.name = 'diff_' || r.entity));
    perform bds_revert.refuse_strangers();
    update pg_temp.feed_entities f set rows = (select count(*) from pg_temp.revert_rows r where r.entity = f.name);
    perform bds_revert.note_referrers();
    import.notices := bds_revert.leave_late(import);
    return import;
end
$$;
comment on function bds_revert.read(bds.imports) is
    'Makes the tables of an undo and fills revert_rows; returns the import with the number of rows and notices of what stays';

create function bds_revert.read_records(company text, selected text, since timestamptz)
    returns bigint
    language plpgsql
as $$
declare
    rows bigint;
begin
    -- Statements are planned with their values.  A record of a parent that only names a collection has no old values.
    execute bds_impl.fill(
        $sql$
        insert into pg_temp.revert_rows (n, entity, id, first_id, last_id, since, existed, is_whole, old)
        select row_number() over (), c.entity, c.row_id, c.first_id, c.last_id, c.since, c.existed, c.is_whole,
            case when c.existed then c.old end
        from (
            select l.entity, l.row_id, min(l.id) as first_id, max(l.id) as last_id, min(l.created_at) as since,
                min(l.id) is distinct from min(l.id) filter (where l.operation = 'create') as existed,
                bool_or(l.operation = 'delete') as is_whole,
                past.merge(
                    case when p.names is null then l.old else bds_change_log.old_at(l.old, p.names, p.texts) end
                    order by l.id desc
                ) as old
            from bds.change_log l
            left join bds_feed.entities e on e.name = l.entity
            left join bds_revert.past_names() p on p.entity = l.entity and l.created_at >= p.since and l.created_at < p.until
            where l.company_id = $1 and {selected} and l.created_at >= $2 and (l.operation <> 'update' or l.old <> '{}')
            group by e.rank, l.row_id, l.entity
            order by e.rank, l.row_id
        ) c
        $sql$,
        'selected', selected
    ) using company, since;
    get diagnostics rows = row_count;
    analyze pg_temp.revert_rows;
    return rows;
end
$$;
comment on function bds_revert.read_records(text, text, timestamptz) is
    'Fills revert_rows from the selected records, the first of which was made at that time; returns the number of rows';

create function bds_revert.read_later(company text, selected text)
    returns void
    language plpgsql
as $$
declare
    first record;
begin
    select min(r.first_id) as id, min(r.since) as at into first from pg_temp.revert_rows r;
    execute bds_impl.fill(
        $sql$
        update pg_temp.revert_rows r set later = c.id, later_by = c.actor, has_left = c.has_left, left_as = c.left_as
        from (
            select r.n, max(l.id) as id, (array_agg(l.actor order by l.id desc))[1] as actor,
                min(l.id) is distinct from min(l.id) filter (where l.operation = 'create') as has_left,
                case when min(l.id) > r.last_id then
                    past.merge(
                        coalesce(case when p.names is null then l.old else bds_change_log.old_at(l.old, p.names, p.texts) end, '{}')
                        order by l.id desc
                    )
                end as left_as
            from pg_temp.revert_rows r
            join bds.change_log l on l.row_id = r.id and l.entity = r.entity and l.id > r.first_id
            left join bds_revert.past_names() p on p.entity = l.entity and l.created_at >= p.since and l.created_at < p.until
            where l.company_id = $1 and l.id > $2 and l.created_at >= $3 and not {selected}
                -- the row itself is unchanged if only children changed, or columns that were dropped since
                and (l.operation <> 'update' or l.old <> '{}' and (p.names is null or exists (
                    select from jsonb_object_keys(bds_change_log.old_at(l.old, p.names, p.texts)) k
                    join bds.fields f on f.entity = l.entity and f.name = k
                )))
            group by r.n, r.last_id
        ) c
        where c.n = r.n
        $sql$,
        'selected', selected
    ) using company, first.id, first.at;
end
$$;
comment on function bds_revert.read_later(text, text) is
    'Notes in revert_rows later changes by others, and the values that they have replaced';

create function bds_revert.read_erased(company text)
    returns void
    language plpgsql
as $$
begin
    update pg_temp.revert_rows r set erased = x.fields
    from (
        select r.n, array_agg(distinct e.field) as fields
        from pg_temp.revert_rows r
        join (select e.*, unnest(e.columns) as field from bds.erasures e where e.company_id = company) e
            on e.entity = r.entity and e.row_id = r.id and e.erased_at >= r.since
        where r.old -> e.field = 'null'
        group by r.n
    ) x
    where x.n = r.n;
end
$$;
comment on function bds_revert.read_erased(text) is 'Notes in revert_rows which old values were erased';

create function bds_revert.refuse_strangers()
    returns void
    language plpgsql
as $$
begin
    with known as materialized (
        select f.name, min(h.since) as since
        from pg_temp.feed_entities f join bds.column_history h on h.entity = f.name
        group by f.name
    ),
    strangers as (
        delete from pg_temp.revert_rows r
        where not exists (select from known k where k.name = r.entity and k.since <= r.since)
        returning r.*
    )
    insert into pg_temp.feed_errors (entity, path, record, code, message, is_kept)
    select s.entity, format('%s/%s', s.entity, s.id), 'id:' || s.id, 'conflict',
        case when e.name is null or f.name is not null then format('%s is not an entity any more, or another table', s.entity)
            else format('%s has no column that can be written', s.entity) end,
        true
    from strangers s
    left join bds_feed.entities e on e.name = s.entity
    left join pg_temp.feed_entities f on f.name = s.entity;
end
$$;
comment on function bds_revert.refuse_strangers() is
    'Takes rows out of revert_rows, as errors, whose tables are no longer registered, were others then, or have no column that can '
    'be written: they stay';
