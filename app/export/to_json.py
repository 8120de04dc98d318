"""An import document: what is imported from it again changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.export import statements
from app.export.forms import Json
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import plan_record, plan_related
from app.query.sql_parameters import Statement


async def write(asked: Asked, reader: Reader) -> AsyncGenerator[bytes, None]:
    """The collection, each record on a line, and those that were expanded and are no children."""
    query, company, form = asked.query, asked.company, Json()
    queries = {asked.entity.name: statements.records(query, company, form, plan_record(query))}
    for beside in plan_related(query):
        # a name that comes again continues its collection
        name = beside.record.entity.name
        queries[name if name not in queries else f"{name} again"] = statements.related(query, company, form, beside)
    for number, (name, statement) in enumerate(queries.items()):
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
