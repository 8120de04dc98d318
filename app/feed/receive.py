"""Imports over HTTP: the body goes to the import as it arrives, the answer is the report.

Threads do the work, so that other requests go on.  A slow client holds no connection; a client that sends nothing for BODY_TIMEOUT
seconds is cut off.  A client that leaves before the whole body has arrived ends its import; one that leaves later does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

import psycopg
from aiohttp import StreamReader, content_disposition_filename, parse_content_disposition, web

from app import formats
from app.database.database import Database
from app.database.listing import listing
from app.database.place import Place
from app.errors import ServiceError
from app.feed import background
from app.feed.origin import Origin, file_name
from app.feed.proposal import Sender
from app.feed.requests import Answer, Claim, answer, key_of, status_of
from app.feed.revert import Revert
from app.feed.run import Import, Moved, cancel_import
from app.feed.selection import Selection, of_change_set, read_body
from app.feed.small import Writers
from app.mapper import store
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from app.wire.bodies import bare_body, body_deadline, small_body
from app.wire.coding import decoded
from app.wire.urls import read_page

T = TypeVar("T")

CHUNK = 1 << 20  # bytes handed to a thread at once
SMALL_BODY = 1 << 16  # bytes of a document that is read by the thread that runs it
BODY_TIMEOUT = 120  # seconds without a byte of the body
CANCEL_TIMEOUT = 5  # seconds that a cancel waits for the import to end
CANCEL_POLL = 0.1  # seconds between two looks whether it has ended
CHECK = 0.5  # seconds between two checks, during a wait, whether the import was cancelled


async def import_request(database: Database, request: web.Request, company: str, sender: Sender) -> Answer:
    """Import a request's body.  Raises ServiceError if nothing of the document could be imported."""
    key_of(request)
    options = _options(request)
    sender.require(dry_run=options["dryRun"])
    converter, limit = None, sender.limit(database.config.import_max)
    if "mapper" in request.query:
        mapper = await store.load_source(database, company, request.query["mapper"])
        store.require_type(mapper, request.content_type)
        converter = SourceConverter(mapper, request.charset, limit)
    elif "entity" in request.query:
        format = formats.read_as(request.content_type)
        if format is None:
            message = f"expected {formats.READABLE_MEDIA_TYPES} beside entity=, got {request.content_type}"
            raise ServiceError("unsupported_media_type", message, target="Content-Type")
        exported = exported_mapper(database.catalog, request.query["entity"], format)
        converter = SourceConverter(exported, request.charset, limit)
    else:
        _require_json(request)
    bodies = decoded(gathered(lambda: _read(request.content)), request.headers.get("Content-Encoding", ""))
    is_async = "respond-async" in _preferences(request)
    origin = Origin(sender.actor, _file_name(request), request.query.get("mapper"))

    def work(claim: Claim | None, bodies: AsyncIterator[bytes]) -> Awaitable[tuple[int, dict[str, Any]]]:
        how: dict[str, Any] = {"dry_run": options["dryRun"], "is_async": is_async, "limit": limit, "turn": sender.turn}
        return import_body(database, company, origin, bodies, converter, claim=claim, **how)

    return await answer(database, request, company, bodies, is_async=is_async, work=work, limit=limit)


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
    as many as it needs.  The work has a task of its own, because the request's task is cancelled when its client leaves.  Raises as
    import_request.
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


async def revert_request(
    database: Database, request: web.Request, company: str, sender: Sender, change_set: str | None = None
) -> Answer:
    """Undo a change set, or what the body selects.  Raises ServiceError."""
    key = key_of(request)
    for name in request.query:
        if name not in ("dryRun", "force") or change_set is None:
            expected = "no parameters" if change_set is None else "dryRun or force"
            raise ServiceError("malformed_request", f"expected {expected}, got {name}", target=name)
    options = _booleans(request, "dryRun", "force")
    is_async = "respond-async" in _preferences(request)
    # a change set needs no body; with a key it tells one request from another
    body = await small_body(request) if change_set is None else await bare_body(request) if key else b""

    async def work(claim: Claim | None, bodies: AsyncIterator[bytes]) -> tuple[int, dict[str, Any]]:
        async for _ in bodies:
            pass
        selection = (
            read_body(body) if change_set is None else of_change_set(change_set, dry_run=options["dryRun"], force=options["force"])
        )
        sender.require(dry_run=selection.dry_run)
        how: dict[str, Any] = {"is_async": is_async, "claim": claim, "turn": sender.turn}
        return await revert(database, company, sender.actor, selection, **how)

    limit = database.config.import_max
    return await answer(database, request, company, _bodies(body), is_async=is_async, work=work, limit=limit)


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
    """Undo changes; returns (status, report), with is_async 202 at once.  Raises as revert_request."""
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
    return await _in_background(database, reverting, _bodies(), is_async)


