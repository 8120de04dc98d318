"""A company moves between places: rows, log, clock, hooks and ids go on."""

from __future__ import annotations

import psycopg
import pytest

from app.database.servers.directory import HOME
from tests.database.aging import age
from tests.places.conftest import COMPANY, Places

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_company_moves_with_its_rows_and_log_and_back(pair: Places) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, "insert into data.units (code, name) select 'U' || n, 'unit ' || n from generate_series(1, 300) n")
    pair.home.write(COMPANY, f"update data.units set name = 'changed' where company_id = '{COMPANY}' and code = 'U7'")
    pair.home.rows("select bds.put_mapper('demo', 'first', 'csv', 'x')")
    seal = "select problem from bds.maintain(seal_age => '0') where step = 'seal records'"
    assert pair.home.rows(seal) == [(None,)]
    pair.home.rows("select bds.erase('demo', 'units', min(id), '{name}') from data.units where code = 'U7'")
    verified = "select kind, first_id, last_id from bds.verify_log('demo')"
    assert pair.home.rows(verified) == [("erased", 1, 301)]
    query = "select id, code, name, updated_at from data.units where company_id = 'demo' order by id"
    rows = pair.home.rows(query)
    steps: list[str] = []
    pair.move("west", say=steps.append)
    assert pair.directory() == ("west", None)
    assert pair.writable() == ["west"]
    assert pair.west.rows(query) == rows
    assert pair.home.rows(query) == []
    pair.west.write(COMPANY, "insert into data.units (code, name) values ('NEW', 'new')")
    pair.west.rows("select bds.put_mapper('demo', 'second', 'csv', 'x')")
    assert pair.west.rows(seal) == [(None,)] and pair.home.rows("select from bds.seals where company_id = 'demo'") == []
    assert pair.west.rows(verified) == [("erased", 1, 301)] and pair.west.rows("select version from bds.log_head('demo')") == [
        (302,)
    ]
    audit = "select id, object from bds.audit where company_id = 'demo' order by id"
    audited = pair.west.rows(audit)
    assert [(id, thing.split("/")[0]) for id, thing in audited] == [(1, "mapper first"), (2, "row units"), (3, "mapper second")]
    assert pair.home.rows(audit) == []
    ids = pair.west.rows("select id, created_at from bds.change_log where company_id = 'demo' order by id")
    assert [id for id, _ in ids] == list(range(1, 303))
    pair.move(HOME)
    assert pair.directory() == (HOME, None)
    assert pair.writable() == [HOME]
    assert len(pair.home.rows(query)) == 301
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('LAST', 'last')")
    assert pair.home.rows("select max(id), count(*) from bds.change_log where company_id = 'demo'") == [(303, 303)]
    assert pair.home.rows(verified) == [("erased", 1, 301), ("unsealed", 303, 303)]
    assert pair.home.rows("select generation from bds.generations where company_id = 'demo'") == [(1,)], "nothing is lost by a move"
    assert pair.west.rows("select from bds.companies") == []
    assert pair.home.rows(audit) == audited and pair.west.rows(audit) == []
    moves = pair.home.rows("select detail -> 'new' ->> 'place' from bds.audit where action = 'move' order by id")
    assert [place for (place,) in moves] == ["home", "west", None, None, "home", None]


def test_what_is_erased_while_a_company_is_copied_is_erased_at_the_target(pair: Places) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('A', 'secret')")
    pair.home.write(COMPANY, "update data.units set name = 'public'")

    def say(step: str) -> None:
        if step == "copied":
            pair.home.rows("select bds.erase('demo', 'units', min(id), '{name}') from data.units")

    pair.move("west", say=say)
    assert pair.west.rows("select old from bds.change_log order by id") == [(None,), ({"name": None},)]


def test_months_that_a_company_keeps_do_not_expire_at_the_target(pair: Places) -> None:
    """The target's own retention is shorter, and its maintenance runs while the company is copied."""
    pair.company(HOME)
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('A', 'a')")
    age(pair.home, "2019_01")
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('B', 'b')")
    pair.home.connection.execute("select bds.set_retention('infinity', %s)", (COMPANY,))
    pair.west.connection.execute("select bds.set_retention('1 year')")

    def say(step: str) -> None:
        if step in ("published", "copied", "departed"):
            assert [problem for (problem,) in pair.west.rows("select problem from bds.maintain()") if problem] == []
        if step == "copied":
            pair.home.connection.execute("select bds.set_retention('900 years', %s)", (COMPANY,))
        if step == "departed":  # neither at the one nor at the other place
            for place in (pair.home, pair.west):
                with pytest.raises(psycopg.Error) as refused:
                    place.connection.execute("select bds.set_retention('1 year', %s)", (COMPANY,))
                assert refused.value.sqlstate == "BD002"

    pair.move("west", say=say)
    pair.west.rows("select * from bds.maintain()")
    assert pair.west.rows("select id from bds.change_log order by id") == [(1,), (2,)]
    assert pair.west.rows("select bds.first_change(%s)", (COMPANY,)) == [(1,)]
    assert pair.west.rows("select log_retention = interval '900 years' from bds.companies where id = %s", (COMPANY,)) == [(True,)]
