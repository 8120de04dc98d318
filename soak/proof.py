"""The soak proves itself: a tamperer changes the database or the ledger, and a check must name each change.

What is done to the database is done by a superuser behind the triggers, in a transaction that is rolled back.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from soak import facts as reading
from soak.audit import Result, database_results
from soak.checks import CHECKS
from soak.facts import Facts
from soak.ledger import ACKNOWLEDGED, ROLLED_BACK, Ledger
from soak.world import COMPANIES, World

COMPANY = COMPANIES[-1]
Connection = psycopg.Connection[Any]
UNSEEN = "set local session_replication_role = replica"


def drop_record(connection: Connection, facts: Facts) -> str:
    id = facts.log[len(facts.log) // 2].id
    connection.execute("delete from bds.change_log where company_id = %s and id = %s", (COMPANY, id))
    return f"change {id} is missing"


def double_record(connection: Connection, facts: Facts) -> str:
    """In the next month, whose partition has a key of its own."""
    id = facts.log[len(facts.log) // 3].id
    connection.execute(
        "create temp table doubled on commit drop as select * from bds.change_log where company_id = %s and id = %s", (COMPANY, id)
    )
    connection.execute("update doubled set created_at = created_at + interval '1 month'")
    connection.execute("insert into bds.change_log select * from doubled")
    return f"change {id} is in the log 2 times"


def set_clock_back(connection: Connection, facts: Facts) -> str:
    id = facts.log[-1].id
    query = """update bds.change_log l set created_at = b.created_at - interval '1 ms'
        from bds.change_log b where l.company_id = %s and l.id = %s and b.company_id = l.company_id and b.id = l.id - 1"""
    connection.execute(query, (COMPANY, id))
    return f"createdAt falls from change {id - 1} to {id}"


def change_row(connection: Connection, facts: Facts) -> str:
    code = _own_unit(facts)
    connection.execute("update data.units set name = 'tampered' where company_id = %s and code = %s", (COMPANY, code))
    return f"units {code}: name is"


def change_row_of_nobody(connection: Connection, facts: Facts) -> str:
    """A row that is in no model: only the hash in the log tells."""
    connection.execute("update data.categories set name = 'tampered' where company_id = %s", (COMPANY,))
    return "('unlogged update', 'beta', 'categories', 1,"


def add_row(connection: Connection, facts: Facts) -> str:
    connection.execute("insert into data.units (company_id, code, name, updated_at) values (%s, 'secret', 'x', now())", (COMPANY,))
    return "1 rows of units have no record of their creation"


def remove_row(connection: Connection, facts: Facts) -> str:
    code = _own_unit(facts)
    connection.execute("delete from data.units where company_id = %s and code = %s", (COMPANY, code))
    return f"units {code} is None"


def alter_old_value(connection: Connection, facts: Facts) -> str:
    record = next(
        r
        for r in facts.log
        if r.entity == "units" and r.operation == "update" and "name" in (r.old or {}) and _is_of_writer(r.old, facts, r.row_id)
    )
    query = """update bds.change_log set old = old || '{"name": "tampered"}' where company_id = %s and id = %s"""
    connection.execute(query, (COMPANY, record.id))
    return f"change {record.id} keeps"


def hide_delivery(connection: Connection, facts: Facts) -> str:
    each = next(each for each in facts.deliveries if each.state == "delivered")
    connection.execute("delete from bds.delivery_attempts where company_id = %s and delivery_id = %s", (COMPANY, each.id))
    connection.execute("delete from bds.deliveries where company_id = %s and id = %s", (COMPANY, each.id))
    return "is in no delivery of hook"


def repeat_delivery(connection: Connection, facts: Facts) -> str:
    each = next(each for each in facts.deliveries if each.state == "delivered")
    query = """insert into bds.deliveries (company_id, hook_id, state, change_set_id, body, change_count, finished_at)
        select company_id, hook_id, state, change_set_id, body, change_count, finished_at from bds.deliveries where company_id = %s and id = %s"""
    connection.execute(query, (COMPANY, each.id))
    return "is in 2 deliveries of hook"


def forget_import(connection: Connection, facts: Facts) -> str:
    each = next(each for each in facts.imports if each.state == "completed" and not each.reverts)
    connection.execute(
        "update bds.imports set state = 'running', finished_at = null where company_id = %s and id = %s", (COMPANY, each.id)
    )
    return f"import {each.id} is running"


def leave_staging(connection: Connection, facts: Facts) -> str:
    connection.execute("create table staging.i1_units ()")
    return "1 staging tables"


def lose_write(ledger: Ledger) -> str:
    """The client was told that it committed, and nothing of it is there."""
    write = next(write for write in ledger.writes if write.company == COMPANY and write.state == ACKNOWLEDGED and write.changes)
    ledger.writes.append(dataclasses.replace(write, transaction=1))
    return "acknowledged transaction 1 wrote"


def unacknowledge(ledger: Ledger) -> str:
    n, write = next((n, w) for n, w in enumerate(ledger.writes) if w.company == COMPANY and w.state == ACKNOWLEDGED and w.changes)
    ledger.writes[n] = dataclasses.replace(write, state=ROLLED_BACK)
    return f"transaction {write.transaction}, which did not commit, is in the log"


def lose_addition(ledger: Ledger) -> str:
    ledger.added[COMPANY, "shared0"] += 1
    return "product shared0 is"


def follow_twice(ledger: Ledger) -> str:
    followed = ledger.followed["stream", COMPANY]
    followed.insert(len(followed) // 2, followed[len(followed) // 2])
    return f"stream has {len(followed)} of {len(followed) - 1} changes"


def follow_less(ledger: Ledger) -> str:
    followed = ledger.followed["pages", COMPANY]
    del followed[len(followed) // 2]
    return f"pages has {len(followed)} of {len(followed) + 1} changes"


def poll_late(ledger: Ledger) -> str:
    ledger.polled["units", COMPANY] = {id: row | {"name": "old"} for id, row in ledger.polled["units", COMPANY].items()}
    return "the reader by updatedAt has"


def lose_attempts(ledger: Ledger) -> str:
    id = _attempt(ledger).webhook_id
    ledger.attempts = [each for each in ledger.attempts if each.webhook_id != id]
    return f"delivery {id} is delivered, the receiver answered []"


def repeat_under_another_id(ledger: Ledger) -> str:
    each = _attempt(ledger)
    ledger.attempts.append(dataclasses.replace(each, webhook_id="another"))
    return f"change {each.changes[0]} came to hook"


def forge_signature(ledger: Ledger) -> str:
    each = _attempt(ledger)
    ledger.attempts.append(dataclasses.replace(each, genuine=False))
    return f"the signature of {each.webhook_id} is wrong"


def see_another_past(ledger: Ledger) -> str:
    columns = {"units": "name", "products": "name", "orders": "status"}  # whichever a reader has seen
    n, seen = next((n, s) for n, s in enumerate(ledger.seen) if s.company == COMPANY and s.entity in columns and s.rows)
    column = columns[seen.entity]
    ledger.seen[n] = dataclasses.replace(seen, rows={id: row | {column: "other"} for id, row in seen.rows.items()})
    return f"at version {seen.version}: {column} is"


IN_DATABASE: tuple[Callable[[Connection, Facts], str], ...] = (
    drop_record, double_record, set_clock_back, change_row, change_row_of_nobody, add_row, remove_row, alter_old_value, hide_delivery,
    repeat_delivery, forget_import, leave_staging,
)  # fmt: skip
IN_LEDGER: tuple[Callable[[Ledger], str], ...] = (
    lose_write, unacknowledge, lose_addition, follow_twice, follow_less, poll_late, lose_attempts, repeat_under_another_id,
    forge_signature, see_another_past,
)  # fmt: skip


def prove(world: World, ledger: Ledger) -> Iterator[Result]:
    """Tamper in each way; a result without findings means that it was found."""
    with world.connect() as connection:
        there = reading.read(connection, COMPANY)
        for act in IN_LEDGER:
            tampered = _copy(ledger)
            yield _result(act, act(tampered), findings(there, tampered))
        for change in IN_DATABASE:
            with connection.transaction(force_rollback=True):
                connection.execute(UNSEEN)
                expected = change(connection, there)
                found = findings(reading.read(connection, COMPANY), ledger)
                found += [each for result in database_results(connection) for each in result.findings]
            yield _result(change, expected, found)


def findings(facts: Facts, ledger: Ledger) -> list[str]:
    return [finding for check in CHECKS for finding in check(facts, ledger)]


def _result(act: Callable[..., str], expected: str, found: list[str]) -> Result:
    named = any(expected in each for each in found)
    return Result(
        f"proof: {act.__name__.replace('_', ' ')}", [] if named else [f"expected a finding with {expected!r}, got {found[:3]}"]
    )


def _copy(ledger: Ledger) -> Ledger:
    """A ledger that can be changed; what is inside its lists cannot be."""
    other = copy.copy(ledger)
    other.writes, other.attempts, other.seen = list(ledger.writes), list(ledger.attempts), list(ledger.seen)
    other.added, other.followed = copy.copy(ledger.added), copy.deepcopy(ledger.followed)
    other.polled = copy.copy(ledger.polled)
    return other


def _own_unit(facts: Facts) -> str:
    """The code of a unit that a writer has written."""
    return next(str(row["code"]) for row in facts.rows["units"].values() if "-" in row["code"])


def _is_of_writer(old: dict[str, Any] | None, facts: Facts, id: int) -> bool:
    row = facts.rows["units"].get(id)
    return row is not None and row["code"].startswith("w")


def _attempt(ledger: Ledger) -> Any:
    """An attempt that was answered well, the only one of its delivery."""
    hooks = {hook.id for hook in ledger.hooks if hook.company == COMPANY and hook.manner == "good"}
    return next(each for each in ledger.attempts if each.hook in hooks and each.status in (200, 204))
