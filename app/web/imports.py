"""Imports: upload of a file, list of imports, progress and report of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from app.errors import ServiceError
from app.feed import receive, reports, undone, work
from app.feed.batches import CODE, under_batches
from app.feed.origin import Origin, file_name
from app.formats import CODINGS, ENDING, ENTITY, READABLE, READABLE_LABELS, begun_by, coding_of_file, entity_of_file, of_file
from app.mapper import store
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from app.types import exact_json
from app.web import import_errors, undo
from app.web.actors import display_names
from app.web.forms import Form, Upload, initial_form, read_upload
from app.web.page import PageRequest, see_other
from app.web.view import duration
from app.wire.bodies import body_deadline
from app.wire.coding import decoded

PAGE = 20  # imports
ERRORS = 100  # on a page of a report
MAPPERS = 1_000  # offered at most
SETTLED = timedelta(seconds=2)  # of an import, before its pace tells anything
CHUNK = 256 << 10  # bytes of the file that are read at a time
EXPORTED = "entity:"  # before an entity's name, in the choice of what reads a file; a mapper's name has no colon
# what the page's script knows of files
FILES = exact_json.dumps(
    {
        "types": {name: each.read_as[0] for each in READABLE for name in (each.extension, *each.aliases)},
        **{"ending": ENDING, "entity": ENTITY, "codings": CODINGS},
    }
)
OUTCOMES = ("created", "updated", "deleted", "unchanged", "failed")


async def show(page: PageRequest) -> web.StreamResponse:
    return await list_page(page, initial_form(mapper=page.query.get("mapper", "")))


async def upload(page: PageRequest) -> web.StreamResponse:
    """Import the uploaded file; redirects to the report once the whole file has arrived."""
    upload = await read_upload(page.request, page.identity)
    form = upload.form
    if not upload.file_name or upload.file is None:
        form.add_problem("file", "Choose a file")
        return await list_page(page, form)
    try:
        bodies = decoded(receive.gathered(_chunk_reader(upload)), coding_of_file(upload.file_name))
        choice = form["mapper"] or chosen_by_name(upload.file_name, page.database.catalog.entities)
        source, bodies = await _read_as(page, choice, upload.file_name, bodies)
        dry_run = form["dryRun"] == "true"
        mapper = choice if choice and not choice.startswith(EXPORTED) else None
        origin = Origin(page.identity.actor, file_name(upload.file_name), mapper)
        _, report = await work.import_body(page.database, page.company, origin, bodies, source, dry_run=dry_run, is_async=True)
    except ServiceError as error:
        # malformed_request is about the form; other errors are about the file in it, and the report has them
        if "importId" in error.more and error.code != "malformed_request":
            return see_other(page.url(f"/imports/{error.more['importId']}"))
        form.add_problem("mapper" if error.target in ("mapper", "entity") else "file", error.message, error.code)
        return await list_page(page, form)
    return see_other(page.url(f"/imports/{report['importId']}"))


def chosen_by_name(name: str, entities: Collection[str]) -> str:
    """What reads a file, by its name; "" for an import document.  Raises malformed_request if it does not tell."""
    format, entity = of_file(name), entity_of_file(name)
    if format is None:
        return ""
    if entity not in entities:
        raise ServiceError("malformed_request", f"choose the entity or the mapper of this {format.label} file", target="mapper")
    return f"{EXPORTED}{entity}"


async def _read_as(
    page: PageRequest, choice: str, name: str, bodies: AsyncIterator[bytes]
) -> tuple[SourceConverter | None, AsyncIterator[bytes]]:
    """What reads the file, and its chunks: nothing for an import document, else a mapper or what reads an entity's exports."""
    entity, limit = choice.removeprefix(EXPORTED), page.database.config.import_max
    if choice == "":
        return None, bodies
    if entity == choice:
        return SourceConverter(await store.load_source(page.database, page.company, choice), limit=limit), bodies
    first = await anext(bodies, b"")
    exported = exported_mapper(page.database.catalog, entity, begun_by(first, name))
    return SourceConverter(exported, limit=limit), _chained(first, bodies)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def report(page: PageRequest) -> web.StreamResponse:
    """The progress or the report of an import."""
    offset, code = page.offset(), page.query.get("code", "")
    found = await reports.show(page.database, page.company, page.path_variables["id"])
    id = found["importId"]
    errors = await import_errors.read_errors(page, id, code, ERRORS + 1, offset)
    counts = dict(await import_errors.count_by_code(page, id))
    batches = await import_errors.read_batches(page, id) if counts.pop(CODE, 0) else []
    return page.render(
        "import.html",
        report=found,
        errors=list(under_batches(errors[:ERRORS], batches)),
        error_count=found["errorCount"] - len(batches),
        shown=min(len(errors), ERRORS),
        codes=list(counts.items()),
        code=code,
        more=len(errors) > ERRORS,
        offset=offset,
        page_size=ERRORS,
        totals=_totals(found),
        undone=(await undone.find_reverts(page.database, page.company, [found["importId"]])).get(found["importId"]),
        undo=await undo.read_undo(page, found) if "undoes" in found else None,
        actors=await display_names(page, [found["actor"]]),
        kinds=OUTCOMES,
        duration=_duration(found),
        time_left=time_left(found),
        refresh=found["finishedAt"] is None,
    )


