"""The past on pages: the moment that a form asks for, how a page reads as of it, and which version that is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import LiteralString

from app.changes import versions
from app.changes.rows import reading
from app.database.catalog import Catalog
from app.database.past import Moment, model_of, open_past
from app.database.pool.session import Session
from app.query.check import moments
from app.web.forms import Form
from app.web.page import PageRequest

NAMES = 8  # of versions that a page offers
TARGETS = {"@": "asof", "at": "asof"}
SET: LiteralString = """
    select current_setting('bds.version')::int8, m.at
    from nullif(nullif(current_setting('bds.moment', true), '')::timestamptz, '-infinity') as m (at)
"""


@dataclass(frozen=True, slots=True)
class Past:
    """The state that a page shows.  text: as it was asked for; version: its last change; at: its time, None for version 0."""

    text: str
    version: int
    at: object


def read_asof(page: PageRequest) -> str:
    """What is asked for: `day`, a time that was picked, or `asof`, or `version` or `at` as /c has them; "" for now."""
    given = (page.query.get(name, "").strip() for name in ("day", "asof", "version", "at"))
    return next((text for text in given if text and text != moments.NOW), "")


def read_moment(page: PageRequest, form: Form) -> Moment | None:
    """The moment of the field `asof`; None for the present, or with a problem."""
    with form.collect_problems("asof", targets=TARGETS):
        moments.refuse_both(page.query.get("version") or None, page.query.get("at") or None)
        return replace(moments.read_moment(moments.absolute(form["asof"])), target="asof") if form["asof"] else None
    return None


def catalog_of(page: PageRequest, moment: Moment | None) -> Catalog:
    """The catalog of the present, or of the past, in which hardly a field is required."""
    return model_of(page.database.catalog) if moment else page.database.catalog


async def state_of(page: PageRequest, moment: Moment, text: str) -> Past:
    """The state of a moment.  Raises ServiceError as app.changes.rows.reading does."""
    async with reading(page.database, page.company, moment) as connection:
        return await read_state(connection, text)


async def read_state(connection: Session, text: str) -> Past:
    """The state of which a session reads."""
    row = await (await connection.execute(SET)).fetchone()
    assert row is not None
    return Past(text, *row)


async def version_names(page: PageRequest) -> list[str]:
    """The newest names of versions."""
    found = await versions.listed(page.database, page.company, NAMES, 0)
    return [each["name"] for each in found["data"]]


@asynccontextmanager
async def reading_for(page: PageRequest, moment: Moment | None, timeout: int) -> AsyncIterator[Session]:
    """A transaction, now or as of a moment, whose statements end after a time in milliseconds, with QueryCanceled."""
    async with page.database.snapshot(page.company) as connection:
        if moment:
            await open_past(connection, page.company, moment)
        await connection.execute(f"set local statement_timeout = {timeout:d}".encode())
        yield connection
