"""Verifies the seals of a company with nothing but psycopg: python verify_seals.py CONNECTION COMPANY [changes|audit]

Reads tables, and bds.audit, as a member of bds_operator; detached months only as their owner.  Prints a line for each range that is
not simply right, as bds.verify_log does, and the head of the chain; exits with 1 if there is a fault.  security.md has the form of
what is hashed.
"""

import hashlib
import json
import sys
from collections import defaultdict
from functools import partial

import psycopg

FAULTS = ("altered", "missing", "added", "chain")
MOST = 10_000  # records of a range
SEALS = """select first_id, last_id, generation, sealed_hash, key, content_hash, previous, hash from bds.seals
    where company_id = %s and log = %s order by first_id"""
SEALED = "select sealed_id from bds.seal_positions where company_id = %s and log = %s"
LAST = {  # the id given last; no row: no such company
    "changes": "select last_id from bds.clocks where company_id = %(company)s and departed_at is null",
    "audit": """select coalesce(max(id), 0) from bds.audit where company_id = %(company)s
        having %(company)s = '' or exists (select from bds.clocks where company_id = %(company)s and departed_at is null)""",
}
VALUES = {
    "changes": """id, row_id, operation, change_set_id, extract(epoch from created_at), extract(epoch from last_updated_at),
        transaction_id, row_hash, entity, actor, db_user, nullif(collections, '{}'), old::text""",
    "audit": "id, extract(epoch from at), actor, db_user, action, object, concerns, detail::text",
}
LOGS = """select 'bds.change_log', null union all select 'bds.change_archive', null union all
    select c.oid::regclass::text, obj_description(c.oid, 'pg_class')
    from pg_class c join pg_constraint k on k.conrelid = c.oid and k.conname = 'is_of_its_month'
    join pg_class l on l.oid = 'bds.change_log'::regclass and l.relowner = c.relowner
    where c.relnamespace = 'bds'::regnamespace and c.relkind = 'r'
        and (not c.relispartition or exists (select from pg_inherits i where i.inhrelid = c.oid and i.inhdetachpending))
        and has_table_privilege(c.relowner, c.oid, 'select') and has_table_privilege(c.relowner, c.oid, 'update') and not exists (
            select attname, atttypid, attcollation from pg_attribute where attrelid = l.oid and attnum > 0 and not attisdropped
            except select attname, atttypid, attcollation from pg_attribute where attrelid = c.oid)"""
# PostgreSQL reads the JSON, in which Python refuses long numbers and deep nesting.
NOTES = """select (note ->> 'first_id')::numeric, note ->> 'before', note ->> 'after', action, object, at::text, actor
    from bds.audit
    cross join lateral jsonb_array_elements(case jsonb_typeof(detail -> 'seals') when 'array' then detail -> 'seals' end) n (note)
    where company_id = %s and action in ('erase', 'rename') and jsonb_typeof(note -> 'first_id') = 'number'
    order by id nulls last, at"""
EXPIRED = """select
        case
            when detail -> 'archived' = 'true' then 'change_archive'
            when detail -> 'left' = '"behind a gap"' then 'change_log'
        end,
        case jsonb_typeof(detail -> 'month') when 'string' then replace(left(detail ->> 'month', 7), '-', '_') end,
        (detail ->> 'first_id')::bigint, (detail ->> 'last_id')::bigint
    from bds.audit
    where company_id = %s and action = 'expire' and object = 'changes'
        and jsonb_typeof(detail -> 'first_id') = 'number' and pg_input_is_valid(detail ->> 'first_id', 'bigint')
        and jsonb_typeof(detail -> 'last_id') = 'number' and pg_input_is_valid(detail ->> 'last_id', 'bigint')
    order by id nulls last, at"""
MONTHS = """select to_char(month at time zone 'UTC', 'YYYY_MM'), first_id from bds.change_months
    where company_id = %s order by month"""
