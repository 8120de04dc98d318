"""What changed between two versions as a file, in every format."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import lxml.html
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import load_workbook
from pypdf import PdfReader

from app.config import Config
from app.database.catalog import Entity
from app.database.database import Database
from app.database.servers.reads import READS, Reads
from app.errors import QueryError, ServiceError
from app.export.output import find_output, write
from app.export.read import open_reader
from app.export.request import read_parameters, read_request, read_whole
from app.formats import READABLE
from tests.chance import seeds
from tests.conftest import Operator
from tests.docs.documents import examples
from tests.export.exported import send
from tests.export.histories import History, content
from tests.feed.conftest import Feed

pytestmark = pytest.mark.slow

Rows = dict[int, dict[str, Any]]


@dataclass
class Exports:
    """Exports of the companies of one database, without a service."""

    url: str
    operator: Operator
    database: Database
    runner: asyncio.Runner
    made: int = 0
    known: dict[tuple[str, str, int], Rows] = field(default_factory=dict)

    def company(self) -> Feed:
        self.made += 1
        return Feed(self.url, self.database.catalog, self.operator.company(f"c{self.made}"), self.operator)

    def get(self, company: str, entity: str | None, **options: Any) -> bytes:
        given = read_parameters([(name if name in PLAIN else f"${name}", str(value)) for name, value in options.items()])
        return self.runner.run(self._get(company, entity, given))

    async def _get(self, company: str, entity: str | None, given: dict[str, str]) -> bytes:
        catalog = self.database.catalog
        READS.set(Reads())
        export = read_request(catalog, catalog[entity], company, given) if entity else read_whole(catalog, company, given)
        async with self.database.snapshot(company) as connection:
            output = await find_output(connection, export)
            export, reader = await open_reader(connection, export, 30)
            return b"".join([block async for block in write(export, reader, output)])

    def passed(self, company: str, since: int, entity: str | None = None) -> bool:
        """Whether unique values have passed so that no import can follow; of one entity, whether one has moved."""
        until = self.version(company)
        return any(
            self._passed(each, self.states(company, each.name, since), self.states(company, each.name, until), moved=bool(entity))
            for each in self.database.catalog.entities.values()
            if entity in (None, each.name) and each.alternate_keys
        )

    def _passed(self, entity: Entity, before: Rows, after: Rows, *, moved: bool) -> bool:
        """An import takes a row for the one that had any of its unique values: that can be one, and only for one row."""
        values = [field.name for field in entity.alternate_keys]
        had = {(name, row[name]): id for id, row in before.items() for name in values}
        taken = {
            id: {had[name, row[name]] for name in values if row[name] is not None and (name, row[name]) in had}
            for id, row in after.items()
        }
        if any(count > 1 for count in Counter(id for ids in taken.values() for id in ids).values()):
            return True
        stay = before.keys() & after.keys()
        pairs = [(id, other) for id, ids in taken.items() for other in ids - {id}]
        return any(len(ids) > 1 for ids in taken.values()) or any(
            stay.issuperset(pair) or (moved and not stay.isdisjoint(pair)) for pair in pairs
        )

    def states(self, company: str, entity: str, version: int) -> Rows:
        """The rows of an entity as of a version, by id."""
        if version == 0:
            return {}
        if (company, entity, version) not in self.known:
            self.known[company, entity, version] = self._states(company, entity, version)
        return self.known[company, entity, version]

    def _states(self, company: str, entity: str, version: int) -> Rows:
        with self.operator.connection.transaction():
            self.operator.connection.execute("select set_config('bds.company', %s, true)", (company,))
            rows = self.operator.rows("select bds.rows_at(%s, %s, %s)", (company, entity, version))
        return {row["id"]: row for (row,) in rows}

    def version(self, company: str) -> int:
        return int(self.operator.rows("select last_id from bds.clocks where company_id = %s", (company,))[0][0])

    def ids(self, company: str) -> dict[str, int]:
        """The ids of customers by their code."""
        return dict(self.operator.rows("select code, id from data.customers where company_id = %s", (company,)))

    def content(self, company: str) -> Any:
        return content(self.operator, self.database.catalog, company)


OWN = "company_id = current_setting('bds.company')"
PLAIN = ("format", "since", "versions", "version", "at", "generation", "mapper", "ids")


@pytest.fixture(scope="module")
def exports(module_database_url: str) -> Iterator[Exports]:
    with asyncio.Runner() as runner, psycopg.connect(module_database_url, autocommit=True) as connection:
        database = runner.run(Database.open(Config(database_url=module_database_url)))
        yield Exports(module_database_url, Operator(connection), database, runner)
        runner.run(database.close())


@pytest.mark.parametrize("seed", seeds(12))
def test_a_document_of_all_entities_brings_a_copy_from_one_version_to_another(exports: Exports, seed: int) -> None:
    source, copy = exports.company(), exports.company()
    history = History(exports.operator, source.company, seed, fresh=0.5 + (seed % 3) / 4)
    format = "xml" if seed % 2 else "json"
    since = 0
    for steps in (50, 25):
        history.run(steps)
        try:
            document = exports.get(source.company, None, format=format, since=since)
        except ServiceError as error:
            assert error.code == "unwritable" and exports.passed(source.company, since), error
            return
        assert not exports.passed(source.company, since)
        report = copy.send(document) if format == "json" else send(copy, "units", document)
        assert (report["state"], report["errors"]) == ("completed", []), document
        assert exports.content(copy.company) == exports.content(source.company), document
        since = exports.version(source.company)


GONE = "delete from data.customers where code = 'K1' and OWN"
BARE = "update data.customers set email = null where code = 'K1' and OWN"
RENAMED = "update data.customers set code = 'K6' where code = 'K2' and OWN"
NEW = "insert into data.customers (code, name, email) values ('{}', 'b', {})"
OTHERS = "of customers, to which other entities refer: export the difference of all entities"


@pytest.mark.parametrize(
    ("steps", "told", "alone"),
    [
        # the row gives its code away, or gets another one's, and keeps what no other row can have
        ([RENAMED, NEW.format("K2", "null")], "customers code:K2 from row {K2} to row {K2 new}, but row {K2} keeps email:e2", None),
        (
            [GONE, "update data.customers set code = 'K1' where code = 'K2' and OWN"],
            "customers code:K1 from row {K1} to row {K2}, but row {K2} keeps email:e2",
            None,
        ),
        ([BARE, NEW.format("N", "'e1'")], "customers email:e1 from row {K1} to row {N new}, but row {K1} keeps code:K1", None),
        (
            [BARE, "update data.customers set code = 'N', email = 'e1' where code = 'K2' and OWN"],
            "customers email:e1 from row {K1} to row {K2}, but row {K1} keeps code:K1",
            None,
        ),
        # two rows get what one had
        (
            [GONE, NEW.format("K1", "null"), NEW.format("N", "'e1'")],
            "customers code:K1 from row {K1} to row {K1 new}; customers email:e1 from row {K1} to row {N new}",
            None,
        ),
        # one row gets what one had, which other entities may have to be told
        ([RENAMED], None, None),
        ([GONE, NEW.format("N", "'e1'")], None, None),
        ([GONE, "update data.customers set code = 'N', email = 'e1' where code = 'K2' and OWN"], None, OTHERS),
        ([GONE, "update data.customers set code = 'K1', email = 'e1' where code = 'K2' and OWN"], None, OTHERS),
        ([RENAMED.replace("set", "set email = 'e6',"), NEW.format("K2", "null")], None, OTHERS),
        ([RENAMED.replace("set", "set email = 'e6',"), NEW.format("N", "'e2'")], None, OTHERS),
    ],
)
def test_a_document_follows_every_unique_value_or_none_is_written(
    exports: Exports, steps: list[str], told: str | None, alone: str | None
) -> None:
    source, copies = exports.company(), {entity: exports.company() for entity in (None, "customers")}
    for feed in (source, *copies.values()):
        feed.write("insert into data.customers (code, name, email) values ('K1', 'a', 'e1'), ('K2', 'a', 'e2')")
        feed.write(
            "insert into data.orders (code, order_date, customer_id) select code, '2026-01-01', id from api.customers where OWN".replace(
                "OWN", OWN
            )
        )
    ids, since = exports.ids(source.company), exports.version(source.company)
    if GONE in steps:
        source.write(f"update data.orders set customer_id = null where code = 'K1' and {OWN}")
    for step in steps:
        source.write(step.replace("OWN", OWN))
    ids |= {f"{code} new": id for code, id in exports.ids(source.company).items()}
    for entity, copy in copies.items():
        if refusal := told or (entity and alone):
            with pytest.raises(ServiceError) as refused:
                exports.get(source.company, entity, format="json", since=since)
            assert (refused.value.code, refused.value.target) == ("unwritable", "since")
            assert refused.value.message.endswith(f": {refusal.format(**ids)}")
            continue
        file = exports.get(source.company, entity, format="csv" if entity else "json", since=since)
        report = send(copy, entity, file) if entity else copy.send(file)
        assert (report["state"], report["errors"]) == ("completed", []), file
        before, after = exports.content(copy.company), exports.content(source.company)
        assert before["customers"] == after["customers"] and (entity or before == after), file


SINGLE = ("units", "customers", "categories")


@pytest.mark.parametrize("format", ["json", *(each.name for each in READABLE)])
def test_a_file_of_one_entity_brings_its_rows_from_one_version_to_another(exports: Exports, format: str) -> None:
    for seed in range(4):
        source, copy = exports.company(), exports.company()
        history, since = History(exports.operator, source.company, seed, fresh=0.8), 0
        for steps in (50, 30):
            history.run(steps)
            for entity in SINGLE:
                try:
                    file = exports.get(source.company, entity, format=format, since=since)
                except ServiceError as error:
                    assert error.code == "unwritable" and exports.passed(source.company, since, entity)
                    return
                if not file:
                    continue  # nothing differs: a file without a line
                report = copy.send(file) if format == "json" else send(copy, entity, file)
                assert (report["state"], report["errors"]) == ("completed", []), file
                before, after = exports.content(copy.company), exports.content(source.company)
                assert before[entity] == after[entity], (entity, file)
            since = exports.version(source.company)


@dataclass(frozen=True)
class Past:
    """What bds.diff and bds.rows_at say of a history, of which `since` is somewhere in the middle."""

    exports: Exports
    company: str
    since: int
    until: int

    def expected(self, entity: str) -> dict[int, tuple[str, dict[str, Any]]]:
        """(operation, fields) by id; a reference is the code that the row had."""
        rows = self.ask("select row_id, operation from bds.diff(%s, %s, %s, %s)", self.company, entity, self.since, self.until)
        return {id: (operation, self.at(entity, self.since if operation == "delete" else self.until)[id]) for id, operation in rows}

    def at(self, entity: str, version: int) -> dict[int, dict[str, Any]]:
        catalog = self.exports.database.catalog
        found = {row["id"]: row for (row,) in self.ask("select bds.rows_at(%s, %s, %s)", self.company, entity, version)}
        for step in catalog[entity].navigations.values():
            if not step.many:
                named = {} if step.target == entity else self.at(step.target, version)
                codes = {id: row["code"] for id, row in (named or found).items()}
                for row in found.values():
                    row[step.name] = codes.get(row.pop(step.field))
        return found

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.exports.operator.connection.transaction():
            self.exports.operator.connection.execute("select set_config('bds.company', %s, true)", (self.company,))
            return self.exports.operator.rows(query, values)

    def get(self, entity: str, format: str, **options: Any) -> bytes:
        return self.exports.get(self.company, entity, format=format, since=self.since, version=self.until, **options)


@pytest.fixture(scope="module")
def past(exports: Exports) -> Past:
    """A history in which nothing is created twice under one code, so that every format can write it."""
    feed = exports.company()
    history = History(exports.operator, feed.company, 7, fresh=1)
    history.run(150)
    since = exports.version(feed.company)
    history.run(150)
    until = exports.version(feed.company)
    history.run(50)
    return Past(exports, feed.company, since, until)


def plain(value: Any) -> Any:
    """A value of a file or of bds.rows_at, to be compared with the other."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float | int | Decimal) and not isinstance(value, bool):
        return Decimal(str(value)).normalize()
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*", value):
        return datetime.fromisoformat(value.replace(" ", "T")).astimezone(UTC).replace(tzinfo=None).isoformat()
    return value


