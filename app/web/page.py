"""A request for a page: its user, company and parameters; access checks, flash messages and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote

from aiohttp import web

from app.auth.gate import Gate, Identity
from app.auth.login import ACTOR, Login, delete_cookie, identify
from app.auth.tokens import COOKIE
from app.database.caller import name_actor
from app.database.database import Database
from app.errors import ServiceError, UnknownEntity
from app.web.forms import Form, read_form
from app.web.view import local_url, render
from app.wire import urls
from app.wire.routing import methods_of

# a scope in the company, or: a user is logged in, an administrator is logged in
Access = Literal["read", "import", "hooks", "account", "administrator"]

# path, title, required access
NAVIGATION: tuple[tuple[str, str, Access], ...] = (
    ("/", "Overview", "read"),
    ("/data", "Data", "read"),
    ("/changes", "Changes", "read"),
    ("/imports", "Imports", "import"),
    ("/mappers", "Mappers", "import"),
    ("/export", "Export", "read"),
    ("/hooks", "Webhooks", "hooks"),
    ("/connect", "Connect", "read"),
    ("/keys", "API keys", "account"),
    ("/companies", "Companies", "administrator"),
    ("/users", "Users", "administrator"),
    ("/audit", "Audit", "administrator"),
)
# first segments of paths
PAGE_PATHS = frozenset(
    ("", "account", "diff", "docs", "login", "logout", "static", *(path[1:] for path, _, _ in NAVIGATION if path != "/"))
)
OTHER_PATHS = frozenset(("api", "c", "auth", "healthz", "readyz", "metrics", "openapi.json"))

COMMON = ("company", "flash")  # parameters of every page
LISTS = ("columns",)  # parameters that may be given several times
VALUES = {"do": ("download", "url"), "view": ("single",), "rows": ("all",)}  # parameters with few values

# Shown once after an action, by the name in the URL's parameter `flash`.
FLASH_MESSAGES = {
    "signed-out": "You are signed out.",
    "not-saved": "Your session had ended, so what you sent was not saved. Sign in, then send it again.",
    "send-again": "You are signed in again. What you sent before was not saved: send it again.",
    "new-password": "Password changed. Sign in with the new one.",
    "key-revoked": "API key revoked. Programs that use it no longer have access.",
    "import-cancelled": "The import is being cancelled.",
    "version-named": "Version named.",
    "version-moved": "There was a version of that name: the name has moved to this one.",
    "version-deleted": "Name deleted. The version itself stays.",
    "hook-saved": "Webhook saved.",
    "hook-deleted": "Webhook deleted.",
    "hook-enabled": "Webhook enabled. It reports changes from now on.",
    "hook-disabled": "Webhook disabled. Its queued deliveries are cancelled.",
    "test-sent": "A sample change is on its way. Its delivery is the first one below.",
    "retried": "The delivery will be sent now, before all that are waiting.",
    "rest-ended": "The rest has ended. What waits is being sent.",
    "replayed": "The changes are on their way. Their deliveries are below.",
    "nothing-replayed": "No change of this range matches the webhook.",
    "mapper-saved": "Mapper saved.",
    "mapper-deleted": "Mapper deleted.",
    "company-created": "Company created.",
    "company-deleted": "Company deleted.",
    "user-saved": "User saved.",
    "user-deleted": "User deleted. Their sessions have ended.",
}


@dataclass(frozen=True)
class PageRequest:
    """An authenticated request for a page about one company."""

    site: Site
    request: web.Request
    identity: Identity
    company: str

    @property
    def database(self) -> Database:
        return self.site.database

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the URL; of one that may be given several times the last."""
        return dict(urls.decode_query(self.request.rel_url.raw_path_qs))

    @cached_property
    def path_variables(self) -> dict[str, str]:
        return dict(self.request.match_info)

    @property
    def base(self) -> str:
        """The service's URL, as the browser has it."""
        return f"{self.request.scheme}://{self.request.host}"

    def offset(self) -> int:
        """The offset of a page of a list.  Raises ServiceError(malformed_request)."""
        return urls.read_page([("offset", self.query["offset"])] if self.query.get("offset") else [])[1]

    async def form(self) -> Form:
        """Read the form that was sent.  Raises ServiceError: malformed_request, too_large."""
        return await read_form(self.request)

    def url(self, path: str, **parameters: object) -> str:
        """The URL of a page about the same company."""
        return local_url(path, **{"company": self.company, **parameters})

    def render(self, template: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any) -> web.Response:
        """Render a template for this request."""
        flash = FLASH_MESSAGES.get(self.query.get("flash", ""))
        common = {"page": self, "navigation": self.navigation, "flash": flash, "refresh": False}
        return render(template, {**common, **values}, status, headers)

    def redirect(self, path: str, **parameters: object) -> web.Response:
        """Redirect to another page about the same company, after an action."""
        return see_other(self.url(path, **parameters))

    @property
    def navigation(self) -> list[tuple[str, str]]:
        """Path and title of the pages that this user may see."""
        return [(path, title) for path, title, access in NAVIGATION if self.may(access)]

    @property
    def section(self) -> str:
        """The path in the navigation that this page belongs to."""
        first = "/" + self.request.path.split("/")[1]
        return "/changes" if first == "/diff" else first

    @property
    def switch_path(self) -> str:
        """The page that the choice of another company leads to: the rows of the same entity, else the section."""
        entity = self.path_variables.get("entity", "")
        return f"/data/{entity}" if self.section == "/data" and entity in self.database.catalog else self.section

    @property
    def companies(self) -> list[str]:
        return sorted(self.identity.companies)

    @property
    def begins_with_companies(self) -> bool:
        """Whether pages of a company have nothing to show, and the sender can create the first company."""
        return self.identity.is_administrator and not self.companies and not self.query.get("company")

    @property
    def csrf(self) -> str:
        return self.identity.csrf or ""

    def may(self, access: Access) -> bool:
        """Whether the sender has this access in the company of the page."""
        if access == "administrator":
            return self.identity.is_administrator
        return self.identity.email is not None if access == "account" else self.identity.may(access, self.company)


