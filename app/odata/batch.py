"""$batch of the extended profile: up to MAX_PARTS GETs in one body, JSON or multipart, read in one snapshot, answered in order.

parse_json, parse_multipart   a body -> Parts
respond                       Parts -> one streamed answer; each part is answered as it would be alone

The parts run one after the other on one connection: in parallel, a client would take as many connections as it has parts.

Without the preference continue-on-error the answer ends with the first part that fails, as the standard wants it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

import psycopg
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from app.database.database import Database
from app.database.generations import Demand, check, read_demand
from app.database.pool.session import Session
from app.database.servers.reads import require_generation
from app.errors import RETRY_AFTER, ServiceError
from app.odata.plan import get_plan
from app.odata.request import (
    JsonFormat,
    check_options,
    check_version,
    error_content,
    is_batch,
    read_generation,
    read_options,
    takes_newest,
)
from app.odata.response import Reading, answer, open_rows, open_snapshot, unchanged
from app.query.check.moments import read_moment
from app.wire.bodies import body_deadline
from app.wire.streams import Streams, stream
from app.wire.urls import MAX_URL, decode_path

MAX_PARTS = 100
CONTINUE = re.compile(r"(?:^|[,;])\s*(?:odata\.)?continue-on-error\s*(?:=\s*\"?true\"?\s*)?(?:$|[,;])", re.IGNORECASE)
# headers of a part's answer
KEPT = ("Content-Type", "OData-Version", "ETag", "Warning", "Preference-Applied", "Vary", "Allow", "Retry-After")


@dataclass(frozen=True, slots=True)
class Part:
    """A request inside the body.  after: ids of parts without which it is not run."""

    id: str | None
    method: str
    url: str
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartAnswer:
    status: int
    headers: dict[str, str]
    body: bytes
    blocks: AsyncGenerator[bytes, None] | None = None  # the rest of the body


# Bodies ---------------------------------------------------------------------------------------------------------------------------


def parse_json(body: bytes) -> list[Part]:
    """The parts of a JSON body: {"requests": [{"id", "method", "url", "headers"}]}.  Raises malformed_request."""
    try:
        requests = json.loads(body)["requests"]
        parts = [_json_part(each) for each in requests]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        expected = '{"requests": [{"id": "1", "method": "get", "url": "products"}]}'
        raise ServiceError("malformed_request", f"expected a body such as {expected}") from None
    if len({part.id for part in parts}) < len(parts):
        raise ServiceError("malformed_request", "two requests have the same id")
    return parts


def _json_part(given: dict[str, Any]) -> Part:
    id, method, url = given["id"], given["method"], given["url"]
    headers, after = given.get("headers", {}), given.get("dependsOn", [])
    if not all(isinstance(text, str) for text in (id, method, url, *headers, *headers.values(), *after)):
        raise TypeError
    return Part(id, method.upper(), url, CIMultiDict(headers), tuple(after))


def parse_multipart(body: bytes, boundary: str) -> list[Part]:
    """The parts of a multipart/mixed body, each of the type application/http.  Raises malformed_request."""
    pieces = re.split(rb"(?:^|\r?\n)--" + re.escape(boundary.encode()) + rb"(--)?[ \t]*(?=\r?\n|$)", body)
    # before the first boundary, then for each boundary whether it is the last, and what follows it
    if len(pieces) < 3 or b"--" not in pieces[1::2]:
        raise ServiceError("malformed_request", f"expected parts between --{boundary} and --{boundary}--")
    last = pieces[1::2].index(b"--")
    return [_multipart_part(piece) for piece in pieces[2::2][:last]]


def _multipart_part(piece: bytes) -> Part:
    outer, _, inner = _split_head(piece.lstrip(b"\r\n"))
    headers = _read_headers(outer)
    if headers.get("Content-Type", "").lower().startswith("multipart/mixed"):
        return Part(headers.get("Content-ID"), "POST", "", headers)  # a change set, of which nothing is read
    start, _, rest = inner.lstrip(b"\r\n").partition(b"\n")
    words = start.decode("latin-1").split()
    if not headers.get("Content-Type", "").lower().startswith("application/http") or len(words) != 3:
        expected = "application/http with a line such as GET products HTTP/1.1"
        raise ServiceError("malformed_request", f"expected parts of the type {expected}")
    given = _read_headers(_split_head(rest)[0])
    return Part(headers.get("Content-ID", given.get("Content-ID")), words[0].upper(), words[1], given)


def _split_head(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split at the first empty line; one at the start ends an empty head."""
    found = re.search(rb"(?:^|\r?\n)\r?\n", data)
    return (data[: found.start()], found[0], data[found.end() :]) if found else (data, b"", b"")


