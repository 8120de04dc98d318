-- The expressions of rows in log functions: what is logged as row_hash and as old.

create function bds_change_log.row_hash(this bds.entities)
    returns text
    language sql
    stable
    return (
        select format('hash_record_extended(row(%s), 0)', string_agg(format('r.%I', f.column_name), ', ' order by f.ordinal))
        from bds.fields f
        where f.entity = this.name
    );
comment on function bds_change_log.row_hash(bds.entities) is 'The expression of a row r that is logged as row_hash';

create function bds_change_log.old_value(this bds.entities, event text)
    returns text
    language sql
    stable
as $$
    select case event
        when 'insert' then 'null'
        -- null for a column that was null, no member for an unchanged column; a table may have no columns of its own
        when 'update' then coalesce(
            (
                select E'json_object(\n                ' || string_agg(
                    bds_impl.fill(
                        '{field:L} : case when {differs} then coalesce(to_json(o.{column:I}), ''null''::json) end',
                        'field', f.name, 'column', f.column_name,
                        'differs', replace(
                            -- as they are stored, where values that PostgreSQL calls equal read differently; and it compares no
                            -- values of a domain over an enum
                            case when t.is_exact and not (t.name = 'enum' and y.typtype = 'd') or f.scale is not null
                                then 'o.{column} is distinct from r.{column}'
                                else 'record_image_ne(row(o.{column}), row(r.{column}))' end,
                            '{column}', quote_ident(f.column_name)
                        )
                    ),
                    E',\n                ' order by f.ordinal
                ) || E'\n                absent on null returning json\n            )::jsonb'
                from bds.fields f
                join bds_impl.types t on t.name = f.stored
                join pg_attribute a on a.attrelid = this.table_name and a.attname = f.column_name
                join pg_type y on y.oid = a.atttypid
                where f.entity = this.name and f.name not in ('id', 'updatedAt')
            ),
            $sql$'{}'::jsonb$sql$
        )
        when 'delete' then (
            select E'json_object(\n                ' || string_agg(
                format('%L : r.%I', f.name, f.column_name), E',\n                ' order by f.ordinal
            ) || E'\n                returning jsonb\n            )'
            from bds.fields f
            where f.entity = this.name
        )
    end;
$$;
comment on function bds_change_log.old_value(bds.entities, text) is
    'The expression of old rows o and new rows r that is logged as old';
