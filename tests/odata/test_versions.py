"""Entity tags are versions of the data, whatever is written meanwhile: a 304 never hides a change."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.http.serving import running

WRITERS, READERS, TURNS = 3, 4, 40
PATHS = [
    ("/products?$top=50&$select=price", "value"),
    ("/products(1)?$select=price", "row"),
    ("/products?$select=price", "value"),
    ("/products?$apply=aggregate(price%20with%20max%20as%20highest)", "value"),
]


def highest(body: bytes, shape: str) -> float:
    answer = json.loads(body)
    rows = answer["value"] if shape == "value" else [{"price": answer["price"]}]
    return max(float(next(iter(row.values()))) for row in rows)


@pytest.mark.parametrize(("path", "shape"), PATHS)
def test_a_304_never_hides_a_change(database_url: str, path: str, shape: str) -> None:
    """The price only rises: who is told `not modified` must hold at least what was committed before the question."""
    with running(database_url) as service:
        service.operator.write(
            "demo", "insert into data.products (company_id, id, code, name, price) values ('demo', 1, 'A', 'A', 0)"
        )
        committed, lock, done = [0.0], threading.Lock(), threading.Event()

        def write(seed: int) -> None:
            generator = random.Random(seed)
            with psycopg.connect(database_url, autocommit=True) as connection:
                for _ in range(TURNS):
                    with connection.transaction(force_rollback=generator.random() < 0.2) as turn:
                        connection.execute("select bds.set_context('demo')")
                        row = connection.execute("update data.products set price = price + 1 returning price").fetchone()
                    if not turn.force_rollback:
                        with lock:
                            committed[0] = max(committed[0], float(row[0]))

        def read(_: int) -> tuple[int, int]:
            tag, held, unchanged, changed = None, -1.0, 0, 0
            while not done.is_set() or changed == 0:
                with lock:
                    known = committed[0]
                reply = service.odata(path, **({"If_None_Match": tag} if tag else {}))
                if reply.status == 304:
                    unchanged += 1
                else:
                    tag, held, changed = reply.headers["ETag"], highest(reply.body, shape), changed + 1
                assert held >= known, f"{reply.status} hides {known} from one who holds {held}"
            return unchanged, changed

        with ThreadPoolExecutor(WRITERS + READERS) as pool:
            readers = [pool.submit(read, number) for number in range(READERS)]
            for writer in [pool.submit(write, number) for number in range(WRITERS)]:
                writer.result()
            done.set()
            assert all(reader.result()[1] > 1 for reader in readers)
        last = service.odata(path)
        assert highest(last.body, shape) == committed[0]
        assert service.odata(path, If_None_Match=last.headers["ETag"]).status == 304


def test_the_model_changes_without_a_restart(database_url: str) -> None:
    with running(database_url) as service:
        before = service.odata("/products").headers["ETag"]
        metadata = service.odata("/$metadata")
        service.operator.connection.execute("alter table data.products add column colour text collate \"C\" default 'red'")
        service.operator.connection.execute("comment on column data.products.colour is 'What it looks like'")
        service.operator.connection.execute("select bds.register('data.products')")
        wait = threading.Event()
        for _ in range(500):
            fresh = service.odata("/$metadata", If_None_Match=metadata.headers["ETag"])
            if fresh.status == 200:
                break
            wait.wait(0.02)
        assert b'Name="colour"' in fresh.body and b"What it looks like" in fresh.body
        assert service.odata("/products", If_None_Match=before).status == 200
        assert service.odata("/products?$filter=colour%20eq%20'red'").status == 200
