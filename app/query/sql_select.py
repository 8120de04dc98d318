"""Compiles a query to a statement.

Every view in a statement is restricted to the company, in addition to the view's own restriction.  Parameters are texts, cast where
they stand, so that all queries of one shape have one text: compiled once, and prepared once in each session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Navigation
from app.query.cache import Cache
from app.query.check_apply import Groups
from app.query.query import Expansion, Query
from app.query.sql_expressions import BY_CODE_POINT, GROUP, Compiler
from app.query.sql_groups import GroupWriter
from app.query.sql_parameters import (
    COMPANY,
    LIMIT,
    PAGE,
    SKIP,
    TOP,
    Name,
    Rendered,
    Statement,
    Value,
    alias,
    page_parameter,
    render,
)
from app.query.sql_rows import ODATA, Style, Writer, past_rows_of, past_views
from app.query.tree import Constant, Expression, Membership, Order

# Up to this number of rows the LIMIT of a page is a literal.  For a parameter PostgreSQL assumes a tenth of the table, and plans
# anew for each execution.
FEW = 200

MANY = 100  # expressions of a query from which its text is not cached


def rows(query: Query, company: str, style: Style = ODATA) -> Statement:
    """Rows of one text column: each a JSON object, in the query's order."""
    return statement(query, company, style, "rows", lambda select: select.rows())


def page(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position int8), all from one snapshot.

    body: the JSON objects joined by commas, null if there are none.
    count: the number of rows without the page; null unless the query asks for it.
    position: of the entities that the query reads.
    """
    return statement(query, company, style, "page", lambda select: select.page())


def paged(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position int8, keys text), for a query with `page`.

    keys: the sort keys of the last row as a JSON array of texts; null if no rows follow.
    """
    return statement(query, company, style, "paged", lambda select: select.paged())


def listing(query: Query, company: str, style: Style, *, ties: bool) -> Statement:
    """One row: (body text, more boolean, position int8), for a query with `top`.

    more: whether rows follow after the page.
    ties: the page is extended by the rows whose first sort key equals that of its last row, so that a reader who continues after
    this value misses no row.
    """
    return statement(query, company, style, "complete" if ties else "cut", lambda select: select.listing(ties))


def count(query: Query, company: str) -> Statement:
    """One row: (count int8, position int8).  count: the number of rows without the page."""
    return statement(query, company, ODATA, "count", lambda select: select.total())


def position(query: Query, company: str) -> Statement:
    """One row: (position int8).  It rises with every change of data that the query reads; null if the query's origin is missing."""
    return statement(query, company, ODATA, "position", lambda select: SQL('select ({}) as "position"').format(select.position()))


_texts: Cache[Rendered] = Cache(1_000)


def statement(query: Query, company: str, style: Style, kind: Hashable, compile: Callable[[Select], Composed]) -> Statement:
    """The statement of a query.  Its text is compiled once for all queries of one shape, in one style and of one kind."""
    literal_top = query.top if kind == "page" and query.top is not None and query.top <= FEW else None
    constants = query.constants

    def text() -> Rendered:
        compiler = Compiler({constant.serial: index for index, constant in enumerate(constants)}, query.catalog.is_past)
        top = TOP if literal_top is None else SQL(str(literal_top))
        kind = GroupSelect if query.groups is not None else PastSelect if query.catalog.is_past else Select
        return render(compile(kind(query, style, compiler, top)))

    shape = (kind, query.shape, replace(style, base="" if style.base else None), len(constants), literal_top)
    rendered = text() if len(query.parts) > MANY else _texts.get(shape, text)
    values: dict[Name, Value] = {"company": company, "base": style.base or ""}
    for path, each in [((), query), *((path, expansion.query) for path, expansion in query.expansions)]:
        values |= {page_parameter("top", path).name: str(each.top), page_parameter("skip", path).name: str(each.skip)}
    if query.page is not None:
        values |= {"page": str(query.page), "limit": str(query.page + 1 if query.top is None else min(query.page + 1, query.top))}
    values |= enumerate(map(_value, constants))
    if query.groups is not None:
        values |= ((alias(number).name, each.alias) for number, each in enumerate(query.groups.aggregates))
    key = None if query.key is None else [constant.serial for constant in constants].index(query.key.serial)
    keys = tuple(place for place, name in enumerate(rendered.names) if name == key)
    return Statement(rendered, tuple(values[name] for name in rendered.names), keys, not query.catalog.is_past)


