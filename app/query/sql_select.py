"""From a checked query to a statement: with compile (its expressions) and row (its output) the only place where SQL is made.

Each view that is read is restricted to the company here as well as in itself.  Parameters are texts, cast where they stand, so that
queries of one shape are one text: compiled once, prepared once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from app.query.cache import Cache
from app.query.check_apply import Groups
from app.query.query import Query
from app.query.sql_expressions import BY_CODE_POINT, COMPANY, GROUP, Compiler
from app.query.sql_groups import GroupWriter
from app.query.sql_rows import ODATA, Style, Writer
from app.query.tree import Column, Constant, Expression, Membership, Order

BASE = SQL("%(base)s::text")
TOP = SQL("%(top)s::int8")
SKIP = SQL("%(skip)s::int8")

# Rows of a page whose size is part of the text: a parameter the planner takes for a tenth of the table, and plans anew each time.
FEW = 200

# The text of a larger query is not worth keeping.
MANY = 100  # nodes
LONGEST = 50_000  # characters


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL and its parameters: `await connection.execute(statement.text, statement.parameters)`."""

    text: SQL
    parameters: dict[str, str | list[str]]
    keys: frozenset[str] = frozenset()  # the parameters that are the key of the query's path

    def ready(self) -> Ready:
        """The statement to be sent again and again, for one row after the other."""
        text = self.text.as_string()
        numbered, names = _kept(text) if len(text) <= LONGEST else _numbered(text)
        values = tuple(self.parameters[name] for name in names)
        return Ready(numbered, values, tuple(n for n, name in enumerate(names) if name in self.keys))


@dataclass(frozen=True, slots=True)
class Ready:
    """SQL with $1, $2 ... for its values, as a raw cursor takes it; `keys` are the places at which the path's key stands."""

    text: bytes
    values: tuple[str | list[str], ...]
    keys: tuple[int, ...]

    def arguments(self, key: str | None) -> list[str | list[str]]:
        """The values, with another key if one is given."""
        values = list(self.values)
        if key is not None:
            for place in self.keys:
                values[place] = key
        return values


def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """The text with numbers for the names of its parameters, and these names in their order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return re.sub(r"%(?:\((\w+)\)s|%)", number, text).encode(), tuple(names)


_kept = lru_cache(1_000)(_numbered)


def rows(query: Query, company: str, style: Style = ODATA) -> Statement:
    """Many rows of one text column: each a JSON object, in the query's order."""
    return statement(query, company, style, "rows", lambda select: select.rows())


def page(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position int8).

    body: the JSON objects joined by commas, null if there are none; count: how many there are without the page, null unless the
    query asks; position: of the data that the query reads, in the same snapshot.
    """
    return statement(query, company, style, "page", lambda select: select.page())


def listing(query: Query, company: str, style: Style, *, ties: bool) -> Statement:
    """One row: (body text, more boolean, position int8), of a query with `top`.

    more: whether rows follow after the page.  With `ties` the page goes on while the first key of the order is what it was in its
    last row, so that no reader who continues after that value misses a row.
    """
    return statement(query, company, style, "complete" if ties else "cut", lambda select: select.listing(ties))


def count(query: Query, company: str) -> Statement:
    """One row: (count int8, position int8): how many rows there are without the page."""
    return statement(query, company, ODATA, "count", lambda select: select.total())


def position(query: Query, company: str) -> Statement:
    """One row: (position int8): goes up whenever data changes that the query reads; null if the query's origin is missing."""
    return statement(query, company, ODATA, "position", lambda select: SQL('select ({}) as "position"').format(select.position()))


_texts: Cache[SQL] = Cache(1_000)


def statement(query: Query, company: str, style: Style, kind: Hashable, compile: Callable[[Select], Composed]) -> Statement:
    """A statement whose text is compiled once for all queries of its shape."""
    parameters: dict[str, str | list[str]] = {"company": company}
    names = {}
    for number, node in enumerate(query.parts):
        names[id(node)] = f"p{number}"
        if isinstance(node, Membership):
            parameters[f"p{number}"] = list(node.values)
        elif isinstance(node, Constant) and node.value is not None:
            parameters[f"p{number}"] = node.value
    few = query.top if kind == "page" and query.top is not None and query.top <= FEW else None
    if query.top is not None and few is None:
        parameters["top"] = str(query.top)
    if query.skip:
        parameters["skip"] = str(query.skip)
    if style.base:
        parameters["base"] = style.base

    for number, aggregate in enumerate(query.groups.aggregates if query.groups else ()):
        parameters[f"a{number}"] = aggregate.alias

    def text() -> SQL:
        select = Select if query.groups is None else Grouped
        return SQL(compile(select(query, style, Compiler(names), TOP if few is None else SQL(str(few)))).as_string())

    shape = (kind, query.shape, replace(style, base="" if style.base else None), len(query.parts), few)
    keys = frozenset(name for name in (names.get(id(query.key)),) if name)
    return Statement(text() if len(query.parts) > MANY else _texts.get(shape, text), parameters, keys)


