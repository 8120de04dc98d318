"""Static files: ours, those of the editor CodeMirror beside them, and Swagger UI from the package swagger-ui-py (its data only).

The files of the guide, which app/web/guide.py sends, are found here, too.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aiohttp import web

from app import extras, resources
from app.errors import ServiceError
from app.wire import answers

HERE = Path(__file__).resolve().parent / "static"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
GUIDE = resources.PACKAGE / "guide"  # built by `make guide`, part of a wheel
SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")


@cache
def paths() -> dict[str, Path]:
    """The path of every static file, by its name in URLs."""
    ours = {path.name: path for path in HERE.glob("**/*") if path.suffix in TYPES}
    if not extras.is_installed("docs"):
        return ours
    package = find_spec("swagger_ui")
    assert package is not None and package.submodule_search_locations
    swagger = Path(package.submodule_search_locations[0]) / "static"
    return ours | {name: swagger / name for name in SWAGGER}


@cache
def guide() -> dict[str, Path]:
    """The path of every file of the guide, by its name in URLs; empty where it was not built."""
    return {path.relative_to(GUIDE).as_posix(): path for path in GUIDE.rglob("*") if path.is_file()}


@cache
def read(name: str) -> tuple[bytes, str]:
    """A file's content and version, a hash of it."""
    content = paths()[name].read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def asset(name: str) -> str:
    """Return the URL of a static file with the version of its content."""
    return f"/static/{name}?v={read(name)[1]}"


async def send(request: web.Request) -> web.StreamResponse:
    """Send a static file; a URL with its version (`v`) is cached for ever.  Raises not_found."""
    name = request.match_info["name"]
    if name not in paths():
        raise ServiceError("not_found", f"no such file: {name}")
    content, version = read(name)
    tag = f'"{version}"'
    headers = {
        "Content-Type": TYPES[paths()[name].suffix],
        "Cache-Control": "public, max-age=31536000, immutable" if request.query.get("v") == version else "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if answers.matches(request.headers, tag):
        return web.Response(status=304, headers=headers)
    return await answers.send(request, content, headers)
