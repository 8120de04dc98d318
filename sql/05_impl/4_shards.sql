-- Names of tables in generated code.  In a database of Citus the rows of a company are in shards: tables of their own, at one of the
-- nodes.  A statement that Citus would refuse or plan anew each time names the shard instead.  Elsewhere a table is its own shard, and
-- its name stays in the static text of functions, whose plans are kept.

create function bds_impl.is_distributed()
    returns boolean
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if to_regclass('pg_catalog.pg_dist_partition') is null then
        return false;
    end if;
    return exists (select 1 from pg_dist_partition p where p.logicalrelid = 'bds.clocks'::regclass);
end
$$;
comment on function bds_impl.is_distributed() is
    'Whether rows of companies are in shards; asked when code is generated, so tables are distributed before that';

create function bds_impl.shard_of(relation regclass, company text)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds_impl.is_distributed() then
        return relation::text;
    end if;
    return coalesce(
        (
            select shard_name(p.logicalrelid, get_shard_id_for_distribution_column(p.logicalrelid, company))
            from pg_dist_partition p
            where p.logicalrelid = relation and p.partmethod = 'h'
        ),
        relation::text
    );
end
$$;
comment on function bds_impl.shard_of(regclass, text) is
    'The name of the table that has a company''s rows of a table, quoted: a shard, or the table itself';

create function bds_impl.in_shard(statement text, relation text, variables text[], target text default null)
    returns text
    language plpgsql
    stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not bds_impl.is_distributed() then
        return replace(statement, '{shard}', relation) || coalesce(' into ' || target, '') || ';';
    end if;
    for n in 1 .. cardinality(variables) loop
        statement := regexp_replace(statement, '\m' || replace(variables[n], '.', '\.') || '\M', '$' || n, 'g');
    end loop;
    return format(
        'execute format(%L, bds_impl.shard_of(%L, %s))%s using %s;',
        replace(replace(statement, '%', '%%'), '{shard}', '%1$s'), relation, variables[1],
        coalesce(' into ' || target, ''), array_to_string(variables, ', ')
    );
end
$$;
comment on function bds_impl.in_shard(text, text, text[], text) is
    'A statement of PL/pgSQL over a company''s rows of a table, which it names {shard}, with the result in the target: static text, or '
    'one that resolves the name. Variables are those of the statement, with the labels of their blocks, the company first';
