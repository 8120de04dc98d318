"""Writers in SQL: declared and undeclared, of one or two companies, with several statements, savepoints and rollbacks.

A writer alone writes the rows whose codes begin with its name, so it knows what they hold; and all add to a few shared rows.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

from soak.ledger import ACKNOWLEDGED, ROLLED_BACK, Change, Ledger, Write
from soak.world import COMPANIES, PATIENCE, WRITER, World

SHARED = ("shared0", "shared1", "shared2")
OWN = 12  # codes of a writer in each company and entity
STOPPED = (psycopg.OperationalError, psycopg.InterfaceError)
IN_LOG = """select entity, row_id, operation::text from bds.changes
    where company_id = %s and transaction_id = %s::text::xid8 and row_id = any (%s)"""


@dataclass
class Draft:
    """What a transaction has done so far in one company."""

    company: str
    changes: list[Change] = field(default_factory=list)
    rows: dict[tuple[str, str, str], dict[str, Any] | None] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Draft:
        return Draft(self.company, list(self.changes), dict(self.rows), dict(self.added))


@dataclass
class Writer:
    """One session.  declared: whether it calls bds.set_context; companies: which it writes in each transaction, in this order."""

    world: World
    ledger: Ledger
    name: str
    rng: random.Random
    declared: bool = True
    companies: tuple[str, ...] = COMPANIES[:1]
    pause: float = 0.01  # seconds between transactions
    connection: psycopg.Connection[Any] | None = None

    def run(self) -> None:
        while not self.ledger.stop.is_set():
            try:
                self._connected()
                self._transact()
            except STOPPED:
                self.connection = None
                time.sleep(0.1)
            self.ledger.stop.wait(self.pause)
        if self.connection:
            self.connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self.connection is None or self.connection.broken:
            self.connection = self.world.connect(WRITER if self.declared else None, self.name)
        return self.connection

    def _transact(self) -> None:
        drafts, transaction, sure = [Draft(company) for company in self.companies], 0, False
        connection = self._connected()
        try:
            connection.execute("begin")
            transaction = int(connection.execute("select pg_current_xact_id()::text").fetchone()[0])  # type: ignore[index]
            for n, draft in enumerate(drafts):
                if self.declared:
                    change_set = uuid.UUID(int=self.rng.getrandbits(128)) if self.rng.random() < 0.2 else None
                    connection.execute("select bds.set_context(%s, %s, %s)", (draft.company, self.name, change_set))
                for _ in range(self.rng.randint(1, 4)):
                    drafts[n] = draft = self._savepoint(draft) if self.rng.random() < 0.15 else self._statement(draft)
            commit = self.rng.random() > 0.1
            connection.execute("commit" if commit else "rollback")
            sure = True
        except psycopg.Error as error:
            commit = False
            if error.sqlstate in self.world.refused:
                self.ledger.count(f"refused {error.sqlstate}")
                connection.execute("rollback")
                sure = True
            elif not isinstance(error, STOPPED):
                raise
        for draft in drafts:
            committed = commit if sure else self._was_committed(draft, transaction)
            self._book(draft, transaction, committed)

    def _book(self, draft: Draft, transaction: int, committed: bool) -> None:
        if transaction:
            state = ACKNOWLEDGED if committed else ROLLED_BACK
            self.ledger.writes.append(Write(draft.company, transaction, draft.changes, state))
        if committed:
            self.ledger.rows.update(draft.rows)
            for code, amount in draft.added.items():
                self.ledger.add(draft.company, code, amount)

    def _was_committed(self, draft: Draft, transaction: int) -> bool:
        """Whether a transaction whose answer was lost is in the log.  With the company's turn it can no longer be under way."""
        deadline = time.monotonic() + PATIENCE
        ids = [change.row_id for change in draft.changes]
        while time.monotonic() < deadline:
            with self.world.enduring(), self.world.connect() as connection, connection.transaction(force_rollback=True):
                connection.execute("select bds.lock_company(%s)", (draft.company,))
                found = connection.execute(IN_LOG, (draft.company, str(transaction), ids)).fetchall()
                self.ledger.count("answers of commits lost")
                if found and Counter(Change(*each) for each in found) != Counter(draft.changes):
                    self.ledger.find(f"half a transaction: {self.name} {transaction} in {draft.company}: {found}, {draft.changes}")
                return bool(found)
            time.sleep(0.2)
        raise RuntimeError("the database did not come back")

    def _savepoint(self, draft: Draft) -> Draft:
        connection, before = self._connected(), draft.copy()
        connection.execute("savepoint s")
        after = self._statement(draft)
        if self.rng.random() < 0.5:
            connection.execute("rollback to s")
            return before
        connection.execute("release s")
        return after

    def _statement(self, draft: Draft) -> Draft:
        return self.rng.choice([self._share, self._unit, self._unit, self._unit, self._units, self._item, self._nothing])(draft)

    def _known(self, draft: Draft, entity: str, code: str) -> dict[str, Any] | None:
        key = (draft.company, entity, code)
        return draft.rows[key] if key in draft.rows else self.ledger.rows.get(key)

    def _execute(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self._connected().execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def _share(self, draft: Draft) -> Draft:
        code, amount = self.rng.choice(SHARED), self.rng.randint(1, 9)
        query = "update data.products set price = price + %s where company_id = %s and code = %s returning id"
        for (id,) in self._execute(query, amount, draft.company, code):
            draft.changes.append(Change("products", id, "update"))
            draft.added[code] = draft.added.get(code, 0) + amount
        return draft

    def _unit(self, draft: Draft) -> Draft:
        code = f"{self.name}-{self.rng.randrange(OWN)}"
        known, key = self._known(draft, "units", code), (draft.company, "units", code)
        fields = {"name": f"n{self.rng.getrandbits(40)}", "symbol": self.rng.choice([None, "kg", "ü", "'"])}
        if known is None:
            query = "insert into data.units (company_id, code, name, symbol) values (%s, %s, %s, %s) returning id"
            [(id,)] = self._execute(query, draft.company, code, *fields.values())
            operation, draft.rows[key] = "create", fields
        elif self.rng.random() < 0.3:
            [(id,)] = self._execute("delete from data.units where company_id = %s and code = %s returning id", draft.company, code)
            operation, draft.rows[key] = "delete", None
        else:
            query = "update data.units set name = %s, symbol = %s where company_id = %s and code = %s returning id"
            [(id,)] = self._execute(query, *fields.values(), draft.company, code)
            operation, draft.rows[key] = "update", fields
        draft.changes.append(Change("units", id, operation, tuple(known.items()) if known else None))
        return draft

    def _units(self, draft: Draft) -> Draft:
        """Several rows with one statement."""
        mine = [key for key in list(self.ledger.rows) if key[:2] == (draft.company, "units") and key[2].startswith(f"{self.name}-")]
        codes = [key[2] for key in mine if self._known(draft, "units", key[2])]
        name = f"m{self.rng.getrandbits(40)}"
        query = "update data.units set name = %s where company_id = %s and code = any (%s) returning id, code, symbol"
        for id, code, symbol in self._execute(query, name, draft.company, codes):
            known = self._known(draft, "units", code) or {}
            draft.changes.append(Change("units", id, "update", tuple(known.items())))
            draft.rows[draft.company, "units", code] = {"name": name, "symbol": symbol}
        return draft

    def _item(self, draft: Draft) -> Draft:
        """An order with its items: a changed item is a change of its order, too, once in a transaction."""
        code = f"{self.name}-{self.rng.randrange(OWN // 4)}"
        known = self._known(draft, "orders", code)
        key = (draft.company, "orders", code)
        if known is None:
            query = "insert into data.orders (company_id, code, order_date) values (%s, %s, '2026-01-01') returning id"
            [(id,)] = self._execute(query, draft.company, code)
            draft.changes.append(Change("orders", id, "create"))
            draft.rows[key] = known = {"id": id, "items": ()}
        elif self.rng.random() < 0.2:
            gone = self._execute(
                "select id from data.order_items where company_id = %s and order_id = %s", draft.company, known["id"]
            )
            self._execute("delete from data.orders where company_id = %s and id = %s", draft.company, known["id"])
            draft.changes += [Change("orderItems", id, "delete") for (id,) in gone] + [Change("orders", known["id"], "delete")]
            draft.rows[key] = None
            return draft
        quantity = self.rng.randint(1, 1000)
        query = "insert into data.order_items (company_id, order_id, quantity) values (%s, %s, %s) returning id"
        [(id,)] = self._execute(query, draft.company, known["id"], quantity)
        draft.changes.append(Change("orderItems", id, "create"))
        if not any(change.entity == "orders" and change.row_id == known["id"] for change in draft.changes):
            draft.changes.append(Change("orders", known["id"], "update"))
        draft.rows[key] = {"id": known["id"], "items": (*known["items"], quantity)}
        return draft

    def _nothing(self, draft: Draft) -> Draft:
        """An update that changes nothing leaves no trace."""
        self._execute("update data.units set name = name where company_id = %s and code like %s", draft.company, f"{self.name}-%")
        return draft


def prepare(world: World) -> None:
    """The rows that all writers share."""
    with world.connect() as connection:
        for company in COMPANIES:
            with connection.transaction():
                connection.execute("select bds.set_context(%s, 'soak')", (company,))
                for code in SHARED:
                    connection.execute("insert into data.products (code, name, price) values (%s, 'shared', 0)", (code,))