def _read_headers(head: bytes) -> CIMultiDict[str]:
    lines = (line.partition(":") for line in head.decode("latin-1").splitlines())
    return CIMultiDict((name.strip(), value.strip()) for name, colon, value in lines if colon)


# Answers --------------------------------------------------------------------------------------------------------------------------


async def respond(database: Database, request: web.Request, streams: Streams, company: str) -> web.StreamResponse:
    """Answer a POST of $batch by an authorized client.  Raises ServiceError, psycopg.Error, TimeoutError."""
    check_version(request.headers)
    options = read_options(request.rel_url.raw_path_qs)
    check_options("$batch", options)
    require_generation(read_generation(options))
    outer = request.clone()  # whose body is not read, so that parts can be made of it
    kind, boundary = request.content_type, _boundary(request)
    if kind not in ("application/json", "multipart/mixed") or (kind == "multipart/mixed" and not boundary):
        expected = "application/json, or multipart/mixed with a boundary"
        raise ServiceError("unsupported_media_type", f"expected {expected}, got {request.headers.get('Content-Type', 'none')}")
    async with body_deadline():
        body = await request.read()
    parts = parse_json(body) if kind == "application/json" else parse_multipart(body, boundary or "")
    if len(parts) > MAX_PARTS:
        raise ServiceError("malformed_request", f"expected at most {MAX_PARTS} requests, got {len(parts)}")
    is_json = kind == "application/json"  # whatever Accept says: a client that sends the one form reads no other
    goes_on = CONTINUE.search(",".join(request.headers.getall("Prefer", ()))) is not None
    batch = Batch(database, outer, streams, company, is_json, goes_on)
    type = JsonFormat().content_type if is_json else f"multipart/mixed; boundary={batch.boundary}"
    headers = {"Content-Type": type, "Cache-Control": "private, no-store"}
    if takes_newest(request.headers):
        headers["OData-Version"] = "4.01"
    _, at, moment = decode_path(request.rel_url.raw_path)[2].partition("@")
    async with AsyncExitStack() as held:
        await held.enter_async_context(streams.slot())
        connection = await held.enter_async_context(open_snapshot(database, company, read_moment(moment) if at else None))
        return await stream(request, batch.blocks(connection, parts), headers, streams, held)


