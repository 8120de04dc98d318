"""The page /connect: addresses and steps for each program, and files that Power BI and Excel open.

The files contain only the address; the program asks for the key.  A key that is made here is shown once, and in no file.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from aiohttp import web

from app.auth import key_admin
from app.errors import ServiceError
from app.types import exact_json
from app.web.forms import Form, initial_form
from app.web.keys import EXPIRIES, read_expiry
from app.web.page import PageRequest

ODC = """<html xmlns:o="urn:schemas-microsoft-com:office:office" xmlns="http://www.w3.org/TR/REC-html40">
<head>
<meta http-equiv="Content-Type" content="text/x-ms-odc; charset=utf-8">
<meta name="ProgId" content="ODC.DataFeed">
<meta name="SourceType" content="ODATA">
<title>{title}</title>
<xml id="docprops"></xml>
<xml id="msodc">
<odc:OfficeDataConnection xmlns:odc="urn:schemas-microsoft-com:office:odc" xmlns="http://www.w3.org/TR/REC-html40">
<odc:Connection odc:Type="DATAFEED">
<odc:ConnectionString>Data Source={url};Namespaces to Include=*;Max Received Message Size=4398046511104;Integrated Security=Basic;User ID=api;Persist Security Info=false</odc:ConnectionString>
<odc:CommandType>TableCollection</odc:CommandType>
<odc:CommandText>{entities}</odc:CommandText>
</odc:Connection>
</odc:OfficeDataConnection>
</xml>
</head>
</html>
"""  # noqa: E501
FILES = {"pbids": "application/json", "odc": "text/x-ms-odc; charset=utf-8"}


async def show(page: PageRequest) -> web.StreamResponse:
    """The page."""
    return connect_page(page, initial_form(name="power-bi", expires="90d"))


async def create_key(page: PageRequest) -> web.StreamResponse:
    """Create a key that reads the company; the answer is the only page that shows it."""
    if not page.may("account"):
        raise ServiceError("forbidden", "an API key cannot create others: sign in")
    form = await page.form()
    expires_at = read_expiry(form)
    key = None
    if not form.problems:
        with form.collect_problems("name"):
            name = form["name"].strip()
            key = await key_admin.create_key(page.database, page.identity, name, [page.company], ["read"], expires_at=expires_at)
    return connect_page(page, form, key)


def connect_page(page: PageRequest, form: Form, key: str | None = None) -> web.Response:
    """The page; with `key`, the key that was created in place of the form."""
    return page.render(
        "connect.html",
        201 if key else form.status,
        form=form,
        key=key,
        expiries=EXPIRIES[:-1],
        base=page.base,
        odata=_odata(page),
        entity="products" if "products" in page.database.catalog else next(iter(page.database.catalog.entities), "products"),
    )


async def file(page: PageRequest) -> web.StreamResponse:
    """A connection file: `.pbids` for Power BI, `.odc` for Excel.  Raises not_found."""
    kind = page.path_variables["kind"]
    if kind not in FILES:
        raise ServiceError("not_found", f"no such file: {kind}; expected {' or '.join(FILES)}")
    content = power_bi(_odata(page)) if kind == "pbids" else excel(_odata(page), page.company, list(page.database.catalog.entities))
    headers = {
        "Content-Type": FILES[kind],
        "Content-Disposition": f'attachment; filename="{page.company}.{kind}"',
        "Cache-Control": "no-store",
    }
    return web.Response(body=content.encode(), headers=headers)


def power_bi(url: str) -> str:
    """A Power BI data source file, version 0.1."""
    source = {"details": {"protocol": "odata", "address": {"url": url}}, "mode": "Import"}
    return exact_json.dumps({"version": "0.1", "connections": [source]}, indent=2) + "\n"


def excel(url: str, company: str, entities: list[str]) -> str:
    """An Office data connection to the entity sets."""
    names = ",".join(f'"{name}"' for name in entities)
    return ODC.format(title=escape(company), url=escape(url), entities=escape(names))


def _odata(page: PageRequest) -> str:
    return f"{page.base}/api/odata/{page.company}"
