"""From a checked query to SQL: the only place where SQL is made.

Every value is a parameter, every name comes from the catalog, every operation stands in parentheses, and a node that nobody knows
raises.  Parameters are texts with a cast to their type, so that one shape of query is one text, hence one prepared statement.
Each view that is read is restricted to the company here as well as in itself.

Rows leave as JSON that PostgreSQL writes: concatenated by hand, which costs 1.1 times a plain row_to_json, times in UTC included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.catalog import Navigation
from app.language.cache import Cache
from app.language.query import Query, walk
from app.language.row import ODATA, Style, Writer, view
from app.language.tree import (
    Call,
    Column,
    Comparison,
    Constant,
    Expression,
    IsNull,
    Junction,
    Membership,
    Not,
    Order,
    Type,
)

COMPANY = SQL("%(company)s::text")
BASE = SQL("%(base)s::text")
TOP = SQL("%(top)s::int8")
SKIP = SQL("%(skip)s::int8")
OPERATORS = {"eq": SQL("="), "ne": SQL("<>"), "lt": SQL("<"), "le": SQL("<="), "gt": SQL(">"), "ge": SQL(">=")}

# Types of the checker as PostgreSQL has them.
CASTS: dict[Type, str] = {"whole": "numeric", "null": "text"}

MANY = 100  # nodes of a query whose text is not worth keeping


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL and its parameters: `await connection.execute(statement.text, statement.parameters)`."""

    text: SQL
    parameters: dict[str, str | list[str]]


def rows(query: Query, company: str, style: Style = ODATA) -> Statement:
    """Many rows of one text column: each a JSON object, in the query's order."""
    return _statement(query, company, style, "rows", lambda select: select.rows())


