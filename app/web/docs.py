"""The page /docs: Swagger UI shows openapi.json and sends requests with the user's session.

The files of Swagger UI come from the package swagger-ui-py; nothing of its Python code is used.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web

from app.errors import ServiceError
from app.web.page import PageRequest
from app.web.view import POLICY
from app.wire import answers

FILES = {"swagger-ui-bundle.js": "text/javascript; charset=utf-8", "swagger-ui.css": "text/css; charset=utf-8"}
# Swagger UI sets styles from its script, and its style sheet has images in data URLs
SWAGGER_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


async def show(page: PageRequest) -> web.StreamResponse:
    """The page."""
    return page.render("docs.html", headers={"Content-Security-Policy": SWAGGER_POLICY})


async def file(request: web.Request) -> web.StreamResponse:
    """A file of Swagger UI."""
    name = request.match_info["name"]
    if name not in FILES:
        raise ServiceError("not_found", f"no such file: {name}")
    content, tag = _read(name)
    headers = {"Content-Type": FILES[name], "Cache-Control": "no-cache", "ETag": tag, "Vary": "Accept-Encoding"}
    if answers.matches(request.headers, tag):
        return web.Response(status=304, headers=headers)
    return await answers.send(request, content, headers)


@cache
def _read(name: str) -> tuple[bytes, str]:
    """A file's content and entity tag."""
    found = find_spec("swagger_ui")
    assert found is not None and found.submodule_search_locations
    content = (Path(found.submodule_search_locations[0]) / "static" / name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:12]}"'
