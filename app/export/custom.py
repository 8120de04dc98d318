"""Exports that a mapper writes: a template, rendered in a sandbox, or in reverse an import mapping, in the source's format."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg.sql import Composable

from app.child import CpuLimitExceeded
from app.errors import ServiceError
from app.export import statements
from app.export.process import pipe_through
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.shape import ExportField, RecordShape, template_shape
from app.export.to_json import JsonRecords
from app.mapper import store
from app.mapper.language import tree
from app.mapper.reverse.base import ReverseWriter

MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE)
PDF = "application/pdf"  # made of the HTML that a template of this type renders
ESCAPED = ("html", "xml", PDF)  # endings of media types in which values are escaped

_decode = msgspec.json.Decoder(float_hook=str).decode  # numbers with a point as text, which keeps their digits


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What rendering one template may use."""

    seconds: int = 60  # of CPU time
    memory: int = 512 << 20  # bytes of address space
    output: int = 1 << 30  # bytes


@dataclass(frozen=True, slots=True)
class ExportTemplate:
    """A Jinja2 template, in which `rows`, `entity`, `company` and `now` are defined."""

    media_type: str
    text: str
    limits: TemplateLimits = TemplateLimits()

    def __post_init__(self) -> None:
        if not MEDIA_TYPE.fullmatch(self.media_type):
            message = f"expected a media type such as text/plain, got {self.media_type!r}"
            raise ServiceError("malformed_request", message, target="mapper")

    @property
    def is_pdf(self) -> bool:
        return self.media_type.lower() == PDF


ExportMapper = ExportTemplate | ReverseWriter


async def find_mapper(connection: AsyncConnection[Any], export: ExportRequest, name: str) -> ExportMapper:
    """Return the company's mapper of a name: a template, or a writer for records of the exported entity.  Raises ServiceError."""
    mapper = await store.find(connection, export.query.catalog, export.company, name)
    if isinstance(mapper, tree.TemplateMapper):
        return ExportTemplate(mapper.media_type.partition(";")[0].strip(), mapper.source)
    from app.mapper.reverse.open import open_writer  # imported late, as few exports need it

    return open_writer(mapper, export.entity.name, is_whole=export.reads_all_rows)


# In reverse -----------------------------------------------------------------------------------------------------------------------


class MappedRecords(JsonRecords):
    """Objects of an import document with every value: one that no import accepts is an error of the writer."""

    importable = False


async def reverse(export: ExportRequest, reader: Reader, writer: ReverseWriter) -> AsyncGenerator[bytes, None]:
    """Yield the rows as the mapper's own source format.  Raises ServiceError for a record that cannot be written so."""
    try:
        yield writer.begin()
        async with aclosing(reader.rows(statements.records(export.query, export.company, MappedRecords()))) as blocks:
            async for block in blocks:
                yield await asyncio.to_thread(_write_block, writer, block)
        yield await asyncio.to_thread(writer.end)
    finally:
        writer.close()


def _write_block(writer: ReverseWriter, block: bytes) -> bytes:
    return writer.write(_decode(line[1:]) for line in block.splitlines())  # without the comma before each


# Templates ------------------------------------------------------------------------------------------------------------------------


class TemplateRecords(JsonRecords):
    """Objects with every value; references are the codes that they point to."""

    has_lookups = False
    importable = False

    def value(self, field: ExportField, column: Composable) -> Composable:
        return super().value(replace(field, lookup=None, own=None), column)


async def render(export: ExportRequest, reader: Reader, template: ExportTemplate) -> AsyncGenerator[bytes, None]:
    """Yield what the template makes of the rows.  Raises ServiceError for an error in the template."""
    try:
        async for block in pipe_through("app.export.sandbox", _sandbox_input(export, reader, template)):
            yield block
    except CpuLimitExceeded:
        message = f"the template exceeded its limit of {template.limits.seconds} s of CPU time"
        raise ServiceError("malformed_request", message, target="mapper") from None


async def _sandbox_input(export: ExportRequest, reader: Reader, template: ExportTemplate) -> AsyncGenerator[bytes, None]:
    """Yield lines of JSON, as app.export.sandbox reads them: a description of the work, then the rows."""
    description = {
        "template": template.text,
        "escape": template.media_type.lower().endswith(ESCAPED),
        "pdf": template.is_pdf,
        "types": field_types(template_shape(export.query)),
        "entity": export.entity.name,
        "company": export.company,
        "now": export.now.isoformat(),
        "seconds": template.limits.seconds,
        "memory": template.limits.memory,
        "output": template.limits.output,
    }
    yield json.dumps(description).encode() + b"\n"
    async for block in reader.rows(statements.template_rows(export.query, export.company, TemplateRecords())):
        yield block[1:].replace(b"\n,", b"\n")  # without the comma before each; a value holds no line end


def field_types(shape: RecordShape) -> dict[str, Any]:
    """Return the types of a record's fields by name; for each child collection, those of its fields."""
    children = {child.step.name: field_types(child.record) for child in shape.children}
    return {field.name: field.type for field in shape.fields} | children
