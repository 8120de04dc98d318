"""The page of changes by change sets: what `GET /c/{company}/changesets` lists, and what makes a line of it readable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.changes.change_sets import read_page
from app.database.generations import last_event
from app.database.pool.session import Session
from app.types.event_ids import Event
from app.web.page import PageRequest
from app.web.row_names import Row

SETS = 25  # on a page
IMPORTS = "select i.id::text from bds.imports i where i.company_id = %s and i.id = any (%s::uuid[])"
SINGLE = """
    select c.id, c.entity, c.row_id
    from bds.changes c
    where c.company_id = %s and c.id = any (%s) and c.created_at between %s and %s
"""


@dataclass(slots=True)
class ChangeSets:
    """A page of change sets.

    sets: items of /c/{company}/changesets with `size`, the number of changes, None if it is not counted yet; `row`, of a single
    change; `reported`, whether it has the report of an import.  older: whether others follow; newest: the last change of the log.
    """

    sets: list[dict[str, Any]]
    older: bool
    newest: Event


async def read_sets(page: PageRequest, before: int | None) -> ChangeSets:
    """The latest change sets before one."""
    async with page.database.session(page.company) as connection:
        newest = await last_event(connection, page.company)
        found = await read_page(connection, page.company, before, SETS)
        ids = [each["changeSetId"] for each in found["data"] if each["kind"] != "session"]
        reported = {id for (id,) in await (await connection.execute(IMPORTS, (page.company, ids))).fetchall()} if ids else set()
        for each in found["data"]:
            each["size"] = None if each["entities"] is None else sum(sum(counts.values()) for counts in each["entities"].values())
            each["reported"] = each["changeSetId"] in reported
        rows = await _single_rows(connection, page.company, [each for each in found["data"] if each["size"] == 1])
        for each in found["data"]:
            each["row"] = rows.get(each["lastId"])
    return ChangeSets(found["data"], found["hasMore"], newest)


async def _single_rows(connection: Session, company: str, sets: list[dict[str, Any]]) -> dict[int, Row]:
    """The rows of change sets of one change, by its id."""
    if not sets:
        return {}
    values = (company, [each["lastId"] for each in sets], sets[-1]["firstAt"], sets[0]["lastAt"])
    return {id: (entity, row_id) for id, entity, row_id in await (await connection.execute(SINGLE, values)).fetchall()}
