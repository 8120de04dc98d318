"""Reverts: the opposite of a change set, as a change set of its own."""

from __future__ import annotations

import re
from contextlib import suppress
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app.feed.run import NOTICE
from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow


def revert(feed: Feed, change_set: str, **options: Any) -> dict[str, Any]:
    """Revert a change set; returns the report."""
    names = "".join(f", {name} => %s" for name in options)
    return dict(feed.ask(f"select bds.revert(%s, %s{names})", feed.company, change_set, *options.values())[0][0])


def content(feed: Feed) -> dict[str, list[dict[str, Any]]]:
    """Every row of the company, without updatedAt."""
    return {
        entity: [row for (row,) in feed.ask(f"""select to_jsonb(r) - 'updatedAt' from api."{entity}" r order by id""")]
        for entity in feed.catalog.entities
    }


def test_what_it_created_goes_what_it_deleted_comes_back_what_it_changed_gets_its_old_values(feed: Feed) -> None:
    feed.good(
        units=[{"code": "U", "name": "unit"}],
        products=[{"code": "A", "name": "a", "price": 1, "unit": "code:U"}, {"code": "B", "name": "b", "barcode": "1"}],
    )
    before = content(feed)
    report = feed.send({
        "products": [
            {"code": "A", "price": 2, "unit": None},
            {"code": "B", "@operation": "delete"},
            {"code": "C", "name": "c", "variants": [{"code": "C1"}, {"code": "C2"}]},
        ],
        "units": [{"code": "U", "@operation": "delete"}],
    })  # fmt: skip
    after = content(feed)
    assert after != before
    undone = revert(feed, report["importId"])
    assert undone["state"] == "completed", undone
    assert counts(undone) == {
        "units": {"created": 1},
        "products": {"created": 1, "updated": 1, "deleted": 1},
        "productVariants": {"deleted": 2},
    }
    assert content(feed) == before
    again = revert(feed, undone["importId"])
    assert again["state"] == "completed", again
    assert content(feed) == after


def test_each_phase_that_a_revert_tells_is_one_that_can_be_shown(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "unit"}, {"code": "V", "name": "unit"}])
    records = [{"code": "U", "name": "other"}, {"code": "V", "@operation": "delete"}, {"code": "W", "name": "w"}]
    change_set = feed.send({"units": records})["importId"]
    messages: list[str] = []
    connection = feed.operator.connection
    connection.add_notice_handler(lambda each: messages.append(each.message_primary or ""))
    undone = revert(feed, change_set)
    phases = [match[2] if (match := NOTICE.fullmatch(message)) else message for message in messages]
    assert list(dict.fromkeys(phases)) == ["reading", "comparing", "writing", "deleting"]
    for phase in phases:
        feed.ask("update bds.imports set phase = %s where id = %s returning id", phase, undone["importId"])


