"""PostgreSQL's own parser proves what an export runs: one COPY of a SELECT over views that are each restricted to the company."""

from __future__ import annotations

import pglast
import pytest
from pglast import ast
from pglast.visitors import Visitor

from app.database.catalog import Catalog
from app.export import forms, shape, statements
from app.query.query import EXPORT, Query, parse_query
from app.query.sql_parameters import Statement
from tests.export.conftest import Shop

HOSTILE = "'') to program ''id''; drop table data.products; -- %s %(company)s \\"
OPTIONS = [
    [],
    [("$filter", f"name eq '{HOSTILE}' and items/any(i: i/product/name ne '{HOSTILE}')")],
    [("$orderby", "customer/name desc,code"), ("$top", "5"), ("$skip", "1"), ("$filter", f"note ne '{HOSTILE}'")],
    [("$expand", "customer,items"), ("$top", "5")],
    [("$expand", "order,items"), ("$filter", f"startswith(note,'{HOSTILE}')"), ("$select", "code,customer")],
]
Form = forms.RecordForm | forms.LineForm
FORMS: list[Form] = [forms.Json(), forms.Values(), forms.Xml(), forms.Csv(), forms.Html(), forms.Sheet(), forms.Display()]


class Found(Visitor):
    """The relations and the texts of a statement."""

    def __init__(self) -> None:
        self.relations: list[str] = []
        self.texts: list[str] = []

    def visit_RangeVar(self, ancestors: object, node: ast.RangeVar) -> None:
        self.relations.append(f"{node.schemaname}.{node.relname}")

    def visit_A_Const(self, ancestors: object, node: ast.A_Const) -> None:
        if isinstance(node.val, ast.String):
            self.texts.append(node.val.sval)


def compiled(query: Query, form: Form) -> list[Statement]:
    if isinstance(form, forms.Values):
        return [statements.values(query, "demo", form, shape.plan_values(query))]
    if isinstance(form, forms.Json | forms.Xml):
        related = (statements.related(query, "demo", form, each) for each in shape.plan_related(query))
        return [statements.records(query, "demo", form, shape.plan_record(query)), *related]
    assert isinstance(form, forms.Csv | forms.Html | forms.Sheet | forms.Display)
    return [statements.lines(query, "demo", form, shape.plan_lines(query))]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_an_export_is_one_copy_of_the_companys_views(shop: Shop, form: Form, options: list[tuple[str, str]]) -> None:
    catalog: Catalog = shop.feed.catalog
    options = [(name, value.replace("name eq", "note eq")) for name, value in options]
    query = parse_query(catalog, catalog["invoices"], options, takes=EXPORT)
    hostile = sum(value.count(HOSTILE) for _, value in options)
    for statement in compiled(query, form):
        text = statement.literal(shop.service.operator.connection).decode()
        (parsed,) = pglast.parse_sql(text)
        assert isinstance(parsed.stmt, ast.CopyStmt) and isinstance(parsed.stmt.query, ast.SelectStmt)
        assert not parsed.stmt.is_from and not parsed.stmt.is_program and parsed.stmt.filename is None
        found = Found()
        found(parsed.stmt.query)
        assert found.relations and set(found.relations) <= {f"api.{name}" for name in catalog.entities}
        assert text.count("company_id = 'demo'") == len(found.relations)
        assert found.texts.count(HOSTILE.replace("''", "'")) >= hostile


def test_one_shape_of_a_query_is_one_text(shop: Shop) -> None:
    catalog: Catalog = shop.feed.catalog
    queries = [
        parse_query(catalog, catalog["units"], [("$filter", f"code eq '{value}'"), ("$top", top)], takes=EXPORT)
        for value, top in (("a", "1"), ("b", "2"))
    ]
    first, second = (statements.lines(query, "demo", forms.Csv(), shape.plan_lines(query)) for query in queries)
    assert first.text is second.text and first.values != second.values
