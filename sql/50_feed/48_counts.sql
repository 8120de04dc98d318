-- Counts of what an import has done, {entity: {created, updated, deleted, unchanged, failed}}, and the state in which it ends.

create function bds_feed.add_counts(counts jsonb, entity_name text, more jsonb)
    returns jsonb
    language sql
    immutable
    return case when more is null then counts else counts || jsonb_build_object(entity_name, coalesce(counts -> entity_name, '{}') || (
        select coalesce(jsonb_object_agg(m.key, m.value::bigint + coalesce((counts -> entity_name ->> m.key)::bigint, 0)), '{}')
        from jsonb_each_text(more) m
    )) end;
comment on function bds_feed.add_counts(jsonb, text, jsonb) is 'Adds {created: 1, ...} to the counts of an entity';

create function bds_feed.count_failed(counts jsonb)
    returns jsonb
    language plpgsql
    stable
as $$
begin
    return counts || (
        select coalesce(jsonb_object_agg(f.name, coalesce(counts -> f.name, '{}') || jsonb_build_object(
            -- and rows that could not be removed
            'failed', f.failed + (select count(*) from pg_temp.feed_errors e where e.entity = f.name and e.ordinal is null))), '{}')
        from pg_temp.feed_entities f
    );
end
$$;
comment on function bds_feed.count_failed(jsonb) is 'The counts, with those of the records that failed';

create function bds_feed.outcome(counts jsonb)
    returns text
    language plpgsql
    stable
as $$
declare
    failed  bigint;
    records bigint;
    kept    bigint;
    deleted bigint;
begin
    if not exists (select from pg_temp.feed_errors) then
        return 'completed';
    end if;
    select count(*) into kept from pg_temp.feed_errors e where e.ordinal is null;
    select sum((c.value ->> 'deleted')::bigint) into deleted from jsonb_each(counts) c;
    select coalesce(sum(f.failed), 0), sum(f.rows) into failed, records from pg_temp.feed_entities f;
    return case
        when failed + kept = 0 then 'completed'
        when failed > 0 and failed = records and coalesce(deleted, 0) = 0 then 'failed'
        else 'partial'
    end;
end
$$;
comment on function bds_feed.outcome(jsonb) is 'The state in which an import that has written ends';