class Changes:
    """Random changes of a company, as a DBA makes them: what the database refuses is left out."""

    def __init__(self, feed: Feed, seed: int) -> None:
        self.feed = feed
        self.random = Random(seed)
        self.connection = feed.operator.connection

    def make(self, number: int) -> str:
        """A change set of so many statements; returns its id."""
        change_set = str(uuid4())
        with self.connection.transaction():
            self.connection.execute("select bds.set_context(%s, 'random', %s)", (self.feed.company, change_set))
            for _ in range(number):
                with suppress(psycopg.errors.IntegrityError), self.connection.transaction():
                    self.random.choice((self.insert, self.insert, self.update, self.update, self.delete, self.swap, self.replace))()
        return change_set

    def any(self, table: str, share: float = 0.8) -> int | None:
        ids = [i for (i,) in self.connection.execute(
            f"select id from data.{table} where company_id = %s order by id".encode(), (self.feed.company,)
        )]  # fmt: skip
        return self.random.choice(ids) if ids and self.random.random() < share else None

    def code(self) -> str:
        return f"K{self.random.randrange(30)}"

    def values(self, table: str) -> dict[str, Any]:
        choice, some = self.random.choice, self.random.random() < 0.5
        match table:
            case "units":
                return {"code": self.code(), "name": choice("abc"), "symbol": choice(("", None, "ü"))}
            case "categories":
                return {"code": self.code(), "name": choice("abc"), "parent_id": self.any("categories")}
            case "products":
                return {
                    "code": self.code(), "name": choice("abc"), "barcode": self.code() if some else None, "active": choice((True, False)),
                    "price": choice((None, 1, "2.5000", "99999999999.9999")),
                    "category_id": self.any("categories"), "unit_id": self.any("units"),
                }  # fmt: skip
            case "product_variants":
                return {"code": self.code(), "barcode": self.code() if some else None, "product_id": self.any("products", 1)}
            case "orders":
                return {"code": self.code(), "order_date": "2026-01-01", "note": choice((None, "n")), "total": choice((None, 1))}
            case _:
                return {
                    "order_id": self.any("orders", 1),
                    "product_id": self.any("products"),
                    "quantity": choice((1, "0.5")),
                    "price": 1,
                }

    def insert(self) -> None:
        table = self.table()
        values = {"company_id": self.feed.company, **self.values(table)}
        self.run(f"insert into data.{table} ({', '.join(values)}) values ({', '.join(['%s'] * len(values))})", *values.values())

    def update(self) -> None:
        table = self.table()
        values = self.values(table)
        names = self.random.sample(sorted(values), self.random.randint(1, len(values)))
        changes = ", ".join(f"{name} = %s" for name in names)
        self.run(
            f"update data.{table} set {changes} where company_id = %s and id = %s",
            *(values[n] for n in names),
            self.feed.company,
            self.any(table),
        )

    def delete(self) -> None:
        table = self.table()
        self.run(f"delete from data.{table} where company_id = %s and id = %s", self.feed.company, self.any(table))

    def swap(self) -> None:
        """Two rows exchange their codes."""
        table = self.random.choice(("units", "categories", "products", "product_variants", "orders"))
        one, other = self.any(table), self.any(table)
        codes = dict(
            self.connection.execute(f"select id, code from data.{table} where id in (%s, %s)".encode(), (one, other)).fetchall()
        )
        if len(codes) == 2:
            for row, code in ((one, "~"), (other, codes[one]), (one, codes[other])):
                self.run(f"update data.{table} set code = %s where id = %s", code, row)

    def replace(self) -> None:
        """A row with the code of another one, which what referred to it refers to now."""
        table, user, column = self.random.choice(
            (
                ("units", "products", "unit_id"),
                ("categories", "products", "category_id"),
                ("products", "product_variants", "product_id"),
            )
        )
        old = self.any(table)
        self.run(f"update data.{table} set code = code || 'x' where id = %s", old)
        new = self.connection.execute(
            f"insert into data.{table} (company_id, code, name) select company_id, left(code, -1), name from data.{table} where id = %s"
            " returning id".encode(), (old,)
        ).fetchone()  # fmt: skip
        if new:
            self.run(f"update data.{user} set {column} = %s where {column} = %s", new[0], old)
            self.run(f"delete from data.{table} where id = %s", old)

    def table(self) -> str:
        return self.random.choice(("units", "categories", "products", "product_variants", "orders", "order_items"))

    def run(self, statement: str, *values: Any) -> None:
        self.connection.execute(statement.encode(), values)