def test_parquet_has_a_record_for_each_row_as_it_is_at_the_end_at_which_it_exists(past: Past) -> None:
    operations = set()
    for entity in past.exports.database.catalog.entities:
        table = pq.read_table(pa.BufferReader(past.get(entity, "parquet")))
        assert table.column_names[:2] == ["@operation", "id"]
        rows = {
            row["id"]: (row.pop("@operation"), {name: plain(value) for name, value in row.items()}) for row in table.to_pylist()
        }
        expected = {
            id: (operation, {name: plain(value) for name, value in fields.items()})
            for id, (operation, fields) in past.expected(entity).items()
        }
        assert rows == expected
        operations |= {operation for operation, _ in rows.values()}
    assert operations == {"create", "update", "delete"}


def test_versions_are_those_that_the_database_tells_with_the_time_of_each(past: Past, tmp_path: Path) -> None:
    for entity in past.exports.database.catalog.entities:
        table = pq.read_table(pa.BufferReader(past.get(entity, "parquet", versions="true")))
        assert table.column_names[:3] == ["@validFrom", "@validTo", "id"]
        expected = past.ask(
            "select row_id, valid_from, valid_to from bds.versions_between(%s, %s, %s, %s) order by 1, 2",
            *(past.company, entity, past.since, past.until),
        )
        found = [(row["id"], row["@validFrom"], row["@validTo"]) for row in table.to_pylist()]
        assert [tuple(map(plain, each)) for each in found] == [tuple(map(plain, each)) for each in expected]
        current = {row["id"]: row for row in table.to_pylist() if row["@validTo"] is None}
        assert {id: {name: plain(value) for name, value in row.items() if name[0] != "@"} for id, row in current.items()} == {
            id: {name: plain(value) for name, value in row.items()} for id, row in past.at(entity, past.until).items()
        }
    (tmp_path / "versions.parquet").write_bytes(past.get("products", "parquet", versions="true"))
    query, _ = [each.text for each in examples("docs/export.md") if each.kind == "duckdb"]
    with duckdb.connect() as lake:
        lake.execute(f"set file_search_path = '{tmp_path}'")
        assert isinstance(lake.execute(query).fetchall(), list)
    # as text, a part of the fields and of the versions; no import takes it
    text = past.get("products", "csv", versions="true", select="code", filter="id gt 3").decode("utf-8-sig")
    assert text.startswith("@validFrom,@validTo,code") and text.count("\n") > 1
    copy = past.exports.company()
    with pytest.raises(ServiceError) as refused:
        send(copy, "products", past.get("products", "csv", versions="true"))
    assert refused.value.status == 400 and "@validFrom" in refused.value.message


