"""Compiles a query to a statement.

Every view in a statement is restricted to the company, in addition to the view's own restriction.  Parameters are texts, cast where
they stand, so that all queries of one shape have one text: compiled once, and prepared once in each session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.database.catalog import Navigation
from app.query.cache import Cache
from app.query.check_apply import Groups
from app.query.query import Expansion, Query
from app.query.sql_expressions import BY_CODE_POINT, GROUP, NOTHING, Compiler
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
from app.query.sql_past import Joined, past_rows, past_sides
from app.query.sql_rows import ODATA, Style, Writer
from app.query.tree import Column, Comparison, Constant, Expression, Junction, Membership, Order

# Up to this number of rows the LIMIT of a page is a literal.  For a parameter PostgreSQL assumes a tenth of the table, and plans
# anew for each execution.
FEW = 200

PAGES = ("page", "paged", "cut", "complete")  # kinds of statements of few rows

ALL = SQL("*")

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
        if query.groups is None and query.catalog.is_past:
            return render(compile(PastSelect(query, style, compiler, top, is_page=kind in PAGES)))
        return render(compile((Select if query.groups is None else GroupSelect)(query, style, compiler, top)))

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
        if keys := self.keys():
            parts.append(SQL("order by {}").format(self.order(keys)))
        parts += _bounds(limit, skip)
        return SQL(" ").join(parts)

    def following(self, table: Composable | None = None) -> Composed:
        """The source of the rows of a page, which may begin after a row of the one before.

        table: some of the rows, in place of the view.
        """
        source = self.source(self.query.order, table)
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
            texts = [SQL("{}::text").format(value) for value in self.key_values()]
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
        source, first = self.source(self.query.order), self.expressions.compile(keys[0].key)
        rows = SQL("select {} {} order by {first} fetch first ({}) rows with ties").format(self.picked(), source, TOP, first=first)
        output, joins = self.written({"row": self.json})
        return SQL(
            "with {page} as materialized ({rows}) select (select string_agg(r.row, ',' order by {order}) from"
            " (select {output}, {columns} from {page} as {this}{joins}) as r) as body,"
            " exists (select {source} and {first} > (select max(r.{key}) from {page} as r)) as more"
        ).format(
            page=self.page_name,
            rows=self.fetched(rows),
            this=self.this,
            output=output,
            columns=SQL(", ").join(SQL("{}.{}").format(self.this, _key(n)) for n in range(len(keys))),
            joins=joins,
            order=SQL(", ").join(_sort(SQL("r.{}").format(_key(n)), key) for n, key in enumerate(keys)),
            source=source,
            first=first,
            key=_key(0),
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
        """The sort keys."""
        return () if self.query.single else self.query.keys

    def key_values(self) -> list[Composed]:
        """The sort keys of a row of a page."""
        return [self.expressions.compile(key.key) for key in self.keys()]

    def order(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(_sort(self.expressions.compile(key.key), key) for key in keys)

    def json(self) -> Composed:
        """A row as JSON."""
        query = self.query
        fields = query.select if query.select is not None else tuple(query.entity.fields.values())
        inside = (member for expansion in query.expand for member in self.expanded(expansion))
        return self.writer.row(query.entity, self.expressions.alias(()), fields, inside)

    @property
    def writer(self) -> Writer:
        return Writer(self.query.catalog, self.style)

    @property
    def this(self) -> Identifier:
        """The alias of the rows."""
        return Identifier(self.expressions.alias(()))

    @property
    def page_name(self) -> Identifier:
        """The name under which a page is read twice."""
        return Identifier(f"{self.expressions.alias(())}_page")

    def picked(self, column: SQL = ALL) -> Composed:
        """A column of a row, or all, and its sort keys."""
        columns = [SQL(", {} as {}").format(self.expressions.compile(key.key), _key(n)) for n, key in enumerate(self.keys())]
        return SQL("{}.{}{}").format(self.this, column, Composed(columns))

    def fetched(self, rows: Composed) -> Composed:
        """The rows of a page, from a query that has picked them."""
        return rows

    def written(self, columns: Mapping[str, Callable[[], Composed]]) -> tuple[Composed, Composable]:
        """The columns of the rows of a page, and joins that they need."""
        return _named(columns), NOTHING

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

    def source(self, order: Iterable[Order], table: Composable | None = None) -> Composed:
        """FROM the entity's view or a table, with the joins that the filter and the order need, WHERE the filter is true."""
        return self.matching((key.key for key in order), table)

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        """FROM the entity's view, with the joins that the filter and the expressions need, WHERE the filter is true.

        table: some of the rows, in place of the view.  more: further joins.
        """
        filter = self.query.filter
        roots = [*roots] if filter is None else [filter, *roots]
        source = self.expressions.source(self.query.entity.name, roots, table=table, more=more)
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

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        key, id = (self.step.field, "id") if self.step.many else ("id", self.step.field)
        link = SQL(" and {} = {}").format(Identifier(self.expressions.alias(()), key), Identifier(self.parent, id))
        return Select.matching(self, roots, table, more) + link


