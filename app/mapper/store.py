"""Stored mappers: load, list, replace and delete them by name, and preview what they make of a source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from app.database.catalog import Catalog
from app.database.connections import connect
from app.database.database import Database
from app.database.listing import listing
from app.errors import ServiceError
from app.formats import CSV, EXCEL, XML
from app.mapper.document import Preview
from app.mapper.language.problems import mapper_error
from app.mapper.language.tree import Mapper, TemplateMapper
from app.mapper.sources.open import LARGEST

CONTENT_TYPES = {
    "xml": XML.read_as,
    "json": ("application/json", "text/json"),
    "csv": (*CSV.read_as, "text/tab-separated-values", "application/vnd.ms-excel"),
    "excel": EXCEL.read_as,
}
# what clients send by default; accepted for each format
UNTYPED = ("application/octet-stream", "text/plain", "application/x-www-form-urlencoded")
DEFAULT_LIMIT, LARGEST_LIMIT = 10, 1_000  # records of a preview

TEXT = "select text from bds.mappers where company_id = %s and name = %s"


@dataclass(frozen=True, slots=True)
class StoredMapper:
    """A mapper as it is stored."""

    name: str
    text: str


def read(text: str, catalog: Catalog) -> Mapper | TemplateMapper:
    """Parse and check the text of a mapper.  Raises ServiceError(invalid_mapper)."""
    from app.mapper.language import parse  # imported late: it loads packages for XML, JSON and templates, and compiles a grammar

    return parse.read(text, catalog)


async def find(connection: AsyncConnection[Any], catalog: Catalog, company: str, name: str) -> Mapper | TemplateMapper:
    """Load and check a mapper of the company set on the connection.  Raises not_found, invalid_mapper."""
    return read((await _find(connection, company, name)).text, catalog)


async def load_source(database: Database, company: str, name: str) -> Mapper:
    """Load a mapper that reads a source.  Raises not_found; invalid_mapper, for a template too."""
    async with database.session(company) as connection:
        return _require_source(await find(connection, database.catalog, company, name), name)


def load_for_command(url: str, catalog: Catalog, company: str, name: str) -> Mapper:
    """`load_source` on a connection of its own, for a command.  Raises psycopg.Error too."""
    with connect(url, "bds_reader") as connection:
        connection.execute("select set_config('bds.company', %s, false)", (company,))
        row = connection.execute(TEXT, (company, name)).fetchone()
    if row is None:
        raise missing(name)
    return _require_source(read(row[0], catalog), name)


def _require_source(mapper: Mapper | TemplateMapper, name: str) -> Mapper:
    if isinstance(mapper, TemplateMapper):
        raise ServiceError("invalid_mapper", f"the mapper {name} is a template and cannot read a source", target="mapper")
    return mapper


async def show(database: Database, company: str, name: str) -> StoredMapper:
    """Return a mapper with its text.  Raises not_found."""
    async with database.session(company) as connection:
        return await _find(connection, company, name)


async def _find(connection: AsyncConnection[Any], company: str, name: str) -> StoredMapper:
    row = await (await connection.execute(TEXT, (company, name))).fetchone()
    if row is None:
        raise missing(name)
    return StoredMapper(name, row[0])


async def listed(database: Database, company: str, limit: int, offset: int) -> dict[str, Any]:
    """A page of the company's mappers, newest first."""
    async with database.session(company) as connection:
        return await listing(
            connection,
            "select json_object('name': name, 'type': format,"
            " 'createdAt': bds_service.api_time(created_at), 'updatedAt': bds_service.api_time(updated_at))"
            " from bds.mappers where company_id = %s order by updated_at desc, name limit %s offset %s",
            (company,),
            limit,
            offset,
        )


async def put(database: Database, company: str, name: str, body: bytes, actor: str) -> bool:
    """Check and store a mapper; return whether it is new.  Raises invalid_mapper, malformed_request."""
    format, text = checked(database.catalog, body)
    created: bool = await _change(
        database, company, "select bds.put_mapper(%s, %s, %s, %s, %s)", (company, name, format, text, actor)
    )
    return created


def checked(catalog: Catalog, body: bytes) -> tuple[str, str]:
    """The format of a mapper, and its text.  Raises invalid_mapper."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        column = error.start - body.rfind(b"\n", 0, error.start)
        message = f"line {line}, column {column}: expected UTF-8"
        raise ServiceError("invalid_mapper", message, line=line, column=column) from None
    if "\0" in text:
        raise mapper_error(text, text.index("\0") + 1, "the character U+0000 is not allowed")
    mapper = read(text, catalog)
    return "template" if isinstance(mapper, TemplateMapper) else mapper.format, text


async def delete(database: Database, company: str, name: str) -> None:
    """Delete a mapper.  Raises not_found."""
    if not await _change(database, company, "select bds.delete_mapper(%s, %s)", (company, name)):
        raise missing(name)


async def _change(database: Database, company: str, statement: Any, arguments: tuple[Any, ...]) -> Any:
    async with database.registration(company) as connection:
        row = await (await connection.execute(statement, arguments)).fetchone()
    assert row is not None
    return row[0]


async def preview(
    mapper: Mapper, bodies: AsyncIterator[bytes], limit: str, charset: str | None, in_thread: Any, largest: int = LARGEST
) -> bytes:
    """Return the first records of a source as an import document.

    largest: bytes that are read.  Raises malformed_request, or the error of the source.
    """
    if not (limit.isascii() and limit.isdigit() and len(limit) < 9 and 1 <= int(limit) <= LARGEST_LIMIT):
        message = f"limit: expected a whole number from 1 to {LARGEST_LIMIT}, got {limit!r}"
        raise ServiceError("malformed_request", message, target="limit")
    document = Preview(mapper, int(limit), charset, largest)
    try:
        async for data in bodies:
            if not await in_thread(document.feed, data):
                break
        result: bytes = await in_thread(document.finish)
        return result
    finally:
        document.close()


def require_type(mapper: Mapper, content_type: str) -> None:
    """Raises unsupported_media_type if the content type names a format that the mapper does not read."""
    expected = CONTENT_TYPES[mapper.format]
    if content_type not in (*expected, *UNTYPED) and not content_type.endswith("+" + mapper.format):
        raise ServiceError("unsupported_media_type", f"expected {expected[0]}, which this mapper reads, got {content_type}")


def missing(name: str) -> ServiceError:
    """The error not_found about a mapper."""
    return ServiceError("not_found", f"no such mapper: {name}", target="mapper")