STEPS = (
    "insert into data.categories (code, name) values ('OLD', 'Old'), ('GONE', 'Gone'), ('SAME', '=1')",
    "insert into data.products (code, name, price, category_id) select c.code, 'p', 1, c.id from api.categories c",
    "insert into data.product_variants (code, product_id) select c.code || n, c.id from api.products c, generate_series(1, 2) n",
    "insert into data.orders (code, order_date) values ('O1', '2026-01-01'), ('O2', '2026-01-01')",
    "insert into data.order_items (order_id, quantity) select id, n from api.orders, generate_series(1, 2) n",
    "---",  # the earlier end
    "update data.categories set code = 'NEW' where code = 'OLD' and OWN",
    "update data.products set category_id = null where code = 'GONE' and OWN",
    "delete from data.categories where code = 'GONE' and OWN",
    "insert into data.categories (code, name) values ('GONE', 'Back'), ('MORE', 'More')",
    "update data.product_variants set code = 'V' where code = 'SAME1' and OWN",
    "update data.products set price = 2 where code = 'OLD' and OWN",
    "update data.order_items set quantity = 3 where quantity = 2 and order_id = (select id from api.orders where code = 'O1') and OWN",
    "delete from data.orders where code = 'O2' and OWN",
)


@pytest.fixture(scope="module")
def story(exports: Exports) -> Past:
    company, since = exports.company().company, 0
    for step in STEPS:
        if step == "---":
            since = exports.version(company)
        else:
            exports.operator.write(company, step.replace("OWN", OWN))
    return Past(exports, company, since, exports.version(company))


