"""`bds query`: a statement over two places gives what one database with all companies would give, or is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import everywhere
from tests.places.conftest import Places, interrupt

pytestmark = [pytest.mark.processes, pytest.mark.slow]

COMPANIES = {"acme": HOME, "beta": HOME, "gamma": "west", "delta": "west"}
MERGED = (
    "select company_id, code from data.units order by company_id, code",
    "select company_id, code from data.units order by code desc, company_id limit 3",
    "select count(*) from data.units",
    "select count(*), min(code), max(id), sum(id) from data.units where company_id <> 'beta'",
    "select name, count(*), max(code) from data.units group by name order by name",
    "select distinct name from data.units order by name",
    "select company_id, avg(id), count(distinct code) from data.units group by company_id order by company_id",
    "select entity, operation, count(*) from bds.change_log group by entity, operation order by entity",
    "select p.company_id, p.code, c.code from data.products p join data.categories c"
    " on c.company_id = p.company_id and c.id = p.category_id order by p.company_id, p.code",
    "select count(*) from data.units where false",
    "select name, count(*) from bds.entities group by name order by name",
    "select id from bds.companies order by id",
    "select 1",
)
REFUSED = {
    "select avg(id) from data.units": "does not follow",
    "select count(distinct name) from data.units": "does not follow",
    "select name, count(*) from data.units group by name having count(*) > 2": "having",
    "select code from data.units limit 2": "without an order",
    "select code from data.units order by code offset 1": "limit",
    "select u.code from data.units u join data.categories c on c.code = u.code": "company_id",
    "select code, rank() over (order by code) from data.units": "WindowAgg",
    "select code from data.units where id = (select max(id) from data.units)": "subquery",
    "select u.code from data.units u join bds.companies c on c.id = u.company_id": "at home alone",
    "select count(*) from data.units group by name": "has to be selected",
    "select * from bds.turns": "reads one place",
    "select code from data.units order by code offset 1 limit 5": "limit",
    "select code from data.units order by code limit 1 -- limit 5": "limit",
    "select count(*) from (select distinct name from data.units) x": "Aggregate",
    "select name, count(*) from (select distinct name from data.units) x group by name": "Aggregate",
    "select distinct n from (select name, count(*) n from data.units group by name) x": "Aggregate",
    "select count(*) from data.units group by grouping sets ((name), ())": "grouping sets",
    "select distinct on (name) name, code from data.units order by name, code": "distinct on",
    "select u.code from data.units u join data.categories c on c.company_id = u.company_id join data.products p on p.code = u.code":
        "company_id",
    "select u.code from data.units u join data.categories c on c.company_id = u.company_id or c.code = u.code": "company_id",
    "select entity, operation from bds.change_log order by operation": 'operation::text collate "C"',
    "select min(operation) from bds.change_log": 'min::text collate "C"',
    "select company_id, old from bds.change_log order by old": 'old::text collate "C"',
    "select old, count(*) from bds.change_log group by old": 'old::text collate "C"',
    "select name || '' collate \"default\" as n from data.units order by 1": 'n::text collate "C"',
    "select max(name::text collate \"default\") from data.units": 'max::text collate "C"',
    "select sum(updated_at - updated_at) from data.units": "a sum of interval",
}  # fmt: skip
# statements over groups of all places, and their rows: place home has a three times and b twice, west b twice and c three times
GROUPED: dict[str, list[tuple[Any, ...]]] = {
    "select symbol, count(*) from data.units where symbol > '' group by symbol order by 2 desc, 1 limit 1": [("b", 4)],
    "select distinct symbol from data.units where symbol > '' order by symbol desc limit 2;": [("c",), ("b",)],
    "select operation, count(*) from bds.change_log where entity = 'units' group by operation": [("create", 26), ("update", 10)],
    "select operation::text collate \"C\" as o from bds.change_log where entity = 'units' group by 1 order by 1 desc limit 1":
        [("update",)],
    "select sum(case when company_id = 'acme' then 1e30 else 0.5 end) from data.units where symbol > ''":
        [(Decimal("5000000000000000000000000000002.5"),)],
    "select case symbol when 'b' then 'NaN' else '1' end::numeric as n, count(*) from data.units where symbol > ''"
    " group by 1 order by 1 desc": [(Decimal("NaN"), 4), (Decimal(1), 6)],
    "select company_id, string_agg(code, ' ' order by code desc) from data.units where id < 3 group by company_id order by 1":
        [("acme", "A2 A1"), ("gamma", "G2 G1")],
    "select distinct on (company_id) company_id, code from data.units order by company_id desc, code desc limit 3":
        [("gamma", "G7"), ("delta", "D8"), ("beta", "B6")],
}  # fmt: skip


@pytest.fixture
def filled(pair: Places) -> Places:
    """Four companies at two places, and all of them together at home in the tables of reference."""
    for number, (company, place) in enumerate(COMPANIES.items()):
        pair.company(place, company)
        at = pair.at(place)
        at.write(
            company,
            "insert into data.units (code, name) select %s || n, 'unit ' || n %% 3 from generate_series(1, %s) n",
            (company[0].upper(), 5 + number),
        )
        at.write(company, "insert into data.categories (code, name) values ('C', 'c')")
        at.write(
            company,
            "insert into data.products (code, name, category_id)"
            " select 'P', 'p', id from data.categories where company_id = bds.current_company()",
        )
    return pair


def test_parts_are_merged(filled: Places) -> None:
    whole = {place: filled.at(place) for place in filled.urls}
    for statement in MERGED:
        names, rows = everywhere.query(filled.urls, statement)
        assert names and rows, statement
    _, units = everywhere.query(filled.urls, MERGED[0])
    every = sorted(row for operator in whole.values() for row in operator.rows("select company_id, code from data.units"))
    assert units == every and len(units) == 26
    assert everywhere.query(filled.urls, MERGED[1])[1] == sorted(every, key=lambda row: row[1], reverse=True)[:3]
    assert everywhere.query(filled.urls, MERGED[2])[1] == [(26,)]
    [(count, first, last, total)] = everywhere.query(filled.urls, MERGED[3])[1]
    assert (count, first) == (20, "A1") and last == 15 and total == sum(range(1, 6)) + sum(range(1, 16))
    assert [row[:2] for row in everywhere.query(filled.urls, MERGED[4])[1]] == [("unit 0", 7), ("unit 1", 10), ("unit 2", 9)]
    assert everywhere.query(filled.urls, MERGED[5])[1] == [("unit 0",), ("unit 1",), ("unit 2",)]
    assert [row[0] for row in everywhere.query(filled.urls, MERGED[6])[1]] == sorted(COMPANIES)
    assert [row[0] for row in everywhere.query(filled.urls, MERGED[8])[1]] == sorted(COMPANIES)
    assert everywhere.query(filled.urls, MERGED[9])[1] == [(0,)]
    assert [row[1] for row in everywhere.query(filled.urls, MERGED[10])[1]] == [1] * 9
    assert everywhere.query(filled.urls, MERGED[11])[1] == [(name,) for name in sorted(COMPANIES)]
    assert everywhere.query(filled.urls, MERGED[12])[1] == [(1,)]
    for statement, why in REFUSED.items():
        with pytest.raises(ServiceError, match=why) as refused:
            everywhere.query(filled.urls, statement)
        assert refused.value.code == "not_supported", statement


def test_nothing_is_counted_twice_while_a_move_copies_rows(filled: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins after home was read, and has copied what it found there when the other place is read."""
    real = everywhere.connect

    def connect(url: str, *role: Any) -> Any:
        if url == filled.urls["west"]:
            interrupt(filled, "copied", company="acme")
        return real(url, *role)

    monkeypatch.setattr(everywhere, "connect", connect)
    with pytest.raises(ServiceError, match="acme is being moved"):
        everywhere.query(filled.urls, "select count(*) from data.units")


