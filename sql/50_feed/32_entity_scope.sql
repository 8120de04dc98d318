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
            when this.parent = this.name or (select p.is_linked from bds_feed.entities p where p.name = this.parent)
                then format('%L = any (members)', this.parent)
            else 'false'
        end,
        'container', (select c.entity from bds.import_columns c where c.entity = this.parent and c.entity <> this.name limit 1),
        'is_nested', this.parent is not distinct from this.name
    );
comment on function bds_feed.parent_scope(bds_feed.entities, jsonb) is
    'The holes of templates for the parent of an entity; upward: the columns that refer to it, null if there are none';

create function bds_feed.matching_scope(this bds_feed.entities, keys jsonb, upward jsonb)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object(
        'has_keys', this.has_keys, 'linked', this.is_linked, 'linked_keys', this.is_linked and this.has_keys,
        'matched_early', this.has_keys and not u.is_late, 'matched_late', this.has_keys and u.is_late,
        'kind_of_id', bds_feed.kind_of(this.name, 's."@id"'),
        'container_join', case
            when u.is_unique then format('left join pg_temp.%I container on container.ordinal = s."@parent"', 'map_' || u.target)
            else ''
        end,
        -- a delete uses only what identifies the row; without a unique field all fields identify it
        'only_identifies', format($sql$(s."@operation" is not distinct from 'delete'%s)$sql$,
            case when not this.has_keys then ' and coalesce(s."@id", s."@where") is not null' end),
        -- what an upsert names no row with
        'unnamed', (
            select format($sql$(s."@id" is null and s."@where" is null and coalesce(s."@operation", 'upsert') = 'upsert'%s)$sql$,
                string_agg(format($sql$ and coalesce(%1$s, e'\x01') = e'\x01'$sql$, k ->> 'given'), ''))
            from jsonb_array_elements(keys) k
        )
    )
    from (
        -- a row of a parent that is linked is known only then
        select p.is_unique, p.target,
            p.is_unique and p.target <> this.name and coalesce(
                (select e.is_linked from bds_feed.entities e where e.name = p.target), false) as is_late
        from (select coalesce((upward -> 'unique')::boolean, false), upward ->> 'target') as p (is_unique, target)
    ) u;
$$;
comment on function bds_feed.matching_scope(bds_feed.entities, jsonb, jsonb) is
    'The holes of templates for how the rows of records are found; keys: the unique columns, upward: the reference to the parent';

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
        left join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.attnum  -- 0 stands for the whole row
        left join bds.fields f on f.entity = this.name and f.column_name = a.attname
    ) r
    where k.conrelid = this.table_name and k.contype = 'c' and r.is_known is not false
        and to_jsonb(k) ->> 'conenforced' is distinct from 'false';  -- from PostgreSQL 18 on
$$;
comment on function bds_feed.rules_of(bds_feed.entities) is
    'The holes of templates for the check constraints of an entity, except those over columns that the database computes, or over '
    'the whole row';

create function bds_feed.mask_scope(place bigint)
    returns jsonb
    language sql
    immutable
    return jsonb_build_object('place', place, 'mask', '@mask ' || place / 62, 'bit', 1::bigint << (place % 62)::int);
comment on function bds_feed.mask_scope(bigint) is
    'The holes of templates for the bit that stands for a column, the first of the entity having place 0';

