-- Weights of record linkage.

create function bds_feed.linkage_threshold()
    returns double precision
    language sql
    immutable
    return 0;
comment on function bds_feed.linkage_threshold() is 'The weight above which two rows are taken for one';

create function bds_feed.linkage_columns(entity_name text, columns text[])
    returns table (name text, column_name name, target text, type text, sql_type text, cleared text, agreement float8, disagreement float8, n bigint)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select c.name, c.column_name, c.target, c.type, c.sql_type,
            case when c.required and c.default_expression is not null then format('(%s)::%s', c.default_expression, c.sql_type) else format('null::%s', c.sql_type) end,
            log(2, (w.m / w.u)::numeric)::float8,
            log(2, ((1 - w.m) / (1 - w.u))::numeric)::float8, row_number() over (order by c.ordinal) - 1
        from bds.import_columns c
        cross join lateral (
            select w.m, w.u from bds.linkage_weights w
            where w.entity in (entity_name, '*') and w.field in (c.name, '*')
            order by w.field = '*', w.entity = '*'
            limit 1
        ) w
        where c.entity = entity_name and not c.is_parent and c.name = any (columns);
    end;
comment on function bds_feed.linkage_columns(text, text[]) is
    'The fields by which rows of an entity are compared, with their weights; cleared is SQL for what null makes of one';

create function bds_feed.linkage_content(entity_name text, columns text[], shape bigint)
    returns text
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    return (
        select string_agg(format('r.%I', '=' || l.column_name), ', ' order by l.n) from bds_feed.linkage_columns(entity_name, columns) l
        where shape & (1::bigint << l.n::int) <> 0
    );
comment on function bds_feed.linkage_content(text, text[], bigint) is 'SQL for the fields of a shape, of staged rows and of stored ones';

create function bds_feed.linkage_patterns(entity_name text, columns text[], shapes bigint[])
    returns table (shape bigint, agreeing bigint, weight float8)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        with recursive compared (shape, place, bit, agreement, disagreement) as (
            -- of very many fields those that tell least take no part, unless all agree
            select s.shape, row_number() over (partition by s.shape order by l.agreement - l.disagreement desc, l.n), 1::bigint << l.n::int,
                l.agreement, l.disagreement
            from unnest(shapes) as s (shape) join bds_feed.linkage_columns(entity_name, columns) l on s.shape & (1::bigint << l.n::int) <> 0
        ),
        pattern (shape, place, agreeing, weight) as (
            select s.shape, 0::bigint, 0::bigint, 0::float8 from unnest(shapes) as s (shape)
            union all
            select p.shape, c.place, p.agreeing | case when a.agrees then c.bit else 0 end, p.weight + case when a.agrees then c.agreement else c.disagreement end
            from pattern p
            join compared c on c.shape = p.shape and c.place = p.place + 1 and c.place <= 8
            cross join (values (true), (false)) as a (agrees)
        )
        select p.shape, p.agreeing, p.weight
        from pattern p
        where p.place = least(8, (select count(*) from compared c where c.shape = p.shape)) and (p.weight > bds_feed.linkage_threshold() or p.shape = 0)
        union
        select s.shape, s.shape, (select sum(c.agreement) from compared c where c.shape = s.shape)
        from unnest(shapes) as s (shape) where s.shape <> 0
        order by 3 desc, 1 desc, 2 desc;
    end;
comment on function bds_feed.linkage_patterns(text, text[], bigint[]) is
    'Which fields may agree when two rows are one, for rows that give the fields of a shape, the heaviest first; rows that give none may be any';
