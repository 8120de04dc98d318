"""What must hold at the end, of one company.  Each check gives the findings that contradict it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from soak.facts import Facts, Record
from soak.ledger import ACKNOWLEDGED, Change, Hook, Ledger

FEW = 3  # findings of one check that are printed in full

Check = Callable[[Facts, Ledger], Iterator[str]]


def ids_have_no_gaps(facts: Facts, _: Ledger) -> Iterator[str]:
    ids = [record.id for record in facts.log]
    seen = Counter(ids)
    for id, times in seen.items():
        if times > 1:
            yield f"change {id} is in the log {times} times"
    for id in sorted(set(range(1, facts.last_id + 1)) - seen.keys()):
        yield f"change {id} is missing"
    if ids and max(ids) > facts.last_id:
        yield f"change {max(ids)} is after the clock's last one, {facts.last_id}"


def times_never_fall(facts: Facts, _: Ledger) -> Iterator[str]:
    for before, after in pairwise(facts.log):
        if after.created_at < before.created_at:
            yield f"createdAt falls from change {before.id} to {after.id}"


def transactions_are_not_mixed(facts: Facts, _: Ledger) -> Iterator[str]:
    ended: set[int] = set()
    for before, after in pairwise(facts.log):
        if before.transaction != after.transaction:
            ended.add(before.transaction)
            if after.transaction in ended:
                yield f"change {after.id} is of a transaction whose changes had ended before change {before.id}"


def writes_are_in_the_log(facts: Facts, ledger: Ledger) -> Iterator[str]:
    by_transaction: dict[int, list[Change]] = defaultdict(list)
    for record in facts.log:
        by_transaction[record.transaction].append(Change(record.entity, record.row_id, record.operation))
    for write in ledger.writes:
        if write.company != facts.company:
            continue
        found = by_transaction.get(write.transaction, [])
        if write.state == ACKNOWLEDGED:
            if Counter(found) != Counter(write.changes):
                yield f"acknowledged transaction {write.transaction} wrote {write.changes}, the log has {found}"
        elif set(found) & set(write.changes):
            # the id may have been given again after a crash, but the rows are the writer's own
            again = any(
                (w.company, w.transaction, w.state) == (write.company, write.transaction, ACKNOWLEDGED) for w in ledger.writes
            )
            if not again:
                yield f"transaction {write.transaction}, which did not commit, is in the log with {found}"


def old_values_are_kept(facts: Facts, ledger: Ledger) -> Iterator[str]:
    """An update keeps the values that it changed, a delete all of them; a row's records of a transaction are in order."""
    kept: dict[tuple[int, Change], list[Record]] = defaultdict(list)
    for record in facts.log:
        kept[record.transaction, Change(record.entity, record.row_id, record.operation)].append(record)
    for write in ledger.writes:
        if write.company != facts.company or write.state != ACKNOWLEDGED:
            continue
        passed: Counter[Change] = Counter()
        for change in write.changes:
            records = kept[write.transaction, change][passed[change] : passed[change] + 1]
            passed[change] += 1
            for record in records if change.old else ():
                old, names = record.old or {}, None if change.operation == "delete" else (record.old or {}).keys()
                wrong = {name for name, value in change.old or () if (names is None or name in names) and old.get(name) != value}
                if wrong or (names is not None and "name" not in names):
                    yield f"change {record.id} keeps {old}, the row had {change.old}"


def rows_are_as_written(facts: Facts, ledger: Ledger) -> Iterator[str]:
    codes = {entity: {row["code"]: row for row in facts.rows[entity].values()} for entity in ("units", "products", "orders")}
    units = {id: row["code"] for id, row in facts.rows["units"].items()}
    items: dict[int, list[int]] = defaultdict(list)
    for row in facts.rows["orderItems"].values():
        items[int(row["orderId"])].append(int(row["quantity"]))
    for (company, entity, code), wanted in ledger.rows.items():
        if company != facts.company:
            continue
        row = codes[entity].get(code) or None
        if row is None or wanted is None:
            if (row is None) != (wanted is None):
                yield f"{entity} {code} is {row}, was written as {wanted}"
            continue
        here = row | {"unit": units.get(row.get("unitId", 0)), "items": tuple(sorted(items[int(row["id"])]))}
        expected = wanted | ({"items": tuple(sorted(wanted["items"]))} if "items" in wanted else {})
        different = {name for name, value in expected.items() if here[name] != value}
        if different:
            yield f"{entity} {code}: {', '.join(sorted(different))} is {here}, was written as {expected}"
    known = {(entity, code) for company, entity, code in ledger.rows if company == facts.company}
    for entity, rows in codes.items():
        for code in rows:
            if "-" in code and (entity, code) not in known:
                yield f"{entity} {code} was never acknowledged"


