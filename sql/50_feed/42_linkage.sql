-- Record linkage: which stored row a staged row without an identifier means.
--
-- Fellegi and Sunter: each field that agrees adds log2(m/u), each that does not log2((1-m)/(1-u)); a field that the row does not give
-- adds nothing.  Only rows of one parent are compared, one to one, the heaviest pair first; below the threshold a row is new.
--
-- No pair is ever scored: which fields agree decides the weight, so there are few weights.  For each set of fields, the heaviest first,
-- what is left of both sides is joined on just these fields, by hash, the n-th of equal rows with the n-th: linear, however many rows
-- one parent has.

create function bds_feed.map_by_linkage(company text, import_number bigint, entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     bds.entities;
    is_named boolean := '@id' = any (columns);  -- whether any row is
begin
    select * into strict this from bds.entities e where e.name = entity_name;
    perform bds_feed.cook_rows(company, import_number, this, columns);
    perform bds_feed.find_candidates(company, this, columns);
    execute format('create temporary table %I (ordinal bigint not null, id bigint not null, is_same boolean not null default false)', 'link_' || entity_name);
    if is_named then
        perform bds_feed.link_named(this.name);
    end if;
    perform bds_feed.link_rows(this.name, columns);
    execute format(
        $sql$
        create temporary table %1$I as
        select c.ordinal, c.parent, c.position, c.phase, c.operation, coalesce(l.id, case when c.phase = 1 then nextval(%2$L) end) as target,
            l.id is null and not c.is_mass as is_new, coalesce(l.is_same, false) as is_same, false as failed
        from pg_temp.%3$I c left join pg_temp.%4$I l on l.ordinal = c.ordinal
        order by c.ordinal  -- ids follow the document, and with them the order in which children are shown
        $sql$,
        'map_' || entity_name, pg_get_serial_sequence(this.table_name::text, 'id'), 'cook_' || entity_name, 'link_' || entity_name
    );
    if is_named then
        perform bds_feed.check_named(import_number, entity_name);
    end if;
end
$$;
comment on function bds_feed.map_by_linkage(text, bigint, text, text[]) is 'Maps staged rows without unique fields to stored ones';

create function bds_feed.check_named(import_number bigint, entity_name text)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        $sql$
        insert into %1$s (entity, ordinal, field, code, message)
        select %2$L, c.ordinal, 'id', case when c.own_id is null then 'invalid_value' when d.n > 1 then 'duplicate_record' else 'not_found' end,
            case when c.own_id is null then format('expected a lookup (id:...), got %%L', left(%5$s, 100))
                when d.n > 1 then 'an earlier record of this document names the same row'
                else format('no such row: %%s', c.name) end
        from pg_temp.%3$I c
        left join pg_temp.%4$I l on l.ordinal = c.ordinal
        left join (
            select ordinal, row_number() over (partition by own_id order by ordinal) as n from pg_temp.%3$I where own_id is not null
        ) d on d.ordinal = c.ordinal
        where c.name is not null and (l.id is null or d.n > 1)
        $sql$,
        bds_feed.staging_table(import_number, 'errors'), entity_name, 'cook_' || entity_name, 'link_' || entity_name, bds_feed.staged_text('c.name')
    );
end
$$;
comment on function bds_feed.check_named(bigint, text) is 'Notes staged rows whose id is none, names no row, or one that an earlier row has';

