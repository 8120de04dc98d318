"""Statements of what differs between two versions, which the session has named: as lines, and as records of an import document.

Lines by id have each row that differs.  A document brings a copy from the one end to the other: its records name rows as a copy
does (difference_tables.py), and a row whose children differ comes with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.database.catalog import Entity, Field, Navigation
from app.export.difference_tables import (
    ID,
    LOOKUP,
    OPERATION_COLUMN,
    WHOLE,
    Tables,
    inside,
    lookup_in,
    own_field,
    table_of,
    table_of_heirs,
    was,
)
from app.export.row_formats import Head, LineFormat, RecordFormat
from app.export.shape import ExportField, LineShape, RecordShape, line_shape, record_shape
from app.export.statements import ExportSelect, named_code
from app.query.check.query import Query
from app.query.sql.difference import differs
from app.query.sql.expressions import NOTHING, Compiler
from app.query.sql.parameters import COMPANY, TOP, Statement, render
from app.query.sql.rows import ODATA
from app.query.sql.select import Select

_IS_DELETED = SQL("t.{} = 'delete'").format(OPERATION_COLUMN)
_OPERATION = own_field(Field.computed("@operation", "text"))


def difference_shape(query: Query, *, by_id: bool) -> LineShape:
    """The columns of lines: the operation, then by_id all fields, else the row's lookup as of the earlier end and the others."""
    fields, id = line_shape(query).fields, own_field(query.entity.fields["id"])
    if not by_id:
        lookup = Field.computed("@lookup", "text" if query.entity.identifying_field else "int8", required=False)
        id = replace(own_field(lookup), name="id")
    return LineShape((_OPERATION, id, *(field for field in fields if not field.is_id)))


def entities_of(query: Query, *, nested: bool) -> list[str]:
    """The names of the entities whose rows that differ are read."""
    return [query.entity.name, *(each.name for each in inside(query.catalog, query.entity) if nested)]


def is_used(query: Query) -> bool:
    """Whether rows of entities that are not in a document of this one refer to its rows."""
    own = entities_of(query, nested=True)
    return any(
        step.target in own
        for entity in query.catalog.entities.values()
        if entity.name not in own
        for step in entity.navigations.values()
        if not step.many
    )


def lines(query: Query, company: str, format: LineFormat, *, by_id: bool, moved: tuple[str, ...] = ()) -> Statement:
    """COPY of the format's columns: the rows that differ, each as of the later end, a deleted one as of the earlier end."""
    fields, select = difference_shape(query, by_id=by_id).fields, _select(query)
    values = [_line_value(select, field) for field in fields]
    columns = [field.column for field in fields]
    source = select.select.expressions.source(
        query.entity.name, columns, table=SQL("x"), more=Composed(list(former_references(fields, _IS_DELETED)))
    )
    text = SQL("select {} {}").format(format.columns(fields, values), source)
    return _copy(company, _lines(query, company, by_id, moved), text, format.copy)


def count(query: Query, company: str, *, by_id: bool, moved: tuple[str, ...] = ()) -> Statement:
    """One row: (count int8): the number of lines."""
    tables = SQL(", ").join(_lines(query, company, by_id, moved))
    return compiled(company, SQL('with {} select count(*) as "count" from x').format(tables))


def records(query: Query, company: str, format: RecordFormat, *, moved: tuple[str, ...] = ()) -> Statement:
    """COPY of one text column: the records of a document."""
    shape, select = record_shape(query).without_ids(), _select(query)
    text, joins = select.whole_record(_HeadedRecords(format, shape), shape)
    columns = [field.column for field in shape.fields]
    source = select.select.expressions.source(query.entity.name, columns, table=SQL("x"), more=joins)
    tables = Tables(query, company, nested=True, moved=moved).document()
    return _copy(company, tables, SQL("select {} as row {}").format(text, source), format.copy)


def passed(query: Query, company: str, *, nested: bool) -> Statement:
    """One row: (values text[], moved text[]): unique values that a document cannot follow, and the entities with moved rows."""
    return compiled(company, Tables(query, company, nested=nested).passed())


def _lines(query: Query, company: str, by_id: bool, moved: tuple[str, ...]) -> list[Composed]:
    return Tables(query, company).rows() if by_id else Tables(query, company, moved=moved).document()


