"""The log by change sets: what each import, revert, session or transaction has done, as `GET /c/{company}/changesets` lists it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from app.changes.parameters import by_name, read_limit
from app.changes.rows import Answer
from app.database.database import Database
from app.database.listing import listing
from app.database.pool.session import Session
from app.database.servers.reads import require_generation
from app.errors import QueryError
from app.types import exact_json
from app.types.literals import INT8

DEFAULT_LIMIT = 100

ITEM: LiteralString = """
    select json_object('changeSetId': s.change_set_id, 'kind': s.kind, 'actor': s.actor, 'firstId': s.first_id, 'lastId': s.last_id,
        'firstAt': bds_service.api_time(s.first_at), 'lastAt': bds_service.api_time(s.last_at),
        'entities': (
            select json_object_agg(c.key, json_object(
                'created': c.value -> 'created', 'updated': c.value -> 'updated', 'deleted': c.value -> 'deleted' returning json)
                order by e.ordinal, c.key)
            from jsonb_each(s.entities) c left join bds.entities e on e.name = c.key
        ) returning json)
    from bds_service.change_sets(%s, %s, %s) s
"""


async def list_change_sets(database: Database, company: str, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"data": [change sets], "hasMore": bool}` by `limit` and `before`, the latest first.  Raises QueryError."""
    limit, before = read_parameters(params)
    async with database.session(company) as connection:
        page = await read_page(connection, company, before, limit)
    body = exact_json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode()
    # what maintenance counts changes the list without a change of the data
    return Answer(body, repr(body), len(page["data"]))


async def read_page(connection: Session, company: str, before: int | None, limit: int) -> dict[str, Any]:
    """The latest change sets whose last change is before one; None: before none."""
    return await listing(connection, ITEM, (company, before), limit)


def read_parameters(params: Sequence[tuple[str, str]]) -> tuple[int, int | None]:
    """Return limit and before.  Raises QueryError."""
    given = by_name(params, ("limit", "before", "generation"))
    require_generation(given.pop("generation", None))
    limit = read_limit(given.get("limit"), DEFAULT_LIMIT)
    before = given.get("before")
    if before is not None and not (before.isascii() and before.isdigit() and len(before) < 20 and 1 <= int(before) <= INT8[-1]):
        raise QueryError(f"before: expected the lastId of a change set, got {before!r}", target="before")
    return limit, None if before is None else int(before)