@dataclass(slots=True, kw_only=True)
class PastSelect(Select):
    """Composes the statements of a query of a past state.

    A page is taken from the pages of both sides of the past, so that an index that serves the order serves that of the first one.
    What is related to its rows is joined to them.

    is_page: whether the rows are few.  joined: what is related to the rows that are written at the moment.
    """

    is_page: bool
    joined: Joined | None = None

    @property
    def writer(self) -> Writer:
        return Writer(self.query.catalog, self.style, self.joined)

    def written(self, columns: Mapping[str, Callable[[], Composed]]) -> tuple[Composed, Composable]:
        rows = SQL("from {} as {}").format(self.page_name, self.this) if self.is_page else None
        self.joined = Joined(self.expressions.alias(()), self.query.entity.name, rows)
        return _named(columns), Composed(self.joined.joins)

    def key_values(self) -> list[Composed]:
        return [SQL("{}.{}").format(self.this, _key(n)) for n in range(len(self.keys()))]

    def matching(self, roots: Iterable[Expression], table: Composable | None = None, more: Composable = NOTHING) -> Composed:
        if table is None and (found := self.found()):
            table = past_rows(self.query.entity.name, *found)
        return Select.matching(self, roots, table, more)

    def found(self) -> tuple[str, Composed] | None:
        """A field, and an array with the value that it has in all rows of the query; None if the filter demands none."""
        filter = self.query.filter
        for part in filter.operands if isinstance(filter, Junction) and filter.operator == "and" else [filter]:
            match part:
                case Comparison(operator="eq", left=Column(row=0) as column, right=Constant(null=False) as value) if (
                    column.type == value.type
                ):
                    array = SQL("array[{}]").format(self.expressions.compile(value))
                    if not column.path:
                        return column.field.name, array
                    if len(column.path) == 1 and column.field.name == "id":
                        return column.path[0].field, array
        return None

    def ordered(
        self, columns: Mapping[str, Callable[[], Composed]], limit: Composable | None = None, skip: Composable | None = None
    ) -> Composed:
        keys = self.keys()
        order = _order_by([_sort(_key(n), key) for n, key in enumerate(keys)])
        both = None if limit is None else SQL("{} + {}").format(limit, skip) if skip else limit
        sides, views = list[Composed](), self.expressions.views
        for side in past_sides(self.query.entity.name, *(self.found() or ())):
            self.expressions.views = views
            parts: list[Composable] = [SQL("(select {} {}").format(self.picked(), self.following(side))]
            parts += [_order_by([_sort(self.expressions.compile(key.key), key) for key in keys]), *_bounds(both, None)]
            sides.append(SQL(" ").join(parts) + SQL(")"))
        rows, page = SQL(" union all ").join(sides), SQL(" ").join([order, *_bounds(limit, skip)])
        output, joins = self.written(columns)
        if not self.is_page:
            return SQL("select {} from ({}) as {}{} {}").format(output, rows, self.this, joins, page)
        rows = self.fetched(SQL("select * from ({}) as r {}").format(rows, page))
        return SQL("with {name} as materialized ({}) select {} from {name} as {}{} {}").format(
            *(rows, output, self.this, joins, order), name=self.page_name
        )

    def picked(self, column: SQL = ALL) -> Composed:
        return Select.picked(self, SQL("id") if self.is_page else column)

    def fetched(self, rows: Composed) -> Composed:
        # rows of a page are rebuilt when they are picked, not when they are sorted
        return SQL("with p as materialized ({}) select v.*{} from p join {} as v on v.id = p.id").format(
            rows,
            Composed([SQL(", p.{}").format(_key(n)) for n in range(len(self.keys()))]),
            past_rows(self.query.entity.name, "id", SQL("array(select p.id from p)")),
        )

    def expanded(self, expansion: Expansion) -> Iterator[tuple[str, Composable]]:
        step, inner = expansion.step, expansion.query
        path = (*self.path, step.name)
        compiler = Compiler(self.expressions.constants, past=True, aliases={(0, ()): f"e{len(path)}"})
        rows = PastSelect(inner, self.style, compiler, page_parameter("top", path), path, is_page=self.is_page)
        assert self.joined is not None
        text, number = self.joined.add(step, f"e{len(path)}", rows.joinable, rows.together if step.many else rows.alone)
        if inner.count:
            quoted = """'"' || coalesce({}, 0)::text || '"'""" if self.style.numbers_as_strings else "coalesce({}, 0)::text"
            yield f"{step.name}@odata.count", SQL(quoted).format(number)
        yield step.name, SQL("'[' || coalesce({}, '') || ']'" if step.many else "coalesce({}, 'null')").format(text)

    def joinable(self, table: Composable, joins: Composable) -> Composed:
        """FROM a table, with joins, WHERE the filter is true."""
        return self.matching([key.key for key in self.query.order], table, joins)

    def alone(self, inside: Joined) -> list[Composable]:
        """A row as JSON, and its number."""
        self.joined = inside
        return [self.json(), SQL("1")]

    def together(self, inside: Joined) -> list[Composable]:
        """The joined rows of a page of a group of rows, and the number of rows of the group."""
        self.joined = inside
        parts = {"row": self.json(), "order": self.order(self.keys())}
        if self.query.top is None and not self.query.skip:
            return [SQL("string_agg({row}, ',' order by {order})").format(**parts), SQL("count(*)")]
        first = page_parameter("skip", self.path) if self.query.skip else SQL("0")
        last = SQL("{} + {}").format(first, self.top) if self.query.top is not None else NOTHING
        page = SQL("array_to_string((array_agg({row} order by {order}))[{first} + 1:{last}], ',')")
        return [page.format(first=first, last=last, **parts), SQL("count(*)")]


class GroupSelect(Select):
    """Composes the statements of a query with $apply: the rest of a statement reads from the table of groups as from a view."""

    def keys(self) -> tuple[Order, ...]:
        """The sort keys of the query, then the group keys that are not among them."""
        given = {order.key for order in self.query.order}
        return (*self.query.order, *(Order(key.result, False) for key in self.groups.keys if key.result not in given))

    def json(self) -> Composed:
        return GroupWriter(Writer(self.query.catalog, self.style), self.query.entity, GROUP).row(self.groups)

    def source(self, order: Iterable[Order], table: Composable | None = None) -> Composed:
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


def _key(number: int) -> Identifier:
    """The name of a sort key as a column; no field has such a name."""
    return Identifier(f"@{number}")


def _named(columns: Mapping[str, Callable[[], Composed]]) -> Composed:
    return SQL(", ").join(SQL("{} as {}").format(compile(), Identifier(name)) for name, compile in columns.items())


def _order_by(keys: Sequence[Composable]) -> Composable:
    return SQL("order by {}").format(SQL(", ").join(keys)) if keys else NOTHING


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
