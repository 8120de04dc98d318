"""What every request passes through: a request id, errors in their room's shape, the headers of every answer, a line in the log.

Under /api/odata an error is an OData error, of a page a page, elsewhere problem+json (RFC 9457).  Of a failure that is not ours
nothing is told but the request id under which the log has it.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count

import psycopg
from aiohttp import web

from app import metrics
from app.auth.login import ACTOR
from app.database.database import Database
from app.errors import ERRORS, SQLSTATES, ServiceError
from app.logs import REQUEST, Answered, answered
from app.odata.request import refused_method
from app.wire import answers
from app.wire.proxies import apply_forwarded

log = logging.getLogger("bds.http")

DATABASE = web.AppKey("database", Database)
REQUEST_ID = web.RequestKey("request_id", str)
IS_SECURE = web.RequestKey("is_secure", bool)  # whether its client spoke HTTPS, with us or with a trusted proxy
ODATA = "/api/odata"
GIVEN_ID = re.compile(r"[\x21-\x7e]{1,100}")
PROCESS = secrets.token_hex(6)  # with which the ids that we give begin
_numbers = count(1)
GONE = 499  # in the log: the client left before it had its answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# what shows an error to a person: None for a request that is not one of the pages'
FAILURE_PAGE: web.AppKey[Callable[[web.Request, ServiceError], web.Response | None]] = web.AppKey("failure_page")


@web.middleware
async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Name the request, answer what is raised, write the log's line."""
    given = request.headers.get("X-Request-Id")
    id = given if given and GIVEN_ID.fullmatch(given) else f"{PROCESS}{next(_numbers):x}"
    seen = apply_forwarded(request, request.app[DATABASE].config.trusted_proxies)
    request[REQUEST_ID], request[IS_SECURE] = id, seen.secure
    if seen is not request:
        seen[REQUEST_ID], seen[IS_SECURE] = id, seen.secure
        request = seen
    started, status, size = time.perf_counter(), GONE, 0
    named = REQUEST.set(id)
    metrics.http.under_way += 1
    try:
        if request.method == "CONNECT":
            raise wrong_method(request.app, request.raw_path)
        response = await handler(request)
        status, size = response.status, response.content_length or 0
        return response
    except Exception as error:
        failure = understand(error, id)
        if request.writer.output_size:
            raise ConnectionResetError("the answer had begun") from error
        status = failure.status
        return request.app[FAILURE_PAGE](request, failure) or error_response(failure, target_of(request))
    finally:
        took, size = time.perf_counter() - started, request.writer.output_size or size
        method, path, leads_somewhere = request.method, target_of(request, raw=True), request.match_info.http_exception is None
        metrics.http.under_way -= 1
        metrics.http.answered(metrics.Answered(path, leads_somewhere, method, status, took, size))
        answered(
            Answered(time.time(), id, request.remote, method, path, company_in(request), request.get(ACTOR), status, size, took)
        )
        REQUEST.reset(named)


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """The headers that every answer carries."""
    headers = response.headers
    headers["X-Request-Id"] = request[REQUEST_ID]
    for name, value in answers.SECURITY:
        headers.setdefault(name, value)
    if request[IS_SECURE]:
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    if is_odata(target_of(request)):
        headers["OData-Version"] = "4.0"


async def expect(request: web.Request) -> None:
    """Let a client that waits for it send its body; an expectation that we do not know is none (RFC 9110, 10.1.1)."""
    if request.headers["Expect"].lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def target_of(request: web.Request, *, raw: bool = False) -> str:
    """The path of a request; CONNECT's is read as an authority, which we are not asked for."""
    if request.method == "CONNECT":
        return request.raw_path
    return request.rel_url.raw_path if raw else request.path


def company_in(request: web.Request) -> str | None:
    """The company that the path names, which need not exist."""
    path = target_of(request)
    return path.removeprefix(ODATA).split("/", 2)[1] if path.startswith(ODATA + "/") else request.match_info.get("company")


def wrong_method(app: web.Application, path: str) -> ServiceError:
    """The error of a method that no route has: not_found where the path has none at all, else with those that are allowed."""
    if is_odata(path):
        return refused_method(path)
    allowed = sorted({route.method for route in app.router.routes() if route.resource and leads_to(route.resource, path)})
    if not allowed:
        return ServiceError("not_found", ERRORS["not_found"][1])
    return ServiceError("method_not_allowed", ERRORS["method_not_allowed"][1], headers={"Allow": ", ".join(allowed)})


def leads_to(resource: web.AbstractResource, path: str) -> bool:
    """Whether a path is one of the resource's."""
    info = resource.get_info()
    return path == info.get("path") or ("pattern" in info and info["pattern"].fullmatch(path) is not None)


def is_odata(path: str) -> bool:
    return path == ODATA or path.startswith(ODATA + "/")


def understand(error: Exception, request_id: str) -> ServiceError:
    """What a client is told of an exception."""
    if isinstance(error, ServiceError):
        return error
    told = _understand(error, request_id)
    told.more |= getattr(error, "more", {})
    return told


def _understand(error: Exception, request_id: str) -> ServiceError:
    if isinstance(error, web.HTTPException):
        code = next((code for code, (status, _) in ERRORS.items() if status == error.status), "malformed_request")
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return ServiceError(code, ERRORS[code][1], headers=allow)
    if isinstance(error, psycopg.Error) and error.sqlstate in SQLSTATES:
        return ServiceError(SQLSTATES[error.sqlstate], error.diag.message_primary or "")
    if isinstance(error, TimeoutError) or (isinstance(error, psycopg.OperationalError) and not _is_ours(error)):
        # cancelled by a timeout, no connection, none free
        log.warning("request %s: %s", request_id, type(error).__name__)
        return ServiceError("busy", "the database did not answer in time; try again later", headers={"Retry-After": "5"})
    if isinstance(error, ConnectionError):
        return ServiceError("internal", "the client left")
    log.error("request %s failed", request_id, exc_info=error)
    return ServiceError("internal", f"the service failed; its log has request {request_id}")


def _is_ours(error: psycopg.Error) -> bool:
    """Whether trying again later would not help: a limit of PostgreSQL's, no space, a wrong configuration."""
    return (error.sqlstate or "")[:2] in ("53", "54", "58", "F0")


def error_response(error: ServiceError, path: str) -> web.Response:
    """An error in the shape of the room that `path` leads to; its entity tag is its body's hash."""
    if is_odata(path):
        content: dict[str, object] = {"error": {"code": error.code, "message": error.message}}
        if error.target:
            content = {"error": {"code": error.code, "message": error.message, "target": error.target}}
        headers = {"Content-Type": "application/json;odata.metadata=minimal", "OData-Version": "4.0"}
    else:
        about = {"target": error.target} if error.target else {}
        content = {"type": f"urn:bds:error:{error.code}", "title": error.title, "status": error.status, "detail": error.message}
        content |= {"code": error.code, **about, **error.more}
        headers = {"Content-Type": "application/problem+json"}
    body = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return web.Response(
        status=error.status,
        body=body,
        headers={**headers, **dict(answers.SECURITY), "ETag": answers.weak_tag(body), **error.headers},
    )
