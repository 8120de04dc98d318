"""All rows of an entity as of a version: bds.rows_at and the views of schema past, beside bds.row_at and what the rows were then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator, prepared
from tests.database.aging import age
from tests.database.test_altered_tables import DROP_VIEWS, TABLE
from tests.database.test_history import past_rows

pytestmark = pytest.mark.slow

VERSION = "select coalesce(max(last_id), 0) from bds.positions where company_id = 'acme'"
ALTER = DROP_VIEWS + "; alter table data.stores {}; select bds.register('data.stores')"
# what happens to the stores of acme one after the other
EVENTS = (
    "insert into data.stores (code, city, size) values ('b', 'Rom', 2), ('c', 'Wien', 3)",
    "update data.stores set city = 'Köln' where code = 'a'",
    "alter table data.stores rename city to town; select bds.register('data.stores')",
    "update data.stores set town = null where code = 'b'",
    "delete from data.stores where code = 'c'",
    "alter table data.stores add column city text; select bds.register('data.stores')",
    "update data.stores set city = 'new', size = 20 where code = 'b'",
    "insert into data.stores (code, town, city) values ('d', 'Bern', 'new')",
    "select bds.drop_column('stores', 'size')",
    "update data.stores set code = 'd2' where code = 'd'",
    "alter table data.stores add column size text; select bds.register('data.stores')",
    "update data.stores set size = 'XL'",
    ALTER.format("alter column city type int using 7"),
    "update data.stores set city = 8 where code = 'a'",
    "delete from data.stores where code <> 'a'",
)


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, f"{TABLE}; select bds.register('data.stores'); select bds.create_company('acme')", of_units)


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.write("acme", "insert into data.stores (code, city, size) values ('a', 'Ulm', 1)")
    return operator


def rows_at(operator: Operator, version: int, entity: str = "stores") -> dict[int, Any]:
    found = [row for (row,) in operator.rows("select bds.rows_at('acme', %s, %s)", (entity, version))]
    rows = {row["id"]: row for row in found}
    assert len(rows) == len(found)
    return rows


def test_every_version_reads_as_row_at_gives_each_row_whatever_happened_to_the_columns(acme: Operator) -> None:
    now: dict[int, dict[int, Any]] = {}
    for event in EVENTS:
        acme.write("acme", event)
        [(version,)] = acme.rows(VERSION)
        now[version] = dict(acme.rows("select id, to_jsonb(s) - 'company_id' from data.stores s where company_id = 'acme'"))
    [(last,)] = acme.rows(VERSION)
    ids = [id for (id,) in acme.rows("select distinct row_id from bds.changes where company_id = 'acme'")]
    for version in range(last + 1):
        expected = {id: acme.rows("select bds.row_at('acme', 'stores', %s, %s)", (id, version))[0][0] for id in ids}
        found = rows_at(acme, version)
        assert found == {id: row for id, row in expected.items() if row is not None}, version
        views = dict(past_rows(acme.connection, "acme", "stores", version))
        assert views.keys() == found.keys()
        if version in now:
            assert found.keys() == now[version].keys()
        for id, row in views.items():  # the present columns, null where they were not there
            size = row.pop("size")
            assert size in (None, "XL")
            if isinstance(city := found[id].get("city"), str):
                assert row.pop("city") is None, "a text is not an integer"
                assert city == "new"
            assert row == {name: found[id].get(name) for name in row}, version
    assert {row["code"]: row["size (dropped)"] for row in rows_at(acme, 3).values()} == {"a": 1, "b": 2, "c": 3}, (
        "of a dropped column"
    )


def test_the_versions_between_two_moments_are_the_rows_of_every_moment(acme: Operator) -> None:
    for event in EVENTS:
        acme.write("acme", event)
    times = dict(acme.rows("select id, created_at from bds.changes where company_id = 'acme'"))
    last = max(times)
    # versions that end a transaction: its changes are not all of one time
    ends = [id for (id,) in acme.rows("select max(id) from bds.changes where company_id = 'acme' group by transaction_id")]
    rows = {version: rows_at(acme, version) for version in ends}
    for since, until in ((0, last), (3, last), (5, 9), (1, 2), (last, last)):
        found = acme.rows("select * from bds.versions_between('acme', 'stores', %s, %s)", (since, until))
        assert len({(id, version) for id, version, *_ in found}) == len(found)
        assert all(began == times.get(version) for _, version, began, _, _ in found)
        for version, expected in rows.items():
            if since < version <= until:
                at = times[version]
                valid = {id: row for id, _, began, ended, row in found if began <= at and (ended is None or at < ended)}
                assert valid.keys() == expected.keys(), (since, until, version)
                for id, row in valid.items():  # a row has the columns of the last moment at which it was so
                    then = {name: value for name, value in expected[id].items() if "dropped" not in name}
                    assert {name: row[name] for name in then} == then, (since, until, version)
        with acme.connection.transaction():
            acme.connection.execute("select bds.set_range('acme', %s, %s)", (since, until))
            shown = acme.rows('select id, "@version", "@validFrom", "@validTo" from past.stores_versions')
        assert sorted(shown, key=str) == sorted(((id, *rest[:3]) for id, *rest in found), key=str)
    assert acme.rows("select * from bds.versions_between('acme', 'stores', %s, %s)", (last, last))


def test_rows_from_before_a_registration_are_in_no_difference(acme: Operator) -> None:
    """Not said to be whole: neither from version 0 on; a company that came later has its difference from there."""
    acme.connection.execute(TABLE.replace("data.stores", "data.depots").encode())
    acme.connection.execute("insert into data.depots (company_id, code, updated_at) values ('acme', 'D1', now())")
    acme.connection.execute("select bds.register('data.depots')")
    acme.write("acme", "insert into data.depots (code) values ('D2')")
    [(last,)] = acme.rows(VERSION)
    for since in (0, 1):
        with pytest.raises(psycopg.Error) as refused:
            acme.rows("select * from bds.diff('acme', 'depots', %s, %s)", (since, last))
        assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("BD006", f'{{"firstId": {last}}}')
        for view in ("diff", "versions"):
            with pytest.raises(psycopg.Error, match=f"depots was not registered at version {since}"), acme.connection.transaction():
                acme.connection.execute("select bds.set_range('acme', %s, %s)", (since, last))
                acme.connection.execute(f"select * from past.depots_{view}".encode())
    assert acme.rows("select count(*) from past.depots_diff") == [(0,)], "a session that names no version any more"
    acme.company("later")
    acme.write("later", "insert into data.depots (code) values ('D3')")
    assert acme.rows("select operation from bds.diff('later', 'depots', 0, 1)") == [("create",)]


def test_a_column_may_have_any_name_and_differences_have_the_present_types(acme: Operator) -> None:
    names = ("state", "version", "operation", "columns", "old", "new", "row", "valid_from")
    columns = ", ".join(f'"{name}" text' for name in names)
    table = TABLE.replace("data.stores", "data.clash").replace("code ", f"{columns}, code ", 1)
    acme.connection.execute(table.encode())
    acme.connection.execute("select bds.register('data.clash')")
    acme.write("acme", "insert into data.clash (code, state, version) values ('a', '1', '12')")
    acme.write("acme", "update data.clash set state = '2', version = '13'")
    acme.connection.execute(DROP_VIEWS.replace("stores", "clash").encode())
    acme.connection.execute("alter table data.clash alter version type int using version::int; select bds.register('data.clash')")
    acme.write("acme", "update data.clash set version = 14")
    [(last,)] = acme.rows(VERSION)
    [(id, first)] = acme.rows("select row_id, id from bds.changes where entity = 'clash' and operation = 'create'")
    [(operation, changed, old, new)] = acme.rows(
        "select operation, columns, old, new from bds.diff('acme', 'clash', %s, %s)", (first, last)
    )
    assert (operation, changed, old, new) == (
        "update", ["state", "version"], {"state": "1", "version": 12}, {"state": "2", "version": 14},
    )  # fmt: skip
    between = "select version, \"row\" from bds.versions_between('acme', 'clash', %s, %s)"
    for version, row in acme.rows(between, (first, last)):
        assert acme.rows("select bds.row_at('acme', 'clash', %s, %s)", (id, version)) == [(row,)]
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_range('acme', %s, %s)", (first, last))
        assert acme.rows('select "@operation", state, version from past.clash_diff') == [("update", "2", 14)]


@pytest.mark.parametrize("digits", [1, 0, -15])
@pytest.mark.parametrize("type", ["float8", "float4", "another type before"])
def test_a_difference_has_rows_whose_doubles_differ_in_the_last_digit(acme: Operator, type: str, digits: int) -> None:
    first = "int" if type == "another type before" else type
    acme.connection.execute(f"alter table data.stores add column weight {first}; select bds.register('data.stores')".encode())
    if first != type:
        acme.connection.execute(ALTER.format("alter column weight type float8").encode())
    near = "0.1, 0.10000001" if type == "float4" else "0.1, 0.10000000000000002"
    for value in near.split(", "):
        acme.write("acme", f"update data.stores set weight = {value}")
    [(last,)] = acme.rows(VERSION)
    with acme.connection.transaction():
        acme.connection.execute(
            f"set local extra_float_digits = {digits}; select bds.set_range('acme', {last - 1}, {last})".encode()
        )
        for view in ("stores_diff", "stores_ends"):
            assert acme.rows(f'select "@operation", "@columns" from past.{view}') == [("update", ["weight"])]
    acme.write("acme", "update data.stores set weight = 1")
    with acme.connection.transaction():
        acme.connection.execute(
            f"set local extra_float_digits = {digits}; select bds.set_range('acme', {last - 1}, {last})".encode()
        )
        assert acme.rows('select "@operation", "@columns" from past.stores_diff') == [("update", ["weight"])]


def test_erased_values_are_null_in_the_past(acme: Operator) -> None:
    acme.write("acme", "update data.stores set city = 'Bonn'")
    acme.write("acme", "delete from data.stores")
    acme.connection.execute(
        "select bds.erase('acme', 'stores', (select row_id from bds.changes where id = 3 and company_id = 'acme'), '{city}')"
    )
    assert [row["city"] for version in (1, 2) for row in rows_at(acme, version).values()] == [None, None]
    assert [row["city"] for version in (1, 2) for _, row in past_rows(acme.connection, "acme", "stores", version)] == [None, None]


def test_what_retention_has_dropped_is_refused_and_the_state_before_the_first_kept_change_is_not(acme: Operator) -> None:
    for city in ("Bonn", "Rom", "Wien"):
        acme.write("acme", f"update data.stores set city = '{city}'")
    age(acme, "2020_01", "id <= 2 and company_id = 'acme'")
    acme.connection.execute("select bds.set_retention('1 year')")
    acme.connection.execute("select bds.maintain()")
    assert acme.rows("select bds.first_change('acme')") == [(3,)]
    for call in ("bds.rows_at('acme', 'stores', 1)", "bds.row_at('acme', 'stores', 1, 1)"):
        with pytest.raises(psycopg.Error) as caught:
            acme.rows(f"select * from {call}")
        assert caught.value.sqlstate == "BD006"
    assert [row["city"] for row in rows_at(acme, 2).values()] == ["Bonn"]
    assert [row["city"] for row in rows_at(acme, 3).values()] == ["Rom"]


@pytest.mark.parametrize(("version", "state"), [("99", "BD002"), ("-1", "BD005"), ("null", "BD005")])
def test_one_row_and_all_rows_are_refused_as_of_the_same_versions(acme: Operator, version: str, state: str) -> None:
    for call in (f"bds.rows_at('acme', 'stores', {version})", f"bds.row_at('acme', 'stores', 1, {version})"):
        with pytest.raises(psycopg.Error) as caught:
            acme.rows(f"select * from {call}")
        assert caught.value.sqlstate == state


def test_an_entity_registered_later_has_no_rows_before(acme: Operator) -> None:
    acme.connection.execute(
        b"create table data.places as table data.stores; alter table data.places alter id set not null,"
        b" alter company_id set not null, alter updated_at set not null, alter id add generated by default as identity,"
        b" add primary key (company_id, id); select bds.register('data.places')"
    )
    acme.write("acme", "update data.stores set size = 2")
    acme.write("acme", "update data.places set size = 2")
    assert [[row["size"] for row in rows_at(acme, version, "places").values()] for version in range(4)] == [[], [], [1], [2]]
    assert [len(past_rows(acme.connection, "acme", "places", version)) for version in range(4)] == [0, 0, 1, 1]
    assert [acme.rows("select bds.row_at('acme', 'places', min(id), %s) ->> 'size' from data.places where company_id = 'acme'", (v,)) for v in range(4)] == [
        [(None,)], [(None,)], [("1",)], [("2",)]]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "state", "message"),
    [
        ("'acme', 'stores', null", "BD005", "expected a version"),
        ("'acme', 'stores', -1", "BD005", "expected a version"),
        ("'acme', 'stores', 2", "BD002", "has no version 2 yet: its last one is 1"),
        ("'acme', 'nothing', 1", "BD002", "no such entity: 'nothing'"),
        ("'acme', null, 1", "BD002", "no such entity: null"),
        ("'nowhere', 'stores', 1", "BD002", "no such company: 'nowhere'"),
    ],
)
def test_a_wrong_argument_is_told(acme: Operator, arguments: str, state: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        acme.rows(f"select * from bds.rows_at({arguments})")
    assert caught.value.sqlstate == state


def test_the_past_belongs_to_the_named_company(acme: Operator, connect) -> None:
    acme.company("beta")
    acme.write("beta", "insert into data.stores (code) values ('other')")
    reader = connect("bds_reader", "beta")
    with pytest.raises(psycopg.Error) as caught:
        reader.execute("select bds.rows_at('acme', 'stores', 1)")
    assert caught.value.sqlstate == "BD001"
    reader.execute(
        "select set_config('bds.version', '1', false), set_config('bds.version_time', 'infinity', false),"
        " set_config('bds.moment', 'infinity', false)"
    )
    for view in ("stores_changed", "stores_unchanged"):
        assert [company for (company,) in reader.execute(f"select company_id from past.{view}".encode()).fetchall()] in (
            [],
            ["beta"],
        )
    assert reader.execute("select code from past.stores_unchanged").fetchall() == [("other",)]
    assert reader.execute("select row ->> 'code' from bds.rows_at('beta', 'stores', 1) row").fetchall() == [("other",)]


@pytest.mark.parametrize(
    "after", ["", "set local timezone = 'UTC'", "set local datestyle = 'SQL, MDY'", "set local datestyle = 'German'"]
)
def test_the_views_of_the_past_depend_on_no_date_style(acme: Operator, after: str) -> None:
    acme.write("acme", "update data.stores set city = 'Bonn' where code = 'a'")
    acme.write("acme", "update data.stores set city = 'Rom' where code = 'a'")
    [(first, last)] = acme.rows("select min(id), max(id) from bds.changes where company_id = 'acme'")
    acme.connection.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'")  # IST, which is Israel's elsewhere
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_version('acme', %s)", (last - 1,))
        acme.connection.execute(after.encode())
        times = [f"current_setting('bds.{name}')" for name in ("version_time", "moment")]
        assert acme.rows(f"select city, {times[0]} = {times[1]} and {times[0]} ^@ '20' from past.stores") == [("Bonn", True)]
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_range('acme', %s, %s)", (first, last - 1))
        acme.connection.execute(after.encode())
        assert acme.rows('select city, "@columns" from past.stores_diff') == [("Bonn", ["city"])]
        assert acme.rows("select current_setting('bds.since_time') ^@ '20', current_setting('bds.since')") == [(True, str(first))]


def test_a_row_is_looked_up_in_the_past_without_reading_the_others(acme: Operator) -> None:
    acme.write("acme", "insert into data.stores (code) select 's' || i from generate_series(1, 20000) i")
    acme.write("acme", "update data.stores set size = 5 where id %% 2 = 0")
    acme.connection.execute("analyze data.stores; analyze bds.change_log")
    with acme.connection.transaction():
        acme.connection.execute(
            "select set_config('bds.company', 'acme', true), set_config('bds.version', '1000', true),"
            " set_config('bds.version_time', created_at::text, true), set_config('bds.moment', created_at::text, true)"
            " from bds.changes where company_id = 'acme' and id = 1000"
        )
        acme.connection.execute("set local role bds_reader")
        for view in ("stores_changed", "stores_unchanged"):
            [(plan,)] = acme.rows(f"explain (analyze, format json) select * from past.{view} where id = 700")
            assert "Seq Scan on stores" not in str(plan)
            assert max(rows_of(plan[0]["Plan"])) <= 2, plan


def rows_of(node: dict[str, Any]) -> list[float]:
    """The numbers of rows that a plan's nodes have read."""
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return [read, *(rows for child in node.get("Plans", []) for rows in rows_of(child))]
