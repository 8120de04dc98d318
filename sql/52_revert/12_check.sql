-- Reverting: what cannot be undone because of other rows.  A row that stays may keep others, so the checks repeat until
-- none fails another row.

create function bds_revert.check(company text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this   record;
    failed bigint;
begin
    loop
        failed := 0;
        for this in select * from pg_temp.revert_entities e order by e.rank desc loop
            failed := failed + bds_revert.find_used(company, this);
        end loop;
        for this in select * from pg_temp.revert_entities e order by e.rank loop
            failed := failed + bds_revert.find_taken(company, this) + bds_revert.find_missing(company, this);
        end loop;
        exit when failed = 0;
    end loop;
end
$$;
comment on function bds_revert.check(text) is
    'Fails rows that are to go and are referred to, rows whose unique values belong to others, and rows that refer to rows that do not exist';

create function bds_revert.find_used(company text, this record)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    use    record;
    failed bigint := 0;
begin
    for use in
        -- whatever the foreign key would do: rows that the change set did not create keep what they refer to
        select u.name, u.table_name, x.name is not null as is_reverted, c.condition, c.leaves
        from pg_constraint k
        join bds.entities u on u.table_name = k.conrelid
        cross join lateral (
            select string_agg(format('t.%I = o.%I', a.attname, b.attname), ' and ') as condition,
                string_agg(bds_impl.fill('x.{column:I} is distinct from t.{column:I}', 'column', a.attname), ' or ')
                    filter (where a.attname in (select o.column_name from bds_revert.columns_of(u.name) o)) as leaves
            from unnest(k.conkey, k.confkey) as p (own, other)
            join pg_attribute a on a.attrelid = k.conrelid and a.attnum = p.own
            join pg_attribute b on b.attrelid = k.confrelid and b.attnum = p.other
        ) c
        left join pg_temp.revert_entities x on x.name = u.name
        where k.contype = 'f' and k.confrelid = this.table_name and this.deletes
    loop
        failed := failed + bds_revert.fail(
            this.name,
            bds_impl.fill(
                $sql$
                select d."@n" as n, null as field, 'in_use' as code, format('%s %s refers to it', {user:L}, min(t.id)) as message
                from pg_temp.{rows:I} d
                join {used} o on o.company_id = (select $1) and o.id = d.id
                join {table} t on {condition}
                where d."@action" = 'delete' and not d."@failed" {staying}
                group by d."@n"
                $sql$,
                'rows', 'revert_' || this.name, 'used', this.table_name::text, 'user', use.name, 'table', use.table_name::text,
                'condition', use.condition,
                'staying', case when use.is_reverted then bds_impl.fill(
                    $sql$
                    and not exists (
                        select from pg_temp.{users:I} x
                        where x.id = t.id and not x."@failed" and (x."@action" = 'delete' or x."@action" = 'update' and ({leaves}))
                    )
                    $sql$,
                    'users', 'revert_' || use.name, 'leaves', coalesce(use.leaves, 'false')
                ) else '' end
            ),
            company
        );
    end loop;
    return failed;
end
$$;
comment on function bds_revert.find_used(text, record) is
    'Fails the rows of an entity that are to go and to which rows of entities refer that stay; returns how many';

-- No role of the service need be allowed to read other tables of the owner that refer to rows.  Those whose key would refuse the delete
-- do so; where it would not, the statistics of the transaction show that rows have changed or are gone (bds_revert.delete_rows).

create function bds_revert.note_referrers()
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    insert into pg_temp.revert_referrers (entity, table_name, rule)
    with recursive reached (entity, table_name) as (  -- by the delete of a row: its table, and those of rows that go with it
        select e.name, e.table_name from pg_temp.revert_entities e
        union
        select r.entity, u.table_name
        from reached r
        join pg_constraint k on k.contype = 'f' and k.confrelid = r.table_name and k.confdeltype = 'c' and k.conparentid = 0
        join bds.entities u on u.table_name = k.conrelid
    )
    select distinct e.entity, p.relid, k.conname
    from reached e
    join pg_constraint k on k.contype = 'f' and k.confrelid = e.table_name and k.confdeltype in ('c', 'n', 'd') and k.conparentid = 0
    cross join lateral (select k.conrelid::regclass union select t.relid from pg_partition_tree(k.conrelid) t) p (relid)
    where not exists (select from bds.entities u where u.table_name = k.conrelid);
    if found and not current_setting('track_counts')::boolean then
        raise exception using
            errcode = 'BD004', message = 'track_counts is off, so an undo cannot tell whether deletes change rows of tables that are not registered',
            hint = 'set track_counts = on';
    end if;
end
$$;
comment on function bds_revert.note_referrers() is
    'Fills revert_referrers; BD004 if the database does not count what a transaction does to tables';

create function bds_revert.losses()
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select jsonb_object_agg(
            r.table_name::oid, pg_stat_get_xact_tuples_updated(r.table_name) + pg_stat_get_xact_tuples_deleted(r.table_name)
        )
        from pg_temp.revert_referrers r
    );
