"""The routes of imports, mappers and names of versions."""

from __future__ import annotations

from aiohttp import web

from app.changes import versions
from app.errors import ServiceError
from app.feed import receive, reports
from app.feed.proposal import Sender
from app.feed.requests import REPLAYED, Answer
from app.mapper import store as mappers
from app.service.middleware import DATABASE, Handler
from app.service.senders import (
    JSON,
    require_import,
    require_proposal,
    require_read,
)
from app.wire import answers, bodies, urls


async def import_document(request: web.Request) -> web.StreamResponse:
    company, sender = await require_proposal(request)
    return _response(company, sender, await receive.import_request(request.app[DATABASE], request, company, sender))


def _response(company: str, sender: Sender, answer: Answer) -> web.Response:
    headers = {"Location": f"/api/{company}/imports/{answer.report['importId']}", **(REPLAYED if answer.is_replayed else {})}
    body = reports.dump(sender.shown(answer.report))
    return web.Response(status=answer.status, body=body, content_type="application/json", headers=headers)


async def imports(request: web.Request) -> web.StreamResponse:
    (company, sender), options = await require_proposal(request), urls.decode_query(request.rel_url.raw_path_qs)
    page = await reports.imports(request.app[DATABASE], company, options, sender.own)
    return await answers.send(request, reports.dump(page), JSON)


async def import_report(request: web.Request) -> web.StreamResponse:
    company, sender = await require_proposal(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    report = await reports.show(request.app[DATABASE], company, request.match_info["id"], sender.own)
    return await answers.send(request, reports.dump(sender.shown(report)), JSON)


async def cancel_import(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    await bodies.refuse_body(request)
    await reports.cancel(request.app[DATABASE], company, request.match_info["id"])
    return web.Response(status=204)


async def revert_import(request: web.Request) -> web.StreamResponse:
    company, sender = await require_proposal(request)
    change_set = request.match_info["id"]
    return _response(company, sender, await receive.revert_request(request.app[DATABASE], request, company, sender, change_set))


async def revert(request: web.Request) -> web.StreamResponse:
    company, sender = await require_proposal(request)
    return _response(company, sender, await receive.revert_request(request.app[DATABASE], request, company, sender))


async def import_errors(request: web.Request) -> web.StreamResponse:
    (company, sender), options = await require_proposal(request), urls.decode_query(request.rel_url.raw_path_qs)
    page = await reports.errors(request.app[DATABASE], company, request.match_info["id"], options, sender.own)
    return await answers.send(request, reports.dump(page), JSON)


async def mapper_list(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request, lists=True)
    limit, offset = urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return await answers.send(request, reports.dump(await mappers.listed(request.app[DATABASE], company, limit, offset)), JSON)


async def mapper_text(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    stored = await mappers.show(request.app[DATABASE], company, request.match_info["name"])
    return await answers.send(
        request, stored.text.encode(), {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    )


async def put_mapper(request: web.Request) -> web.StreamResponse:
    (company, actor), name = await require_import(request), request.match_info["name"]
    if request.content_type != "text/plain":
        raise ServiceError("unsupported_media_type", f"expected text/plain, got {request.content_type}")
    bodies.require_utf8(request, "text")
    async with bodies.body_deadline():
        text = await request.read()
    created = await mappers.put(request.app[DATABASE], company, name, text, actor)
    return web.Response(status=201, headers={"Location": request.rel_url.raw_path}) if created else web.Response(status=204)


async def delete_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    await bodies.refuse_body(request)
    await mappers.delete(request.app[DATABASE], company, request.match_info["name"])
    return web.Response(status=204)


async def preview_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request, lists=True)
    document = await receive.preview(request.app[DATABASE], request, company, request.match_info["name"])
    return await answers.send(request, document, JSON)


async def version_list(request: web.Request) -> web.StreamResponse:
    company, page = await require_read(request), urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return await answers.send(request, reports.dump(await versions.listed(request.app[DATABASE], company, *page)), JSON)


async def show_version(request: web.Request) -> web.StreamResponse:
    company = await require_read(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    found = await versions.show(request.app[DATABASE], company, request.match_info["name"])
    return await answers.send(request, reports.dump(found), JSON)


async def put_version(request: web.Request) -> web.StreamResponse:
    (company, actor), name = await require_import(request), request.match_info["name"]
    if request.content_type in bodies.FORM_TYPES:
        await bodies.refuse_body(request, " or application/json")
    body = await bodies.small_body(request) if request.can_read_body else b""  # the last version needs none, and no media type
    found, is_new = await versions.put(request.app[DATABASE], company, name, body, actor)
    headers = {"Location": request.rel_url.raw_path} if is_new else {}
    return web.json_response(found, status=201 if is_new else 200, headers=headers)


async def delete_version(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    await bodies.refuse_body(request)
    await versions.delete(request.app[DATABASE], company, request.match_info["name"])
    return web.Response(status=204)


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/api/{companyId}/import", import_document),
    ("GET", "/api/{companyId}/imports", imports),
    ("GET", "/api/{companyId}/imports/{id}", import_report),
    ("DELETE", "/api/{companyId}/imports/{id}", cancel_import),
    ("GET", "/api/{companyId}/imports/{id}/errors", import_errors),
    ("POST", "/api/{companyId}/imports/{id}/revert", revert_import),
    ("GET", "/api/{companyId}/mappers", mapper_list),
    ("GET", "/api/{companyId}/mappers/{name}", mapper_text),
    ("PUT", "/api/{companyId}/mappers/{name}", put_mapper),
    ("DELETE", "/api/{companyId}/mappers/{name}", delete_mapper),
    ("POST", "/api/{companyId}/mappers/{name}/preview", preview_mapper),
    ("POST", "/api/{companyId}/revert", revert),
    ("GET", "/api/{companyId}/versions", version_list),
    ("GET", "/api/{companyId}/versions/{name}", show_version),
    ("PUT", "/api/{companyId}/versions/{name}", put_version),
    ("DELETE", "/api/{companyId}/versions/{name}", delete_version),
)
