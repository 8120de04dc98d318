"""Imports over HTTP: the body goes to the import as it arrives, the answer is the report.

The work is done in threads, so that other requests go on; a client that sends slowly holds no connection, one that sends nothing
for a while is cut off, one that leaves before the whole body is in ends its import, one that leaves afterwards does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from aiohttp import StreamReader, web

from app.db import Database
from app.errors import ServiceError
from app.feed import under_way
from app.feed.coding import decoded
from app.feed.run import ask_to_end
from app.feed.under_way import Served
from app.mapper import store
from app.mapper.document import Mapped
from app.wire import body_in_time, page

T = TypeVar("T")

CHUNK = 1 << 20  # bytes that are handed over at once
PATIENCE = 120  # seconds without a byte of the body
WAIT = 5  # seconds for a cancelled import to end
LOOK = 0.5  # seconds between two looks whether it is


async def receive(database: Database, request: web.Request, company: str, actor: str) -> tuple[int, dict[str, Any]]:
    """Import a request's body; returns (status, report).  Raises ServiceError when nothing of the document could be imported.

    The work has a task of its own: the request's is cancelled when its client leaves.
    """
    options = _options(request)
    source = None
    if "mapper" in request.query:
        mapper = await store.load_source(database, company, request.query["mapper"])
        store.require_type(mapper, request.content_type)
        source = Mapped(mapper, request.charset)
    else:
        _require_json(request)
    bodies = decoded(gathered(lambda: _read(request.content)), request.headers.get("Content-Encoding", ""))
    is_async = "respond-async" in _preferences(request)
    return await take(database, company, actor, bodies, source, dry_run=options["dryRun"], is_async=is_async)


async def take(
    database: Database,
    company: str,
    actor: str,
    bodies: AsyncIterator[bytes],
    source: Mapped | None = None,
    *,
    dry_run: bool = False,
    is_async: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Import what comes of a body; (status, report), with `is_async` 202 as soon as the whole body is in.  Raises as `receive`."""
    limit = database.config.import_max
    feed = Served(database.url, database.catalog, company, actor=actor, dry_run=dry_run, limit=limit, source=source)
    arrived = asyncio.Event()
    work = under_way.begin(feed, _import(feed, bodies, arrived))
    try:
        if is_async and await _has_arrived(work, arrived):
            under_way.nobody_waits(feed, work)
            try:
                return 202, await show(database, company, str(feed.id))
            except Exception as error:  # the import goes on all the same
                raise _with_id(error, feed.id) from None
        report = await asyncio.shield(work)
    except asyncio.CancelledError:  # the client has left
        under_way.nobody_waits(feed, work)
        raise
    return 422 if report["state"] == "failed" else 200, report


