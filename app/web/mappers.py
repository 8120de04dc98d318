"""Mappers: written, checked with errors at their line, tried on a piece of a source, stored."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from app.errors import ServiceError
from app.mapper import store
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper, TemplateMapper
from app.web.forms import Form, blank
from app.web.site import Visit

PAGE = 50  # mappers
AROUND = 2  # lines shown above and below one with an error
EXAMPLE = """type csv

products = 'row' {
    id[code] = 'sku'            # "id": "code:..."
    name = trim('title')
    price = number('price')
}
"""


async def show(visit: Visit) -> web.StreamResponse:
    """The list."""
    offset = visit.offset()
    found = await store.listed(visit.database, visit.company, PAGE, offset)
    return visit.render("mappers.html", mappers=found["data"], more=found["hasMore"], offset=offset, page_size=PAGE)


async def new(visit: Visit) -> web.StreamResponse:
    return editor(visit, blank(name="", text=EXAMPLE), None)


async def edit(visit: Visit) -> web.StreamResponse:
    stored = await store.show(visit.database, visit.company, visit.named["name"])
    return editor(visit, blank(name=stored.name, text=stored.text, seen=mark(stored.text)), stored.name)


async def save(visit: Visit) -> web.StreamResponse:
    """Store a mapper or try it on a source, as the button says."""
    form = await visit.form()
    name = visit.named.get("name")
    form.values["text"] = [form["text"].replace("\r\n", "\n")]
    if form["do"] == "preview":
        return await preview(visit, form, name)
    place: dict[str, Any] = {}
    if not (name or form["name"].strip()):
        form.refuse("name", "Enter a name")
    with form.checked("name", "text", targets={"": "text"}), noting(place):
        check(visit, form)
    if not form.problems:
        with form.checked("name", "text", targets={"": "name"}):
            given = name or form["name"].strip()
            await check_seen(visit, form, given, is_new=name is None)
            await store.put(visit.database, visit.company, given, form["text"].encode(), visit.identity.actor)
            return visit.see(f"/mappers/{given}", said="mapper-saved")
    return editor(visit, form, name, place=place)


async def preview(visit: Visit, form: Form, name: str | None) -> web.Response:
    """The first records that the mapper as it stands in the form makes of the source beside it."""
    place: dict[str, Any] = {}
    document = None
    with form.checked("text", targets={"": "text"}), noting(place):
        mapper = check(visit, form)
        if isinstance(mapper, TemplateMapper):
            raise ServiceError("invalid_mapper", "a template reads no source: try it on the page Export", target="text")
        if not form["source"].strip():
            form.refuse("source", "Paste the beginning of a source here to see what becomes of it")
        else:
            with form.checked("source", targets={"": "source"}):
                document = await _preview(mapper, form["source"])
    return editor(visit, form, name, place=place, document=document)


async def _preview(mapper: Mapper, source: str) -> str:
    async def bodies() -> AsyncIterator[bytes]:
        yield source.encode()

    made = await store.preview(mapper, bodies(), str(store.DEFAULT_LIMIT), "utf-8", asyncio.to_thread)
    return json.dumps(json.loads(made), ensure_ascii=False, indent=2)


def check(visit: Visit, form: Form) -> Mapper | TemplateMapper:
    """The mapper as it is typed.  Raises invalid_mapper."""
    return read(form["text"], visit.database.catalog)


class noting:
    """Keeps the line and the column of an error that passes."""

    def __init__(self, place: dict[str, Any]) -> None:
        self._place = place

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ServiceError) and "line" in error.more:
            self._place.update(line=error.more["line"], column=error.more.get("column"))


async def check_seen(visit: Visit, form: Form, name: str, *, is_new: bool) -> None:
    """Raises conflict if there is another mapper of that name than whoever saves has seen; saving again then replaces it."""
    try:
        stored = await store.show(visit.database, visit.company, name)
    except ServiceError as error:
        if error.code == "not_found":
            return
        raise
    if is_new:
        raise ServiceError("conflict", f"there is a mapper {name} already", target="name")
    if form["seen"] != mark(stored.text):
        form.values["seen"] = [mark(stored.text)]
        message = "somebody has changed this mapper since you opened it: reload to see it, or save again to replace it by yours"
        raise ServiceError("conflict", message, target="text")


def mark(text: str) -> str:
    """By what a text is known again."""
    return hashlib.sha256(text.encode()).hexdigest()


async def delete(visit: Visit) -> web.StreamResponse:
    await visit.form()
    await store.delete(visit.database, visit.company, visit.named["name"])
    return visit.see("/mappers", said="mapper-deleted")


def editor(
    visit: Visit, form: Form, name: str | None, place: dict[str, Any] | None = None, document: str | None = None
) -> web.Response:
    """The form; an error of the text is shown at its line, with the lines around it."""
    around: list[tuple[int, str]] = []
    if place:
        lines = form["text"].split("\n")
        first = max(place["line"] - 1 - AROUND, 0)
        around = list(enumerate(lines[first : place["line"] + AROUND], first + 1))
    return visit.render("mapper.html", form.status, form=form, name=name, place=place or None, around=around, document=document)