end
$$;
comment on function bds_revert.losses() is
    'The rows of the tables of revert_referrers that this transaction has changed or deleted: {oid: number}, null without tables';

create function bds_revert.find_taken(company text, this record)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    key    record;
    failed bigint := 0;
begin
    for key in
        select * from bds_revert.columns_of(this.name) c where c.is_unique and (this.creates or c.column_name = any (this.touched))
    loop
        failed := failed + bds_revert.fail(
            this.name,
            bds_impl.fill(
                $sql$
                select h.n, {field:L} as field, 'conflict' as code, format('%s %s has this value now', {entity:L}, min(h.holder)) as message
                from ({holders}) h
                where not h.is_leaving
                group by h.n
                $sql$,
                'field', key.field, 'entity', this.name, 'holders', bds_revert.holders(this.name, this.table_name, key.column_name)
            ),
            company
        );
    end loop;
    return failed;
end
$$;
comment on function bds_revert.find_taken(text, record) is
    'Fails the rows of an entity that are to get a unique value which another row has and keeps; returns how many';

create function bds_revert.holders(entity_name text, table_name regclass, column_name name)
    returns text
    language sql
    immutable
    set search_path = pg_catalog, pg_temp
as $$
    select bds_impl.fill(
        $sql$
                select u."@n" as n, t.id as holder, x.id is not null as is_leaving
                from pg_temp.{rows:I} u
                join {table} t on t.company_id = (select $1) and t.{column:I} = u.{column:I} and t.id <> u.id
                left join pg_temp.{rows:I} x on x.id = t.id and not x."@failed"
                    and (x."@action" = 'delete' or x."@action" = 'update' and x.{column:I} is distinct from t.{column:I})
                where u."@action" in ('create', 'update') and not u."@failed"
        $sql$,
        'rows', 'revert_' || entity_name, 'table', table_name::text, 'column', column_name
    );
$$;
comment on function bds_revert.holders(text, regclass, name) is
    'SQL for the rows that have a unique value which another row is to get: n of that one, holder, is_leaving if the holder goes or '
    'gets another value';

create function bds_revert.find_missing(company text, this record)
    returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    reference record;
    failed    bigint := 0;
begin
    for reference in
        select c.*, e.table_name, x.name is not null as is_reverted
        from bds_revert.columns_of(this.name) c
        join bds.entities e on e.name = c.target
        left join pg_temp.revert_entities x on x.name = c.target
        where this.creates or c.column_name = any (this.touched)
    loop
        failed := failed + bds_revert.fail(
            this.name,
            bds_impl.fill(
                $sql$
                select u."@n" as n, {field:L} as field, 'conflict' as code,
                    format('%s %s, to which it referred, does not exist any more', {target:L}, u.{column:I}) as message
                from pg_temp.{rows:I} u
                where u."@action" in ('create', 'update') and not u."@failed" and u.{column:I} is not null
                    and not exists (select 1 from {table} t where t.company_id = (select $1) and t.id = u.{column:I})
                    {coming}
                $sql$,
                'rows', 'revert_' || this.name, 'field', reference.field, 'target', reference.target, 'column', reference.column_name,
                'table', reference.table_name::text,
                'coming', case when reference.is_reverted then bds_impl.fill(
                    'and not exists (select from pg_temp.{targets:I} x where x.id = u.{column:I} and x."@action" = ''create'' and not x."@failed")',
                    'targets', 'revert_' || reference.target, 'column', reference.column_name
                ) else '' end
            ),
            company
        );
    end loop;
    return failed;
end
$$;
comment on function bds_revert.find_missing(text, record) is
    'Fails the rows of an entity that would refer to rows that do not exist; returns how many';
