"""The middleware of every request: a request id, errors in the form of their area, headers, the log line, metrics.

An error under /api/odata is an OData error, on a page a page, elsewhere problem+json (RFC 9457).  An unexpected failure gives the
client nothing but the request id under which the log has it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count

import psycopg
from aiohttp import web

from app import deprecations, logs, metrics
from app.auth.login import ACTOR
from app.database.caller import CALLER, Caller
from app.database.database import Database
from app.database.generations import last_event, read_demand
from app.database.servers.reads import Reads, reading
from app.errors import ALTERED, ERRORS, REPLACED, RETRY_AFTER, ServiceError, disk_full, of_database
from app.odata.request import JsonFormat, error_content, is_batch, refused_method
from app.service.logged_path import logged_path
from app.service.sockets import EXHAUSTED
from app.types import exact_json
from app.wire import answers
from app.wire.cors import cors_headers, preflight
from app.wire.proxies import apply_forwarded
from app.wire.routing import methods_of
from app.wire.target import Target, read_target

log = logging.getLogger("bds.http")

DATABASE = web.AppKey("database", Database)
TARGET = web.RequestKey("target", Target)
REQUEST_ID = web.RequestKey("request_id", str)
MAY_READ = web.RequestKey("may_read", bool)  # whether the sender may know of the path's company
IS_SECURE = web.RequestKey("is_secure", bool)  # whether the client spoke HTTPS, with the service or with a trusted proxy
CLIENT_ID = re.compile(r"[\x21-\x7e]{1,100}")  # a request id that a client may choose
READ_METHODS = frozenset({"GET", "HEAD"})
READ_AREAS = frozenset({"odata", "changes", "export"})  # what a replica may serve
# of /api: what is written there tells a full disk by a status of its own
WRITTEN_AREAS = frozenset({"import", "mappers", "export"})
GENERATION = "X-BDS-Generation"
CLIENT_LEFT = 499  # status in the log when the client left before its answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _make_ids() -> Iterator[str]:
    """Request ids with a prefix for the process, which is drawn with the first request: processes are forked after the imports."""
    process = secrets.token_hex(6)
    for number in count(1):
        yield f"{process}{number:x}"


_ids = _make_ids()

# Renders an error as a page; returns None if the request is not for a page.
FAILURE_PAGE: web.AppKey[Callable[[web.Request, ServiceError], web.Response | None]] = web.AppKey("failure_page")


@web.middleware
async def wrap_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request an id and a target, turn exceptions into responses, log and count the request."""
    wanted = request.headers.get("X-Request-Id")
    id = wanted if wanted and CLIENT_ID.fullmatch(wanted) else next(_ids)
    path = _raw_path(request)
    request[REQUEST_ID], request[TARGET] = id, (target := read_target(path))
    seen = apply_forwarded(request, request.app[DATABASE].config.trusted_proxies)
    request[IS_SECURE] = seen.secure  # for `add_headers`, which aiohttp calls with the original request
    if seen is not request:
        seen[IS_SECURE] = seen.secure
        request = seen
    started, status, answered = time.perf_counter(), CLIENT_LEFT, logs.Answered(id)
    request.writer.on_body_write = answered.add
    token, _ = logs.REQUEST.set(answered), CALLER.set(Caller(request.remote, id))  # the next request sets its own
    metrics.http.in_progress += 1
    try:
        if request.method == "CONNECT":
            raise wrong_method(request.app, path)
        response = preflight(request, target, request.app[DATABASE].config.cors_origins) or await _answer(request, handler)
        status = response.status
        if isinstance(response, answers.Answer):
            await add_headers(request, response)
        return _sized(request, response, answered)
    except Exception as error:
        failure = to_service_error(error, id, tells_disk=target.area in WRITTEN_AREAS and request.method not in READ_METHODS)
        if request.writer.output_size:
            raise ConnectionResetError("the response had begun") from error
        status = failure.status
        answered.rows = 0  # what was read for another answer is not sent
        response = request.app[FAILURE_PAGE](request, failure) or error_response(failure, is_odata=target.is_odata)
        return _sized(request, response, answered)
    finally:
        metrics.http.in_progress -= 1
        _note(request, status, answered, time.perf_counter() - started)
        logs.REQUEST.reset(token)


