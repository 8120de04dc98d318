"""An import document: what is imported from it again changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.export.read import Reader
from app.export.request import Asked
from app.language import export
from app.language.forms import Json
from app.language.plan import plan_record, plan_related
from app.language.sql import Statement


async def write(asked: Asked, reader: Reader) -> AsyncGenerator[bytes, None]:
    """The collection, each record on a line, and those that were expanded and are no children."""
    query, company, form = asked.query, asked.company, Json()
    statements = {asked.entity.name: export.records(query, company, form, plan_record(query))}
    for beside in plan_related(query):
        # a name that comes again continues its collection
        name = beside.record.entity.name
        statements[name if name not in statements else f"{name} again"] = export.related(query, company, form, beside)
    for number, (name, statement) in enumerate(statements.items()):
        async for block in _collection(reader, ("," if number else "{") + f'"{name.partition(" ")[0]}":[', statement):
            yield block
    yield b"}\n"


async def _collection(reader: Reader, start: str, statement: Statement) -> AsyncGenerator[bytes, None]:
    """An array after its beginning; each record comes with the comma before it."""
    first = True
    async for block in reader.rows(statement):
        yield start.encode() + b"\n" + block[1:] if first else block
        first = False
    yield start.encode() + b"]" if first else b"]"