def test_a_document_names_rows_as_they_were_called(story: Past) -> None:
    assert json.loads(story.get("categories", "json"))["categories"] == [
        {"@operation": "update", "id": "code:OLD", "code": "NEW", "name": "Old", "parent": None},
        {"@operation": "update", "id": "code:GONE", "code": "GONE", "name": "Back", "parent": None},
        {"@operation": "create", "code": "MORE", "name": "More", "parent": None},
    ]
    assert story.get("categories", "xml").decode().splitlines()[2] == (
        '<category operation="update"><id>code:OLD</id><code>NEW</code><name>Old</name><parent xsi:nil="true"/></category>'
    )
    assert [json.loads(line)["@operation"] for line in story.get("categories", "jsonl").splitlines()] == [
        "update",
        "update",
        "create",
    ]
    assert json.loads(story.get("orders", "json"))["orders"][1] == {"@operation": "delete", "id": "code:O2"}


def test_a_row_comes_with_all_of_its_children_if_one_differs(story: Past) -> None:
    products = {each["id"]: each for each in json.loads(story.get("products", "json"))["products"]}
    assert set(products) == {"code:OLD", "code:GONE", "code:SAME"}
    assert products["code:SAME"]["variants"] == [
        {"id": "code:SAME1", "code": "V", "name": None, "barcode": None, "price": None},
        {"code": "SAME2", "name": None, "barcode": None, "price": None},
    ]
    assert "variants" not in products["code:OLD"] and "variants" not in products["code:GONE"]
    [order, _] = json.loads(story.get("orders", "json"))["orders"]
    assert [(item.get("id"), item["quantity"]) for item in order["items"]] == [(None, 1), (None, 3)]


