"""$apply: rows become groups, each with the values that it is grouped by and aggregates of its rows.

Groups              what is made of the rows
  Key               a field that they are grouped by, at the end of its path
  Aggregate         sum, count ... under its alias
Member              what a group's JSON object shows of them
Filtering           checks $filter: over fields, before rows are grouped, or over aliases, after
Ordering            checks $orderby: over what groups have
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from app.database.catalog import Catalog, Entity, Field
from app.database.catalog import Type as FieldType
from app.errors import QueryError
from app.query.check import call
from app.query.check_odata import OData
from app.query.functions import AGGREGATES, PRESENT, ROWS, accepts
from app.query.nodes import Aggregation, Grouping, Node, Operation, Path
from app.query.tree import Call, Column, Count, Expression, Junction, Quantifier, Related, Result, walk
from app.query.types import TYPE_NAMES

MAX_RESULTS = 100  # fields and aggregates of a group
TAKEN = {"sum": "numbers", "avg": "numbers", "average": "numbers", "min": "what has an order", "max": "what has an order"}


@dataclass(frozen=True, slots=True)
class Key:
    """What rows are grouped by.  Without a path: whether there is a row behind a reference, shown where nothing else tells."""

    path: tuple[str, ...]
    value: Expression
    result: Result
    telling: bool  # null only where there is no row that has the field


@dataclass(frozen=True, slots=True)
class Aggregate:
    alias: str = field(compare=False)
    value: Call
    result: Result


@dataclass(frozen=True, slots=True)
class Member:
    """A value of a group, or an object of members; such an object is null where `result` is, if it can be."""

    name: str
    result: Result | None
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.members))})" if self.members else self.name


@dataclass(frozen=True, slots=True)
class Groups:
    """A checked transformation.  `members` are what is shown of the keys; the aggregates follow."""

    keys: tuple[Key, ...]
    aggregates: tuple[Aggregate, ...]
    members: tuple[Member, ...]
    having: Expression | None = None  # a condition over results

    @property
    def columns(self) -> Iterator[tuple[Expression, Result]]:
        """What is computed of the rows, and the result that it becomes: the keys first."""
        yield from ((key.value, key.result) for key in self.keys)
        yield from ((aggregate.value, aggregate.result) for aggregate in self.aggregates)

    @property
    def expressions(self) -> Iterator[Expression]:
        yield from (value for value, _ in self.columns)
        if self.having is not None:
            yield self.having

    @property
    def aliases(self) -> dict[str, Result]:
        return {each.alias: each.result for each in self.aggregates}

    @property
    def results(self) -> dict[str, Result]:
        """All that a group has, by path or alias."""
        return {"/".join(key.path): key.result for key in self.keys if key.path} | self.aliases

    def __str__(self) -> str:
        """As a context URL lists it: `category(name),total`."""
        return ",".join(map(str, (*self.members, *self.aliases)))


class Filtering(OData):
    """Names are fields or aliases."""

    def __init__(self, catalog: Catalog, entity: Entity, groups: Groups) -> None:
        super().__init__(catalog, entity)
        self.aliases = groups.aliases

    def path(self, path: Path) -> Expression:
        name = str(path)
        if name in self.aliases and name not in self.variables:
            return replace(self.aliases[name], at=path.at)
        return super().path(path)

    def split(self, node: Node) -> tuple[Expression | None, Expression | None]:
        """The condition on rows and the condition on groups, each of the parts that `and` joins."""
        rows: list[Expression] = []
        groups: list[Expression] = []
        for part in _parts(node):
            condition = self.condition(part)
            found = list(walk(condition))
            alias = next((each for each in found if isinstance(each, Result)), None)
            if alias and any(isinstance(each, Column | Quantifier | Count) for each in found):
                raise QueryError("this alias stands beside fields: expected a condition on aliases alone", position=alias.at)
            (groups if alias else rows).append(condition)
        return _both(rows), _both(groups)


class Ordering(OData):
    """Names are what a group has."""

    def __init__(self, catalog: Catalog, entity: Entity, groups: Groups) -> None:
        super().__init__(catalog, entity)
        self.results = groups.results

    def path(self, path: Path) -> Expression:
        if str(path) not in self.results:
            raise QueryError(f"groups have no {path}: expected one of {', '.join(self.results)}", position=path.at)
        return replace(self.results[str(path)], at=path.at)

    def reference(self, node: Node) -> Expression:
        return self.check(node)

    def related(self, path: Path, what: str) -> Related:
        raise QueryError(f"groups have no {path}: expected one of {', '.join(self.results)}", position=path.at)


def check_apply(catalog: Catalog, entity: Entity, node: Grouping) -> Groups:
    """The groups that a transformation asks for.  Raises QueryError."""
    if len(node.paths) + len(node.aggregations) > MAX_RESULTS:
        raise QueryError(f"a group has at most {MAX_RESULTS} fields and aggregates", position=node.at)
    checker = OData(catalog, entity)
    paths = {str(path): path for path in node.paths}.values()
    keys = [_key(checker, path, number) for number, path in enumerate(paths)]
    members = _members(checker, keys, ())
    aggregates: dict[str, Aggregate] = {}
    for aggregation in node.aggregations:
        alias = aggregation.alias
        if alias.text in entity.fields or alias.text in entity.navigations:
            raise QueryError(f"{entity.name} has a field {alias.text}: expected another alias", position=alias.at)
        if alias.text in aggregates:
            raise QueryError(f"the alias {alias.text} is given twice", position=alias.at)
        if "." in alias.text:
            raise QueryError("expected an alias without dots", position=alias.at)
        aggregates[alias.text] = _aggregate(checker, aggregation, len(keys) + len(aggregates))
    return Groups(tuple(keys), tuple(aggregates.values()), members)


def _key(checker: OData, path: Path, number: int) -> Key:
    value = checker.path(path)
    assert isinstance(value, Column)  # what a path leads to
    names = tuple(name.text for name in path.names)
    _, end = checker.way(checker.entity, path.names[:-1])
    shown = replace(value.field, name=f"r{number}", required=not value.nullable, reference=None)
    return Key(names, value, Result(path.at, value.type, shown, 0), end.fields[names[-1]].required)


def _aggregate(checker: OData, node: Aggregation, number: int) -> Aggregate:
    value = Call(node.at, ROWS.result, ROWS, (), 0)
    if node.value is not None and node.method is not None:
        method = node.method
        if "." in method.text:
            raise QueryError(f"the method {method.text} is not supported", position=method.at, code="not_supported")
        if method.text not in AGGREGATES:
            raise QueryError(f"there is no method {method.text}: expected one of {', '.join(AGGREGATES)}", position=method.at)
        operand = checker.check(node.value)
        function = next((each for each in AGGREGATES[method.text] if accepts(each.parameters[0], operand.type)), None)
        if function is None or operand.type == "null":
            taken = TAKEN.get(method.text, "values")
            raise QueryError(f"{method.text} takes {taken}, not {TYPE_NAMES[operand.type]}", position=operand.at)
        value = call(node.at, function, (operand,))
    shown = Field.computed(f"r{number}", _field_type(value), required=not value.function.partial)
    # a number that is reckoned with is bounded anew
    growth = value.growth if value.type == "text" else 0
    return Aggregate(node.alias.text, value, Result(node.at, value.type, shown, growth))


def _members(checker: OData, keys: list[Key], start: tuple[str, ...]) -> tuple[Member, ...]:
    """What the paths that begin with `start` show after it.  Appends to the keys what tells whether there is a row."""
    shown: list[Member] = []
    depth = len(start)
    inside = [key for key in keys if key.path and key.path[:depth] == start]
    for name in dict.fromkeys(key.path[depth] for key in inside):
        leaf = next((key for key in inside if key.path == (*start, name)), None)
        if leaf:
            shown.append(Member(name, leaf.result))
        else:
            present = _presence(checker, keys, (*start, name))
            shown.append(Member(name, present, _members(checker, keys, (*start, name))))
    return tuple(shown)


def _presence(checker: OData, keys: list[Key], names: tuple[str, ...]) -> Result | None:
    """What is null where no row is behind these navigations; None if there always is one."""
    entity, way = checker.entity, []
    for name in names:
        way.append(entity.navigations[name])
        last, entity = entity, checker.catalog[way[-1].target]
    if all(step.required for step in way):
        return None
    telling = next((key for key in keys if key.telling and key.path[:-1] == names), None)
    if telling:
        return telling.result
    field = last.fields[way[-1].field]
    reference = Column(0, field.type, tuple(way[:-1]), field)
    result = Result(0, "bool", Field.computed(f"r{len(keys)}", "bool", required=False), 0)
    keys.append(Key((), Call(0, "bool", PRESENT, (reference,), 0), result, False))
    return result


def _field_type(value: Expression) -> FieldType:
    return "numeric" if value.type == "whole" else cast(FieldType, value.type)


def _parts(node: Node) -> Iterator[Node]:
    """What `and` joins."""
    if isinstance(node, Operation) and node.operator == "and":
        for operand in node.operands:
            yield from _parts(operand)
    else:
        yield node


def _both(conditions: Sequence[Expression]) -> Expression | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Junction(conditions[0].at, "bool", "and", tuple(conditions))
