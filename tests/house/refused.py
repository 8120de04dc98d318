"""What a distributed database (Citus) refuses in statements over rows of companies, found in their parse trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pglast
from pglast import ast, enums
from pglast.visitors import Visitor

HOLE = re.compile(r"\{([a-z_]+)(:[IL])?\}|%(?:\d\$)?([ILs])")  # of bds_impl.fill and of format
SQL = re.compile(
    r"^\s*(?:--.*\s+)*(?:with|select|insert|update|delete|merge|explain|alter|create|drop|comment|grant|revoke)\b", re.IGNORECASE
)
DECLARED = re.compile(r"^( +\w+(?: +constant)?) +(?:bds\w*\.|pg_roles\b)\w*(?:\[\])?(?=;| :=)", re.MULTILINE)  # a row of a table
SCHEMA_CHANGES = (
    ast.AlterTableStmt, ast.CommentStmt, ast.CreatePolicyStmt, ast.CreateStmt, ast.CreateTrigStmt, ast.IndexStmt,
)  # fmt: skip


@dataclass(frozen=True)
class Model:
    """What the statements are judged by: names of tables with rows of companies, of reference tables, of volatile functions."""

    companies: frozenset[str]
    references: frozenset[str]
    volatile: frozenset[str]


class Refusals(Visitor):  # type: ignore[misc]
    """Collects what is refused in a parse tree."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.found: list[str] = []

    def visit_UpdateStmt(self, _: Any, node: ast.UpdateStmt) -> None:
        self._writes(node, node.relation)

    def visit_DeleteStmt(self, _: Any, node: ast.DeleteStmt) -> None:
        self._writes(node, node.relation)

    def visit_MergeStmt(self, _: Any, node: ast.MergeStmt) -> None:
        if self._is_of_companies(node.relation):
            self.found.append(f"merge into {_name(node.relation)}")

    def visit_SelectStmt(self, _: Any, node: ast.SelectStmt) -> None:
        tables = [each for each in _ranges(node.fromClause) if _name(each) in self.model.companies | self.model.references]
        if tables and not node.targetList and not node.valuesLists and not node.op:
            self.found.append(f"select without columns from {_name(tables[0])}")

    def visit_CreatePolicyStmt(self, _: Any, node: ast.CreatePolicyStmt) -> None:
        if _finds(node, ast.SubLink):
            self.found.append(f"policy {node.policy_name} has a subquery")

    def visit_Constraint(self, _: Any, node: ast.Constraint) -> None:
        if node.contype == enums.ConstrType.CONSTR_FOREIGN and node.fk_del_action in ("n", "d"):
            self.found.append("on delete set null or default")

    def _writes(self, node: ast.Node, relation: ast.RangeVar) -> None:
        if self._is_of_companies(relation):
            for call in _finds(node, ast.FuncCall):
                if (name := call.funcname[-1].sval) in self.model.volatile:
                    self.found.append(f"{name} where {_name(relation)} is written")

    def _is_of_companies(self, relation: ast.RangeVar) -> bool:
        return _name(relation) in self.model.companies


def refusals(model: Model, statements: str) -> list[str]:
    """What is refused in a text of SQL, in functions in it, and in strings that they run; it need not parse where it has holes."""
    found = []
    for statement in _parsed(statements):
        visitor = Refusals(model)
        visitor(statement)
        found += visitor.found
        for text in _strings(statement):
            found += refusals(model, text)
    return found


def crowds(text: str) -> Iterator[str]:
    """Strings of several statements, one of which changes a table's schema: Citus would forward the whole string."""
    parsed = _parsed(text)
    if len(parsed) > 1 and any(isinstance(each.stmt, SCHEMA_CHANGES) for each in parsed):
        yield f"{len(parsed)} statements in one string: {text.strip()[:60]}"


def run_at_once(text: str) -> Iterator[str]:
    """Crowds in the strings that an expression runs by bds_registry.run."""
    for statement in _parsed(text):
        for call in _finds(statement, ast.FuncCall):
            if [part.sval for part in call.funcname] == ["bds_registry", "run"]:
                for string in _strings(call):
                    yield from crowds(string)


def queries(body: str, parameters: list[str] | None, header: str) -> Iterator[str]:
    """The statements and expressions of a function in PL/pgSQL.

    The parser knows no types but those of PostgreSQL, so parameters become variables of an outer block, and rows of tables records.
    """
    known = DECLARED.sub(r"\1 record", re.sub(r"^\s*#\w+ \w+", "", body)).rstrip().removesuffix(";")
    kinds = {name: "record" if re.search(rf"\b{name}\.\w+\s*(:=|,|from)", body) else "text" for name in parameters or () if name}
    declared = " ".join(f'"{name}" {kind};' for name, kind in kinds.items())
    yield from _queries(
        pglast.parse_plpgsql(f"create function f{header} language plpgsql as $body_$declare {declared} begin {known}; end$body_$")
    )


def _queries(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "PLpgSQL_expr" in node:
            text = node["PLpgSQL_expr"]["query"]
            mode = node["PLpgSQL_expr"].get("parseMode", 0)
            yield text if mode == 0 else "select " + (text if mode == 2 else re.sub(r"^[\w.\"\[\]]+\s*:?=", "", text))
        for value in node.values():
            yield from _queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from _queries(value)


def _parsed(text: str) -> tuple[ast.RawStmt, ...]:
    """The statements of a text as it is, or else with its holes filled; none if it is not SQL."""
    filled = HOLE.sub(lambda hole: "'x'" if "L" in (hole[2] or hole[3] or "") else "shard" if hole[1] == "shard" else "hole", text)
    for attempt in (text, filled) if SQL.match(text) else ():
        with suppress(pglast.parser.ParseError):
            return pglast.parse_sql(attempt)  # type: ignore[no-any-return]
    return ()


def _strings(node: ast.Node) -> list[str]:
    return [each.val.sval for each in _finds(node, ast.A_Const) if isinstance(each.val, ast.String) and SQL.match(each.val.sval)]


def _finds(node: Any, kind: type) -> list[Any]:
    found = []

    class Finder(Visitor):  # type: ignore[misc]
        def visit(self, _: Any, each: Any) -> None:
            if isinstance(each, kind):
                found.append(each)

    Finder()(node)
    return found


def _ranges(nodes: Any) -> list[ast.RangeVar]:
    return [each for node in nodes or () for each in ([node] if isinstance(node, ast.RangeVar) else _joined(node))]


def _joined(node: Any) -> list[ast.RangeVar]:
    return _ranges((node.larg, node.rarg)) if isinstance(node, ast.JoinExpr) else []


def _name(relation: ast.RangeVar) -> str:
    return f"{relation.schemaname}.{relation.relname}" if relation.schemaname else str(relation.relname)