def additions_are_not_lost(facts: Facts, ledger: Ledger) -> Iterator[str]:
    for row in facts.rows["products"].values():
        if row["code"].startswith("shared") and row["price"] != ledger.added[facts.company, row["code"]]:
            yield f"product {row['code']} is {row['price']}, {ledger.added[facts.company, row['code']]} was added"


def followers_have_everything(facts: Facts, ledger: Ledger) -> Iterator[str]:
    log = [(record.id, record.entity, record.row_id, record.operation) for record in facts.log]
    for (name, company), followed in ledger.followed.items():
        if company == facts.company and followed != log:
            n = next((n for n, (a, b) in enumerate(zip(followed, log, strict=False)) if a != b), min(len(followed), len(log)))
            yield f"{name} has {len(followed)} of {len(log)} changes; first difference: {followed[n : n + 1]} for {log[n : n + 1]}"


def polled_rows_are_new(facts: Facts, ledger: Ledger) -> Iterator[str]:
    for (entity, company), polled in ledger.polled.items():
        for id, row in facts.rows[entity].items() if company == facts.company else ():
            got = polled.get(id)
            if got is None or any(got.get(name) != row[name] for name in ("code", "name", "symbol")):
                yield f"the reader by updatedAt has {got} for {entity} {id}, which is {row}"


def imports_have_ended(facts: Facts, ledger: Ledger) -> Iterator[str]:
    operations: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for record in facts.log:
        if record.change_set:
            operations[record.change_set][record.entity, record.operation] += 1
    stored = {each.id: each for each in facts.imports}
    for each in facts.imports:
        if each.state in ("receiving", "running"):
            yield f"import {each.id} is {each.state}"
        if (each.dry_run or each.state in ("failed", "cancelled")) and operations[each.id]:
            yield f"import {each.id} is {'a dry run' if each.dry_run else each.state} and wrote {dict(operations[each.id])}"
    for answer in ledger.ended:
        if answer.company != facts.company:
            continue
        if answer.id not in stored or stored[answer.id].state != answer.state or stored[answer.id].entities != answer.entities:
            yield f"import {answer.id} was answered as {answer}, is stored as {stored.get(answer.id)}"
        for entity, counts in answer.entities.items() if not answer.dry_run and answer.state != "failed" else ():
            for count, operation in (("created", "create"), ("deleted", "delete")):
                if counts.get(count, 0) != operations[answer.id][entity, operation]:
                    yield f"import {answer.id} reports {count} {entity} {counts.get(count, 0)}, the log {dict(operations[answer.id])}"


def wants(hook: Hook, record: Record) -> bool:
    """Whether a change must be sent to a hook."""
    if (hook.entity and hook.entity != record.entity) or (record.change_set and not hook.in_change_sets):
        return False
    return not hook.columns or record.operation != "update" or bool(hook.columns & set(record.columns or ()))


def hooks_get_everything_once(facts: Facts, ledger: Ledger) -> Iterator[str]:
    if facts.queued:
        yield f"{facts.queued} changes are queued for hooks"
    stored: dict[str, Counter[int]] = defaultdict(Counter)
    for each in facts.deliveries:
        stored[each.hook].update(int(change["id"]) for change in json.loads(each.body)["changes"])
        if each.state in ("pending", "waiting"):
            yield f"delivery {each.id} is {each.state}"
    for hook in ledger.hooks:
        if hook.company != facts.company:
            continue
        wanted = Counter(record.id for record in facts.log if wants(hook, record))
        for id in list(wanted - stored[hook.id])[:FEW]:
            yield f"change {id} is in no delivery of hook {hook.manner}"
        for id in list(stored[hook.id] - wanted)[:FEW]:
            yield f"change {id} is in {stored[hook.id][id]} deliveries of hook {hook.manner}, {wanted[id]} expected"


