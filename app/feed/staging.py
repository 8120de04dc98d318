"""Stages a document: its bytes become records, lines of text, and rows of the import's staging tables, block by block.

Blocks are copied by a thread of their own, each while the next one is read, over a connection that closes while the client is slow.
"""

from __future__ import annotations

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
from app.feed.heartbeat import show_progress
from app.feed.idle_connection import IdleConnection
from app.feed.rows import COPY_OPTIONS, Rows

STAGE_BYTES = 8 << 20  # bytes of lines that are collected before they are copied
ERROR_COLUMNS = ("entity", "ordinal", "field", "code", "message")


class Staging:
    """The staged records of one import: begin(), receive() the document's bytes, finish(); close() in any case.

    receive and finish raise ServiceError about the document, psycopg.Error of an earlier block.
    """

    def __init__(
        self,
        connection: IdleConnection,
        catalog: Catalog,
        company: str,
        limit: int | None = None,
        converter: Converter | None = None,
    ) -> None:
        self.bytes = 0  # received so far
        self._connection = connection
        self._company = company
        self._import_id: UUID | None = None
        self._number = 0  # of the import: part of the names of its staging tables
        self._limit = limit  # bytes of a document
        self._converter = converter  # of the received bytes into those of a document; None: they are one
        self._document = Document()
        self._rows = Rows(catalog)
        self.directives = Directives(self._rows)
        self._tables: dict[str, str] = {}  # entity -> staging table
        self._copier = ThreadPoolExecutor(1, "staging")
        self._copying: Future[None] | None = None  # the block that is being copied

    @property
    def records(self) -> int:
        """Top-level records read so far."""
        return self._rows.records

    def begin(self, import_id: UUID, number: int) -> None:
        """Name the import that the records belong to."""
        self._import_id = import_id
        self._number = number

    def receive(self, data: bytes) -> None:
        """Read the next bytes.  Raises ServiceError `too_large` beyond the limit."""
        self.bytes += len(data)
        if self._limit is not None and self.bytes > self._limit:
            raise ServiceError("too_large", f"the document is larger than {self._limit} bytes")
        for part in self._document.feed(self._converter.feed(data) if self._converter else data):
            self._add(part)

    def finish(self) -> None:
        """Stage the rest of the document, which has no more bytes, and wait until all of it is copied."""
        for data in self._converter.finish() if self._converter else ():
            for part in self._document.feed(data):
                self._add(part)
        for part in self._document.finish():
            self._add(part)
        self.directives.finish()
        self._copy_lines()
        self._await_copy()
        self._copier.shutdown()

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
        self._rows.add(part.collection, part.records, part.has_control_escapes)
        if self._rows.size > STAGE_BYTES:
            self._copy_lines()

    def _copy_lines(self) -> None:
        """Hand the collected lines to the copier, once it has copied the block before.  Raises the errors of that one."""
        self._await_copy()
        blocks = [(entity, table.columns, data) for entity, table, data in self._rows.take()]
        self._copying = self._copier.submit(self._copy_blocks, blocks, self._rows.take_errors(), self.bytes, self.records)

    def _await_copy(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.result()

    def _copy_blocks(self, blocks: list[tuple[str, tuple[str, ...], bytes]], errors: bytes, size: int, records: int) -> None:
        with self._connection.use() as connection:
            for entity, columns, data in blocks:
                _copy(connection, self._table(connection, entity), columns, data)
            if errors:
                _copy(connection, f"staging.i{self._number}_errors", ERROR_COLUMNS, errors)
            show_progress(connection, self._company, self._import_id, size, records)

    def _table(self, connection: psycopg.Connection[Any], entity: str) -> str:
        """The name of an entity's staging table, made at the first use."""
        if entity not in self._tables:
            row = connection.execute("select bds.import_stage(%s, %s, %s)", (self._company, self._import_id, entity)).fetchone()
            assert row is not None
            self._tables[entity] = row[0]
        return self._tables[entity]


def _copy(connection: psycopg.Connection[Any], table: str, columns: tuple[str, ...], data: bytes) -> None:
    """Copy lines into a table, whose name is quoted already."""
    statement = sql.SQL("copy {} ({}) from stdin " + COPY_OPTIONS).format(
        sql.SQL(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor().copy(statement) as copy:
        copy.write(data)
