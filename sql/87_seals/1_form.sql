-- What is hashed.  docs/security.md gives the form, and docs/verify_seals.py computes it without the database's help: a change here
-- makes every seal of before a fault.

create function bds_seals.generation_of(company text)
    returns bigint
    language sql
    stable
as $$
    select coalesce((select cardinality(c.commons) + 1 from bds.clocks c where c.company_id = company), 1);
$$;
comment on function bds_seals.generation_of(text) is 'The generation of a company; 1 of the server''s audit';

create function bds_seals.most()
    returns bigint
    language sql
    immutable
    return 10000;
comment on function bds_seals.most() is 'How many records a range has at most';

create function bds_seals.form(log text)
    returns text
    language sql
    immutable
    return case log
        when 'changes' then
            'concat_ws('' '', l.id, l.row_id, l.operation, coalesce(l.change_set_id::text, ''-''), '
            'extract(epoch from l.created_at), coalesce(extract(epoch from l.last_updated_at)::text, ''-''), l.transaction_id, '
            'coalesce(l.row_hash::text, ''-''), '
            'octet_length(l.entity), l.entity, octet_length(l.actor), l.actor, octet_length(l.db_user), l.db_user, '
            'coalesce(to_jsonb(nullif(l.collections, array[]::text[]))::text, ''-''), coalesce(l.old::text, ''-''))'
        else
            'concat_ws('' '', l.id, extract(epoch from l.at), octet_length(l.actor), l.actor, octet_length(l.db_user), l.db_user, '
            'octet_length(l.action), l.action, octet_length(l.object), l.object, coalesce(to_jsonb(l.concerns)::text, ''-''), '
            'l.detail)'
    end;
comment on function bds_seals.form(text) is
    'The expression of the canonical text of a record l, which depends on no setting: numbers, and texts after their length in '
    'bytes';

create function bds_seals.records(company text, log text)
    returns text
    language sql
    stable
as $$
    select case
        when log = 'changes' then (
            select format('(%s)', string_agg(
                'select id, entity, row_id, operation, change_set_id, created_at, actor, db_user, transaction_id, collections, '
                'last_updated_at, row_hash, old, company_id from ' || t.name, ' union all '
            ))
            from (
                select 'bds.change_log' union all select 'bds.change_archive'
                union all select m::text from bds_change_log.detached_months() m
            ) t (name)
        )
        when company = '' then
            '(select id, at, actor, db_user, action, object, detail, concerns, '''' collate "C" as company_id '
            'from bds.server_audit)'
        else
            '(select id, at, actor, db_user, action, object, detail, null::text[] as concerns, company_id from bds.company_audit)'
    end;
$$;
comment on function bds_seals.records(text, text) is
    'A subquery of the records of a log wherever they are: changes also in the archive and in detached months';

create function bds_seals.present(company text, first bigint, last bigint)
    returns int8multirange
    language plpgsql
    stable
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
declare
    ids int8multirange;
begin
    execute format(
        'select coalesce(range_agg(int8range(l.id, l.id, ''[]'')), ''{}'') from %s l '
        'where l.company_id = $1 and l.id between $2 and $3',
        bds_seals.records(company, 'changes')
    ) into ids using company, first, last;
    return ids;
end
$$;
comment on function bds_seals.present(text, bigint, bigint) is
    'The changes from one id to another that are there, wherever they are';

create function bds_seals.seal_hash(seal bds.seals)
    returns bytea
    language sql
    stable
as $$
    select sha256(convert_to(
        concat_ws(
            ' ', octet_length(seal.company_id), seal.company_id, seal.log, seal.first_id, seal.last_id, seal.generation,
            encode(seal.sealed_hash, 'hex'), coalesce(encode(seal.previous, 'hex'), '-')
        ), 'UTF8'
    ));
$$;
comment on function bds_seals.seal_hash(bds.seals) is 'The hash of a seal';

create function bds_seals.new_key()
    returns bytea
    language sql
    volatile
    return uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
comment on function bds_seals.new_key() is 'A key of a range: 32 bytes, 244 bits of which are random';

create function bds_seals.content(company text, log text)
    returns text
    language sql
    stable
as $$
    select bds_impl.fill(
        $sql$(
    select count(*) as number, count(distinct l.id) as ids,
        sha256(s.key || coalesce(string_agg(sha256(convert_to({form}, 'UTF8')), ''::bytea order by l.id), ''::bytea)) as hash
    from {records} l
    where l.company_id = s.company_id and l.id between s.first_id and s.last_id and s.last_id - s.first_id < bds_seals.most()
)$sql$,
        'form', bds_seals.form(log), 'records', bds_seals.records(company, log)
    );
$$;
comment on function bds_seals.content(text, text) is
    'A subquery of what there is of the range of a seal s: number of records and of ids, the content hash under its key';

create function bds_seals.last_id(company text, log text)
    returns bigint
    language sql
    stable
as $$
    select coalesce(case
        when log = 'changes' then (select r.last_id from bds.residents r where r.company_id = company)
        when company = '' then (select max(a.id) from bds.server_audit a)
        else (select max(a.id) from bds.company_audit a where a.company_id = company)
    end, 0);
$$;
comment on function bds_seals.last_id(text, text) is 'The id of the last record that is committed; 0: there is none';

create function bds_seals.last_seal(company text, log text, before bigint default null)
    returns bds.seals
    language sql
    stable
as $$
    select s.* from bds.seals s
    where s.company_id = company and s.log = last_seal.log and (before is null or s.first_id < before)
    order by s.first_id desc
    limit 1;
$$;
comment on function bds_seals.last_seal(text, text, bigint) is 
    'The last seal of a log, or the last that begins before an id; null: there is none';
