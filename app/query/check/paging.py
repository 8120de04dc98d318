"""Server-driven paging: a token that holds the sort keys of a page's last row, and the condition of the rows that follow.

The condition compares sort keys and counts no rows.  So what others write meanwhile moves no row from one page to another.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import replace

from app.errors import QueryError
from app.query.check.delta import MAX_PAGE, Delta, read_delta
from app.query.check.query import Query
from app.query.check.tree import Comparison, Constant, Expression, IsNull, Junction, Not, Order
from app.types.literals import storable

MAX_LONG_PAGE = 100  # rows of unbounded length


def paged(query: Query, size: int | None, token: str | None) -> Query:
    """The query in pages of at most `size` rows, from the row after the token's.  Raises QueryError for a wrong token."""
    if token is None and size is None:
        return query
    given, values, mark = read_token(token, query.keys) if token is not None else (MAX_PAGE, None, None)
    most = MAX_LONG_PAGE if query.has_long_rows else MAX_PAGE
    after = None if values is None else following(query.keys, values)
    return replace(query, page=min(size or given, most), after=after, mark=mark)


def write_token(size: int, keys: bytes, mark: Delta | None = None) -> str:
    """The token of a page.  keys: a JSON array, the sort keys of its last row as text; mark: the state of the first page."""
    return base64.urlsafe_b64encode(b"%d%b%b" % (size, keys, mark.token.encode() if mark else b"")).decode().rstrip("=")


def read_token(token: str, keys: Sequence[Order]) -> tuple[int, list[str | None], Delta | None]:
    """The size of the pages, the values of the sort keys, and the state of the first page if the query tracks.

    Raises QueryError unless the service made it for these keys.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        size, bracket, rest = text.partition("[")
        values, end = json.JSONDecoder().raw_decode(bracket + rest)
        if not (0 < int(size) <= MAX_PAGE and len(values) == len(keys)):
            raise ValueError
        mark = read_delta((bracket + rest)[end:], "$skiptoken") if (bracket + rest)[end:] else None
        return int(size), [None if value is None else storable(value) for value in values], mark
    except (ValueError, TypeError, binascii.Error, RecursionError):
        message = "expected the $skiptoken of an @odata.nextLink of the same query"
        raise QueryError(message, target="$skiptoken", position=1) from None


def following(keys: Sequence[Order], values: Sequence[str | None]) -> Expression:
    """The condition that a row comes after the one whose sort keys have these values."""
    (order, *further), (value, *others) = keys, values
    key = order.key
    constant = Constant(0, key.type, value)
    if value is None:
        same: Expression = IsNull(0, "bool", key)
        beyond: Expression = Constant(0, "bool", "false") if order.descending else Not(0, "bool", same)
    else:
        same = Comparison(0, "bool", "eq", key, constant, False)
        beyond = Comparison(0, "bool", "lt" if order.descending else "gt", key, constant, False)
        if order.descending and key.nullable:
            beyond = Junction(0, "bool", "or", (beyond, IsNull(0, "bool", key)))
    if not further:
        return beyond
    rest = Junction(0, "bool", "and", (same, following(further, others)))
    either = Junction(0, "bool", "or", (beyond, rest))
    if value is None or order.descending:
        return either
    return Junction(0, "bool", "and", (Comparison(0, "bool", "ge", key, constant, False), either))  # for an index on the first key
