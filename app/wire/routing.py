"""The methods that the routes of a path have."""

from __future__ import annotations

from aiohttp import web


def methods_of(app: web.Application, path: str) -> set[str]:
    """The methods of the routes of a path as it was sent; none if it has no route."""
    return {route.method for route in app.router.routes() if route.resource and _matches(route.resource, path)}


def _matches(resource: web.AbstractResource, path: str) -> bool:
    info = resource.get_info()
    return path == info.get("path") or ("pattern" in info and info["pattern"].fullmatch(path) is not None)
