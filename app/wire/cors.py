"""Browsers of other origins (CORS): the answers to preflight requests, and the headers that let a page read an answer.

Only origins that the operator has listed get them, and never for requests with cookies: with those a page could act as whoever is
signed in.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from app.wire.target import Target

AREAS = frozenset(("odata", "changes", "stream", "hooks", "import", "mappers", "export"))  # everything under /api and /c
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
REQUEST_HEADERS = (
    *("Authorization", "X-API-Key", "If-None-Match", "Prefer", "Content-Type", "Content-Encoding", "Accept", "Idempotency-Key"),
    *("Last-Event-ID", "X-BDS-Position", "OData-Version", "OData-MaxVersion"),
    *("MIME-Version", "X-CSRF-Token"),  # UI5 sends these with a $batch; they have no effect
)
FAMILIES = ("odata-", "sap-", "x-sap-")  # of further headers, in lower case
EXPOSED = (
    "ETag, OData-Version, Warning, Location, Retry-After, Preference-Applied, Idempotency-Replayed, Content-Disposition,"
    " X-BDS-Generation, X-Request-Id"
)
MAX_AGE = "7200"  # seconds that a browser keeps the answer to a preflight: as long as any of them does


def cors_headers(request: web.BaseRequest, target: Target, origins: Sequence[str]) -> dict[str, str]:
    """The headers of an answer to the request.  None but Vary if it does not come from a listed origin."""
    if not origins or target.area not in AREAS:
        return {}
    origin = request.headers.get("Origin")
    if origin is None or origin not in origins:
        return {"Vary": "Origin"}
    return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED}


def preflight(request: web.Request, target: Target, origins: Sequence[str]) -> web.Response | None:
    """The answer to a preflight of a listed origin; None for any other request."""
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return None
    if target.area not in AREAS or request.headers.get("Origin") not in origins:
        return None
    wanted = (name.strip() for name in request.headers.get("Access-Control-Request-Headers", "").split(","))
    further = (name for name in wanted if name.lower().startswith(FAMILIES) and name.replace("-", "").isalnum())
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": ", ".join(dict.fromkeys((*REQUEST_HEADERS, *further))),
        "Access-Control-Max-Age": MAX_AGE,
    }
    return web.Response(status=204, headers=headers)
