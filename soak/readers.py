"""Followers of every kind, each of which must see every change once and in order; and readers of the past and of entity tags."""

from __future__ import annotations

import http.client
import json
import random
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from soak.ledger import Ledger, Remembered, Seen
from soak.world import ANSWER, World

PAGE = 500
ENTITIES = ("units", "products", "orders", "orderItems")
DEFAULT_FIELDS = {"units": "code,name,symbol", "products": "code,name,price", "orders": "code,status", "orderItems": "quantity"}
# one statement: its snapshot has the rows and the clock
SNAPSHOT = """select c.last_id, (
    select coalesce(jsonb_object_agg(t.id::text, to_jsonb(t) - 'updated_at'), '{{}}')
    from data.{table} t where t.company_id = c.company_id) from bds.clocks c where c.company_id = %s"""
TABLES = {"units": "units", "products": "products", "orders": "orders", "orderItems": "order_items"}


@dataclass
class Reader:
    """One follower of one company."""

    world: World
    ledger: Ledger
    name: str
    company: str
    rng: random.Random

    @property
    def done(self) -> bool:
        """A follower goes on after the writers have stopped, until all of them have everything."""
        return self.ledger.drained.is_set()

    def _got(self, id: int, entity: str, row_id: int, operation: str) -> None:
        followed = self.ledger.followed[self.name, self.company]
        expected = followed[-1][0] + 1 if followed else 1
        if id != expected:
            self.ledger.find(f"{self.name} of {self.company} got change {id} where {expected} was next")
        followed.append((id, entity, row_id, operation))

    @property
    def last(self) -> int:
        followed = self.ledger.followed[self.name, self.company]
        return followed[-1][0] if followed else 0


class Sql(Reader):
    """A plain reader with `id > last`."""

    def run(self) -> None:
        query = "select id, entity, row_id, operation::text from bds.changes where company_id = %s and id > %s order by id limit %s"
        while not self.done:
            with self.world.enduring(), self.world.connect(name=self.name) as connection:
                while not self.done:
                    for row in connection.execute(query, (self.company, self.last, PAGE)):
                        self._got(*row)
                    time.sleep(self.rng.uniform(0, 0.05))
            time.sleep(0.1)


class Pages(Reader):
    """`/changes`, by id."""

    def run(self) -> None:
        while not self.done:
            with self.world.enduring():
                condition = quote(f"id > {self.last}")
                reply = self.world.ask(f"/c/{self.company}/changes?filter={condition}&sort=id&limit={PAGE}")
                if reply.status == 200:
                    for each in reply.json["data"]:
                        self._got(each["id"], each["entity"], int(each["rowId"]), each["operation"])
            time.sleep(self.rng.uniform(0, 0.1))


