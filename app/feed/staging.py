"""Stages a document: its bytes become records, lines of text, and rows of the import's staging tables, block by block.

Blocks are copied by a thread of their own, each while the next one is read, over a connection that closes while the client is slow.
A document that is small enough is not staged block by block: its lines stay here, and small.py imports them as small_rows().
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.feed.converter import Converter
from app.feed.directives import Directives
from app.feed.document import Directive, Document, Records
from app.feed.heartbeat import Progress, show_progress
from app.feed.idle_connection import IdleConnection
from app.feed.rows import COPY_OPTIONS, Rows
from app.feed.shapes import read_lines

STAGE_BYTES = 8 << 20  # bytes of lines that are collected before they are copied
SMALL_ROWS = 1000  # rows of a small document, children included
SMALL_LINE = 4000  # bytes of its longest line: temporary tables of a small import hold no values that do not fit into a page
ERROR_COLUMNS = ("entity", "ordinal", "field", "code", "message", "is_kept")

dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Block = tuple[str, tuple[str, ...], bytes]  # entity, columns, lines


class Staging:
    """The staged records of one import: receive() the document's bytes, finish(), flush() or small_rows(); close() in any case.

    receive and flush raise ServiceError about the document, psycopg.Error of an earlier block.  begin: called before anything is
    copied, gives the id and the number of the import.
    """

    def __init__(
        self,
        connection: IdleConnection,
        begin: Callable[[], tuple[UUID, int]],
        catalog: Catalog,
        company: str,
        limit: int | None = None,
        converter: Converter | None = None,
        file: str | None = None,
    ) -> None:
        self.bytes = 0  # received so far
        self._connection = connection
        self._begin = begin
        self._catalog = catalog
        self._company = company
        self._import_id: UUID | None = None
        self._number = 0  # of the import: part of the names of its staging tables
        self._last: tuple[list[Block], bytes] = [], b""  # lines and errors that are not copied yet, once the document is read
        self._limit = limit  # bytes of a document
        self._converter = converter  # of the received bytes into those of a document; None: they are one
        self._document = Document(file)
        self._rows = Rows(catalog)
        self.directives = Directives(self._rows)
        self._tables: dict[str, str] = {}  # entity -> staging table
        self._copier = ThreadPoolExecutor(1, "staging")
        self._copying: Future[None] | None = None  # the block that is being copied

    @property
    def records(self) -> int:
        """Top-level records read so far."""
        return self._rows.records

    def receive(self, data: bytes) -> None:
        """Read the next bytes.  Raises ServiceError `too_large` beyond the limit."""
        self.bytes += len(data)
        if self._limit is not None and self.bytes > self._limit:
            raise ServiceError("too_large", f"the document is larger than {self._limit} bytes")
        for part in self._document.feed(self._converter.feed(data) if self._converter else data):
            self._add(part)

    def finish(self, look: Callable[[], None] = lambda: None) -> None:
        """Read the rest of the document, which has no more bytes.  look: called now and then; what it raises ends the reading."""
        for data in self._converter.finish() if self._converter else ():
            look()
            for part in self._document.feed(data):
                self._add(part)
        for part in self._document.finish():
            self._add(part)
        self.directives.finish()
        self._last = self._take()

    @property
    def is_small(self) -> bool:
        """Whether the whole document, which is read, waits here and may be imported in one transaction."""
        blocks, errors = self._last
        rows = sum(data.count(b"\n") for _, _, data in blocks) + errors.count(b"\n")
        return (
            self._import_id is None
            and rows <= SMALL_ROWS
            and all(len(line) <= SMALL_LINE for _, _, data in blocks for line in data.split(b"\n"))
        )

    def flush(self) -> None:
        """Copy what waits here, and wait for it."""
        self._copy(*self._last)
        self._await_copy()
        self._last = [], b""
        self._copier.shutdown()

    def small_rows(self) -> tuple[str, str | None]:
        """What waits here as bds.import_rows takes it, rows and errors in JSON.  It stays, in case it has to be flushed."""
        blocks, errors = self._last
        rows = {entity: read_lines(columns, data) for entity, columns, data in blocks}
        return dump(rows), dump(read_lines(ERROR_COLUMNS, errors)) if errors else None

    def close(self) -> None:
        """Read no more, and wait for the block that is being copied: it would come after its tables are dropped."""
        if self._converter:
            self._converter.close()
        if self._copying is not None:
            wait([self._copying])
        self._copier.shutdown()

    def _add(self, part: Records | Directive) -> None:
        if isinstance(part, Directive):
            self.directives.add(part)
            return
        self.directives.note(part.collection)
        self._rows.add(part.collection, part.records, part.block)
        if self._rows.size > STAGE_BYTES:
            self._copy(*self._take())

    def _take(self) -> tuple[list[Block], bytes]:
        """Remove and return the collected lines and errors."""
        return [(entity, table.columns, data) for entity, table, data in self._rows.take()], self._rows.take_errors()

    def _copy(self, blocks: list[Block], errors: bytes) -> None:
        """Hand lines to the copier, once it has copied the block before.  Raises the errors of that one."""
        self._await_copy()
        if self._import_id is None:
            self._import_id, self._number = self._begin()
        self._copying = self._copier.submit(self._copy_blocks, blocks, errors, self.bytes, self.records)

    def _await_copy(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.result()

    def _copy_blocks(self, blocks: list[Block], errors: bytes, size: int, records: int) -> None:
        with self._connection.use() as connection:
            for entity, columns, data in blocks:
                try:
                    _copy(connection, sql.SQL(self._table(connection, entity)), columns, data)
                except psycopg.Error as error:
                    raise self._altered(entity) if _is_of_another_model(error, entity) else error from None
            if errors:
                _copy(connection, sql.Identifier("staging", f"i{self._number}_errors"), ERROR_COLUMNS, errors)
            show_progress(connection, self._company, self._import_id, Progress(size, records))

    def _altered(self, entity: str) -> ServiceError:
        table = self._catalog.entities[entity].table
        return ServiceError(
            "conflict", f"{table} was altered while the document arrived; nothing was written: send it again", target=entity
        )

    def _table(self, connection: psycopg.Connection[Any], entity: str) -> str:
        """The name of an entity's staging table, made at the first use."""
        if entity not in self._tables:
            row = connection.execute("select bds.import_stage(%s, %s, %s)", (self._company, self._import_id, entity)).fetchone()
            assert row is not None
            self._tables[entity] = row[0]
        return self._tables[entity]


def _copy(connection: psycopg.Connection[Any], table: sql.Composable, columns: tuple[str, ...], data: bytes) -> None:
    statement = sql.SQL("copy {} ({}) from stdin " + COPY_OPTIONS).format(table, sql.SQL(", ").join(map(sql.Identifier, columns)))
    with connection.cursor().copy(statement) as copy:
        copy.write(data)


def _is_of_another_model(error: psycopg.Error, entity: str) -> bool:
    """Whether an error of staging says that the entity, or one of its columns, has gone since the catalog was read."""
    return isinstance(error, psycopg.errors.UndefinedColumn) or (error.sqlstate == "BD002" and error.diag.table_name == entity)
