"""Search over the codes and names of all entities whose codes are text, and over unique numbers.

Rows whose code is the text come first, then those whose code begins with it, then those that contain it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg

from app.database.catalog import Entity
from app.logs import count_rows
from app.query.check.query import Query
from app.query.parse import where as parse_where
from app.query.sql import statements as sql_statements
from app.web import addresses
from app.web.columns import EXACT, name_of, naming
from app.web.conditions import checked
from app.web.page import PageRequest
from app.web.past import reading_for

SHOWN = 8  # rows of an entity
TIMEOUT = 400  # milliseconds for an entity
PATIENCE = 2.0  # seconds for all; then
LEAST = 50  # milliseconds for the codes and numbers of each of the others, which an index finds


@dataclass(frozen=True, slots=True)
class Match:
    """Rows of an entity: id, code, name.  more: whether there are others; is_cut: whether the time ended before all were seen."""

    entity: Entity
    rows: list[tuple[int, str, str]]
    more: bool
    is_cut: bool


async def search(page: PageRequest, text: str) -> list[Match]:
    """The entities with rows that match, or that could not be searched in time."""
    return [match async for match in _matches(page, text) if match.rows or match.is_cut]


async def _matches(page: PageRequest, text: str) -> AsyncIterator[Match]:
    end = monotonic() + PATIENCE
    for entity in page.database.catalog.entities.values():
        found: dict[str, Any] = {}
        seen: list[dict[str, Any]] | None = []
        for condition, least in _conditions(entity, text):
            left = max(least, min(TIMEOUT, int((end - monotonic()) * 1000)))
            seen = await _rows(page, entity, condition, left) if left > 0 else None
            found |= {row["id"]: row for row in seen or []}
        count_rows(min(len(found), SHOWN))
        rows = [(int(id), *name_of(entity, row)) for id, row in found.items()]
        rows.sort(key=lambda row: (row[1] != text, not row[1].startswith(text), row[1]))
        yield Match(entity, rows[:SHOWN], len(rows) > SHOWN, seen is None)


def _conditions(entity: Entity, text: str) -> Iterator[tuple[str, int]]:
    """Conditions of /c of the rows that are searched for, and the milliseconds that each is given at least."""
    if numbers := addresses.has_number(entity, text):
        yield " or ".join(numbers), LEAST
    code = entity.identifying_field
    if code is not None and code.type == "text":
        yield f"{code.name} like {parse_where.quoted(addresses.literal(text) + '%')}", LEAST
        yield addresses.search(entity, text), 0


async def _rows(page: PageRequest, entity: Entity, condition: str, timeout: int) -> list[dict[str, Any]] | None:
    """The first rows that match a condition of /c, SHOWN and one more; None if the time ends before."""
    catalog = page.database.catalog
    query = Query(catalog, entity, filter=checked(catalog, entity, condition), select=naming(entity), top=SHOWN + 1)
    statement = sql_statements.rows(query, page.company, EXACT)
    try:
        async with reading_for(page, None, timeout) as connection:
            found = await (await connection.raw.execute(statement.text, statement.values)).fetchall()
    except psycopg.errors.QueryCanceled:
        return None
    return [json.loads(row) for (row,) in found]
