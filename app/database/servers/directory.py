"""Where companies live: the tables bds.places and bds.directory of home, as one process knows them.

The directory is read whole at the start and after each reconnect, and a company again whenever a notification names it.  Every
REFRESH seconds what has changed lately is read without one.  A process that is behind all the same asks the place that a company
has left, where a write raises BD002; the caller then reads the company's entry again and tries once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

HOME = "home"  # the place of BDS_DATABASE_URL, which also has accounts and the directory
REFRESH = 2.0  # seconds between two looks without a notification

PLACES: LiteralString = "select name, url from bds.places where url is not null order by name"
ENTRIES: LiteralString = "select d.company_id, d.place, d.phase from bds.directory d"
RECENT: LiteralString = ENTRIES + " where d.changed_at > clock_timestamp() - interval '1 minute'"
ONE: LiteralString = ENTRIES + " where d.company_id = %s"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a company lives.  phase: of its move, None if it does not move."""

    place: str = HOME
    phase: str | None = None

    @property
    def is_departing(self) -> bool:
        """Whether no place takes writes, for a moment."""
        return self.phase == "departing"


AT_HOME = Entry()


class Directory:
    """What is known of the directory.  urls: of the places but home, by name."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}

    def find(self, company: str) -> Entry:
        return self._entries.get(company, AT_HOME)

    async def read(self, connection: psycopg.AsyncConnection[Any], *, whole: bool = True) -> None:
        """Read the places, and all entries or those that have changed lately."""
        self.urls = dict(await (await connection.execute(PLACES)).fetchall())
        rows = await (await connection.execute(ENTRIES if whole else RECENT)).fetchall()
        if whole:
            self._entries = {}
        self._entries.update((company, Entry(place, phase)) for company, place, phase in rows)

    async def read_one(self, connection: psycopg.AsyncConnection[Any], company: str) -> Entry:
        """Read the entry of one company again."""
        row = await (await connection.execute(ONE, (company,))).fetchone()
        if row is None:
            self._entries.pop(company, None)
        else:
            self._entries[company] = Entry(row[1], row[2])
        return self.find(company)
