"""Every statement is one SELECT over views that are each restricted to the company, by PostgreSQL's own parser."""

from __future__ import annotations

import pglast
import pytest
from pglast import ast
from pglast.visitors import Visitor

from app.changes.log import log_query
from app.changes.rows import list_query
from app.database.catalog import Catalog
from app.query.check.options import parse_query
from app.query.sql import statements as sql_statements
from app.query.sql.parameters import Statement
from app.query.sql.rows import NESTED, ODATA, Style
from tests.query.test_apply import ANSWERS as APPLIES
from tests.query.test_filter import PAIRS
from tests.query.test_matching import ANSWERS, ORDERS
from tests.query.test_where import PAIRS as WHERE

FULL = Style(base="http://localhost/api/odata/acme/")


class Relations(Visitor):
    """The tables and views that a statement reads."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_RangeVar(self, ancestors: object, node: ast.RangeVar) -> None:
        if node.schemaname:
            self.names.append(f"{node.schemaname}.{node.relname}")


# The kinds of nodes of a SELECT and its expressions.  None of them writes, locks or opens a cursor.
ALLOWED = {
    "A_ArrayExpr", "A_Const", "A_Expr", "A_Indirection", "A_Star", "Alias", "BoolExpr", "Boolean", "CaseExpr", "CaseWhen", "CoalesceExpr", "CollateClause",
    "ColumnRef", "CommonTableExpr", "BooleanTest", "Float", "FuncCall", "Integer", "JoinExpr", "List", "MinMaxExpr", "NullTest", "ParamRef", "RangeSubselect",
    "RangeVar", "RawStmt", "ResTarget", "SelectStmt", "SortBy", "String", "SubLink", "TypeCast", "TypeName", "WindowDef", "WithClause",
}  # fmt: skip


class Kinds(Visitor):
    """The kinds of nodes in a statement, and the numbers of its parameters."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.parameters: set[int] = set()

    def visit(self, ancestors: object, node: ast.Node) -> None:
        self.found.add(type(node).__name__)
        if isinstance(node, ast.ParamRef):
            self.parameters.add(node.number)


def check_syntax(statement: Statement, catalog: Catalog) -> None:
    text = statement.text.decode()
    (parsed,) = pglast.parse_sql(text)
    assert isinstance(parsed.stmt, ast.SelectStmt)
    kinds = Kinds()
    kinds(parsed)
    assert kinds.found <= ALLOWED, kinds.found - ALLOWED
    assert kinds.parameters == set(range(1, len(statement.values) + 1))
    relations = Relations()
    relations(parsed.stmt)
    assert set(relations.names) <= {
        *(f"api.{name}" for name in catalog.entities),
        "bds.changes",
        "bds.positions",
        "bds.company_positions",
    }
    assert text.count("company_id = $1") == len(relations.names)


@pytest.mark.parametrize("filter", [pair[0] for pair in (*PAIRS, *ANSWERS)])
def test_a_filter_on_products_is_one_select(filter: str, catalog: Catalog) -> None:
    options = [("$filter", filter), ("$orderby", "category/name desc,price"), ("$top", "5"), ("$count", "true")]
    query = parse_query(catalog, catalog["products"], options)
    for statement in (
        sql_statements.rows(query, "acme"),
        sql_statements.page(query, "acme", FULL),
        sql_statements.count(query, "acme"),
        sql_statements.position(query, "acme"),
    ):
        check_syntax(statement, catalog)


@pytest.mark.parametrize("style", [ODATA, FULL, Style(references=True)], ids=["plain", "full", "references"])
@pytest.mark.parametrize("key", ["1", "code='A'"])
@pytest.mark.parametrize("name", ["category", "variants"])
def test_a_navigation_from_a_row_is_one_select(name: str, key: str, style: Style, catalog: Catalog) -> None:
    products = catalog["products"]
    query = parse_query(catalog, products, [("$expand", "*")], key=key, member=products.navigations[name])
    for statement in (
        sql_statements.rows(query, "acme", style),
        sql_statements.page(query, "acme", style),
        sql_statements.count(query, "acme"),
    ):
        check_syntax(statement, catalog)
    assert query.entities[:2] == (products.navigations[name].target, "products")


@pytest.mark.parametrize("filter", [order[0] for order in ORDERS])
def test_a_filter_on_orders_is_one_select(filter: str, catalog: Catalog) -> None:
    check_syntax(sql_statements.page(parse_query(catalog, catalog["orders"], [("$filter", filter)]), "acme"), catalog)


@pytest.mark.parametrize("apply", [answer[0] for answer in APPLIES])
def test_groups_are_one_select(apply: str, catalog: Catalog) -> None:
    for top in ([], [("$top", "5")]):
        options = [("$apply", apply), ("$filter", "category/name ne 'x' and variants/any()"), ("$count", "true"), *top]
        query = parse_query(catalog, catalog["products"], options)
        for statement in (
            sql_statements.rows(query, "acme"),
            sql_statements.page(query, "acme", FULL),
            sql_statements.count(query, "acme"),
        ):
            check_syntax(statement, catalog)


@pytest.mark.parametrize("filter", [pair[0] for pair in WHERE])
def test_a_listing_is_one_select(filter: str, catalog: Catalog) -> None:
    query = list_query(catalog, catalog["products"], [("filter", filter), ("sort", "updatedAt,name")])
    for ties in (True, False):
        check_syntax(sql_statements.listing(query, "acme", NESTED, ties=ties), catalog)


def test_the_change_log_is_one_select(catalog: Catalog) -> None:
    check_syntax(sql_statements.listing(log_query(catalog, [("filter", "id > 5")]), "acme", ODATA, ties=False), catalog)


def test_values_of_a_client_are_not_part_of_the_text(catalog: Catalog) -> None:
    hostile = "x'' or 1=1 --%s %(company)s"
    filter = f"contains(name,'{hostile}') or startswith(name,'{hostile}') or name in ('{hostile}')"
    query = parse_query(catalog, catalog["products"], [("$filter", filter)])
    statement = sql_statements.page(query, "acme")
    assert b"1=1" not in statement.text
    assert hostile.replace("''", "'") in statement.values
