"""$apply: the checker of groupby and aggregate, and of the $filter and $orderby beside them.

Groups              the checked transformation: how rows become groups
  GroupKey          a field that rows are grouped by
  Aggregate         sum, count ... under an alias
  GroupMember       a member of the JSON object of a group
GroupFilterChecker  checks $filter: conditions on fields apply before grouping, conditions on aliases after it
GroupOrderChecker   checks $orderby: over group keys and aliases
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from app.database.catalog import Field
from app.errors import QueryError
from app.query.check.checker import call
from app.query.check.functions import AGGREGATES, PRESENT, ROWS, accepts
from app.query.check.odata import ODataChecker
from app.query.check.tree import Call, Column, Count, Expression, Junction, Quantifier, RelatedRows, Result, walk
from app.query.check.types import TYPE_NAMES
from app.query.parse.nodes import Aggregation, Grouping, Node, Operation, Path
from app.types import Name as FieldType

MAX_RESULTS = 100  # fields and aggregates of a group
OPERANDS = {"sum": "numbers", "avg": "numbers", "average": "numbers", "min": "comparable values", "max": "comparable values"}

Names = tuple[str, ...]  # of a path
Tree = dict[str, "GroupKey | Tree"]  # the keys by the names of their paths: a branch for each navigation, a key at each end


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A field that rows are grouped by.

    A presence key has an empty path: its value is null if navigations lead to no row, and it is not a member of the output.
    tells_presence: the field is never null in its own row, so a null means that the navigations lead to no row.
    """

    path: Names
    value: Expression
    result: Result
    tells_presence: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    alias: str = field(compare=False)
    value: Call
    result: Result


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group's JSON object: a value, or an object of `members`.

    result: of a value, the value; of an object, the result that is null if the object is null (None: it never is).
    """

    name: str
    result: Result | None
    members: tuple[GroupMember, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.members))})" if self.members else self.name


@dataclass(frozen=True, slots=True)
class Groups:
    """A checked transformation.  In the output `members` come first, then the aggregates."""

    keys: tuple[GroupKey, ...]
    aggregates: tuple[Aggregate, ...]
    members: tuple[GroupMember, ...]
    having: Expression | None = None  # a condition on results

    @property
    def columns(self) -> Iterator[tuple[Expression, Result]]:
        """The expressions over rows with the results that they become, keys first."""
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
        """The results that $orderby can use, by path or alias."""
        return {"/".join(key.path): key.result for key in self.keys if key.path} | self.aliases

    def __str__(self) -> str:
        """The members as a context URL lists them: `category(name),total`."""
        return ",".join(map(str, (*self.members, *self.aliases)))


class GroupFilterChecker(ODataChecker):
    """Checks a $filter whose names are fields or aliases."""

    def __init__(self, outer: ODataChecker, groups: Groups) -> None:
        super().__init__(outer.catalog, outer.entity, outer.parameters, outer.joined)
        self.aliases = groups.aliases

    def path(self, path: Path) -> Expression:
        name = str(path)
        if name in self.aliases and name not in self.variables:
            return replace(self.aliases[name], at=path.at)
        return super().path(path)

    def split(self, node: Node) -> tuple[Expression | None, Expression | None]:
        """Split a condition at its `and`s into a condition on rows and a condition on groups.  Either may be None."""
        rows: list[Expression] = []
        groups: list[Expression] = []
        for conjunct in _conjuncts(node):
            condition = self.condition(conjunct)
            parts = list(walk(condition))
            alias = next((part for part in parts if isinstance(part, Result)), None)
            if alias and any(isinstance(part, Column | Quantifier | Count) for part in parts):
                raise QueryError("a condition takes either aliases or fields, not both", position=alias.at)
            (groups if alias else rows).append(condition)
        return _all(rows), _all(groups)


class GroupOrderChecker(ODataChecker):
    """Checks an $orderby whose names are the results of groups."""

    def __init__(self, outer: ODataChecker, groups: Groups) -> None:
        super().__init__(outer.catalog, outer.entity, outer.parameters, outer.joined)
        self.results = groups.results

    def path(self, path: Path) -> Expression:
        if str(path) not in self.results:
            raise self._unknown(path)
        return replace(self.results[str(path)], at=path.at)

    def reference(self, node: Node) -> Expression:
        return self.check(node)

    def related(self, path: Path, what: str) -> RelatedRows:
        raise self._unknown(path)

    def _unknown(self, path: Path) -> QueryError:
        expected = ", ".join(self.results)
        return QueryError(f"{path} is neither grouped nor aggregated: expected one of {expected}", position=path.at)


def check_apply(checker: ODataChecker, node: Grouping) -> Groups:
    """Check a transformation.  Raises QueryError."""
    if len(node.paths) + len(node.aggregations) > MAX_RESULTS:
        raise QueryError(f"a group has at most {MAX_RESULTS} fields and aggregates", position=node.at)
    entity = checker.entity
    paths = {str(path): path for path in node.paths}.values()
    fields = tuple(_key(checker, path, number) for number, path in enumerate(paths))
    tree = _tree(fields)
    presence, added = _presence(checker, fields, tree)
    keys = (*fields, *added)
    aggregates: dict[str, Aggregate] = {}
    for aggregation in node.aggregations:
        alias = aggregation.alias
        if alias.text in entity.fields or alias.text in entity.navigations:
            raise QueryError(f"{entity.name} has a property {alias.text}: expected another alias", position=alias.at)
        if alias.text in aggregates:
            raise QueryError(f"the alias {alias.text} is given twice", position=alias.at)
        if "." in alias.text:
            raise QueryError("expected an alias without dots", position=alias.at)
        aggregates[alias.text] = _aggregate(checker, aggregation, len(keys) + len(aggregates))
    return Groups(keys, tuple(aggregates.values()), _members(tree, presence))


def _key(checker: ODataChecker, path: Path, number: int) -> GroupKey:
    value = checker.path(path)
    [column] = value.arguments if isinstance(value, Call) else [value]
    assert isinstance(column, Column)  # the class of every resolved path, which may be shown as another value
    names = tuple(name.text for name in path.names)
    _, end = checker.follow(checker.entity, path.names[:-1])
    shown = replace(column.field, name=f"r{number}", required=not value.nullable, reference=None)
    tells_presence = end.fields[names[-1]].required and value is column
    return GroupKey(names, value, Result(path.at, value.type, shown, 0), tells_presence)


def _aggregate(checker: ODataChecker, node: Aggregation, number: int) -> Aggregate:
    value = Call(node.at, ROWS.result, ROWS, (), 0)
    if node.value is not None and node.method is not None:
        method = node.method
        if "." in method.text:
            raise QueryError(f"the method {method.text} is not supported", position=method.at, code="not_supported")
        if method.text not in AGGREGATES:
            raise QueryError(f"no such method: {method.text}, expected one of {', '.join(AGGREGATES)}", position=method.at)
        operand = checker.check(node.value)
        function = next((each for each in AGGREGATES[method.text] if accepts(each.parameters[0], operand.type)), None)
        if function is None or operand.type == "null":
            expected = OPERANDS.get(method.text, "values")
            raise QueryError(f"{method.text} takes {expected}, got {TYPE_NAMES[operand.type]}", position=operand.at)
        value = call(node.at, function, (operand,))
    shown = Field.computed(f"r{number}", _field_type(value), required=not value.function.partial)
    # arithmetic on a result that is a number is bounded anew, by functions.BOUNDED
    growth = value.growth if value.type == "text" else 0
    return Aggregate(node.alias.text, value, Result(node.at, value.type, shown, growth))


def _tree(keys: Iterable[GroupKey]) -> Tree:
    """The keys as a tree of their paths."""
    tree: Tree = {}
    for key in keys:
        branch: Any = tree
        for name in key.path[:-1]:
            branch = branch.setdefault(name, {})
        branch[key.path[-1]] = key
    return tree


def _branches(tree: Tree, start: Names = ()) -> Iterator[Names]:
    """Yield the paths of all branches, the outer before the inner ones."""
    for name, inside in tree.items():
        if isinstance(inside, dict):
            yield (*start, name)
            yield from _branches(inside, (*start, name))


def _presence(checker: ODataChecker, keys: Sequence[GroupKey], tree: Tree) -> tuple[dict[Names, Result], tuple[GroupKey, ...]]:
    """Find for each branch that may lead to no row a result that is null then.

    Returns these results, and the presence keys that had to be added for branches none of whose keys tells presence.
    """
    results: dict[Names, Result] = {}
    added: list[GroupKey] = []
    for path in _branches(tree):
        entity, steps = checker.entity, []
        for name in path:
            steps.append(entity.navigations[name])
            last, entity = entity, checker.catalog[steps[-1].target]
        if all(step.required for step in steps):
            continue
        key = next((key for key in keys if key.tells_presence and key.path[:-1] == path), None)
        if key is None:
            field = last.fields[steps[-1].field]
            value = Call(0, "bool", PRESENT, (Column(0, field.type, tuple(steps[:-1]), field),), 0)
            shown = Field.computed(f"r{len(keys) + len(added)}", "bool", required=False)
            key = GroupKey((), value, Result(0, "bool", shown, 0), False)
            added.append(key)
        results[path] = key.result
    return results, tuple(added)


def _members(tree: Tree, presence: Mapping[Names, Result], start: Names = ()) -> tuple[GroupMember, ...]:
    """The members of the JSON object that shows the keys of a branch, which begins at `start`."""
    return tuple(
        GroupMember(name, presence.get((*start, name)), _members(inside, presence, (*start, name)))
        if isinstance(inside, dict)
        else GroupMember(name, inside.result)
        for name, inside in tree.items()
    )


def _field_type(value: Expression) -> FieldType:
    return "numeric" if value.type == "whole" else cast(FieldType, value.type)


def _conjuncts(node: Node) -> Iterator[Node]:
    """Yield the operands of the outermost `and`s, or the node itself."""
    if isinstance(node, Operation) and node.operator == "and":
        for operand in node.operands:
            yield from _conjuncts(operand)
    else:
        yield node


def _all(conditions: Sequence[Expression]) -> Expression | None:
    """The conditions joined by `and`; None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Junction(conditions[0].at, "bool", "and", tuple(conditions))