class Stream(Reader):
    """Server-sent events, cut at random and continued by Last-Event-ID."""

    def run(self) -> None:
        while not self.done:
            with self.world.enduring():
                self._follow(time.monotonic() + self.rng.uniform(0.1, 8))
                self.ledger.count("streams cut")

    def _follow(self, until: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=5)
        try:
            headers = {"X-API-Key": self.world.key, "Last-Event-ID": str(self.last)}
            connection.request("GET", f"/c/{self.company}/changes/stream", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                time.sleep(0.3)
                return
            id = None
            while time.monotonic() < until and not self.done and (line := response.readline()):
                name, _, value = line.decode().rstrip("\r\n").partition(":")
                if name == "id":
                    id = int(value)
                elif name == "data":
                    each = json.loads(value)
                    if each["id"] != id:
                        self.ledger.find(f"{self.name}: event {id} has the change {each['id']}")
                    self._got(each["id"], each["entity"], int(each["rowId"]), each["operation"])
        finally:
            connection.close()


class Updated(Reader):
    """Polls an entity by updatedAt: what it has got last of each row must be the row."""

    entity = "units"

    def run(self) -> None:
        last = "1970-01-01T00:00:00Z"
        rows = self.ledger.polled[self.entity, self.company]
        while not self.done:
            with self.world.enduring():
                condition = quote(f"updatedAt > '{last}'")
                reply = self.world.ask(f"/c/{self.company}/{self.entity}?filter={condition}&sort=updatedAt&limit={PAGE}")
                if reply.status == 200:
                    for each in reply.json["data"]:
                        if each["updatedAt"] < last:
                            self.ledger.find(f"{self.name} of {self.company}: updatedAt falls from {last} to {each['updatedAt']}")
                        last = each["updatedAt"]
                        rows[int(each["id"])] = each
            time.sleep(self.rng.uniform(0, 0.1))


class Past(Reader):
    """Remembers what the past and the present are, for the end; asks for remembered pasts again meanwhile."""

    def run(self) -> None:
        while not self.ledger.stop.is_set():
            with self.world.enduring():
                self.rng.choice([self._snapshot, self._past, self._again])()
            self.ledger.stop.wait(self.rng.uniform(0.1, 0.6))

    def _snapshot(self) -> None:
        entity = self.rng.choice(ENTITIES)
        with self.world.connect(name=self.name) as connection:
            row = connection.execute(SNAPSHOT.format(table=TABLES[entity]).encode(), (self.company,)).fetchone()
        if row and len(self.ledger.seen) < 200:
            self.ledger.seen.append(Seen(self.company, row[0], entity, {int(id): fields for id, fields in row[1].items()}))

    def _past(self) -> None:
        if not (last := len(self.ledger.followed["sql", self.company])):
            return
        version, entity = self.rng.randint(max(1, last - 3000), last), self.rng.choice(ENTITIES)
        path = f"/api/odata/{self.company}@{version}/{entity}?$select=id,{DEFAULT_FIELDS[entity]}&$orderby=id"
        reply = self._odata(path)
        if reply.status == 200:
            self.ledger.remember(Remembered.of(self.company, version, path, reply.body))
        elif reply.status < 500:
            self.ledger.find(f"{path} answers {reply.status}: {reply.body[:300]!r}")

    def _again(self) -> None:
        if self.ledger.remembered:
            recall(self.world, self.ledger, self.rng.choice(self.ledger.remembered))

    def _odata(self, path: str) -> Any:
        return self.world.ask(path, headers={"Authorization": self.world.basic})


def recall(world: World, ledger: Ledger, past: Remembered) -> None:
    """Ask for a past answer again, which must be the same bytes."""
    reply = world.ask(past.path, headers={"Authorization": world.basic})
    if reply.status == 200:
        ledger.count("past answers compared")
        if Remembered.of(past.company, past.version, past.path, reply.body) != past:
            ledger.find(f"the past has changed: {past.path}")
    elif reply.status < 500:
        ledger.find(f"{past.path} answers {reply.status}, after it was 200")


@dataclass
class Tags:
    """Writes a row of its own and reads it with entity tags: 304 means that nothing has changed, and a write is seen at once."""

    world: World
    ledger: Ledger
    name: str
    company: str
    rng: random.Random

    def run(self) -> None:
        self.written, self.tags = "", dict[str, tuple[str, str]]()
        while not self.ledger.stop.is_set():
            with self.world.enduring():
                self._write()
                for _ in range(4):
                    self._read(self.rng.choice(["c", "odata"]))
            self.ledger.stop.wait(0.05)

    def _write(self) -> None:
        """Until it is acknowledged: the same value again and again, which leaves no trace the second time."""
        wanted = f"t{self.rng.getrandbits(40)}"
        query = """insert into data.categories (company_id, code, name) values (%s, %s, %s)
            on conflict (company_id, code) do update set name = excluded.name"""
        while not self.ledger.stop.is_set():
            with self.world.enduring(), self.world.connect(name=self.name) as connection, connection.transaction():
                connection.execute("select bds.set_context(%s, %s)", (self.company, self.name))
                connection.execute(query, (self.company, self.name, wanted))
                break
        else:
            return
        self.written = wanted

    def _read(self, kind: str) -> None:
        path = (
            f"/c/{self.company}/categories/code:{self.name}"
            if kind == "c"
            else f"/api/odata/{self.company}/categories?$filter=code%20eq%20'{self.name}'"
        )
        tag, content = self.tags.get(kind, ("", ""))
        headers = {"Authorization": self.world.basic} | ({"If-None-Match": tag} if tag else {})
        reply = self.world.ask(path, timeout=ANSWER, headers=headers)
        if reply.status == 304:
            self.ledger.count("answers 304")
            if content != self.written:
                self.ledger.find(f"304 for {path}: known is {content}, written was {self.written}")
        elif reply.status == 200:
            body = reply.json if kind == "c" else reply.json["value"][0]
            if body["name"] != self.written:
                self.ledger.find(f"stale: {path} has {body['name']}, {self.written} was acknowledged")
            self.tags[kind] = (reply.headers["ETag"] or "", body["name"])
        elif reply.status < 500:
            self.ledger.find(f"{path} answers {reply.status}: {reply.body[:300]!r}")
