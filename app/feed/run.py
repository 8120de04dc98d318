"""One import from its first byte to its report: stage the whole document, then let the database compare and write.

A small document (staging.py) is imported in one transaction (small.py); nothing is to be seen of it before.  The others, and those
that are told to begin(), are staged in as many transactions as it takes, and may be watched and cancelled.

The states of an import, and what moves it on:

    begin() --> receiving --- received() ---> running --- run() ---> completed | partial | failed
                    |                            |
                    +------- fail(reason) -------+-----------------> failed | cancelled

The caller moves it on; if a call raises, the caller calls fail().  What else ends it:

cancel        cancel_import(), in any process, marks the import.  The heartbeat finds the mark, the caller's next or running call
              raises `cancelled`, and after fail() the state is cancelled
service stop  stop(): the caller's next or running call raises `aborted`, and after fail() the state is failed
dead process  no sign of life for 20 seconds: maintenance (bds.reap_imports) ends the import, code `aborted`

run() leaves the import completed if no record failed, failed if every record did (one is enough with @atomic true), else partial.
The same transitions in SQL: bds.import_begin, import_received, import_run, import_fail, import_cancel.  Only run() writes business
rows, in one transaction.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from app.database import connections
from app.database.catalog import Catalog
from app.errors import REPLACED, SQLSTATES, ServiceError, disk_full
from app.feed.converter import Converter, note_positions
from app.feed.heartbeat import Heartbeat, Progress, show_progress
from app.feed.idle_connection import IdleConnection
from app.feed.origin import UNKNOWN, Origin
from app.feed.proposal import over_time
from app.feed.requests import Claim
from app.feed.small import NotSmall, Writers, import_small
from app.feed.staging import Staging

log = logging.getLogger("bds.feed")

RUNS = 2  # how often staged rows are run at most; a second time if bds migrate replaced functions during the first
LONG_READING = 0.5  # seconds after which a document that is being read belongs to an import that has begun
STOP_TIMEOUT = 8.0  # seconds that an import has to end when the service stops
NOTICE = re.compile(r"((\w+).*): (\d+) of (\d+) rows done")  # of bds.import_run; its first word is bds.imports.phase
WAITING = "waiting for "  # how a notice of bds.lock_company begins: the company's turn has a holder

# given the error of a place that lacks the company: connection string and writers of its place; raises it if it has not moved
Moved = Callable[[psycopg.Error], tuple[str, Writers]]
OnProgress = Callable[[str, int, int, int], None]  # phase, bytes, records, done


class Import:
    """An import of one document into one company.  The calls are synchronous, for a worker thread or a command.

    receive() the bytes, run(); begin() before makes the import one that can be watched.  After any exception call fail(): it
    removes everything that was staged, and keeps why.  writers: lends a session of bds_writer for small imports; by default one is
    opened.  turn: seconds for which a dry run may have the company's turn, None without a limit.  moved: finds a company that lives
    at another place by now.  claim: of the request's Idempotency-Key.
    """

    def __init__(
        self,
        url: str,
        catalog: Catalog,
        company: str,
        *,
        origin: Origin = UNKNOWN,
        dry_run: bool = False,
        limit: int | None = None,
        turn: float | None = None,
        on_progress: OnProgress | None = None,
        converter: Converter | None = None,
        writers: Writers | None = None,
        moved: Moved | None = None,
        claim: Claim | None = None,
    ) -> None:
        self.company = company
        self.dry_run = dry_run
        self.id: UUID | None = None
        self.claim = claim
        self._url = url
        self._origin = origin
        self._turn = turn
        self._on_progress = on_progress or (lambda *_: None)
        self._converter = converter
        self._connection = IdleConnection(self._connect)
        self._staging = Staging(self._connection, self._begin, catalog, company, limit, converter, origin.file)
        self._writers: Writers = writers or self._connect
        self._moved = moved
        self._heartbeat = Heartbeat(self._connect, company, self._progress)
        self._done = 0  # records; one that is compared but not written counts half
        self._phase: str | None = None  # of bds.import_run
        self._waiting_for: str | None = None  # the turn of the company, and its holder
        self._is_received = False
        self._is_staged = False
        self._is_stopped = False
        self._lock = threading.Lock()  # fail() waits for a call that is staging

    @property
    def is_converted(self) -> bool:
        """Whether a converter makes the document of what is received."""
        return self._converter is not None

    @property
    def claimed_id(self) -> UUID | None:
        """The id that the import has to have."""
        return self.claim.id if self.claim else None

    def begin(self) -> UUID:
        """Begin, if that is not done yet: the import is receiving.  Raises psycopg.Error BD002 if there is no such company."""
        if self.id is None:
            self._begin()
        assert self.id is not None
        return self.id

    def _begin(self) -> tuple[UUID, int]:
        """Begin; returns the import's id and number."""
        try:
            return self._begin_here()
        except psycopg.Error as error:
            if self.id is not None:
                raise
            self._follow(error)
            return self._begin_here()

    def _follow(self, error: psycopg.Error) -> None:
        """Go on where the company has moved to.  Raises the error if it has not."""
        if self._moved is None or error.sqlstate != "BD002":
            raise error
        self._url, self._writers = self._moved(error)

    @contextlib.contextmanager
    def _staying(self) -> Iterator[None]:
        """Raise ServiceError `busy` if the company moves away during the block: what is staged does not move along.

        The same if a failover has lost the import.
        """
        try:
            with self._telling_departure():
                yield
        except psycopg.Error as error:
            try:
                self._follow(error)
            except psycopg.Error:
                if error.sqlstate in ("BD002", psycopg.errors.UndefinedTable.sqlstate) and self._is_lost():
                    raise lost() from None
                raise
            self.id = None
            message = "the company was moved to another place before the import ran; send the document again"
            raise ServiceError("busy", message, headers={"Retry-After": "1"}) from None

    @contextlib.contextmanager
    def _telling_departure(self) -> Iterator[None]:
        """Replace an error over staged rows by its cause.

        BD002: the company has moved, with all that it had here; `aborted`: it was taken for dead while this process was stopped.
        """
        try:
            yield
        except psycopg.errors.UndefinedTable:
            with self._connect() as connection, connection.transaction():
                connection.execute("select bds.set_context(%s)", (self.company,))
                query = "select finished_at is not null from bds.imports where company_id = %s and id = %s"
                if connection.execute(query, (self.company, self.id)).fetchone() == (True,):
                    message = "the import is failed, because its process had stopped responding; send the document again"
                    raise ServiceError("aborted", message) from None
            raise

    def _is_lost(self) -> bool:
        """Whether the import is not there although it has begun: the database goes on from an earlier state."""
        query: LiteralString = "select not exists (select from bds.imports where company_id = %s and id = %s)"
        with self._connect() as connection, connection.transaction():
            connection.execute("select bds.set_context(%s)", (self.company,))
            return self.id is not None and bool(connections.one_value(connection, query, self.company, self.id))

    def _begin_here(self) -> tuple[UUID, int]:
        with self._connection.use() as connection, connection.transaction():
            connection.execute("select bds.set_context(%s, %s)", (self.company, self._origin.actor))
            import_id = self.id or connections.one_value(
                connection,
                "select bds.import_begin(%s, %s, %s, file => %s, mapper => %s, claimed_id => %s)",
                *(self.company, self._origin.actor, self.dry_run, self._origin.file, self._origin.mapper, self.claimed_id),
            )
            query: LiteralString = "select number from bds.imports where company_id = %s and id = %s"
            number = connections.one_value(connection, query, self.company, import_id)
        if self.id is None:
            self.id = import_id
            self._heartbeat.start(import_id)
        return import_id, number

    def receive(self, data: bytes) -> None:
        """Stage the next bytes of the document.

        Raises ServiceError if it is malformed, not an import document or too large, and as raise_if_ended; psycopg.Error.
        """
        with self._lock, self._staying():
            self.raise_if_ended()
            self._staging.receive(data)
        self._show("receiving")

    def received(self) -> None:
        """Read the rest of the document, which has no more bytes, and stage it unless it is small.

        Raises as receive; may be repeated.
        """
        with self._lock, self._staying():
            if self._is_received:
                return
            self._staging.finish(self._looking())  # of a workbook this is the whole reading
            self.raise_if_ended()
            self._is_received = True
            if self.id is not None or not self._staging.is_small:
                self._stage()

    def _looking(self) -> Callable[[], None]:
        """Called now and then while a document is read; if that takes long, the import begins, so that it can be watched."""
        started = time.monotonic()

        def look() -> None:
            self.raise_if_ended()
            if self.id is None and time.monotonic() - started > LONG_READING:
                self._begin()

        return look

    def _stage(self) -> None:
        """Stage what is not staged yet: the import is running."""
        self._staging.flush()
        self.raise_if_ended()
        staged, directives = self._staging, self._staging.directives
        with self._connection.use() as connection:
            connection.execute(
                "select bds_service.import_received(%s, %s, %s, %s, %s, %s)",
                (self.company, self.id, directives.atomic, staged.bytes, staged.records, directives.remove_all),
            )
        self._is_staged = True

    def run(self) -> dict[str, Any]:
        """Compare and write; returns the report: the import is completed, partial or failed.  Raises as receive."""
        self.received()
        try:
            report = self._run()
        except psycopg.errors.TransactionTimeout:
            if self._turn is None:
                raise
            raise over_time() from None
        except psycopg.errors.QueryCanceled:
            self.look_if_cancelled()
            self.raise_if_ended()
            raise
        self._show("done", self._staging.records)
        self._heartbeat.stop()
        return report

    def _run(self) -> dict[str, Any]:
        if self.id is None and self._turn is None:
            with contextlib.suppress(NotSmall):
                try:
                    return self._run_small()
                except psycopg.Error as error:
                    self._follow(error)
                    return self._run_small()
        with self._staying():
            if not self._is_staged:
                self._stage()
            return self._run_staged()

    def _run_small(self) -> dict[str, Any]:
        self.raise_if_ended()
        report = import_small(
            self._writers,
            self._heartbeat,
            self._staging,
            self.company,
            self.dry_run,
            self._origin,
            self._converter,
            self.claimed_id,
        )
        self.id = UUID(report["importId"])
        return report

    def _run_staged(self) -> dict[str, Any]:
        """Run what is staged, again if objects that it uses were replaced: a run is one transaction, of which nothing stays."""
        for _ in range(RUNS - 1):
            try:
                return self._run_large()
            except psycopg.Error as error:
                if error.sqlstate not in REPLACED:
                    raise
                log.info("import %s of %s runs again: %s", self.id, self.company, type(error).__name__)
        return self._run_large()

    def _run_large(self) -> dict[str, Any]:
        try:
            with self._connection.use() as connection:
                connection.add_notice_handler(self._on_notice)
                connection.execute("set temp_buffers = '128MB'")  # for the comparison's temporary tables
                # PostgreSQL ends the session, and with it the company's turn, soon after this process has died
                connection.execute("set client_connection_check_interval = '2s'")
                with self._heartbeat.watch(connection), connection.transaction():
                    self.raise_if_ended()
                    if self._turn is not None:
                        self._limit_turn(connection, self._turn)
                    report: dict[str, Any] = connections.one_value(
                        connection, "select bds.import_run(%s, %s)", self.company, self.id
                    )
                    if self._converter and note_positions(connection, self.company, self.id, self._converter):
                        report = connections.one_value(connection, "select bds.import_report(%s, %s)", self.company, self.id)
                    return report
        finally:
            self._connection.close()

    def _limit_turn(self, connection: psycopg.Connection[Any], seconds: float) -> None:
        """Wait for the company's turn, and let PostgreSQL end the session if the transaction has it for so many seconds.

        A timeout of statements would not end a transaction whose process hangs.  The setting begins to count only if it was 0.
        """
        named = "select bds.set_context(%s, %s), set_config('lock_timeout', '0', true)"
        connection.execute(named, (self.company, self._origin.actor))
        connection.execute("select bds.lock_company(%s)", (self.company,))
        connection.execute("set local transaction_timeout = 0")
        connection.execute("select set_config('transaction_timeout', %s, true)", (str(round(seconds * 1000)),))

    def fail(self, reason: BaseException | None = None) -> None:
        """Drop what was staged and keep the reason: the import is cancelled, if that is the reason's code, else failed.

        No effect on an import that has ended.  Raises psycopg.Error.
        """
        code, message = _describe(reason)
        self._heartbeat.stop()
        # there is no such company, or the claim was lost
        if self.id is None and not (isinstance(reason, psycopg.Error) and reason.sqlstate in ("BD002", "BD003")):
            self._begin()
            self._heartbeat.stop()
        if self.id is None:
            self._end_unlisted(reason)
            return
        with self._lock:
            with contextlib.suppress(OSError):  # a temporary file that could not be written cannot be flushed either
                self._staging.close()
            self._connection.close()
            state = "cancelled" if code == "cancelled" else "failed"
            try:
                self._end_listed(state, code, message, reason)
            except psycopg.Error as error:
                if error.sqlstate != "BD002":
                    raise
                self._end_unlisted(reason)  # a failover has lost it, or the company is gone

    def _end_listed(self, state: str, code: str, message: str, reason: BaseException | None) -> None:
        with self._connect() as connection:
            show_progress(connection, self.company, self.id, self._progress())
            with connection.transaction():
                connection.execute("select bds.import_fail(%s, %s, %s, %s, %s)", (self.company, self.id, state, code, message))
                if self.claim:
                    self.claim.end(connection, reason, self.id)

    def _end_unlisted(self, reason: BaseException | None) -> None:
        """End the request of an import that is not listed."""
        if self.claim:
            with self._connect() as connection:
                self.claim.end(connection, reason, None)

    def stop(self) -> None:
        """Make the import raise `aborted` soon, because the service ends; no effect once it is written.  Raises psycopg.Error."""
        self._is_stopped = True
        self._heartbeat.cancel_statement(STOP_TIMEOUT)

    def raise_if_ended(self) -> None:
        """Raises ServiceError `cancelled` once the heartbeat has noticed a cancel, `aborted` after stop()."""
        if self._heartbeat.is_cancelled:
            raise cancelled()
        if self._is_stopped:
            raise stopped()

    def look_if_cancelled(self) -> bool:
        """Ask the database, without waiting for the heartbeat, whether the import was cancelled.  Raises psycopg.Error."""
        return self.id is not None and self._heartbeat.look()

    def _connect(self) -> psycopg.Connection[Any]:
        return connect_writer(self._url, self.company)

    def _on_notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        message = diagnostic.message_primary or ""
        self._waiting_for = message.removeprefix(WAITING) if message.startswith(WAITING) else None
        if self._waiting_for:
            self._show(message)
        elif match := NOTICE.fullmatch(message):
            self._phase = match[2]
            self._show(match[1], self._staging.records * int(match[3]) // int(match[4]))

    def _progress(self) -> Progress:
        return Progress(self._staging.bytes, self._staging.records, self._done, self._waiting_for, self._phase)

    def _show(self, phase: str, done: int = 0) -> None:
        self._done = max(self._done, done)  # a comparison may be repeated
        self._on_progress(phase, self._staging.bytes, self._staging.records, self._done)


def cancelled() -> ServiceError:
    return ServiceError("cancelled", "the import was cancelled")


def stopped() -> ServiceError:
    return ServiceError("aborted", "the service was stopped before the import had ended; nothing was written")


def lost() -> ServiceError:
    message = "the database goes on from an earlier state, which does not have the import; send the document again"
    return ServiceError("busy", message, headers={"Retry-After": "1"})


def _describe(reason: BaseException | None) -> tuple[str, str]:
    """The code and the message that the import's report keeps."""
    if isinstance(reason, BaseException):
        reason = disk_full(reason) or reason
    if isinstance(reason, ServiceError):
        return reason.code, reason.message
    if isinstance(reason, psycopg.Error) and reason.sqlstate in SQLSTATES:
        return SQLSTATES[reason.sqlstate], reason.diag.message_primary or ""
    if isinstance(reason, psycopg.Error):
        return "aborted", f"the database refused or ended the import ({reason.sqlstate or 'no connection'})"
    if isinstance(reason, KeyboardInterrupt):
        return "aborted", "the import was interrupted at the command line"
    if reason is None:
        return "aborted", "the import was ended from outside"
    return "aborted", "the connection was lost before the whole document had arrived"


def cancel_import(url: str, company: str, import_id: str) -> None:
    """Cancel an import that any process runs.  Raises psycopg.Error BD002 if there is no such import, BD004 if it has ended."""
    with connect_writer(url, company) as connection:
        connection.execute("select bds.import_cancel(%s, %s)", (company, import_id))


def connect_writer(url: str, company: str) -> psycopg.Connection[Any]:
    """A connection that may write in a company.  Raises psycopg.Error."""
    connection = connections.connect(url, "bds_writer")
    try:
        connection.execute("select set_config('bds.company', %s, false)", (company,))
    except BaseException:
        connection.close()
        raise
    return connection
