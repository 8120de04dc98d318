-- What is not as bds migrate has made it, each with the statement that makes it so again; a part of bds.problems.

create function bds_operation.mend_of(type text, object text, made text, present text)
    returns text
    language sql
    immutable
as $$
    select case
        when type = 'function' and made is null then format('drop routine %s', object)
        when type in ('function', 'view') then 'bds migrate'
        when type = 'table' and (made is null or made ~ 'p$') and present ~ 'u' then format('alter table %s set logged', object)
        when type = 'table' then null
        when type = 'row security' then
            format('alter table %s %s row level security', object, case when made is null then 'disable' else 'enable' end)
        when type = 'disabled trigger' then format('alter table %s enable trigger %s', o.relation, o.name)
        when type = 'constraint' then format('alter table %s %s', o.relation, concat_ws(
            ', ', case when present is not null then format('drop constraint %s', o.name) end,
            case when made is not null then format('add constraint %s %s', o.name, made) end
        ))
        else concat_ws('; ', case when present is not null then format('drop %s %s', type, object) end, made)
    end
    from (select regexp_replace(object, ' on [^ ]+$', ''), substring(object from ' on ([^ ]+)$')) as o (name, relation);
$$;
comment on function bds_operation.mend_of(text, text, text, text) is
    'What makes an object again as it was made: a statement, or bds migrate; null if only a person can';

create function bds_operation.made_problems()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
as $$
    with differences as materialized (
        select * from bds_operation.differences()
    )
    select case when d.present is null then 'missing ' when d.made is null then 'unknown ' else 'altered ' end || d.type, null,
        d.object,
        case d.type
            when 'function' then 'the service may not work as it should'
            when 'view' then 'it may show other rows than it should'
            when 'table' then 'its rows are not kept as they should be'
            when 'row security' then 'which rows a role reaches is not what it should be'
            when 'policy' then 'which rows a role reaches is not what it should be'
            when 'rule' then 'statements over it become others'
            when 'trigger' then 'writes to it may become others'
            when 'constraint' then 'it may have rows that it should not have'
        end,
        bds_operation.mend_of(d.type, d.object, d.made, d.present)
    from differences d
    where d.type in ('function', 'view', 'table', 'row security', 'policy', 'rule', 'trigger', 'constraint')
        -- tables and views of somebody else
        and not (d.type in ('table', 'view') and d.made is null and d.present <> 'unlogged')
    union all
    select 'disabled trigger', null, d.object, 'writes to it may become others',
        bds_operation.mend_of(d.type, d.object, d.made, d.present)
    from differences d
    where d.type = 'disabled trigger'
    union all
    select 'altered owner', null, substr(d.object, strpos(d.object, ' ') + 1), format('it belongs to %s', d.present),
        format('alter %s owner to %s', d.object, coalesce(d.made, 'bds_owner'))
    from differences d
    where d.type = 'owner' and d.present is not null
    union all
    select 'altered rights', null, btrim(regexp_replace(d.object, '^(.*)on [a-z]+ (.*)$', e'\\2 \\1')), r.detail, r.mend
    from differences d
    cross join lateral bds_impl.rights_differ(d.object, coalesce(d.made, '{}')::jsonb, coalesce(d.present, '{}')::jsonb) r
    where d.type = 'right' and r.detail is not null
    union all
    select 'unknown member', null, substr(d.object, strpos(d.object, ' to ') + 4),
        format(
            'it may act as %s: revoke that, or note that it is meant to: '
            'insert into bds_operation.made values (''member'', %L, '''', '''', false)',
            split_part(d.object, ' to ', 1), d.object
        ),
        null
    from differences d
    where d.type = 'member' and d.present is not null
    union all
    select 'altered server', null, 'PostgreSQL ' || bds_impl.server(),
        'another version recorded what was made, and writes some of it differently: it is not compared', 'bds migrate'
    where exists (select from differences d where d.type = 'server')
        or exists (select from bds.generated g where g.objects ->> 'server:' <> bds_impl.server())
    union all
    select 'restored database', null, 'bds.clocks', 'ids that readers know may be given again', 'select bds.after_restore()'
    where bds_operation.was_restored();
$$;
comment on function bds_operation.made_problems() is
    'Problems of what bds migrate has made, and of who may act as the powerful roles';

create function bds_operation.import_functions()
    returns table (kind text, entity text, object text, detail text, mend text)
    language sql
    stable
as $$
    with made as (select v.entity, f.key, f.value from bds_feed.versions v cross join lateral jsonb_each_text(v.functions) f),
    present as (
        select f.function::regprocedure::text as name, f.definition
        from bds_impl.functions(array(select p.oid from pg_proc p where p.pronamespace = 'bds_import'::regnamespace)) f
    )
    select case when p.name is null then 'missing ' when m.key is null then 'unknown ' else 'altered ' end || 'function', e.name,
        coalesce(p.name, m.key), 'imports may not work as they should',
        case when m.key is null then format('drop routine %s', p.name) else bds_registry.mend(e) end
    from made m full join present p on p.name = m.key
    left join bds.entities e on e.name = m.entity
    where m.value is distinct from p.definition;
$$;
comment on function bds_operation.import_functions() is 'Problems of the functions of imports, which bds.register generates';
