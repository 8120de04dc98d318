"""How a request will be answered, as far as that is known before the database is asked.

Plans are kept by the text of the request, so that a question that is asked again needs neither parser nor compiler.  A whole number
between the parentheses of a path's first row is not part of that text: one plan serves every row.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from functools import cached_property, partial

from aiohttp import web

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.odata.metadata import csdl, service_document
from app.odata.request import Kind, Request, read_request
from app.query import sql_select
from app.query.cache import Cache
from app.query.query import COLLECTION, COUNT, REFERENCES, ROW, VALUE, Query, parse_query
from app.query.sql_rows import Style

KEPT = 1_000  # plans
LONGEST = 2_000  # characters of a path that is worth keeping
LONG = 8 << 10  # characters of a path from which it is parsed beside the event loop
TAKES = {
    Kind.COLLECTION: COLLECTION,
    Kind.COUNT: COUNT,
    Kind.ROW: ROW,
    Kind.PROPERTY: VALUE,
    Kind.VALUE: VALUE,
    Kind.REFERENCE: VALUE,
    Kind.REFERENCES: REFERENCES,
}
TEXTS = {Kind.COUNT: "text/plain", Kind.VALUE: "text/plain;charset=utf-8"}  # in JSON everything else
REFERENCE_CONTEXTS = {Kind.REFERENCE: "$ref", Kind.REFERENCES: "Collection($ref)"}
SEARCH_WARNING = '299 - "$search has no effect"'
HOST = re.compile(r"[A-Za-z0-9.\-_:\[\]]{1,255}")
KEYED = re.compile(r"(/api/odata/[^/?#]+/[^/?#(]+\()([0-9]{1,18})(\).*)", re.DOTALL)


class Plan:
    """An understood request of a model.  What is made of it is made once."""

    def __init__(self, catalog: Catalog, asked: Request, query: Query | None, base: str) -> None:
        self.catalog = catalog
        self.asked = asked
        self.kind = asked.resource.kind
        self.company = asked.company
        self._query = query
        self.base = base  # the service root's URL
        self._tag = hashlib.sha256(repr((catalog.version, asked.format)).encode())

    @property
    def query(self) -> Query:
        assert self._query is not None, "a document is no query"
        return self._query

    @property
    def is_document(self) -> bool:
        return self._query is None

    @cached_property
    def style(self) -> Style:
        metadata, ieee754 = self.asked.format.metadata, self.asked.format.ieee754
        if self.kind in REFERENCE_CONTEXTS:  # relative to the context URL, if there is one
            return Style(base=None if metadata == "minimal" else self.base, references=True)
        if self.kind in (Kind.PROPERTY, Kind.VALUE):
            return Style(numbers_as_strings=ieee754)
        return Style(numbers_as_strings=ieee754, base=self.base if metadata == "full" else None)

    # Statements

    @cached_property
    def page(self) -> sql_select.Ready:
        return sql_select.page(self.query, self.company, self.style).ready()

    @cached_property
    def count(self) -> sql_select.Ready:
        return sql_select.count(self.query, self.company).ready()

    @cached_property
    def position(self) -> sql_select.Ready:
        return sql_select.position(self.query, self.company).ready()

    @cached_property
    def rows(self) -> sql_select.Ready:
        return sql_select.rows(self.query, self.company, self.style).ready()

    # What surrounds the rows

    @cached_property
    def document(self) -> bytes:
        """The service document or $metadata."""
        if self.kind is Kind.METADATA:
            return csdl(self.catalog)
        return service_document(self.catalog, None if self.asked.format.metadata == "none" else f"{self.base}$metadata")

    @cached_property
    def context(self) -> bytes:
        """The first member of the JSON object; empty where control information is not wanted."""
        if self.kind in REFERENCE_CONTEXTS:
            return self.context_of(f"{self.base}$metadata#{REFERENCE_CONTEXTS[self.kind]}")
        return self.context_of(context_url(self.base, self.query))

    def context_of(self, url: str) -> bytes:
        return b"" if self.asked.format.metadata == "none" else b'"@odata.context":%b,' % json.dumps(url).encode()

    @property
    def missing(self) -> ServiceError:
        entity = self.asked.resource.entity
        return ServiceError("not_found", f"{entity.name if entity else 'this'} has no row with this key")

    def headers(self, path: str, position: bytes | None) -> dict[str, str]:
        """Of the answer to `path` as of a position of the change log.  Raises not_found if there is none: no row to begin."""
        if position is None:
            raise self.missing
        headers = self._headers.copy()
        headers["ETag"] = self._tagged(path, b"%d" % time.time_ns() if self.query.volatile else position)
        return headers

    def document_headers(self) -> dict[str, str]:
        return self._headers | {"ETag": self._tagged("", self.document)}

    @cached_property
    def _headers(self) -> dict[str, str]:
        content_type = "application/xml" if self.kind is Kind.METADATA else TEXTS.get(self.kind, self.asked.format.content_type)
        headers = {"Content-Type": content_type, "Cache-Control": "private, no-cache", "Vary": "Accept, Accept-Encoding"}
        return headers | ({"Warning": SEARCH_WARNING} if self._query and self._query.search else {})

    def _tagged(self, path: str, state: bytes) -> str:
        """A weak entity tag of the model, the format, the path and what is there."""
        tag = self._tag.copy()
        tag.update(path.encode("utf-8", "surrogateescape"))
        tag.update(b"\0" + state)
        return f'W/"{tag.hexdigest()[:32]}"'


_plans: Cache[Plan] = Cache(KEPT)


async def find_plan(catalog: Catalog, request: web.Request) -> tuple[Plan, str | None]:
    """The plan of a request, and the key that takes the place of the one with which it was made.  Raises ServiceError."""
    path = request.rel_url.raw_path_qs
    if len(path) >= LONG:  # a long filter takes a quarter of a second, for which others shall not wait
        return await asyncio.to_thread(_make, catalog, request, path), None
    if len(path) > LONGEST:
        return _make(catalog, request, path), None
    keyed = KEYED.fullmatch(path)
    text = (keyed[1], keyed[3]) if keyed else path
    headers = request.headers
    format = (*headers.getall("Accept", ()), headers.get("OData-MaxVersion"))
    plan = _plans.get(
        (catalog.version, request.method, text, format, request.scheme, request.host), partial(_make, catalog, request, path)
    )
    return plan, keyed[2] if keyed else None


def _make(catalog: Catalog, request: web.Request, path: str) -> Plan:
    asked = read_request(catalog, request.method, path, request.headers)
    base = f"{request.scheme}://{_host(request)}/api/odata/{asked.company}/"
    resource = asked.resource
    query = None
    if resource.entity is not None:
        query = parse_query(
            catalog, resource.entity, asked.options, key=resource.key, member=resource.member, takes=TAKES[resource.kind]
        )
    return Plan(catalog, asked, query, base)


def _host(request: web.Request) -> str:
    """The host that the client calls us by: it goes into context URLs, so it must be one."""
    if not HOST.fullmatch(request.host):
        raise ServiceError("malformed_request", "expected a host name", target="Host")
    return request.host


def context_url(base: str, query: Query) -> str:
    """The context URL of a query's rows, as the JSON format demands."""
    if query.groups is not None:
        return f"{base}$metadata#{query.entity.name}({query.groups})"
    members = [*(each.name for each in query.select or ()), *(f"{each.name}()" for each in query.expand)]
    inside = f"({','.join(members)})" if members else ""
    return f"{base}$metadata#{query.entity.name}{inside}" + ("/$entity" if query.single else "")