async def _bodies(*bodies: bytes) -> AsyncIterator[bytes]:
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
    arrived = asyncio.Event()
    if importing.claim:
        importing.claim.is_begun = True
    work = background.start(importing, _import(importing, bodies, arrived, is_async))
    try:
        if is_async and await _has_arrived(work, arrived):
            background.log_failure(importing, work)
            try:
                return 202, await show(database, importing.company, str(importing.id))
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
_threads = ThreadPoolExecutor(32, thread_name_prefix="import")
_ends = ThreadPoolExecutor(4, thread_name_prefix="import end")  # for the ends of imports, which must not wait for running ones


async def _import(importing: Import, bodies: AsyncIterator[bytes], arrived: asyncio.Event, is_async: bool) -> dict[str, Any]:
    """Stage a body, set `arrived`, compare and write; returns the report.  After any error nothing stays.

    An import that waits for something, or whose client does not wait for its end, begins at once, so that it can be watched.
    """
    if is_async:
        await _in_thread(importing.begin)
    # Imports of one company queue for this lock, which costs no thread and no connection.
    turn = _turns.setdefault((asyncio.get_running_loop(), importing.company), asyncio.Lock())
    rest, is_whole = b"", True  # what is not read yet; whether that is the whole document
    try:
        while (chunk := await _unless_ended(importing, anext(bodies, None))) is not None:
            rest += chunk
            if len(rest) > SMALL_BODY:
                await _in_thread(importing.receive, rest)
                rest, is_whole = b"", False
        # a converter may take long, and is not worth the company's turn
        if is_async or not is_whole or importing.is_converted:
            await _in_thread(_receive_rest, importing, rest)
            rest = b""
        if importing.claim:
            await importing.claim.note(is_async)
        arrived.set()
        await _unless_ended(importing, turn.acquire())
    except BaseException as error:
        await _read_on(importing, bodies, error)
        await asyncio.shield(_in_thread(background.fail, importing, error, threads=_ends))
        await asyncio.shield(_in_thread(background.release_memory, threads=_ends))
        raise _with_id(error, importing.id) from None
    try:
        return await _in_thread(_run, importing, rest)
    finally:
        turn.release()
        if not is_whole:
            await _in_thread(background.release_memory, threads=_ends)


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
            await _in_thread(importing.begin)
        return task.result()
    finally:
        task.cancel()


async def _in_thread(work: Callable[..., T], *arguments: Any, threads: ThreadPoolExecutor | None = None) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads or _threads, work, *arguments)


def _receive_rest(importing: Import, rest: bytes) -> None:
    if rest:
        importing.receive(rest)
    importing.received()


def _run(importing: Import, rest: bytes) -> dict[str, Any]:
    """Read the rest of the document, compare and write.  A small document is read here: each switch to a thread takes time."""
    try:
        _receive_rest(importing, rest)
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


def _options(request: web.Request) -> dict[str, bool]:
    for name in request.query:
        if name not in ("dryRun", "entity", "mapper"):
            raise ServiceError("malformed_request", f"expected dryRun, entity or mapper, got {name}", target=name)
    if "entity" in request.query and "mapper" in request.query:
        message = "expected entity or mapper, got both: a mapper names its entities itself"
        raise ServiceError("malformed_request", message, target="entity")
    return _booleans(request, "dryRun")


def _booleans(request: web.Request, *names: str) -> dict[str, bool]:
    values = {name: request.query.get(name, "false").lower() for name in names}
    for name, value in values.items():
        if value not in ("true", "false"):
            raise ServiceError("malformed_request", f"{name}: expected true or false, got {value}", target=name)
    return {name: value == "true" for name, value in values.items()}


def _require_json(request: web.Request) -> None:
    """Raises unsupported_media_type unless the body is declared as JSON, which is UTF-8 (RFC 8259)."""
    if request.content_type != "application/json":
        message = (
            f"expected application/json, got {request.content_type}; add entity=<entity> for {formats.READABLE_LABELS} as an export"
            " writes it, or mapper=<name> for a file that this mapper reads"
        )
        raise ServiceError("unsupported_media_type", message)
    charset = request.charset or "utf-8"
    if charset.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ServiceError("unsupported_media_type", f"expected JSON in UTF-8, got {charset}", target="Content-Type")


