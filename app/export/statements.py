"""SQL statements of an export: rows as text in a row format, in the query's order, one statement for each collection.

A statement finds references and children by joins and subqueries of its own, so no row needs a statement for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Navigation
from app.export.row_formats import LineFormat, RecordFormat, text_of
from app.export.shape import (
    NESTED,
    ChildShape,
    ExportField,
    LineShape,
    RecordShape,
    RelatedShape,
    line_shape,
    record_shape,
    template_shape,
)
from app.query.check.query import Query
from app.query.check.tree import Expression
from app.query.sql.expressions import NOTHING
from app.query.sql.parameters import COMPANY, SKIP, TOP, Statement
from app.query.sql.past import Joined
from app.query.sql.rows import ODATA, view
from app.query.sql.select import Select
from app.query.sql.statements import statement

Format = RecordFormat | LineFormat


def records(query: Query, company: str, format: RecordFormat) -> Statement:
    """COPY of one text column: the query's rows as import records."""
    return _copy(query, company, format, "records", lambda select: select.records(format, record_shape(query)))


def template_rows(query: Query, company: str, format: RecordFormat) -> Statement:
    """COPY of one text column: the query's rows in the shape that templates get."""
    return _copy(query, company, format, "template", lambda select: select.records(format, template_shape(query)))


def related(query: Query, company: str, format: RecordFormat, shape: RelatedShape) -> Statement:
    """COPY of one text column: the records that the query's rows refer to, without those that are among these rows."""
    kind = ("related", shape.record.entity.name)
    return _copy(query, company, format, kind, lambda select: select.related(format, shape))


def lines(query: Query, company: str, format: LineFormat) -> Statement:
    """COPY of the format's columns: the query's rows as lines."""
    return _copy(query, company, format, "lines", lambda select: select.lines(format, line_shape(query)))


def count(query: Query, company: str, collection: Navigation | None = None) -> Statement:
    """One row: (count int8): the number of rows in the query's page, or of lines if a collection's rows are the lines."""
    kind = ("count", collection and collection.name)
    return statement(query, company, ODATA, kind, lambda select: ExportSelect(select).count(collection))


def _copy(query: Query, company: str, format: Format, kind: Hashable, compile: Callable[[ExportSelect], Composed]) -> Statement:
    def text(select: Select) -> Composed:
        return SQL("copy ({}) to stdout {}").format(compile(ExportSelect(select)), format.copy)

    return statement(query, company, ODATA, (type(format).__name__, kind), text)


