-- Reverting: what a change set did, read from the change log.  The tables of a revert are temporary:
--
--     revert_rows      each row whose own fields the change set changed: entity, id, n (its number, in the order of writing);
--                      first_id and since (its first record), last_id, existed (before), is_whole (old has every field),
--                      old (the values before, by present API names), later and later_by (the last change by others), erased (fields
--                      whose old values were erased); left_as, the values that it left and others changed, null if they did so before
--                      its last record, and has_left, whether it left a row
--     revert_entities  their entities that are registered: name, rank, table_name, touched (columns of which old values are known),
--                      creates (whether rows come back), updates (whether rows change), deletes (whether rows go)
--     revert_referrers tables that are not registered and whose rows would change or go with rows of an entity: entity, table_name, rule
--                      (the foreign key)
--     revert_errors    why rows stay as they are: entity, n, field, code, message
--     revert_E         the rows of entity E (11_compare.sql)

create function bds_revert.past_names()
    returns table (entity text, since timestamptz, until timestamptz, names jsonb, texts jsonb)
    language sql
    stable
    rows 5
    set search_path = pg_catalog, pg_temp
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
    'For each period in which columns of an entity had other names than now, or were others, what they are called now '
    '(bds_change_log.names_at), and which were text in another form (bds_change_log.texts_at)';

create function bds_revert.require(company text, change_set uuid)
    returns timestamptz
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
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
    kept := bds.first_change(company);  -- with the log locked: no month goes until the end of the transaction
    if first.id is null and import.id is null then
        raise exception using errcode = 'BD002', message = format('company %s has no change set %s', company, change_set);
    elsif first.id is null and bds_revert.has_written(import)
        -- older records may be missing: the oldest change that is kept is one of the change set
        or first.id <= kept and kept > 1 and date_trunc('month', first.at, 'UTC') > coalesce(import.started_at, '-infinity')
    then
        raise exception using
            errcode = 'BD006',
            message = format('the log of company %s begins at version %s: not all changes of %s are kept', company, kept, change_set);
    end if;
    return first.at;
end
$$;
comment on function bds_revert.require(text, uuid) is
    'The time of the first change of a change set that can be reverted, null of an import that changed nothing; raises BD002 if '
    'there is no such change set, BD004 if it is an import under way, BD006 if its changes are no longer kept';

create function bds_revert.has_written(import bds.imports)
    returns boolean
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    select not import.dry_run and import.state in ('completed', 'partial') and exists (
        select from jsonb_each(import.entities) e cross join lateral jsonb_each_text(e.value) c
        where c.key in ('created', 'updated', 'deleted') and c.value::bigint > 0
    );
$$;
comment on function bds_revert.has_written(bds.imports) is 'Whether an import has changed any row';

create function bds_revert.make_tables()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    other name;
begin
    perform bds_feed.drop_tables();
    select c.relname into other from pg_class c where c.relnamespace = pg_my_temp_schema() and c.relname ^@ 'revert_';
    if found then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I, a name that the revert needs', other),
            hint = 'drop or rename it, or run the revert in another session';
    end if;
    create temporary table revert_rows (
        n bigint, entity text, id bigint, first_id bigint, last_id bigint, since timestamptz, existed boolean, is_whole boolean,
        old jsonb, later bigint, later_by text, has_left boolean, left_as jsonb, erased text[]
    ) on commit drop;
    create temporary table revert_entities (
        name text, rank int, table_name regclass, touched text[], creates boolean, updates boolean, deletes boolean
    ) on commit drop;
    create temporary table revert_referrers (entity text, table_name regclass, rule name) on commit drop;
    create temporary table revert_errors (entity text, n bigint, field text, code text, message text) on commit drop;
end
$$;
comment on function bds_revert.make_tables() is
    'Makes the tables of a revert; BD004 if a temporary table of somebody else''s has such a name';

create function bds_revert.read_log(company text, change_set uuid, since timestamptz)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    rows bigint;
begin
    -- Statements are planned with their values.  A record of a parent that only names a collection has no old values.
    execute $sql$
        insert into pg_temp.revert_rows (n, entity, id, first_id, last_id, since, existed, is_whole, old)
        select row_number() over (), c.entity, c.row_id, c.first_id, c.last_id, c.since, c.existed, c.is_whole,
            case when c.existed then c.old end
        from (
            select l.entity, l.row_id, min(l.id) as first_id, max(l.id) as last_id, min(l.created_at) as since,
                min(l.id) is distinct from min(l.id) filter (where l.operation = 'create') as existed,
                bool_or(l.operation = 'delete') as is_whole,
                past.merge(coalesce(bds_change_log.old_at(l.old, p.names, p.texts), l.old) order by l.id desc) as old
            from bds.change_log l
            left join bds_feed.entities e on e.name = l.entity
            left join bds_revert.past_names() p on p.entity = l.entity and l.created_at >= p.since and l.created_at < p.until
            where l.company_id = $1 and l.change_set_id = $2 and l.created_at >= $3 and (l.operation <> 'update' or l.old <> '{}')
            group by e.rank, l.row_id, l.entity
            order by e.rank, l.row_id
        ) c
    $sql$ using company, change_set, since;
    get diagnostics rows = row_count;
    analyze pg_temp.revert_rows;
    return rows;
end
$$;
comment on function bds_revert.read_log(text, uuid, timestamptz) is
    'Fills revert_rows with what a change set did, its first change being made at that time; returns the number of rows';

create function bds_revert.read_later(company text, change_set uuid)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    first record;
begin
    select min(r.first_id) as id, min(r.since) as at into first from pg_temp.revert_rows r;
    execute $sql$
        update pg_temp.revert_rows r set later = c.id, later_by = c.actor, has_left = c.has_left, left_as = c.left_as
        from (
            select r.n, max(l.id) as id, (array_agg(l.actor order by l.id desc))[1] as actor,
                min(l.id) is distinct from min(l.id) filter (where l.operation = 'create') as has_left,
                case when min(l.id) > r.last_id then
                    past.merge(coalesce(bds_change_log.old_at(l.old, p.names, p.texts), l.old, '{}') order by l.id desc)
                end as left_as
            from pg_temp.revert_rows r join bds.change_log l on l.row_id = r.id and l.entity = r.entity and l.id > r.first_id
            left join bds_revert.past_names() p on p.entity = l.entity and l.created_at >= p.since and l.created_at < p.until
            where l.company_id = $1 and l.id > $3 and l.created_at >= $4 and l.change_set_id is distinct from $2
                -- a change of nothing but children, or of columns that were dropped since, is none of the row
                and (l.operation <> 'update' or l.old <> '{}' and (p.names is null or exists (
                    select from jsonb_object_keys(bds_change_log.old_at(l.old, p.names, p.texts)) k
                    join bds.fields f on f.entity = l.entity and f.name = k
                )))
            group by r.n, r.last_id
        ) c
        where c.n = r.n
    $sql$ using company, change_set, first.id, first.at;
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
comment on function bds_revert.read_later(text, uuid) is
    'Notes in revert_rows the changes that others made later, what they have replaced, and the old values that were erased';
