"""What is told of imports: reports, lists, errors; and the cancel, which waits for the report to tell the end."""

from __future__ import annotations

import asyncio
from typing import Any

from app.database.database import Database
from app.database.listing import listing
from app.errors import ServiceError
from app.feed.background import at_the_end
from app.feed.run import cancel_import
from app.types import exact_json
from app.wire.urls import read_id, read_page

CANCEL_TIMEOUT = 5  # seconds that a cancel waits for the import to end
CANCEL_POLL = 0.1  # seconds between two looks whether it has ended


async def show(database: Database, company: str, import_id: str, actor: str | None = None) -> dict[str, Any]:
    """The report of one import.  actor: another actor's import is not found.  Raises not_found."""
    async with database.session(company) as connection:
        cursor = await connection.execute("select bds.import_report(%s, %s)", (company, read_id(import_id, "import")))
        row = await cursor.fetchone()
    assert row is not None
    report: dict[str, Any] = row[0]
    if actor is not None and report["actor"] != actor:
        raise ServiceError("not_found", f"company {company} has no import {report['importId']}")
    return report


async def cancel(database: Database, company: str, import_id: str) -> None:
    """Cancel an import, and wait up to CANCEL_TIMEOUT seconds for its end.  Raises not_found, conflict if it has ended."""
    number = read_id(import_id, "import")
    await at_the_end(cancel_import, database.place(company).url, company, number)
    for _ in range(round(CANCEL_TIMEOUT / CANCEL_POLL)):
        if (await show(database, company, number))["finishedAt"]:
            return
        await asyncio.sleep(CANCEL_POLL)


async def imports(database: Database, company: str, options: list[tuple[str, str]], actor: str | None = None) -> dict[str, Any]:
    """A page of imports, newest first, without their errors.  actor: only its imports."""
    limit, offset = read_page(options)
    async with database.session(company) as connection:
        return await listing(
            connection,
            "select bds.import_report(i.company_id, i.id, false) from bds.imports i where i.company_id = %s"
            " and (%s::text is null or i.actor = %s) order by i.number desc limit %s offset %s",
            (company, actor, actor),
            limit,
            offset,
        )


async def errors(
    database: Database, company: str, import_id: str, options: list[tuple[str, str]], actor: str | None = None
) -> dict[str, Any]:
    """A page of an import's errors, in the document's order.  actor: another actor's import is not found.  Raises not_found."""
    limit, offset = read_page(options)
    id = (await show(database, company, import_id, actor))["importId"]
    async with database.session(company) as connection:
        return await listing(
            connection,
            "select json_object('path': path, 'record': record, 'code': code, 'message': message) from bds.import_errors"
            " where company_id = %s and import_id = %s and n > %s order by n limit %s",
            (company, id, offset),
            limit,
        )


def dump(report: dict[str, Any]) -> bytes:
    """A report as JSON."""
    return exact_json.dumps(report, ensure_ascii=False).encode()
