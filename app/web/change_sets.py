"""The change log by change sets: neighbouring changes of one change set, or of one transaction without one, are one line.

The log is read back from a change in windows of ids that grow, until a page of groups is complete: the first window serves a log of
small change sets, the last one an import of a million changes.  Groups that are kept would cost every write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from app.changes.log import find_months
from app.web.page import PageRequest
from app.web.row_names import Row

GROUPS = 25  # on a page
WINDOWS = (1_000, 10_000, 100_000, 1_000_000)  # changes that are read for a page
NEWEST = "select max(p.last_id), bds.first_change(%s) from bds.positions p where p.company_id = %s"
# Counted first by group, entity and operation, so that a long import is a few rows.
WINDOW = """
    with log as (
        select c.id, c.entity, c.operation, c.row_id, c.actor, c.created_at, c.change_set_id,
            coalesce(c.change_set_id::text, c.transaction_id::text) as key
        from bds.changes c
        where c.company_id = %s and c.id > %s and c.id <= %s and c.created_at >= %s::timestamptz and c.created_at < %s::timestamptz
    ), marked as (
        select l.*, l.key is distinct from lag(l.key) over (order by l.id desc) as is_first from log l
    ), grouped as (
        select m.*, count(*) filter (where m.is_first) over (order by m.id desc) as number from marked m
    )
    select g.number, g.entity, g.operation::text, count(*) as count, min(g.id) as first, max(g.id) as last, max(g.created_at) as at,
        min(g.actor) as actor, min(g.change_set_id::text) as change_set, max(g.row_id) as row_id
    from grouped g
    group by g.number, g.entity, g.operation
    having min(g.number) <= %s
    order by g.number
"""


@dataclass(slots=True)
class Group:
    """Neighbouring changes: their ids from first to last; counts: by entity, then operation; row: of a single change."""

    first: int
    last: int
    at: datetime
    actor: str
    change_set: UUID | None
    counts: dict[str, dict[str, int]]
    row: Row
    is_import: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1


async def read_groups(page: PageRequest, before: int | None) -> tuple[list[Group], int | None, int]:
    """A page of groups before a change, newest first; the change at which older ones begin; the last change of the log."""
    async with page.database.session(page.company) as connection, connection.cursor(row_factory=dict_row) as cursor:
        newest, first = await (await connection.execute(NEWEST, (page.company, page.company))).fetchone() or (0, 1)
        newest = newest or 0
        top = min(before - 1, newest) if before else newest
        groups: list[Group] = []
        for window in WINDOWS:
            low = max(top - window, first - 1)
            since, until, _ = await find_months(connection, page.company, low + 1, top)
            await cursor.execute(WINDOW, (page.company, low, top, since or "-infinity", until or "infinity", GROUPS + 1))
            groups = grouped(await cursor.fetchall())
            if low <= first - 1 or len(groups) > GROUPS:  # the last group of a window may be cut
                break
        shown = groups[:GROUPS]
        sets = [group.change_set for group in shown if group.change_set]
        imports = "select i.id from bds.imports i where i.company_id = %s and i.id = any (%s)"
        known = {id for (id,) in await (await connection.execute(imports, (page.company, sets))).fetchall()} if sets else set()
    for group in shown:
        group.is_import = group.change_set in known
    return shown, shown[-1].first if shown and shown[-1].first > first else None, newest


def grouped(rows: list[dict[str, Any]]) -> list[Group]:
    """The groups from counts by group, entity and operation."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["number"]].append(row)
    return [_group(each) for each in groups.values()]


def _group(rows: list[dict[str, Any]]) -> Group:
    head = max(rows, key=lambda row: row["last"])
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        counts[row["entity"]][row["operation"]] = row["count"]
    change_set = UUID(head["change_set"]) if head["change_set"] else None
    first = min(row["first"] for row in rows)
    return Group(first, head["last"], head["at"], head["actor"], change_set, counts, (head["entity"], head["row_id"]))
