"""The guide at /docs/guide, for everybody: the documents as a site."""

from __future__ import annotations

import hashlib
from functools import cache

from aiohttp import web

from app.errors import ServiceError
from app.web import files
from app.web.view import HEADERS, POLICY
from app.wire import answers

TYPES = files.TYPES | {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
}
# The theme's style sheet has images in data URLs.  Its search runs in a worker, which has the policy of its own file.
COMMON = {
    **HEADERS,
    "Content-Security-Policy": POLICY.replace("img-src 'self'", "img-src 'self' data:"),
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@cache
def read(name: str) -> tuple[bytes, dict[str, str]]:
    """A file's content and headers.  Raises not_found."""
    if not files.guide():
        raise ServiceError("not_found", "no guide here: `make guide` makes it in a checkout, `make wheel` a package that has it")
    if name not in files.guide():
        raise ServiceError("not_found", f"no such page of the guide: {name}")
    path = files.guide()[name]
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return content, {**COMMON, "Content-Type": TYPES.get(path.suffix, "application/octet-stream"), "ETag": tag}


async def show(request: web.Request) -> web.StreamResponse:
    """Send a page or file of the guide.  Raises not_found."""
    content, headers = read(request.match_info.get("name") or "index.html")
    if not request.path.startswith("/docs/guide/"):  # links of the first page are relative to its folder
        return web.Response(status=308, headers={"Location": "/docs/guide/", "Cache-Control": "no-cache"})
    if answers.matches(request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    return await answers.send(request, content, headers, compress=headers["Content-Type"] != "image/png")
