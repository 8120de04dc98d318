"""The routes of the pages and of static files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiohttp import web

from app.web import (
    account,
    audit,
    changes,
    companies,
    connect,
    data,
    difference,
    docs,
    export,
    files,
    guide,
    history,
    hooks,
    import_errors,
    imports,
    keys,
    login,
    mappers,
    overview,
    row,
    undo,
    users,
)
from app.web.page import Access, Handler, PageHandler, Site

# method, path, required access, handler
PAGES: tuple[tuple[str, str, Access, PageHandler], ...] = (
    ("GET", "/", "read", overview.show),
    ("GET", "/data", "read", data.index),
    ("GET", "/data/{entity}", "read", data.show),
    ("GET", "/data/{entity}/{row}", "read", row.show),
    ("GET", "/changes", "read", changes.show),
    ("POST", "/changes/revert", "import", undo.begin),
    ("GET", "/changes/{entity}/{row}", "read", history.show),
    ("GET", "/diff", "read", difference.show),
    ("POST", "/diff", "import", difference.name),
    ("GET", "/diff/{entity}", "read", difference.show_rows),
    ("GET", "/imports", "import", imports.show),
    ("POST", "/imports", "import", imports.upload),
    ("GET", "/imports/{id}", "import", imports.report),
    ("GET", "/imports/{id}/errors.csv", "import", import_errors.download),
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
    ("GET", "/hooks/{id}", "hooks", hooks.show_hook),
    ("POST", "/hooks/{id}", "hooks", hooks.edit),
    ("POST", "/hooks/{id}/switch", "hooks", hooks.switch),
    ("POST", "/hooks/{id}/test", "hooks", hooks.test),
    ("POST", "/hooks/{id}/delete", "hooks", hooks.delete),
    ("POST", "/hooks/{id}/secret", "hooks", hooks.rotate),
    ("POST", "/hooks/{id}/rest", "hooks", hooks.end_rest),
    ("POST", "/hooks/{id}/replay", "hooks", hooks.replay),
    ("GET", "/hooks/{id}/deliveries/{deliveryId}", "hooks", hooks.show_delivery),
    ("POST", "/hooks/{id}/deliveries/{deliveryId}/retry", "hooks", hooks.retry),
    ("GET", "/connect", "read", connect.show),
    ("POST", "/connect", "read", connect.create_key),
    ("GET", "/connect/{kind}", "read", connect.file),
    ("GET", "/docs", "read", docs.show),
    ("GET", "/keys", "account", keys.show),
    ("POST", "/keys", "account", keys.create),
    ("POST", "/keys/{id}/revoke", "account", keys.revoke),
    ("GET", "/companies", "administrator", companies.show),
    ("POST", "/companies", "administrator", companies.create),
    ("POST", "/companies/{id}/delete", "administrator", companies.delete),
    ("GET", "/users", "administrator", users.show),
    ("POST", "/users", "administrator", users.create),
    ("GET", "/users/{id}", "administrator", users.edit),
    ("POST", "/users/{id}", "administrator", users.save),
    ("POST", "/users/{id}/password", "administrator", users.reset),
    ("POST", "/users/{id}/delete", "administrator", users.delete),
    ("GET", "/audit", "administrator", audit.show),
    ("GET", "/account", "account", account.show),
    ("POST", "/account", "account", account.change),
    ("POST", "/logout", "account", login.logout),
)
# by path: the parameters of a page's URL besides `company` and `flash`
PARAMETERS: Mapping[str, str] = {
    "/": "span offset",
    "/data": "q",
    "/data/{entity}": "q filter sort asof version at day columns from group sum",
    "/data/{entity}/{row}": "asof version at day",
    "/changes": "entity operation row changeSet filter view after before",
    "/changes/{entity}/{row}": "offset",
    "/diff": "since until offset",
    "/diff/{entity}": "since until after",
    "/imports": "mapper offset",
    "/imports/{id}": "code offset rows",
    "/imports/{id}/errors.csv": "code",
    "/mappers": "offset",
    "/export": "entity format mapper columns filter orderby top since versions asof do show",
    "/hooks": "offset",
    "/hooks/{id}": "offset",
    "/keys": "offset",
    "/companies": "offset",
    "/users": "offset",
    "/audit": "before",
}


def routes(site: Site) -> Iterator[tuple[str, str, Handler]]:
    """Yield method, path and handler of every page and static file; GET includes HEAD."""

    async def show_login(request: web.Request) -> web.StreamResponse:
        return await login.show(site, request)

    async def submit_login(request: web.Request) -> web.StreamResponse:
        return await login.login(site, request)

    yield "GET", "/login", show_login
    yield "POST", "/login", submit_login
    yield "GET", "/static/{name}", files.send
    yield "GET", "/docs/guide", guide.show
    yield "GET", "/docs/guide/{name:.*}", guide.show
    for method, path, access, handle in PAGES:
        parameters = PARAMETERS.get(path, "").split()
        yield method, path, site.handler(access, handle, parameters, upload=handle is imports.upload)
