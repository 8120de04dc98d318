"""Imports: a file uploaded, its progress, its report and its errors."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from app.errors import ServiceError
from app.feed import receive
from app.mapper import store
from app.mapper.document import SourceConverter
from app.web.forms import Form, Upload, blank, read_upload
from app.web.site import Visit, see_other
from app.wire.bodies import body_deadline
from app.wire.coding import decoded

PAGE = 20  # imports
ERRORS = 100  # errors on a page
PIECE = 256 << 10  # bytes of the file that are asked for at once
CODINGS = {".gz": "gzip", ".zst": "zstd"}  # by what a file's name ends with


async def show(visit: Visit) -> web.StreamResponse:
    return await page(visit, blank(mapper=visit.query.get("mapper", "")))


async def upload(visit: Visit) -> web.StreamResponse:
    """Import a file that a form has brought; go on to its report as soon as the whole file is in."""
    upload = await read_upload(visit.request, visit.identity)
    form = upload.form
    if not upload.file_name or upload.file is None:
        form.refuse("file", "Choose a file")
        return await page(visit, form)
    try:
        source = None
        if form["mapper"]:
            source = SourceConverter(await store.load_source(visit.database, visit.company, form["mapper"]))
        bodies = decoded(receive.gathered(_reading(upload)), coding_of(upload.file_name))
        dry_run = form["dryRun"] == "true"
        _, report = await receive.import_body(
            visit.database, visit.company, visit.identity.actor, bodies, source, dry_run=dry_run, is_async=True
        )
    except ServiceError as error:
        if "importId" in error.more and error.code != "malformed_request":  # which is said of the form, not of the file in it
            return see_other(visit.url(f"/imports/{error.more['importId']}"))
        form.refuse("mapper" if error.target == "mapper" else "file", error.message, error.code)
        return await page(visit, form)
    return see_other(visit.url(f"/imports/{report['importId']}"))


async def report(visit: Visit) -> web.StreamResponse:
    """One import: how far it is, or what came of it."""
    offset = visit.offset()
    found = await receive.show(visit.database, visit.company, visit.named["id"])
    options = [("limit", str(ERRORS)), ("offset", str(offset))]
    errors = await receive.errors(visit.database, visit.company, visit.named["id"], options)
    return visit.render(
        "import.html",
        report=found,
        errors=errors["data"],
        more=errors["hasMore"],
        offset=offset,
        page_size=ERRORS,
        totals=_totals(found),
        kinds=COUNTS,
        refresh=found["finishedAt"] is None,
    )


COUNTS = ("created", "updated", "deleted", "unchanged", "failed")


async def cancel(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await receive.cancel(visit.database, visit.company, visit.named["id"])
    return visit.see(f"/imports/{visit.named['id']}", said="import-cancelled")


async def page(visit: Visit, form: Form) -> web.Response:
    """The list, with the form."""
    offset = visit.offset()
    options = [("limit", str(PAGE)), ("offset", str(offset))]
    imports = await receive.imports(visit.database, visit.company, options)
    return visit.render(
        "imports.html",
        form.status,
        imports=[{**each, "totals": _totals(each)} for each in imports["data"]],
        more=imports["hasMore"],
        offset=offset,
        page_size=PAGE,
        mappers=await readers(visit),
        form=form,
        is_live=any(each["finishedAt"] is None for each in imports["data"]),
    )


async def readers(visit: Visit) -> list[str]:
    """The names of the company's mappers that read a source."""
    found = await store.listed(visit.database, visit.company, 1_000, 0)
    return sorted(each["name"] for each in found["data"] if each["type"] != "template")


def coding_of(name: str) -> str:
    """The content coding that a file's name tells of; "" without one."""
    return next((coding for end, coding in CODINGS.items() if name.lower().endswith(end)), "")


def _totals(report: dict[str, Any]) -> dict[str, int]:
    return {kind: sum(counts[kind] for counts in report["entities"].values()) for kind in COUNTS}


def _reading(upload: Upload) -> Any:
    async def read() -> bytes:
        async with body_deadline(receive.BODY_TIMEOUT, "more of the file"):
            return await upload.read(PIECE)

    return read
