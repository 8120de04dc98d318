"""A company as a stream of bytes: a dump, which is written from one snapshot and restored in one transaction.

A dump is a line of text and then records.  A record is its kind, the length of its content, a checksum of everything up to and
including it, and the content:

    H   JSON: the company, its tenant, its tables and what else bds_operation.dump_header returns; once, first
    T   the name of a table; what follows are its rows
    D   a piece of what COPY has written
    E   JSON: the number of pieces; once, last

So a file that was cut, or changed anywhere, is found out before anything is committed.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import psycopg

from app.errors import ServiceError
from app.types import exact_json

MAGIC = b"bds company dump 1\n"
FRAME = struct.Struct(">cII")  # kind, length of the content, checksum
PIECE = 1 << 20  # bytes of rows in one record, about
LONGEST = 1 << 28  # bytes of a record; a single row may be long

Show = Callable[[str, int], None]  # table, bytes so far


def dump(
    connection: psycopg.Connection[Any], company: str, out: BinaryIO, show: Show, *, home: psycopg.Connection[Any] | None = None
) -> None:
    """Write a company.  The connections act as bds_owner; home: where the dump is noted, if it is another database.

    Raises psycopg.Error (BD002), OSError.
    """
    # committed before the first byte: a dump that is cut off is noted, too
    (home or connection).execute("select bds_audit.note_dump(%s)", (company,))
    checksum = written = pieces = 0

    def write(kind: bytes, content: bytes | bytearray) -> None:
        nonlocal checksum, written
        checksum = zlib.crc32(content, zlib.crc32(kind, checksum))
        out.write(FRAME.pack(kind, len(content), checksum))
        out.write(content)
        written += len(content)

    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read, read only")
        # before the snapshot: a month that is archived between the COPY of the archive and that of the log would be in neither
        cursor.execute("lock table bds.change_log, bds.change_archive in access share mode")
        (header,) = _one(cursor.execute("select bds_operation.dump_header(%s)", (company,)))
        out.write(MAGIC)  # nothing before it is known that there is such a company
        write(b"H", exact_json.dumps(header).encode())
        statements = cursor.execute("select name, statement from bds_operation.dump_statements(%s)", (company,)).fetchall()
        for name, statement in statements:
            write(b"T", name.encode())
            with cursor.copy(statement) as copy:
                for piece in _pieces(copy):
                    write(b"D", piece)
                    pieces += 1
                    show(name, written)
        write(b"E", exact_json.dumps({"pieces": pieces}).encode())
        out.flush()


def _pieces(copy: psycopg.Copy) -> Iterator[bytearray]:
    """Yield what COPY writes, row by row, in larger pieces."""
    piece = bytearray()
    for row in copy:
        piece += row
        if len(piece) >= PIECE:
            yield piece
            piece = bytearray()
    if piece:
        yield piece


def restore(connection: psycopg.Connection[Any], source: BinaryIO, hooks: bool, show: Show) -> str:
    """Create a company from its dump, or nothing; returns its id.

    The connection acts as bds_owner.  hooks: whether hooks stay enabled.  Raises ServiceError, psycopg.Error.
    """
    records = read(source)
    _, content = next(records)
    header = exact_json.loads(content)
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("select bds_operation.begin_restore(%s)", (exact_json.dumps(header),))
        statements = dict(cursor.execute("select name, statement from bds_operation.restore_statements()").fetchall())
        table, done = "", 0
        with contextlib.ExitStack() as stack:
            copy: psycopg.Copy | None = None
            for kind, content in records:
                if kind == b"D" and copy is not None:
                    copy.write(content)
                    done += len(content)
                    show(table, done)
                    continue
                stack.close()  # ends the COPY before
                table = content.decode()
                copy = stack.enter_context(cursor.copy(statements[table])) if kind == b"T" else None
        cursor.execute("select bds_operation.finish_restore(%s, %s, false)", (exact_json.dumps(header), hooks))
    return str(header["company"])


def read(source: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield (kind, content) of each record, the header first.  Raises ServiceError for a dump that is cut or damaged."""
    start = _exactly(source, len(MAGIC), 0)
    if start != MAGIC:
        raise ServiceError("malformed_request", f"expected a dump of a company, which begins with {MAGIC.decode().strip()!r}")
    place, checksum, pieces = len(MAGIC), 0, 0
    kind = b""
    while kind != b"E":
        expected = b"H" if not kind else b"T" if kind == b"H" else b"TDE"
        kind, length, stated = FRAME.unpack(_exactly(source, FRAME.size, place))
        if length > LONGEST or kind not in (b"H", b"T", b"D", b"E") or kind not in expected:
            raise damaged(place)
        content = _exactly(source, length, place)
        checksum = zlib.crc32(content, zlib.crc32(kind, checksum))
        if checksum != stated:
            raise damaged(place)
        place += FRAME.size + length
        pieces += kind == b"D"
        if kind != b"E":
            yield kind, content
    if exact_json.loads(content) != {"pieces": pieces} or source.read(1):
        raise damaged(place)


def damaged(place: int) -> ServiceError:
    return ServiceError("malformed_request", f"the dump is damaged at byte {place:,}; nothing was restored")


def _exactly(source: BinaryIO, length: int, place: int) -> bytes:
    content = b""
    while len(content) < length:
        more = source.read(length - len(content))
        if not more:
            raise ServiceError(
                "malformed_request", f"the dump ends too early, at byte {place + len(content):,}; nothing was restored"
            )
        content = content + more if content else more
    return content


def _one(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return tuple(row)
