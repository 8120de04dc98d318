"""`bds query`: a statement over two places gives what one database with all companies would give, or is refused."""

from __future__ import annotations

import pytest

from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import everywhere
from tests.places.conftest import Places

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
    "select entity, operation, count(*) from bds.change_log group by entity, operation order by entity, operation",
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
}


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


def test_nothing_is_written(filled: Places) -> None:
    with pytest.raises(Exception, match=r"read-only|cannot be merged"):
        everywhere.query(filled.urls, "delete from data.units")
    filled.home.rows("select bds_operation.note_place('acme', 'home', 'home', 'west', 'copying')")
    with pytest.raises(ServiceError, match="acme is being moved"):
        everywhere.query(filled.urls, MERGED[0])