PAGE_REQUEST = web.RequestKey("page_request", PageRequest)
PageHandler = Callable[[PageRequest], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Site:
    """The web pages as a whole, with the services that they use."""

    database: Database
    gate: Gate
    login: Login

    def handler(self, access: Access, handle: PageHandler, parameters: Collection[str] = (), *, upload: bool = False) -> Handler:
        """Return the HTTP handler of a page.

        parameters: of its URL, besides COMMON; upload: the form may be multipart; `handle` then checks its CSRF token.
        """
        known = {*COMMON, *parameters}

        async def answer(request: web.Request) -> web.StreamResponse:
            page = await self.authorize(request, access, upload=upload)
            request[PAGE_REQUEST] = page
            check_parameters(request, known)
            try:
                return await handle(page)
            except UnknownEntity as error:
                if not await page.database.learn(error.name):
                    raise
            return await handle(page)

        return answer

    async def authorize(self, request: web.Request, access: Access, *, upload: bool = False) -> PageRequest:
        """Authenticate a request and check its access.

        Raises ServiceError: unauthorized, csrf_failed, forbidden, malformed_request.
        """
        urls.decode_path(request.rel_url.raw_path)  # raises on escapes that the router accepts
        named_company = dict(urls.decode_query(request.rel_url.raw_path_qs)).get("company")
        if upload and request.content_type == "multipart/form-data":
            identity = await self.gate.identify(request.headers, request.remote)
            request[ACTOR] = identity.actor
            name_actor(identity.actor)
        else:
            identity = await identify(self.gate, request)
        company = named_company or min(identity.companies, default="")
        page = PageRequest(self, request, identity, company)
        # for the navigation of an error page
        request[PAGE_REQUEST] = (
            page if company in identity.companies else replace(page, company=min(identity.companies, default=""))
        )
        if access in ("account", "administrator"):
            if not page.may("account"):
                raise ServiceError("forbidden", "this page is for signed-in users; an API key is not enough")
            if not page.may(access):
                raise ServiceError("forbidden", "this page is for administrators")
            if company not in identity.companies and (company or not identity.is_administrator):
                raise ServiceError("forbidden", "you have no access to that company")
        elif not company and identity.email:
            raise ServiceError("forbidden", "your account has no company yet: an administrator gives it one")
        else:
            identity.require(access, company)
        return page

    def failure(self, request: web.Request, error: ServiceError) -> web.Response | None:
        """Answer a failed request for a page with an error page or the login; None if the request was not for a page."""
        if not is_page(request):
            return None
        if error.code == "unauthorized":
            return redirect_to_login(request)
        page = request.get(PAGE_REQUEST)
        if page and error.code == "forbidden" and page.begins_with_companies:
            return see_other("/companies")
        navigation = page.navigation if page else []
        values = {"error": error, "page": page, "navigation": navigation, "flash": None, "refresh": False}
        return render("error.html", values, error.status, error.headers)


def check_parameters(request: web.Request, known: Collection[str]) -> None:
    """Raise malformed_request for a parameter of the URL that is unknown, is none of its few values, or is given twice."""
    given = urls.decode_query(request.rel_url.raw_path_qs)
    names = [name for name, _ in given]
    for name, value in given:
        if name not in known:
            expected = ", ".join(sorted({*known} - {"flash"}))
            raise ServiceError("malformed_request", f"this page has no parameter {name}: expected {expected}", target=name)
        if name not in LISTS and names.count(name) > 1:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        if value not in VALUES.get(name, (value,)):
            expected = " or ".join(VALUES[name])
            raise ServiceError("malformed_request", f"{name}: expected {expected}, got {value!r}", target=name)


def is_page(request: web.Request) -> bool:
    """Whether the request is for a page, or by a browser for a path that nothing else answers."""
    if request.method == "CONNECT" or not request.path.startswith("/"):
        return False
    first, slash, _ = request.path[1:].partition("/")
    if slash and not first:  # `//api/...` is not the page `/`
        return False
    return first in PAGE_PATHS or (first not in OTHER_PATHS and "text/html" in request.headers.get("Accept", ""))


def redirect_to_login(request: web.Request) -> web.Response:
    """Redirect to the login, which leads back to the requested page; after a form to the page above its action."""
    sent = request.method not in ("GET", "HEAD")
    back = page_above(request) if sent and request.path != "/logout" else "/" if sent else request.rel_url.raw_path_qs
    flash = "not-saved" if sent and back != "/" else None
    response = see_other(local_url("/login", next=back if back != "/" else None, flash=flash))
    if COOKIE in request.cookies:  # its session has ended
        delete_cookie(response, request)
    return response


def page_above(request: web.Request) -> str:
    """The URL of the nearest page at or above the path of a form's action, about the same company."""
    path = request.rel_url.raw_path
    while path and "GET" not in methods_of(request.app, path):
        path = path.rpartition("/")[0]
    company = dict(urls.decode_query(request.rel_url.raw_path_qs)).get("company")
    return local_url(unquote(path) or "/", company=company, flash="send-again")


def see_other(url: str) -> web.Response:
    """Return a 303 redirect to a URL of this service."""
    return web.Response(status=303, headers={"Location": url, "Cache-Control": "no-store"})
