"""Plans: an OData request parsed, checked and compiled, before the database is asked.

Plans are cached by the text of the request, so that a repeated request needs neither parser nor compiler.  A whole number as the
key of a path is not part of that text: one plan serves all rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from functools import cached_property, partial
from urllib.parse import quote

from aiohttp import web
from multidict import MultiMapping

from app.database.catalog import Catalog
from app.database.past import LAST_VERSION, model_of
from app.errors import ServiceError
from app.odata.metadata import csdl, service_document
from app.odata.request import Kind, ODataRequest, read_request
from app.query.check.options import COLLECTION, COUNT, REFERENCES, ROW, VALUE, parse_query
from app.query.check.query import Query
from app.query.sql import delta
from app.query.sql import statements as sql_statements
from app.query.sql.cache import Cache
from app.query.sql.parameters import Statement
from app.query.sql.rows import Style
from app.wire.urls import decode_path

CACHED = 1_000  # plans
LONGEST = 2_000  # characters of a path whose plan is cached
LONG = 8 << 10  # characters of a path that is parsed in a thread
PAGE = 200  # rows up to which a page is one statement
TAKES = {
    Kind.COLLECTION: COLLECTION,
    Kind.COUNT: COUNT,
    Kind.ROW: ROW,
    Kind.PROPERTY: VALUE,
    Kind.VALUE: VALUE,
    Kind.REFERENCE: VALUE,
    Kind.REFERENCES: REFERENCES,
}
CONTENT_TYPES = {Kind.COUNT: "text/plain", Kind.VALUE: "text/plain;charset=utf-8"}  # others: as negotiated
REFERENCE_CONTEXTS = {Kind.REFERENCE: "$ref", Kind.REFERENCES: "Collection($ref)"}
SEARCH_WARNING = '299 - "$search has no effect"'
HOST = re.compile(r"[A-Za-z0-9.\-_:\[\]]{1,255}")
KEYED = re.compile(r"(/api/odata/[^/?#]+/[^/?#(]+\()([0-9]{1,18})(\).*)", re.DOTALL)


class Plan:
    """A checked request of one catalog, with the statements of its answer.

    The statements are compiled here, so that answering only runs them:
    statement: (count, position) of /$count; the rows of a stream; (body, count, position) of anything else.
    heading: runs before the rows of a stream, in the same snapshot: (count, position), or without $count (position).
    position: (position) for conditional requests.  Compiled on first use, because few requests are conditional.
    A document (the service document, $metadata) has none of them: its body is `document`.
    """

    def __init__(self, catalog: Catalog, request: ODataRequest, query: Query | None, base: str, *, extended: bool = False) -> None:
        self.catalog = catalog
        self.extended = extended
        self.request = request
        self.kind = request.resource.kind
        self.company = request.company
        self.base = base  # the URL of the service root
        self.is_document = query is None
        self._query = query
        self.delta = query.delta if query else None
        self.is_newest = self.delta is not None and request.newest  # OData 4.01
        self.is_paged = query is not None and query.page is not None and self.delta is None
        page = query and (query.page, query.tracks, self.is_newest)
        self._tag = hashlib.sha256(repr((catalog.version, request.format, page)).encode())
        self.is_stream = query is not None and not self.is_paged and self.delta is None and _is_stream(self.kind, query)
        if query is None:
            self.document = self._document()
        elif self.delta is not None:
            self.statement = self.changes(self.delta.since, LAST_VERSION)
        elif self.kind is Kind.COUNT:
            self.statement = sql_statements.count(query, self.company)
        elif self.is_paged:
            self.statement = sql_statements.paged(query, self.company, self.style)
        elif self.is_stream:
            self.statement = sql_statements.rows(query, self.company, self.style)
            self.heading = sql_statements.count(query, self.company) if query.count else self.position
        else:
            self.statement = sql_statements.page(query, self.company, self.style)

    def changes(self, after: int, upto: int) -> Statement:
        """The statement of a delta for the rows that changed last after a version, up to another."""
        return delta.changes(self.query, self.company, self.style, (after, upto), newest=self.is_newest)

    @property
    def query(self) -> Query:
        assert self._query is not None, "a document has no query"
        return self._query

    @cached_property
    def style(self) -> Style:
        metadata, ieee754 = self.request.format.metadata, self.request.format.ieee754
        if self.kind in REFERENCE_CONTEXTS:  # URLs are relative to the context URL, if there is one
            return Style(base=None if metadata == "minimal" else self.base, references=True)
        if self.kind in (Kind.PROPERTY, Kind.VALUE):
            return Style(numbers_as_strings=ieee754)
        style = Style(numbers_as_strings=ieee754, base=self.base if metadata == "full" else None)
        return delta.identified(style, self.query) if self.query.tracks or self.delta else style

    @cached_property
    def position(self) -> Statement:
        return sql_statements.position(self.query, self.company)

    def _document(self) -> bytes:
        if self.kind is Kind.METADATA:
            return csdl(self.catalog, is_json=not self.request.format.is_xml, extended=self.extended)
        return service_document(self.catalog, None if self.request.format.metadata == "none" else f"{self.base}$metadata")

    @cached_property
    def context(self) -> bytes:
        """The member @odata.context, the first of the JSON object; empty if the format has no control information."""
        if self.kind in REFERENCE_CONTEXTS:
            return self.context_of(f"{self.base}$metadata#{REFERENCE_CONTEXTS[self.kind]}")
        return self.context_of(context_url(self.base, self.query) + ("/$delta" if self.delta else ""))

    def context_of(self, url: str) -> bytes:
        return b"" if self.request.format.metadata == "none" else b'"@odata.context":%b,' % json.dumps(url).encode()

    @property
    def missing(self) -> ServiceError:
        """The error for a key without a row."""
        entity = self.request.resource.entity
        assert entity is not None  # keys follow an entity set
        return ServiceError("not_found", f"{entity.name} has no row with this key")

    def headers(self, path: str, position: bytes | None) -> dict[str, str]:
        """The headers of an answer as of a position.

        path: of the request, which may have another key than the plan's.  Raises ServiceError(not_found) if the position is None:
        the row at which a navigation begins is missing.
        """
        if position is None:
            raise self.missing
        headers = self._headers.copy()
        headers["ETag"] = self._tagged(path, b"%d" % time.time_ns() if self.query.volatile else position)
        return headers

    def document_headers(self) -> dict[str, str]:
        return self._headers | {"ETag": self._tagged("", self.document)}

    @cached_property
    def _headers(self) -> dict[str, str]:
        content_type = CONTENT_TYPES.get(self.kind, self.request.format.content_type)
        headers = {"Content-Type": content_type, "Cache-Control": "private, no-cache", "Vary": "Accept, Accept-Encoding"}
        if self.extended:
            headers["Vary"] += ", Prefer"
        if self.is_newest:
            headers["OData-Version"] = "4.01"
        if self.delta is not None:
            headers["Vary"] += ", OData-MaxVersion"
        if applied := self._applied():
            headers["Preference-Applied"] = ", ".join(applied)
        if warnings := self._warnings():
            headers["Warning"] = ", ".join(warnings)
        return headers

    def _warnings(self) -> list[str]:
        """What the answer does otherwise than its client may expect."""
        if self._query is None:
            return []
        unset = [f'299 - "{quote(name, safe="@")} has no value: it is null"' for name in self._query.unset]
        return ([SEARCH_WARNING] if self._query.search else []) + unset

    def _applied(self) -> list[str]:
        """The preferences that the answer follows."""
        if self._query is None:
            return []
        tracks = ["odata.track-changes"] if self._query.tracks else []
        return tracks + ([f"odata.maxpagesize={self._query.page}"] if self._query.page is not None else [])

    def _tagged(self, path: str, state: bytes) -> str:
        """A weak entity tag of the catalog's version, the format, the path and the state of the data."""
        tag = self._tag.copy()
        tag.update(path.encode("utf-8", "surrogateescape"))
        tag.update(b"\0" + state)
        return f'W/"{tag.hexdigest()[:32]}"'


