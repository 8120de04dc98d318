"""The routes of a path: their methods, and the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web


def methods_of(app: web.Application, path: str) -> set[str]:
    """The methods of the routes of a path as it was sent; none if it has no route."""
    return {route.method for route in app.router.routes() if route.resource and _match(route.resource, path) is not None}


def find_match(app: web.Application, path: str) -> tuple[str, Mapping[str, str]] | None:
    """The path of the first route of a path as it was sent, and what its parameters hold; None if it has no route."""
    found = ((each.canonical, _match(each, path)) for each in app.router.resources())
    return next(((route, names) for route, names in found if names is not None), None)


def _match(resource: web.AbstractResource, path: str) -> Mapping[str, str] | None:
    info = resource.get_info()
    if path == info.get("path"):
        return {}
    found = info["pattern"].fullmatch(path) if "pattern" in info else None
    return {name: unquote(text) for name, text in found.groupdict().items()} if found else None