def _sized(request: web.Request, response: web.StreamResponse, answered: logs.Answered) -> web.StreamResponse:
    """Note the size of a whole body, which is sent after it was logged; returns the response."""
    if not answered.size and request.method != "HEAD":
        answered.size = response.content_length or 0
    return response


def _note(request: web.Request, status: int, answered: logs.Answered, seconds: float) -> None:
    """Log and count an answered request."""
    target, is_routed = request[TARGET], request.match_info.http_exception is None
    record = logs.AccessRecord(
        time.time(),
        answered.id,
        request.remote,
        request.method,
        logged_path(request, _raw_path(request), target, request.app[DATABASE].catalog),
        target.area if is_routed else "none",
        target.shown_company if is_routed else None,
        request.get(ACTOR),
        status,
        0 if request.method == "HEAD" else answered.rows,
        answered.size,
        seconds,
    )
    metrics.http.count(record)
    logs.write_access(record)


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run the handler; a read again, if what it uses was replaced meanwhile.  Raises ServiceError(busy) if that was a migration."""
    may_repeat = request.method in READ_METHODS
    while True:
        try:
            return await _handle(request, handler)
        except psycopg.Error as error:
            if error.sqlstate == "BD002" and may_repeat and not request.writer.output_size:
                # this process may not have heard where the company is, or the read has come late
                await request.app[DATABASE].find_again(request[TARGET].company)
                may_repeat = False
                continue
            if error.sqlstate not in REPLACED or request.writer.output_size:
                raise
            if not may_repeat:
                if not await request.app[DATABASE].was_migrated():
                    raise
                log.warning("request %s failed during a migration", request[REQUEST_ID], exc_info=error)
                raise ServiceError("busy", "the service was being updated; try again", headers={"Retry-After": "1"}) from error
            log.info("request %s reads again: %s", request[REQUEST_ID], type(error).__name__)
            may_repeat = False


async def _handle(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run the handler; a read may use a replica (app/database/servers/reads.py)."""
    if request.method in READ_METHODS and (url := _without_slash(request)):
        return web.Response(status=308, headers={"Location": url})
    reads = Reads(request.remote or "")
    reads.is_chosen = request.method not in READ_METHODS or request[TARGET].area not in READ_AREAS
    if (not reads.is_chosen or _is_batch(request)) and (demand := read_demand(request.headers)):
        reads.demands.append(demand)
    return await reading(partial(handler, request), reads, lambda: request.writer.output_size)


def _without_slash(request: web.Request) -> str | None:
    """The URL without the slash at its end, if only that has a route; OData serves both."""
    if not isinstance(request.match_info.http_exception, web.HTTPNotFound):
        return None
    path, mark, query = request.rel_url.raw_path_qs.partition("?")
    shorter = path.removesuffix("/")
    return shorter + mark + query if shorter not in (path, "/") and "GET" in methods_of(request.app, shorter) else None


def _is_batch(request: web.Request) -> bool:
    """Whether reads stand in the body, which is then that of a POST."""
    return request.method == "POST" and request[TARGET].is_odata and is_batch(request.rel_url.raw_path)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every response carries.  aiohttp calls this, too, for all but an Answer."""
    headers = response.headers
    headers["X-Request-Id"], headers["Server"] = request[REQUEST_ID], answers.SERVER
    for name, value in answers.SECURITY:
        headers.setdefault(name, value)
    if deprecations.DEPRECATED and (deprecated := _deprecation_of(request)):
        headers.update(deprecated.headers)
    if response.status in RETRY_AFTER:
        headers.setdefault("Retry-After", RETRY_AFTER[response.status])
    if request[IS_SECURE]:
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    if request[TARGET].is_odata:
        headers.setdefault("OData-Version", "4.0")
    if request[TARGET].has_versions and GENERATION not in headers and response.status < 500 and request.get(MAY_READ):
        with contextlib.suppress(ServiceError, psycopg.Error, OSError):  # then the answer says what is wrong
            headers[GENERATION] = str(await _generation_of(request))
    for name, value in cors_headers(request, request[TARGET], request.app[DATABASE].config.cors_origins).items():
        headers.add(name, value)


def _deprecation_of(request: web.Request) -> deprecations.Deprecation | None:
    """That of the request's route."""
    resource, method = request.match_info.route.resource, "GET" if request.method == "HEAD" else request.method
    return deprecations.find(f"{method} {resource.canonical}") if resource else None