def problems(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(path without the id, record, code) of a report's errors."""
    return [(re.sub(r"/\d+", "", e["path"]), e["record"], e["code"]) for e in report["errors"]]


def test_rows_that_were_changed_later_stay_unless_forced(feed: Feed) -> None:
    feed.good(products=[{"code": "A", "name": "a", "price": 1}, {"code": "B", "name": "b", "price": 1}, {"code": "C", "name": "c"}])
    change_set = feed.send(
        products=[
            {"code": "A", "price": 2},
            {"code": "B", "price": 2},
            {"code": "D", "name": "d"},
            {"code": "C", "@operation": "delete"},
        ]
    )["importId"]
    feed.good(products=[{"code": "A", "name": "other"}, {"code": "D", "name": "other"}])
    report = revert(feed, change_set)
    assert (report["state"], report["atomic"], report["reverts"]) == ("partial", False, change_set)
    assert problems(report) == [("products", "code:A", "conflict"), ("products", "code:D", "conflict")]
    assert counts(report) == {"products": {"created": 1, "updated": 1, "failed": 2}}
    assert feed.rows("products", "code", "name", "price", order="code") == [
        ("A", "other", 2), ("B", "b", 1), ("C", "c", None), ("D", "other", None),
    ]  # fmt: skip
    forced = revert(feed, change_set, force=True)
    assert forced["state"] == "completed"
    assert feed.rows("products", "code", "name", "price", order="code") == [("A", "other", 1), ("B", "b", 1), ("C", "c", None)]


def test_if_all_rows_conflict_it_has_failed(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a"}])
    change_set = feed.send(units=[{"code": "U", "name": "b"}])["importId"]
    feed.write("update data.units set symbol = 's' where company_id = %s", feed.company)
    before = feed.log()
    report = revert(feed, change_set)
    assert (report["state"], report["entities"]["units"]["failed"]) == ("failed", 1)
    assert feed.log() == before


def test_records_of_children_alone_are_no_conflict_of_their_parent(feed: Feed) -> None:
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "note": "before"}])
    change_set = feed.send(orders=[{"code": "O", "note": "after"}])["importId"]
    feed.good(orders=[{"code": "O", "items": [{"quantity": 7}]}])
    assert revert(feed, change_set)["state"] == "completed"
    assert feed.rows("orders", "note") == [("before",)]


def test_a_created_row_that_others_refer_to_stays_with_what_it_refers_to(feed: Feed) -> None:
    change_set = feed.send(
        categories=[
            {"code": "top", "name": "t"},
            {"code": "sub", "name": "s", "parent": "code:top"},
            {"code": "free", "name": "f"},
        ],
        products=[{"code": "A", "name": "a", "category": "code:sub"}, {"code": "B", "name": "b"}],
        orders=[{"code": "O", "orderDate": "2026-01-01", "items": [{"quantity": 1}]}],
    )["importId"]
    feed.good(orders=[{"code": "P", "orderDate": "2026-01-01", "items": [{"product": "code:A"}]}])
    feed.good({"@mode": "merge", "orders": [{"code": "O", "items": [{"quantity": 2}]}]})
    for force in (False, True):
        report = revert(feed, change_set, force=force, dry_run=not force)
        assert report["state"] == "partial"
        assert problems(report) == [
            ("categories", "code:top", "in_use"), ("categories", "code:sub", "in_use"), ("products", "code:A", "in_use"),
            ("orders", "code:O", "in_use"),
        ]  # fmt: skip
    assert [feed.rows(e, "code") for e in ("categories", "products", "orders")] == [
        [("top",), ("sub",)],
        [("A",)],
        [("O",), ("P",)],
    ]
    assert feed.rows("orderItems", "quantity") == [(1,), (2,)]