def test_rows_without_a_unique_field_are_named_by_their_number(story: Past) -> None:
    items = json.loads(story.get("orderItems", "json"))["orderItems"]
    assert {item["@operation"] for item in items} == {"update", "delete"} and all(type(item["id"]) is int for item in items)
    table = list(csv.DictReader(io.StringIO(story.get("orderItems", "csv").decode("utf-8-sig"))))
    assert [(row["@operation"], int(row["id"])) for row in table] == [(item["@operation"], item["id"]) for item in items]
    assert {row["order"] for row in table if row["@operation"] == "delete"} == {"O2"}, "the order's code as of then"


def test_lines_of_a_table_follow_the_document(story: Past) -> None:
    rows = list(csv.reader(io.StringIO(story.get("categories", "csv").decode("utf-8-sig"))))
    assert [row[:4] for row in rows] == [
        ["@operation", "id", "code", "name"],
        ["update", "code:OLD", "NEW", "Old"],
        ["update", "code:GONE", "GONE", "Back"],
        ["create", "", "MORE", "More"],
    ]
    book = load_workbook(io.BytesIO(story.get("categories", "excel")))
    assert [[cell or "" for cell in row[:4]] for row in book.active.iter_rows(values_only=True)] == [row[:4] for row in rows]


@pytest.mark.parametrize("format", ["html", "pdf"])
def test_pages_have_a_line_for_each_row(story: Past, format: str) -> None:
    file = story.get("categories", format)
    if format == "pdf":
        words = " ".join(page.extract_text() for page in PdfReader(io.BytesIO(file)).pages).split()
        assert Counter(word for word in words if word in ("create", "update", "delete")) == {"create": 2, "update": 1, "delete": 1}
        return
    table = lxml.html.fromstring(file.decode())
    assert [cell.text for cell in table.findall(".//th")][:3] == ["@operation", "id", "code"]
    rows = [[cell.text for cell in row.findall("td")] for row in table.findall(".//tbody/tr")]
    assert [(row[0], row[2]) for row in rows] == [("update", "NEW"), ("delete", "GONE"), ("create", "GONE"), ("create", "MORE")]


