"""The routes of the pages."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from app.errors import ServiceError
from app.web import account, changes, export, hooks, imports, keys, mappers, overview, sign_in
from app.web.site import Handler, Page, Scope, Site
from app.web.view import STATIC, VERSIONS
from app.wire import answers

# method, path, what one must be allowed, page
PAGES: tuple[tuple[str, str, Scope, Page], ...] = (
    ("GET", "/", "read", overview.show),
    ("GET", "/changes", "read", changes.show),
    ("GET", "/changes/{entity}/{row}", "read", changes.history),
    ("GET", "/imports", "import", imports.show),
    ("POST", "/imports", "import", imports.upload),
    ("GET", "/imports/{id}", "import", imports.report),
    ("POST", "/imports/{id}/cancel", "import", imports.cancel),
    ("GET", "/mappers", "import", mappers.show),
    ("GET", "/mappers/_new", "import", mappers.new),
    ("POST", "/mappers/_new", "import", mappers.save),
    ("GET", "/mappers/{name}", "import", mappers.edit),
    ("POST", "/mappers/{name}", "import", mappers.save),
    ("POST", "/mappers/{name}/delete", "import", mappers.delete),
    ("GET", "/export", "read", export.show),
    ("GET", "/hooks", "hooks", hooks.show),
    ("POST", "/hooks", "hooks", hooks.create),
    ("GET", "/hooks/{id}", "hooks", hooks.show_one),
    ("POST", "/hooks/{id}", "hooks", hooks.edit),
    ("POST", "/hooks/{id}/switch", "hooks", hooks.switch),
    ("POST", "/hooks/{id}/test", "hooks", hooks.test),
    ("POST", "/hooks/{id}/delete", "hooks", hooks.delete),
    ("POST", "/hooks/{id}/deliveries/{delivery}/retry", "hooks", hooks.retry),
    ("GET", "/keys", "account", keys.show),
    ("POST", "/keys", "account", keys.create),
    ("POST", "/keys/{id}/revoke", "account", keys.revoke),
    ("GET", "/account", "account", account.show),
    ("POST", "/account", "account", account.change),
    ("POST", "/logout", "account", sign_in.sign_out),
)
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def routes(site: Site) -> Iterator[tuple[str, str, Handler]]:
    """Method, path and handler of everything that people see; GET includes HEAD."""

    async def login_form(request: web.Request) -> web.StreamResponse:
        return await sign_in.show(site, request)

    async def login(request: web.Request) -> web.StreamResponse:
        return await sign_in.sign_in(site, request)

    yield "GET", "/login", login_form
    yield "POST", "/login", login
    yield "GET", "/static/{name}", static
    for method, path, scope, page in PAGES:
        yield method, path, site.handler(scope, page, upload=page is imports.upload)


async def static(request: web.Request) -> web.StreamResponse:
    """A file that pages are made with; under the URL that names its version it never changes."""
    name = request.match_info["name"]
    if name not in STATIC:
        raise ServiceError("not_found", f"there is no file {name}")
    tag = f'"{VERSIONS[name]}"'
    lasting = request.query.get("v") == VERSIONS[name]
    headers = {
        "Content-Type": TYPES[name.rpartition(".")[2]],
        "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if answers.matches(request.headers, tag):
        return web.Response(status=304, headers=headers)
    return await answers.send(request, STATIC[name], headers)
