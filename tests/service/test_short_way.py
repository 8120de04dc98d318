"""Requests for OData reach their handler without aiohttp's resolver, and are answered as if they had come through it."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from app.service import application
from app.service.data_routes import odata
from app.service.routes import ROUTES
from tests.service.serving import Reply, Service

# the target of a request, and whether it takes the short way
TARGETS = [
    ("/api/odata/demo/products(1)", True),
    ("/api/odata/demo/products?$filter=id eq 1", True),
    ("/api/odata/", True),
    ("/api/odata/%ff", True),
    ("http://elsewhere/api/odata/demo", True),
    ("/api/odata", False),
    ("/api/odatas/demo", False),
    ("/c/api/odata/demo", False),
    ("/", False),
]


@pytest.mark.parametrize(("target", "is_short"), TARGETS)
def test_paths_below_that_of_odata_take_the_short_way(monkeypatch: pytest.MonkeyPatch, target: str, is_short: bool) -> None:
    wrap, handle = AsyncMock(), AsyncMock()
    monkeypatch.setattr(application, "wrap_request", wrap)
    app, request = web.Application(), make_mocked_request("GET", target)
    for method, path, handler in ROUTES:
        app.router.add_route(method, path, handler)
    asyncio.run(application.with_short_way(app, handle)(request))  # type: ignore[arg-type]
    if is_short:
        wrap.assert_awaited_once_with(request, odata)
        assert request.app is app and request.match_info.http_exception is None
    else:
        handle.assert_awaited_once_with(request)
    assert wrap.await_count + handle.await_count == 1


SAME = [
    ("GET", "/api/odata/demo/units?$top=1"),
    ("HEAD", "/api/odata/demo/units?$top=1"),
    ("POST", "/api/odata/demo/units"),
    ("OPTIONS", "/api/odata/demo/units"),
    ("GET", "/api/odata/"),
    ("GET", "/api/odata/demo/"),
    ("GET", "/api/odata//demo"),
    ("GET", "/api/odata/demo%2Funits"),
    ("GET", "/api/odata/demo/../demo/units"),
    ("GET", "/api/odata/%ff/units"),
    ("GET", "/api/odata/other/units"),
    ("GET", "/api/odata/demo/nothing"),
    ("GET", "/%61pi/odata/demo/units?$top=1"),
]


@pytest.mark.parametrize(("method", "target"), SAME)
def test_both_ways_answer_alike(service: Service, method: str, target: str) -> None:
    short = service.ask(target, method)
    long = service.ask(target, method, Expect="nothing that is known")  # takes the long way
    assert _of(short) == _of(long)
    assert short.headers["OData-Version"] == "4.0" or not target.startswith("/api/odata/")


def _of(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    """All of a reply that is the same for the same request."""
    return reply.status, {name: value for name, value in reply.headers.items() if name not in ("Date", "X-Request-Id")}, reply.body
