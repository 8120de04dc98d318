-- What templates can use of an entity.

create function bds_feed.parent_scope(this bds_feed.entities, upward jsonb)
    returns jsonb
    language sql
    stable
    return jsonb_build_object(
        'parent', case when upward is not null then this.parent end,
        'parent_column', coalesce(upward -> 0 ->> 'column', 'id'),
        'parent_whole', (
            select h.collection || '@present' from bds_feed.children_of(this.parent) h where h.target = this.name limit 1
        ),
        'parent_later', case
            when this.parent = this.name or not (select p.has_keys from bds_feed.entities p where p.name = this.parent)
                then format('%L = any (members)', this.parent)
            else 'false'
        end,
        'container', (select c.entity from bds.import_columns c where c.entity = this.parent and c.entity <> this.name limit 1),
        'is_nested', this.parent is not distinct from this.name
    );
comment on function bds_feed.parent_scope(bds_feed.entities, jsonb) is
    'The holes of templates for the parent of an entity; upward: the columns that refer to it, null if there are none';

create function bds_feed.rules_of(this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_agg(
        jsonb_build_object(
            'message', format('it breaks the rule %s', k.conname), 'expression', pg_get_expr(k.conbin, k.conrelid),
            'field', case when r.columns = 1 then r.field else 'null' end
        ) order by k.conname
    )
    from pg_constraint k
    cross join lateral (
        select count(*) as columns, coalesce(quote_literal(min(f.name)), 'null') as field,
            bool_and(coalesce(a.attname in ('company_id', 'id') or f.name <> 'updatedAt' and not f.generated, false)) as is_known
        from unnest(k.conkey) as u (attnum)
        join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.attnum
        left join bds.fields f on f.entity = this.name and f.column_name = a.attname
    ) r
    where k.conrelid = this.table_name and k.contype = 'c' and r.is_known is not false
        and to_jsonb(k) ->> 'conenforced' is distinct from 'false';  -- from PostgreSQL 18 on
$$;
comment on function bds_feed.rules_of(bds_feed.entities) is
    'The holes of templates for the check constraints of an entity, except those over columns that the database computes';

create function bds_feed.writes()
    returns jsonb
    language sql
    immutable
    return jsonb_build_array(
        jsonb_build_object(
            'creates', true, 'changes', true, 'applies', '"@creates" and "@changes" and not "@apart"',
            'chosen', 'd."@new" is not null',
            'matches', 't.company_id = (select $1) and t.id = case when not d."@new" then d.id end'
        ),
        jsonb_build_object(
            'creates', true, 'changes', false, 'applies', '"@creates" and (not "@changes" or "@apart")', 'chosen', 'd."@new"',
            'matches', 'false'
        ),
        jsonb_build_object(
            'creates', false, 'changes', true, 'applies', '"@changes" and (not "@creates" or "@apart")', 'chosen', 'not d."@new"',
            'matches', 't.company_id = (select $1) and t.id = d.id'
        )
    );
comment on function bds_feed.writes() is
    'The holes of templates for a MERGE: what it does, when it is needed, its rows, and the stored rows that match them';

create function bds_feed.scope_of(this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    with c as materialized (
        select c.*, bds_feed.column_scope(c, row_number() over (partition by c.is_parent order by c.ordinal), this) as s
        from bds.import_columns c where c.entity = this.name
    ),
    sets as (
        select jsonb_agg(c.s order by c.ordinal) as columns,
            jsonb_agg(c.s order by c.ordinal) filter (where c.target is not null) as references,
            jsonb_agg(c.s order by c.ordinal) filter (where c.target = c.entity) as inside,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_altered' = 'true') as altered,
            jsonb_agg(c.s order by c.ordinal) filter (where c.required) as required,
            jsonb_agg(c.s order by c.ordinal) filter (where c.default_expression is not null) as defaulted,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_fixed' = 'true') as fixed,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_fixed' <> 'true') as changeable,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique) as keys,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique and c.sql_type <> 'text') as checked_keys,
            jsonb_agg(c.s order by c.ordinal) filter (where not c.is_parent) as links,
            jsonb_agg(c.s order by c.ordinal) filter (where not c.is_parent and c.s -> 'tells' = 'true') as telling,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_parent) as upward,
            jsonb_agg(c.s order by c.ordinal) filter (where c.target is null and c.sql_type <> 'text') as checked,
            jsonb_agg(c.s order by c.ordinal) filter (where c.required and c.default_expression is null) as needed,
            -- how rows can be found: by all unique fields and the id, or by one unique field alone
            jsonb_build_array(jsonb_build_object('by', '', 'sole', null, 'compared', jsonb_agg(c.s order by c.ordinal)))
                || coalesce(jsonb_agg(
                    c.s || jsonb_build_object('by', '_by_' || c.name, 'sole', c.name, 'compared', (  -- equal durations may differ
                        select jsonb_agg(o.s order by o.ordinal) from c o where o.name <> c.name or c.type = 'interval'))
                    order by c.ordinal) filter (where c.is_unique), '[]') as ways,
            -- what two records may not have in common
            '[{"key": "target", "unique": false}]'
                || coalesce(jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique), '[]') as claims
        from c
    )
    select to_jsonb(sets) || jsonb_build_object(
        'entity', this.name, 'collection', (select e.collection from bds.entities e where e.name = this.name),
        'table', this.table_name::text, 'sequence', bds_registry.sequence_of(this.table_name)::text,
        'has_keys', this.has_keys, 'linked', not this.has_keys,
        'refers_inside', coalesce((
            select string_agg(format('%L = any (members) and %L = any (looked.columns)', c.target, c.name), ' or ' order by ordinal)
            from c where c.target is not null), 'false'),
        'kinds', this.kinds::text, 'known', array_to_string(this.kinds, ':..., ') || ':...',
        'any_kind', array_to_string(this.kinds, ' or '), 'storage', '{storage}',  -- filled when the table is made
        -- a delete uses only what identifies the row; without a unique field all fields identify it
        'only_identifies', format($sql$(s."@operation" is not distinct from 'delete'%s)$sql$,
            case when not this.has_keys then ' and coalesce(s."@id", s."@where") is not null' end),
        'children', (
            select jsonb_agg(jsonb_build_object(
                'child', h.target, 'collection', h.collection, 'whole', h.collection || '@present',
                'table', h.table_name::text, 'column', h.column_name
            ))
            from bds_feed.children_of(this.name) h
        ),
        'rules', bds_feed.rules_of(this), 'writes', bds_feed.writes()
    ) || bds_feed.parent_scope(this, sets.upward)
    from sets;
$$;
comment on function bds_feed.scope_of(bds_feed.entities) is 'The holes of templates for an entity';