def _file_name(request: web.Request) -> str | None:
    """The name that Content-Disposition gives the body (RFC 6266)."""
    if "Content-Disposition" not in request.headers:
        return None
    with warnings.catch_warnings(), contextlib.suppress(LookupError, UnicodeError):  # an import does without a malformed one
        warnings.simplefilter("ignore")
        _, parameters = parse_content_disposition(request.headers.get("Content-Disposition"))
        return file_name(content_disposition_filename(parameters, "filename"))
    return None


def _preferences(request: web.Request) -> set[str]:
    """The preferences of a request (RFC 7240), without their values."""
    given = ",".join(request.headers.getall("Prefer", []))
    return {each.partition(";")[0].partition("=")[0].strip().lower() for each in given.split(",")}


async def preview(database: Database, request: web.Request, company: str, name: str) -> bytes:
    """The first records that a mapper makes from a request's body, as an import document."""
    mapper = await store.load_source(database, company, name)
    store.require_type(mapper, request.content_type)
    bodies = decoded(gathered(lambda: _read(request.content)), request.headers.get("Content-Encoding", ""))
    limit = request.query.get("limit", str(store.DEFAULT_LIMIT))
    return await store.preview(mapper, bodies, limit, request.charset, _in_thread, database.config.import_max)


async def gathered(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """The chunks of a body, read until b"", each large enough to be worth a switch to a thread."""
    waiting: list[bytes] = []
    size = 0
    while data := await read():
        waiting.append(data)
        size += len(data)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


async def _read(body: StreamReader) -> bytes:
    """The bytes of a body that have arrived, b"" at its end.

    Raises ConnectionError if the client leaves before the end, ServiceError `request_timeout` if it sends nothing.
    """
    try:
        async with body_deadline(BODY_TIMEOUT, "more of the body"):
            return await body.readany()
    except ConnectionError:
        if not body.is_eof():
            raise
        body.set_exception(None)  # type: ignore[arg-type]  # it left after the last byte: the rest is still in the buffer
        return await body.readany()


async def show(database: Database, company: str, import_id: str, actor: str | None = None) -> dict[str, Any]:
    """The report of one import, with an actor of one that it began.  Raises not_found."""
    async with database.session(company) as connection:
        cursor = await connection.execute("select bds.import_report(%s, %s)", (company, _uuid(import_id)))
        row = await cursor.fetchone()
    assert row is not None
    report: dict[str, Any] = row[0]
    if actor is not None and report["actor"] != actor:
        raise ServiceError("not_found", f"company {company} has no import {report['importId']}")
    return report


async def cancel(database: Database, company: str, import_id: str) -> None:
    """Cancel an import, and wait up to CANCEL_TIMEOUT seconds for its end.  Raises not_found, conflict if it has ended."""
    number = _uuid(import_id)
    await _in_thread(cancel_import, database.place(company).url, company, number, threads=_ends)
    for _ in range(round(CANCEL_TIMEOUT / CANCEL_POLL)):
        if (await show(database, company, number))["finishedAt"]:
            return
        await asyncio.sleep(CANCEL_POLL)


async def imports(database: Database, company: str, options: list[tuple[str, str]], actor: str | None = None) -> dict[str, Any]:
    """A page of imports, with an actor of those that it began; newest first, without their errors."""
    limit, offset = read_page(options)
    async with database.session(company) as connection:
        return await listing(
            connection,
            "select bds.import_report(i.company_id, i.id, false) from bds.imports i where i.company_id = %s"
            " and (%s::text is null or i.actor = %s) order by i.number desc limit %s offset %s",
            (company, actor, actor),
            limit,
            offset,
        )


async def errors(
    database: Database, company: str, import_id: str, options: list[tuple[str, str]], actor: str | None = None
) -> dict[str, Any]:
    """A page of an import's errors, in the document's order; with an actor of one that it began.  Raises not_found."""
    limit, offset = read_page(options)
    await show(database, company, import_id, actor)
    async with database.session(company) as connection:
        return await listing(
            connection,
            "select json_object('path': path, 'record': record, 'code': code, 'message': message) from bds.import_errors"
            " where company_id = %s and import_id = %s and n > %s order by n limit %s",
            (company, import_id, offset),
            limit,
        )


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ServiceError("not_found", f"no such import: {text}") from None


def dump(report: dict[str, Any]) -> bytes:
    """A report as JSON."""
    return json.dumps(report, ensure_ascii=False).encode()
