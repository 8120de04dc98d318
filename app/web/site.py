"""A visit to a page: who is visiting, which company they look at, what they have typed; and what is answered when that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from aiohttp import web

from app.auth import Gate, Identity
from app.auth.login import ACTOR, Login, delete_cookie, identify
from app.auth.tokens import COOKIE
from app.database.database import Database
from app.errors import ServiceError
from app.web.forms import Form, read_form
from app.web.view import address, render
from app.wire import urls

Scope = Literal["read", "import", "hooks", "account"]

# path, title, what one must be allowed to see it
PAGES: tuple[tuple[str, str, Scope], ...] = (
    ("/", "Overview", "read"),
    ("/changes", "Changes", "read"),
    ("/imports", "Imports", "import"),
    ("/mappers", "Mappers", "import"),
    ("/export", "Export", "read"),
    ("/hooks", "Hooks", "hooks"),
    ("/keys", "API keys", "account"),
)
OURS = frozenset(("", "account", "login", "logout", "static", *(path[1:] for path, _, _ in PAGES if path != "/")))
OTHERS = frozenset(("api", "c", "auth", "healthz", "readyz", "metrics"))

# What a page says after something was done, by the name that its URL carries.
SAID = {
    "signed-out": "You are signed out.",
    "new-password": "Your password is changed. Sign in with the new one.",
    "key-revoked": "The key is revoked. Nothing that uses it gets in any more.",
    "import-cancelled": "The import was asked to end.",
    "hook-saved": "The hook is saved.",
    "hook-deleted": "The hook is deleted.",
    "hook-enabled": "The hook is enabled: it sees what changes from now on.",
    "hook-disabled": "The hook is disabled, and what was queued for it is cancelled.",
    "test-sent": "A made-up change is on its way. Its delivery is the first below.",
    "retried": "The delivery goes out again, before all that waits.",
    "mapper-saved": "The mapper is saved.",
    "mapper-deleted": "The mapper is deleted.",
}


@dataclass(frozen=True)
class Visit:
    """One request for a page."""

    site: Site
    request: web.Request
    identity: Identity
    company: str

    @property
    def database(self) -> Database:
        return self.site.database

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the URL; of one given twice the last."""
        return dict(urls.decode_query(self.request.rel_url.raw_path_qs))

    @cached_property
    def named(self) -> dict[str, str]:
        """The variable parts of the path."""
        return dict(self.request.match_info)

    def offset(self) -> int:
        """Where the page of a long list begins.  Raises malformed_request."""
        return urls.read_page([("offset", self.query["offset"])] if self.query.get("offset") else [])[1]

    async def form(self) -> Form:
        """What was typed.  Raises malformed_request, too_large."""
        return await read_form(self.request)

    def url(self, path: str, **parameters: object) -> str:
        """The URL of a page about the same company."""
        return address(path, **{"company": self.company, **parameters})

    def render(self, template: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any) -> web.Response:
        """A page for this visitor."""
        said = SAID.get(self.query.get("said", ""))
        return render(template, {"visit": self, "pages": self.pages, "said": said, "refresh": False, **values}, status, headers)

    def see(self, path: str, **parameters: object) -> web.Response:
        """Go on to another page, after something was done."""
        return see_other(self.url(path, **parameters))

    @property
    def pages(self) -> list[tuple[str, str]]:
        """The pages that this visitor may see."""
        return [(path, title) for path, title, scope in PAGES if self.may(scope)]

    @property
    def section(self) -> str:
        """The page of the navigation that this one belongs to."""
        return "/" + self.request.path.split("/")[1]

    @property
    def companies(self) -> list[str]:
        return sorted(self.identity.companies)

    @property
    def csrf(self) -> str:
        return self.identity.csrf or ""

    def may(self, scope: Scope) -> bool:
        """Whether this is open to the visitor, in the company that they look at."""
        return self.identity.email is not None if scope == "account" else self.identity.may(scope, self.company)


VISIT = web.RequestKey("visit", Visit)
Page = Callable[[Visit], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Site:
    """What the pages are made with."""

    database: Database
    gate: Gate
    login: Login

    def handler(self, scope: Scope, page: Page, *, upload: bool = False) -> Handler:
        """The handler of a page.  upload: its form comes in parts, and the page itself checks where it was sent from."""

        async def answer(request: web.Request) -> web.StreamResponse:
            visit = await self.visit(request, scope, upload=upload)
            request[VISIT] = visit
            return await page(visit)

        return answer

    async def visit(self, request: web.Request, scope: Scope, *, upload: bool = False) -> Visit:
        """Who visits, and which company.  Raises unauthorized, csrf_failed, forbidden, malformed_request."""
        urls.decode_path(request.rel_url.raw_path)  # the router is lenient
        asked = dict(urls.decode_query(request.rel_url.raw_path_qs)).get("company")
        if upload and request.content_type == "multipart/form-data":
            identity = await self.gate.identify(request.headers, request.remote)
            request[ACTOR] = identity.actor
        else:
            identity = await identify(self.gate, request)
        company = asked or min(identity.companies, default="")
        visit = Visit(self, request, identity, company)
        if scope == "account":
            if not visit.may(scope):
                raise ServiceError("forbidden", "only people who have signed in manage API keys; a key does not")
            if company not in identity.companies:
                raise ServiceError("forbidden", "you have no access to that company")
        else:
            identity.require(scope, company)
        return visit

    def failure(self, request: web.Request, error: ServiceError) -> web.Response | None:
        """The answer to a request for a page that failed; None if no page was asked for."""
        if not is_page(request):
            return None
        if error.code == "unauthorized":
            return to_login(request)
        values = {"error": error, "visit": request.get(VISIT), "said": None, "refresh": False}
        visit = request.get(VISIT)
        return render("error.html", {**values, "pages": visit.pages if visit else []}, error.status, error.headers)


def is_page(request: web.Request) -> bool:
    """Whether a person asks: for a page of ours, or with a browser for what nothing else answers."""
    if request.method == "CONNECT":
        return False
    first = request.path.split("/")[1] if request.path.startswith("/") else ""
    return first in OURS or (first not in OTHERS and "text/html" in request.headers.get("Accept", ""))


def to_login(request: web.Request) -> web.Response:
    """Sign in first, and come back to where one was."""
    back = request.rel_url.raw_path_qs if request.method in ("GET", "HEAD") else "/" + request.path.split("/")[1]
    response = see_other(address("/login", next=back if back != "/" else None))
    if COOKIE in request.cookies:  # it opens nothing any more
        delete_cookie(response, request)
    return response


def see_other(url: str) -> web.Response:
    """303: the answer is at another address of ours."""
    return web.Response(status=303, headers={"Location": url, "Cache-Control": "no-store"})
