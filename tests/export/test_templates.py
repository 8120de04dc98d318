"""Mappers of exports: templates and the limits of their sandbox, and import mappings in reverse."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from jinja2 import ChainableUndefined
from pypdf import PdfReader

from app.config import Config
from app.database.database import Database
from app.errors import ServiceError
from app.export import custom
from app.export.custom import ExportMapper, ExportTemplate, TemplateLimits
from app.export.document import lay_out
from app.export.environment import RowEnvironment, readable
from app.export.output import extension_of
from app.export.read import Reader
from app.export.request import read_parameters, read_request
from app.mapper.reverse.base import ReverseWriter
from tests.export.conftest import TEXTS, Shop, put_mapper
from tests.export.exported import UNMAPPED

pytestmark = pytest.mark.processes

NOW = datetime(2026, 11, 21, 8, 15, 30, tzinfo=UTC)
PLAIN = "text/plain"
USUAL = TemplateLimits()


def rendered(shop: Shop, mapper: ExportMapper, entity: str = "products", **options: Any) -> str:
    """Return what the mapper makes of the rows."""

    async def run() -> bytes:
        database = await Database.open(Config(database_url=shop.feed.url))
        try:
            given = read_parameters([("mapper", "m"), *((f"${name}", str(value)) for name, value in options.items())])
            export = read_request(database.catalog, database.catalog[entity], "demo", given)
            async with database.snapshot("demo") as connection:
                reader = Reader(connection, 30)
                write = (
                    custom.render(replace(export, now=NOW), reader, mapper)
                    if isinstance(mapper, ExportTemplate)
                    else custom.reverse(export, reader, mapper)
                )
                return b"".join([bytes(block) async for block in write])
        finally:
            await database.close()

    return asyncio.run(run()).decode()


def refused(shop: Shop, text: str, limits: TemplateLimits = USUAL, **options: Any) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        rendered(shop, ExportTemplate(PLAIN, text, limits), **options)
    assert (error.value.status, error.value.target) == (400, "mapper")
    return error.value


def test_a_template_has_rows_entity_company_and_now(shop: Shop) -> None:
    text = "{{ entity }} of {{ company }}, {{ now.strftime('%d.%m.%Y') }}\n{% for row in rows %}{{ row.code }};{% endfor %}\n"
    codes = "".join(f"P{number};" for number in range(len(TEXTS)))
    assert rendered(shop, ExportTemplate(PLAIN, text), orderby="id") == f"products of demo, 21.11.2026\n{codes}\n"


def test_values_have_python_types_and_null_is_rendered_as_nothing(shop: Shop) -> None:
    text = (
        "{% for row in rows %}{{ row.invoiceDate.year }} {{ row.note }}|{{ row.customer }}|{{ row.updatedAt.tzinfo }}|"
        "{% for item in row['items'] %}{{ '%.2f' % (item.quantity * (item.price or 0)) }} {{ item.product }},{% endfor %}\n{% endfor %}"
    )
    assert (
        rendered(shop, ExportTemplate(PLAIN, text), "invoices", orderby="code")
        == "2026 |C1|UTC|0.20 P0,0.20 P0,0.00 ,\n2026 ||UTC|\n"
    )


def test_rows_as_json_keep_every_digit(shop: Shop) -> None:
    text = "{% for row in rows %}{{ row.total|tojson }} {{ row.orderDate|tojson }} {{ row|tojson(indent=2)|length > 100 }}\n{% endfor %}"
    assert (
        rendered(shop, ExportTemplate(PLAIN, text), "orders", orderby="code")
        == '123456789012345.6789 "2026-11-20" True\nnull "1899-12-31" True\n'
    )
    assert rendered(shop, ExportTemplate("text/html", "{{ '</script>'|tojson }}")) == r'"\u003c/script\u003e"'
    assert "unsupported" in refused(shop, "{{ rows|tojson }}").message


@pytest.mark.parametrize(("text", "expected"), [
    ("{% if rows %}{% for row in rows %}{{ row.code }} {% endfor %}{% else %}none{% endif %}", "P0 P1 "),
    ("{% for row in rows %}{{ row.code }}{{ '!' if rows }} {% endfor %}{{ 'some' if rows }}", "P0! P1! some"),
    ("{% for row in rows %}{{ loop.index }}/{{ loop.length }} {% endfor %}", "1/2 2/2 "),
    ("{% set all = rows | list %}{{ all | length }} {{ all | length }} {{ (all | last).code }}", "2 2 P1"),
    ("{{ rows is iterable }} {{ rows | map(attribute='code') | join(',') }}", "True P0,P1"),
    ("{{ rows }}", "<values>"),
])  # fmt: skip
def test_rows_are_read_once_and_tell_before_whether_there_are_any(shop: Shop, text: str, expected: str) -> None:
    assert rendered(shop, ExportTemplate(PLAIN, text), orderby="id", top=2) == expected


def test_no_rows_are_false(shop: Shop) -> None:
    text = "{% if rows %}some{% else %}none{% endif %}{% for row in rows %}row{% else %} at all{% endfor %}"
    assert rendered(shop, ExportTemplate(PLAIN, text), filter="false") == "none at all"


@pytest.mark.parametrize(("text", "message"), [
    ("{{ rows|list|length }}\n{{ rows|list|length }}", "line 3: rows can be read once: {% set all = rows | list %} keeps them"),
    ("{% for row in rows %}{% for row in rows %}{% endfor %}{% endfor %}", "line 2: rows can be read once"),
    ("{{ rows|length }}", "line 2: the number of rows is known only when all are read: {% set all = rows | list %} keeps them"),
])  # fmt: skip
def test_rows_that_are_read_twice_or_counted_are_an_error(shop: Shop, text: str, message: str) -> None:
    assert refused(shop, text, top=2).message.startswith(message)


def test_expanded_rows_are_nested(shop: Shop) -> None:
    text = "{% for row in rows %}{{ row.category.name if row.category else '-' }} {{ row.variants|length }};{% endfor %}"
    assert rendered(shop, ExportTemplate(PLAIN, text), expand="category,variants", top=2, orderby="id") == "- 2;Odd 0;"


def test_a_collection_may_be_named_as_a_method_of_dicts(shop: Shop) -> None:
    text = "{% for row in rows %}{% for item in row.items %}{{ item.product or '-' }} {% endfor %};{% endfor %}"
    assert rendered(shop, ExportTemplate(PLAIN, text), "invoices", orderby="code") == "P0 P0 - ;;"
    names = ("items", "keys", "values", "get", "copy", "pop", "update")
    text = "{% for row in rows %}" + "".join(f"{{{{ row.{name} }}}}" for name in names) + "{% endfor %}"
    environment = RowEnvironment()
    row = {name: name[0] for name in names}
    assert environment.from_string(text).render(rows=[row]) == "ikvgcpu"
    assert environment.from_string("{% for k, v in row.items() %}{{ k }}{% endfor %}").render(row={"a": 1}) == "a"


OBJECTS = [
    "'%s'|format(rows)", "'%s' % rows", "'{}'.format(rows)", "rows ~ ''", "rows", "[rows]", "{'a': rows}|string", "[[rows]]|join",
    "rows|pprint", "rows|map('length')", "rows|select", "rows|batch(2)", "rows|map('length')|reverse", "[1]|reverse",
    "{'a': 1}|items", "'a'.upper", "'a'['upper']", "'a'|attr('upper')", "['a']|map(attribute='upper')|list", "{}.get", "now.isoformat",
    "'a'.format", "lipsum", "[lipsum]", "{}[lipsum] is defined", "cycler(1)", "cycler(1).next", "joiner(1)", "namespace(a=rows)",
    "dict(a=lipsum)", "range", "self", "self.a", "self['a']", "self.a.super", "m", "m.caller", "cycler", "now|string|attr('strip')",
]  # fmt: skip


def test_a_template_cannot_print_the_address_of_an_object() -> None:
    environment = RowEnvironment(undefined=ChainableUndefined)
    frame = "{%% block a %%}{%% endblock %%}{%% macro m() %%}{%% endmacro %%}{{ %s }}{%% for each in [1] %%}{{ loop }}{{ loop.cycle }}{%% endfor %%}"
    found = {text: environment.from_string(frame % text).render(rows=readable(iter([{}])), now=NOW) for text in OBJECTS}
    assert [text for text, out in found.items() if re.search("0x[0-9a-f]{6}", out, re.IGNORECASE)] == []
    assert found["'%s'|format(rows)"].startswith("<values>") and found["'a'.upper"].startswith("<function>")
    works = "{% set c = cycler(1, 2) %}{% set j = joiner(';') %}{% for n in range(3) %}{{ j() }}{{ c.next() }}{% endfor %}{{ 'a'.upper() }}{{ 'a{}'.format(1) }}"
    works += "{{ rows|map(attribute='a')|select|map('upper')|join(',') }}"
    assert environment.from_string(works).render(rows=readable(iter([{"a": "x"}, {"a": "y"}]))) == "1;2;1Aa1X,Y"


def test_a_template_of_a_company_prints_no_address(shop: Shop) -> None:
    assert rendered(shop, ExportTemplate(PLAIN, "{{ '%s'|format(rows) }}")) == "<values>"


@pytest.mark.parametrize(("media_type", "extension"), [
    ("application/xml", "xml"), ("text/xml", "xml"), ("Application/XML", "xml"), ("text/html", "html"), ("text/plain", "txt"),
    ("text/csv", "csv"), ("application/json", "json"), ("application/vnd.acme+xml", "xml"), ("application/problem+json", "json"),
    ("image/svg+xml", "svg"), ("application/x-unknown", "txt"),
])  # fmt: skip
def test_a_rendered_file_has_the_extension_of_its_media_type(media_type: str, extension: str) -> None:
    assert extension_of(media_type) == extension


def test_texts_are_rendered_unchanged_and_escaped_in_markup(shop: Shop) -> None:
    text = "{% for row in rows %}{{ row.name }}\x00{% endfor %}".replace("\x00", "\N{SYMBOL FOR NULL}")
    assert rendered(shop, ExportTemplate(PLAIN, text), orderby="id").split("\N{SYMBOL FOR NULL}")[:-1] == list(TEXTS)
    for media_type in ("text/html", "application/xml", "image/svg+xml"):
        assert "<b>" not in rendered(shop, ExportTemplate(media_type, text))


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("a\n{% for row in rows %}", "line 3: Unexpected end of template", 3),
        ("{{ row.code }}", "line 2: 'row' is undefined", 2),
        ("\n\n{% for row in rows %}{{ row.nope }}{% endfor %}", "line 4: 'dict object' has no attribute 'nope'", 4),
        ("{{ 1 / 0 }}", "line 2: division by zero", 2),
        ("{{ rows|length }}", "the number of rows is known only when all are read", 2),
        ("{% include 'x' %}", "no loader for this environment", 2),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe", 2),
        ("{{ rows.gi_frame.f_globals }}", "has no attribute 'gi_frame'", 2),
        ("{{ cycler.__init__.__globals__.os.environ }}", "is unsafe", 2),
        ("{% for x in range(10 ** 9) %}{% endfor %}", "range", 2),
        (
            "{% set ns = namespace(a='x' * 1000) %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
            "MB of memory",
            None,
        ),
        ("{{ 'x' * 10 ** 10 }}", "MB of memory", None),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion", 2),
    ],
)
def test_an_error_in_a_template_is_reported_with_its_line(shop: Shop, text: str, expected: str, line: int | None) -> None:
    error = refused(shop, text)
    assert expected in error.message and error.more.get("line") == line


def test_the_cpu_time_of_a_template_is_limited(shop: Shop) -> None:
    text = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    assert "limit of 1 s of CPU time" in refused(shop, text, TemplateLimits(seconds=1)).message


def test_the_output_of_a_template_is_limited(shop: Shop) -> None:
    text = "{% for a in range(99999) %}{{ 'x' * 100 }}{% endfor %}"
    assert "limit of 1,000,000 bytes" in refused(shop, text, TemplateLimits(output=1_000_000)).message


def test_a_template_cannot_read_settings(shop: Shop) -> None:
    names = [name for name in ("environ", "os", "sys", "open", "config", "self.environment", "request") if name]
    for name in names:
        refused(shop, f"{{{{ {name}.x }}}}")


def test_a_media_type_that_would_split_a_header_is_refused() -> None:
    for wrong in ("", "text", "text/html\r\nX: y", "text/html; charset=x", "a b/c", "text/"):
        with pytest.raises(ServiceError):
            ExportTemplate(wrong, "")


def test_a_rendered_template_is_sent_as_a_file_that_cannot_run_scripts(shop: Shop) -> None:
    put_mapper(
        shop.service, "page", "type template text/html\n<h1>{{ entity }}</h1>{% for row in rows %}{{ row.name }}{% endfor %}"
    )
    reply = shop.get("products", "custom", mapper="page", top=7, orderby="id")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert reply.headers["Content-Disposition"] == 'attachment; filename="products.html"'
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and "sandbox" in reply.headers["Content-Security-Policy"]
    assert b"&lt;b&gt;" in reply.body and b"<b>" not in reply.body
    wrong = shop.get("products", "csv", mapper="page")
    assert (wrong.status, wrong.json["target"]) == (400, "format")


def test_an_error_in_a_template_is_an_http_error(shop: Shop) -> None:
    put_mapper(shop.service, "page", f"type template {PLAIN}\n{{{{ nope }}}}")
    reply = shop.get("products", "custom", mapper="page")
    assert (reply.status, reply.json["line"]) == (400, 2) and "'nope' is undefined" in reply.json["detail"]


def test_a_template_that_fails_midway_cuts_the_connection(shop: Shop) -> None:
    put_mapper(
        shop.service, "page", f"type template {PLAIN}\n{{% for n in range(9999) %}}{{{{ 'x' * 100 }}}}{{% endfor %}}{{{{ nope }}}}"
    )
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        shop.get("products", "custom", mapper="page")


class RecordLines(ReverseWriter):
    """A writer that writes each record as a line of JSON."""

    media_type, extension = PLAIN, "txt"
    lookups: ClassVar[dict[str, str]] = {}
    children = ()

    def begin(self) -> bytes:
        return b"begin\n"

    def write(self, records: Iterable[dict[str, Any]]) -> bytes:
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    def end(self) -> bytes:
        return b"end\n"


def test_an_import_mapping_in_reverse_gets_records_of_an_import_document(shop: Shop) -> None:
    first_line, *lines, last_line = rendered(shop, RecordLines(), "invoices", orderby="code").splitlines()
    first = json.loads(lines[0])
    assert (first_line, last_line, len(lines)) == ("begin", "end", 2) and (first["customer"], first["items"][2]["quantity"]) == (
        "code:C1",
        "0.000001",
    )


def test_an_import_mapping_in_reverse_over_http(shop: Shop) -> None:
    text = """type csv
