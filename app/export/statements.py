"""Statements of an export: rows of text in one of the forms, in the query's order, one statement for each collection.

References and children are found by joins and subqueries of the same statement, never row by row from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.database.catalog import Navigation
from app.export.forms import LineForm, RecordForm, element
from app.export.shape import NESTED, Child, Lines, Member, Record, Related
from app.query.query import Query
from app.query.sql_parameters import COMPANY, SKIP, TOP, Statement
from app.query.sql_rows import ODATA, view
from app.query.sql_select import Select, statement
from app.query.tree import Expression


def records(query: Query, company: str, form: RecordForm, record: Record) -> Statement:
    """COPY of one text column: the records of the query's rows."""
    return _copy(query, company, form, "records", lambda export: export.records(form, record))


def values(query: Query, company: str, form: RecordForm, record: Record) -> Statement:
    """The same of what `plan_values` gives."""
    return _copy(query, company, form, "values", lambda export: export.records(form, record))


def related(query: Query, company: str, form: RecordForm, beside: Related) -> Statement:
    """COPY of one text column: the records to which the query's rows lead, without those that are among the rows."""
    return _copy(query, company, form, ("related", beside.record.entity.name), lambda export: export.related(form, beside))


def lines(query: Query, company: str, form: LineForm, plan: Lines) -> Statement:
    """COPY of the form's columns: the lines of the query's rows."""
    return _copy(query, company, form, "lines", lambda export: export.lines(form, plan))


def count(query: Query, company: str, inner: Navigation | None = None) -> Statement:
    """One row: (count int8): how many rows there are in the page, or lines where a collection has a line for each of its rows."""
    kind = ("count", inner and inner.name)
    return statement(query, company, ODATA, kind, lambda select: Export(select).count(inner))


def _copy(
    query: Query, company: str, form: RecordForm | LineForm, kind: Hashable, compile: Callable[[Export], Composed]
) -> Statement:
    def text(select: Select) -> Composed:
        return SQL("copy ({}) to stdout {}").format(compile(Export(select)), form.copy)

    return statement(query, company, ODATA, (type(form).__name__, kind), text)


@dataclass(frozen=True, slots=True)
class Export:
    """One statement under construction."""

    select: Select

    def records(self, form: RecordForm, record: Record) -> Composed:
        source = self.select.matching([*self.sorted, *_columns(record.members)])
        text = self.text(form, element(record.entity, None), record)
        return SQL("select {} as row {}{}").format(text, source, self.page())

    def related(self, form: RecordForm, beside: Related) -> Composed:
        expressions, record = self.select.expressions, beside.record
        this = self.alias(record.row)
        ways = [
            SQL("{}.{} in ({})").format(this, Identifier(step.field), self.rows(SQL("id")))
            if step.many
            else SQL("{}.id in ({})").format(this, self.rows(Identifier(step.field)))
            for step in beside.steps
        ]
        condition = SQL("({})").format(SQL(" or ").join(ways))
        if record.entity.name == self.select.query.entity.name:
            condition += SQL(" and {}.id not in ({})").format(this, self.rows(SQL("id")))
        source = expressions.source(record.entity.name, _columns(record.members), record.row)
        text = self.text(form, element(record.entity, None), record)
        return SQL("select {} as row {} and {} order by {}.id").format(text, source, condition, this)

    def lines(self, form: LineForm, plan: Lines) -> Composed:
        columns = [self.select.expressions.compile(column) for column in _columns(plan.members)]
        source = self.flat(plan.inner, _columns(plan.members))
        return SQL("select {} {}").format(form.columns(plan.members, columns), source)

    def count(self, inner: Navigation | None) -> Composed:
        return SQL('select count(*) as "count" from (select {}) as l').format(self.flat(inner, ()))

    def flat(self, inner: Navigation | None, columns: Sequence[Expression]) -> Composed:
        """From the query's rows, or from those of an inner collection and those without any, with what the columns need."""
        if inner is None:
            return self.select.matching([*self.sorted, *columns]) + self.page()
        query, expressions = self.select.query, self.select.expressions
        filter = () if query.filter is None else (query.filter,)
        source = SQL(
            "from {} as {}{} left join {view} as {this} on {this}.company_id = {company} and {this}.{key} = {outer}.id{}"
            " where {outer}.company_id = {company}"
        ).format(
            view(query.entity.name),
            self.alias(0),
            expressions.joins([*filter, *self.sorted, *columns]),
            expressions.joins(columns, NESTED),
            view=view(inner.target),
            this=self.alias(NESTED),
            outer=self.alias(0),
            key=Identifier(inner.field),
            company=COMPANY,
        )
        if query.top is not None or query.skip:
            source += SQL(" and {}.id in ({})").format(self.alias(0), self.rows(SQL("id")))
        elif query.filter is not None:
            source += SQL(" and {}").format(expressions.compile(query.filter, loose=True))
        return source + SQL(" order by {}, {}.id").format(self.select.order(self.select.keys()), self.alias(NESTED))

    @property
    def sorted(self) -> list[Expression]:
        """By what the rows are sorted."""
        order = self.select.keys()
        return [each.key for each in order]

    def rows(self, column: Composable) -> Composed:
        """A column of the query's rows."""
        query = self.select.query
        paged = query.top is not None or query.skip > 0
        source = self.select.matching(self.sorted if paged else ())
        return SQL("select {}.{} {}{}").format(self.alias(0), column, source, self.page() if paged else SQL(""))

    def page(self) -> Composed:
        """The order and the page of the query's rows."""
        query, text = self.select.query, SQL(" order by {}").format(self.select.order(self.select.keys()))
        if query.top is not None:
            text += SQL(" limit {}").format(TOP)
        return text + SQL(" offset {}").format(SKIP) if query.skip else text

    def text(self, form: RecordForm, name: str, record: Record) -> Composable:
        """The text of a record with its children inside."""
        columns = [self.select.expressions.compile(column) for column in _columns(record.members)]
        children = [(child.step, self.inside(form, record, child)) for child in record.children]
        return form.record(name, record, columns, children)

    def inside(self, form: RecordForm, parent: Record, child: Child) -> Composed:
        """The records of a child collection, one after the other."""
        record, this = child.record, self.alias(child.record.row)
        source = self.select.expressions.source(record.entity.name, _columns(record.members), record.row)
        return SQL("(select string_agg({}, '' order by {this}.id) {} and {this}.{} = {}.id)").format(
            self.text(form, element(record.entity, child.step), record),
            source,
            Identifier(child.step.field),
            self.alias(parent.row),
            this=this,
        )

    def alias(self, row: int) -> Identifier:
        return Identifier(self.select.expressions.alias((), row))


def _columns(members: Iterable[Member]) -> list[Expression]:
    return [member.column for member in members]
