-- Record linkage: which stored row a staged row without an identifier means.
--
-- Fellegi and Sunter: each field that agrees adds log2(m/u), each that does not log2((1-m)/(1-u)); a field that the row does not give
-- adds nothing.  Only rows of one parent are compared.  Rows that agree in every field given are paired first, by hash, n-th with n-th;
-- what is left is scored and assigned one to one, the heaviest pair first; below the threshold a row is new.

create or replace function bds.linkage_threshold()
    returns double precision
    language sql
    immutable
    return 0;
comment on function bds.linkage_threshold() is 'The weight above which two rows are taken for one';

create or replace function bds.linkage_columns(entity_name text, columns text[])
    returns table (name text, column_name name, target text, type text, sql_type text, agreement float8, disagreement float8, n bigint)
    language sql
    stable
    set search_path = pg_catalog, pg_temp
    begin atomic
        select c.name, c.column_name, c.target, c.type, c.sql_type, log(2, (w.m / w.u)::numeric)::float8,
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
comment on function bds.linkage_columns(text, text[]) is 'The fields by which rows of an entity are compared, with their weights';

create or replace function bds.map_by_linkage(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this  bds.entities;
    map   text := 'map_' || entity_name;
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    perform bds.cook_rows(company, import_number, this, columns);
    perform bds.find_candidates(company, this, columns);
    execute format('create temporary table %I (ordinal bigint primary key, id bigint not null, is_same boolean not null default false)', 'link_' || entity_name);
    perform bds.link_named(this.name);
    perform bds.link_equals(this.name, columns);
    perform bds.link_by_weight(this.name, columns);
    execute format(
        $sql$
        create temporary table %1$I as
        select c.ordinal, c.parent, c.position, c.phase, c.operation, coalesce(l.id, case when c.phase = 1 then nextval(%2$L) end) as target,
            l.id is null and not c.is_mass as is_new, coalesce(l.is_same, false) as is_same, false as failed
        from pg_temp.%3$I c left join pg_temp.%4$I l on l.ordinal = c.ordinal
        order by c.ordinal  -- ids follow the document, and with them the order in which children are shown
        $sql$,
        map, pg_get_serial_sequence(this.table_name::text, 'id'), 'cook_' || entity_name, 'link_' || entity_name
    );
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, c.ordinal, 'id', case when c.own_id is null then 'invalid_value' when d.n > 1 then 'duplicate_record' else 'not_found' end,
            case when c.own_id is null then format('expected a lookup (id:...), got %%L', left(c.name, 100))
                when d.n > 1 then 'an earlier record of this document names the same row'
                else format('there is no row %%s', c.name) end
        from pg_temp.%3$I c
        left join pg_temp.%4$I l on l.ordinal = c.ordinal
        left join (
            select ordinal, row_number() over (partition by own_id order by ordinal) as n from pg_temp.%3$I where own_id is not null
        ) d on d.ordinal = c.ordinal
        where c.name is not null and (l.id is null or d.n > 1)
        $sql$,
        bds.staging_table(import_number, 'errors'), entity_name, 'cook_' || entity_name, 'link_' || entity_name
    );
end
$$;
comment on function bds.map_by_linkage(text, bigint, text, text[]) is 'Maps staged rows without unique fields to stored ones';