def receivers_got_what_was_sent(facts: Facts, ledger: Ledger) -> Iterator[str]:
    hooks = {hook.id: hook for hook in ledger.hooks if hook.company == facts.company}
    under: dict[tuple[str, int], set[str]] = defaultdict(set)
    bodies: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    answers: dict[str, list[int | None]] = defaultdict(list)
    for attempt in ledger.attempts:
        if attempt.hook not in hooks:
            continue
        if not attempt.genuine:
            yield f"the signature of {attempt.webhook_id} is wrong"
        for change in attempt.changes:
            under[attempt.hook, change].add(attempt.webhook_id)
        bodies[attempt.webhook_id].add(attempt.changes)
        answers[attempt.webhook_id].append(attempt.status)
    for (hook, change), ids in under.items():
        if len(ids) > 1:
            yield f"change {change} came to hook {hooks[hook].manner} under {len(ids)} ids: {sorted(ids)}"
    for id, different in bodies.items():
        if len(different) > 1:
            yield f"webhook {id} came with {len(different)} different bodies"
    for each in facts.deliveries:
        got = answers[each.id]
        if each.state == "delivered" and not any(status and status < 300 for status in got):
            yield f"delivery {each.id} is delivered, the receiver answered {got}"
        if each.state == "failed" and not any(status and 400 <= status < 500 for status in got) and each.attempts < 6:
            yield f"delivery {each.id} failed after {each.attempts} attempts, the receiver answered {got}"
        if each.state == "cancelled":
            yield f"delivery {each.id} is cancelled"


def batches_come_in_order(facts: Facts, ledger: Ledger) -> Iterator[str]:
    """The first attempts of batches; a repeated one may come late, from a worker that was stopped."""
    last: dict[str, int] = {}
    known: set[str] = set()
    hooks = {hook.id: hook.manner for hook in ledger.hooks if hook.company == facts.company}
    for attempt in ledger.attempts:
        if attempt.hook not in hooks or attempt.webhook_id in known:
            continue
        known.add(attempt.webhook_id)
        if attempt.changes[0] < last.get(attempt.hook, 0):
            yield f"hook {hooks[attempt.hook]}: the batch of change {attempt.changes[0]} came after that of {last[attempt.hook]}"
        last[attempt.hook] = max(last.get(attempt.hook, 0), attempt.changes[0])
        if list(attempt.changes) != sorted(attempt.changes):
            yield f"the changes of {attempt.webhook_id} are not in order"


def log_leads_back_to_nothing(facts: Facts, ledger: Ledger) -> Iterator[str]:
    """Undo every record from the last to the first: each must fit the rows, and nothing is left."""
    rows: dict[str, dict[int, dict[str, Any]]] = {entity: dict(rows) for entity, rows in facts.rows.items()}
    seen: dict[int, list[Any]] = defaultdict(list)
    for each in ledger.seen:
        if each.company == facts.company:
            seen[each.version].append(each)
    for record in reversed(facts.log):
        for each in seen.get(record.id, ()):
            yield from _compare_snapshot(each, rows[each.entity])
        table = rows.setdefault(record.entity, {})
        present = table.pop(record.row_id, None)
        if (present is None) != (record.operation == "delete"):
            yield f"change {record.id}, a {record.operation} of {record.entity} {record.row_id}, does not fit the row {present}"
        if record.operation == "update" and present is not None:
            table[record.row_id] = present | (record.old or {})
        elif record.operation == "delete":
            table[record.row_id] = record.old or {}
    for entity, left in rows.items():
        if left:
            yield f"{len(left)} rows of {entity} have no record of their creation, such as {next(iter(left.values()))}"


def _compare_snapshot(seen: Any, rows: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Compare what a reader saw at a version with what the log makes of it."""
    names = {
        "order_id": "orderId",
        "unit_id": "unitId",
        "category_id": "categoryId",
        "customer_id": "customerId",
        "product_id": "productId",
    }
    if seen.rows.keys() != rows.keys():
        yield f"{seen.entity} at version {seen.version}: other rows: {sorted(seen.rows.keys() ^ rows.keys())[:FEW]}"
        return
    for id, row in seen.rows.items():
        for column, value in row.items():
            name = names.get(column, column)
            if name in rows[id] and rows[id][name] != value:
                yield f"{seen.entity} {id} at version {seen.version}: {name} is {rows[id][name]!r}, a reader saw {value!r}"


CHECKS: tuple[Check, ...] = (
    ids_have_no_gaps, times_never_fall, transactions_are_not_mixed, writes_are_in_the_log, old_values_are_kept, rows_are_as_written,
    additions_are_not_lost, followers_have_everything, polled_rows_are_new, imports_have_ended, hooks_get_everything_once,
    receivers_got_what_was_sent, batches_come_in_order, log_leads_back_to_nothing,
)  # fmt: skip


def name_of(check: Check) -> str:
    return check.__name__.replace("_", " ")
