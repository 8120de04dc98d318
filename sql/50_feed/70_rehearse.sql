-- The unforeseen: a rule of a table that no check knows (a trigger that raises, an exclusion constraint) refuses a whole statement.
-- Which records it refuses is found by trying ranges of them under savepoints: what was refused is halved, what was taken doubles, so
-- that each row is tried a few times, however many are refused.

create function bds_feed.find_culprits(import bds.imports)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb;
begin
    begin
        problems := bds_feed.rehearse(import);
        raise exception using errcode = 'BDF02', message = 'only a rehearsal';
    exception when sqlstate 'BDF02' then
        null;
    end;
    return problems;
end
$$;
comment on function bds_feed.find_culprits(bds.imports) is 'Errors of the records that the database refuses, as bds_feed.keep_errors takes them; null if it refuses none of them alone';

create function bds_feed.rehearse(import bds.imports)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    this     record;
    problems jsonb;
    members  text[];
begin
    -- the steps of bds_feed.apply, up to the first that finds any: what others would find may be their consequence
    for this in select f.name, bds_feed.written_later(f.name) as later from pg_temp.feed_entities f order by f.place loop
        problems := bds_feed.rehearse_write(import, this.name, this.later);
        if problems is not null then
            return problems;
        end if;
    end loop;
    for this in select f.name from pg_temp.feed_entities f where bds_feed.written_later(f.name) <> '{}' order by f.place loop
        execute format('update pg_temp.%I set "@new" = false where "@new"', 'diff_' || this.name);
        problems := bds_feed.rehearse_write(import, this.name, '{}');
        if problems is not null then
            return problems;
        end if;
    end loop;
    -- these see to their own errors
    perform bds_feed.mass_update(import, f.name) from pg_temp.feed_entities f where f.updates > 0;
    for members in select * from bds_feed.families_in_delete_order() loop
        perform bds_feed.delete_records(import, members, '{}');
    end loop;
    for this in select f.name from pg_temp.feed_entities f order by f.place desc loop
        problems := bds_feed.rehearse_remove(import, this.name);
        if problems is not null then
            return problems;
        end if;
    end loop;
    return null;
end
$$;
comment on function bds_feed.rehearse(bds.imports) is 'Writes, as far as can be; returns errors of the records that the database refuses, null if there are none';

create function bds_feed.rehearse_write(import bds.imports, entity_name text, later text[])
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    ordinals bigint[];
begin
    execute format('select array_agg(d."@ordinal" order by d."@ordinal") from pg_temp.%I d', 'diff_' || entity_name) into ordinals;
    execute format('create index if not exists %I on pg_temp.%I ("@ordinal")', 'rehearsal_' || entity_name, 'diff_' || entity_name);
    return bds_feed.refused(entity_name, bds_feed.write_in_ranges(
        array[format('select bds_import.%I($1, $2, $3, %L)', 'write_' || entity_name, later)], import.company_id, ordinals));
end
$$;
comment on function bds_feed.rehearse_write(bds.imports, text, text[]) is 'Writes the differences of an entity, as far as can be; returns errors of the others';

create function bds_feed.rehearse_remove(import bds.imports, parent_name text)
    returns jsonb
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    problems jsonb[];
begin
    execute format('select bds_import.%I($1)', 'find_removed_' || parent_name) using import.company_id;
    perform bds_feed.filled(import, 'feed_gone');
    problems := bds_feed.write_in_ranges(
        array[format('select bds_import.%I($1, $2, $3)', 'remove_' || parent_name)], import.company_id,
        array(select distinct g.ticket from pg_temp.feed_gone g order by 1));
    delete from pg_temp.feed_gone;
    return bds_feed.refused(parent_name, problems, true);
end
$$;
comment on function bds_feed.rehearse_remove(bds.imports, text) is
    'Removes what arrays no longer contain, as far as can be; returns errors of the parents whose array it is';
