"""Statements of the versions of rows that were valid between two versions of the company, which the session has named: as lines."""

from __future__ import annotations

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.database.catalog import Field
from app.export.difference import compiled, former_code, former_references
from app.export.difference_tables import own_field
from app.export.row_formats import LineFormat
from app.export.shape import ExportField, LineShape, line_shape
from app.query.check.query import Query
from app.query.sql.conditions import LiteralCompiler
from app.query.sql.expressions import NOTHING, Compiler
from app.query.sql.parameters import COMPANY, Statement

PERIOD = tuple(own_field(Field.computed(name, "timestamptz", required=False)) for name in ("@validFrom", "@validTo"))


def versions_shape(query: Query) -> LineShape:
    """The columns of lines: the time of a version, and the row's fields.  Raises QueryError as line_shape does."""
    return LineShape((*PERIOD, *line_shape(query).fields))


def lines(query: Query, company: str, format: LineFormat) -> Statement:
    """COPY of the format's columns: each version of each row, in the order of ids and times.

    A reference is the code of its row at the later end, or if that is deleted there, at the earlier one.
    """
    fields, expressions = versions_shape(query).fields, Compiler({}, past=True)
    source = expressions.source(
        query.entity.name,
        [field.column for field in fields],
        table=_versions(query),
        more=Composed(list(former_references(fields, SQL("true")))),
    )
    values = [_value(expressions, field) for field in fields]
    order = SQL('t.id, t."@validFrom" nulls first')
    text = SQL("copy (select {} {} order by {}) to stdout {}").format(format.columns(fields, values), source, order, format.copy)
    return compiled(company, text)


def count(query: Query, company: str) -> Statement:
    """One row: (count int8): the number of lines."""
    return compiled(company, SQL('select count(*) as "count" from {} as t').format(_versions(query)))


def _value(expressions: Compiler, field: ExportField) -> Composable:
    value = expressions.compile(field.column)
    return SQL("coalesce({}, {})").format(value, former_code(field.column.path[0])) if field.column.path else value


def _versions(query: Query) -> Composed:
    condition = SQL(" where {}").format(LiteralCompiler({}).compile(query.filter, loose=True)) if query.filter else NOTHING
    return SQL("(select {} as company_id, v.* from {} as v{})").format(
        COMPANY, Identifier("past", f"{query.entity.name}_versions"), condition
    )