def _line_value(select: ExportSelect, field: ExportField) -> Composable:
    """A value of a line; a reference of a deleted row is the code as of the earlier end."""
    value = select.select.expressions.compile(field.column)
    if not field.column.path:
        return value
    code = SQL("coalesce({}, {})").format(former_code(field.column.path[0]), value)
    if field.own is None:
        return code
    own = SQL("case when not {} then {} end").format(_IS_DELETED, select.select.expressions.compile(field.own))
    return named_code(field, code, own)


def former_references(fields: Sequence[ExportField], condition: Composable) -> Iterator[Composed]:
    """Joins of the codes that rows which differ had at the earlier end, to rows t that refer to them and fulfil a condition."""
    for field in fields:
        for step in field.column.path:
            yield SQL(
                " left join (select e.{id} as id, e.{code} as code from {ends} as e where e.company_id = {company}"
                " and e.{operation} <> 'create' and {differs}) as {this} on {condition} and {this}.id = t.{reference}"
            ).format(
                id=ID,
                code=Identifier(f"@{field.column.field.ordinal}"),
                ends=Identifier("past", f"{step.target}_ends"),
                differs=differs("e"),
                company=COMPANY,
                operation=OPERATION_COLUMN,
                condition=condition,
                this=Identifier(f"@{step.name}"),
                reference=Identifier(step.field),
            )


def former_code(step: Navigation) -> Identifier:
    """The code that former_references has joined."""
    return Identifier(f"@{step.name}", "code")


def _select(query: Query) -> _DifferenceSelect:
    return _DifferenceSelect(Select(replace(query, filter=None), ODATA, Compiler({}, past=True), TOP))


def _copy(company: str, tables: Sequence[Composed], text: Composed, options: SQL) -> Statement:
    order = SQL(" order by t.id, t.{}").format(OPERATION_COLUMN)
    return compiled(company, SQL("copy (with {} {}{}) to stdout {}").format(SQL(", ").join(tables), text, order, options))


def compiled(company: str, text: Composed) -> Statement:
    """The statement of a text that is compiled anew for each export, because it has the values of the filter."""
    rendered = render(text)
    return Statement(rendered, (company,) if rendered.numbers else (), prepare=False)


@dataclass(frozen=True, slots=True)
class _DifferenceSelect(ExportSelect):
    """Joins to children the unique values that they had, if a copy knows them by these."""

    def child_joins(self, shape: RecordShape) -> Composable:
        key = shape.entity.identifying_field
        if key is None:
            return NOTHING
        return SQL(
            " left join (select d.{id} as id, {name} as name from {d} as d"
            " where d.{operation} = 'update' and d.{was} is distinct from d.{key}"
            " and not exists (select from {heirs} as a where a.heir = d.{id})"
            " and not exists (select from {heirs} as b where b.row = d.{id})"
            ") as {this} on {this}.id = {child}.id"
        ).format(
            id=ID,
            was=was(key),
            name=lookup_in(key, SQL("d.{}").format(was(key)), SQL("d.{}").format(ID)),
            d=table_of(shape.entity),
            heirs=table_of_heirs(shape.entity),
            operation=OPERATION_COLUMN,
            key=Identifier(key.name),
            this=_names(shape),
            child=self.alias(shape.row),
        )


@dataclass(frozen=True, slots=True)
class _HeadedRecords:
    """A format of records: those at the top have an operation and a name, children a name if it has changed."""

    format: RecordFormat
    top: RecordShape

    @property
    def copy(self) -> SQL:
        return self.format.copy

    @property
    def has_lookups(self) -> bool:
        return self.format.has_lookups

    def record(
        self,
        shape: RecordShape,
        columns: Sequence[Composable],
        children: Sequence[tuple[Navigation, Composable]],
        head: Head | None = None,
    ) -> Composable:
        name = _name(shape.entity)
        if shape is self.top:
            t = SQL("t.{}")
            head = Head((name, t.format(LOOKUP)), t.format(OPERATION_COLUMN), t.format(WHOLE))
        elif name.lookup:
            head = Head((name, SQL("{}.name").format(_names(shape))))
        return self.format.record(shape, columns, children, head)


def _name(entity: Entity) -> ExportField:
    """The field by which rows are named, as the id of a record: the text of a lookup, or the number."""
    key, id = entity.identifying_field, own_field(entity.fields["id"])
    return id if key is None else replace(own_field(key), name="id", lookup=key.name, own=id.column)


def _names(shape: RecordShape) -> Identifier:
    """The alias of the names that children had."""
    return Identifier(f"n{shape.row}")
