-- Columns had other names at other times, which differ from server to server: what a dump brings is fitted to those of this server,
-- by which its history is read (bds_change_log.names_at).

create function bds_operation.past_names()
    returns jsonb
    language sql
    stable
as $$
    select jsonb_agg(to_jsonb(t) - 'times' order by t.entity, t.since)
    from (
        select b.entity, b.at as since, lead(b.at, 1, 'infinity') over (partition by b.entity order by b.at) as until,
            count(*) over (partition by b.entity) as times,
            bds_change_log.names_at(b.entity, b.at) as names, bds_change_log.texts_at(b.entity, b.at) as texts
        from (
            select h.entity, h.since as at from bds.column_history h
            union
            select h.entity, h.until from bds.column_history h where h.until < 'infinity'
        ) b
    ) t
    where t.times > 1;
$$;
comment on function bds_operation.past_names() is
    'The times between alterations of each entity that was altered: [{entity, since, until, names, texts}], see '
    'bds_change_log.names_at and texts_at; null if there are none';

create function bds_operation.translations(there jsonb)
    returns table (entity text, since timestamptz, until timestamptz, names jsonb, texts jsonb, lost text[])
    language sql
    stable
as $$
    with sides as materialized (
        select v.side, r.*
        from (values ('there', nullif(there, 'null')), ('here', bds_operation.past_names())) v (side, times)
        cross join jsonb_to_recordset(v.times) r (entity text, since timestamptz, until timestamptz, names jsonb, texts jsonb)
    ),
    times as (
        select b.entity, b.at as since, lead(b.at, 1, 'infinity') over (partition by b.entity order by b.at) as until
        from (select s.entity, s.since as at from sides s union select s.entity, '-infinity' from sides s) b
    ),
    present as (select f.entity, jsonb_object_agg(f.name, f.name) as names from bds.fields f group by f.entity),
    keys as (
        select t.*, o.key, coalesce(h.key, o.value) as key_here,
            there.texts ->> o.key as text_there, here.texts ->> h.key as text_here,
            -- here the column did not exist, and its name was that of another one, or it exists now
            h.key is null and (p.names ? o.value or n.here ? o.value) as is_hidden
        from times t
        join present p on p.entity = t.entity
        left join sides there
            on there.side = 'there' and there.entity = t.entity and t.since >= there.since and t.since < there.until
        left join sides here
            on here.side = 'here' and here.entity = t.entity and t.since >= here.since and t.since < here.until
        cross join lateral (select coalesce(there.names, p.names), coalesce(here.names, p.names)) n (there, here)
        cross join lateral jsonb_each_text(n.there) o
        left join lateral jsonb_each_text(n.here) h on h.value = o.value
    )
    select k.entity, k.since, k.until, jsonb_object_agg(k.key, k.key_here),
        jsonb_object_agg(k.key, k.text_there) filter (where k.text_there <> '' and k.text_here is null),
        array_agg(k.key) filter (where k.is_hidden or k.text_here is distinct from coalesce(k.text_there, '') and k.text_here <> '')
    from keys k
    group by k.entity, k.since, k.until
    having bool_or(k.key <> k.key_here or k.is_hidden or k.text_there is distinct from k.text_here);
$$;
comment on function bds_operation.translations(jsonb) is
    'The times in which columns had other names there (bds_operation.past_names) than here, or were text in another form. names: '
    'those there, each with that of here; texts: see bds_change_log.old_at; lost: names there of columns whose values history here '
    'would show wrongly or not at all';

create function bds_operation.require_history(header jsonb)
    returns void
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    company text := header ->> 'company';
    odd     record;
begin
    select h.entity into odd
    from (select c.entity, min(c.since) as since from bds.column_history c group by c.entity) h
    where h.since > (header -> 'history' ->> h.entity)::timestamptz and exists (
        select 1 from bds.change_log l
        where l.company_id = company and l.entity = h.entity
            and l.created_at < h.since and l.created_at >= (header -> 'history' ->> h.entity)::timestamptz
    )
    limit 1;
    if found then
        raise exception using
            errcode = 'BD005',
            message = format('the history of %s begins later here than in the dump: changes before would be hidden', odd.entity),
            hint = format(
                'if its table is empty and no company here has changes of it: select bds.unregister(%L); %s; else restore into '
                'another database',
                odd.entity, (select bds_registry.register_statement(e) from bds.entities e where e.name = odd.entity)
            );
    end if;
    select l.entity, l.id, k.key into odd
    from bds_operation.translations(header -> 'names') t
    join bds.change_log l on l.entity = t.entity and l.created_at >= t.since and l.created_at < t.until and l.old ?| t.lost
    cross join unnest(t.lost) k (key)
    where l.company_id = company and l.old ? k.key
    limit 1;
    if found then
        raise exception using
            errcode = 'BD005',
            message = format(
                'the table of %s was altered at another time there than here: change %s has an old value of %s, which history here '
                'would show wrongly or not at all', odd.entity, odd.id, odd.key
            ),
            hint = 'restore into a database whose table was altered at no later time';
    end if;
end
$$;
comment on function bds_operation.require_history(jsonb) is
    'Raises BD005 if history of a company, which has been copied here with the header of a dump, would be hidden or shown wrongly';

create function bds_operation.renamed_ranges(company text, names jsonb)
    returns bigint[]
    language sql
    stable
as $$
    select coalesce(array_agg(s.first_id), '{}')
    from bds.seals s
    where s.company_id = company and s.log = 'changes' and exists (
        select from (
            select l.company_id, l.id, l.entity, l.created_at, l.old from bds.change_log l
            union all
            select a.company_id, a.id, a.entity, a.created_at, a.old from bds.change_archive a
        ) l
        join bds_operation.translations(names) n on n.entity = l.entity and l.created_at >= n.since and l.created_at < n.until
        where l.company_id = company and l.id between s.first_id and s.last_id
            and bds_change_log.old_at(l.old, n.names, n.texts) is distinct from l.old
    );
$$;
comment on function bds_operation.renamed_ranges(text, jsonb) is
    'The sealed ranges of a restored log that have old values of other names, or of texts in another form';

create function bds_operation.rename_restored(header jsonb)
    returns void
    language plpgsql
as $$
declare
    company text := header ->> 'company';
    log     regclass;
    opened  jsonb;
begin
    perform bds_operation.require_history(header);
    if exists (select from bds_operation.translations(header -> 'names')) then
        opened := bds_seals.open_ranges(company, bds_operation.renamed_ranges(company, header -> 'names'));
        foreach log in array array['bds.change_log', 'bds.change_archive']::regclass[] loop
            execute format(
                'update %s l set old = bds_change_log.old_at(l.old, n.names, n.texts) from bds_operation.translations($2) n '
                'where l.company_id = $1 and l.entity = n.entity and l.created_at >= n.since and l.created_at < n.until '
                'and bds_change_log.old_at(l.old, n.names, n.texts) <> l.old',
                log
            )
            using company, header -> 'names';
        end loop;
        if opened <> '[]' then
            perform bds_audit.note(company, 'rename', 'changes', bds_seals.closed(company, opened));
        end if;
    end if;
end
$$;
comment on function bds_operation.rename_restored(jsonb) is
    'Gives old values of a restored log the names that their columns had here at the time, if columns were renamed there at other '
    'times than here. Raises BD005 as bds_operation.require_history';
