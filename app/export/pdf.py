"""A PDF to print: pages with numbers, the header on each, all of Unicode.

It is laid out whole, in a process of its own, and so for some thousand rows only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import datetime

from app.errors import ServiceError
from app.export.html import described, is_number
from app.export.process import piped
from app.export.read import Reader
from app.export.request import Asked
from app.language import export
from app.language.forms import Display
from app.language.plan import Lines, plan_lines

ROWS = 10_000
BYTES = 32 << 20  # of all texts


async def write(asked: Asked, reader: Reader, now: datetime) -> AsyncGenerator[bytes, None]:
    """The pages.  now: the time that they say they were made at.  Raises ServiceError if there are too many rows."""
    plan = plan_lines(asked.query)
    (count,) = await reader.one(export.count(asked.query, asked.company, plan.inner))
    if count > ROWS:
        message = (
            f"a PDF has {ROWS:,} rows at most, and these are {count:,}: choose fewer by $filter or $top, or take another format"
        )
        raise ServiceError("malformed_request", message, target="format", rows=count, limit=ROWS)
    async for block in piped("app.export.layout", _feed(asked, reader, plan, now)):
        yield block


async def _feed(asked: Asked, reader: Reader, plan: Lines, now: datetime) -> AsyncGenerator[bytes, None]:
    """What the table is of, then its rows, each a JSON text on a line."""
    columns = [{"name": member.name, "number": is_number(member)} for member in plan.members]
    yield json.dumps({"title": asked.entity.name, "about": described(asked, now), "columns": columns}).encode() + b"\n"
    size = 0
    async for block in reader.lines(asked, Display(), plan):
        size += len(block)
        if size > BYTES:
            raise ServiceError(
                "malformed_request", f"a PDF has {BYTES >> 20} MB of text at most: take another format", target="format"
            )
        yield block