create function bds_feed.cook_rows(company text, import_number bigint, this bds.entities, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    parent     text := bds_feed.mapped_parent(this.name);
    mapped     boolean := parent is not null;
    referenced boolean := this.parent_navigation = any (columns);
    typed      text;
    shape      text;
    joins      text;
begin
    select
        string_agg(format(', %s as %I',
            case when l.target is not null then format('%I.id', bds_feed.reference_alias(this.name, l.name))
            when l.cleared ^@ 'null::' then bds_feed.staged_value(format('s.%I', l.name), l.type, l.sql_type)
            else format($sql$case when s.%I = e'\x01' then %s else %s end$sql$, l.name, l.cleared, bds_feed.staged_value(format('s.%I', l.name), l.type, l.sql_type))
            end, '=' || l.column_name), '' order by l.n),
        string_agg(format('case when s.%I is null then 0 else %s end', l.name, 1::bigint << l.n::int), ' + ' order by l.n),
        string_agg(bds_feed.reference_join(import_number, this.name, l.name, format('s.%I', l.name)), E'\n')
            filter (where l.target is not null)
    into typed, shape, joins
    from bds_feed.linkage_columns(this.name, columns) l;

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
        bds_feed.lookup_kind('s."@id"'), bds_feed.lookup_id('(' || bds_feed.lookup_value('s."@id"') || ')'),
        format(
            -- what is to be created is like no row
            case when '@operation' = any (columns) then $sql$case when s."@operation" is distinct from 'create' then coalesce(%s) end$sql$ else 'coalesce(%s)' end,
            concat_ws(', ',
                case when mapped then 'case when not p.is_new then p.target end' end,
                case when referenced then format('%I.id', bds_feed.reference_alias(this.name, this.parent_navigation)) end, 'null::bigint')
        ),
        coalesce(shape, '0'), coalesce(typed, ''), bds_feed.staging_table(import_number, this.name),
        case when mapped then format('left join pg_temp.%I p on p.ordinal = s."@parent"', 'map_' || parent) else '' end,
        case when referenced
            then bds_feed.reference_join(import_number, this.name, this.parent_navigation, format('s.%I', this.parent_navigation)) else '' end,
        coalesce(joins, ''), bds_feed.staged_operation(columns)
    );
end
$$;
comment on function bds_feed.cook_rows(text, bigint, bds.entities, text[]) is
    'cook_<entity>: staged rows with typed values, as =<column>; shape has a bit for each field that the row gives';

