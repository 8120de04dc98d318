-- Deleting the rows of feed_gone.

create function bds_feed.delete_rows(import bds.imports)
    returns void
    language plpgsql
as $$
declare
    statement  text;
    detail     text;
    is_undo    boolean := bds_feed.is_undo(import);
    is_guarded boolean := is_undo;
    kept       jsonb;
begin
    if not is_undo then
        perform bds_feed.find_gone(import);
    end if;
    if not exists (select from pg_temp.feed_gone) then
        return;
    elsif is_undo then
        perform bds_feed.show_progress(import, 'deleting', (select min(g.entity) from pg_temp.feed_gone g));
    end if;
    loop
        while not is_undo and bds_feed.find_used(import) loop
            perform bds_feed.keep_used(import);
        end loop;
        statement := bds_feed.delete_statement();
        if is_guarded then
            statement := format('select bds_revert.delete_guarded($1, $2, $3, %L)', statement);
        end if;
        begin
            execute statement using import.company_id, 0, 0;
            kept := case when not is_undo then bds_feed.kept_rows(import) end;
            exit when kept is null;
            raise exception using errcode = 'BDF02', message = 'a trigger keeps rows';
        exception when sqlstate 'BDF02' then  -- the others are deleted when these are taken out
            perform bds_feed.note_kept(kept);
        when others then
            get stacked diagnostics detail = pg_exception_detail;
            if not bds_feed.is_fault_of_rows(import, sqlstate) then
                raise;
            elsif not bds_feed.rehearse_delete(import, statement) then
                if detail <> 'guard' then
                    raise;
                end if;
                is_guarded := false;  -- no row is refused alone: a trigger of the owner has written to the other tables
            end if;
        end;
        perform bds_feed.keep_used(import);
        update pg_temp.feed_gone set n = 0;
    end loop;
    perform bds_feed.open_tables(import, array(select distinct g.entity from pg_temp.feed_gone g));
    update pg_temp.feed_entities f
    set deleted = (select count(distinct g.id) from pg_temp.feed_gone g where g.entity = f.name);
    delete from pg_temp.feed_gone;
end
$$;
comment on function bds_feed.delete_rows(bds.imports) is
    'Deletes the rows that records delete, and those that arrays and collections, given whole, lack, with their children, except '
    'rows that have to stay; in an undo the rows that feed_gone has already';

create function bds_feed.kept_rows(import bds.imports)
    returns jsonb
    language plpgsql
    stable
as $$
declare
    this record;
    part jsonb;
    kept jsonb;
begin
    for this in  -- only a trigger of the owner keeps rows, and few tables have one
        select e.name, e.table_name from bds_feed.entities e
        where e.name in (select g.entity from pg_temp.feed_gone g) and exists (
            select from pg_trigger t
            where t.tgrelid = e.table_name and not t.tgisinternal and t.tgname !~ '^~?bds_'
                and t.tgtype & 11 = 11)  -- before delete, for each row
    loop
        execute bds_impl.fill(
            $sql$
            select jsonb_agg(jsonb_build_object('kind', g.kind, 'cause', g.cause, 'ticket', g.ticket))
            from pg_temp.feed_gone g
            where g.entity = {entity:L} and exists (select from {table} t where t.company_id = (select $1) and t.id = g.id)
            $sql$,
            'entity', this.name, 'table', this.table_name::text
        ) into part using import.company_id;
        kept := coalesce(kept || part, part, kept);
    end loop;
    return kept;
end
$$;
comment on function bds_feed.kept_rows(bds.imports) is
    'Of each row of feed_gone that is still there after the delete {kind, cause, ticket}; null if there is none';

create function bds_feed.note_kept(kept jsonb)
    returns void
    language plpgsql
as $$
begin
    update pg_temp.feed_gone g
    set code = 'invalid_value', message = case g.kind
        when 'collection' then format('row %s is not in the feed, but it stays: ', g.ticket) else '' end
        || 'a trigger keeps the row from being deleted'
    where (g.kind, g.cause, g.ticket) in (
        select k.kind, k.cause, k.ticket from jsonb_to_recordset(note_kept.kept) as k (kind text, cause text, ticket bigint));
end
$$;
comment on function bds_feed.note_kept(jsonb) is
    'Notes in feed_gone the rows that a trigger keeps; kept: as bds_feed.kept_rows returns them';

create function bds_feed.delete_statement()
    returns text
    language plpgsql
    stable
as $$
begin
    -- One statement for all tables: keys are checked at its end, so rows may refer to one another in any way, and the deletion of
    -- children with their parent is not a change of the parent.
    return (
        select coalesce('with ' || string_agg(
            bds_impl.fill(
                $sql$
                {gone:I} as (
                    delete from {table} t
                    using (
                        select distinct g.id from pg_temp.feed_gone g
                        where g.entity = {entity:L} and g.n between least($2, $3) and greatest($2, $3)
                    ) g
                    where t.company_id = (select $1) and t.id = g.id
                )
                $sql$,
                'gone', 'gone_' || e.name, 'table', e.table_name::text, 'entity', e.name
            ),
            ', ' order by e.rank desc
        ), '') || ' select'
        from bds_feed.entities e where e.name in (select g.entity from pg_temp.feed_gone g)
    );
end
$$;
comment on function bds_feed.delete_statement() is
    'The statement that deletes the rows of feed_gone; $1 is the company, $2 and $3 the first and last ticket, 0 for all';

create function bds_feed.rehearse_delete(import bds.imports, statement text)
    returns boolean
    language plpgsql
as $$
declare
    problems jsonb[];
    tickets  bigint[];
    before   int := -1;
begin
    update pg_temp.feed_gone g set n = r.n
    from (
        select t.kind, t.cause, t.ticket, row_number() over (order by f.rank desc, t.ticket) as n
        from (select distinct o.kind, o.cause, o.ticket from pg_temp.feed_gone o) t join pg_temp.feed_entities f on f.name = t.cause
    ) r
    where r.kind = g.kind and r.cause = g.cause and r.ticket = g.ticket;
    tickets := array(select generate_series(1, (select max(g.n) from pg_temp.feed_gone g)));
    begin
        create index on pg_temp.feed_gone (n);
        -- A row is refused if another one refers to it that is deleted later: they are tried again in the reverse order.
        loop
            problems := bds_feed.write_in_ranges(import, array[statement], tickets);
            exit when exists (select from unnest(problems) p where bds_feed.refusal(p, true) ->> 'code' <> 'in_use')
                or cardinality(problems) in (0, before);
            before := cardinality(problems);
            tickets := array(
                select (p.problem ->> 'key')::bigint from unnest(problems) with ordinality as p (problem, n) order by p.n desc
            );
        end loop;
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    update pg_temp.feed_gone g
    set code = r ->> 'code', message = case g.kind
        when 'collection' then format('row %s is not in the feed, but it stays: ', g.ticket) else '' end || (r ->> 'message')
    from unnest(problems) as p cross join lateral bds_feed.refusal(p, true) r
    where g.n = (p ->> 'key')::bigint
        -- others may be in use only by a row that is refused for another reason: they are tried again without it
        and (
            r ->> 'code' <> 'in_use'
            or not exists (select from unnest(problems) o where bds_feed.refusal(o, true) ->> 'code' <> 'in_use')
        );
    return cardinality(problems) > 0;
end
$$;
comment on function bds_feed.rehearse_delete(bds.imports, text) is
    'Notes in feed_gone the rows that the database refuses to delete, found in ranges of tickets; false if it refuses none alone';
