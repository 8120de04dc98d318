"""CSV as RFC 4180 has it, in UTF-8 with the byte order mark by which Excel knows it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.export.forms import Csv
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import plan_lines


async def write(asked: Asked, reader: Reader) -> AsyncGenerator[bytes, None]:
    """A header, then the lines."""
    plan = plan_lines(asked.query)
    start = "\ufeff" + ",".join(member.name for member in plan.members) + "\n"
    async for block in reader.lines(asked, Csv(), plan):
        yield start.encode() + block if start else block
        start = ""
    if start:
        yield start.encode()