async def _generation_of(request: web.Request) -> int:
    """The generation of the request's company.  Raises ServiceError, psycopg.Error."""
    company = request[TARGET].company
    async with request.app[DATABASE].session(company) as connection:
        return (await last_event(connection, company)).generation


async def handle_expect(request: web.Request) -> None:
    """Let a client that waits for 100 Continue send its body; other expectations are ignored (RFC 9110, 10.1.1)."""
    if request.headers["Expect"].lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _raw_path(request: web.Request) -> str:
    """The path as it was sent, without the query; the whole target of CONNECT, which aiohttp reads as an authority."""
    return request.raw_path if request.method == "CONNECT" else request.rel_url.raw_path


def wrong_method(app: web.Application, path: str) -> ServiceError:
    """The error for a method without a route: not_found if the path has no route, else one that lists the allowed methods."""
    if read_target(path).is_odata:
        return refused_method(path, extended=app[DATABASE].config.odata_extended)
    allowed = sorted(methods_of(app, path))
    if not allowed:
        return ServiceError("not_found", ERRORS["not_found"][1])
    return ServiceError("method_not_allowed", ERRORS["method_not_allowed"][1], headers={"Allow": ", ".join(allowed)})


def to_service_error(error: Exception, request_id: str, *, tells_disk: bool) -> ServiceError:
    """The error that the client gets for an exception.  tells_disk: whether a full disk has a status of its own."""
    failure = error if isinstance(error, ServiceError) else _to_service_error(error, request_id)
    if failure.code == "disk_full" and not tells_disk:
        failure = ServiceError("busy", failure.message, headers=failure.headers, **failure.more)
    if isinstance(error, ServiceError):
        return failure
    failure.more |= getattr(error, "more", {})
    return failure


def _to_service_error(error: Exception, request_id: str) -> ServiceError:
    if isinstance(error, web.HTTPException):
        code = next((code for code, (status, _) in ERRORS.items() if status == error.status), "malformed_request")
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return ServiceError(code, ERRORS[code][1], headers=allow)
    if full := disk_full(error):
        log.error("request %s: %s", request_id, getattr(error, "sqlstate", None) or error)
        return full
    if raised := of_database(error):
        return raised
    if _is_transient(error):
        # cancelled by a timeout, connection lost, no connection, memory or descriptor free
        log.warning("request %s: %s", request_id, type(error).__name__)
        return ServiceError("busy", "the database did not answer in time; try again later", headers={"Retry-After": "5"})
    if isinstance(error, ConnectionError):
        return ServiceError("internal", "the client left")
    if isinstance(error, psycopg.Error) and error.sqlstate in ALTERED:
        log.error("request %s does not fit the database: %s", request_id, type(error).__name__, exc_info=error)
        message = "a table was altered and is not registered again yet; try again later"
        return ServiceError("busy", message, headers={"Retry-After": "5"})
    if isinstance(error, psycopg.errors.CardinalityViolation):  # a lookup has one row while the registered keys are there
        log.error("request %s: a key of a registered table is not unique any more", request_id, exc_info=error)
        return ServiceError("conflict", "several rows have this value: its key is not unique any more; bds doctor names it")
    log.error("request %s failed", request_id, exc_info=error)
    return ServiceError("internal", f"the service failed; its log has request {request_id}")


def _is_transient(error: Exception) -> bool:
    """Whether trying again may succeed; not beyond a limit of PostgreSQL's, nor with a wrong configuration."""
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):  # from a server in recovery, which is soon promoted
        return True
    if isinstance(error, psycopg.OperationalError):
        return (error.sqlstate or "")[:2] not in ("54", "58", "F0")
    return isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in EXHAUSTED)


def error_response(error: ServiceError, *, is_odata: bool) -> web.Response:
    """An error as OData JSON or as problem+json; its entity tag is its body's hash."""
    if is_odata:
        content, headers = error_content(error), {"Content-Type": JsonFormat().content_type, "OData-Version": "4.0"}
    else:
        about = {"target": error.target} if error.target else {}
        content = {"type": f"urn:bds:error:{error.code}", "title": error.title, "status": error.status, "detail": error.message}
        content |= {"code": error.code, **about, **error.more}
        headers = {"Content-Type": "application/problem+json"}
    body = exact_json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return web.Response(
        status=error.status,
        body=body,
        headers={**headers, **dict(answers.SECURITY), "Server": answers.SERVER, "ETag": answers.weak_tag(body), **error.headers},
    )
