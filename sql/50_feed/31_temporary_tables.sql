-- The temporary tables of a session, in which an import is compared.

create table bds_feed.state (version text primary key);
comment on table bds_feed.state is
    'One row: changes with any of bds_feed.versions, so that no session keeps tables of an entity as it was';
comment on column bds_feed.state.version is
    'Part of the name of an empty temporary table, which marks the tables of a session as those of this version';
insert into bds_feed.state values ('');

create function bds_feed.is_undo(import bds.imports)
    returns boolean
    language sql
    immutable
as $$
    select import.undoes is not null;
$$;
comment on function bds_feed.is_undo(bds.imports) is 'Whether its records come from the change log (70_undo.sql)';

create function bds_feed.begin_tables(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    mark text;
begin
    perform from bds_feed.entities limit 0;  -- bds migrate locks it before the tables
    select format('feed_%s_%s', case when import.is_small then 'small' else 'large' end, s.version) into mark from bds_feed.state s;
    if not bds_feed.is_open(mark) then
        perform bds_feed.drop_tables();
        execute format('create temporary table %I ()', mark);
    elsif exists (select from pg_temp.feed_entities) then  -- of an earlier import of this transaction
        perform bds_feed.empty_tables(array(select f.name from pg_temp.feed_entities f), true);
    end if;
end
$$;
comment on function bds_feed.begin_tables(bds.imports) is
    'Begins an import, once: empties the tables of the session, or drops those of another kind of import or of another version';

create function bds_feed.open_tables(import bds.imports, entity_names text[])
    returns void
    language plpgsql
as $$
declare
    closed  text[] := array(
        select n.name from unnest(entity_names) as n (name) where not bds_feed.is_open('diff_' || n.name)
        union all select '*' where not bds_feed.is_open('feed_entities')
    );
    unknown text;
    wanted  bds_feed.tables;
begin
    if closed <> '{}' then
        select n.name into unknown from unnest(entity_names) as n (name)
        where n.name not in (select e.name from bds_feed.entities e);
        if found then
            raise exception using errcode = 'BD002', message = format('no such entity: %L', unknown), table = unknown;
        end if;
        for wanted in
            select t.* from bds_feed.tables t
            where (
                    t.entity = any (closed)
                    or t.name = 'map_' || t.entity and t.entity in (
                        select b.name from bds_feed.entities e cross join lateral unnest(e.beside) as b (name)
                        where e.name = any (closed)
                    )
                )
                and not bds_feed.is_open(t.name)
                -- an undo stages nothing and links nothing
                and (not bds_feed.is_undo(import) or t.entity = '*' or t.name in ('map_' || t.entity, 'diff_' || t.entity))
        loop
            perform bds_feed.open_table(import, wanted);
        end loop;
    end if;
    insert into pg_temp.feed_entities (name, rank, family, version)
    select e.name, e.rank, e.family, v.version from bds_feed.entities e join bds_feed.versions v on v.entity = e.name
    where e.name = any (entity_names) and not exists (select from pg_temp.feed_entities f where f.name = e.name);
end
$$;
comment on function bds_feed.open_tables(bds.imports, text[]) is
    'Makes the tables of these entities, and those of every import, where they are missing, and lists the entities as staged; '
    'BD002 for an unknown entity, BD004 if another temporary table has one of the names';

create function bds_feed.require_versions()
    returns void
    language plpgsql
as $$
declare
    altered text;
begin
    select coalesce(e.table_name::text, f.name) into altered
    from pg_temp.feed_entities f left join bds.entities e on e.name = f.name left join bds_feed.versions v on v.entity = f.name
    where v.version is distinct from f.version
    limit 1;
    if found then
        raise exception using
            errcode = 'BD007', message = format('%s was altered while the import ran; nothing was written', altered),
            hint = 'send the document again';
    end if;
end
$$;
comment on function bds_feed.require_versions() is
    'Raises BD007 if a table of the import was altered and registered since it began';

create function bds_feed.is_open(table_name text)
    returns boolean
    language sql
    stable
    return exists (
        select from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relname = table_name and c.relowner = to_regrole('bds_importer')
    );
comment on function bds_feed.is_open(text) is 'Whether this session has a table of imports of this name';

create function bds_feed.open_table(import bds.imports, wanted bds_feed.tables)
    returns void
    language plpgsql
as $$
declare
    -- the table with the staged records; an entity that only contains others may have none
    stage regclass := case
        when import.is_small then null
        when wanted.name = 'feed_errors' then to_regclass(bds_feed.staging_table(import.number, 'errors'))
        when wanted.name ^@ 'staged_' then to_regclass(bds_feed.staging_table(import.number, wanted.entity))
    end;
begin
    if to_regclass(format('pg_temp.%I', wanted.name)) is not null then
        raise exception using
            errcode = 'BD004', message = format('this session has a temporary table %I, a name that the import needs', wanted.name),
            hint = 'drop or rename it, or run the import in another session';
    elsif stage is not null then
        execute format('create temporary view %I as select * from %s', wanted.name, stage);
        return;
    end if;
    -- A commit takes forty times as long to empty a table that can hold long values.  Tables of a small import cannot: a row that
    -- does not fit into a page raises 54000, and the document is imported as a large one.
    execute format(E'create temporary table %I (%s\n) on commit delete rows', wanted.name,
        replace(wanted.definition, '{storage}', case when import.is_small then 'storage plain' else '' end));
end
$$;
comment on function bds_feed.open_table(bds.imports, bds_feed.tables) is
    'Makes a temporary table of an import, or the view of what it has staged';

create function bds_feed.drop_tables()
    returns void
    language plpgsql
as $$
declare
    dropped record;
begin
    for dropped in
        select format('pg_temp.%I', c.relname) as name, case c.relkind when 'v' then 'view' else 'table' end as kind from pg_class c
        where c.relnamespace = pg_my_temp_schema() and c.relkind in ('r', 'v') and c.relowner = 'bds_importer'::regrole
    loop
        execute format('drop %s %s', dropped.kind, dropped.name);
    end loop;
end
$$;
comment on function bds_feed.drop_tables() is 'Drops the tables of imports that this session has';

create function bds_feed.empty_tables(entity_names text[], all_tables boolean)
    returns void
    language plpgsql
as $$
declare
    name text;
begin
    for name in
        select t.name from bds_feed.tables t
        where (
                t.entity = any (entity_names) and not t.name ^@ 'staged_'
                or all_tables and t.entity = any (entity_names || '*'::text)
            )
            and bds_feed.is_open(t.name)
    loop
        execute format('delete from pg_temp.%I', name);
    end loop;
    delete from pg_temp.feed_errors where not is_kept;
    delete from pg_temp.feed_gone;
end
$$;
comment on function bds_feed.empty_tables(text[], boolean) is
    'Deletes the rows of an earlier comparison of the same import; with all_tables those of an earlier import of the transaction';

create function bds_feed.sample(table_name text)
    returns void
    language plpgsql
    set default_statistics_target = 10  -- 3,000 rows: imports need only the numbers of rows and of distinct values
as $$
begin
    execute 'analyze ' || table_name;
end
$$;
comment on function bds_feed.sample(text) is 'Takes the statistics of a table of an import from a small sample';

create function bds_feed.filled(import bds.imports, table_name text)
    returns void
    language plpgsql
as $$
begin
    if not import.is_small then
        perform bds_feed.sample(format('pg_temp.%I', table_name));
    end if;
end
$$;
comment on function bds_feed.filled(bds.imports, text) is
    'To be called when a temporary table is filled: takes its statistics for the plans of a large import; those of a small one are '
    'cached';
