"""Compiles filters that the database stores as SQL text: of hooks, and of mass updates (@where).

A hook's condition is on a row of table `t`, which has the entity's fields; its values are the columns p0, p1 ... of table `h`, so
that all filters that differ only in values share one text and are matched by one join.  The company is parameter $1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, LiteralString

from psycopg.sql import SQL, Composed, Identifier, Literal

from app.database.catalog import Catalog, Entity, Navigation
from app.errors import QueryError
from app.query.check.tree import Column, Comparison, Constant, Expression, Membership, Type, walk
from app.query.check.where import Lookup, WhereChecker
from app.query.parse import where as parse_where
from app.query.sql.expressions import CASTS, Compiler
from app.query.sql.rows import view


@dataclass(frozen=True, slots=True)
class Condition:
    """A hook's condition: SQL on t and h, the joins from t that it needs, and its values in PostgreSQL's notation."""

    entity: str
    joins: str
    condition: str
    types: tuple[str, ...]
    values: tuple[str, ...]

    def members(self) -> dict[str, Any]:
        """The members of the JSON that bds_service.refit_hook takes."""
        return {
            "entity": self.entity,
            "joins": self.joins,
            "condition": self.condition,
            "types": list(self.types),
            "values": list(self.values),
        }


def compile_filter(catalog: Catalog, entity: Entity, text: str) -> Condition | None:
    """Compile a filter on an entity; None if it is empty.  Raises QueryError."""
    node = parse_where.parse_filter(text)
    return compile_condition(catalog, entity, WhereChecker(catalog, entity).condition(node)) if node else None


def compile_any(catalog: Catalog, entity: str | None, text: str) -> list[Condition]:
    """Compile a filter on an entity, or if `entity` is None on each entity that it fits.  Raises QueryError if it fits none."""
    compiled, problem = [], None
    for each in catalog.entities.values() if entity is None else [catalog[entity]]:
        try:
            condition = compile_filter(catalog, each, text)
        except QueryError as error:
            problem = problem or error
        else:
            compiled += [condition] if condition else []
    if problem and not compiled:
        raise problem
    return compiled


@dataclass(frozen=True, slots=True)
class MassCondition:
    """The condition of a mass update: SQL on a row `v` of the entity's view, with values as literals; $1 is the company."""

    sql: str
    lookups: tuple[Lookup, ...]  # that have to name a row when it is evaluated


def sql_condition(catalog: Catalog, entity: Entity, text: str) -> MassCondition:
    """Compile the filter of a mass update.  Raises QueryError."""
    parsed = parse_where.parse_filter(text)
    if parsed is None:
        raise QueryError("expected a condition, got nothing", position=1)
    checker = WhereChecker(catalog, entity)
    filter = checker.condition(parsed)
    direct = LiteralCompiler({})
    condition = direct.compile(filter, loose=True).as_string()
    if len(direct.aliases) > 1:
        compiled = compile_condition(catalog, entity, filter)
        values = ", ".join(
            f"{Literal(value).as_string()}::{type} as p{n}"
            for n, (value, type) in enumerate(zip(compiled.values, compiled.types, strict=True))
        )
        condition = (
            f"id in (select t.id from {view(entity.name).as_string()} as t{compiled.joins}"
            f" cross join (select {values}) as h where t.company_id = $1 and {compiled.condition})"
        )
    return MassCondition(condition, tuple(checker.lookups))


def compile_condition(catalog: Catalog, entity: Entity, filter: Expression) -> Condition:
    """Compile a checked condition on an entity."""
    compiler = _ColumnCompiler({})
    columns = (part for part in walk(filter) if isinstance(part, Column))
    paths = dict.fromkeys(column.path[:end] for column in columns for end in range(1, len(column.path) + 1))
    joins = SQL("").join([compiler.join(path, 0) for path in paths]).as_string()
    condition = compiler.compile(filter, loose=True).as_string()
    return Condition(entity.name, joins, condition, tuple(compiler.types), tuple(compiler.values))


@dataclass(slots=True)
class _ColumnCompiler(Compiler):
    """Compiles constants to columns of h."""

    types: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def join(self, path: tuple[Navigation, ...], row: int) -> Composed:
        """A lookup for each row (lateral): the statement is planned before its sizes are known, and usually has few rows."""
        reference = Identifier(self.alias(path[:-1], row), path[-1].field)
        return SQL(
            " left join lateral (select v.* from {view} as v where v.company_id = {company} and v.id = {reference} offset 0)"
            " as {this} on true"
        ).format(view=view(path[-1].target), this=Identifier(self.alias(path, row)), company=SQL("$1"), reference=reference)

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        self.types.append(f"{CASTS.get(type, type)}{array}")
        if isinstance(node, Membership):
            self.values.append(_array(node.values))
        else:
            assert node.value is not None  # a null is compiled to a literal
            self.values.append(node.value)
        return Composed([SQL(f"h.p{len(self.values) - 1}")])


@dataclass(slots=True)
class LiteralCompiler(Compiler):
    """Compiles constants to literals, on a row v alone: the id behind a lookup is found once, by a subquery."""

    aliases: dict[tuple[int, tuple[Navigation, ...]], str] = field(default_factory=lambda: {(0, ()): "v"})

    def compile(self, node: Expression, *, loose: bool = False) -> Composed:
        match node:
            # only if loose: a row without a reference gives null here, not false
            case Comparison(operator="eq", left=Column(path=(step,)) as key, right=Constant(value=str())) if loose:
                return self.looked_up("({} = ({}))", step, key, SQL("= {}").format(self.compile(node.right)))
            case Membership(operand=Column(path=(step,)) as key) if loose:
                return self.looked_up(
                    "({} = any (array({})))", step, key, SQL("= any ({})").format(self.parameter(node, node.value_type, "[]"))
                )
        return Compiler.compile(self, node, loose=loose)

    def looked_up(self, test: LiteralString, step: Navigation, key: Column, values: Composed) -> Composed:
        """A test whether a reference leads to a row whose key has one of the values.  A key is unique: each value has one row."""
        rows = SQL("select r.id from {} as r where r.company_id = $1 and r.{} {}").format(
            view(step.target), Identifier(key.field.name), values
        )
        return SQL(test).format(Identifier(self.alias(()), step.field), rows)

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        value = _array(node.values) if isinstance(node, Membership) else node.value
        return SQL("{}::{}{}").format(Literal(value), SQL(CASTS.get(type, type)), SQL(array))


def _array(values: tuple[str, ...]) -> str:
    """An array literal of texts."""
    quoted = ('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return "{" + ",".join(quoted) + "}"
