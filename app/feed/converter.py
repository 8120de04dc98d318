"""Imports of anything but an import document: a converter turns the source into one (app/mapper/document.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol
from uuid import UUID

import psycopg

PATH = re.compile(r"([^\[]+)\[(\d+)\](?:\.[^\[.]+\[(\d+)\])?")  # the beginning of an error's path: products[17].variants[0].code
PAGE = 10_000  # errors read at once


class Converter(Protocol):
    """Bytes of a source in, bytes of an import document out.  feed and finish raise ServiceError."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Release threads and files.  Nothing more will be read."""

    def source_position(self, collection: str, number: int, child: int | None = None) -> str | None:
        """Where the source has the record of a number (from 0) in a collection, or one of its children: "line 17"."""
        ...


def note_positions(connection: psycopg.Connection[Any], company: str, import_id: UUID | None, converter: Converter) -> bool:
    """Add to every error of an import where its record is in the source.  Returns whether there were errors."""
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
        found = [(n, position) for n, path, is_batch in rows if not is_batch and (position := _position(path, converter))]
        connection.execute(
            "select bds_service.import_note_positions(%s, %s, %s, %s)",
            (company, import_id, [n for n, _ in found], [position for _, position in found]),
        )


def _position(path: str, converter: Converter) -> str | None:
    match = PATH.match(path)
    return converter.source_position(match[1], int(match[2]), int(match[3]) if match[3] else None) if match else None
