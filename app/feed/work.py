"""The work of an import over HTTP: stage the document as it arrives, then compare and write; a revert has no document.

It has a task of its own (app/feed/background.py), because the request's task is cancelled when its client leaves.  A client that
leaves before the whole body has arrived ends its import; one that leaves later does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

import psycopg

from app.database.database import Database
from app.database.servers.place import Place
from app.errors import ServiceError
from app.feed import background, reports
from app.feed.background import at_the_end, in_thread
from app.feed.origin import Origin
from app.feed.requests import Claim, status_of
from app.feed.revert import Revert
from app.feed.run import Import, Moved
from app.feed.selection import Selection
from app.feed.small import Writers
from app.mapper.document import SourceConverter

SMALL_BODY = 1 << 16  # bytes of a document that is read by the thread that runs it
CHECK = 0.5  # seconds between two checks, during a wait, whether the import was cancelled

T = TypeVar("T")


async def import_body(
    database: Database,
    company: str,
    origin: Origin,
    bodies: AsyncIterator[bytes],
    converter: SourceConverter | None = None,
    *,
    dry_run: bool = False,
    is_async: bool = False,
    claim: Claim | None = None,
    limit: int | None = None,
    turn: float | None = None,
) -> tuple[int, dict[str, Any]]:
    """Import the chunks of a body; returns (status, report), with is_async 202 once the whole body has arrived.

    limit: bytes of the document, by default the service's; turn: seconds that a dry run may have the company's turn, by default
    as many as it needs.  Raises ServiceError if nothing of the document could be imported.
    """
    await database.wait_for_departure(company)
    place = database.place(company)
    importing = Import(
        place.url,
        database.catalog,
        company,
        origin=origin,
        dry_run=dry_run,
        limit=database.config.import_max if limit is None else limit,
        turn=turn,
        converter=converter,
        writers=place.writers.session,
        moved=_moved(database, company, place),
        claim=claim,
    )
    return await _in_background(database, importing, bodies, is_async)


async def revert(
    database: Database,
    company: str,
    actor: str,
    selection: Selection,
    *,
    is_async: bool = False,
    claim: Claim | None = None,
    turn: float | None = None,
) -> tuple[int, dict[str, Any]]:
    """Undo changes; returns (status, report), with is_async 202 at once.  Raises ServiceError."""
    await database.wait_for_departure(company)
    place = database.place(company)
    reverting = Revert(
        *(place.url, database.catalog, company, await selection.resolve(database, company)),
        force=selection.force,
        actor=actor,
        dry_run=selection.dry_run,
        turn=turn,
        moved=_moved(database, company, place),
        claim=claim,
    )
    return await _in_background(database, reverting, one_body(), is_async)


async def one_body(*bodies: bytes) -> AsyncIterator[bytes]:
    """A body that has arrived, or none."""
    for body in bodies:
        yield body


def _moved(database: Database, company: str, place: Place) -> Moved:
    """For an import, which runs in threads: finds the company after `place` has refused it."""
    loop, former = asyncio.get_running_loop(), place

    def moved(error: psycopg.Error) -> tuple[str, Writers]:
        nonlocal former
        former = asyncio.run_coroutine_threadsafe(database.moved(company, former, error), loop).result()
        return former.url, former.writers.session

    return moved


async def _in_background(
    database: Database, importing: Import, bodies: AsyncIterator[bytes], is_async: bool
) -> tuple[int, dict[str, Any]]:
    """Start the work and wait for its end, or, with is_async, until the body has arrived."""
    arrived = asyncio.Event()
    if importing.claim:
        importing.claim.is_begun = True
    work = background.start(importing, _import(importing, bodies, arrived, is_async))
    try:
        if is_async and await _has_arrived(work, arrived):
            background.log_failure(importing, work)
            try:
                return 202, await reports.show(database, importing.company, str(importing.id))
            except Exception as error:  # the import goes on nevertheless
                raise _with_id(error, importing.id) from None
        report = await asyncio.shield(work)
    except asyncio.CancelledError:  # the client has left
        background.log_failure(importing, work)
        raise
    return status_of(report), report


async def _has_arrived(work: asyncio.Task[Any], arrived: asyncio.Event) -> bool:
    """Wait for the whole body, or for the end of its import; whether the body has arrived."""
    waiting = asyncio.create_task(arrived.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return arrived.is_set()


_turns: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()


async def _import(importing: Import, bodies: AsyncIterator[bytes], arrived: asyncio.Event, is_async: bool) -> dict[str, Any]:
    """Stage a body, set `arrived`, compare and write; returns the report.  After any error nothing stays.

    An import that waits for something, or whose client does not wait for its end, begins at once, so that it can be watched.
    """
    if is_async:
        await in_thread(importing.begin)
    # Imports of one company queue for this lock, which costs no thread and no connection.
    turn = _turns.setdefault((asyncio.get_running_loop(), importing.company), asyncio.Lock())
    try:
        small = await _stage(importing, bodies, is_async)
        if importing.claim:
            await importing.claim.note(is_async)
        arrived.set()
        await _unless_ended(importing, turn.acquire())
    except BaseException as error:
        await _read_on(importing, bodies, error)
        await at_the_end(background.fail, importing, error)
        await at_the_end(background.release_memory)
        raise _with_id(error, importing.id) from None
    try:
        return await in_thread(_run, importing, small)
    finally:
        turn.release()
        if small is None:
            await at_the_end(background.release_memory)


async def _stage(importing: Import, bodies: AsyncIterator[bytes], is_async: bool) -> bytes | None:
    """Stage a body as it arrives.  Returns a small one instead, which `_run` stages: each switch to a thread takes time.

    One that a converter reads is staged here, for that may take long, and is not worth the company's turn.
    """
    rest, is_small = b"", not (is_async or importing.is_converted)
    while (chunk := await _unless_ended(importing, anext(bodies, None))) is not None:
        rest += chunk
        if len(rest) > SMALL_BODY:
            await in_thread(importing.receive, rest)
            rest, is_small = b"", False
    if is_small:
        return rest
    await in_thread(_receive_rest, importing, rest)
    return None


async def _read_on(importing: Import, bodies: AsyncIterator[bytes], error: BaseException) -> None:
    """Read the rest of a body that was refused, which its claim hashes: requests that repeat it get the same answer."""
    if importing.claim and importing.claim.is_kept(error) and getattr(error, "code", None) != "cancelled":
        with contextlib.suppress(ServiceError, OSError):
            while await _unless_ended(importing, anext(bodies, None)) is not None:
                pass


async def _unless_ended(importing: Import, work: Awaitable[T]) -> T:
    """Wait for something.  If that takes long, the import begins.

    Raises ServiceError `cancelled` or `aborted` once the import has to end.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=CHECK))[0]:
            importing.raise_if_ended()
            await in_thread(importing.begin)
        return task.result()
    finally:
        task.cancel()


def _receive_rest(importing: Import, rest: bytes) -> None:
    if rest:
        importing.receive(rest)
    importing.received()


def _run(importing: Import, small: bytes | None) -> dict[str, Any]:
    """Compare and write.  small: a document that is to be staged first."""
    try:
        if small:
            importing.receive(small)
        return importing.run()
    except BaseException as error:
        background.fail(importing, error)
        raise _with_id(error, importing.id) from None


def _with_id(error: BaseException, import_id: UUID | None) -> BaseException:
    """The error with the import's id, which its answer will name."""
    if import_id is not None:
        more: dict[str, Any] = getattr(error, "more", {})
        error.more = {"importId": str(import_id)} | more  # type: ignore[attr-defined]
    return error