LEFT = """select kind, lower(r), upper(r) - 1, detail
    from (
        select int8multirange(int8range(%(first)s, %(last)s, '[]')) as asked,
            %(stand)s::int8multirange - %(gone)s::int8multirange as stand,
            (select coalesce(range_agg(int8range(id, id, '[]')), '{}') from (IDS) l) as there
    ) i
    cross join lateral (values
        ('missing', asked * stand - there, 'they left the log before they were sealed, and are not there'),
        ('added', there - stand, 'they have expired, and are there'),
        ('expired', asked - (stand - there) - (there - stand), 'they were never sealed')
    ) f (kind, ids, detail)
    cross join unnest(ids) r"""
STANDS = """select name, d.is_divided or r.month is not null,
        d.is_divided or coalesce(pg_partition_root(r.month) = 'bds.change_log'::regclass, false)
    from unnest(%s::text[]) name cross join lateral (select to_regclass(format('bds.%%I', name)) as month) r
    cross join (select partstrat = 'h' as is_divided from pg_partitioned_table where partrelid = 'bds.change_log'::regclass) d"""


def form(log, record):
    """The text of a record: values between spaces, a text after its length in bytes, - for null."""
    *plain, names, last = record
    texts = plain[-3 if log == "changes" else -4 :]
    sized = [part for text in texts for part in (len(text.encode()), text)]
    parts = [*plain[: -len(texts)], *sized, None if names is None else json.dumps(names, ensure_ascii=False), last]
    return " ".join("-" if part is None else str(part) for part in parts).encode()


def noted(connection, company):
    """What the audit has of changes: {first id: [(before, after, kind, act)] of a range}, [(table, month, first id, last id)]."""
    seals, expired = defaultdict(list), connection.execute(EXPIRED, (company,)).fetchall()
    for first, since, until, action, thing, at, actor in connection.execute(NOTES, (company,)):
        kind = "erased" if action == "erase" else "renamed"
        seals[first].append((since, until, kind, f"{action} of {thing} at {at} by {actor}"))
    return seals, [row for row in expired if 0 < row[2] <= row[3] < 2**63 - 1]


def dropped(connection, company, last, expired, titles):
    """The first id that is kept; the ranges of ids that are gone, as the audit says or with their month; those of other months.

    titles: the comments of detached months, which may have other names.
    """
    begun = connection.execute(MONTHS, (company,)).fetchall()
    ends = [*(first for _, first in begun[1:]), last + 1]
    months = {month: ("change_log", first, end - 1) for (month, first), end in zip(begun, ends, strict=False)}
    months |= {month: (table, first, end) for table, month, first, end in expired if table and month is not None}
    names = [f"change_log_{month}" for month, _ in begun] + [f"{table}_{month}" for month, (table, *_) in months.items()]
    stands = {name: (there, attached) for name, there, attached in connection.execute(STANDS, (names,))}
    firsts = []
    for month, first in begun:
        firsts = [*firsts, first] if stands[f"change_log_{month}"][1] else []
    gone, stand = [(first, end) for table, _, first, end in expired if not table], []
    for month, (table, first, end) in months.items():
        is_there = stands[f"{table}_{month}"][0] or f"Changes of {month.replace('_', '-')}" in titles
        (stand if is_there else gone).append((first, end))
    return min(firsts, default=last + 1), gone, stand


def left(connection, company, tables, stand, gone, first, last):
    """Yield what is to be said of ids without a seal that are not kept, some of which months have that stand, as verify does."""
    of = "where company_id = %(company)s and id between %(first)s and %(last)s"
    ids = " union all ".join(f"select id from {table} {of}" for table in tables)
    ranges = ["{" + ",".join(f"[{low},{high}]" for low, high in some if low <= high) + "}" for some in (stand, gone)]
    values = {"company": company, "first": first, "last": last, "stand": ranges[0], "gone": ranges[1]}
    yield from connection.execute(LEFT.replace("IDS", ids), values).fetchall()


def rest(ids, first, last, sealed, kept, left):
    """Yield what is to be said of the ids after the last seal, of which `ids` has (id, number of records), as verify does."""
    if sealed >= first:
        yield "chain", first, sealed, "their seals are gone"
    if kept > first:
        yield from left(first, kept - 1)
    first, end, runs = max(first, kept), max(last, sealed), []
    for id, number in ids:
        if id >= first and runs and runs[-1][1] == id - 1 != last:
            runs[-1][1] = id
        elif id >= first:
            runs.append([id, id])
        if id >= first and number > 1:
            yield "added", id, id, f"{number - 1} more records have this id"
    yield from (("unsealed", start, stop, "they wait for bds.maintain()") for start, stop in runs if stop <= last)
    for start, stop in [*runs, [end + 1, end + 1]]:
        if first < start and first <= end:
            yield "missing", first, min(start - 1, end), "they were not sealed yet, and are not there"
        first = stop + 1
    if ids and ids[-1][0] > last:
        yield "added", min(id for id, _ in ids if id > last), ids[-1][0], "their ids are beyond the last one given"


