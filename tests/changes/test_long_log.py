"""Pages of a log of many months are planned for the months that they can be in."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import psycopg

from tests.conftest import NO_MONTHS, Operator
from tests.database.aging import age
from tests.service.serving import running

LOCKED = """
    select right(c.relname, 7) from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = %s and c.relname ~ '^change_log_[0-9]{4}_[0-9]{2}$'
"""


@NO_MONTHS
def test_a_page_by_id_reads_the_months_from_that_id_on(database_url: str, operator: Operator, monkeypatch: Any) -> None:
    operator.company("demo")
    for code in range(9):
        operator.write("demo", "insert into data.units (code, name) values (%s, 'x')", (str(code),))
    for id, month in enumerate(("2020_01", "2020_02", "2022_01", "2022_03"), 1):
        age(operator, month, f"id = {id}")
    key = operator.key("demo")
    every = sorted(name for (name,) in operator.rows("select right(name, 7) from bds_change_log.partitions()"))
    THIS, LAST = every[4], every[-1]
    planned: list[set[str]] = []
    execute = psycopg.AsyncRawCursor.execute

    async def watched(cursor: Any, *arguments: Any, **options: Any) -> Any:
        """Run a statement in a transaction of its own, and note which months it has locked."""
        async with cursor.connection.transaction():
            result = await execute(cursor, *arguments, **options)
            planned.append({name for (name,) in operator.rows(LOCKED, (cursor.connection.info.backend_pid,))})
        return result

    monkeypatch.setattr(psycopg.AsyncRawCursor, "execute", watched)
    with running(database_url, company=None) as service:
        for query, ids, oldest, newest in (
            ("id > 0", range(1, 10), "2020_01", LAST),
            ("id > 1", range(2, 10), "2020_02", LAST),
            ("id >= 3 and entity = 'units'", range(3, 10), "2022_01", LAST),
            ("id = 4", [4], "2022_03", LAST),
            ("id > 4", range(5, 10), THIS, LAST),
            ("id > 8 and id < 20", [9], THIS, LAST),
            ("id > 99999999999999999999", [], THIS, LAST),
            ("id > -1 or id > 7", range(1, 10), "2020_01", LAST),
            ("entity = 'units'", range(1, 10), "2020_01", LAST),
            # a page of so many ids in a row ends in a month, too
            ("id > 0&limit=2", [1, 2], "2020_01", "2022_01"),
            ("id > 1 and id <> 3&limit=2", [2, 4], "2020_02", LAST),
            ("id in (1, 4)&limit=1", [1], "2020_01", LAST),
            ("id > 1&limit=2&sort=-id", [9, 8], THIS, LAST),
            # so does one of the newest changes
            ("&limit=2&sort=-id", [9, 8], THIS, LAST),
            ("id < 5&limit=2&sort=-id", [4, 3], "2020_02", "2022_03"),
            ("id <= 4 and id > 3&sort=-id", [4], "2022_03", "2022_03"),
            ("id < 3&limit=1&sort=-id", [2], "2020_01", "2020_02"),
            ("id < 999&limit=7&sort=-id", range(9, 2, -1), "2020_02", LAST),
            ("entity = 'units'&limit=1&sort=-id", [9], "2020_01", LAST),
            ("id > 1&limit=1&sort=id", [2], "2020_02", "2022_01"),
            ("id > 1&limit=2&sort=rowId", [2, 3], "2020_02", LAST),
        ):
            planned.clear()
            reply = service.ask(f"/c/demo/changes?filter={quote(query, safe='&=')}", X_API_Key=key, authorization=None)
            assert reply.status == 200, (query, reply.body)
            assert [each["id"] for each in reply.json["data"]] == list(ids), query
            assert reply.json["hasMore"] == ("limit" in query), query
            [months] = planned
            expected = [name for name in every if oldest <= name <= newest]
            assert sorted(months) == expected, query


@NO_MONTHS
def test_a_page_without_a_lower_bound_begins_after_a_gap_in_the_log(database_url: str, operator: Operator) -> None:
    operator.company("demo")
    for code in range(9):
        operator.write("demo", "insert into data.units (code, name) values (%s, 'x')", (str(code),))
    for month, ids in (("2020_01", (1, 2, 3)), ("2020_02", (4, 5))):
        age(operator, month, f"id in {ids}")
    operator.connection.execute("alter table bds.change_log detach partition bds.change_log_2020_02")
    key = operator.key("demo")
    with running(database_url, company=None) as service:
        for query, ids in (
            ("", [6, 7, 8, 9]),
            ("limit=2", [6, 7]),
            ("sort=-id", [9, 8, 7, 6]),
            ("filter=id < 8", [6, 7]),
            ("filter=operation = 'create' or id = 2", [6, 7, 8, 9]),
            ("filter=operation = 'create'", [6, 7, 8, 9]),
            ("filter=not id > 7", [6, 7]),
            ("filter=not (id in (2, 7) or id > 8)", [6, 8]),
            ("filter=not (id < 6 and operation = 'create')", [6, 7, 8, 9]),
            ("filter=not (id <= 6 or id > 8 and not id = 9)", [7, 8, 9]),
        ):
            reply = service.ask(f"/c/demo/changes?{quote(query, safe='=&')}", key=key)
            assert [each["id"] for each in reply.json["data"]] == ids, query
        for filter in (
            *("id > 0", "not id < 3", "not id <= 4", "not id != 5", "not not id > 2", "id not between 1 and 2 and not id < 3"),
            *("not (id < 3 or operation = 'delete')", "not (id < 3 or id > 8)", "not id < 3 and operation in ('create', 'update')"),
        ):
            reply = service.ask(f"/c/demo/changes?filter={quote(filter)}", key=key)
            assert (reply.status, reply.json.get("firstId")) == (410, 6), filter
