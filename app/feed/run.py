"""One import from its first byte to its report: stage the document block by block, let the database compare and write.

The calls are synchronous, for a worker thread or a command.  Blocks are copied in a thread of their own, each while the next one is
read, by a connection that is held while they follow one another, and not while a slow client is waited for.  The whole document
is staged before the first business row is written.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from app import db
from app.catalog import Catalog
from app.errors import SQLSTATES, ServiceError
from app.feed.document import Directive, Document, Records
from app.feed.lingering import Lingering
from app.feed.rows import COPY_OPTIONS, Rows
from app.feed.source import Source, note_places

log = logging.getLogger("bds.feed")

STAGE_BYTES = 8 << 20  # staged lines that wait before they are copied
HEARTBEAT = 2.0  # seconds between signs of life, and until a cancel is noticed
DONE = re.compile(r"(.+): (\d+) of (\d+) rows done")  # what the database says of its progress
ATOMIC = {"batch": "batch", True: "true", False: "false"}

Progress = Callable[[str, int, int, int], None]  # phase, bytes, records, done


class Import:
    """An import of one document into one company.

    receive() its bytes, then run().  Whatever is raised, abort() first: nothing stays behind.
    """

    def __init__(
        self,
        url: str,
        catalog: Catalog,
        company: str,
        *,
        actor: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        on_progress: Progress | None = None,
        source: Source | None = None,
    ) -> None:
        self.company = company
        self.id: UUID | None = None
        self.bytes = 0
        self._url = url
        self._catalog = catalog
        self._actor = actor
        self.dry_run = dry_run
        self._limit = limit
        self._on_progress = on_progress or (lambda *_: None)
        self._source = source  # turns the bytes that are received into those of a document; None: they are one
        self._document = Document()
        self._rows = Rows(catalog)
        self._staging: dict[str, str] = {}
        self._atomic = "batch"
        self._collections: set[str] = set()  # that the document has at its top
        self._named: set[str] = set()  # those beside which a @removeAll stands
        self._remove_all: list[str] = []  # those that are given whole
        self._running: psycopg.Connection[Any] | None = None
        self._cancelled = False
        self._is_complete = False
        self._number = 0
        self._done = 0
        self._stopped = threading.Event()
        self._turn = threading.Lock()  # an abort waits for the bytes that are being taken in
        self._session = Lingering(self._connect)
        self._copier = ThreadPoolExecutor(1, "staging")
        self._copying: Future[None] | None = None  # the block that is on its way

    def begin(self) -> UUID:
        """Make the import known.  Raises psycopg.Error BD002 if there is no such company."""
        with self._session.use() as connection, connection.transaction():
            connection.execute("select bds.set_context(%s, %s)", (self.company, self._actor))
            row = connection.execute("select bds.import_begin(%s, %s, %s)", (self.company, self._actor, self.dry_run)).fetchone()
            assert row is not None
            self.id = row[0]
            row = connection.execute("select number from bds.open_import(%s, %s)", (self.company, self.id)).fetchone()
            assert row is not None
            self._number = row[0]
        threading.Thread(target=self._beat, name=f"import {self.id}", daemon=True).start()
        return self.id

    def receive(self, data: bytes) -> None:
        """Take in the next bytes of the document.

        Raises ServiceError if it is malformed, not an import document, or too large, or if somebody has cancelled the import.
        """
        with self._turn:
            self.check_cancelled()
            self.bytes += len(data)
            if self._limit is not None and self.bytes > self._limit:
                raise ServiceError("too_large", f"the document is larger than {self._limit} bytes")
            for part in self._document.feed(self._source.feed(data) if self._source else data):
                self._take(part)
        self._phase("receiving")

    def complete(self) -> None:
        """The document is complete: what is left of it is staged.  Raises as `receive`; a second call has no effect."""
        with self._turn:
            if not self._is_complete:
                self._complete()
                self._is_complete = True

    def _complete(self) -> None:
        for part in self._document.feed(self._source.finish() if self._source else b""):
            self._take(part)
        for part in self._document.finish():
            self._take(part)
        for entity in sorted(self._named - self._collections):
            raise _wrong_directive(f"{entity}@removeAll", f"there is no array {entity} beside it")
        self._flush()
        self._await_block()
        self._copier.shutdown()
        self.check_cancelled()
        with self._session.use() as connection:
            connection.execute(
                "select bds.import_received(%s, %s, %s, %s, %s, %s)",
                (self.company, self.id, self._atomic, self.bytes, self._rows.records, self._remove_all),
            )

    def run(self) -> dict[str, Any]:
        """The document is complete: compare, write, report.  Raises as `receive`."""
        self.complete()
        try:
            with self._session.use() as connection:
                connection.add_notice_handler(self._hear)
                connection.execute("set temp_buffers = '128MB'")  # for the comparison's temporary tables
                connection.execute("set client_connection_check_interval = '2s'")  # should this process die, its turn ends with it
                self._running = connection
                self.check_cancelled()
                with connection.transaction():
                    report: dict[str, Any] = _value(connection, "select bds.import_run(%s, %s)", (self.company, self.id))
                    if self._source and note_places(connection, self.company, self.id, self._source):
                        report = _value(connection, "select bds.import_report(%s, %s)", (self.company, self.id))
        except psycopg.errors.QueryCanceled:
            with self._connect() as connection:
                self._look_whether_cancelled(connection)
            self.check_cancelled()
            raise
        finally:
            self._running = None
            self._session.close()
        self._phase("done", self._rows.records)
        self._stopped.set()
        return report

    def abort(self, reason: BaseException | None = None) -> None:
        """End the import without a result: what was staged is dropped, what was written is rolled back already."""
        code, message = _told(reason)
        state = "cancelled" if code == "cancelled" else "failed"
        self._stopped.set()
        if self.id is None:
            return
        with self._turn:
            if self._source:
                self._source.close()
            if self._copying is not None:
                wait([self._copying])  # what it stages is dropped with the rest
            self._copier.shutdown()
            self._session.close()
            with self._connect() as connection:
                connection.execute(
                    "select bds.import_progress(%s, %s, %s, %s, 0)", (self.company, self.id, self.bytes, self._rows.records)
                )
                connection.execute("select bds.import_fail(%s, %s, %s, %s, %s)", (self.company, self.id, state, code, message))

    # Staging.

    def _take(self, part: Records | Directive) -> None:
        if isinstance(part, Directive):
            self._direct(part)
            return
        self._collections.add(part.collection)
        self._rows.add(part.collection, part.records, part.odd)
        if self._rows.size > STAGE_BYTES:
            self._flush()

    def _direct(self, directive: Directive) -> None:
        name, value = directive.name, directive.value
        if value is None:
            return
        if name == "@atomic":
            if not isinstance(value, (str, bool)) or value not in ATOMIC:
                raise _wrong_directive(name, 'expected "batch", true or false')
            self._atomic = ATOMIC[value]
        elif name == "@mode":
            if value not in ("array", "merge"):
                raise _wrong_directive(name, 'expected "array" or "merge"')
            if self._rows.tables:
                raise _wrong_directive(name, "it stands at the top of the document, before every collection")
            self._rows.merge = value == "merge"
        elif name.endswith("@removeAll") and not name.startswith("@"):
            if not isinstance(value, bool):
                raise _wrong_directive(name, "expected true or false")
            entity = name.removesuffix("@removeAll")
            self._rows.table(entity)
            self._remove_all = [*(each for each in self._remove_all if each != entity), *([entity] if value else [])]
            self._named.add(entity)
        else:
            raise _wrong_directive(name, "there is no such directive; there are @atomic, @mode and <collection>@removeAll")

    def _flush(self) -> None:
        """Send what waits on its way to the database, once the block before it is there.  Raises what that one met."""
        self._await_block()
        blocks = [(entity, table.columns, data) for entity, table, data in self._rows.take()]
        self._copying = self._copier.submit(self._stage, blocks, self._rows.take_errors(), self.bytes, self._rows.records)

    def _await_block(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.result()

    def _stage(self, blocks: list[tuple[str, tuple[str, ...], bytes]], errors: bytes, received: int, records: int) -> None:
        with self._session.use() as connection:
            for entity, columns, data in blocks:
                _copy(connection, self._staging_table(connection, entity), columns, data)
            if errors:
                _copy(connection, f"staging.i{self._number}_errors", ("entity", "ordinal", "field", "code", "message"), errors)
            connection.execute("select bds.import_progress(%s, %s, %s, %s, 0)", (self.company, self.id, received, records))

    def _staging_table(self, connection: psycopg.Connection[Any], entity: str) -> str:
        if entity not in self._staging:
            row = connection.execute("select bds.import_stage(%s, %s, %s)", (self.company, self.id, entity)).fetchone()
            assert row is not None
            self._staging[entity] = row[0]
        return self._staging[entity]

    def _connect(self) -> psycopg.Connection[Any]:
        return _writer(self._url, self.company)

    # Signs of life, from a thread of its own: whoever sees none for a while takes the import for dead.

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT):
            with contextlib.suppress(psycopg.Error), self._connect() as connection:
                connection.execute(
                    "select bds.import_progress(%s, %s, %s, %s, %s)",
                    (self.company, self.id, self.bytes, self._rows.records, self._done),
                )
                self._look_whether_cancelled(connection)
                running = self._running
                if self._cancelled and running is not None:
                    running.cancel_safe()

    def _look_whether_cancelled(self, connection: psycopg.Connection[Any]) -> None:
        self._cancelled = _value(connection, "select is_cancelled from bds.open_import(%s, %s)", (self.company, self.id))

    def check_cancelled(self) -> None:
        """Raises ServiceError `cancelled` once it is known that somebody asked for the import's end."""
        if self._cancelled:
            raise ServiceError("cancelled", "the import was cancelled")

    def _hear(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        match = DONE.fullmatch(diagnostic.message_primary or "")
        if match:
            self._phase(match[1], self._rows.records * int(match[2]) // max(int(match[3]), 1))

    def _phase(self, name: str, done: int = 0) -> None:
        self._done = done
        self._on_progress(name, self.bytes, self._rows.records, done)


def _told(reason: BaseException | None) -> tuple[str, str]:
    """The code and the message that the import's report keeps of what ended it."""
    if isinstance(reason, ServiceError):
        return reason.code, reason.message
    if isinstance(reason, psycopg.Error) and reason.sqlstate in SQLSTATES:
        return SQLSTATES[reason.sqlstate], reason.diag.message_primary or ""
    if isinstance(reason, psycopg.Error):
        return "aborted", f"the database refused or ended it ({reason.sqlstate or 'no connection'})"
    if isinstance(reason, KeyboardInterrupt):
        return "aborted", "it was interrupted at the command line"
    return "aborted", "the connection was lost before the whole document was in" if reason else "it was ended from outside"


def ask_to_end(url: str, company: str, import_id: str) -> None:
    """Cancel an import, whichever process runs it.  Raises psycopg.Error BD002 if there is none, BD004 if it has ended."""
    with _writer(url, company) as connection:
        connection.execute("select bds.import_cancel(%s, %s)", (company, import_id))


def _writer(url: str, company: str) -> psycopg.Connection[Any]:
    connection = db.connect(url, "bds_writer")
    try:
        connection.execute("select set_config('bds.company', %s, false)", (company,))
    except BaseException:
        connection.close()
        raise
    return connection


def _copy(connection: psycopg.Connection[Any], table: str, columns: tuple[str, ...], data: bytes) -> None:
    statement = sql.SQL("copy {} ({}) from stdin " + COPY_OPTIONS).format(
        sql.SQL(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),  # the database quoted the name
    )
    with connection.cursor().copy(statement) as copy:
        copy.write(data)


def _value(connection: psycopg.Connection[Any], query: LiteralString, arguments: tuple[Any, ...]) -> Any:
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def _wrong_directive(name: str, reason: str) -> ServiceError:
    return ServiceError("invalid_directive", f"{name}: {reason}", target=name)
