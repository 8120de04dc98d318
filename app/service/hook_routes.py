"""The routes of webhooks."""

from __future__ import annotations

from aiohttp import web

from app.service.middleware import DATABASE, Handler
from app.service.senders import (
    SECRET,
    require_hooks,
)
from app.webhooks import registration
from app.webhooks import replay as replays
from app.wire import bodies, urls


async def list_hooks(request: web.Request) -> web.StreamResponse:
    company, page = await require_hooks(request, lists=True), urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await registration.hooks(request.app[DATABASE], company, page))


async def create_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    hook = await registration.create(request.app[DATABASE], company, await bodies.small_body(request))
    return web.json_response(hook, status=201, headers={"Location": f"/c/{company}/hooks/{hook['id']}", **SECRET})


async def show_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    return web.json_response(await registration.show(request.app[DATABASE], company, request.match_info["id"]))


async def update_hook(request: web.Request) -> web.StreamResponse:
    company, body = await require_hooks(request), await bodies.small_body(request)
    return web.json_response(await registration.update(request.app[DATABASE], company, request.match_info["id"], body))


async def delete_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    await bodies.refuse_body(request)
    await registration.delete(request.app[DATABASE], company, request.match_info["id"])
    return web.Response(status=204)


async def test_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    await bodies.refuse_body(request)
    return web.json_response(await registration.test(request.app[DATABASE], company, request.match_info["id"]), status=202)


async def rotate_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request, lists=True)
    revoke = urls.read_flag(urls.decode_query(request.rel_url.raw_path_qs), "revoke")
    await bodies.refuse_body(request, ": revoke is a parameter, as in ?revoke=true")
    secret = await registration.rotate(request.app[DATABASE], company, request.match_info["id"], revoke=revoke)
    return web.json_response(secret, headers=SECRET)


async def end_rest(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    await bodies.refuse_body(request)
    await registration.end_rest(request.app[DATABASE], company, request.match_info["id"])
    return web.Response(status=204)


async def replay(request: web.Request) -> web.StreamResponse:
    company, body = await require_hooks(request), await bodies.small_body(request)
    return web.json_response(await replays.replay(request.app[DATABASE], company, request.match_info["id"], body), status=202)


async def deliveries(request: web.Request) -> web.StreamResponse:
    company, page = await require_hooks(request, lists=True), urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await registration.deliveries(request.app[DATABASE], company, request.match_info["id"], page))


async def delivery(request: web.Request) -> web.StreamResponse:
    company, named = await require_hooks(request), request.match_info
    return web.json_response(await registration.delivery(request.app[DATABASE], company, named["id"], named["deliveryId"]))


async def retry_delivery(request: web.Request) -> web.StreamResponse:
    company, named = await require_hooks(request), request.match_info
    await bodies.refuse_body(request)
    return web.json_response(await registration.retry(request.app[DATABASE], company, named["id"], named["deliveryId"]), status=202)


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/c/{companyId}/hooks", list_hooks),
    ("POST", "/c/{companyId}/hooks", create_hook),
    ("GET", "/c/{companyId}/hooks/{id}", show_hook),
    ("PATCH", "/c/{companyId}/hooks/{id}", update_hook),
    ("DELETE", "/c/{companyId}/hooks/{id}", delete_hook),
    ("POST", "/c/{companyId}/hooks/{id}/test", test_hook),
    ("POST", "/c/{companyId}/hooks/{id}/secret", rotate_hook),
    ("DELETE", "/c/{companyId}/hooks/{id}/rest", end_rest),
    ("POST", "/c/{companyId}/hooks/{id}/replay", replay),
    ("GET", "/c/{companyId}/hooks/{id}/deliveries", deliveries),
    ("GET", "/c/{companyId}/hooks/{id}/deliveries/{deliveryId}", delivery),
    ("POST", "/c/{companyId}/hooks/{id}/deliveries/{deliveryId}/retry", retry_delivery),
)