def _value(constant: Constant | Membership) -> Value:
    return list(constant.values) if isinstance(constant, Membership) else str(constant.value)


@dataclass(slots=True)
class Select:
    """Composes the statements of a query.

    top: the limit of the page; path: the navigations of the expansions inside of which it stands.
    """

    query: Query
    style: Style
    expressions: Compiler
    top: Composable
    path: tuple[str, ...] = ()

    # Statements

    def rows(self) -> Composed:
        """The rows of the page as JSON, in order."""
        query = self.query
        limit = None if query.top is None else self.top
        return self.ordered({"row": self.json}, limit, page_parameter("skip", self.path) if query.skip else None)

    def ordered(
        self, columns: Mapping[str, Callable[[], Composed]], limit: Composable | None = None, skip: Composable | None = None
    ) -> Composed:
        """The columns of the rows of a page, in order."""
        parts = [SQL("select {} {}").format(_named(columns), self.following())]
        if keys := () if self.query.single else self.keys():
            parts.append(SQL("order by {}").format(self.order(keys)))
        parts += _bounds(limit, skip)
        return SQL(" ").join(parts)

    def following(self) -> Composed:
        """The source of the rows of a page, which may begin after a row of the one before."""
        source = self.source(self.query.order)
        if self.query.after is None:
            return source
        return SQL("{} and {}").format(source, self.expressions.compile(self.query.after, loose=True))

    def page(self) -> Composed:
        """The joined rows, the count if the query asks for it, and the position."""
        total = self.count() if self.query.count else SQL("null::int8")
        body = self.rows() if self.query.single else SQL("select string_agg(r.row, ',') from ({}) as r").format(self.rows())
        return SQL('select ({}) as body, ({}) as "count", ({}) as "position"').format(body, total, self.position())

    def paged(self) -> Composed:
        """The joined rows of a page that the service cuts, the count, the position, and the sort keys of its last row."""

        def keys() -> Composed:
            texts = [SQL("{}::text").format(self.expressions.compile(key.key)) for key in self.keys()]
            return SQL("json_build_array({})::text").format(SQL(", ").join(texts))

        rows = self.ordered({"row": self.json, "keys": keys}, LIMIT, SKIP if self.query.skip else None)
        return SQL(
            'select l.body, ({total}) as "count", ({position}) as "position", l.keys from'
            " (select string_agg(n.row, ',') filter (where n.number <= {page}) as body,"
            " case when count(*) > {page} then max(n.keys) filter (where n.number = {page}) end as keys"
            " from (select r.row, r.keys, row_number() over () as number from ({rows}) as r) as n) as l"
        ).format(total=self.count() if self.query.count else SQL("null::int8"), position=self.position(), page=PAGE, rows=rows)

    def total(self) -> Composed:
        return SQL('select ({}) as "count", ({}) as "position"').format(self.count(), self.position())

    def listing(self, ties: bool) -> Composed:
        listed = self.complete() if ties else self.cut()
        return SQL('select l.body, l.more, ({}) as "position" from ({}) as l').format(self.position(), listed)

    def cut(self) -> Composed:
        """A page of exactly `top` rows; a further row is read to tell whether more follow."""
        return SQL(
            "select string_agg(n.row, ',') filter (where n.number <= {top}) as body, count(*) > {top} as more"
            " from (select r.row, row_number() over () as number from"
            " ({rows}) as r) as n"
        ).format(top=TOP, rows=self.ordered({"row": self.json}, SQL("{} + 1").format(TOP)))

    def complete(self) -> Composed:
        """A page that ends where the first sort key changes."""
        keys = self.keys()
        columns = [SQL("{} as {}").format(self.expressions.compile(key.key), Identifier(f"k{n}")) for n, key in enumerate(keys)]
        order = [_sort(SQL("p.{}").format(Identifier(f"k{n}")), key) for n, key in enumerate(keys)]
        return SQL(
            "with p as materialized"
            " (select {output} as row, {columns} {source} order by {first} fetch first ({top}) rows with ties)"
            " select (select string_agg(p.row, ',' order by {order}) from p) as body,"
            " exists (select {source} and {first} > (select max(p.k0) from p)) as more"
        ).format(
            output=self.json(),
            columns=SQL(", ").join(columns),
            source=self.source(self.query.order),
            first=self.expressions.compile(keys[0].key),
            top=TOP,
            order=SQL(", ").join(order),
        )

    # Parts of statements

    def count(self) -> Composed:
        return SQL("select count(*) {}").format(self.source(()))

    def position(self) -> Composed:
        """The greatest position of the entities that the query reads; for the change log, the last change of the company.

        Null if the row at which a navigation begins is missing, which cannot be told from an empty result otherwise.
        """
        if "changes" in self.query.entities:
            return SQL("select coalesce(max(p.last_id), 0) from bds.positions as p where p.company_id = {}").format(COMPANY)
        last = (SQL("(p.positions ->> {})::int8").format(Literal(entity)) for entity in self.query.entities)
        text = SQL("select coalesce(max(greatest({})), 0) from bds.company_positions as p where p.company_id = {}").format(
            SQL(", ").join(last), COMPANY
        )
        if self.expressions.past:
            text = SQL(
                "select current_setting('bds.version') || '.' || coalesce(max(e.number), 0)"
                " from bds.erasures as e where e.company_id = {}"
            ).format(COMPANY)
        origin = self.query.origin
        if origin is None:
            return text
        source = self.expressions.source(origin.entity, [origin.condition], origin.number)
        condition = self.expressions.compile(origin.condition, loose=True)
        return SQL("select case when exists (select {} and {}) then ({}) end").format(source, condition, text)

    def keys(self) -> tuple[Order, ...]:
        return self.query.keys

    def order(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(_sort(self.expressions.compile(key.key), key) for key in keys)

    def json(self) -> Composed:
        """A row as JSON."""
        query = self.query
        fields = query.select if query.select is not None else tuple(query.entity.fields.values())
        inside = (member for expansion in query.expand for member in self.expanded(expansion))
        return Writer(query.catalog, self.style).row(query.entity, self.expressions.alias(()), fields, inside)

    def expanded(self, expansion: Expansion) -> Iterator[tuple[str, Composable]]:
        """Yield the members of an expansion: its rows, before them their number if it asks for it."""
        path = (*self.path, expansion.step.name)
        compiler = Compiler(self.expressions.constants, self.expressions.past, aliases={(0, ()): f"e{len(path)}"})
        rows = RelatedSelect(
            *(expansion.query, self.style, compiler, page_parameter("top", path), path),
            step=expansion.step,
            parent=self.expressions.alias(()),
        )
        if expansion.query.count:
            quoted = """'"' || ({})::text || '"'""" if self.style.numbers_as_strings else "({})::text"
            yield f"{expansion.step.name}@odata.count", SQL(quoted).format(rows.count())
        yield expansion.step.name, rows.inside()

    def table(self) -> Composable | None:
        """What the rows are read from; None for the entity's view."""
        return None

    def source(self, order: Iterable[Order]) -> Composed:
        """FROM the entity's view, with the joins that the filter and the order need, WHERE the filter is true."""
        return self.matching(key.key for key in order)

    def matching(self, roots: Iterable[Expression]) -> Composed:
        """FROM the entity's view, with the joins that the filter and the expressions need, WHERE the filter is true."""
        filter = self.query.filter
        roots = [*roots] if filter is None else [filter, *roots]
        source = self.expressions.source(self.query.entity.name, roots, table=self.table())
        if filter is None:
            return source
        return SQL("{} and {}").format(source, self.expressions.compile(filter, loose=True))


@dataclass(slots=True, kw_only=True)
class RelatedSelect(Select):
    """Composes a subquery of the rows to which a navigation leads from the row of the alias `parent`."""

    step: Navigation
    parent: str

    def inside(self) -> Composed:
        """The JSON text of the row or null, or of an array of the rows."""
        if not self.step.many:
            return SQL("coalesce(({}), 'null')").format(self.rows())
        return SQL("coalesce((select '[' || string_agg(r.row, ',') || ']' from ({}) as r), '[]')").format(self.rows())

    def table(self) -> Composable | None:
        if not (self.expressions.past and self.step.many):
            return None
        return past_rows_of(self.step, Identifier(self.parent, "id"), self.query.entity.parent)

    def matching(self, roots: Iterable[Expression]) -> Composed:
        key, id = (self.step.field, "id") if self.step.many else ("id", self.step.field)
        link = SQL(" and {} = {}").format(Identifier(self.expressions.alias(()), key), Identifier(self.parent, id))
        return Select.matching(self, roots) + link


@dataclass(slots=True)
class PastSelect(Select):
    """Composes the statements of a query of a past state.

    A page is taken from the pages of both views of the past, so that an index that serves the order serves that of the first one.
    """

    side: Composable | None = None

    def table(self) -> Composable | None:
        return self.side

    def ordered(
        self, columns: Mapping[str, Callable[[], Composed]], limit: Composable | None = None, skip: Composable | None = None
    ) -> Composed:
        if self.query.single:
            return Select.ordered(self, columns, limit, skip)
        keys = self.keys()
        both = None if limit is None else SQL("{} + {}").format(limit, skip) if skip else limit
        sides, views = [], self.expressions.views
        for view in past_views(self.query.entity.name):
            self.side, self.expressions.views = view, views
            parts = [SQL("(select {}, {} {}").format(_named(columns), self.named_keys(keys), self.following())]
            parts += [SQL("order by {}").format(self.order(keys)), *_bounds(both, None)]
            sides.append(SQL(" ").join(parts) + SQL(")"))
        self.side = None
        parts = [
            SQL("select {} from ({}) as r").format(
                SQL(", ").join(Identifier("r", name) for name in columns), SQL(" union all ").join(sides)
            ),
            SQL("order by {}").format(SQL(", ").join(_sort(Identifier("r", f"k{n}"), key) for n, key in enumerate(keys))),
            *_bounds(limit, skip),
        ]
        return SQL(" ").join(parts)

    def named_keys(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(
            SQL("{} as {}").format(self.expressions.compile(key.key), Identifier(f"k{n}")) for n, key in enumerate(keys)
        )


class GroupSelect(Select):
    """Composes the statements of a query with $apply: the rest of a statement reads from the table of groups as from a view."""

    def keys(self) -> tuple[Order, ...]:
        """The sort keys of the query, then the group keys that are not among them."""
        given = {order.key for order in self.query.order}
        return (*self.query.order, *(Order(key.result, False) for key in self.groups.keys if key.result not in given))

    def json(self) -> Composed:
        return GroupWriter(Writer(self.query.catalog, self.style), self.query.entity, GROUP).row(self.groups)

    def source(self, order: Iterable[Order]) -> Composed:
        columns = list(self.groups.columns)
        table = SQL("select {} {}").format(
            SQL(", ").join(
                SQL("{} as {}").format(self.expressions.compile(value), Identifier(result.field.name)) for value, result in columns
            ),
            self.matching(value for value, _ in columns),
        )
        if self.groups.keys:
            table += SQL(" group by ") + SQL(", ").join(SQL(str(n)) for n in range(1, len(self.groups.keys) + 1))
        source = SQL("from ({}) as {}").format(table, Identifier(GROUP))
        if self.groups.having is None:
            return source
        return SQL("{} where {}").format(source, self.expressions.compile(self.groups.having, loose=True))

    @property
    def groups(self) -> Groups:
        assert self.query.groups is not None
        return self.query.groups


def _named(columns: Mapping[str, Callable[[], Composed]]) -> Composed:
    return SQL(", ").join(SQL("{} as {}").format(compile(), Identifier(name)) for name, compile in columns.items())


def _bounds(limit: Composable | None, skip: Composable | None) -> list[Composed]:
    parts = ((SQL("limit {}"), limit), (SQL("offset {}"), skip))
    return [text.format(value) for text, value in parts if value is not None]


def _sort(key: Composable, order: Order) -> Composed:
    """A sort key: nulls first, or in descending order last.

    Only a nullable key has the clause, so that a plain index serves the others.
    """
    text = BY_CODE_POINT if order.key.type == "text" else SQL("")
    if order.descending:
        return SQL("{}{} desc{}").format(key, text, SQL(" nulls last" if order.key.nullable else ""))
    return SQL("{}{}{}").format(key, text, SQL(" nulls first" if order.key.nullable else ""))
