"""The page /audit, for administrators: who has changed keys, users, hooks, mappers and other settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from app.changes.audit import read_before, read_page, without_hashes
from app.web.actors import display_names
from app.web.page import PageRequest

PAGE = 50  # records


@dataclass(frozen=True, slots=True)
class Field:
    """A value that an act has changed: before and after it; of what is created or deleted alone."""

    name: str
    values: list[Any]


async def show(page: PageRequest) -> web.StreamResponse:
    """The records about the company of the page, or all of home's without one, the latest first."""
    before = page.query.get("before")
    moment = read_before(before) if before else None
    records, more = await read_page(page.database, page.identity, page.company, moment, PAGE)
    for each in records:
        each["fields"], each["rest"] = _changes(without_hashes(each["detail"]))
        each["caller"] = each["detail"].get("caller", {})
    actors = await display_names(page, [each["actor"] for each in records])
    older = records[-1]["at"] if more else None
    return page.render("audit.html", records=records, actors=actors, older=older, is_newest=before is None)


def _changes(detail: dict[str, Any]) -> tuple[list[Field], dict[str, Any]]:
    """The fields of a record's detail that have values before or after, and what else it tells."""
    old, new = detail.get("old", {}), detail.get("new", {})
    fields = [Field(name, [side[name] for side in (old, new) if name in side]) for name in sorted({*old, *new})]
    return fields, {name: value for name, value in detail.items() if name not in ("old", "new", "caller")}