def page(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position int8).

    body: the JSON objects joined by commas, null if there are none; count: how many there are without the page, null unless the
    query asks; position: of the data that the query reads, in the same snapshot.
    """
    return _statement(query, company, style, "page", lambda select: select.page())


def listing(query: Query, company: str, style: Style, *, ties: bool) -> Statement:
    """One row: (body text, more boolean, position int8), of a query with `top`.

    more: whether rows follow after the page.  With `ties` the page goes on while the first key of the order is what it was in its
    last row, so that no reader who continues after that value misses a row.
    """
    return _statement(query, company, style, "complete" if ties else "cut", lambda select: select.listing(ties))


def count(query: Query, company: str) -> Statement:
    """One row: (count int8, position int8): how many rows there are without the page."""
    return _statement(query, company, ODATA, "count", lambda select: select.total())


def position(query: Query, company: str) -> Statement:
    """One row: (position int8): goes up whenever data changes that the query reads."""
    return _statement(query, company, ODATA, "position", lambda select: SQL('select ({}) as "position"').format(select.position()))


_texts: Cache[SQL] = Cache(1_000)


def _statement(query: Query, company: str, style: Style, kind: str, compile: Callable[[Select], Composed]) -> Statement:
    """A statement whose text is compiled once for all queries of its shape."""
    parameters: dict[str, str | list[str]] = {"company": company, "entities": list(query.entities)}
    names = {}
    for number, node in enumerate(query.parts):
        names[id(node)] = f"p{number}"
        if isinstance(node, Membership):
            parameters[f"p{number}"] = list(node.values)
        elif isinstance(node, Constant) and node.value is not None:
            parameters[f"p{number}"] = node.value
    if query.top is not None:
        parameters["top"] = str(query.top)
    if query.skip:
        parameters["skip"] = str(query.skip)
    if style.base:
        parameters["base"] = style.base

    def text() -> SQL:
        return SQL(compile(Select(query, style, names)).as_string())

    shape = (kind, query.shape, replace(style, base="" if style.base else None), len(query.parts))
    return Statement(text() if len(query.parts) > MANY else _texts.get(shape, text), parameters)


@dataclass(slots=True)
class Select:
    """One statement under construction: the names of its parameters, and an alias for each way that its expressions take."""

    query: Query
    style: Style
    names: dict[int, str]
    aliases: dict[tuple[Navigation, ...], Identifier] = field(default_factory=lambda: {(): Identifier("t")})

    # Parts of the statement

    def rows(self) -> Composed:
        """The rows as JSON, in order, of the page."""
        query = self.query
        parts = [SQL("select {} as row {}").format(self.json(), self.source(query.order))]
        if not query.single:
            parts.append(SQL("order by {}").format(self.order(self.keys())))
        if query.top is not None:
            parts.append(SQL("limit {}").format(TOP))
        if query.skip:
            parts.append(SQL("offset {}").format(SKIP))
        return SQL(" ").join(parts)

    def page(self) -> Composed:
        """The rows joined, the total if it is asked for, the position."""
        total = self.count() if self.query.count else SQL("null::int8")
        return SQL('select (select string_agg(r.row, \',\') from ({}) as r) as body, ({}) as "count", ({}) as "position"').format(
            self.rows(), total, self.position()
        )

    def total(self) -> Composed:
        return SQL('select ({}) as "count", ({}) as "position"').format(self.count(), self.position())

    def listing(self, ties: bool) -> Composed:
        listed = self.complete() if ties else self.cut()
        return SQL('select l.body, l.more, ({}) as "position" from ({}) as l').format(self.position(), listed)

    def cut(self) -> Composed:
        """A page of exactly `top` rows; one row more tells whether others follow."""
        return SQL(
            "select string_agg(n.row, ',') filter (where n.number <= {top}) as body, count(*) > {top} as more"
            " from (select r.row, row_number() over () as number from"
            " (select {output} as row {source} order by {order} limit {top} + 1) as r) as n"
        ).format(top=TOP, output=self.json(), source=self.source(self.query.order), order=self.order(self.keys()))

    def complete(self) -> Composed:
        """A page that ends where the first key of the order changes."""
        keys = self.keys()
        columns = [SQL("{} as {}").format(self.compile(key.key), Identifier(f"k{n}")) for n, key in enumerate(keys)]
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
            first=self.compile(keys[0].key),
            top=TOP,
            order=SQL(", ").join(order),
        )

    def count(self) -> Composed:
        return SQL("select count(*) {}").format(self.source(()))

    def position(self) -> Composed:
        """The last change of all entities that are read; of the company, where the log itself is read."""
        text = SQL("select coalesce(max(p.last_id), 0) from bds.positions as p where p.company_id = {}").format(COMPANY)
        if "changes" in self.query.entities:
            return text
        return SQL("{} and p.entity = any(%(entities)s::text[])").format(text)

    def keys(self) -> tuple[Order, ...]:
        """The order of the query up to the id, which breaks ties."""
        id = Order(Column(0, self.query.entity.fields["id"].type, (), self.query.entity.fields["id"]), False)
        keys = (*self.query.order, id)
        last = next(
            n for n, key in enumerate(keys) if isinstance(key.key, Column) and key.key.field.name == "id" and not key.key.way
        )
        return keys[: last + 1]

    def order(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(_sort(self.compile(key.key), key) for key in keys)

    def json(self) -> Composed:
        query = self.query
        fields = query.select if query.select is not None else tuple(query.entity.fields.values())
        return Writer(query.catalog, self.style, COMPANY, BASE).row(query.entity, self.alias(()), fields)

    def source(self, order: Iterable[Order]) -> Composed:
        """From the entity's view, with a join for each way that the filter and the order take, where the filter holds."""
        query = self.query
        conditions = [SQL("t.company_id = {}").format(COMPANY)]
        if query.filter is not None:
            conditions.append(self.compile(query.filter, loose=True))
        roots = [root for root in (query.filter, *(key.key for key in order)) if root is not None]
        ways = (part.way for root in roots for part in walk(root) if isinstance(part, Column))
        steps = dict.fromkeys(way[:end] for way in ways for end in range(1, len(way) + 1))
        return SQL("from {} as t{} where {}").format(
            view(query.entity.name), Composed([self.join(way) for way in steps]), SQL(" and ").join(conditions)
        )

    def join(self, way: tuple[Navigation, ...]) -> Composed:
        return SQL(' left join {view} as {this} on {this}.company_id = {company} and {this}."id" = {that}.{key}').format(
            view=view(way[-1].target),
            this=self.alias(way),
            company=COMPANY,
            that=self.alias(way[:-1]),
            key=Identifier(way[-1].field),
        )

    def alias(self, way: tuple[Navigation, ...]) -> Identifier:
        return self.aliases.setdefault(way, Identifier(f"t{len(self.aliases)}"))

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        return Composed([SQL(f"%({self.names[id(node)]})s::{CASTS.get(type, type)}{array}")])

    # Expressions

    def compile(self, node: Expression, *, loose: bool = False) -> Composed:
        """The expression in SQL.  Where `loose`, null does as well as false: so comparisons stay plain, as indexes need them."""
        match node:
            case Column(way=way, field=each):
                return SQL("{}.{}").format(self.alias(way), Identifier(each.name))
            case Constant(value=None):
                return Composed([SQL(f"null::{CASTS.get(node.type, node.type)}")])
            case Constant():
                return self.parameter(node, node.type)
            case Call():
                return self.call(node)
            case Comparison():
                return self.comparison(node, loose)
            case Membership(operand=operand):
                test = SQL("({} = any({}))").format(self.compile(operand), self.parameter(node, node.of, "[]"))
                return test if loose or not (node.null_is_value and operand.nullable) else SQL("coalesce({}, false)").format(test)
            case Not(operand=IsNull(operand=operand)):
                return SQL("({} is not null)").format(self.compile(operand))
            case IsNull(operand=operand):
                return SQL("({} is null)").format(self.compile(operand))
            case Not(operand=operand):
                return SQL("(not {})").format(self.compile(operand))
            case Junction(operator=operator, operands=operands):
                parts = [self.compile(operand, loose=loose) for operand in operands]
                return SQL("({})").format(SQL(f" {operator} ").join(parts))
        raise TypeError(f"no SQL is known for {node!r}")

    def comparison(self, node: Comparison, loose: bool) -> Composed:
        left, right = self.compile(node.left), self.compile(node.right)
        nullable = node.null_is_value and (node.left.nullable or node.right.nullable)
        both = node.left.nullable and node.right.nullable
        if nullable and (node.operator == "ne" or (node.operator == "eq" and (both or not loose))):
            operator = SQL("is distinct from" if node.operator == "ne" else "is not distinct from")
            return SQL("({} {} {})").format(left, operator, right)
        if node.left.type == "text" and node.operator not in ("eq", "ne"):
            left = SQL('{} collate "C"').format(left)
        test = SQL("({} {} {})").format(left, OPERATORS[node.operator], right)
        return SQL("coalesce({}, false)").format(test) if nullable and not loose and node.operator != "eq" else test

    def call(self, node: Call) -> Composed:
        """A function of the table.  What its template names twice is computed once, unless it is as simple as a column."""
        template, arguments = node.function.template, [self.compile(argument) for argument in node.arguments]
        if not any(template.count(f"{{{n}}}") > 1 and not _simple(argument) for n, argument in enumerate(node.arguments)):
            return SQL(template).format(*arguments)
        names = [SQL(f"o.a{n}") for n in range(len(arguments))]
        columns = [SQL("{} as {}").format(argument, Identifier(f"a{n}")) for n, argument in enumerate(arguments)]
        # offset 0 keeps the planner from putting the expression back in, as often as it is named
        return SQL("(select {} from (select {} offset 0) as o)").format(
            SQL(template).format(*names),
            SQL(", ").join(columns),
        )


def _simple(node: Expression) -> bool:
    """Whether naming it twice costs nothing.  A constant text is not: the planner would try its casts, whatever guards them."""
    return isinstance(node, Column) or (isinstance(node, Constant) and node.type != "text")


def _sort(key: Composable, order: Order) -> Composed:
    """Null comes first, descending last; said only of what can be null, so that a plain index serves the rest."""
    text = SQL(' collate "C"') if order.key.type == "text" else SQL("")
    if order.descending:
        return SQL("{}{} desc{}").format(key, text, SQL(" nulls last" if order.key.nullable else ""))
    return SQL("{}{}{}").format(key, text, SQL(" nulls first" if order.key.nullable else ""))
