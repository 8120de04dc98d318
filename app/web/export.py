"""Export form: turns an entity, columns, a filter and a format into the URL of the API's export, and shows its first rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

import psycopg
from aiohttp import web
from psycopg.sql import SQL, Composable

from app import extras, formats
from app.database.catalog import Entity
from app.database.past import open_past
from app.export import content
from app.export.output import find_output
from app.export.read import Reader
from app.export.request import read_request
from app.export.row_formats import PLAIN
from app.export.shape import ExportField
from app.export.to_csv import CsvLines
from app.formats import CUSTOM, FORMATS
from app.mapper import store
from app.query.check.moments import start
from app.web.addresses import as_of
from app.web.forms import Form
from app.web.page import PageRequest, see_other
from app.web.past import Past, read_state, version_names

OPTIONS = {"filter": "$filter", "orderby": "$orderby", "top": "$top"}
FIELDS = ("entity", "format", "mapper", "since", "versions", "asof", *OPTIONS)
TARGETS = {option: name for name, option in OPTIONS.items()} | {"$select": "columns", "version": "asof", "at": "asof"}
MAPPERS = 1_000  # offered at most
PREVIEW = 10  # rows
PREVIEW_TIMEOUT = 3_000  # milliseconds


@dataclass(frozen=True, slots=True)
class Preview:
    """The first rows of an export, as CSV has them.

    count: the number of all, None if counting takes too long; past: the state of which they are, None for the present.
    """

    columns: list[str]
    rows: list[list[str | None]]
    count: int | None
    past: Past | None


class Cells(CsvLines):
    """The values of CSV, a row as one array of JSON: the module csv refuses long texts."""

    copy = PLAIN

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        values = [SQL("({})::text").format(self.value(field, column)) for field, column in zip(fields, columns, strict=True)]
        return SQL("array_to_json(array[{}]) as row").format(SQL(", ").join(values))


async def show(page: PageRequest) -> web.StreamResponse:
    """The form; when it is sent, a redirect to the file, the file's URL, or the form with its problems."""
    form, entity = read_choice(page)
    names = column_names(entity)
    strays = [] if "do" in page.query else [each for each in form.all("columns") if each not in names]
    form.values["columns"] = [each for each in form.all("columns") if each not in strays]
    found = await store.listed(page.database, page.company, MAPPERS, 0)
    mappers = sorted((each["name"], each["type"]) for each in found["data"])
    if form["format"] == CUSTOM.name and form["mapper"] and form["mapper"] not in dict(mappers):
        form.add_problem("mapper", f"{page.company} has no mapper {form['mapper']}")
    url = None
    if "do" in page.query and not form.problems:
        url = await export_url(page, form)
        if url and page.query["do"] == "download":
            return see_other(url)
    preview = None if form.problems else await read_preview(page, form, entity)
    return page.render(
        "export.html",
        form.status,
        form=form,
        entities=list(page.database.catalog.entities),
        names=names,
        strays=strays,
        formats=[(each, extras.is_installed(each.extra)) for each in FORMATS.values()],
        mappers=mappers,
        versions=await version_names(page),
        preview=preview,
        preview_size=PREVIEW,
        url=url,
        base=page.base,
    )


def read_choice(page: PageRequest) -> tuple[Form, Entity]:
    """The form as it was sent, and its entity: the first one if none or an unknown one is chosen."""
    catalog = page.database.catalog
    form = Form({name: [page.query[name].strip()] for name in FIELDS if page.query.get(name, "").strip()})
    form.values["columns"] = page.request.query.getall("columns", [])
    entity = form["entity"] or next(iter(catalog.entities), "")
    if entity not in catalog:
        form.add_problem("entity", f"No such entity: {entity}")
        entity = next(iter(catalog.entities))
    form.values["entity"] = [entity]
    format = formats.find(form["format"] or formats.CSV.name)
    if format is None or format.name not in FORMATS:
        form.add_problem("format", f"Expected one of {', '.join(FORMATS)}, got {form['format']}")
    else:
        form.values["format"] = [format.name]
        with form.collect_problems("format"):
            extras.require(format.extra, "format")
    return form, catalog[entity]


def column_names(entity: Entity) -> list[str]:
    """The names of an entity's columns in an export."""
    return [field.reference or field.name for field in entity.fields.values()]


async def read_preview(page: PageRequest, form: Form, entity: Entity) -> Preview | None:
    """Read the first rows; None if that takes longer than PREVIEW_TIMEOUT, or if the form has problems, which are added to it."""
    with form.collect_problems("columns", "since", "asof", *OPTIONS, targets=TARGETS):
        given = query_parameters(form) if form["since"] else {**options(form), "format": "csv"}
        export = read_request(page.database.catalog, entity, page.company, given)
    if form.problems or export.since:  # to show a part of what has changed, all of it would be read
        return None
    top = export.query.top
    first = replace(export, query=replace(export.query, top=PREVIEW if top is None else min(top, PREVIEW)))
    rows, count, past = None, None, None
    try:
        async with page.database.snapshot(page.company) as connection:
            if export.moment:
                with form.collect_problems("asof", targets=TARGETS):
                    await open_past(connection, page.company, export.moment)
                if form.problems:
                    return None
                past = await read_state(connection, form["asof"])
            await connection.execute(f"set local statement_timeout = {PREVIEW_TIMEOUT}".encode())
            reader = Reader(connection, PREVIEW_TIMEOUT / 1000)
            lines = b"".join([block async for block in reader.lines(first, Cells())]).splitlines()
            rows = [json.loads(line) for line in lines]
            (count,) = await reader.one(content.count(export))
    except (psycopg.errors.QueryCanceled, TimeoutError):
        pass
    return None if rows is None else Preview([field.name for field in content.columns(export).fields], rows, count, past)


async def export_url(page: PageRequest, form: Form) -> str | None:
    """Return the URL of the export; None if the form has problems, which are added to it."""
    parameters = query_parameters(form)
    entity = page.database.catalog[form["entity"]]
    if form["format"] == CUSTOM.name and not form["mapper"]:
        form.add_problem("mapper", "Choose a mapper")
        return None
    with form.collect_problems("entity", "format", "mapper", "columns", "since", "asof", *OPTIONS, targets=TARGETS):
        request = read_request(page.database.catalog, entity, page.company, parameters)
        async with page.database.session(page.company) as connection:
            await find_output(connection, request)
    query = urlencode({**parameters, "export": "true"}, quote_via=quote, safe="$,()")
    return None if form.problems else f"/api/{page.company}/{entity.name}?{query}"


def query_parameters(form: Form) -> dict[str, str]:
    """Return the query parameters of the API for the form."""
    format = {"mapper": form["mapper"]} if form["format"] == CUSTOM.name else {"format": form["format"]}
    return format | options(form)


def options(form: Form) -> dict[str, str]:
    """Return the query options of the API for the form."""
    select = {"$select": ",".join(form.all("columns"))} if form.all("columns") else {}
    since = {"since": start(form["since"])} if form["since"] else {}
    versions = {"versions": form["versions"]} if form["versions"] else {}
    return select | {option: form[name] for name, option in OPTIONS.items() if form[name]} | since | versions | as_of(form["asof"])
