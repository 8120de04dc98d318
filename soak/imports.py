"""Writers over HTTP: imports of every kind, some cut, cancelled or sent again, and their undoing.

An importer alone writes the rows whose codes begin with its name.  An answer that was lost is asked for again: some imports
are sent with a key until an answer comes, and some once more after it: that is one import with one answer.  Of the others the
rows must be as before or as wanted.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from soak.documents import CODES, Document, Maker
from soak.ledger import Ended, Ledger, Rows
from soak.world import ANSWER, PATIENCE, Reply, World

LOST = (OSError, http.client.HTTPException)
FINAL = {"completed", "partial", "failed", "cancelled"}
# answers after which nothing is settled: the service or the database was away, or the first one runs yet
AGAIN = {409, 429, 500, 502, 503, 507}
MAPPER = """type csv
units = 'row' {
    code = 'key'
    name = 'title'
}
"""
OWN = """select to_jsonb(t) - 'updated_at' from data.{table} t where company_id = %s and {condition} order by id"""
UNDER_WAY = "select from bds.imports where company_id = %s and finished_at is null and started_at <= %s"
TABLES = {
    "units": "code like %s",
    "products": "code like %s",
    "orders": "code like %s",
    "order_items": "order_id in (select id from data.orders o where o.company_id = t.company_id and o.code like %s)",
}


@dataclass
class Importer:
    world: World
    ledger: Ledger
    name: str
    company: str
    rng: random.Random

    def __post_init__(self) -> None:
        self._maker = Maker(self.ledger, self.name, self.company, self.rng)

    def run(self) -> None:
        kinds: list[tuple[Callable[[], object], int]] = [
            (self._plain, 6), (self._undone, 4), (self._atomic, 2), (self._independent, 2), (self._dry, 2), (self._async, 3),
            (self._cancelled, 2), (self._cut, 2), (self._mapped, 2), (self._large, 1),
        ]  # fmt: skip
        while not self.ledger.stop.is_set():
            kind = self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            kind()
            self.ledger.count(f"imports {kind.__name__[1:]}")
            self.ledger.stop.wait(self.rng.uniform(0.02, 0.3))

    # How they are sent ---------------------------------------------------------------------------------------------------------

    def _plain(self) -> Ended | None:
        document = self._maker.document()
        return self._settle(document, self._send(json.dumps(document.body).encode(), key=self.rng.random() < 0.7), document.rows)

    def _large(self) -> None:
        """More records than one statement imports."""
        document = self._maker.large()
        body = gzip.compress(json.dumps(document.body).encode())
        self._settle(document, self._send(body, key=True, headers={"Content-Encoding": "gzip"}), document.rows)

    def _atomic(self) -> None:
        document = self._maker.with_error(atomic=True)
        self._settle(document, self._send(json.dumps(document.body).encode(), key=True), {}, expected="failed")

    def _independent(self) -> None:
        document = self._maker.with_error(atomic=False)
        self._settle(document, self._send(json.dumps(document.body).encode(), key=True), document.rows, expected="partial")

    def _dry(self) -> None:
        document = self._maker.document()
        self._settle(document, self._send(json.dumps(document.body).encode(), key=True, query="?dryRun=true"), {})

    def _mapped(self) -> None:
        source, rows = self._maker.lines()
        reply = self._send(source, key=True, query="?mapper=soak", headers={"Content-Type": "text/csv"})
        self._settle(None, reply, rows)

    def _async(self) -> None:
        document = self._maker.document()
        reply = self._send(json.dumps(document.body).encode(), key=True, headers={"Prefer": "respond-async"})
        if reply is not None and reply.status == 202:
            reply = self._wait_for(reply.headers["Location"] or "")
        self._settle(document, reply, document.rows)

    def _cancelled(self) -> None:
        document = self._maker.document(30)
        with contextlib.suppress(*LOST):
            body = json.dumps(document.body).encode()
            reply = self._ask(body, "", {"Prefer": "respond-async"})
            if reply.status == 202:
                where = reply.headers["Location"] or ""
                with contextlib.suppress(*LOST):
                    self.world.ask(where, "DELETE")
                self._settle(document, self._wait_for(where), document.rows, cancelled=True)
                return
        self._settle(document, None, document.rows)

    def _cut(self) -> None:
        """A body that ends in the middle: nothing may be written."""
        document = self._maker.document()
        body = json.dumps(document.body).encode()
        head = f"POST /api/{self.company}/import HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.world.key}\r\nContent-Type: application/json\r\n"
        with contextlib.suppress(*LOST), socket.create_connection(("127.0.0.1", self.world.port), timeout=ANSWER) as client:
            client.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[: self.rng.randrange(len(body))])
            self.ledger.stop.wait(self.rng.uniform(0, 0.3))
        self._settle(document, None, {}, lost=False)

    def _undone(self) -> None:
        """An import that is undone at once leaves every row as it was, under its id."""
        before = self._read()
        ended = self._plain()
        if ended is None or ended.state != "completed" or before is None:
            return
        known = {key: self._before.get(key) for key in self._wanted}
        reply = self._send(b"", key=True, path=f"/imports/{ended.id}/revert")
        after = self._read()
        if after is None:
            return
        if after == before:
            self.ledger.rows.update(known)
            self.ledger.undone.append((self.company, ended.id))
        elif reply is not None and reply.status == 200 and reply.json["state"] == "completed":
            self.ledger.find(
                f"undo of {ended.id} in {self.company} does not restore: {_first_difference(before, after)};"
                f" the import: {ended.entities}, its undo: {reply.json['importId']} {reply.json['entities']}"
            )
        elif reply is not None and reply.status not in AGAIN:
            self.ledger.find(f"undo of {ended.id} in {self.company} answers {reply.status}: {reply.body[:300]!r}")

    # What has become of them ---------------------------------------------------------------------------------------------------

    def _ask(self, body: bytes, query: str, headers: dict[str, str], path: str = "/import") -> Reply:
        named = {"Content-Type": "application/json"} | headers
        return self.world.ask(f"/api/{self.company}{path}{query}", "POST", body, headers=named)

    def _send(
        self, body: bytes, key: bool, query: str = "", path: str = "/import", headers: dict[str, str] | None = None
    ) -> Reply | None:
        """The answer; with a key it is sent until there is one.  None: it was lost."""
        named = dict(headers or {})
        if key:
            named["Idempotency-Key"] = str(uuid.UUID(int=self.rng.getrandbits(128)))
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(*LOST):
                reply = self._ask(body, query, named, path)
                if reply.status not in AGAIN:
                    if key and self.rng.random() < 0.2:
                        self._repeat(reply, body, query, named, path)
                    return reply
                if not key:
                    return None
            if not key:
                return None
            if time.monotonic() > deadline:
                self.ledger.find(f"no answer to an import of {self.company} for {PATIENCE:.0f} s")
                return None
            self.ledger.count("imports sent again")
            time.sleep(0.3)

    def _repeat(self, first: Reply, body: bytes, query: str, named: dict[str, str], path: str) -> None:
        """The same request with the same key has the same answer; that of an asynchronous one goes on."""
        with contextlib.suppress(*LOST):
            reply = self._ask(body, query, named, path)
            is_same = reply.json == first.json or (first.status == 202 and reply.json["importId"] == first.json["importId"])
            if reply.status not in AGAIN and not (is_same and reply.status == first.status):
                self.ledger.find(f"a request in {self.company} is answered {first.body[:300]!r}, and again {reply.body[:300]!r}")
            self.ledger.count("answers asked for again")

    def _wait_for(self, where: str) -> Reply | None:
        """The report of an asynchronous import, when it has ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(*LOST):
                reply = self.world.ask(where)
                if reply.status == 200 and reply.json["state"] in FINAL:
                    return reply
            time.sleep(0.1)
        self.ledger.find(f"import {where} has not ended after {PATIENCE:.0f} s")
        return None

    def _settle(
        self, document: Document | None, reply: Reply | None, rows: Rows, *, expected: str = "completed", lost: bool = True,
        cancelled: bool = False,
    ) -> Ended | None:  # fmt: skip
        """Note what the rows are now.  lost: whether the rows tell what an answer would have said."""
        self._wanted, self._before = rows, dict(self.ledger.rows)
        if reply is None or (cancelled and reply.json.get("state") != "completed"):
            self._resolve(rows if lost else {})
            return None
        report = reply.json
        if "state" not in report or report["state"] not in ({expected, "failed"} if self._stopped(report) else {expected}):
            errors = report.get("errors") or reply.body[:400]
            self.ledger.find(
                f"import {report.get('importId')} into {self.company} is not {expected}: {reply.status} {errors}"[:800]
            )
            self._resolve(rows)
            return None
        if report["state"] == expected:
            self.ledger.rows.update(rows)
        else:
            self._resolve(rows)
        ended = Ended(self.company, report["importId"], report["state"], not rows, report["entities"])
        self.ledger.ended.append(ended)
        return ended

    def _stopped(self, report: dict[str, Any]) -> bool:
        """Whether it ended because its process or the database did, or did not begin: what was staged is gone."""
        return any(error["code"] in ("aborted", "busy", "conflict") for error in report.get("errors", []))

    def _resolve(self, rows: Rows) -> None:
        """Without an answer, the rows of each entity are as before, or all as wanted."""
        now = self._current()
        if now is None:
            return
        for entity in ("units", "products", "orders"):
            wanted = {key: fields for key, fields in rows.items() if key[1] == entity}
            before = {key: self.ledger.rows.get(key) for key in wanted}
            found = {key: now.get(key) for key in wanted}
            if found == wanted:
                self.ledger.rows.update(wanted)
            elif found != before:
                key = next(key for key in wanted if found[key] != before[key])
                self.ledger.find(
                    f"half an import in {self.company}: {key} is {found[key]}, was {before[key]}, wanted {wanted[key]}"
                )
                self.ledger.rows.update(found)

    def _current(self) -> Rows | None:
        """The rows that this importer writes, in the form of the ledger."""
        tables = self._read()
        if tables is None:
            return None
        units = {row["id"]: row["code"] for row in tables["units"]}
        rows: Rows = {
            (self.company, "units", row["code"]): {"name": row["name"], "symbol": row["symbol"]} for row in tables["units"]
        }
        for key, fields in list(rows.items()):
            if int(key[2].rpartition("-")[2]) >= CODES and fields is not None:
                del fields["symbol"]
        for row in tables["products"]:
            fields = {"name": row["name"], "price": int(row["price"]), "unit": units.get(row["unit_id"])}
            rows[self.company, "products", row["code"]] = fields
        for row in tables["orders"]:
            items = [int(each["quantity"]) for each in tables["order_items"] if each["order_id"] == row["id"]]
            rows[self.company, "orders", row["code"]] = {"items": tuple(sorted(items))}
        return rows

    def _read(self) -> dict[str, list[dict[str, Any]]] | None:
        """The rows that this importer writes, when no import of its is under way; None if they cannot be read."""
        deadline, since = time.monotonic() + PATIENCE, None
        while time.monotonic() < deadline:
            with self.world.enduring(), self.world.connect() as connection, connection.transaction():
                since = since or connection.execute("select clock_timestamp()").fetchone()
                if connection.execute(UNDER_WAY, (self.company, *(since or ()))).fetchone():
                    time.sleep(0.05)
                    continue
                connection.execute("select bds.lock_company(%s)", (self.company,))
                return {
                    table: [row for (row,) in connection.execute(
                        OWN.format(table=table, condition=condition).encode(), (self.company, f"{self.name}-%")
                    )]
                    for table, condition in TABLES.items()
                }  # fmt: skip
            time.sleep(0.2)
        self.ledger.find("the database did not come back")
        return None


def _first_difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    for table in before:
        old, new = ({row["id"]: row for row in rows[table]} for rows in (before, after))
        for id in old.keys() | new.keys():
            if old.get(id) != new.get(id):
                return f"{table} {id} was {old.get(id)}, is {new.get(id)}"
    return "nothing"


def prepare(world: World, companies: tuple[str, ...]) -> None:
    for company in companies:
        reply = world.ask(f"/api/{company}/mappers/soak", "PUT", MAPPER.encode(), headers={"Content-Type": "text/plain"})
        if reply.status not in (200, 201, 204):
            raise RuntimeError(f"the mapper was refused: {reply.status} {reply.body!r}")
