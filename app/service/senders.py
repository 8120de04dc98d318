"""What handlers share: who has sent a request and may do so, the company and entity of its path, answers with an entity tag."""

from __future__ import annotations

from functools import wraps

import psycopg
from aiohttp import web

from app.auth.gate import Gate, Identity
from app.auth.login import Login, identify
from app.changes.hub import Hub
from app.changes.rows import Answer
from app.database.catalog import Entity
from app.database.servers import reads
from app.errors import ServiceError, UnknownEntity
from app.feed.proposal import Sender
from app.logs import count_rows
from app.metrics import Sampler
from app.service.middleware import DATABASE, GENERATION, MAY_READ, TARGET, Handler
from app.wire import answers, urls

GATE = web.AppKey("gate", Gate)
LOGIN = web.AppKey("login", Login)
HUB = web.AppKey("hub", Hub)
SAMPLER = web.AppKey("sampler", Sampler)
JSON = {"Content-Type": "application/json"}
SECRET = {"Cache-Control": "no-store"}
RELOADS = 3  # of the catalog, for one request


def with_current_catalog(handler: Handler) -> Handler:
    """Wrap a handler: if the catalog no longer fits the database, reload it and run the handler again."""

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        for _ in range(RELOADS):
            try:
                return await handler(request)
            except UnknownEntity as error:
                if not await request.app[DATABASE].learn(error.name):
                    raise
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.DeadlockDetected):
                if request.writer.output_size or reads.is_on_a_replica():
                    raise
                await request.app[DATABASE].reload()
        return await handler(request)

    return handle


async def require_read(request: web.Request) -> str:
    """The company of the path, which the sender may read.  Raises malformed_request, unauthorized or forbidden."""
    identity = await identity_of(request)
    identity.require("read", request.match_info["companyId"])
    return request.match_info["companyId"]


async def require_hooks(request: web.Request, *, lists: bool = False) -> str:
    """The company of the path, whose hooks the sender may manage.  Raises as require_read; refuses a query unless `lists`."""
    identity = await identity_of(request)
    identity.require("hooks", request.match_info["companyId"])
    if not lists:
        urls.refuse_options(request.rel_url.raw_path_qs)
    return request.match_info["companyId"]


async def require_import(request: web.Request, *, lists: bool = False) -> tuple[str, str]:
    """(company, actor) of a request that may import into the company of the path.  Raises as require_hooks."""
    identity = await identity_of(request)
    identity.require("import", request.match_info["companyId"])
    if not lists:
        urls.refuse_options(request.rel_url.raw_path_qs)
    return request.match_info["companyId"], identity.actor


async def require_proposal(request: web.Request) -> tuple[str, Sender]:
    """The company of the path and the sender, which may import into it or at least propose to.  Raises as require_read."""
    identity, company = await identity_of(request), request.match_info["companyId"]
    if not identity.may("propose", company):
        identity.require("import", company)
    return company, Sender(identity.actor, not identity.may("import", company), identity.may("read", company))


async def identity_of(request: web.Request) -> Identity:
    """The sender of a request with a well-formed path.  Raises malformed_request or unauthorized."""
    urls.decode_path(request.rel_url.raw_path)  # the router is lenient
    identity = await identify(request.app[GATE], request)
    request[MAY_READ] = bool(request[TARGET].segment) and identity.may("read", request[TARGET].company)
    return identity


def entity_of(request: web.Request) -> Entity:
    """The entity of the path.  Raises not_found."""
    catalog, name = request.app[DATABASE].catalog, request.match_info["entity"]
    if name not in catalog:
        raise UnknownEntity(name, catalog.entities)
    return catalog[name]


async def send_data(request: web.Request, answer: Answer) -> web.StreamResponse:
    """An answer of /c: JSON with an entity tag made from the data's position, or 304."""
    if answer.body is None:
        raise ServiceError("not_found", "no such row")
    state = (answer.position, answer.first, answer.begun, answer.generation)
    tag = answers.weak_tag(request.app[DATABASE].catalog.version, request.rel_url.raw_path_qs, *state)
    headers = {"Content-Type": "application/json", "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if answer.generation is not None:
        headers[GENERATION] = str(answer.generation)
    if answers.matches(request.headers, tag):
        return answers.Answer(304, headers)
    count_rows(answer.rows)
    return await answers.send(request, answer.body, headers)
