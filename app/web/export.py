"""Export: an entity, its columns, a filter and a format become the URL of the export that the API gives."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from aiohttp import web

from app.export.request import read_request
from app.export.response import find_format
from app.mapper import store
from app.web.forms import Form
from app.web.site import Visit, see_other

FORMATS = (
    ("csv", "CSV", "for spreadsheets and scripts"),
    ("excel", "Excel", "a workbook, cells of their types"),
    ("json", "JSON", "a document that can be imported again"),
    ("xml", "XML", "the same shape, with a schema"),
    ("pdf", "PDF", "to print, up to 10,000 rows"),
    ("html", "HTML", "one page with one table"),
    ("mapper", "By a mapper", "a template, or an import mapping run backwards"),
)
OPTIONS = {"filter": "$filter", "orderby": "$orderby", "top": "$top"}
FIELDS = ("entity", "format", "mapper", *OPTIONS)


async def show(visit: Visit) -> web.StreamResponse:
    """The form; when it is sent, the way to the file, or what is wrong in it."""
    catalog = visit.database.catalog
    form = Form({name: [visit.query[name].strip()] for name in FIELDS if visit.query.get(name, "").strip()})
    form.values["columns"] = visit.request.query.getall("columns", [])
    entity = form["entity"] or next(iter(catalog.entities), "")
    if entity not in catalog:
        form.refuse("entity", f"There is no entity {entity}")
        entity = next(iter(catalog.entities))
    form.values["entity"] = [entity]
    form.values.setdefault("format", ["csv"])
    names = [field.reference or field.name for field in catalog[entity].fields.values()]
    url = None
    if "do" in visit.query and not form.problems:
        url = await check(visit, form)
        if url and visit.query["do"] == "download":
            return see_other(url)
    found = await store.listed(visit.database, visit.company, 1_000, 0)
    return visit.render(
        "export.html",
        form.status,
        form=form,
        entities=list(catalog.entities),
        names=names,
        formats=FORMATS,
        mappers=sorted((each["name"], each["type"]) for each in found["data"]),
        url=url,
        base=f"{visit.request.scheme}://{visit.request.host}",
    )


async def check(visit: Visit, form: Form) -> str | None:
    """The URL of the export; None if something is wrong, which the form then says."""
    given = parameters(form)
    entity = visit.database.catalog[form["entity"]]
    if form["format"] == "mapper" and not form["mapper"]:
        form.refuse("mapper", "Choose a mapper")
        return None
    targets = {option: name for name, option in OPTIONS.items()} | {"$select": "columns"}
    with form.checked("entity", "format", "mapper", "columns", *OPTIONS, targets=targets):
        asked = read_request(visit.database.catalog, entity, visit.company, given)
        async with visit.database.session(visit.company) as connection:
            await find_format(connection, asked)
    query = urlencode({**given, "export": "true"}, quote_via=quote, safe="$,()")
    return None if form.problems else f"/api/{visit.company}/{entity.name}?{query}"


def parameters(form: Form) -> dict[str, str]:
    """What the API is asked for."""
    given = {"mapper": form["mapper"]} if form["format"] == "mapper" else {"format": form["format"]}
    if form.all("columns"):
        given["$select"] = ",".join(form.all("columns"))
    return given | {option: form[name] for name, option in OPTIONS.items() if form[name]}
