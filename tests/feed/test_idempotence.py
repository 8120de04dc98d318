"""The same document again changes nothing; a changed document changes only what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.feed.conftest import Feed

pytestmark = pytest.mark.slow

DOCUMENT: dict[str, Any] = {
    "units": [{"code": "H87", "name": "piece", "symbol": None}],
    "categories": [{"code": "B", "name": "b", "parent": "code:A"}, {"code": "A", "name": "a"}],
    "products": [
        {"code": "P", "name": "p", "price": "1.00005", "category": "code:B", "unit": "code:H87", "variants": [{"code": "V", "price": 1}, {"code": "W"}]},
        {"id": "code:Q", "name": "q", "barcode": "4006381333931", "active": False},
    ],
    "customers": [{"code": "C", "name": "c", "email": "c@x", "updatedAt": "2020-01-01T00:00:00Z"}],
    "orders": [{"code": "O", "orderDate": "2024-05-01", "customer": "email:c@x", "items": [{"product": "code:P"}, {"product": "code:P"}, {"description": ""}]}],
    "invoices": [{"code": "I", "invoiceDate": "2024-05-02", "order": "code:O", "items": [{"product": "code:P", "quantity": "2", "price": 3}]}],
}  # fmt: skip


def test_the_same_document_again_changes_nothing(feed: Feed) -> None:
    assert {name: each["created"] for name, each in feed.good(DOCUMENT).items()} == {
        "units": 1, "categories": 2, "products": 2, "productVariants": 2, "customers": 1, "orders": 1, "orderItems": 3, "invoices": 1,
        "invoiceItems": 1}  # fmt: skip
    before, log = feed.stored(), feed.log()
    assert len(log) == 14
    for document in (DOCUMENT, dict(reversed(DOCUMENT.items())), {name: records[::-1] for name, records in DOCUMENT.items()}):
        assert all(each.keys() == {"unchanged"} for each in feed.good(document).values())
        assert (feed.stored(), feed.log()) == (before, log)


def test_a_parent_is_updated_only_by_its_own_fields(feed: Feed) -> None:
    feed.good(DOCUMENT)
    last = feed.log()[-1][0]
    invoice = DOCUMENT["invoices"][0]
    item = invoice["items"][0]
    assert feed.good(invoices=[{**invoice, "items": [{**item, "quantity": 3}]}]) == {
        "invoices": {"unchanged": 1},
        "invoiceItems": {"updated": 1},
    }
    assert feed.good(invoices=[{**invoice, "note": "n", "items": [item]}]) == {
        "invoices": {"updated": 1},
        "invoiceItems": {"updated": 1},
    }
    assert [change[1:] for change in feed.log() if change[0] > last] == [
        ("invoiceItems", "update", ["quantity"]), ("invoices", "update", ["items"]),  # the first import
        ("invoices", "update", ["items", "note"]), ("invoiceItems", "update", ["quantity"]),
    ]  # fmt: skip


def test_an_import_is_one_change_set(feed: Feed) -> None:
    report = feed.send(DOCUMENT)
    assert feed.ask("select distinct change_set_id::text, actor from bds.changes where company_id = %s", feed.company) == [
        (report["changeSetId"], feed.operator.connection.info.user)]  # fmt: skip
    assert report["changeSetId"] == report["importId"]
    assert feed.ask("select count(distinct transaction_id) from bds.changes where company_id = %s", feed.company) == [(1,)]


def test_chunks_of_any_size_give_the_same(feed: Feed) -> None:
    data = json.dumps(DOCUMENT, indent=1, ensure_ascii=False).encode()
    report = feed.send(data, chunk=7)
    assert (report["state"], report["progress"]["bytes"], report["progress"]["records"]) == ("completed", len(data), 8)
    assert all(each.keys() == {"unchanged"} for each in feed.good(data).values())


def test_a_document_of_real_data(feed: Feed, shared: Path, tmp_path: Path) -> None:
    expected = {
        "units": 2136,
        "categories": 5595,
        "products": 2308,
        "customers": 713,
        "orders": 927,
        "invoices": 1275,
        "invoiceItems": 28492,
    }

    def make(*arguments: str) -> bytes:
        path = tmp_path / "feed.json"
        subprocess.run([sys.executable, shared / "tools" / "make_feed.py", "-o", path, *arguments], check=True, capture_output=True)
        return path.read_bytes()

    data = make()
    created = {name: each["created"] for name, each in feed.good(data).items()}
    assert {name: created[name] for name in expected} == expected
    log, position = feed.ask("select count(*), max(id) from bds.changes where company_id = %s", feed.company)[0]
    assert log == position == sum(created.values())
    stamps = {entity: feed.rows(entity, "id", "updatedAt") for entity in created}
    assert feed.good(data) == {name: {"unchanged": n} for name, n in created.items()}
    assert {entity: feed.rows(entity, "id", "updatedAt") for entity in created} == stamps
    next_data = make("--change", "1")
    changed = feed.good(next_data)
    touched = feed.ask("select count(*) from bds.changes where company_id = %s", feed.company)[0][0] - log
    own = sum(n for each in changed.values() for kind, n in each.items() if kind != "unchanged")
    assert 0 < own <= touched <= 2 * own, "each change has one change record, and at most one of its parent"
    assert all(each.keys() == {"unchanged"} for each in feed.good(next_data).values())
    assert not feed.ask('select from api."invoiceItems" i where not exists (select from api.invoices v where v.id = i."invoiceId")')
