"""PostgreSQL's own parser shows that an export runs one COPY of a SELECT over views, each restricted to the company."""

from __future__ import annotations

import pglast
import pytest
from pglast import ast
from pglast.visitors import Visitor

from app.database.catalog import Catalog
from app.export import shape, statements
from app.export.custom import TemplateRecords
from app.export.excel_cells import ExcelLines
from app.export.row_formats import LineFormat, RecordFormat
from app.export.to_csv import CsvLines
from app.export.to_html import HtmlLines
from app.export.to_json import JsonRecords
from app.export.to_parquet import ParquetLines
from app.export.to_pdf import PdfLines
from app.export.to_xml import XmlRecords
from app.query.check.options import EXPORT, parse_query
from app.query.check.query import Query
from app.query.sql.parameters import Statement
from tests.export.conftest import Shop

HOSTILE = "'') to program ''id''; drop table data.products; -- %s %(company)s \\"
OPTIONS = [
    [],
    [("$filter", f"name eq '{HOSTILE}' and items/any(i: i/product/name ne '{HOSTILE}')")],
    [("$orderby", "customer/name desc,code"), ("$top", "5"), ("$skip", "1"), ("$filter", f"note ne '{HOSTILE}'")],
    [("$expand", "customer,items"), ("$top", "5")],
    [("$expand", "order,items"), ("$filter", f"startswith(note,'{HOSTILE}')"), ("$select", "code,customer")],
]
RECORDS: list[RecordFormat] = [JsonRecords(), TemplateRecords(), XmlRecords()]
LINES: list[LineFormat] = [CsvLines(), HtmlLines(), ExcelLines(), PdfLines(), ParquetLines()]


class Found(Visitor):
    """Collects the relations and the text constants of a statement."""

    def __init__(self) -> None:
        self.relations: list[str] = []
        self.texts: list[str] = []

    def visit_RangeVar(self, ancestors: object, node: ast.RangeVar) -> None:
        self.relations.append(f"{node.schemaname}.{node.relname}")

    def visit_A_Const(self, ancestors: object, node: ast.A_Const) -> None:
        if isinstance(node.val, ast.String):
            self.texts.append(node.val.sval)


def compiled(query: Query, format: RecordFormat | LineFormat) -> list[Statement]:
    if isinstance(format, TemplateRecords):
        return [statements.template_rows(query, "demo", format)]
    if isinstance(format, JsonRecords | XmlRecords):
        related = (statements.related(query, "demo", format, each) for each in shape.related_shapes(query))
        return [statements.records(query, "demo", format), *related]
    assert isinstance(format, CsvLines | HtmlLines | ExcelLines | PdfLines | ParquetLines)
    return [statements.lines(query, "demo", format)]


@pytest.mark.parametrize("format", [*RECORDS, *LINES], ids=lambda format: type(format).__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_an_export_is_one_copy_from_views_restricted_to_the_company(
    shop: Shop, format: RecordFormat | LineFormat, options: list[tuple[str, str]]
) -> None:
    catalog: Catalog = shop.feed.catalog
    options = [(name, value.replace("name eq", "note eq")) for name, value in options]
    query = parse_query(catalog, catalog["invoices"], options, takes=EXPORT)
    hostile = sum(value.count(HOSTILE) for _, value in options)
    for statement in compiled(query, format):
        text = statement.literal(shop.service.operator.connection).decode()
        (parsed,) = pglast.parse_sql(text)
        assert isinstance(parsed.stmt, ast.CopyStmt) and isinstance(parsed.stmt.query, ast.SelectStmt)
        assert not parsed.stmt.is_from and not parsed.stmt.is_program and parsed.stmt.filename is None
        found = Found()
        found(parsed.stmt.query)
        assert found.relations and set(found.relations) <= {f"api.{name}" for name in catalog.entities}
        assert text.count("company_id = 'demo'") == len(found.relations)
        assert found.texts.count(HOSTILE.replace("''", "'")) >= hostile


def test_queries_that_differ_in_values_share_their_sql_text(shop: Shop) -> None:
    catalog: Catalog = shop.feed.catalog
    queries = [
        parse_query(catalog, catalog["units"], [("$filter", f"code eq '{value}'"), ("$top", top)], takes=EXPORT)
        for value, top in (("a", "1"), ("b", "2"))
    ]
    first, second = (statements.lines(query, "demo", CsvLines()) for query in queries)
    assert first.text is second.text and first.values != second.values
