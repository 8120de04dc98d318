"""Hooks of a company, the queue through a worker's connection, a receiver, workers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.database import connections
from app.query.sql.conditions import compile_any
from tests.conftest import Operator
from tests.service.serving import wait_until
from tests.webhooks.receiving import Receiver, receiving

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "app.cli"]
DAY = 86_400.0


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@dataclass(frozen=True)
class Queue:
    """The hooks of a company, and the calls of a worker, made in its role."""

    url: str
    operator: Operator
    worker: psycopg.Connection[Any]
    company: str = "acme"

    def hook(self, entity: str | None = "products", url: str = "http://127.0.0.1:9/", **more: Any) -> str:
        """Register a hook, and compile its filter as a worker does; returns its id."""
        named = {"entity": entity, "url": url, **more}
        call = ", ".join(f"{name} => %({name})s" for name in named)
        [(hook,)] = self.write(f"select bds.create_hook('acme', {call})", named)
        if more.get("filter"):
            self.compile(str(hook["id"]))
        return str(hook["id"])

    def compile(self, hook: str) -> None:
        """Compile a hook's filter."""
        with connections.connect(self.url, "bds_reader") as connection:
            catalog = connections.read_catalog(connection)
        [(as_of, entity, filter)] = self.rows("select updated_at, entity, filter from bds.hooks where id = %s", (hook,))
        compiled = json.dumps([each.members() for each in compile_any(catalog, entity, filter)])
        self.rows("select bds_service.refit_hook(%s, %s, %s, %s, %s)", (self.company, hook, as_of, compiled, catalog.version))

    def write(self, statement: str, parameters: Any = (), **context: Any) -> list[tuple[Any, ...]]:
        return self.operator.write("acme", statement, parameters, **context)

    def rows(self, query: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return self.worker.execute(query.encode(), parameters).fetchall()

    def route(self, window: float = 0.0, most: int = 20_000) -> tuple[int | None, bool]:
        """Match new changes; returns how many were matched, and whether there are more."""
        [(routed, behind)] = self.rows(
            "select * from bds_service.route_changes('acme', make_interval(secs => %s), %s)", (window, most)
        )
        return routed, behind

    def queued(self, hook: str) -> list[int]:
        """The ids of changes that are not in a batch yet."""
        return [row[0] for row in self.rows("select change_id from bds.hook_queue where hook_id = %s order by 1", (hook,))]

    def matched(self, hook: str) -> list[tuple[str, str]]:
        """(entity, operation) of queued changes, after matching new ones."""
        self.route(DAY)
        return self.rows("select entity, operation::text from bds.hook_queue where hook_id = %s order by change_id", (hook,))

    def send(self, *codes: str) -> None:
        """Create products, in a batch of their own that is due."""
        self.products(*codes)
        self.route()
        self.operator.rows("select bds_webhooks.make_batches()")

    def claim(self, most: int = 100, lease: float = 60.0) -> list[dict[str, Any]]:
        """Claim due deliveries: the key of each lease, and the body to send."""
        claimed = self.rows(
            "select company, hook, delivery, lease_id, body from bds_service.claim_deliveries(%s, make_interval(secs => %s))",
            (most, lease),
        )
        return [
            {"company": company, "hook": str(hook), "delivery": str(delivery), "lease": str(lease_id), "body": json.loads(body)}
            for company, hook, delivery, lease_id, body in claimed
        ]

    def record(self, *claimed: dict[str, Any], status: int | None = 200, error: str | None = None) -> list[str]:
        """Record the outcomes of attempts; returns the new states."""
        attempts = [{**each, "body": None, "status": status, "durationMs": 12, "error": error, "reply": "r"} for each in claimed]
        return [row[0] for row in self.rows("select state from bds_service.record_attempts(%s)", (json.dumps(attempts),))]

    def deliveries(self, hook: str) -> list[dict[str, Any]]:
        """The deliveries of a hook as the API shows them, oldest first."""
        return [
            row[0]
            for row in self.rows(
                "select bds_service.delivery_json(d, s) from bds.deliveries d join bds.hook_states s using (company_id, hook_id) where hook_id = %s order by number",
                (hook,),
            )
        ]

    def states(self, hook: str) -> list[str]:
        return [delivery["state"] for delivery in self.deliveries(hook)]

    def due_now(self, hook: str) -> None:
        """Make the hook's next attempt due."""
        self.operator.connection.execute(
            "update bds.deliveries set next_attempt_at = now() where hook_id = %s and finished_at is null", (hook,)
        )
        self.operator.connection.execute(
            "update bds.hook_states set next_at = now(), rests_until = null where hook_id = %s", (hook,)
        )

    def products(self, *codes: str, **context: Any) -> None:
        self.write(
            "insert into data.products (code, name, price) select c, c, 1 from unnest(%s::text[]) c", (list(codes),), **context
        )


@pytest.fixture
def queue(database_url: str, operator: Operator, connect: Any) -> Queue:
    """Company acme, and a connection that acts as a worker."""
    operator.company("acme", "shops")
    return Queue(database_url, operator, connect("bds_worker"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


SETTINGS = {
    "BDS_WEBHOOK_ALLOW_PRIVATE": "1",
    "BDS_WEBHOOK_WINDOW": "0.05",
    "BDS_WEBHOOK_RETRY": "0.1,0.2,0.3",
    "BDS_WEBHOOK_PENALTY": "0.5",
    "BDS_WEBHOOK_TIMEOUT": "1",
    "BDS_WEBHOOK_LEASE": "1",
}


@contextmanager
def working(url: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`bds worker` in a process of its own, once it has started; SIGTERM ends it if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, "worker"], cwd=ROOT, stderr=subprocess.PIPE, env={**os.environ, "BDS_DATABASE_URL": url, **SETTINGS, **settings}
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if b"delivering" in line:
                break
        else:
            raise AssertionError("the worker did not start")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        sys.stderr.write(process.communicate(timeout=30)[1].decode())  # which pytest shows if the test fails


__all__ = ["Queue", "Receiver", "wait_until", "working"]