def _boundary(request: web.Request) -> str | None:
    found = re.search(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', request.headers.get("Content-Type", ""), re.IGNORECASE)
    return (found[1] or found[2]) if found else None


@dataclass(frozen=True, slots=True)
class Batch:
    """The answer to the parts of one request.  goes_on: whether parts are answered after one that failed."""

    database: Database
    request: web.Request
    streams: Streams
    company: str
    is_json: bool
    goes_on: bool
    boundary: str = field(default_factory=lambda: f"batch_{secrets.token_hex(16)}")

    async def blocks(self, connection: Session, parts: Sequence[Part]) -> AsyncGenerator[bytes, None]:
        """Yield the body of the answer."""
        statuses: dict[str | None, int] = {}
        yield b'{"responses":[' if self.is_json else b""
        for number, part in enumerate(parts):
            async with aclosing(self.part(connection, part, statuses, is_first=number == 0)) as blocks:
                async for block in blocks:
                    yield block
            if statuses[part.id] >= 400 and not self.goes_on:
                break
        yield b"]}" if self.is_json else f"--{self.boundary}--\r\n".encode()

    async def part(
        self, connection: Session, part: Part, statuses: dict[str | None, int], *, is_first: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield the answer to a part, in the form of the body; note its status."""
        try:
            if any(statuses.get(id, 404) >= 400 for id in part.after):
                raise ServiceError("failed_dependency", "a request on which this one depends has failed or comes later")
            answered = await self.read(connection, part)
        except ServiceError as error:
            body = json.dumps(error_content(error), ensure_ascii=False).encode("utf-8", "replace")
            answered = PartAnswer(error.status, {"Content-Type": JsonFormat().content_type, **error.headers}, body)
        statuses[part.id] = answered.status
        yield self.start(part, answered, is_first) + self.inline(answered)
        if answered.blocks is not None:
            async with aclosing(answered.blocks) as blocks:
                async for block in blocks:
                    yield block
            await connection.execute("close rows")
            await connection.execute(f"set local statement_timeout = '{self.database.config.statement_timeout:d}s'".encode())
        yield b"}" if self.is_json else b"\r\n"

    def start(self, part: Part, answered: PartAnswer, is_first: bool) -> bytes:
        """What stands before the body of a part's answer."""
        headers = {"OData-Version": "4.0"} | {name: value for name, value in answered.headers.items() if name in KEPT}
        if answered.status in RETRY_AFTER:
            headers.setdefault("Retry-After", RETRY_AFTER[answered.status])
        if answered.status == 204 or headers.get("Content-Type", "").startswith("text/plain"):
            headers.pop("ETag", None)  # UI5 writes it into the JSON object of the answer, and fails if there is none
        if self.is_json:
            about = json.dumps({"id": part.id, "status": answered.status, "headers": headers}, ensure_ascii=False)
            has_body = answered.body or answered.blocks is not None
            return ("" if is_first else ",").encode() + about[:-1].encode() + (b',"body":' if has_body else b"")
        id = f"Content-ID: {part.id}\r\n" if part.id is not None else ""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        status = f"HTTP/1.1 {answered.status} {web.Response(status=answered.status).reason}\r\n"
        outer = f"--{self.boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n{id}\r\n"
        return f"{outer}{status}{lines}\r\n".encode("latin-1", "replace")

    def inline(self, answered: PartAnswer) -> bytes:
        """The body of an answer inside the batch's: text inside of JSON is a string."""
        is_text = self.is_json and answered.body and not answered.headers["Content-Type"].startswith("application/json")
        return json.dumps(answered.body.decode()).encode() if is_text else answered.body

    async def read(self, connection: Session, part: Part) -> PartAnswer:
        """Answer a part.  Raises ServiceError; then the snapshot can still be used."""
        inner = self.inner(part)
        plan, key = await get_plan(self.database.catalog, inner, extended=True)
        reading = Reading(self.database, inner, plan, key, self.streams, connection)
        await connection.execute("savepoint part")
        try:
            if plan.request.generation is not None:
                await check(connection, self.company, Demand(plan.request.generation))
            if demand := read_demand(inner.headers):
                await check(connection, self.company, demand)
            response = await unchanged(reading) if plan.is_stream else await answer(reading)
            if response is None:
                headers, start, blocks = await open_rows(reading, connection)
                if blocks is None:
                    await connection.execute("close rows")
                return PartAnswer(200, headers, start or b"", blocks)
            if plan.delta is not None:  # without the settings of its range
                await connection.execute("rollback to savepoint part")
            return PartAnswer(response.status, dict(response.headers), response.body)
        except ServiceError:
            await connection.execute("rollback to savepoint part")
            raise
        except psycopg.errors.QueryCanceled:
            await connection.execute("rollback to savepoint part")
            raise ServiceError("busy", "the database did not answer in time; try again later") from None

    def inner(self, part: Part) -> web.Request:
        """The part as a request of its own.  Raises ServiceError for anything but a GET below the service root."""
        if part.method != "GET":
            raise ServiceError("method_not_allowed", "this interface is read-only: expected GET", headers={"Allow": "GET"})
        if len(part.url) > MAX_URL:
            raise ServiceError("uri_too_long", f"expected a URL of at most {MAX_URL:,} bytes")
        root = self.request.rel_url.raw_path.rstrip("/").rpartition("/")[0] + "/"
        url = re.sub(r"^https?://[^/?#]*", "", part.url, count=1, flags=re.IGNORECASE)
        path, _, query = (url if url.startswith("/") else root + url).partition("#")[0].partition("?")
        if not path.startswith(root) or "/../" in f"{path}/" or re.search("[^\x21-\x7e]", path + query):
            raise ServiceError("malformed_request", f"expected a percent-encoded URL below {root}")
        if is_batch(path):
            raise ServiceError("not_supported", "a $batch inside $batch is not supported")
        headers = part.headers.copy()
        if "OData-MaxVersion" in self.request.headers:
            headers.setdefault("OData-MaxVersion", self.request.headers["OData-MaxVersion"])
        for name in ("Host", "Authorization", "Accept-Encoding"):
            headers.popall(name, None)
        target = URL.build(path=path, query_string=query, encoded=True)
        request = self.request
        return request.clone(method="GET", rel_url=target, headers=headers, scheme=request.scheme, host=request.host)
