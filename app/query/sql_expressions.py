"""Checked expressions as SQL.

Every value is a parameter, every name comes from the catalog, every operation stands in parentheses, and a node that nobody knows
raises.  Parameters have a cast to their type, so that one shape of expression is one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.database.catalog import Navigation
from app.query.sql_rows import view
from app.query.tree import (
    Call,
    Column,
    Comparison,
    Constant,
    Count,
    Expression,
    IsNull,
    Junction,
    Membership,
    Not,
    Quantifier,
    Related,
    Result,
    Type,
    walk,
)

OPERATORS = {"eq": SQL("="), "ne": SQL("<>"), "lt": SQL("<"), "le": SQL("<="), "gt": SQL(">"), "ge": SQL(">=")}
COMPANY = SQL("%(company)s::text")
GROUP = "g"  # what the table of groups is called
BY_CODE_POINT = SQL(' collate "C"')

# Views up to which the planner may turn lambdas into joins: it takes twice as long for each one more.  Beyond, each is looked up.
JOINED = 6

# Types of the checker as PostgreSQL has them.
CASTS: dict[Type, str] = {"whole": "numeric", "null": "text"}


@dataclass(slots=True)
class Compiler:
    """Compiles the expressions of one statement.

    names: of the parameters, by the id() of their nodes; aliases: of the rows that ways from numbered rows lead to, given out as
    they are needed; views: how many have been named so far.
    """

    names: dict[int, str]
    views: int = 0
    aliases: dict[tuple[int, tuple[Navigation, ...]], str] = field(default_factory=lambda: {(0, ()): "t"})

    def alias(self, way: tuple[Navigation, ...], row: int = 0) -> str:
        return self.aliases.setdefault((row, way), f"t{len(self.aliases)}")

    def compile(self, node: Expression, *, loose: bool = False) -> Composed:
        """The expression in SQL.  Where `loose`, null does as well as false: so comparisons stay plain, as indexes need them."""
        match node:
            case Column(way=way, field=each, row=row):
                return Composed([Identifier(self.alias(way, row), each.name)])
            case Result(field=each):
                return Composed([Identifier(GROUP, each.name)])
            case Constant(value=None):
                return Composed([SQL(f"null::{CASTS.get(node.type, node.type)}")])
            case Constant():
                return self.parameter(node, node.type)
            case Call():
                return self.call(node)
            case Comparison():
                return self.comparison(node, loose)
            case Membership(operand=operand):
                test = _group(self.compile(operand), SQL("= any({})").format(self.parameter(node, node.of, "[]")))
                return test if loose or not (node.null_is_value and operand.nullable) else SQL("coalesce({}, false)").format(test)
            case Not(operand=IsNull(operand=operand)):
                return _group(self.compile(operand), SQL("is not null"))
            case IsNull(operand=operand):
                return _group(self.compile(operand), SQL("is null"))
            case Not(operand=operand):
                return _group(SQL("not"), self.compile(operand))
            case Junction(operator=operator, operands=operands):
                parts = [self.compile(operand, loose=loose) for operand in operands]
                return _group(SQL(f" {operator} ").join(parts))
            case Quantifier():
                return self.quantifier(node)
            case Count(rows=rows):
                return SQL("(select count(*) {})").format(self.related(rows))
        raise TypeError(f"no SQL is known for {node!r}")

    def comparison(self, node: Comparison, loose: bool) -> Composed:
        left, right = self.compile(node.left), self.compile(node.right)
        nullable = node.null_is_value and (node.left.nullable or node.right.nullable)
        both = node.left.nullable and node.right.nullable
        if nullable and (node.operator == "ne" or (node.operator == "eq" and (both or not loose))):
            operator = SQL("is distinct from" if node.operator == "ne" else "is not distinct from")
            return _group(left, operator, right)
        if node.left.type == "text" and node.operator not in ("eq", "ne"):
            left += BY_CODE_POINT
        test = _group(left, OPERATORS[node.operator], right)
        return SQL("coalesce({}, false)").format(test) if nullable and not loose and node.operator != "eq" else test

    def quantifier(self, node: Quantifier) -> Composed:
        if node.condition is None:
            return SQL("exists (select {})").format(self.related(node.rows))
        fence = SQL(" offset 0" if self.views > JOINED else "")
        template = "exists (select {} and {}{})" if node.quantifier == "any" else "(not exists (select {} and {} is not true{}))"
        return SQL(template).format(self.related(node.rows, node.condition), self.compile(node.condition, loose=True), fence)

    def related(self, rows: Related, *conditions: Expression) -> Composed:
        """From the view of the rows, with what the conditions on them need, where they are those of their origin."""
        key = Identifier(self.alias((), rows.number), rows.navigation.field)
        return SQL("{} and {} = {}").format(
            self.source(rows.navigation.target, conditions, rows.number), key, self.compile(rows.origin)
        )

    def source(self, entity: str, roots: Iterable[Expression], row: int = 0) -> Composed:
        """From the entity's view, with a join for each way that the expressions take from its rows, where the company is ours."""
        self.views += 1
        return SQL("from {} as {}{} where {}.company_id = {}").format(
            view(entity),
            *(Identifier(self.alias((), row)), self.joins(roots, row)),
            *(Identifier(self.alias((), row)), COMPANY),
        )

    def joins(self, roots: Iterable[Expression], row: int = 0) -> Composed:
        """A join for each way that the expressions take from the rows of a number."""
        columns = (part for root in roots for part in walk(root) if isinstance(part, Column) and part.row == row)
        steps = dict.fromkeys(each.way[:end] for each in columns for end in range(1, len(each.way) + 1))
        self.views += len(steps)
        return Composed([self.join(way, row) for way in steps])

    def join(self, way: tuple[Navigation, ...], row: int) -> Composed:
        reference = Identifier(self.alias(way[:-1], row), way[-1].field)
        return SQL(" left join {view} as {this} on {this}.company_id = {company} and {this}.id = {reference}").format(
            view=view(way[-1].target), this=Identifier(self.alias(way, row)), company=COMPANY, reference=reference
        )

    def call(self, node: Call) -> Composed:
        """A function of the table.  What its template names twice is computed once, unless it is as simple as a column."""
        template, arguments = node.function.template, [self.compile(argument) for argument in node.arguments]
        if not any(template.count(f"{{{n}}}") > 1 and not _simple(argument) for n, argument in enumerate(node.arguments)):
            return SQL(template).format(*arguments)
        names = [SQL(f"o.a{n}") for n in range(len(arguments))]
        columns = [SQL("{} as {}").format(argument, Identifier(f"a{n}")) for n, argument in enumerate(arguments)]
        # offset 0 keeps the planner from putting the expression back in, as often as it is named
        return SQL("(select {} from (select {} offset 0) as o)").format(
            SQL(template).format(*names),
            SQL(", ").join(columns),
        )

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        return Composed([SQL(f"%({self.names[id(node)]})s::{CASTS.get(type, type)}{array}")])


def _group(*parts: Composable) -> Composed:
    return Composed([SQL("("), SQL(" ").join(parts), SQL(")")])


def _simple(node: Expression) -> bool:
    """Whether naming it twice costs nothing.  A constant text is not: the planner would try its casts, whatever guards them."""
    return isinstance(node, Column) or (isinstance(node, Constant) and node.type != "text")
