"""A PDF to print: pages with numbers, the header on each, all of Unicode.

It is laid out whole, in a process of its own, and so for some thousand rows only.  The database has given all of them before.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime

from app.errors import ServiceError
from app.export import statements
from app.export.forms import Display
from app.export.process import piped
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import Lines, plan_lines
from app.export.to_html import described, is_number

ROWS = 10_000
BYTES = 32 << 20  # of all texts


async def write(asked: Asked, reader: Reader, now: datetime) -> AsyncGenerator[bytes, None]:
    """The pages.  now: the time that they say they were made at.  Raises ServiceError if there are too many rows."""
    rows = await read(asked, reader, now)
    async with aclosing(lay_out(rows)) as blocks:
        async for block in blocks:
            yield block


async def check(asked: Asked, reader: Reader, plan: Lines) -> None:
    """Raises ServiceError if there are too many rows."""
    (count,) = await reader.one(statements.count(asked.query, asked.company, plan.inner))
    if count > ROWS:
        message = (
            f"a PDF has {ROWS:,} rows at most, and these are {count:,}: choose fewer by $filter or $top, or take another format"
        )
        raise ServiceError("malformed_request", message, target="format", rows=count, limit=ROWS)


async def read(asked: Asked, reader: Reader, now: datetime) -> list[bytes]:
    """What the table is of, then its rows, each a JSON text on a line: all that is needed of the database."""
    plan = plan_lines(asked.query)
    await check(asked, reader, plan)
    columns = [{"name": member.name, "number": is_number(member)} for member in plan.members]
    blocks = [json.dumps({"title": asked.entity.name, "about": described(asked, now), "columns": columns}).encode() + b"\n"]
    size = 0
    async for block in reader.lines(asked, Display(), plan):
        size += len(block)
        if size > BYTES:
            raise ServiceError(
                "malformed_request", f"a PDF has {BYTES >> 20} MB of text at most: take another format", target="format"
            )
        blocks.append(block)
    return blocks


async def lay_out(rows: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    """The pages of what was read."""

    async def feed() -> AsyncGenerator[bytes, None]:
        for block in rows:
            yield block

    async with aclosing(piped("app.export.layout", feed())) as blocks:
        async for block in blocks:
            yield block
