"""Compiles a query to a statement.

Every view in a statement is restricted to the company, in addition to the view's own restriction.  Parameters are texts, cast where
they stand, so that all queries of one shape have one text: compiled once, and prepared once in each session.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from psycopg.sql import SQL, Composed

from app.query.check.query import Query
from app.query.check.tree import Constant, Membership
from app.query.sql.cache import Cache
from app.query.sql.expressions import Compiler
from app.query.sql.groups import GroupSelect
from app.query.sql.parameters import TOP, Name, Rendered, Statement, Value, alias, page_parameter, render
from app.query.sql.past_select import PastSelect, finds_few
from app.query.sql.rows import ODATA, Style
from app.query.sql.select import Select

# Up to this number of rows the LIMIT of a page is a literal.  For a parameter PostgreSQL assumes a tenth of the table, and plans
# anew for each execution.
FEW = 200

PAGE = 1_000  # rows up to which those of a past state are picked before what is related to them is read
PAGES = ("page", "paged", "cut", "complete")  # kinds of statements of few rows
MANY = 100  # expressions of a query from which its text is not cached


def rows(query: Query, company: str, style: Style = ODATA) -> Statement:
    """Rows of one text column: each a JSON object, in the query's order."""
    return statement(query, company, style, "rows", lambda select: select.rows())


def page(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position text, rows int8), all from one snapshot.

    body: the JSON objects joined by commas, null if there are none.
    count: the number of rows without the page; null unless the query asks for it.
    position: of the entities that the query reads.
    rows: the number of rows in the body; this column is missing if the query is of a single row.
    """
    return statement(query, company, style, "page", lambda select: select.page())


def paged(query: Query, company: str, style: Style = ODATA) -> Statement:
    """One row: (body text, count int8, position text, rows int8, keys text), for a query with `page`.

    keys: the sort keys of the last row as a JSON array of texts; null if no rows follow.
    """
    return statement(query, company, style, "paged", lambda select: select.paged())


def listing(query: Query, company: str, style: Style, *, ties: bool) -> Statement:
    """One row: (body text, more boolean, position text, rows int8), for a query with `top`.

    more: whether rows follow after the page.
    ties: the page is extended by the rows whose first sort key equals that of its last row, so that a reader who continues after
    this value misses no row.
    """
    return statement(query, company, style, "complete" if ties else "cut", lambda select: select.listing(ties))


def count(query: Query, company: str) -> Statement:
    """One row: (count int8, position text).  count: the number of rows without the page."""
    return statement(query, company, ODATA, "count", lambda select: select.total())


def position(query: Query, company: str) -> Statement:
    """One row: (position text).  It rises with every change of data that the query reads; null if the query's origin is missing."""
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
            return render(compile(PastSelect(query, style, compiler, top, is_page=is_page)))
        return render(compile((Select if query.groups is None else GroupSelect)(query, style, compiler, top)))

    is_page = kind in PAGES or (query.top is not None and query.top <= PAGE)
    shape = (kind, query.shape, replace(style, base="" if style.base else None), len(constants), literal_top, is_page)
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
    keys = tuple(n for n, name in enumerate(rendered.names) if name == key)
    is_past = query.catalog.is_past
    is_steady = is_past and kind in PAGES and query.groups is None and (query.top or 0) <= PAGE and finds_few(query)
    return Statement(rendered, tuple(values[name] for name in rendered.names), keys, not is_past, is_steady)


def _value(constant: Constant | Membership) -> Value:
    return list(constant.values) if isinstance(constant, Membership) else str(constant.value)
