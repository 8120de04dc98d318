"""What an import may read instead of a document: a source that a mapper turns into one."""

from __future__ import annotations

import re
from typing import Any, Protocol
from uuid import UUID

import psycopg

PLACE = re.compile(r"([^\[]+)\[(\d+)\](?:\.[^\[.]+\[(\d+)\])?")  # what a path begins with: products[17].variants[0].code
PAGE = 10_000  # errors that are looked at together


class Source(Protocol):
    """Bytes of the source in, bytes of an import document out.  feed and finish raise ServiceError."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...

    def close(self) -> None:
        """Let go of what reading takes: nothing more will be read."""

    def place(self, collection: str, position: int, child: int | None = None) -> str | None:
        """Where in the source the collection's record at a position stands, or its child at one: "line 17"."""
        ...


def note_places(connection: psycopg.Connection[Any], company: str, import_id: UUID | None, source: Source) -> bool:
    """Say in the message of every error of an import where in the source its record stands.  Whether there were errors."""
    last = 0
    while True:
        rows = connection.execute(
            "select n, path, code = 'batch_failed' from bds.import_errors where company_id = %s and import_id = %s and n > %s"
            " order by n limit %s",
            (company, import_id, last, PAGE),
        ).fetchall()
        if not rows:
            return last > 0
        last = rows[-1][0]
        found = [(n, place) for n, path, is_batch in rows if not is_batch and (place := _place(path, source))]
        connection.execute(
            "select bds.import_note_places(%s, %s, %s, %s)",
            (company, import_id, [n for n, _ in found], [place for _, place in found]),
        )


def _place(path: str, source: Source) -> str | None:
    match = PLACE.match(path)
    return source.place(match[1], int(match[2]), int(match[3]) if match[3] else None) if match else None
