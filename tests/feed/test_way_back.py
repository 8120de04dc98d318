"""The way back: rows as they were at a version, and the undoing of a range, of entities, rows or an actor."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import psycopg
import pytest

from tests.chance import seeds
from tests.conftest import not_divided, place_shards
from tests.feed.conftest import Feed, counts
from tests.feed.test_revert import Changes, content

pytestmark = pytest.mark.slow


def version(feed: Feed) -> int:
    return int(feed.ask("select coalesce(max(last_id), 0) from bds.positions where company_id = %s", feed.company)[0][0])


def restore(feed: Feed, to: int, **options: Any) -> dict[str, Any]:
    """Lead the rows back to a version; returns the report."""
    names = "".join(f", {name} => %s" for name in options)
    return dict(feed.ask(f"select bds.restore(%s, %s{names})", feed.company, to, *options.values())[0][0])


def revert_range(feed: Feed, after: int, **options: Any) -> dict[str, Any]:
    names = "".join(f", {name} => %s" for name in options)
    return dict(feed.ask(f"select bds.revert_range(%s, %s{names})", feed.company, after, *options.values())[0][0])


def codes(feed: Feed, entity: str = "products") -> dict[str, Any]:
    return dict(feed.ask(f'select code, name from api."{entity}" order by code'))


def act(feed: Feed, actor: str, statement: str) -> None:
    """A statement of an actor, without a change set, over rows of the company."""
    statement = statement.format(own=f"company_id = '{feed.company}'")
    connection = feed.operator.connection
    with connection.transaction():
        connection.execute("select bds.set_context(%s, %s)", (feed.company, actor))
        connection.execute(statement.encode())


@pytest.mark.parametrize("seed", seeds(3))
def test_any_version_comes_back_from_any_later_one(feed: Feed, seed: int) -> None:
    changes, chance = Changes(feed, seed), Random(seed)
    states = {version(feed): content(feed)}
    for _ in range(6):
        changes.make(chance.randrange(1, 5))
        states[version(feed)] = content(feed)
    for to in chance.sample(sorted(states), min(3, len(states))):
        dry = restore(feed, to, dry_run=True)
        report = restore(feed, to)
        assert report["state"] == "completed" == dry["state"], report
        assert content(feed) == states[to], to
        assert counts(dry) == counts(report)
        found = {(each["row"], each["operation"]) for each in dry["rows"]}
        written = feed.ask(
            "select entity || '/' || row_id, operation from bds.changes where change_set_id = %s and (operation <> 'update' or old <> '{}')",
            report["importId"],
        )
        assert found == set(written)
    again = restore(feed, to)
    assert again["state"] == "completed" and {k for each in counts(again).values() for k in each} <= {"unchanged"}


def test_entities_and_rows_come_back_with_their_children_alone(feed: Feed) -> None:
    feed.good(
        units=[{"code": "U", "name": "unit"}],
        products=[{"code": c, "name": c, "variants": [{"code": f"{c}1"}, {"code": f"{c}2"}]} for c in "AB"],
    )
    before, then = content(feed), version(feed)
    act(feed, "ann", "update data.units set name = 'other' where {own}")
    act(feed, "ann", "update data.products set name = 'other' where {own}")
    act(feed, "ann", "delete from data.product_variants where {own} and code like '%2'")
    # a variant of A moves to B, whose other one goes
    act(
        feed,
        "ann",
        "update data.product_variants set product_id = (select id from data.products where {own} and code = 'B') where {own} and code = 'A1'",
    )
    after = content(feed)
    back = restore(feed, then, rows=["products/code:A"])
    assert back["state"] == "completed", back
    assert counts(back) == {"products": {"updated": 1}, "productVariants": {"created": 1, "updated": 1}}
    now = content(feed)
    assert now["units"] == after["units"]
    assert [row for row in now["products"] if row["code"] == "A"] == [row for row in before["products"] if row["code"] == "A"]
    assert {row["code"] for row in now["productVariants"]} == {"A1", "A2", "B1"}
    back = restore(feed, then, entities=["products"])
    assert counts(back) == {"products": {"updated": 1, "unchanged": 1}, "productVariants": {"created": 1, "unchanged": 2}}
    now = content(feed)
    assert {**now, "units": before["units"]} == before and now["units"] == after["units"]


def test_children_that_came_and_went_in_between_are_not_brought_along(feed: Feed) -> None:
    feed.good(products=[{"code": c, "name": c, "variants": [{"code": f"{c}1"}]} for c in "ABC"])
    then = version(feed)
    for parent in "BC":
        act(
            feed,
            "ann",
            f"update data.product_variants set product_id = (select id from data.products where {{own}} and code = '{parent}')"
            " where {own} and code = 'A1'",
        )
    after = content(feed)
    assert counts(restore(feed, then, rows=["products/code:B"])) == {} and content(feed) == after
    assert counts(restore(feed, then, rows=["products/code:A"]))["productVariants"] == {"updated": 1}


@pytest.mark.parametrize("id", [-5, 1234567890123456789])
@pytest.mark.parametrize("form", ["units/{id}", "units/id:{id}"])
def test_a_row_is_named_by_any_id(feed: Feed, id: int, form: str) -> None:
    feed.write(
        "insert into data.units (company_id, id, code, name) values (%s, %s, 'U', 'u'), (%s, 7, 'V', 'v')",
        feed.company,
        id,
        feed.company,
    )
    then = version(feed)
    act(feed, "ann", "update data.units set name = 'changed' where {own}")
    assert counts(restore(feed, then, rows=[form.format(id=id)])) == {"units": {"updated": 1}}
    assert codes(feed, "units") == {"U": "u", "V": "changed"}


def test_what_a_row_refers_to_does_not_come_with_it(feed: Feed) -> None:
    feed.good(units=[{"code": "U", "name": "unit"}], products=[{"code": "A", "name": "a", "unit": "code:U"}])
    then = version(feed)
    feed.good(products=[{"code": "A", "@operation": "delete"}], units=[{"code": "U", "@operation": "delete"}])
    report = restore(feed, then, rows=["products/code:A"])
    assert (report["state"], [error["path"].partition(".")[2] for error in report["errors"]]) == ("failed", ["unitId"])
    assert report["errors"][0]["code"] == "lookup_not_found"
    assert restore(feed, then, rows=["units/code:U", "products/code:A"])["state"] == "completed"
    assert codes(feed) == {"A": "a"}


def test_a_range_is_undone_and_later_changes_of_its_rows_conflict(feed: Feed) -> None:
    feed.good(products=[{"code": c, "name": "old"} for c in "ABC"])
    start = version(feed)
    act(feed, "ann", "update data.products set name = 'bad' where {own} and code in ('A', 'B')")
    end = version(feed)
    act(feed, "ben", "update data.products set name = 'good' where {own} and code in ('B', 'C')")
    report = revert_range(feed, start, to_version=end)
    assert (report["state"], codes(feed)) == ("partial", {"A": "old", "B": "good", "C": "good"})
    assert [(error["code"], error["record"]) for error in report["errors"]] == [("conflict", "code:B")]
    assert report["undoes"] == {"from": start, "to": end}
    assert revert_range(feed, start, to_version=end, force=True)["state"] == "completed"
    assert codes(feed)["B"] == "old"


def test_the_changes_of_one_actor_are_undone_alone(feed: Feed) -> None:
    feed.good(products=[{"code": c, "name": "old", "price": 1} for c in "ABC"])
    start = version(feed)
    act(feed, "ann", "update data.products set name = 'ann' where {own} and code in ('A', 'B')")
    act(feed, "ben", "update data.products set price = 2 where {own} and code in ('B', 'C')")
    report = revert_range(feed, start, changes_of="ann")
    assert (report["state"], codes(feed)) == ("partial", {"A": "old", "B": "ann", "C": "old"})
    assert revert_range(feed, start, changes_of="ann", force=True)["state"] == "completed"
    assert codes(feed)["B"] == "old"
    assert feed.ask("select code from api.products where price = 2 order by code") == [("B",), ("C",)]
    assert counts(revert_range(feed, start, changes_of="nobody")) == {}


@not_divided("a table that has rows before it is registered")
def test_what_was_registered_later_stays(feed: Feed) -> None:
    connection = feed.operator.connection
    feed.good(products=[{"code": c, "name": "old"} for c in "AB"])
    then = version(feed)
    connection.execute(
        b"""
        create table data.notes (company_id text collate "C" not null, id bigint not null generated by default as identity,
            code text not null, text text, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code));
        create table data.tags (like data.notes including all)
        """
    )
    connection.execute(
        "insert into data.notes (company_id, code, text, updated_at) values (%s, 'N', 'before the log', now())", (feed.company,)
    )
    connection.execute("select bds.register('data.notes'), bds.register('data.tags')")
    connection.execute("select bds.drop_views('products')")
    connection.execute(b"alter table data.products add color text default 'grey'; select bds.register('data.products')")
    act(feed, "ann", "update data.products set name = 'new', color = 'red' where {own}")
    act(feed, "ann", "update data.notes set text = 'changed' where {own}")
    act(feed, "ann", "insert into data.notes (code) values ('M')")
    act(feed, "ann", "insert into data.tags (code) values ('T')")
    some = restore(feed, then, rows=["notes/code:N", "products/code:A"])
    assert feed.ask("select code, name from api.products order by code") == [("A", "old"), ("B", "new")]
    assert some["notices"][0] == f"notes was registered after version {then}: its rows stay as they are"
    report = restore(feed, then)
    assert report["state"] == "completed", report
    assert feed.ask("select distinct name, color from api.products") == [("old", "red")]
    assert feed.ask("select code, text from api.notes order by code") == [("M", None), ("N", "changed")]
    assert feed.ask("select code from api.tags") == [], "it had no rows when it was registered"
    assert report["notices"] == [
        f"notes was registered after version {then}: its rows stay as they are",
        f"products.color was registered after version {then}: its values stay as they are",
    ]
    late = replace(feed, company=feed.operator.company("late"))  # whose every version has these entities
    act(late, "ann", "insert into data.notes (code) values ('N')")
    act(late, "ann", "insert into data.products (code, name) values ('P', 'p')")
    report = restore(late, 0)
    assert (report["state"], report["notices"]) == ("completed", [])
    assert late.ask("select code from api.notes") == late.ask("select code from api.products") == []


def test_values_that_a_domain_or_an_enum_takes_no_more_are_conflicts(feed: Feed) -> None:
    connection = feed.operator.connection
    connection.execute(
        b"""
        create domain data.level as int check (value < 100); create type data.mood as enum ('low', 'high');
        create domain data.mood_of_day as data.mood;
        create table data.gauges (company_id text collate "C" not null, id bigint not null generated by default as identity,
            code text not null, level data.level, mood data.mood, day data.mood_of_day, updated_at timestamptz not null,
            primary key (company_id, id), unique (company_id, code));
        select bds.register('data.gauges')
        """
    )
    place_shards(feed.url)
    act(
        feed,
        "ann",
        "insert into data.gauges (code, level, mood, day) values ('L', 50, null, null), ('M', 1, 'low', null), ('D', 1, null, 'low')",
    )
    act(feed, "ann", "insert into data.gauges (code, level) values ('fits', 2)")
    then = version(feed)
    act(feed, "ann", "update data.gauges set level = 5, mood = 'high', day = 'high' where {own}")
    connection.execute("alter domain data.level add check (value < 10)")
    connection.execute("alter type data.mood rename value 'low' to 'LOW'")
    report = restore(feed, then, entities=["gauges"])
    assert report["state"] == "partial", report
    assert {(error["code"], error["record"]) for error in report["errors"]} == {("conflict", f"code:{each}") for each in "LMD"}
    assert feed.ask("select code, level from api.gauges order by code") == [("D", 5), ("L", 5), ("M", 5), ("fits", 2)]


def test_a_version_that_is_null_is_no_version(feed: Feed) -> None:
    feed.good(products=[{"code": c, "name": "old"} for c in "AB"])
    before = version(feed)
    for call in ("revert_range(%s, null, 1)", "revert_range(%s, null)", "restore(%s, null)"):
        with pytest.raises(psycopg.Error, match=r"expected a version \(the id of a change, or 0\), got null") as caught:
            feed.ask(f"select bds.{call}", feed.company)
        assert caught.value.sqlstate == "BD005", call
    assert version(feed) == before
    assert revert_range(feed, before - 1, to_version=None, dry_run=True)["undoes"] == {"from": before - 1}, "up to now"


@pytest.mark.parametrize(
    ("selection", "state", "message"),
    [
        ({}, "BD005", "expected a change set, to, or from"),
        ({"to": 1, "changeSet": "7d0b6e0e-6a52-4f8a-9d0e-3f0f0f0f0f0f"}, "BD005", "expected a change set, to, or from"),
        ({"to": 1, "when": 2}, "BD005", "got when"),
        ({"to": 1, "actor": "ann"}, "BD005", "expected no actor with to alone"),
        ({"to": "x y"}, "BD005", "expected a version"),
        ({"from": 2, "to": 1}, "BD005", "comes after version"),
        ({"from": None, "to": 1}, "BD005", "expected a version .the id of a change, or 0., got null"),
        ({"to": 1, "rows": None}, "BD005", "rows: expected a value, got null"),
        ({"to": 99}, "BD002", "has no version 99"),
        ({"to": "nobody"}, "BD002", "has no version nobody"),
        ({"to": 1, "entities": ["things"]}, "BD002", "no such entity: 'things'"),
        ({"to": 1, "entities": [None]}, "BD002", "no such entity: null"),
        ({"to": 1, "rows": ["things/1"]}, "BD002", "no such entity: 'things'"),
        ({"to": 1, "rows": ["products"]}, "BD005", "expected a row such as"),
        ({"to": 1, "rows": ["products/name:x"]}, "BD005", "'name' is not a lookup of products"),
        ({"to": 1, "rows": ["products/code:X"]}, "BD002", "no such row: products/code:X, neither then nor now"),
        ({"to": 1, "rows": ["products/999"]}, "BD002", "no such row: products/999"),
        ({"changeSet": "7d0b6e0e-6a52-4f8a-9d0e-3f0f0f0f0f0f"}, "BD002", "has no change set"),
    ],
)
def test_a_wrong_selection_is_told_and_nothing_is_listed(feed: Feed, selection: dict[str, Any], state: str, message: str) -> None:
    feed.good(products=[{"code": c, "name": "old"} for c in "AB"])
    listed = feed.ask("select count(*) from bds.imports where company_id = %s", feed.company)
    with pytest.raises(psycopg.Error, match=message) as caught:
        feed.ask("select bds.import_begin(%s, undoes => %s)", feed.company, json.dumps(selection))
    assert caught.value.sqlstate == state
    assert feed.ask("select count(*) from bds.imports where company_id = %s", feed.company) == listed
