"""Pages of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg


async def listing(
    connection: psycopg.AsyncConnection[Any], query: LiteralString, values: Sequence[Any], limit: int, offset: int | None = None
) -> dict[str, Any]:
    """A page of a query's first column: {"data": at most `limit` of them, "hasMore": whether more follow}.

    The query takes the values, the limit and, if it is given, the offset, in this order.
    """
    cursor = await connection.execute(query, (*values, limit + 1, *([] if offset is None else [offset])))
    rows = [row[0] for row in await cursor.fetchall()]
    return {"data": rows[:limit], "hasMore": len(rows) > limit}