@dataclass(frozen=True, slots=True)
class ExportSelect:
    """One statement under construction."""

    select: Select

    def records(self, format: RecordFormat, shape: RecordShape) -> Composed:
        text, joins = self.whole_record(format, shape)
        source = self.select.matching([*self.sort_keys, *_columns(shape.fields)], more=joins)
        return SQL("select {} as row {}{}").format(text, source, self.order_and_page())

    def related(self, format: RecordFormat, shape: RelatedShape) -> Composed:
        record = shape.record
        this = self.alias(record.row)
        paths = [
            SQL("{}.{} in ({})").format(this, Identifier(step.field), self.of_rows(SQL("id")))
            if step.many
            else SQL("{}.id in ({})").format(this, self.of_rows(Identifier(step.field)))
            for step in shape.steps
        ]
        condition = SQL("({})").format(SQL(" or ").join(paths))
        if record.entity.name == self.select.query.entity.name:
            condition += SQL(" and {}.id not in ({})").format(this, self.of_rows(SQL("id")))
        text, joins = self.whole_record(format, record)
        source = self.select.expressions.source(record.entity.name, _columns(record.fields), record.row, more=joins)
        return SQL("select {} as row {} and {} order by {}.id").format(text, source, condition, this)

    def lines(self, format: LineFormat, shape: LineShape) -> Composed:
        columns = [self.value(field, has_lookups=False) for field in shape.fields]
        source = self.lines_source(shape.collection, _columns(shape.fields))
        return SQL("select {} {}").format(format.columns(shape.fields, columns), source)

    def count(self, collection: Navigation | None) -> Composed:
        return SQL('select count(*) as "count" from (select {}) as l').format(self.lines_source(collection, ()))

    def lines_source(self, collection: Navigation | None, columns: Sequence[Expression]) -> Composed:
        """FROM and what follows: the query's rows, left-joined to a collection if there is one, with the joins of the columns."""
        if collection is None:
            return self.select.matching([*self.sort_keys, *columns]) + self.order_and_page()
        query, expressions = self.select.query, self.select.expressions
        filter = () if query.filter is None else (query.filter,)
        source = SQL(
            "from {} as {}{} left join {view} as {this} on {this}.company_id = {company} and {this}.{key} = {outer}.id{}"
            " where {outer}.company_id = {company}"
        ).format(
            view(query.entity.name, past=query.catalog.is_past),
            self.alias(0),
            expressions.joins([*filter, *self.sort_keys, *columns]),
            expressions.joins(columns, NESTED),
            view=view(collection.target, past=query.catalog.is_past),
            this=self.alias(NESTED),
            outer=self.alias(0),
            key=Identifier(collection.field),
            company=COMPANY,
        )
        if query.top is not None or query.skip:  # a page counts rows, not lines
            source += SQL(" and {}.id in ({})").format(self.alias(0), self.of_rows(SQL("id")))
        elif query.filter is not None:
            source += SQL(" and {}").format(expressions.compile(query.filter, loose=True))
        return source + SQL(" order by {}, {}.id").format(self.select.order(self.select.keys()), self.alias(NESTED))

    @property
    def sort_keys(self) -> list[Expression]:
        order = self.select.keys()
        return [each.key for each in order]

    def of_rows(self, column: Composable) -> Composed:
        """Return a subquery: one column of the query's rows."""
        query = self.select.query
        is_page = query.top is not None or query.skip > 0
        source = self.select.matching(self.sort_keys if is_page else ())
        page = self.order_and_page() if is_page else SQL("")
        return SQL("select {}.{} {}{}").format(self.alias(0), column, source, page)

    def order_and_page(self) -> Composed:
        """ORDER BY, LIMIT and OFFSET of the query's rows."""
        query, text = self.select.query, SQL(" order by {}").format(self.select.order(self.select.keys()))
        if query.top is not None:
            text += SQL(" limit {}").format(TOP)
        return text + SQL(" offset {}").format(SKIP) if query.skip else text

    def whole_record(self, format: RecordFormat, shape: RecordShape) -> tuple[Composable, Composed]:
        """Return the text of a record with its children inside, and joins that it needs."""
        joined = Joined(self.select.expressions.alias((), shape.row), shape.entity.name) if self.select.expressions.past else None
        text = self.record(format, shape, joined)
        return text, Composed(joined.joins if joined else [])

    def record(self, format: RecordFormat, shape: RecordShape, joined: Joined | None) -> Composable:
        """Return the text of a record with its children inside; past ones are joined."""
        columns = [self.value(field, has_lookups=format.has_lookups) for field in shape.fields]
        children = [(child.step, self.child_records(format, shape, child, joined)) for child in shape.children]
        return format.record(shape, columns, children)

    def value(self, field: ExportField, *, has_lookups: bool) -> Composable:
        """Return the value of a field; a reference has its row's code.

        A row of the past may have no code.  A reference to it is then the text of a lookup, id:5, if the format has lookups;
        otherwise the statement raises an error.
        """
        code = self.select.expressions.compile(field.column)
        if field.own is None:
            return code
        own = self.select.expressions.compile(field.own)
        if not has_lookups:
            return named_code(field, code, own)
        return SQL("coalesce({} || {}, 'id:' || {})").format(Literal(f"{field.lookup}:"), text_of(field, code), own)

    def child_records(self, format: RecordFormat, parent: RecordShape, child: ChildShape, joined: Joined | None) -> Composed:
        """Return the records of a child collection, concatenated in the order of their ids: a subquery, or the column of a join."""
        shape, this = child.record, self.alias(child.record.row)

        def source(table: Composable | None, joins: Composable) -> Composed:
            more = SQL("{}{}").format(joins, self.child_joins(shape))
            return self.select.expressions.source(shape.entity.name, _columns(shape.fields), shape.row, table, more)

        def records(inside: Joined | None) -> Composed:
            return SQL("string_agg({}, '' order by {}.id)").format(self.record(format, shape, inside), this)

        if joined is not None:
            [text] = joined.add(child.step, self.select.expressions.alias((), shape.row), source, lambda inside: [records(inside)])
            return text
        key, id = Identifier(child.step.field), self.alias(parent.row)
        return SQL("(select {} {} and {}.{} = {}.id)").format(records(None), source(None, NOTHING), this, key, id)

    def child_joins(self, shape: RecordShape) -> Composable:
        """Joins to the rows of a child collection of what their records need beside their fields."""
        return NOTHING

    def alias(self, row: int) -> Identifier:
        return Identifier(self.select.expressions.alias((), row))


def named_code(field: ExportField, code: Composable, own: Composable) -> Composed:
    """Return the code of a reference's row.  A row without one is an error: no other column could tell which row it is."""
    return SQL(
        "case when {code} is null and {own} is not null then bds_service.refuse_nameless({code}, {entity}, {own}) else {code} end"
    ).format(code=code, own=own, entity=Literal(field.column.path[-1].target))


def _columns(fields: Iterable[ExportField]) -> list[Expression]:
    return [field.column for field in fields]