create function bds_feed.find_candidates(company text, this bds.entities, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
    set enable_nestloop = off
as $$
declare
    parent_column name := (select f.column_name from bds.fields f where f.entity = this.name and f.reference = this.parent_navigation);
    compared      text := (select string_agg(format(', t.%I as %I', l.column_name, '=' || l.column_name), '' order by l.n) from bds_feed.linkage_columns(this.name, columns) l);
    cooked        text := format('pg_temp.%I', 'cook_' || this.name);
    own           text := case when '@id' = any (columns) then format('(select distinct c.own_id from %s c where c.own_id is not null) o', cooked) end;
    parents       text := case when parent_column is not null then format('(select distinct c.parent_id from %s c where c.parent_id is not null) p', cooked) end;
    rows          bigint;
    found         text;
begin
    -- rows that are named by id, and those of the parents that the document speaks of
    execute 'select count(*) from ' || cooked into rows;
    if own is null and parents is null then
        found := format('%s t where false', this.table_name);
    elsif bds_feed.finds_few(rows, this.table_name, company, coalesce(parent_column, 'id')) then
        found := format('(%s) f %s where t.id is not null',
            concat_ws(' union ',
                'select t.id from ' || own || ' ' || bds_feed.stored_join(this.table_name, 't', 'id', 'o.own_id', true),
                'select t.id from ' || parents || ' ' || bds_feed.stored_join(this.table_name, 't', coalesce(parent_column, 'id'), 'p.parent_id', true)),
            bds_feed.stored_join(this.table_name, 't', 'id', 'f.id', true));
    else
        found := format('%s t %s where t.company_id = $1 and (%s)', this.table_name,
            concat_ws(' ', 'left join ' || own || ' on o.own_id = t.id', 'left join ' || parents || ' on p.parent_id = t.' || quote_ident(parent_column)),
            concat_ws(' or ', case when own is not null then 'o.own_id is not null' end, case when parents is not null then 'p.parent_id is not null' end));
    end if;
    execute format(
        'create temporary table %I as select t.id, %s as parent_id%s from %s',
        'candidate_' || this.name, coalesce('t.' || quote_ident(parent_column), 'null::bigint'), compared, found
    ) using company;
end
$$;
comment on function bds_feed.find_candidates(text, bds.entities, text[]) is 'candidate_<entity>: stored rows that a staged row may mean';

create function bds_feed.link_named(entity_name text)
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
comment on function bds_feed.link_named(text) is 'Links staged rows that carry the id of a stored one';

create function bds_feed.link_rows(entity_name text, columns text[])
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    shapes  bigint[];
    pattern record;
    is_left boolean := null;  -- null: what is left has not been set apart yet
begin
    execute format('select array_agg(s.shape) from (select distinct c.shape from pg_temp.%I c where c.name is null and c.parent_id is not null) s', 'cook_' || entity_name) into shapes;
    for pattern in select * from bds_feed.linkage_patterns(entity_name, columns, shapes) loop
        perform bds_feed.link_pattern(entity_name, columns, pattern.shape, pattern.agreeing, is_left is null);
        is_left := bds_feed.set_apart_unlinked(entity_name, is_left is null);
        if is_left and pattern.agreeing = pattern.shape and cardinality(shapes) > 1 then
            if bds_feed.make_room(entity_name, columns, pattern.shape) then
                is_left := bds_feed.set_apart_unlinked(entity_name, false);
            end if;
        end if;
        exit when not is_left;
    end loop;
    perform bds_feed.close_rooms();
end
$$;
comment on function bds_feed.link_rows(text, text[]) is 'Links staged rows to stored ones by descending weight, one to one';

create function bds_feed.link_pattern(entity_name text, columns text[], shape bigint, agreeing bigint, is_first boolean)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    content text := bds_feed.linkage_content(entity_name, columns, agreeing);
    -- of rows that agree alike, those first that hold nothing else: they may have been made of such a record
    more    text := coalesce((
        select string_agg(format('(r.%I is distinct from %s)::int', '=' || l.column_name, l.cleared), ' + ' order by l.n)
        from bds_feed.linkage_columns(entity_name, columns) l
        where shape & (1::bigint << l.n::int) = 0
            and regexp_replace(l.cleared, '::[a-z ]+\([0-9, ]+\)', '', 'g') !~ '\w\('  -- what a function gives now is not what it gave then
    ), '0');
    -- rows that agree in all that an import can say need no second look
    is_all  boolean := agreeing = shape and not exists (
        select from bds.import_columns c
        where c.entity = entity_name and not c.is_parent and c.name = any (columns)
            and c.name not in (select l.name from bds_feed.linkage_columns(entity_name, columns) l)
    );
begin
    execute format(
        $sql$
        insert into pg_temp.%1$I (ordinal, id, is_same)
        select staged.ordinal, stored.id, %2$s
        from (
            select h.*, row_number() over (partition by h.parent_id, h.hash order by h.ordinal) as n
            from (
                select r.ordinal, r.parent_id, row(%3$s) as content, hash_record_extended(row(%3$s), 0) as hash
                from pg_temp.%4$I r where r.shape = $1 and r.name is null and r.parent_id is not null
            ) h
        ) staged
        join (
            select h.*, row_number() over (partition by h.parent_id, h.hash order by h.more, h.id) as n
            from (select r.id, r.parent_id, %6$s as more, row(%3$s) as content, hash_record_extended(row(%3$s), 0) as hash from pg_temp.%5$I r) h
        ) stored on stored.parent_id = staged.parent_id and stored.hash = staged.hash and stored.n = staged.n
        $sql$,
        'link_' || entity_name, case when is_all then 'staged.content *= stored.content' else 'false' end, content,
        case when is_first then 'cook_' else 'open_' end || entity_name, case when is_first then 'candidate_' else 'rest_' end || entity_name, more
    ) using shape;
end
$$;
comment on function bds_feed.link_pattern(text, text[], bigint, bigint, boolean) is
    'Links rows of a shape to those that agree in some of their fields, the n-th equal to the n-th';

create function bds_feed.set_apart_unlinked(entity_name text, is_first boolean)
    returns boolean
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    is_left boolean;
    link    text := format('pg_temp.%I', 'link_' || entity_name);
    open    text := format('pg_temp.%I', 'open_' || entity_name);
    rest    text := format('pg_temp.%I', 'rest_' || entity_name);
begin
    if is_first then
        execute format(
            'create temporary table %s as select c.* from pg_temp.%I c '
            'where c.name is null and c.parent_id is not null and not exists (select from %s l where l.ordinal = c.ordinal)',
            open, 'cook_' || entity_name, link);
        execute format(
            'create temporary table %s as select c.* from pg_temp.%I c where not exists (select from %s l where l.id = c.id)',
            rest, 'candidate_' || entity_name, link);
    else
        execute format('delete from %s o using %s l where l.ordinal = o.ordinal', open, link);
        execute format('delete from %s r using %s l where l.id = r.id', rest, link);
    end if;
    execute format('select exists (select from %s) and exists (select from %s)', open, rest) into is_left;
    return is_left;
end
$$;
comment on function bds_feed.set_apart_unlinked(text, boolean) is
    'open_<entity> and rest_<entity>: staged and stored rows that are not linked yet; whether there are any of both';
