"""Stored filters of hooks and mass updates, checked by PostgreSQL's own parser."""

from __future__ import annotations

import pglast
import pytest
from pglast import ast
from pglast.visitors import Visitor

from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.sql.conditions import compile_any, compile_filter, sql_condition
from tests.query.test_where import PAIRS

ALLOWED = (
    *(ast.SelectStmt, ast.JoinExpr, ast.RangeSubselect, ast.RangeVar, ast.Alias, ast.ResTarget, ast.A_Star, ast.A_Const, ast.String, ast.Integer),
    *(ast.ColumnRef, ast.ParamRef, ast.A_Expr, ast.BoolExpr, ast.NullTest, ast.CollateClause, ast.Boolean, ast.TypeCast, ast.TypeName, ast.RawStmt, ast.CoalesceExpr),
)  # fmt: skip


class Nodes(Visitor):
    """The tables and values in a statement, and its nodes that are not allowed."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.values: set[str] = set()
        self.others: list[object] = []

    def visit(self, ancestors: object, node: object) -> None:
        if not isinstance(node, ALLOWED):
            self.others.append(node)
        if isinstance(node, ast.RangeVar):
            self.tables.add(f"{node.schemaname}.{node.relname}" if node.schemaname else node.relname)
        if isinstance(node, ast.ColumnRef) and isinstance(node.fields[0], ast.String) and node.fields[0].sval == "h":
            self.values.add(node.fields[1].sval)


@pytest.mark.parametrize("filter", [pair[0] for pair in PAIRS])
def test_a_condition_is_one_expression_over_the_row_and_the_values(filter: str, catalog: Catalog) -> None:
    compiled = compile_filter(catalog, catalog["products"], filter)
    assert compiled is not None
    (statement,) = pglast.parse_sql(f"select from t{compiled.joins} join h on {compiled.condition}")
    found = Nodes()
    found(statement.stmt)
    assert not found.others
    assert found.tables <= {"t", "h", *(f"api.{name}" for name in catalog.entities)}
    assert found.values == {f"p{n}" for n in range(len(compiled.values))}
    assert compiled.joins.count("company_id = $1") == compiled.joins.count("api")


def test_filters_that_differ_only_in_values_share_one_text(catalog: Catalog) -> None:
    first, second = (
        compile_filter(catalog, catalog["products"], f"code in ('{a}', 'x') and price > {n}") for a, n in (("A", 1), ("B", 2))
    )
    assert first and second
    assert (first.joins, first.condition, first.types) == (second.joins, second.condition, second.types)
    assert first.values == ('{"A","x"}', "1") and second.values == ('{"B","x"}', "2")


def test_values_are_never_part_of_the_text(catalog: Catalog) -> None:
    compiled = compile_filter(catalog, catalog["products"], "name = 'it''s \"$1\" %s %(company)s {0}' or name like '100\\%%'")
    assert compiled and compiled.values == ('it\'s "$1" %s %(company)s {0}', "100\\%%")
    assert compiled.condition == '(("t"."name" = h.p0) or ("t"."name" like h.p1))'


def test_literals_of_a_mass_update_are_unchanged(catalog: Catalog) -> None:
    condition = sql_condition(catalog, catalog["products"], "name = 'it''s \"$1\" %% %s {0}' or name like '100\\%%'")
    assert condition.sql == """(("v"."name" = 'it''s "$1" %% %s {0}'::text) or ("v"."name" like  E'100\\\\%%'::text))"""


def test_a_filter_without_an_entity_is_compiled_for_each_entity_that_it_fits(catalog: Catalog) -> None:
    assert [each.entity for each in compile_any(catalog, None, "price > 1")] == [
        entity.name for entity in catalog.entities.values() if "price" in entity.fields
    ]
    with pytest.raises(QueryError):
        compile_any(catalog, None, "nope = 1")