products = 'row' {
    code = 'Number'
    name = 'Title'
}
"""
    put_mapper(shop.service, "sheet", text)
    reply = shop.get("products", "csv", mapper="sheet", orderby="code", filter="name ne ''", top=2)
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/csv")
    assert reply.body.decode("utf-8-sig").splitlines()[0].replace('"', "") == "Number,Title" and len(reply.body.splitlines()) >= 3
    for format in {*UNMAPPED, "xsd"} - {"csv"}:
        refused = shop.get("products", format, mapper="sheet")
        assert (refused.status, refused.json["target"]) == (400, "format")
    assert shop.get("products", "custom", mapper="sheet", top=1).status == 200
    empty = shop.get("products", "csv", mapper="sheet", filter="name eq ''")
    assert (empty.status, empty.json["code"], empty.json["target"]) == (422, "unwritable", "name")
    put_mapper(shop.service, "sheet", text.replace("'Title'", "default('Title', \"\")"))
    assert shop.get("products", "csv", mapper="sheet", filter="name eq ''").body == b"Number,Title\r\nP1,\r\n"


INVOICE = """type template application/pdf
{% for row in rows %}<h1>Invoice {{ row.code }}</h1><p><b>{{ row.note or "Grüße" }}</b> 日本語</p><img src="/etc/passwd">
<table border="1"><thead><tr><th width="60%">product</th><th width="40%">quantity</th></tr></thead><tbody>
{% for item in row['items'] %}<tr><td>{{ item.product or item.description }}</td><td align="right">{{ item.quantity }}</td></tr>{% endfor %}
</tbody></table>{% endfor %}
"""


def test_a_template_of_html_becomes_a_pdf(shop: Shop) -> None:
    put_mapper(shop.service, "invoice", INVOICE)
    reply = shop.get("invoices", mapper="invoice", filter="code eq 'I1'", expand="items")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/pdf"), reply.body
    assert 'filename="invoices.pdf"' in reply.headers["Content-Disposition"]
    (page,) = PdfReader(io.BytesIO(reply.body)).pages
    text = page.extract_text().replace("\0", "")
    assert text.startswith("Invoice I1\nGrüße 日本語") and "product quantity" in text and "=cmd() 0.000001" in text
    assert text.count("P0 2") == 2 and text.endswith("1 / 1")
    assert not page.images and b"root:" not in reply.body


def test_hebrew_and_arabic_in_a_pdf_are_drawn_from_right_to_left() -> None:
    """pypdf reads the glyphs of such a script from right to left: text that was drawn otherwise comes out reversed."""
    html = "<p>before שלום עולם after</p><table><tr><th>a</th></tr><tr><td>שלום</td></tr></table><p>بالعالم</p>"
    text = PdfReader(io.BytesIO(lay_out(html))).pages[0].extract_text()
    assert text.count("שלום") == 2 and "עולם" in text and "بالعالم" in text
    assert "before" in text and "after" in text


def test_values_in_a_pdf_are_escaped_and_what_cannot_be_laid_out_is_an_error(shop: Shop) -> None:
    put_mapper(shop.service, "page", "type template application/pdf\n{% for row in rows %}<p>{{ row.name }}</p>{% endfor %}")
    reply = shop.get("products", mapper="page", filter="code eq 'P6'")
    assert "<b>&amp; markup</b> ]]> -->" in PdfReader(io.BytesIO(reply.body)).pages[0].extract_text()
    put_mapper(
        shop.service, "wrong", "type template application/pdf\n<table><tr><td><table><tr><td>x</td></tr></table></td></tr></table>"
    )
    reply = shop.get("products", mapper="wrong", top=1)
    assert (reply.status, reply.json["target"]) == (400, "mapper") and "cannot be laid out" in reply.json["detail"]
    put_mapper(
        shop.service,
        "long",
        "type template application/pdf\n{% for n in range(90000) %}<p>xxxxxxxxxxxxxxxxxxxxxxxx</p>{% endfor %}",
    )
    reply = shop.get("products", mapper="long", top=1)
    assert reply.status == 400 and "2,000,000 characters" in reply.json["detail"]
