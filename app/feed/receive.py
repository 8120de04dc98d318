"""Requests for imports: reads options and headers, and the body as it arrives.

A slow client holds no connection; a client that sends nothing for BODY_TIMEOUT seconds is cut off.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from aiohttp import StreamReader, content_disposition_filename, parse_content_disposition, web

from app import formats
from app.database.database import Database
from app.errors import ServiceError
from app.feed import work
from app.feed.background import in_thread
from app.feed.origin import Origin, file_name
from app.feed.proposal import Sender
from app.feed.requests import Answer, Claim, answer, key_of
from app.feed.selection import of_change_set, read_body
from app.mapper import store
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from app.wire.bodies import FORM_TYPES, asks_nothing, bare_body, body_deadline, refuse_body, require_utf8, small_body
from app.wire.coding import decoded

CHUNK = 1 << 20  # bytes handed to a thread at once
BODY_TIMEOUT = 120  # seconds without a byte of the body


async def import_request(database: Database, request: web.Request, company: str, sender: Sender) -> Answer:
    """Import a request's body.  Raises ServiceError if nothing of the document could be imported."""
    key_of(request)
    dry_run, limit = _dry_run(request), sender.limit(database.config.import_max)
    sender.require(dry_run=dry_run)
    converter = await _converter(database, request, company, limit)
    origin = Origin(sender.actor, _file_name(request), request.query.get("mapper"))
    is_async = _responds_async(request)

    def begin(claim: Claim | None, bodies: AsyncIterator[bytes]) -> Awaitable[tuple[int, dict[str, Any]]]:
        how: dict[str, Any] = {"dry_run": dry_run, "is_async": is_async, "limit": limit, "turn": sender.turn}
        return work.import_body(database, company, origin, bodies, converter, claim=claim, **how)

    return await answer(database, request, company, _bodies(request), is_async=is_async, work=begin, limit=limit)


async def revert_request(
    database: Database, request: web.Request, company: str, sender: Sender, change_set: str | None = None
) -> Answer:
    """Undo a change set, or what the body selects.  Raises ServiceError."""
    key_of(request)
    for name in _names(request):
        if name not in ("dryRun", "force") or change_set is None:
            expected = "no parameters" if change_set is None else "dryRun or force"
            raise ServiceError("malformed_request", f"expected {expected}, got {name}", target=name)
    options = _booleans(request, "dryRun", "force")
    is_async = _responds_async(request)
    no_body = ": dryRun and force are parameters, as in ?dryRun=true"
    if request.content_type in FORM_TYPES:
        await refuse_body(request, no_body)
    body = await small_body(request) if change_set is None else await bare_body(request)

    async def begin(claim: Claim | None, bodies: AsyncIterator[bytes]) -> tuple[int, dict[str, Any]]:
        async for _ in bodies:
            pass
        if change_set is None:
            selection = read_body(body)
        elif not asks_nothing(body):
            raise ServiceError("malformed_request", f"expected no body{no_body}")
        else:
            selection = of_change_set(change_set, dry_run=options["dryRun"], force=options["force"])
        sender.require(dry_run=selection.dry_run)
        how: dict[str, Any] = {"is_async": is_async, "claim": claim, "turn": sender.turn}
        return await work.revert(database, company, sender.actor, selection, **how)

    limit = database.config.import_max
    return await answer(database, request, company, work.one_body(body), is_async=is_async, work=begin, limit=limit)


async def preview(database: Database, request: web.Request, company: str, name: str) -> bytes:
    """The first records that a mapper makes from a request's body, as an import document."""
    for given in _names(request):
        if given != "limit":
            raise ServiceError("malformed_request", f"expected limit at most, got {given}", target=given)
    mapper = await store.load_source(database, company, name)
    store.require_type(mapper, request.content_type)
    limit = request.query.get("limit", str(store.DEFAULT_LIMIT))
    return await store.preview(mapper, _bodies(request), limit, request.charset, in_thread, database.config.import_max)


async def _converter(database: Database, request: web.Request, company: str, limit: int) -> SourceConverter | None:
    """What makes an import document of the body: a mapper, or that of an export; None if the body is one."""
    if "mapper" in request.query:
        mapper = await store.load_source(database, company, request.query["mapper"])
        store.require_type(mapper, request.content_type)
    elif "entity" in request.query:
        format = formats.read_as(request.content_type)
        if format is None:
            message = f"expected {formats.READABLE_MEDIA_TYPES} beside entity=, got {request.content_type}"
            raise ServiceError("unsupported_media_type", message, target="Content-Type")
        mapper = exported_mapper(database.catalog, request.query["entity"], format)
    else:
        _require_json(request)
        return None
    return SourceConverter(mapper, request.charset, limit)


def _dry_run(request: web.Request) -> bool:
    """Whether the import is a dry run.  Raises malformed_request for a parameter that imports do not have."""
    for name in _names(request):
        if name not in ("dryRun", "entity", "mapper"):
            raise ServiceError("malformed_request", f"expected dryRun, entity or mapper, got {name}", target=name)
    if "entity" in request.query and "mapper" in request.query:
        message = "expected entity or mapper, got both: a mapper names its entities itself"
        raise ServiceError("malformed_request", message, target="entity")
    return _booleans(request, "dryRun")["dryRun"]


def _names(request: web.Request) -> Iterator[str]:
    """The names of its parameters.  Raises malformed_request for one that is given twice."""
    for name in request.query:
        if len(request.query.getall(name)) > 1:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        yield name


def _booleans(request: web.Request, *names: str) -> dict[str, bool]:
    values = {name: request.query.get(name, "false") for name in names}
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
    require_utf8(request, "JSON")


def _file_name(request: web.Request) -> str | None:
    """The name that Content-Disposition gives the body (RFC 6266)."""
    if "Content-Disposition" not in request.headers:
        return None
    with warnings.catch_warnings(), contextlib.suppress(LookupError, UnicodeError):  # an import does without a malformed one
        warnings.simplefilter("ignore")
        _, parameters = parse_content_disposition(request.headers.get("Content-Disposition"))
        return file_name(content_disposition_filename(parameters, "filename"))
    return None


def _responds_async(request: web.Request) -> bool:
    """Whether the client prefers not to wait for the end (RFC 7240)."""
    given = ",".join(request.headers.getall("Prefer", []))
    return "respond-async" in {each.partition(";")[0].partition("=")[0].strip().lower() for each in given.split(",")}


def _bodies(request: web.Request) -> AsyncIterator[bytes]:
    """The chunks of the decoded body."""
    return decoded(gathered(lambda: _read(request.content)), request.headers.get("Content-Encoding", ""))


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
