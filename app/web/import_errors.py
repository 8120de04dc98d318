"""The errors of an import: how many of each code, a page of them, all of them as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from aiohttp import web

from app.feed import reports
from app.web.page import PageRequest
from app.wire.streams import STREAMS, stream

BLOCK = 1_000  # errors that are read at a time
COLUMNS = ("path", "record", "code", "message")
BY_CODE = """
    select e.code, count(*)
    from bds.import_errors e
    where e.company_id = %s and e.import_id = %s
    group by e.code
    order by count(*) desc, e.code
"""
BATCHES = """
    select e.path, e.record, e.code, e.message
    from bds.import_errors e
    where e.company_id = %s and e.import_id = %s and e.code = 'batch_failed'
    order by e.n
"""
COUNT_BATCHES = """
    select e.import_id::text, count(*)
    from bds.import_errors e
    where e.company_id = %s and e.import_id = any (%s) and e.code = 'batch_failed'
    group by e.import_id
"""
# A spreadsheet would run a text that begins with one of these characters as a formula.
ERRORS = """
    select e.n, e.path, e.record, e.code, e.message,
        array(select case when v ~ '^[-=+@\t\r]' then '''' || v else v end from unnest(array[e.path, e.record, e.code, e.message]) with ordinality u (v, n) order by n)
    from bds.import_errors e
    where e.company_id = %s and e.import_id = %s and e.n > %s and (e.code = %s or %s = '') and (%s or e.code <> 'batch_failed')
    order by e.n
    limit %s offset %s
"""  # noqa: E501


async def count_by_code(page: PageRequest, id: str) -> list[tuple[str, int]]:
    """The number of errors of each code, of those that are kept, the most frequent first; and of failed batches."""
    async with page.database.session(page.company) as connection:
        return await (await connection.execute(BY_CODE, (page.company, id))).fetchall()


async def count_batches(page: PageRequest, reports: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The number of failed batches of imports, by import."""
    ids = [each["importId"] for each in reports if each["errorCount"] and each["atomic"] == "batch"]
    if not ids:
        return {}
    async with page.database.session(page.company) as connection:
        return dict(await (await connection.execute(COUNT_BATCHES, (page.company, ids))).fetchall())


async def read_errors(page: PageRequest, id: str, code: str, limit: int, offset: int) -> list[dict[str, Any]]:
    """Errors in the order of the document, without failed batches; code: only these, "" for all."""
    rows = await _read(page, id, code, 0, limit, offset, with_batches=False)
    return [dict(zip(COLUMNS, row[1:5], strict=True)) for row in rows]


async def read_batches(page: PageRequest, id: str) -> list[dict[str, Any]]:
    """The failed batches, which are few: each has up to 10,000 records."""
    async with page.database.session(page.company) as connection:
        rows = await (await connection.execute(BATCHES, (page.company, id))).fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


async def download(page: PageRequest) -> web.StreamResponse:
    """All errors that are kept, or those of a code, as CSV."""
    id = (await reports.show(page.database, page.company, page.path_variables["id"]))["importId"]
    headers = {
        "Content-Type": "text/csv; charset=utf-8; header=present",
        "Content-Disposition": f'attachment; filename="errors-{id}.csv"',
        "Cache-Control": "no-store",
    }
    return await stream(page.request, _lines(page, id, page.query.get("code", "")), headers, page.request.app[STREAMS])


async def _lines(page: PageRequest, id: str, code: str) -> AsyncGenerator[bytes, None]:
    """Blocks of lines.  No connection is held while the client takes them."""
    last: int | None = 0
    yield ("\ufeff" + ",".join(COLUMNS) + "\r\n").encode()
    while last is not None:
        rows = await _read(page, id, code, last, BLOCK, 0)
        text = io.StringIO(newline="")
        csv.writer(text).writerows(row[5] for row in rows)
        yield text.getvalue().encode()
        last = rows[-1][0] if len(rows) == BLOCK else None


async def _read(
    page: PageRequest, id: str, code: str, after: int, limit: int, offset: int, *, with_batches: bool = True
) -> list[tuple[Any, ...]]:
    async with page.database.session(page.company) as connection:
        cursor = await connection.execute(ERRORS, (page.company, id, after, code, code, with_batches, limit, offset))
        return await cursor.fetchall()
