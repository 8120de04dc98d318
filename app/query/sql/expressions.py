"""Compiles expressions to SQL.

Every value is a parameter, every name comes from the catalog, every operation stands in parentheses, and an unknown kind of
expression raises TypeError.  Parameters have a cast to their type, so that all expressions of one shape have the same SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from psycopg.sql import SQL, Composable, Composed, Identifier

from app.database.catalog import Navigation
from app.query.check.tree import (
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
    RelatedRows,
    Result,
    Type,
    walk,
)
from app.query.sql.parameters import COMPANY, Parameter
from app.query.sql.rows import view

OPERATORS = {"eq": SQL("="), "ne": SQL("<>"), "lt": SQL("<"), "le": SQL("<="), "gt": SQL(">"), "ge": SQL(">=")}
NOTHING = SQL("")
GROUP = "g"  # alias of the table of groups
BY_CODE_POINT = SQL(' collate "C"')

# Up to this number of views the planner may turn lambdas into joins; each further view doubles its time.  Beyond, a lambda is
# evaluated for each row.
JOINED = 6

# The PostgreSQL types of types that only the checker has.
CASTS: dict[Type, str] = {"whole": "numeric", "null": "text"}


@dataclass(slots=True)
class Compiler:
    """Compiles the expressions of one statement.

    constants: the indexes of the query's constants, by their serials.
    past: whether rows are read as of the version that the session has named.
    views: the number of views in the SQL so far.
    aliases: the table aliases given so far, by row number and path.
    counts: the aliases of joined counts, by the column of the ids and the navigation.
    """

    constants: Mapping[int, int]
    past: bool = False
    views: int = 0
    aliases: dict[tuple[int, tuple[Navigation, ...]], str] = field(default_factory=lambda: {(0, ()): "t"})
    counts: dict[tuple[Column, Navigation], Identifier] = field(default_factory=dict)

    def alias(self, path: tuple[Navigation, ...], row: int = 0) -> str:
        """The table alias of the row at the end of a path."""
        return self.aliases.setdefault((row, path), f"t{len(self.aliases)}")

    def compile(self, node: Expression, *, loose: bool = False) -> Composed:
        """Compile an expression.

        loose: the SQL may be null where the expression is false.  Comparisons then stay plain, which an index needs.
        """
        match node:
            case Column(path=path, field=each, row=row):
                return Composed([Identifier(self.alias(path, row), each.name)])
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
                test = _group(self.compile(operand), SQL("= any({})").format(self.parameter(node, node.value_type, "[]")))
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
            case Count(rows=rows) if self.past:
                return SQL("coalesce({}.number, 0)").format(self.counted(rows))
            case Count(rows=rows):
                return SQL("(select count(*) {})").format(self.related(rows))
        raise TypeError(f"no SQL for {node!r}")

    def comparison(self, node: Comparison, loose: bool) -> Composed:
        """A comparison, with the operator that gives true or false for null operands if null is a value."""
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
        """A lambda as EXISTS; `all` as the absence of a row whose condition is not true."""
        if node.condition is None:
            return SQL("exists (select {})").format(self.related(node.rows))
        is_fenced = self.views > JOINED
        if is_fenced and self.past:
            return self.membership(node)
        template = "exists (select {} and {}{})" if node.quantifier == "any" else "(not exists (select {} and {} is not true{}))"
        return SQL(template).format(
            self.related(node.rows, node.condition),
            self.compile(node.condition, loose=True),
            SQL(" offset 0" if is_fenced else ""),
        )

    def membership(self, node: Quantifier) -> Composed:
        """A lambda as IN, of which the planner makes one set for all rows, and because of the coalesce no join."""
        assert node.condition is not None
        is_any, rows = node.quantifier == "any", node.rows
        return SQL("({}coalesce({} in (select {} {} and ({}){}), false))").format(
            SQL("" if is_any else "not "),
            self.compile(rows.origin),
            Identifier(self.alias((), rows.number), rows.navigation.field),
            self.source(rows.navigation.target, [node.condition], rows.number),
            self.compile(node.condition, loose=True),
            SQL("" if is_any else " is not true"),
        )

    def related(self, rows: RelatedRows, *conditions: Expression) -> Composed:
        """The related rows: FROM their view, with the joins that conditions on them need, WHERE they belong to their origin."""
        key, origin = Identifier(self.alias((), rows.number), rows.navigation.field), self.compile(rows.origin)
        return SQL("{} and {} = {}").format(self.source(rows.navigation.target, conditions, rows.number), key, origin)

    def counted(self, rows: RelatedRows) -> Identifier:
        """The alias under which the numbers of related rows are joined."""
        return self.counts.setdefault((rows.origin, rows.navigation), Identifier(f"n{len(self.counts)}"))

    def source(
        self, entity: str, roots: Iterable[Expression], row: int = 0, table: Composable | None = None, more: Composable = NOTHING
    ) -> Composed:
        """FROM the entity's view, with the joins that the expressions need, WHERE the company is the session's.

        table: some of its rows, in place of the view.  more: further joins.
        """
        self.views += 1
        return SQL("from {} as {this}{}{} where {this}.company_id = {}").format(
            table or view(entity, past=self.past),
            *(self.joins(roots, row), more, COMPANY),
            this=Identifier(self.alias((), row)),
        )

    def joins(self, roots: Iterable[Expression], row: int = 0) -> Composed:
        """A join for each path, and each beginning of a path, that the expressions take from the row of this number.

        In the past also one for each number of related rows: for each row anew, they would all be rebuilt.
        """
        parts = [part for root in roots for part in walk(root)]
        columns = (part for part in parts if isinstance(part, Column) and part.row == row)
        paths = dict.fromkeys(each.path[:end] for each in columns for end in range(1, len(each.path) + 1))
        self.views += len(paths)
        counts = {
            (part.rows.origin, part.rows.navigation): part.rows
            for part in parts
            if self.past and isinstance(part, Count) and part.rows.origin.row == row
        }
        return Composed([*(self.join(path, row) for path in paths), *map(self.join_count, counts.values())])

    def join(self, path: tuple[Navigation, ...], row: int) -> Composed:
        """The join of a path's last step."""
        reference = Identifier(self.alias(path[:-1], row), path[-1].field)
        return SQL(" left join {view} as {this} on {this}.company_id = {company} and {this}.id = {reference}").format(
            view=view(path[-1].target, past=self.past), this=Identifier(self.alias(path, row)), company=COMPANY, reference=reference
        )

    def join_count(self, rows: RelatedRows) -> Composed:
        """The join of the numbers of related rows."""
        return SQL(
            " left join (select v.{} as id, count(*) as number from {} as v where v.company_id = {} group by 1) as {this}"
            " on {this}.id = {}"
        ).format(
            Identifier(rows.navigation.field),
            view(rows.navigation.target, past=True),
            *(COMPANY, self.compile(rows.origin)),
            this=self.counted(rows),
        )

    def call(self, node: Call) -> Composed:
        """A function of the table.  An argument that the template repeats is computed once, unless it is as cheap as a column."""
        template, arguments = node.function.template, [self.compile(argument) for argument in node.arguments]
        if not any(template.count(f"{{{n}}}") > 1 and not _simple(argument) for n, argument in enumerate(node.arguments)):
            return SQL(template).format(*arguments)
        names = [SQL(f"o.a{n}") for n in range(len(arguments))]
        columns = [SQL("{} as {}").format(argument, Identifier(f"a{n}")) for n, argument in enumerate(arguments)]
        # offset 0 keeps the planner from inlining the arguments again
        return SQL("(select {} from (select {} offset 0) as o)").format(
            SQL(template).format(*names),
            SQL(", ").join(columns),
        )

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        """The parameter of a constant, or with array="[]" of a list of constants."""
        return Composed([Parameter(self.constants[node.serial], f"{CASTS.get(type, type)}{array}")])


def _group(*parts: Composable) -> Composed:
    return Composed([SQL("("), SQL(" ").join(parts), SQL(")")])


def _simple(node: Expression) -> bool:
    """Whether a template may repeat the expression.

    A constant text must not be repeated: the planner would evaluate its casts, even those that a CASE guards.
    """
    return isinstance(node, Column) or (isinstance(node, Constant) and node.type != "text")
