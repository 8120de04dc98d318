"""The page /docs: Swagger UI shows openapi.json and sends requests with the user's session."""

from __future__ import annotations

from aiohttp import web

from app.web.page import PageRequest
from app.web.view import POLICY

# Swagger UI sets styles from its script, and its style sheet has images in data URLs
SWAGGER_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


async def show(page: PageRequest) -> web.StreamResponse:
    """The page."""
    return page.render("docs.html", headers={"Content-Security-Policy": SWAGGER_POLICY})