async def _has_arrived(work: asyncio.Task[Any], arrived: asyncio.Event) -> bool:
    """Whether the whole body is in, unless its import ends before that."""
    waiting = asyncio.create_task(arrived.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return arrived.is_set()


_turns: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
_threads = ThreadPoolExecutor(32, thread_name_prefix="import")
_ends = ThreadPoolExecutor(4, thread_name_prefix="import end")  # of imports: they wait for none that runs


async def _import(feed: Served, bodies: AsyncIterator[bytes], arrived: asyncio.Event) -> dict[str, Any]:
    """Stage a body, say that it has arrived, compare and write; if anything fails, nothing stays."""
    await _in_thread(feed.begin)
    # Imports of one company queue here, where it costs nothing, and not in threads that others need.
    turn = _turns.setdefault((asyncio.get_running_loop(), feed.company), asyncio.Lock())
    try:
        while (chunk := await _unless_cancelled(feed, anext(bodies, None))) is not None:
            await _in_thread(feed.receive, chunk)
        await _in_thread(feed.complete)
        arrived.set()
        await _unless_cancelled(feed, turn.acquire())
    except BaseException as error:
        await asyncio.shield(_in_thread(feed.abort, error, threads=_ends))
        raise _with_id(error, feed.id) from None
    try:
        return await _in_thread(_run_or_abort, feed)
    finally:
        turn.release()


async def _unless_cancelled(feed: Served, work: Awaitable[T]) -> T:
    """Wait for something, which may take long, but not when somebody has cancelled the import.  Raises ServiceError `cancelled`."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK))[0]:
            feed.check_cancelled()
        return task.result()
    finally:
        task.cancel()


async def _in_thread(work: Callable[..., T], *arguments: Any, threads: ThreadPoolExecutor | None = None) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads or _threads, work, *arguments)


def _run_or_abort(feed: Served) -> dict[str, Any]:
    try:
        return feed.run()
    except BaseException as error:
        feed.abort(error)
        raise _with_id(error, feed.id) from None


def _with_id(error: BaseException, import_id: UUID | None) -> BaseException:
    """The error, whose answer is to name the import that it met."""
    if import_id is not None:
        more: dict[str, Any] = getattr(error, "more", {})
        error.more = {"importId": str(import_id)} | more  # type: ignore[attr-defined]
    return error


def _options(request: web.Request) -> dict[str, bool]:
    for name in request.query:
        if name not in ("dryRun", "mapper"):
            raise ServiceError("malformed_request", f"expected dryRun or mapper, got {name}", target=name)
    dry_run = request.query.get("dryRun", "false").lower()
    if dry_run not in ("true", "false"):
        raise ServiceError("malformed_request", f"dryRun: expected true or false, got {dry_run}", target="dryRun")
    return {"dryRun": dry_run == "true"}


def _require_json(request: web.Request) -> None:
    """Raises unsupported_media_type unless the body is said to be JSON, which is UTF-8 (RFC 8259)."""
    if request.content_type != "application/json":
        raise ServiceError("unsupported_media_type", f"expected application/json, got {request.content_type}")
    charset = request.charset or "utf-8"
    if charset.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ServiceError("unsupported_media_type", f"JSON is sent as UTF-8, not as {charset}", target="Content-Type")


def _preferences(request: web.Request) -> set[str]:
    """The preferences of a request (RFC 7240), without their values."""
    given = ",".join(request.headers.getall("Prefer", []))
    return {each.partition(";")[0].partition("=")[0].strip().lower() for each in given.split(",")}


async def preview(database: Database, request: web.Request, company: str, name: str) -> bytes:
    """The first records that a mapper makes of a request's body, as an import document."""
    mapper = await store.load_source(database, company, name)
    store.require_type(mapper, request.content_type)
    bodies = decoded(gathered(lambda: _read(request.content)), request.headers.get("Content-Encoding", ""))
    limit = request.query.get("limit", str(store.DEFAULT_LIMIT))
    return await store.preview(mapper, bodies, limit, request.charset, _in_thread)


async def gathered(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """A body as it arrives, read until b"", in pieces that are worth a thread's while."""
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
    """What has arrived of a body, b"" at its end.

    Raises ConnectionError if the client has left before that, ServiceError `request_timeout` if it sends nothing.
    """
    try:
        async with body_in_time(PATIENCE, "more of the body"):
            return await body.readany()
    except ConnectionError:
        if not body.is_eof():
            raise
        body.set_exception(None)  # type: ignore[arg-type]  # it left after the last byte: what has arrived is still to be read
        return await body.readany()


async def show(database: Database, company: str, import_id: str) -> dict[str, Any]:
    """The report of one import.  Raises not_found."""
    async with database.session(company) as connection:
        cursor = await connection.execute("select bds.import_report(%s, %s)", (company, _uuid(import_id)))
        row = await cursor.fetchone()
    assert row is not None
    report: dict[str, Any] = row[0]
    return report


async def cancel(database: Database, company: str, import_id: str) -> None:
    """End an import that is under way, and wait a while for its end.  Raises not_found, conflict if it has ended."""
    number = _uuid(import_id)
    await _in_thread(ask_to_end, database.url, company, number, threads=_ends)
    for _ in range(WAIT * 10):
        if (await show(database, company, number))["finishedAt"]:
            return
        await asyncio.sleep(0.1)


async def imports(database: Database, company: str, options: list[tuple[str, str]]) -> dict[str, Any]:
    """A page of imports, newest first, without their errors."""
    limit, offset = page(options)
    async with database.session(company) as connection:
        cursor = await connection.execute(
            "select bds.import_report(i.company_id, i.id, false) from bds.imports i where i.company_id = %s"
            " order by i.number desc limit %s offset %s",
            (company, limit + 1, offset),
        )
        rows = [row[0] for row in await cursor.fetchall()]
    return {"data": rows[:limit], "hasMore": len(rows) > limit}


async def errors(database: Database, company: str, import_id: str, options: list[tuple[str, str]]) -> dict[str, Any]:
    """A page of an import's errors, in the document's order.  Raises not_found."""
    limit, offset = page(options)
    async with database.session(company) as connection:
        await connection.execute("select bds.open_import(%s, %s)", (company, _uuid(import_id)))
        cursor = await connection.execute(
            "select json_object('path': path, 'record': record, 'code': code, 'message': message) from bds.import_errors"
            " where company_id = %s and import_id = %s and n > %s order by n limit %s",
            (company, import_id, offset, limit + 1),
        )
        rows = [row[0] for row in await cursor.fetchall()]
    return {"data": rows[:limit], "hasMore": len(rows) > limit}


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ServiceError("not_found", f"there is no import {text}") from None


def dump(report: dict[str, Any]) -> bytes:
    """A report as it is sent."""
    return json.dumps(report, ensure_ascii=False).encode()