create or replace function bds.cook_rows(company text, import_number bigint, this bds.entities, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent     text := bds.parent_of(this.name);
    mapped     boolean := parent is not null and to_regclass(format('pg_temp.%I', 'map_' || coalesce(parent, ''))) is not null;
    referenced boolean := this.parent_navigation = any (columns);
    typed      text;
    shape      text;
    joins      text;
begin
    select
        string_agg(format(', %s as %I',
            case when l.target is not null then format('%I.id', 'ref_' || this.name || '_' || l.name)
            else bds.staged_value(format('s.%I', l.name), l.type, l.sql_type) end, '=' || l.column_name), '' order by l.n),
        string_agg(format('case when s.%I is null then 0 else %s end', l.name, 1::bigint << l.n::int), ' + ' order by l.n),
        string_agg(format('left join pg_temp.%1$I %1$I on %1$I.lookup = s.%2$I', 'ref_' || this.name || '_' || l.name, l.name), E'\n')
            filter (where l.target is not null)
    into typed, shape, joins
    from bds.linkage_columns(this.name, columns) l;

    execute format(
        $sql$
        create temporary table %1$I as
        select s."@ordinal" as ordinal, s."@parent" as parent, coalesce(s."@position", s."@ordinal") as position, s."@id" as name,
            %11$s, case when %2$s = 'id' then %3$s end as own_id, %4$s as parent_id, %5$s as shape%6$s
        from %7$s s
        %8$s
        %9$s
        %10$s
        $sql$,
        'cook_' || this.name,
        bds.lookup_kind('s."@id"'), bds.lookup_id('(' || bds.lookup_value('s."@id"') || ')'),
        format(
            -- what is to be created is like no row
            case when '@operation' = any (columns) then $sql$case when s."@operation" is distinct from 'create' then coalesce(%s) end$sql$ else 'coalesce(%s)' end,
            concat_ws(', ',
                case when mapped then 'case when not p.is_new then p.target end' end,
                case when referenced then format('%I.id', 'ref_' || this.name || '_' || this.parent_navigation) end, 'null::bigint')
        ),
        coalesce(shape, '0'), coalesce(typed, ''), bds.staging_table(import_number, this.name),
        case when mapped then format('left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || parent) else '' end,
        case when referenced then format('left join pg_temp.%1$I %1$I on %1$I.lookup = s.%2$I',
            'ref_' || this.name || '_' || this.parent_navigation, this.parent_navigation) else '' end,
        coalesce(joins, ''), bds.staged_operation(columns)
    );
end
$$;
comment on function bds.cook_rows(text, bigint, bds.entities, text[]) is
    'cook_<entity>: staged rows with typed values, as =<column>; shape has a bit for each field that the row gives';

create or replace function bds.find_candidates(company text, this bds.entities, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent_column name := (select f.column_name from bds.fields f where f.entity = this.name and f.reference = this.parent_navigation);
    compared      text := (select string_agg(format(', t.%I as %I', l.column_name, '=' || l.column_name), '' order by l.n) from bds.linkage_columns(this.name, columns) l);
begin
    -- rows that are named by id, and those of the parents that the document speaks of
    execute format(
        $sql$
        create temporary table %1$I as
        select t.id, %2$s as parent_id%3$s
        from %4$s t
        where t.company_id = $1
            and (%5$s t.id in (select c.own_id from pg_temp.%6$I c where c.own_id is not null))
        $sql$,
        'candidate_' || this.name, case when parent_column is null then 'null::bigint' else format('t.%I', parent_column) end, coalesce(compared, ''), this.table_name,
        case when parent_column is not null then format(
            't.%I in (select c.parent_id from pg_temp.%I c where c.parent_id is not null) or', parent_column, 'cook_' || this.name) else '' end,
        'cook_' || this.name
    ) using company;
end
$$;
comment on function bds.find_candidates(text, bds.entities, text[]) is 'candidate_<entity>: stored rows that a staged row may mean';

create or replace function bds.link_named(entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        with taken as (
            insert into pg_temp.%1$I (ordinal, id)
            select c.ordinal, d.id from pg_temp.%2$I c join pg_temp.%3$I d on d.id = c.own_id
            returning id
        )
        delete from pg_temp.%3$I d using taken where taken.id = d.id
        $sql$,
        'link_' || entity_name, 'cook_' || entity_name, 'candidate_' || entity_name
    );
end
$$;
comment on function bds.link_named(text) is 'Links staged rows that carry the id of a stored one';

create or replace function bds.link_equals(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    pattern record;
    values_ text;
    -- Rows that say most come first: what says less may mean more.  Where one of them is left, which may still outweigh what agrees
    -- in less, those that say less wait for the weights.
    outweighed constant text := $sql$
        and not exists (
            select from pg_temp.%1$I o
            where o.parent_id = r.parent_id and o.name is null and bit_count(o.shape::bit(64)) > bit_count($1::bit(64))
                and not exists (select from pg_temp.%2$I l where l.ordinal = o.ordinal)
        )
        $sql$;
    wait    text := '';
    -- then rows that agree need no second look
    all_compared constant boolean := not exists (
        select from bds.import_columns c
        where c.entity = entity_name and not c.is_parent and c.name = any (columns)
            and c.name not in (select l.name from bds.linkage_columns(entity_name, columns) l)
    );
begin
    for pattern in execute format(
        'select shape from pg_temp.%I where name is null and parent_id is not null group by shape order by bit_count(shape::bit(64)) desc, shape',
        'cook_' || entity_name)
    loop
        select string_agg(format('r.%I', '=' || l.column_name), ', ' order by l.n) into values_
        from bds.linkage_columns(entity_name, columns) l
        where pattern.shape::bigint & (1::bigint << l.n::int) <> 0;
        continue when values_ is null;
        execute format(
            $sql$
            with staged as (
                select h.*, row_number() over (partition by h.parent_id, h.hash order by h.ordinal) as n
                from (
                    select r.ordinal, r.parent_id, row(%1$s) as content, hash_record_extended(row(%1$s), 0) as hash
                    from pg_temp.%2$I r where r.shape = $1 and r.name is null and r.parent_id is not null %5$s
                ) h
            ),
            stored as (
                select h.*, row_number() over (partition by h.parent_id, h.hash order by h.id) as n
                from (select r.id, r.parent_id, row(%1$s) as content, hash_record_extended(row(%1$s), 0) as hash from pg_temp.%3$I r) h
            ),
            taken as (
                insert into pg_temp.%4$I (ordinal, id, is_same)
                select staged.ordinal, stored.id, $2 and staged.content *= stored.content
                from staged join stored on stored.parent_id = staged.parent_id and stored.hash = staged.hash and stored.n = staged.n
                returning id
            )
            delete from pg_temp.%3$I d using taken where taken.id = d.id
            $sql$,
            values_, 'cook_' || entity_name, 'candidate_' || entity_name, 'link_' || entity_name, wait
        ) using pattern.shape, all_compared;
        wait := format(outweighed, 'cook_' || entity_name, 'link_' || entity_name);
    end loop;
end
$$;
comment on function bds.link_equals(text, text[]) is 'Links staged rows to stored ones that agree in every field given, the n-th equal to the n-th';

create or replace function bds.link_by_weight(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    weight text;
    chosen bigint;
begin
    select string_agg(format(
        'case when c.shape & %1$s = 0 then 0 when c.%2$I is not distinct from d.%2$I then %3$s else %4$s end',
        1::bigint << l.n::int, '=' || l.column_name, l.agreement, l.disagreement), ' + ' order by l.n)
    into weight
    from bds.linkage_columns(entity_name, columns) l;
    -- of equally heavy pairs those win that stand at the same place among what is left; an item that says nothing may be any of it
    execute format(
        $sql$
        create temporary table %1$I as
        select p.ordinal, p.id, row_number() over (order by p.weight desc, p.distance, p.ordinal, p.id) as rank
        from (
            select c.ordinal, d.id, %2$s as weight, abs(c.place - d.place) as distance, c.shape
            from (
                select r.*, row_number() over (partition by r.parent_id order by r.ordinal) as place
                from pg_temp.%3$I r
                where r.parent_id is not null and r.name is null
                    and not exists (select from pg_temp.%4$I l where l.ordinal = r.ordinal)
            ) c
            join (
                select r.*, row_number() over (partition by r.parent_id order by r.id) as place from pg_temp.%5$I r
            ) d on d.parent_id = c.parent_id
        ) p
        where p.weight > $1 or p.shape = 0
        $sql$,
        'pair_' || entity_name, coalesce(weight, '0'), 'cook_' || entity_name, 'link_' || entity_name, 'candidate_' || entity_name
    ) using bds.linkage_threshold();

    -- a pair that is the best left for both of its rows is what taking the heaviest first would choose
    loop
        execute format(
            $sql$
            with best as (
                select p.ordinal, p.id
                from (
                    select ordinal, id, rank, min(rank) over (partition by ordinal) as best_of_staged,
                        min(rank) over (partition by id) as best_of_stored
                    from pg_temp.%1$I
                ) p
                where p.rank = p.best_of_staged and p.rank = p.best_of_stored
            ),
            linked as (
                insert into pg_temp.%2$I (ordinal, id) select ordinal, id from best
            )
            delete from pg_temp.%1$I p
            where p.ordinal in (select b.ordinal from best b) or p.id in (select b.id from best b)
            $sql$,
            'pair_' || entity_name, 'link_' || entity_name
        );
        get diagnostics chosen = row_count;
        exit when chosen = 0;
    end loop;
end
$$;
comment on function bds.link_by_weight(text, text[]) is 'Links what is left by descending weight, one to one';