def test_a_dry_run_reports_the_same_and_writes_nothing(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a"}, {"code": "V", "name": "a"}])
    change_set = feed.send(units=[{"code": "U", "name": "b"}, {"code": "V", "name": "b"}, {"code": "W", "name": "b"}])["importId"]
    feed.good(units=[{"code": "V", "name": "c"}])
    before, log = feed.stored(), feed.log()
    dry = revert(feed, change_set, dry_run=True)
    assert (dry["state"], dry["dryRun"], feed.stored(), feed.log()) == ("partial", True, before, log)
    wet = revert(feed, change_set)
    assert (wet["entities"], wet["errors"]) == (dry["entities"], dry["errors"])
    assert feed.log() != log


def test_it_is_a_change_set_of_its_own_of_its_actor(feed: Feed) -> None:
    change_set = str(uuid4())
    feed.operator.write(feed.company, "insert into data.units (code, name) values ('U', 'u')", change_set=change_set)
    report = revert(feed, change_set, actor="anna")
    assert report["changeSetId"] == report["importId"] != change_set
    assert feed.ask(
        "select actor, change_set_id::text, operation from bds.changes where company_id = %s order by id desc limit 1", feed.company
    ) == [("anna", report["changeSetId"], "delete")]
    assert feed.ask("select bds.import_report(%s, %s)", feed.company, report["importId"])[0][0]["state"] == "completed"


def test_the_context_of_its_caller_stays(feed: Feed) -> None:
    change_set, mine = str(uuid4()), str(uuid4())
    feed.operator.write(feed.company, "insert into data.units (code, name) values ('U', 'u')", change_set=change_set)
    with feed.operator.connection.transaction():
        feed.operator.connection.execute("select bds.set_context(%s, 'anna', %s)", (feed.company, mine))
        feed.operator.connection.execute("select bds.revert(%s, %s, actor => 'ben')", (feed.company, change_set))
        feed.operator.connection.execute("insert into data.units (code, name) values ('V', 'v')")
    assert feed.ask(
        "select actor, change_set_id::text from bds.changes where company_id = %s and id > 2", feed.company
    ) == [("anna", mine)]  # fmt: skip


def test_a_second_revert_finds_everything_undone(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a"}, {"code": "V", "name": "a"}])
    change_set = feed.send(units=[{"code": "U", "name": "b"}, {"code": "W", "name": "b"}, {"code": "V", "@operation": "delete"}])[
        "importId"
    ]
    revert(feed, change_set)
    log = feed.log()
    assert counts(revert(feed, change_set)) == {"units": {"unchanged": 3}}
    assert feed.log() == log


def test_a_code_that_another_row_has_now_is_a_conflict_of_that_row_alone(feed: Feed) -> None:
    feed.good(products=[{"code": "A", "name": "a", "variants": [{"code": "A1"}]}, {"code": "B", "name": "b", "barcode": "1"}])
    change_set = feed.send(
        products=[{"code": "A", "@operation": "delete"}, {"code": "B", "barcode": None}, {"code": "C", "name": "c"}]
    )["importId"]
    feed.good(products=[{"code": "A", "name": "another", "barcode": "1"}])
    report = revert(feed, change_set)
    assert report["state"] == "partial"
    assert problems(report) == [
        ("products.code", "code:A", "conflict"), ("products.barcode", "code:B", "conflict"),
        ("productVariants.productId", "code:A1", "lookup_not_found"),
    ]  # fmt: skip
    assert feed.rows("products", "code", "name", order="code") == [("A", "another"), ("B", "b")]


def test_a_row_whose_parent_was_deleted_since_stays_away(feed: Feed) -> None:
    feed.good(
        orders=[{"code": "O", "orderDate": "2026-01-01", "items": [{"quantity": 1}]}, {"code": "P", "orderDate": "2026-01-01"}],
        categories=[{"code": "K", "name": "k"}], products=[{"code": "A", "name": "a", "category": "code:K"}],
    )  # fmt: skip
    change_set = feed.send(
        orders=[{"code": "O", "items": []}, {"code": "P", "note": "n"}], products=[{"code": "A", "category": None}]
    )["importId"]
    feed.good(orders=[{"code": "O", "@operation": "delete"}], categories=[{"code": "K", "@operation": "delete"}])
    report = revert(feed, change_set, force=True)
    assert [(path, code) for path, _, code in problems(report)] == [
        ("products.categoryId", "lookup_not_found"), ("orderItems.orderId", "lookup_not_found")
    ]  # fmt: skip
    assert feed.rows("orders", "code", "note") == [("P", None)]


def test_a_row_that_was_deleted_later_does_not_come_back(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a"}])
    change_set = feed.send(units=[{"code": "U", "name": "b"}, {"code": "V", "name": "v"}])["importId"]
    feed.good(units=[{"code": "U", "@operation": "delete"}, {"code": "V", "@operation": "delete"}])
    for force in (False, True):
        report = revert(feed, change_set, force=force)
        assert (report["state"], [(path, code) for path, _, code in problems(report)]) == ("partial", [("units", "conflict")])
        assert counts(report) == {"units": {"failed": 1, "unchanged": 1}}
    assert feed.rows("units", "code") == []


def test_the_sequence_of_ids_is_not_disturbed(feed: Feed) -> None:
    feed.good(units=[{"code": f"U{n}", "name": "a"} for n in range(3)])
    ids = feed.rows("units", "id", "code")
    change_set = feed.send({"units": [], "units@removeAll": True})["importId"]
    revert(feed, change_set)
    assert feed.rows("units", "id", "code") == ids
    feed.good(units=[{"code": "new", "name": "a"}])
    assert feed.rows("units", "id")[-1][0] > ids[-1][0]


def test_updated_at_moves(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a"}, {"code": "V", "name": "a"}])
    change_set = feed.send(units=[{"code": "U", "name": "b"}, {"code": "V", "@operation": "delete"}])["importId"]
    (last,) = feed.ask("select last_updated_at from bds.clocks where company_id = %s", feed.company)[0]
    revert(feed, change_set)
    assert all(at > last for (at,) in feed.rows("units", "updatedAt"))


@pytest.mark.parametrize("force", [False, True])
def test_an_erased_value_is_a_conflict(feed: Feed, force: bool) -> None:
    feed.good(
        customers=[
            {"code": "A", "name": "a", "email": "a@b", "city": "x"},
            {"code": "B", "name": "b", "phone": "1"},
            {"code": "C", "name": "c"},
        ]
    )
    change_set = feed.send(
        customers=[
            {"code": "A", "email": None, "city": "y"},
            {"code": "B", "@operation": "delete"},
            {"code": "C", "@operation": "delete"},
        ]
    )["importId"]
    old = {code: row for row, code in feed.ask(
        "select row_id, coalesce(old ->> 'code', 'A') from bds.changes where company_id = %s and change_set_id = %s", feed.company, change_set
    )}  # fmt: skip
    for code, field in (("A", "email"), ("B", "phone"), ("C", "name")):
        feed.ask("select bds.erase(%s, 'customers', %s, %s)", feed.company, old[code], [field])
    report = revert(feed, change_set, force=force)
    if force:  # what is not erased is undone
        assert problems(report) == [("customers.name", "code:C", "required")]
        assert feed.rows("customers", "code", "city", "email", "phone") == [("A", "x", None, None), ("B", None, None, None)]
    else:
        assert [(path, code) for path, _, code in problems(report)] == [
            ("customers.email", "conflict"), ("customers.phone", "conflict"), ("customers.name", "conflict"),
        ]  # fmt: skip
        assert report["state"] == "failed"


def test_a_change_set_that_does_not_exist(feed: Feed) -> None:
    with pytest.raises(psycopg.Error) as raised:
        revert(feed, str(uuid4()))
    assert raised.value.sqlstate == "BD002"


def test_an_import_under_way_cannot_be_reverted(feed: Feed) -> None:
    running = feed.begin()
    with pytest.raises(psycopg.Error) as raised:
        revert(feed, str(running.id))
    running.fail()
    assert raised.value.sqlstate == "BD004"
    assert revert(feed, str(running.id))["state"] == "completed"  # it changed nothing


def test_a_row_written_several_times_gets_the_first_old_values(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "a", "symbol": "s"}])
    change_set = str(uuid4())
    for statement in (
        "update data.units set name = 'b'", "update data.units set name = 'c', symbol = null", "delete from data.units",
        "insert into data.units (code, name) values ('V', 'v')", "update data.units set name = 'w'",
        "insert into data.units (code, name) values ('X', 'x')", "delete from data.units where code = 'X'",
    ):  # fmt: skip
        company = " where company_id = current_setting('bds.company')"
        feed.operator.write(
            feed.company, statement if "insert" in statement or "where" in statement else statement + company, change_set=change_set
        )
    report = revert(feed, change_set)
    assert counts(report) == {"units": {"created": 1, "deleted": 1, "unchanged": 1}}
    assert feed.rows("units", "code", "name", "symbol") == [("U", "a", "s")]


def test_a_change_set_has_to_be_named(feed: Feed) -> None:
    with pytest.raises(psycopg.Error, match="no such change set: null") as refused:
        feed.ask("select bds.revert(%s, null)", feed.company)
    assert refused.value.sqlstate == "BD002"