@dataclass(slots=True)
class Select:
    """One statement under construction."""

    query: Query
    style: Style
    expressions: Compiler
    top: SQL  # how many rows

    # Parts of the statement

    def rows(self) -> Composed:
        """The rows as JSON, in order, of the page."""
        query = self.query
        parts = [SQL("select {} as row {}").format(self.json(), self.source(query.order))]
        if keys := () if query.single else self.keys():
            parts.append(SQL("order by {}").format(self.order(keys)))
        if query.top is not None:
            parts.append(SQL("limit {}").format(self.top))
        if query.skip:
            parts.append(SQL("offset {}").format(SKIP))
        return SQL(" ").join(parts)

    def page(self) -> Composed:
        """The rows joined, the total if it is asked for, the position."""
        total = self.count() if self.query.count else SQL("null::int8")
        body = self.rows() if self.query.single else SQL("select string_agg(r.row, ',') from ({}) as r").format(self.rows())
        return SQL('select ({}) as body, ({}) as "count", ({}) as "position"').format(body, total, self.position())

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

    def count(self) -> Composed:
        return SQL("select count(*) {}").format(self.source(()))

    def position(self) -> Composed:
        """The last change of all entities that are read; of the company, where the log itself is read.

        Null if there is no row where the navigation begins: all else looks as if it led nowhere.
        """
        if "changes" in self.query.entities:
            return SQL("select coalesce(max(p.last_id), 0) from bds.positions as p where p.company_id = {}").format(COMPANY)
        last = (SQL("(p.positions ->> {})::int8").format(Literal(entity)) for entity in self.query.entities)
        text = SQL("select coalesce(max(greatest({})), 0) from bds.company_positions as p where p.company_id = {}").format(
            SQL(", ").join(last), COMPANY
        )
        origin = self.query.origin
        if origin is None:
            return text
        source = self.expressions.source(origin.entity, [origin.condition], origin.number)
        condition = self.expressions.compile(origin.condition, loose=True)
        return SQL("select case when exists (select {} and {}) then ({}) end").format(source, condition, text)

    def keys(self) -> tuple[Order, ...]:
        """The order of the query up to the id, which breaks ties."""
        id = Order(Column(0, self.query.entity.fields["id"].type, (), self.query.entity.fields["id"]), False)
        keys = (*self.query.order, id)
        last = next(
            n for n, key in enumerate(keys) if isinstance(key.key, Column) and key.key.field.name == "id" and not key.key.way
        )
        return keys[: last + 1]

    def order(self, keys: Iterable[Order]) -> Composed:
        return SQL(", ").join(_sort(self.expressions.compile(key.key), key) for key in keys)

    def json(self) -> Composed:
        query = self.query
        fields = query.select if query.select is not None else tuple(query.entity.fields.values())
        return Writer(query.catalog, self.style, COMPANY, BASE).row(query.entity, self.expressions.alias(()), fields, query.expand)

    def source(self, order: Iterable[Order]) -> Composed:
        """From the entity's view, with what the filter and the order need, where the filter holds."""
        return self.matching(key.key for key in order)

    def matching(self, roots: Iterable[Expression]) -> Composed:
        """From the entity's view, with what the filter and the expressions need, where the filter holds."""
        filter = self.query.filter
        source = self.expressions.source(self.query.entity.name, [*roots] if filter is None else [filter, *roots])
        if filter is None:
            return source
        return SQL("{} and {}").format(source, self.expressions.compile(filter, loose=True))


class Grouped(Select):
    """Of groups: what is computed of the rows is a table, of which the rest of the statement reads."""

    def keys(self) -> tuple[Order, ...]:
        """The order of the query, then all that tells groups apart."""
        given = {order.key for order in self.query.order}
        return (*self.query.order, *(Order(key.result, False) for key in self.groups.keys if key.result not in given))

    def json(self) -> Composed:
        return GroupWriter(Writer(self.query.catalog, self.style, COMPANY, BASE), self.query.entity, GROUP).row(self.groups)

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


def _sort(key: Composable, order: Order) -> Composed:
    """Null comes first, descending last; said only of what can be null, so that a plain index serves the rest."""
    text = BY_CODE_POINT if order.key.type == "text" else SQL("")
    if order.descending:
        return SQL("{}{} desc{}").format(key, text, SQL(" nulls last" if order.key.nullable else ""))
    return SQL("{}{}{}").format(key, text, SQL(" nulls first" if order.key.nullable else ""))
