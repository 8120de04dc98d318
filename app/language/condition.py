"""A filter of the SQL-like language as a condition that the database keeps: of a hook, or of a record that says @where.

The rows are a table `t` with an entity's fields, the values a table `h` with a column for each, so that all filters that differ in
values alone are one text and one join.  The company is the statement's first parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, LiteralString

from psycopg.sql import SQL, Composed, Identifier, Literal

from app.catalog import Catalog, Entity, Navigation
from app.errors import QueryError
from app.language import where
from app.language.check_where import Where
from app.language.compile import CASTS, Compiler
from app.language.row import view
from app.language.tree import Column, Comparison, Constant, Expression, Membership, Type
from app.language.walk import walk


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL over t and h, the joins from t that it needs, and the values with their types, as PostgreSQL writes both."""

    entity: str
    joins: str
    condition: str
    types: tuple[str, ...]
    values: tuple[str, ...]

    def members(self) -> dict[str, Any]:
        """What bds_webhooks.store_filters takes of it."""
        return {
            "entity": self.entity,
            "joins": self.joins,
            "condition": self.condition,
            "types": list(self.types),
            "values": list(self.values),
        }


def compile_filter(catalog: Catalog, entity: Entity, text: str) -> Condition | None:
    """A filter over the rows of an entity; None if it is empty.  Raises QueryError."""
    node = where.parse_filter(text)
    return compile_condition(catalog, entity, Where(catalog, entity).condition(node)) if node else None


def compile_any(catalog: Catalog, entity: str | None, text: str) -> list[Condition]:
    """A filter over the rows of an entity, or for None of each entity that it fits.  Raises QueryError if it fits none."""
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


def sql_condition(catalog: Catalog, entity: Entity, text: str) -> str:
    """A filter as SQL over a row `v` of the entity's view, values written out; the company is the statement's first parameter.

    Raises QueryError.
    """
    parsed = where.parse_filter(text)
    if parsed is None:
        raise QueryError("expected a condition, got nothing", position=1)
    filter = Where(catalog, entity).condition(parsed)
    direct = _Direct({})
    condition = direct.compile(filter, loose=True).as_string().replace("%%", "%")
    if len(direct.aliases) == 1:
        return condition
    compiled = compile_condition(catalog, entity, filter)
    values = ", ".join(
        f"{Literal(value).as_string()}::{type} as p{n}"
        for n, (value, type) in enumerate(zip(compiled.values, compiled.types, strict=True))
    )
    return (
        f"id in (select t.id from {view(entity.name).as_string()} as t{compiled.joins}"
        f" cross join (select {values}) as h where t.company_id = $1 and {compiled.condition})"
    )


def compile_condition(catalog: Catalog, entity: Entity, filter: Expression) -> Condition:
    """A checked condition on the rows of an entity."""
    compiler = _Values({})
    columns = (part for part in walk(filter) if isinstance(part, Column))
    steps = dict.fromkeys(column.way[:end] for column in columns for end in range(1, len(column.way) + 1))
    joins = SQL("").join([compiler.join(way, 0) for way in steps]).as_string()
    condition = compiler.compile(filter, loose=True).as_string()
    return Condition(entity.name, joins, condition.replace("%%", "%"), tuple(compiler.types), tuple(compiler.values))


@dataclass(slots=True)
class _Values(Compiler):
    """Compiles values as columns of h."""

    types: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def join(self, way: tuple[Navigation, ...], row: int) -> Composed:
        """One look for each row: of a statement that is planned before its sizes are known, nothing else is right for few rows."""
        reference = Identifier(self.alias(way[:-1], row), way[-1].field)
        return SQL(
            " left join lateral (select v.* from {view} as v where v.company_id = {company} and v.id = {reference} offset 0)"
            " as {this} on true"
        ).format(view=view(way[-1].target), this=Identifier(self.alias(way, row)), company=SQL("$1"), reference=reference)

    def parameter(self, node: Constant | Membership, type: Type, array: str = "") -> Composed:
        self.types.append(f"{CASTS.get(type, type)}{array}")
        if isinstance(node, Membership):
            self.values.append(_array(node.values))
        else:
            assert node.value is not None  # null is written out
            self.values.append(node.value)
        return Composed([SQL(f"h.p{len(self.values) - 1}")])


@dataclass(slots=True)
class _Direct(Compiler):
    """Compiles a condition on a row v alone, values written out; what a reference is compared with is looked up once."""

    aliases: dict[tuple[int, tuple[Navigation, ...]], str] = field(default_factory=lambda: {(0, ()): "v"})

    def compile(self, node: Expression, *, loose: bool = False) -> Composed:
        match node:
            # where false is not told from null, a row that refers to nothing is like one that refers to another
            case Comparison(operator="eq", left=Column(way=(step,)) as key, right=Constant(value=str())) if loose:
                return self.looked_up("({} = ({}))", step, key, SQL("= {}").format(self.compile(node.right)))
            case Membership(operand=Column(way=(step,)) as key) if loose:
                return self.looked_up(
                    "({} = any (array({})))", step, key, SQL("= any ({})").format(self.parameter(node, node.of, "[]"))
                )
        return Compiler.compile(self, node, loose=loose)

    def looked_up(self, test: LiteralString, step: Navigation, key: Column, values: Composed) -> Composed:
        """Whether a reference leads to a row whose key has one of the values.  A key is unique: there is one for each."""
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
