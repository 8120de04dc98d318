"""Mappers: list, and an editor that shows errors at their line and previews the import of a sample."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from app.errors import ServiceError
from app.mapper import store
from app.mapper.language.tree import Mapper, TemplateMapper
from app.types import exact_json
from app.web import mapper_words
from app.web.forms import Form, initial_form
from app.web.page import PageRequest

PAGE = 50  # mappers
CONTEXT_LINES = 2  # shown above and below a line with an error
ENCODING = re.compile(r"""\A(\ufeff?\s*<\?xml\b[^>]*?)\s+encoding\s*=\s*(?:"[^">]*"|'[^'>]*')""")
EXAMPLE = """type csv

products = 'row' {
    id[code] = 'sku'            # "id": "code:..."
    name = trim('title')
    price = number('price')
}
"""


async def show(page: PageRequest) -> web.StreamResponse:
    """The list."""
    offset = page.offset()
    found = await store.listed(page.database, page.company, PAGE, offset)
    return page.render("mappers.html", mappers=found["data"], more=found["hasMore"], offset=offset, page_size=PAGE)


async def new(page: PageRequest) -> web.StreamResponse:
    return editor(page, initial_form(name="", text=EXAMPLE), None)


async def edit(page: PageRequest) -> web.StreamResponse:
    stored = await store.show(page.database, page.company, page.path_variables["name"])
    return editor(page, initial_form(name=stored.name, text=stored.text, seen=fingerprint(stored.text)), stored.name)


async def save(page: PageRequest) -> web.StreamResponse:
    """Store a mapper or preview it, depending on the button."""
    form = await page.form()
    name = page.path_variables.get("name")
    form.values["text"] = [form["text"].replace("\r\n", "\n")]
    if form["do"] in ("preview", "check"):
        return await preview(page, form, name)
    location: dict[str, Any] = {}
    if not (name or form["name"].strip()):
        form.add_problem("name", "Enter a name")
    with form.collect_problems("name", "text", targets={"": "text"}), record_location(location):
        parse(page, form)
    if not form.problems:
        with form.collect_problems("name", "text", targets={"": "name"}):
            new_name = name or form["name"].strip()
            await check_unchanged(page, form, new_name, is_new=name is None)
            await store.put(page.database, page.company, new_name, form["text"].encode(), page.identity.actor)
            return page.redirect(f"/mappers/{new_name}", flash="mapper-saved")
    return editor(page, form, name, location=location)


async def preview(page: PageRequest, form: Form, name: str | None) -> web.Response:
    """Show the first records that the mapper in the form makes of the source in the form.

    The editor asks for a check (`do`) after each pause in typing: it needs no source.
    """
    location: dict[str, Any] = {}
    document = None
    with form.collect_problems("text", targets={"": "text"}), record_location(location):
        mapper = parse(page, form)
        if isinstance(mapper, Mapper) and form["source"].strip():
            with form.collect_problems("source", targets={"": "source"}):
                document = await _preview_json(mapper, form["source"])
        elif form["do"] == "preview":
            if isinstance(mapper, TemplateMapper):
                raise ServiceError("invalid_mapper", "a template does not read a source; try it on the Export page", target="text")
            form.add_problem("source", "Paste the first lines of a file to preview the import")
    return editor(page, form, name, location=location, document=document)


async def _preview_json(mapper: Mapper, source: str) -> str:
    async def bodies() -> AsyncIterator[bytes]:
        yield _bytes_of(mapper, source)

    made = await store.preview(mapper, bodies(), str(store.DEFAULT_LIMIT), "utf-8", asyncio.to_thread)
    return exact_json.dumps(exact_json.loads(made), ensure_ascii=False, indent=2)


def _bytes_of(mapper: Mapper, source: str) -> bytes:
    """The bytes of a text whose characters are known, whatever encoding the mapper or the XML declares for those of a file."""
    if mapper.format == "csv":
        return codecs.BOM_UTF8 + source.removeprefix("\ufeff").encode()
    return (ENCODING.sub(r"\1", source, count=1) if mapper.format == "xml" else source).encode()


def parse(page: PageRequest, form: Form) -> Mapper | TemplateMapper:
    """Parse the mapper in the form.  Raises ServiceError(invalid_mapper)."""
    return store.read(form["text"], page.database.catalog)


@contextmanager
def record_location(location: dict[str, Any]) -> Iterator[None]:
    """Copy the line and the column of an error raised inside to `location`; the error passes."""
    try:
        yield
    except ServiceError as error:
        if "line" in error.more:
            location.update(line=error.more["line"], column=error.more.get("column"))
        raise


async def check_unchanged(page: PageRequest, form: Form, name: str, *, is_new: bool) -> None:
    """Raises ServiceError(conflict) if the stored mapper is not the one that the editor was opened with.

    Saving the form again then replaces it.
    """
    try:
        stored = await store.show(page.database, page.company, name)
    except ServiceError as error:
        if error.code == "not_found":
            return
        raise
    if is_new:
        raise ServiceError("conflict", f"a mapper named {name} already exists", target="name")
    if form["seen"] != fingerprint(stored.text):
        form.values["seen"] = [fingerprint(stored.text)]
        message = "this mapper was changed since you opened it: reload to see the change, or save again to overwrite it"
        raise ServiceError("conflict", message, target="text")


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def delete(page: PageRequest) -> web.StreamResponse:
    await page.form()
    await store.delete(page.database, page.company, page.path_variables["name"])
    return page.redirect("/mappers", flash="mapper-deleted")


def editor(
    page: PageRequest, form: Form, name: str | None, location: dict[str, Any] | None = None, document: str | None = None
) -> web.Response:
    """The editor; an error of the mapper is shown with the lines around it."""
    from app.mapper.language.functions import NAMED  # imported late: brings the locales

    excerpt: list[tuple[int, str]] = []
    if location:
        lines = form["text"].split("\n")
        first = max(location["line"] - 1 - CONTEXT_LINES, 0)
        excerpt = list(enumerate(lines[first : location["line"] + CONTEXT_LINES], first + 1))
    return page.render(
        "mapper.html",
        form.status,
        form=form,
        name=name,
        location=location or None,
        excerpt=excerpt,
        document=document,
        entities=mapper_words.entities(page.database.catalog),
        functions=NAMED,
        settings=mapper_words.SETTINGS,
    )
