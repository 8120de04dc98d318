"""A client that continues after the last updatedAt or change id misses nothing while others write."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

from tests.database.aging import age, maintain
from tests.service.serving import Service, running

pytestmark = pytest.mark.slow

WRITERS, TRANSACTIONS = 4, 20


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    with running(database_url) as service:
        yield service


def write(url: str, number: int, errors: list[BaseException]) -> None:
    """Run transactions with random pauses; some of them, or parts of them, are rolled back."""
    chance = random.Random(number)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for n in range(TRANSACTIONS):
                with connection.transaction(force_rollback=chance.random() < 0.2):
                    time.sleep(chance.random() * 0.01)
                    connection.execute("select bds.set_context('demo')")
                    connection.execute(
                        "insert into data.products (code, name) select %s || '-' || k, 'x' from generate_series(1, 3) k",
                        (f"{number}-{n}",),
                    )
                    with connection.transaction(force_rollback=chance.random() < 0.3):
                        connection.execute(
                            "insert into data.product_variants (code, product_id)"
                            " select %s, id from data.products order by random() limit 1",
                            (f"{number}-{n}",),
                        )
                        connection.execute(
                            "delete from data.products where id in (select id from data.products order by random() limit 1)"
                        )
                    time.sleep(chance.random() * 0.01)
                    connection.execute(
                        "update data.products set price = random() where id in (select id from data.products order by random() limit 3)"
                    )
    except BaseException as error:
        errors.append(error)


class Client:
    """One connection to /c/demo."""

    def __init__(self, service: Service) -> None:
        self._connection = http.client.HTTPConnection(service.host, service.port, timeout=30)
        self._headers = {"X-API-Key": service.key}

    def __call__(self, path: str, **options: str) -> dict[str, Any]:
        self._connection.request("GET", f"/c/demo/{path}?{urlencode(options)}", headers=self._headers)
        response = self._connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer


def follow_changes(service: Service, done: threading.Event, seen: list[dict[str, Any]]) -> None:
    ask = Client(service)
    while True:
        ended = done.is_set()
        page = ask("changes", filter=f"id > {seen[-1]['id'] if seen else 0}", sort="id", limit="7")
        seen += page["data"]
        if ended and not page["data"]:
            assert not page["hasMore"]
            return


def follow_rows(service: Service, done: threading.Event, seen: dict[str, dict[str, Any]]) -> None:
    ask, last = Client(service), "2000-01-01T00:00:00Z"
    while True:
        ended = done.is_set()
        page = ask("products", filter=f"updatedAt > '{last}'", sort="updatedAt", limit="2")
        seen.update((row["id"], row) for row in page["data"])
        last = page["data"][-1]["updatedAt"] if page["data"] else last
        if ended and not page["data"]:
            return


def run_all(*jobs: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def test_readers_by_id_and_by_updated_at_skip_nothing_over_http(service: Service, database_url: str) -> None:
    done, errors = threading.Event(), []
    changes: list[dict[str, Any]] = []
    rows: dict[str, dict[str, Any]] = {}
    readers = run_all(lambda: follow_changes(service, done, changes), lambda: follow_rows(service, done, rows))
    writers = run_all(*[lambda n=n: write(database_url, n, errors) for n in range(WRITERS)])  # type: ignore[misc]
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()

    assert not errors
    [(last,)] = service.operator.rows("select last_id from bds.clocks where company_id = 'demo'")
    assert last > WRITERS * TRANSACTIONS
    assert [change["id"] for change in changes] == list(range(1, last + 1)), "each change once, in order, without gaps"
    deleted = {change["rowId"] for change in changes if (change["entity"], change["operation"]) == ("products", "delete")}
    there = {row["id"]: row for row in Client(service)("products", limit="10000")["data"]}
    assert {row_id: row for row_id, row in rows.items() if row_id not in deleted} == there, (
        "the last state of every row, children too"
    )


def test_a_cursor_before_the_first_kept_change_is_gone_and_names_it(service: Service) -> None:
    operator = service.operator
    for code in "abc":
        operator.write("demo", "insert into data.units (code, name) values (%s, 'x')", (code,))
    tag = service.ask("/c/demo/changes", X_API_Key=service.key, authorization=None).headers["ETag"]
    age(operator, "2001_01", "id < 3")
    operator.connection.execute("select bds.set_retention('1 year')")
    maintain(operator)

    def ask(filter: str) -> tuple[int, Any]:
        reply = service.ask(f"/c/demo/changes?{urlencode({'filter': filter})}")
        return reply.status, reply.json

    for lost in (
        "id > 0", "id > 1", "id >= 2", "id = 1", "id in (1, 3)", "id between 1 and 5", "0 < id", "id > 0.5", "entity = 'units' and id > 1",
        "(entity = 'units' or entity = 'products') and id > 1", "id > 1 or id > 2", "id > -5", "id >= '2'",
    ):  # fmt: skip
        status, problem = ask(lost)
        assert (status, problem["code"], problem["firstId"]) == (410, "gone", 3), lost
    for kept in (
        "",
        "id > 2",
        "id >= 3",
        "id > 1 and id > 2",
        "entity = 'units'",
        "id < 10",
        "not id > 1",
        "id > 5 or entity = 'units'",
        "id != 1",
    ):
        status, answer = ask(kept)
        assert status == 200, kept
        assert all(change["id"] == 3 for change in answer["data"])
    again = service.ask("/c/demo/changes", If_None_Match=tag)
    assert again.status == 200, "what was dropped is a change of the answer"
    assert again.headers["ETag"] != tag


def test_changes_are_filtered_by_row(service: Service) -> None:
    [(row_id,)] = service.operator.write("demo", "insert into data.units (code, name) values ('a', 'x') returning id")
    for filter in (f"entity = 'units' and rowId = '{row_id}'", f"rowId = {row_id}", f"rowId in ('{row_id}', 77)"):
        [change] = service.ask(f"/c/demo/changes?{urlencode({'filter': filter})}").json["data"]
        assert (change["id"], change["rowId"]) == (1, str(row_id))
