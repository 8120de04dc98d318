"""Verifies the seals of a company with nothing but psycopg: python verify_seals.py CONNECTION COMPANY [changes|audit]

Reads bds.changes or bds.audit, and bds.seals, as a member of bds_operator.  Prints a line for each range that is not simply right,
as bds.verify_log does, and the head of the chain; exits with 1 if there is a fault.  security.md has the form of what is hashed.
"""

import hashlib
import json
import sys
from collections import defaultdict

import psycopg

FAULTS = ("altered", "missing", "added", "chain")
SEALS = """select first_id, last_id, generation, sealed_hash, key, content_hash, previous, hash from bds.seals
    where company_id = %s and log = %s order by first_id"""
RECORDS = {
    "changes": """select id, row_id, operation, change_set_id, extract(epoch from created_at), extract(epoch from last_updated_at),
        transaction_id, row_hash, entity, actor, db_user, columns, old::text from bds.changes where company_id = %s order by id""",
    "audit": """select id, extract(epoch from at), actor, db_user, action, object, concerns, detail::text from bds.audit
        where company_id = %s and id is not null order by id""",
}
NOTES = """select action, object, at, actor, detail from bds.audit
    where company_id = %s and action in ('erase', 'rename', 'expire') order by id nulls last, at"""


def form(log, record):
    """The text of a record: values between spaces, a text after its length in bytes, - for null."""
    if log == "changes":
        *plain, entity, actor, db_user, columns, old = record
        names = columns[len(json.loads(old, parse_int=str, parse_float=str)) :] if plain[2] == "update" else []
        parts = [*plain, *sized(entity, actor, db_user), json.dumps(names, ensure_ascii=False) if names else None, old]
    else:
        *plain, actor, db_user, action, thing, names, detail = record
        parts = [*plain, *sized(actor, db_user, action, thing), names and json.dumps(names, ensure_ascii=False), detail]
    return " ".join("-" if part is None else str(part) for part in parts).encode()


def sized(*texts):
    return [part for text in texts for part in (len(text.encode()), text)]


def verify(connection, company, log):
    """Yield (kind, first id, last id, detail) of each range that is not simply right, at last the head."""
    notes, expired = defaultdict(list), []
    for action, thing, at, actor, detail in connection.execute(NOTES, (company,)):
        for note in detail.get("seals", []):
            notes[note["first_id"]].append((note["before"], note["after"], action, f"{action} of {thing} at {at} by {actor}"))
        if action == "expire" and "first_id" in detail:
            expired.append((detail["first_id"], detail["last_id"]))
    cursor, seals = connection.cursor(f"records of {log}"), connection.cursor(f"seals of {log}")
    cursor.itersize = 2_000  # records in memory
    records = iter(cursor.execute(RECORDS[log], (company,)))
    record, last, previous = next(records, None), 0, None
    first_kept = record[0] if record else 0
    for first, end, generation, sealed, key, content, before, hash in seals.execute(SEALS, (company, log)):
        said, size = defaultdict(list), end - first + 1
        if first > last + 1:
            yield "missing" if first > first_kept > 0 else "expired", last + 1, first - 1, "no seal has them"
        while record and record[0] < first:
            record = next(records, None)
        number, ids, found = 0, set(), hashlib.sha256(key)
        while record and record[0] <= end:
            found.update(hashlib.sha256(form(log, record)).digest())
            ids.add(record[0])
            number, record = number + 1, next(records, None)
        if not number and any(low <= first and end <= high for low, high in expired):
            said["expired"].append("not in bds.changes, as the audit says")
        elif len(ids) < size:
            said["missing"].append(f"{size - len(ids)} of its {size} records are not there")
        elif number == size and found.digest() != content:
            said["altered"].append("its records are not as they were sealed")
        if number > len(ids):
            said["added"].append(f"{number - len(ids)} more records have an id of its range")
        led = sealed.hex()
        for since, until, action, act in notes[first] if sealed != content and log == "changes" else []:
            if since != led:
                break
            led = until
            said["erased" if action == "erase" else "renamed"].append(act)
        if led != content.hex():
            said["altered"].append("the audit does not lead from its sealed_hash to its content_hash")
        text = (
            f"{len(company.encode())} {company} {log} {first} {end} {generation} {sealed.hex()} {before.hex() if before else '-'}"
        )
        if hashlib.sha256(text.encode()).digest() != hash or before != previous or first <= last or size > 10_000:
            said["chain"].append("its hash is not that of its values, or it does not follow the seal before")
        yield from ((kind, first, end, "; ".join(details)) for kind, details in sorted(said.items()))
        last, previous = end, hash
    if record:
        yield "unsealed", record[0], [record[0], *(later[0] for later in records)][-1], "they wait for bds.maintain()"
    yield "head", last, last, previous.hex() if previous else "none"


if __name__ == "__main__":
    url, company, log = (*sys.argv[1:], "changes")[:3]
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        faults = 0
        for kind, first, last, detail in verify(connection, company, log):
            print(f"{kind} {first}-{last}: {detail}")
            faults += kind in FAULTS
    sys.exit(1 if faults else 0)
