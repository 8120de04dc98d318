"""Export form: turns an entity, columns, a filter and a format into the URL of the API's export."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from aiohttp import web

from app.export.request import read_request
from app.export.response import find_format
from app.mapper import store
from app.web.forms import Form
from app.web.page import PageRequest, see_other

FORMATS = (
    ("csv", "CSV", "for spreadsheets and scripts"),
    ("excel", "Excel", "a workbook with typed cells"),
    ("json", "JSON", "a document that can be imported again"),
    ("xml", "XML", "the same structure, with a schema"),
    ("pdf", "PDF", "for printing, up to 10,000 rows"),
    ("html", "HTML", "one page with one table"),
    ("parquet", "Parquet", "typed columns for DuckDB, pandas, Spark"),
    ("mapper", "Mapper", "a template, or an import mapper in reverse"),
)
OPTIONS = {"filter": "$filter", "orderby": "$orderby", "top": "$top"}
FIELDS = ("entity", "format", "mapper", *OPTIONS)


async def show(page: PageRequest) -> web.StreamResponse:
    """The form; when it is sent, a redirect to the file, the file's URL, or the form with its problems."""
    catalog = page.database.catalog
    form = Form({name: [page.query[name].strip()] for name in FIELDS if page.query.get(name, "").strip()})
    form.values["columns"] = page.request.query.getall("columns", [])
    entity = form["entity"] or next(iter(catalog.entities), "")
    if entity not in catalog:
        form.add_problem("entity", f"No such entity: {entity}")
        entity = next(iter(catalog.entities))
    form.values["entity"] = [entity]
    form.values.setdefault("format", ["csv"])
    names = [field.reference or field.name for field in catalog[entity].fields.values()]
    url = None
    if "do" in page.query and not form.problems:
        url = await export_url(page, form)
        if url and page.query["do"] == "download":
            return see_other(url)
    found = await store.listed(page.database, page.company, 1_000, 0)
    return page.render(
        "export.html",
        form.status,
        form=form,
        entities=list(catalog.entities),
        names=names,
        formats=FORMATS,
        mappers=sorted((each["name"], each["type"]) for each in found["data"]),
        url=url,
        base=f"{page.request.scheme}://{page.request.host}",
    )


async def export_url(page: PageRequest, form: Form) -> str | None:
    """Return the URL of the export; None if the form has problems, which are added to it."""
    parameters = query_parameters(form)
    entity = page.database.catalog[form["entity"]]
    if form["format"] == "mapper" and not form["mapper"]:
        form.add_problem("mapper", "Choose a mapper")
        return None
    targets = {option: name for name, option in OPTIONS.items()} | {"$select": "columns"}
    with form.collect_problems("entity", "format", "mapper", "columns", *OPTIONS, targets=targets):
        request = read_request(page.database.catalog, entity, page.company, parameters)
        async with page.database.session(page.company) as connection:
            await find_format(connection, request)
    query = urlencode({**parameters, "export": "true"}, quote_via=quote, safe="$,()")
    return None if form.problems else f"/api/{page.company}/{entity.name}?{query}"


def query_parameters(form: Form) -> dict[str, str]:
    """Return the query parameters of the API for the form."""
    parameters = {"mapper": form["mapper"]} if form["format"] == "mapper" else {"format": form["format"]}
    if form.all("columns"):
        parameters["$select"] = ",".join(form.all("columns"))
    return parameters | {option: form[name] for name, option in OPTIONS.items() if form[name]}