def test_a_filter_compares_the_rows_that_match_at_each_end(story: Past) -> None:
    products = json.loads(story.get("products", "json", filter="price eq 1"))["products"]
    assert [(each["@operation"], each["id"]) for each in products] == [
        ("delete", "code:OLD"),
        ("update", "code:GONE"),
        ("update", "code:SAME"),
    ]
    products = json.loads(story.get("products", "json", filter="price gt 1 or code eq 'none'"))["products"]
    assert [(each["@operation"], each["code"]) for each in products] == [("create", "OLD")] and len(products[0]["variants"]) == 2
    table = pq.read_table(pa.BufferReader(story.get("products", "parquet", filter="price eq 1", select="code")))
    assert [tuple(row.values())[::2] for row in table.to_pylist()] == [("delete", "OLD"), ("update", "GONE")]
    assert table.column_names == ["@operation", "id", "code"]


@pytest.mark.parametrize(
    ("entity", "options", "status", "target"),
    [
        ("products", {"format": "csv", "since": "x y"}, 400, "since"),
        ("products", {"format": "csv", "since": "5", "version": "6", "at": "2026-01-01"}, 400, "at"),
        ("products", {"format": "csv", "since": "5", "version": "3"}, 400, "since"),
        ("products", {"format": "csv", "since": "9999"}, 404, "since"),
        ("products", {"format": "csv", "since": "nobody"}, 404, "since"),
        ("products", {"format": "csv", "since": "5", "generation": "2"}, 404, "generation"),
        ("products", {"format": "csv", "since": "5", "select": "code"}, 400, "$select"),
        ("products", {"format": "json", "since": "5", "expand": "category"}, 400, "$expand"),
        ("products", {"format": "parquet", "since": "5", "top": "1"}, 400, "$top"),
        ("products", {"format": "json", "since": "5", "ids": "false"}, 400, "ids"),
        ("products", {"mapper": "m", "since": "5"}, 400, "mapper"),
        ("products", {"format": "csv", "versions": "true"}, 400, "since"),
        ("products", {"format": "csv", "since": "5", "versions": "yes"}, 400, "versions"),
        ("products", {"format": "jsonl", "since": "5", "versions": "true"}, 400, "format"),
        ("products", {"format": "csv", "since": "5", "versions": "true", "top": "1"}, 400, "$top"),
        ("products", {"format": "csv", "since": "5", "versions": "true", "filter": "variants/any()"}, 400, "$filter"),
        (None, {"format": "json", "since": "5", "versions": "true"}, 400, "format"),
        ("products", {"format": "json", "since": "5", "filter": "category/code eq 'x'"}, 400, "$filter"),
        ("products", {"format": "json", "since": "5", "filter": "variants/any()"}, 400, "$filter"),
        ("products", {"format": "json", "since": "5", "filter": "updatedAt gt 2026-01-01T00:00:00Z"}, 400, "$filter"),
        (None, {"format": "json"}, 400, "since"),
        (None, {"format": "csv", "since": "5"}, 400, "format"),
        (None, {"format": "json", "since": "5", "filter": "id eq 1"}, 400, "$filter"),
        (None, {"format": "json", "since": "9999"}, 404, "since"),
    ],
)
def test_what_a_difference_does_not_take_is_told(
    story: Past, entity: str | None, options: dict[str, str], status: int, target: str
) -> None:
    with pytest.raises((ServiceError, QueryError)) as caught:
        story.exports.get(story.company, entity, **options)
    assert (caught.value.status, caught.value.target) == (status, target)


def test_a_table_of_duckdb_takes_what_changed_as_the_document_prints_it(past: Past, tmp_path: Path) -> None:
    _, recipe = [each.text for each in examples("docs/export.md") if each.kind == "duckdb"]
    now, products = tmp_path / "now.parquet", "select * from products order by id"
    with duckdb.connect() as lake:
        lake.execute(f"set file_search_path = '{tmp_path}'")
        now.write_bytes(past.exports.get(past.company, "products", format="parquet", version=past.since))
        lake.execute("create table products as select * from 'now.parquet'")
        (tmp_path / "changed.parquet").write_bytes(past.get("products", "parquet"))
        now.write_bytes(past.exports.get(past.company, "products", format="parquet", version=past.until))
        # a product whose category got another code does not differ itself
        compared = f"select * exclude (category) from ({products})"
        for _ in range(2):
            lake.execute(recipe)
            assert (
                lake.execute(compared).fetchall()
                == lake.execute(compared.replace("from products", "from 'now.parquet'")).fetchall()
            )