_plans: Cache[Plan] = Cache(CACHED)


async def get_plan(catalog: Catalog, request: web.Request, *, extended: bool) -> tuple[Plan, str | None]:
    """Find or make the plan of a request.

    Returns the plan, and the key in the path if the plan may have been made for another key.  Raises ServiceError.
    """
    path = request.rel_url.raw_path_qs
    if len(path) >= LONG:  # a long filter takes a quarter of a second, which would block all other requests
        return await asyncio.to_thread(_make, catalog, request, path, extended), None
    if len(path) > LONGEST:
        return _make(catalog, request, path, extended), None
    keyed = KEYED.fullmatch(path)
    text = (keyed[1], keyed[3]) if keyed else path
    headers = request.headers
    format = (*headers.getall("Accept", ()), headers.get("OData-MaxVersion"), *headers.getall("Prefer", ()))
    plan = _plans.get(
        (catalog.version, request.method, text, format, request.scheme, request.host, extended),
        partial(_make, catalog, request, path, extended),
    )
    return plan, keyed[2] if keyed else None


def _make(catalog: Catalog, request: web.Request, path: str, extended: bool) -> Plan:
    origin = f"{request.scheme}://{_host(request)}"
    return make_plan(catalog, request.method, path, request.headers, origin, extended=extended)


