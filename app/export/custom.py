"""Any format at all: a template that somebody wrote, rendered where it can do no harm.

A mapper is a Template (rendered forwards) or a Reversed mapping (rows in the shape of the import document become bytes of the
source's format).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from psycopg import AsyncConnection

from app.errors import ServiceError
from app.export import statements
from app.export.forms import Json, Values
from app.export.process import piped
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import Record, plan_record, plan_values
from app.mapper import store
from app.mapper.language import tree
from app.mapper.reverse.base import Writer
from app.mapper.reverse.open import open_writer

MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE)
ESCAPED = ("html", "xml")  # media types that end so have their texts escaped

_decode = msgspec.json.Decoder(float_hook=str).decode


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one template may take."""

    seconds: int = 60  # of a processor
    memory: int = 512 << 20  # bytes of address space
    output: int = 1 << 30  # bytes


@dataclass(frozen=True, slots=True)
class Template:
    """A Jinja2 template with the names rows, entity, company and now."""

    media_type: str
    text: str
    bounds: Bounds = Bounds()

    def __post_init__(self) -> None:
        if not MEDIA_TYPE.fullmatch(self.media_type):
            raise ServiceError("malformed_request", f"{self.media_type!r} is no media type", target="mapper")


@dataclass(frozen=True, slots=True)
class Reversed:
    """An import mapping in reverse: `writer` writes records in the source's format."""

    media_type: str
    extension: str
    writer: Writer


async def find_mapper(connection: AsyncConnection[Any], asked: Asked, name: str) -> Template | Reversed:
    """The company's mapper of a name, for rows of the entity that is asked for.  Raises ServiceError."""
    mapper = await store.find(connection, asked.query.catalog, asked.company, name)
    if isinstance(mapper, tree.Template):
        return Template(mapper.media_type.partition(";")[0].strip(), mapper.source)
    writer = open_writer(mapper, asked.entity.name)
    return Reversed(writer.media_type, writer.extension, writer)


async def render(asked: Asked, reader: Reader, template: Template, now: datetime) -> AsyncGenerator[bytes, None]:
    """What the template makes of the rows.  Raises ServiceError about the template."""
    async for block in piped("app.export.sandbox", _feed(asked, reader, template, now)):
        yield block


async def _feed(asked: Asked, reader: Reader, template: Template, now: datetime) -> AsyncGenerator[bytes, None]:
    record = plan_values(asked.query)
    described = {
        "template": template.text,
        "escape": template.media_type.lower().endswith(ESCAPED),
        "types": types(record),
        "entity": asked.entity.name,
        "company": asked.company,
        "now": now.isoformat(),
        "seconds": template.bounds.seconds,
        "memory": template.bounds.memory,
        "output": template.bounds.output,
    }
    yield json.dumps(described).encode() + b"\n"
    async for block in reader.rows(statements.values(asked.query, asked.company, Values(), record)):
        yield block[1:].replace(b"\n,", b"\n")  # without the commas; a line end is the row's own


def types(record: Record) -> dict[str, Any]:
    """The types of a record's members, and those of the rows inside it, by name."""
    inside = {child.step.name: types(child.record) for child in record.children}
    return {member.name: member.type for member in record.members} | inside


async def reverse(asked: Asked, reader: Reader, mapping: Reversed) -> AsyncGenerator[bytes, None]:
    """Yield the rows in the mapping's source format."""
    record = plan_record(asked.query)
    yield mapping.writer.begin()
    async with aclosing(reader.rows(statements.records(asked.query, asked.company, Json(), record))) as blocks:
        async for block in blocks:
            yield await asyncio.to_thread(_write_block, mapping.writer, block)
    yield mapping.writer.end()


def _write_block(writer: Writer, block: bytes) -> bytes:
    return writer.write(_decode(line[1:]) for line in block.splitlines())  # without the comma before each