create function bds_feed.mask_scopes(columns jsonb, this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_build_object('waits', this.waits <> '{}', 'masks', jsonb_agg(m order by m.first))
    from (
        select min((c ->> 'place')::int) as first, c ->> 'mask' as mask,
            format('(%s)::bigint', string_agg(format('case when %s then %s else 0 end', b.is_given, b.bit), ' | ')) as given_bits,
            format('(%s)::bigint', string_agg(format('case when %s then %s else 0 end', b.is_known, b.bit), ' | ')) as known_bits,
            coalesce(string_agg(format('case when %s then %s else 0 end', b.is_late, b.bit), ' | ')
                filter (where c ->> 'target' = any (this.waits) and c -> 'required' = 'false'), '0') as later_bits
        from jsonb_array_elements(columns) c
        cross join lateral (
            select c ->> 'bit' as bit,
                format('(%s) and (%s is not null%s)', c ->> 'gives', c ->> 'given',
                    case when c -> 'is_parent' = 'true' then ' or s."@parent" is not null' end) as is_given,
                format('%1$L = any ($3) and r.known ? %1$L', c ->> 'field') as is_known,
                format('d.%I in (select w.target from pg_temp.%I w where w.is_new)', c ->> 'column', 'map_' || (c ->> 'target'))
                    as is_late
        ) b
        group by c ->> 'mask'
    ) m;
$$;
comment on function bds_feed.mask_scopes(jsonb, bds_feed.entities) is
    'The holes of templates for the masks of an entity, each with the bits of up to 62 columns: those that a staged row s gives, '
    'those of which a row r of the log has the old value, and the references in a row d that wait for a new row';

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

create function bds_feed.child_scopes(entity text)
    returns jsonb
    language sql
    stable
as $$
    select jsonb_agg(jsonb_build_object(
        'child', h.target, 'collection', h.collection, 'whole', h.collection || '@present',
        'table', h.table_name::text, 'column', h.column_name
    ))
    from bds_feed.children_of(entity) h;
$$;
comment on function bds_feed.child_scopes(text) is
    'The holes of templates for each child collection of an entity, null if it has none';

create function bds_feed.scope_of(this bds_feed.entities)
    returns jsonb
    language sql
    stable
as $$
    with c as materialized (
        -- a unique field of a linked row is null
        select c.*, l.is_link, bds_feed.column_scope(c, row_number() over (partition by l.is_link order by c.ordinal), this)
            || bds_feed.mask_scope(row_number() over (order by c.ordinal) - 1) as s
        from bds.import_columns c
        cross join lateral (select not (c.is_parent or c.is_unique and this.is_linked)) as l (is_link)
        where c.entity = this.name
    ),
    sets as (
        select jsonb_agg(c.s order by c.ordinal) as columns,
            jsonb_agg(c.s order by c.ordinal) filter (where c.target is not null) as references,
            jsonb_agg(c.s order by c.ordinal) filter (where c.target = c.entity) as inside,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_altered' = 'true') as altered,
            jsonb_agg(c.s order by c.ordinal) filter (where c.required) as required,
            jsonb_agg(c.s order by c.ordinal) filter (where c.default_expression is not null) as defaulted,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_fallible' = 'true') as fallible,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_fixed' = 'true') as fixed,
            jsonb_agg(c.s order by c.ordinal) filter (where c.s -> 'is_fixed' <> 'true') as changeable,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique) as keys,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique and c.sql_type <> 'text') as checked_keys,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_unique and c.target is not null) as key_references,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_link) as links,
            jsonb_agg(c.s order by c.ordinal) filter (where c.is_link and c.s -> 'tells' = 'true') as telling,
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
        'refers_inside', coalesce((
            select string_agg(format('%L = any (members) and %L = any (looked.columns)', c.target, c.name), ' or ' order by ordinal)
            from c where c.target is not null), 'false'),
        'kinds', this.kinds::text, 'known', array_to_string(this.kinds, ':..., ') || ':...',
        'any_kind', array_to_string(this.kinds, ' or '), 'storage', '{storage}',  -- filled when the table is made
        'children', bds_feed.child_scopes(this.name),
        'rules', bds_feed.rules_of(this), 'writes', bds_feed.writes()
    ) || bds_feed.parent_scope(this, sets.upward) || bds_feed.matching_scope(this, sets.keys, sets.upward -> 0)
        || bds_feed.mask_scopes(sets.columns, this)
    from sets;
$$;
comment on function bds_feed.scope_of(bds_feed.entities) is 'The holes of templates for an entity';
