"""The file that an export makes: its media type, and the module or mapper that writes it."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from psycopg import AsyncConnection

from app import extras
from app.errors import ServiceError
from app.export import custom
from app.export.custom import ExportMapper, ExportTemplate
from app.export.read import Reader
from app.export.request import ExportRequest
from app.formats import CUSTOM, FORMATS, PDF

Writer = Callable[[ExportRequest, Reader], AsyncGenerator[bytes, None]]


@dataclass(frozen=True, slots=True)
class Output:
    """The file of one export.  mapper: the template or reverse writer, if a mapper writes it."""

    media_type: str
    extension: str
    is_binary: bool = False
    mapper: ExportMapper | None = None


async def find_output(connection: AsyncConnection[Any], export: ExportRequest) -> Output:
    """Return the file that the export makes, by its mapper if it names one.

    Raises ServiceError if the two do not go together, or if what writes the format is not installed.
    """
    if export.mapper is None:
        extras.require(export.format.extra, "format")
        return Output(export.format.media_type, export.format.extension, export.format.is_binary)
    mapper = await custom.find_mapper(connection, export, export.mapper)
    if not isinstance(mapper, ExportTemplate):
        if export.format.name not in (CUSTOM.name, mapper.extension):
            message = f"{export.mapper} writes {mapper.extension}: expected format={mapper.extension}, got {export.format.name}"
            raise ServiceError("malformed_request", message, target="format")
        return Output(mapper.media_type, mapper.extension, mapper=mapper)
    if export.format is not CUSTOM:
        message = f"{export.mapper} is a template: expected format=custom, got {export.format.name}"
        raise ServiceError("malformed_request", message, target="format")
    if mapper.is_pdf:
        extras.require(PDF.extra, "mapper")
    return Output(_with_charset(mapper.media_type), extension_of(mapper.media_type), mapper=mapper)


def extension_of(media_type: str) -> str:
    """Return the extension of a file of a media type: a format's own if it has that media type."""
    media_type = media_type.lower()
    known = {each.media_type.partition(";")[0]: each.extension for each in FORMATS.values() if each is not CUSTOM}
    guessed = mimetypes.guess_extension(media_type.replace("text/xml", "application/xml"), strict=False) or ""
    of_syntax = media_type.rpartition("+")[2] if media_type.endswith(("+xml", "+json")) else "txt"
    return known.get(media_type.replace("text/xml", "application/xml")) or guessed.removeprefix(".") or of_syntax


def _with_charset(media_type: str) -> str:
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


def write(export: ExportRequest, reader: Reader, output: Output) -> AsyncGenerator[bytes, None]:
    """Return the export as a file, in blocks."""
    if isinstance(output.mapper, ExportTemplate):
        return custom.render(export, reader, output.mapper)
    if output.mapper is not None:
        return custom.reverse(export, reader, output.mapper)
    # imported late: some need large packages
    writer: Writer = import_module(f"app.export.to_{export.format.name}").write
    return writer(export, reader)
