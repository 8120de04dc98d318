"""What an export holds, and the statements that read it: the rows of a query, or what differs between two versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from app.errors import ServiceError
from app.export import difference, statements, versions
from app.export.request import ExportRequest
from app.export.row_formats import LineFormat, RecordFormat
from app.export.shape import LineShape, RecordShape, line_shape, record_shape, related_shapes
from app.query.sql.parameters import Statement


class Reader(Protocol):
    """Reads the one row of a statement."""

    async def one(self, statement: Statement) -> tuple[Any, ...]: ...


def columns(export: ExportRequest) -> LineShape:
    """Return the columns of a flat format."""
    if export.versions:
        return versions.versions_shape(export.query)
    return difference.difference_shape(export.query, by_id=export.goes_by_id) if export.since else line_shape(export.query)


def lines(export: ExportRequest, format: LineFormat) -> Statement:
    """COPY of the format's columns: the lines of a flat format."""
    if export.versions:
        return versions.lines(export.query, export.company, format)
    if export.since:
        return difference.lines(export.query, export.company, format, by_id=export.goes_by_id, moved=export.moved)
    return statements.lines(export.query, export.company, format)


def count(export: ExportRequest) -> Statement:
    """One row: (count int8): the number of lines of a flat format, of records at the top of the others."""
    if export.versions:
        return versions.count(export.query, export.company)
    if export.since:
        return difference.count(export.query, export.company, by_id=export.goes_by_id, moved=export.moved)
    inner = line_shape(export.query).collection if export.format.is_flat else None
    return statements.count(export.query, export.company, inner)


def records(export: ExportRequest) -> list[RecordShape]:
    """Return the records of a document's collections."""
    if export.since:
        return [record_shape(each).without_ids() for each in export.queries]
    return [record_shape(export.query), *(each.record for each in related_shapes(export.query))]


def collections(export: ExportRequest, format: RecordFormat) -> list[tuple[str, Statement]]:
    """The collections of a document, each by its name: COPY of one text column, its records.  A name may come twice."""
    query, company = export.query, export.company
    if export.since:
        return [(each.entity.name, difference.records(each, company, format, moved=export.moved)) for each in export.queries]
    related = [(each.record.entity.name, statements.related(query, company, format, each)) for each in related_shapes(query)]
    return [(query.entity.name, statements.records(query, company, format)), *related]


def entities(export: ExportRequest) -> list[str]:
    """The entities whose rows a difference reads: in a document with those of the child collections."""
    nested = not export.format.is_flat
    return list(dict.fromkeys(name for each in export.queries for name in difference.entities_of(each, nested=nested)))


async def followed(export: ExportRequest, reader: Reader) -> ExportRequest:
    """Return the export of a difference with the entities in which unique values have passed.

    Raises unwritable if a document cannot bring a copy from the one end to the other.
    """
    if export.goes_by_id or export.versions:
        return export
    moved: list[str] = []
    for query in export.queries:
        statement = difference.passed(query, export.company, nested=not export.format.is_flat)
        values, found = await reader.one(statement)
        if found and not values and not export.others and difference.is_used(query):
            values = [f"of {', '.join(found)}, to which other entities refer: export the difference of all entities"]
        if values:
            message = f"unique values passed between rows, which no import follows: {'; '.join(values)}"
            raise ServiceError("unwritable", message, target="since")
        moved += found
    return replace(export, moved=tuple(moved))