async def cancel(page: PageRequest) -> web.StreamResponse:
    await page.form()
    await reports.cancel(page.database, page.company, page.path_variables["id"])
    return page.redirect(f"/imports/{page.path_variables['id']}", flash="import-cancelled")


async def list_page(page: PageRequest, form: Form) -> web.Response:
    """The list of imports with the upload form."""
    offset = page.offset()
    options = [("limit", str(PAGE)), ("offset", str(offset))]
    imports = await reports.imports(page.database, page.company, options)
    batches = await import_errors.count_batches(page, imports["data"])
    return page.render(
        "imports.html",
        form.status,
        imports=[
            {
                **each,
                "errorCount": each["errorCount"] - batches.get(each["importId"], 0),
                "totals": _totals(each),
                "duration": _duration(each),
            }
            for each in imports["data"]
        ],
        actors=await display_names(page, (each["actor"] for each in imports["data"])),
        undone=await undone.find_reverts(page.database, page.company, [each["importId"] for each in imports["data"]]),
        titles=await undo.titles(page, imports["data"]),
        kinds=OUTCOMES[:-1],
        more=imports["hasMore"],
        offset=offset,
        page_size=PAGE,
        mappers=await import_mappers(page),
        entities=[(EXPORTED + name, name) for name in page.database.catalog.entities],
        readable=READABLE_LABELS,
        files=FILES,
        form=form,
        is_live=any(each["finishedAt"] is None for each in imports["data"]),
    )


async def import_mappers(page: PageRequest) -> list[str]:
    """Return the names of the company's mappers other than templates."""
    found = await store.listed(page.database, page.company, MAPPERS, 0)
    return sorted(each["name"] for each in found["data"] if each["type"] != "template")


def _totals(report: dict[str, Any]) -> dict[str, int]:
    return {kind: sum(counts[kind] for counts in report["entities"].values()) for kind in OUTCOMES}


def _duration(report: dict[str, Any], now: datetime | None = None) -> timedelta:
    """How long the import has taken so far."""
    end = report["finishedAt"]
    return (datetime.fromisoformat(end) if end else now or datetime.now(UTC)) - datetime.fromisoformat(report["startedAt"])


def time_left(report: dict[str, Any], now: datetime | None = None) -> str:
    """How long the import will still take at its pace so far, in words; "" if that cannot be told yet."""
    taken, done, records = _duration(report, now), report["progress"]["done"], report["progress"]["records"]
    if report["finishedAt"] or not done or taken < SETTLED:
        return ""
    left = taken * max(records - done, 0) / done
    return f"about {duration(left)} left" if left >= timedelta(seconds=10) else "a few seconds left"


def _chunk_reader(upload: Upload) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        async with body_deadline(receive.BODY_TIMEOUT, "more of the file"):
            return await upload.read(CHUNK)

    return read
