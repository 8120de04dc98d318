"""One import from its first byte to its report: stage the document block by block, let the database compare and write.

The calls are synchronous, for a worker thread or a command.  While the document arrives no connection is held: each block of
8 MB takes one for as long as its COPY lasts.  The whole document is staged before the first business row is written.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from app import db
from app.catalog import Catalog
from app.errors import ServiceError
from app.feed.document import Directive, Document, Records
from app.feed.rows import COPY_OPTIONS, Rows
from app.feed.source import Source, note_places

log = logging.getLogger("bds.feed")

STAGE_BYTES = 8 << 20  # staged lines that wait before they are copied
HEARTBEAT = 4.0  # seconds between signs of life
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
        self._dry_run = dry_run
        self._limit = limit
        self._on_progress = on_progress or (lambda *_: None)
        self._source = source  # turns the bytes that are received into those of a document; None: they are one
        self._document = Document()
        self._rows = Rows(catalog)
        self._staging: dict[str, str] = {}
        self._atomic = "batch"
        self._number = 0
        self._done = 0
        self._stopped = threading.Event()
        self._turn = threading.Lock()  # an abort waits for the block that is being staged

    def begin(self) -> UUID:
        """Make the import known.  Raises psycopg.Error BD002 if there is no such company."""
        with self._writer() as connection, connection.transaction():
            connection.execute("select bds.set_context(%s, %s)", (self.company, self._actor))
            row = connection.execute("select bds.import_begin(%s, %s, %s)", (self.company, self._actor, self._dry_run)).fetchone()
            assert row is not None
            self.id = row[0]
            row = connection.execute("select number from bds.find_import(%s, %s)", (self.company, self.id)).fetchone()
            assert row is not None
            self._number = row[0]
        threading.Thread(target=self._beat, name=f"import {self.id}", daemon=True).start()
        return self.id

    def receive(self, data: bytes) -> None:
        """Take in the next bytes of the document.  Raises ServiceError if it is malformed, not an import document, or too large."""
        with self._turn:
            self.bytes += len(data)
            if self._limit is not None and self.bytes > self._limit:
                raise ServiceError("too_large", f"the document is larger than {self._limit} bytes")
            for part in self._document.feed(self._source.feed(data) if self._source else data):
                self._take(part)
        self._phase("receiving")

    def run(self) -> dict[str, Any]:
        """The document is complete: compare, write, report."""
        for part in self._document.feed(self._source.finish() if self._source else b""):
            self._take(part)
        for part in self._document.finish():
            self._take(part)
        self._flush()
        with self._writer() as connection:
            connection.execute("set temp_buffers = '64MB'")  # for the comparison's temporary tables
            connection.execute("set client_connection_check_interval = '2s'")  # should this process die, its turn ends with it
            connection.execute(
                "select bds.import_received(%s, %s, %s, %s, %s)",
                (self.company, self.id, self._atomic, self.bytes, self._rows.records),
            )
            report = self._compare_and_write(connection)
        self._phase("done", self._rows.records)
        self._stopped.set()
        return report

    def abort(self, state: str = "failed") -> None:
        """End the import without a result: what was staged is dropped, what was written is rolled back already."""
        self._stopped.set()
        if self.id is None:
            return
        with self._turn, self._writer() as connection:
            connection.execute(
                "select bds.import_progress(%s, %s, %s, %s, 0)", (self.company, self.id, self.bytes, self._rows.records)
            )
            connection.execute("select bds.import_fail(%s, %s, %s)", (self.company, self.id, state))

    # Staging.

    def _take(self, part: Records | Directive) -> None:
        if isinstance(part, Directive):
            self._direct(part)
            return
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
        elif name.endswith("@removeAll") and value is False:
            pass  # what holds for a collection at the top level anyway
        else:
            raise _wrong_directive(name, f"{value!r} is not supported here")

    def _flush(self) -> None:
        with self._writer() as connection:
            for entity, table, data in self._rows.take():
                _copy(connection, self._staging_table(connection, entity), table.columns, data)
            if self._rows.errors:
                columns = ("entity", "ordinal", "field", "code", "message")
                _copy(connection, f"staging.i{self._number}_errors", columns, self._rows.take_errors())
            connection.execute(
                "select bds.import_progress(%s, %s, %s, %s, 0)", (self.company, self.id, self.bytes, self._rows.records)
            )

    def _staging_table(self, connection: psycopg.Connection[Any], entity: str) -> str:
        if entity not in self._staging:
            row = connection.execute("select bds.import_stage(%s, %s, %s)", (self.company, self.id, entity)).fetchone()
            assert row is not None
            self._staging[entity] = row[0]
        return self._staging[entity]

    # Running.

    def _compare_and_write(self, connection: psycopg.Connection[Any]) -> dict[str, Any]:
        arguments = (self.company, self.id)
        with connection.transaction():
            self._phase("comparing")
            connection.execute("select bds.import_prepare(%s, %s)", arguments)
            written = _value(connection, "select bds.import_may_write(%s, %s)", arguments)
            counts: dict[str, Any] = {}
            if written:
                order = _value(connection, "select bds.import_order(%s)", (self._number,))
                try:
                    with connection.transaction(force_rollback=self._dry_run):
                        counts = self._write(connection, order)
                except (psycopg.errors.IntegrityError, psycopg.errors.DataError) as error:
                    written = False
                    self._note_refusal(connection, error)
            report: dict[str, Any] = _value(
                connection, "select bds.import_finish(%s, %s, %s, %s)", (*arguments, Jsonb(counts), written)
            )
            if self._source and note_places(connection, *arguments, self._source):
                report = _value(connection, "select bds.import_report(%s, %s)", arguments)
        return report

    def _write(self, connection: psycopg.Connection[Any], order: list[str]) -> dict[str, Any]:
        counts: dict[str, Any] = {}
        done = 0
        for entity in order:
            self._phase(f"writing {entity}", done)
            counts |= _value(connection, "select bds.import_write(%s, %s, %s)", (self.company, self.id, entity))
            done += self._rows.tables[entity].positions
        for entity in order:
            counts = _value(connection, "select bds.import_remove(%s, %s, %s, %s)", (self.company, self.id, entity, Jsonb(counts)))
        return counts

    def _note_refusal(self, connection: psycopg.Connection[Any], error: psycopg.Error) -> None:
        """The database refused what every check had passed: say where, without its words, which may quote other rows."""
        log.warning("import %s was refused: %s %s", self.id, error.sqlstate, error.diag.constraint_name)
        code = {"23505": "already_exists", "23503": "in_use", "23502": "required"}.get(error.sqlstate or "", "invalid_value")
        rule = f"the rule {error.diag.constraint_name}" if error.diag.constraint_name else f"the database ({error.sqlstate})"
        connection.execute(
            "select bds.import_add_error(%s, %s, %s, null, %s, %s)",
            (self.company, self.id, error.diag.table_name or "document", code, f"{rule} refused it"),
        )

    @contextlib.contextmanager
    def _writer(self) -> Iterator[psycopg.Connection[Any]]:
        with db.connect(self._url, "bds_writer") as connection:
            connection.execute("select set_config('bds.company', %s, false)", (self.company,))
            yield connection

    # Signs of life, from a thread of its own: whoever sees none for a while takes the import for dead.

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT):
            with contextlib.suppress(psycopg.Error), self._writer() as connection:
                connection.execute(
                    "select bds.import_progress(%s, %s, %s, %s, %s)",
                    (self.company, self.id, self.bytes, self._rows.records, self._done),
                )

    def _phase(self, name: str, done: int = 0) -> None:
        self._done = done
        self._on_progress(name, self.bytes, self._rows.records, done)


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