def test_groups_are_merged_before_they_are_cut(filled: Places) -> None:
    for place, company, symbols in (("home", "acme", "aaabb"), ("west", "gamma", "bbccc")):
        update = "update data.units set symbol = substr(%s, id::int, 1) where company_id = %s and id <= 5"
        filled.at(place).write(company, update, (symbols, company))
    for statement, expected in GROUPED.items():
        found = everywhere.query(filled.urls, statement)[1]
        assert str(found if "order by" in statement else sorted(found)) == str(expected), statement


def test_an_order_that_an_index_gives_is_merged(filled: Places) -> None:
    """Each place reads rows in an index's order, without a sort."""
    for place in filled.urls:
        for setting in ("sort", "seqscan", "hashagg", "hashjoin"):
            filled.at(place).connection.execute(
                sql.SQL("alter database {} set {} = off").format(
                    sql.Identifier(filled.home.connection.info.dbname), sql.Identifier(f"enable_{setting}")
                )
            )
    for statement, expected in {
        "select company_id, min(id) from data.units group by company_id order by company_id": sorted(COMPANIES),
        "select company_id from data.products order by company_id": sorted(COMPANIES),
        "select company_id from data.products order by company_id limit 3": sorted(COMPANIES)[:3],
        "select p.company_id from data.products p join data.categories c on c.company_id = p.company_id order by 1": sorted(
            COMPANIES
        ),
        "select name, count(*) from data.units group by name order by name desc": ["unit 2", "unit 1", "unit 0"],
    }.items():
        assert [row[0] for row in everywhere.query(filled.urls, statement)[1]] == expected, statement


def test_one_place_answers_as_it_is(filled: Places) -> None:
    urls = {HOME: filled.urls[HOME]}
    for statement in [*MERGED, *REFUSED]:
        expected = filled.home.rows(f"select count(*) from ({statement.partition(' --')[0]}) x")
        assert [(len(everywhere.query(urls, statement)[1]),)] == expected, statement


def test_nothing_is_written(filled: Places) -> None:
    with pytest.raises(Exception, match=r"read-only|cannot be merged"):
        everywhere.query(filled.urls, "delete from data.units")
    for urls in (filled.urls, {HOME: filled.urls[HOME]}):
        for statement in ("select 1; commit; delete from data.units", "select 1 from data.units; commit; delete from data.units"):
            with pytest.raises(psycopg.Error, match="multiple commands"):
                everywhere.query(urls, statement)
    assert filled.home.rows("select count(*) from data.units") == [(11,)]
    filled.home.rows("select bds_operation.note_place('acme', 'home', 'home', 'west', 'copying')")
    with pytest.raises(ServiceError, match="acme is being moved"):
        everywhere.query(filled.urls, MERGED[0])