def make_plan(catalog: Catalog, method: str, path: str, headers: MultiMapping[str], origin: str, *, extended: bool) -> Plan:
    """Parse, check and compile a request for a path with its query, to a service at `origin`, such as https://localhost.

    Raises ServiceError.
    """
    parsed = read_request(catalog, method, path, headers, extended=extended)
    base, catalog = f"{origin}/api/odata/{quote(decode_path(path)[2], safe='@:+')}/", parsed.catalog
    resource = parsed.resource
    if extended and any(name == "$deltatoken" for name, _ in parsed.options):
        if parsed.format.metadata == "none":
            message = "expected minimal or full metadata: without control information a removed row cannot be told"
            raise ServiceError("malformed_request", message, target="Accept")
        catalog = model_of(catalog)  # rows as of the end of the changes, which later pages have behind them
    query = None
    if resource.entity is not None:
        query = parse_query(
            *(catalog, resource.entity, parsed.options),
            key=resource.key,
            member=resource.member,
            takes=TAKES[resource.kind],
            extended=extended,
            page=parsed.page,
            tracks=parsed.tracks and parsed.format.metadata != "none" if parsed.moment is None else None,
        )
    return Plan(catalog, parsed, query, base, extended=extended)


def _is_stream(kind: Kind, query: Query) -> bool:
    """Whether the answer may be large: a collection of more than a page, or rows with long collections inside."""
    if kind in (Kind.COUNT, Kind.PROPERTY, Kind.VALUE) or query.single:
        return False
    if query.groups is not None and not query.groups.keys:
        return False
    return query.top is None or query.top > PAGE or query.has_long_rows


def _host(request: web.Request) -> str:
    """The host in the request's Host header, which becomes part of context URLs.  Raises ServiceError if it is not a host name."""
    if not HOST.fullmatch(request.host):
        raise ServiceError("malformed_request", "expected a host name", target="Host")
    return request.host


def context_url(base: str, query: Query) -> str:
    """The context URL of a query's rows."""
    if query.groups is not None:
        return f"{base}$metadata#{query.entity.name}({query.groups})"
    members = _members(query)
    return f"{base}$metadata#{query.entity.name}" + (f"({members})" if members else "") + ("/$entity" if query.single else "")


def _members(query: Query) -> str:
    """The selected and expanded members of a query's rows, as a context URL lists them."""
    links = (each.name for each in query.links if each not in query.steps)
    expanded = (f"{each.step.name}({_members(each.query)})" for each in query.expand)
    return ",".join((*(each.name for each in query.select or ()), *links, *expanded))
