"""The difference of two versions: bds.diff and the views of a range, beside all rows as of both ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from app.database.connections import read_catalog
from app.query.sql.difference import IN_ORDER, Difference, records
from tests.conftest import Operator, prepared
from tests.database.aging import age
from tests.database.test_altered_tables import TABLE
from tests.database.test_past import EVENTS, VERSION, rows_at

KEPT_OUT = {"updatedAt"}  # never compared


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, f"{TABLE}; select bds.register('data.stores'); select bds.create_company('acme')", of_units)


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.write("acme", "insert into data.stores (code, city, size) values ('a', 'Ulm', 1)")
    return operator


def difference(operator: Operator, since: int, until: int, entity: str = "stores") -> dict[int, tuple[Any, ...]]:
    """What bds.diff gives, by row: operation, columns, old, new, version."""
    found = operator.rows("select * from bds.diff('acme', %s, %s, %s)", (entity, since, until))
    assert [row[-1] for row in found] == sorted(row[-1] for row in found)
    return {row[0]: row[1:] for row in found}


def expected(operator: Operator, since: int, until: int, fields: set[str]) -> dict[int, tuple[Any, ...]]:
    """The same from all rows as of both ends; of the columns that there are now."""
    old, new = (
        {id: {name: row.get(name) for name in fields} for id, row in rows_at(operator, version).items()}
        for version in (since, until)
    )
    rows: dict[int, tuple[Any, ...]] = {}
    for id in old.keys() | new.keys():
        before, after = old.get(id), new.get(id)
        names = fields if before is None or after is None else {n for n in fields - KEPT_OUT if before[n] != after[n]}
        if not names:
            continue
        rows[id] = (
            "create" if before is None else "delete" if after is None else "update",
            names,
            before and {name: before[name] for name in names},
            after and {name: after[name] for name in names},
        )
    return rows


def ranges(last: int) -> Iterator[tuple[int, int]]:
    return ((since, until) for since in range(last + 1) for until in range(since, last + 1))


@pytest.mark.slow
def test_the_difference_of_any_two_versions_is_that_of_all_their_rows(acme: Operator) -> None:
    chance = random.Random(7)
    for _ in range(25):
        a, b = chance.choices("abcde", k=2)
        acme.write(
            "acme",
            chance.choice(
                (
                    f"insert into data.stores (code, city, size) values ('{a}', 'Ulm', {chance.randrange(3)})",
                    f"update data.stores set size = {chance.randrange(3)}, city = '{b}' where code <= '{a}'",
                    f"update data.stores set code = '{b}' where code = '{a}'",
                    f"delete from data.stores where code = '{a}'",
                )
            ),
        )
    last = acme.rows(VERSION)[0][0]
    last_changes = {(row, id) for row, id in acme.rows("select row_id, id from bds.changes where company_id = 'acme'")}
    fields = {"id", "code", "city", "size", "updatedAt"}
    operations = set()
    for since, until in ranges(last):
        found, wanted = difference(acme, since, until), expected(acme, since, until, fields)
        assert {id: (row[0], set(row[1]), row[2], row[3]) for id, row in found.items()} == wanted, (since, until)
        for id, (operation, *_, version) in found.items():
            operations.add(operation)
            assert version == max(change for row, change in last_changes if row == id and since < change <= until)
    assert operations == {"create", "update", "delete"}


def test_the_views_of_a_range_have_the_same_rows_typed(acme: Operator) -> None:
    acme.write("acme", "insert into data.stores (code, city, size) values ('b', 'Rom', 2), ('c', 'Wien', 3)")
    acme.write("acme", "update data.stores set size = 5 where code = 'a'; delete from data.stores where code = 'c'")
    acme.write("acme", "update data.stores set size = 6")
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_range('acme', 3, 5)")
        acme.connection.execute("set local timezone = 'Asia/Tokyo'")
        found = acme.rows('select "@operation", "@version", "@columns", code, size from past.stores_diff order by 2')
    names = ["id", "code", "city", "size", "updatedAt"]
    assert [(row[0], row[1], sorted(row[2]), *row[3:]) for row in found] == [
        ("update", 4, ["size"], "a", 5),
        ("delete", 5, sorted(names), "c", 3),
    ]
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_version('acme', 3)")
        assert acme.rows("select code, size from past.stores order by code") == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.slow
def test_columns_that_came_went_or_changed_their_names_are_compared_under_their_present_ones(acme: Operator) -> None:
    for event in EVENTS[:10]:
        acme.write("acme", event)
    last = acme.rows(VERSION)[0][0]
    fields = {"id", "code", "town", "city", "updatedAt"}
    for since, until in ranges(last):
        found = difference(acme, since, until)
        # a column that was added, or dropped, without a change of the row changes no row
        wanted = expected(acme, since, until, fields)
        assert {id: (row[0], row[2], row[3]) for id, row in found.items()} == {
            id: (w[0], w[2], w[3]) for id, w in wanted.items()
        }, (since, until)


@pytest.mark.parametrize(
    ("arguments", "state", "message"),
    [
        ("'acme', 'stores', null, 1", "BD005", "expected a version"),
        ("'acme', 'stores', 0, -1", "BD005", "expected a version"),
        ("'acme', 'stores', 0, 2", "BD002", "has no version 2 yet: its last one is 1"),
        ("'acme', 'stores', 1, 0", "BD005", "version 1 comes after version 0"),
        ("'acme', 'nothing', 0, 1", "BD002", "no such entity: 'nothing'"),
        ("'nowhere', 'stores', 0, 1", "BD002", "no such company: 'nowhere'"),
    ],
)
def test_a_wrong_range_is_told(acme: Operator, arguments: str, state: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        acme.rows(f"select * from bds.diff({arguments})")
    assert caught.value.sqlstate == state


def test_an_entity_has_no_difference_with_a_version_before_it_was_registered(acme: Operator) -> None:
    acme.connection.execute(
        b"create table data.places as table data.stores; alter table data.places alter id set not null,"
        b" alter company_id set not null, alter updated_at set not null, alter id add generated by default as identity,"
        b" add primary key (company_id, id); select bds.register('data.places')"
    )
    acme.write("acme", "update data.places set size = 2")
    acme.write("acme", "update data.places set size = 3")
    with pytest.raises(psycopg.Error, match="places was not registered at version 1: expected 2 or later") as caught:
        difference(acme, 1, 2, "places")
    assert caught.value.sqlstate == "BD006"
    assert [row[0] for row in difference(acme, 2, 3, "places").values()] == ["update"]


def test_what_is_no_longer_kept_has_no_difference(acme: Operator) -> None:
    for city in ("Bonn", "Rom", "Wien"):
        acme.write("acme", f"update data.stores set city = '{city}'")
    age(acme, "2020_01", "id <= 2 and company_id = 'acme'")
    acme.connection.execute("select bds.set_retention('1 year'); select bds.maintain()")
    with pytest.raises(psycopg.Error) as caught:
        difference(acme, 1, 4)
    assert caught.value.sqlstate == "BD006"
    [row] = difference(acme, 2, 4).values()
    assert row[2:4] == ({"city": "Bonn"}, {"city": "Wien"})
    with pytest.raises(psycopg.Error) as caught:
        acme.rows("select bds.version_of('acme', '2020-01-20')")
    assert caught.value.sqlstate == "BD006"


def test_a_time_after_a_month_that_is_gone_is_the_version_at_its_end(acme: Operator) -> None:
    acme.write("acme", "update data.stores set city = 'Bonn'")
    acme.write("acme", "update data.stores set city = 'Rom'")
    age(acme, "2020_01", "id <= 2 and company_id = 'acme'")
    acme.connection.execute("alter table bds.change_log detach partition bds.change_log_2020_01")
    # february and the months after it had no changes
    assert acme.rows("select bds.version_of('acme', '2020-02-01'), bds.version_of('acme', '2021-07-01')") == [(2, 2)]
    [row] = rows_at(acme, 2).values()
    assert row["city"] == "Bonn"
    with pytest.raises(psycopg.Error) as caught:
        acme.rows("select bds.version_of('acme', '2020-01-31T23:59Z')")
    assert caught.value.sqlstate == "BD006"


def test_an_id_a_time_and_a_name_mean_a_version(acme: Operator, connect) -> None:
    acme.write("acme", "update data.stores set size = 2")
    acme.write("acme", "update data.stores set size = 3")
    times = [
        at for (at,) in acme.rows("select bds_service.api_time(created_at) from bds.changes where company_id = 'acme' order by id")
    ]
    assert acme.rows("select bds.name_version('acme', 'year-end', 2)") == [(True,)]
    assert acme.rows("select bds.name_version('acme', 'year-end', 1)") == [(False,)]
    assert acme.rows("select bds.name_version('acme', 'latest', actor => 'me')") == [(True,)]
    assert acme.rows("select name, version, actor, at is not null from bds.versions order by name") == [
        ("latest", 3, "me", True),
        ("year-end", 1, acme.rows("select session_user")[0][0], True),
    ]
    found = {
        text: acme.rows("select bds.version_of('acme', %s)", (text,))[0][0]
        for text in ("0", "2", "latest", "year-end", "2001-01-01", *times, times[1].replace("Z", "+00:00"))
    }
    assert found == {
        "0": 0,
        "2": 2,
        "latest": 3,
        "year-end": 1,
        "2001-01-01": 0,
        **dict(zip(times, (1, 2, 3), strict=True)),
        times[1].replace("Z", "+00:00"): 2,
    }
    assert acme.rows("select bds.forget_version('acme', 'latest'), bds.forget_version('acme', 'nobody')") == [(True, False)]
    for text, state in {
        **{"latest": "BD002", "4": "BD002", "9999999999999999999999": "BD002", "2999-01-01": "BD002"},
        **{"-1": "BD005", "": "BD005", "2026-13-01": "BD005", "1.5": "BD005"},
    }.items():
        with pytest.raises(psycopg.Error) as caught:
            acme.rows("select bds.version_of('acme', %s)", (text,))
        assert caught.value.sqlstate == state, text
    for name in ("Now", "2026", "a b", "x" * 64, "", "year/end"):
        with pytest.raises(psycopg.Error, match="is not a name of a version"):
            acme.rows("select bds.name_version('acme', %s, 1)", (name,))
    acme.company("beta")
    with pytest.raises(psycopg.Error) as caught:
        connect("bds_reader", "beta").execute("select bds.version_of('acme', '1')")
    assert caught.value.sqlstate == "BD001"


@pytest.mark.parametrize("setting", ["enable_nestloop = off", "enable_hashjoin = off; set local enable_mergejoin = off"])
def test_a_difference_reads_few_records_of_each_row_whatever_the_planner_knows(acme: Operator, setting: str) -> None:
    # right after they were written: of the company, and of the log, there are no statistics
    acme.write("acme", "insert into data.stores (code) select 's' || i from generate_series(1, 2000) i")
    acme.write("acme", "update data.stores set size = 5")
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_range('acme', 1, (select last_id from bds.clocks where company_id = 'acme'))")
        acme.connection.execute(f"set local {setting}; set local role bds_reader".encode())
        [(plan,)] = acme.rows("explain (analyze, format json) select * from past.stores_ends")
    assert plan[0]["Plan"]["Actual Rows"] == 2001
    most = max(records_read(plan[0]["Plan"]))
    assert most[0] <= 2001 * 5, most


def test_a_page_in_the_order_of_versions_reads_no_further(acme: Operator) -> None:
    acme.write("acme", "insert into data.stores (code) select 's' || i from generate_series(1, 2000) i")
    acme.write("acme", "update data.stores set size = 5")
    acme.connection.execute("analyze")
    catalog = read_catalog(acme.connection)
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_range('acme', 2001, 4002)")
        acme.connection.execute("set local enable_hashjoin = off; set local enable_mergejoin = off")
        acme.connection.execute(IN_ORDER)
        page = records(catalog, "acme", Difference(catalog["stores"], after=2500, limit=100)).as_string(acme.connection)
        [(plan,)] = acme.rows("explain (analyze, format json) " + page)
    assert plan[0]["Plan"]["Actual Rows"] == 100
    changes = [read for read, node in records_read(plan[0]["Plan"]) if "'Alias': 'c_" in node]
    assert 100 <= sum(changes) <= 101


def records_read(node: dict[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield for each node of a plan how many rows it has read in all its loops, and what it is."""
    removed = (
        node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Index Recheck", 0)
        + node.get("Rows Removed by Join Filter", 0)
    )
    yield (node["Actual Rows"] + removed) * node["Actual Loops"], str({**node, "Plans": [], "Output": []})
    for child in node.get("Plans", []):
        yield from records_read(child)
