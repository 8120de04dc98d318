"""Which imports were undone, and which ones a revert undoes, for pages that show imports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from app.database.database import Database

# The newest revert of each import that had something to undo.
REVERTS: LiteralString = """
    select distinct on (i.reverts) i.reverts::text, i.id::text, i.state = 'partial'
    from bds.imports i
    where i.company_id = %s and i.reverts = any (%s) and not i.dry_run and i.state in ('completed', 'partial')
        and jsonb_path_exists(i.entities, '$.*.keyvalue() ? (@.key != "unchanged" && @.key != "failed" && @.value > 0)')
    order by i.reverts, i.number desc
"""
NAMED: LiteralString = (
    "select i.id::text, i.file, i.started_at from bds.imports i where i.company_id = %s and i.id = any (%s::uuid[])"
)


class Undone(NamedTuple):
    """The revert that undid an import."""

    id: str
    is_partial: bool


async def find_reverts(database: Database, company: str, imports: Sequence[str]) -> dict[str, Undone]:
    """The reverts of those imports that were undone."""
    async with database.session(company) as connection:
        cursor = await connection.execute(REVERTS, (company, list(imports)))
        return {undone: Undone(*rest) for undone, *rest in await cursor.fetchall()}


async def find_reverted(
    database: Database, company: str, reports: Iterable[dict[str, Any]]
) -> dict[str, tuple[str | None, datetime]]:
    """File and start of the imports that these ones undo; other change sets have none."""
    async with database.session(company) as connection:
        cursor = await connection.execute(NAMED, (company, [each["reverts"] for each in reports if each.get("reverts")]))
        return {id: (file, started) for id, file, started in await cursor.fetchall()}