def verify(connection, company, log):
    """Yield (kind, first id, last id, detail) of each range that is not simply right, at last the head."""
    found = connection.execute(LAST[log], {"company": company}).fetchone()
    if found is None:
        sys.exit(f"no such company here: {company}")
    (last,), (sealed_id,) = found, connection.execute(SEALED, (company, log)).fetchone() or (0,)
    notes, expired = noted(connection, company)
    tables, titles = zip(*connection.execute(LOGS), strict=True) if log == "changes" else (["bds.audit"], [])
    kept, gone, stand = dropped(connection, company, last, expired, titles) if log == "changes" else (1, [], [])
    of_left = partial(left, connection, company, tables, stand, gone)
    some = " union all ".join(
        f"select {VALUES[log]} from {table} where company_id = %s and id between %s and %s" for table in tables
    )
    end, previous = 0, None
    for first, upto, generation, sealed, key, content, before, hash in connection.execute(SEALS, (company, log)).fetchall():
        said, size = defaultdict(list), upto - first + 1
        if first > end + 1 and (log == "audit" or first > kept):
            yield "missing", end + 1, first - 1, "no seal has them"
        elif first > end + 1:
            yield from of_left(end + 1, first - 1)
        asked = (company, first, upto) * len(tables)
        records = connection.execute(f"{some} order by 1", asked).fetchall() if size <= MOST else []
        ids = {record[0] for record in records}
        hashes = (hashlib.sha256(form(log, record)).digest() for record in records)
        if len(ids) < size <= MOST:
            is_gone = not ids and upto < kept and all(any(low <= id <= high for low, high in gone) for id in range(first, upto + 1))
            said["expired" if is_gone else "missing"].append(f"{size - len(ids)} of its {size} records are not there")
        elif len(records) == size and hashlib.sha256(key + b"".join(hashes)).digest() != content:
            said["altered"].append("its records are not as they were sealed")
        if len(records) > len(ids):
            said["added"].append(f"{len(records) - len(ids)} more records have an id of its range")
        led = sealed.hex()
        for since, until, kind, act in notes[first] if log == "changes" else []:
            led = until if since == led else None
            if led is None:
                break
            said[kind].append(act)
        if led != content.hex():
            said["altered"].append("the audit does not lead from its sealed_hash to its content_hash")
        text = (
            f"{len(company.encode())} {company} {log} {first} {upto} {generation} {sealed.hex()} {before.hex() if before else '-'}"
        )
        if hashlib.sha256(text.encode()).digest() != hash or before != previous or first <= end or size > MOST:
            said["chain"].append("its hash is not that of its values, or it does not follow the seal before")
        yield from ((kind, first, upto, "; ".join(details)) for kind, details in sorted(said.items()))
        end, previous = upto, hash
    some = " union all ".join(f"select id from {table} where company_id = %s and id > %s" for table in tables)
    asked = (company, min(max(end + 1, kept) - 1, last)) * len(tables)
    ids = connection.execute(f"select id, count(*) from ({some}) l group by id order by id", asked).fetchall()
    yield from rest(ids, end + 1, last, sealed_id, kept, of_left)
    yield "head", end, end, previous.hex() if previous else "none"


if __name__ == "__main__":
    url, company, log = (*sys.argv[1:], "changes")[:3] if len(sys.argv) in (3, 4) else ("", "", "")
    if log not in LAST:
        sys.exit("usage: python verify_seals.py CONNECTION COMPANY [changes|audit]")
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        faults = 0
        for kind, first, last, detail in verify(connection, company, log):
            print(f"{kind} {first}-{last}: {detail}")
            faults += kind in FAULTS
    sys.exit(1 if faults else 0)
