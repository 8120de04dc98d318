"""The page /docs: Swagger UI shows openapi.json and sends requests with the user's session; the description needs no extra."""

from __future__ import annotations

from aiohttp import web

from app import extras
from app.web.page import PageRequest
from app.web.view import POLICY

# Swagger UI sets styles from its script, and its style sheet has images in data URLs
SWAGGER_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


async def show(page: PageRequest) -> web.StreamResponse:
    """The page.  Raises not_installed."""
    extras.require("docs")
    return page.render("docs.html", headers={"Content-Security-Policy": SWAGGER_POLICY})
