"""The checker of the SQL-like filter and sort: names in any case, literals of the field's type, references by lookup.

Null is SQL's unknown, with one exception: `= null` is the same as IS NULL, where SQL would never match a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query.check.checker import Checker, call, column, unknown
from app.query.check.functions import PATTERNS
from app.query.check.tree import NUMBERS, Column, Comparison, Constant, Expression, IsNull, Junction, Membership, Not
from app.query.check.types import TYPE_NAMES
from app.query.parse.nodes import Literal, Name, Node, Operation, Path
from app.types import TYPES, literals

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lookup:
    """What `kind:value` in a condition names: the row of an entity whose unique field has the value."""

    entity: str
    field: str
    value: str


class WhereChecker(Checker):
    """Checks the filter and the sort of /c, hooks and @where."""

    null_is_value = False

    def __init__(self, catalog: Catalog, entity: Entity) -> None:
        super().__init__(catalog, entity)
        self.lookups: dict[Lookup, None] = {}  # of the conditions checked so far, in their order
        self._is_negated = False  # whether what is checked stands in an odd number of `not`

    def check(self, node: Node) -> Expression:
        negates = isinstance(node, Operation) and node.operator == "not"
        self._is_negated ^= negates
        try:
            return super().check(node)
        finally:
            self._is_negated ^= negates

    def operation(self, node: Operation) -> Expression:
        path, *operands = node.operands
        assert isinstance(path, Path)
        values = cast("list[Literal]", operands)
        name = path.names[0]
        step = _find(self.entity.navigations, name.text)
        if step and not step.many:
            return self.lookup(node, name, (step,), values)
        field = self.path(path)
        if node.operator in PATTERNS:
            return self.like(node, field, values[0])
        if field.field.name == "id" and any(map(_is_lookup, values)):
            return self.lookup(node, name, (), values)
        constants = [_typed(value, field.field) for value in values]
        if node.operator == "in":
            return self.member(node.at, field, constants)
        return self.compare(node.at, node.operator, field, constants[0])

    def path(self, path: Path) -> Column:
        name = path.names[0]
        step = _find(self.entity.navigations, name.text)
        field = self.entity.fields[step.field] if step and not step.many else _find(self.entity.fields, name.text)
        if field is None:
            raise unknown(name, self.entity)
        return Column(path.at, field.type, (), field)

    def like(self, node: Operation, text: Column, pattern: Literal) -> Expression:
        if text.type != "text":
            raise QueryError(
                f"{node.operator.upper()} needs a text: {text.field.name} is {TYPE_NAMES[text.type]}", position=node.at
            )
        if pattern.kind != "text":
            raise QueryError("expected a pattern in single quotes", position=pattern.at)
        value = _typed(pattern, text.field)
        if (len(pattern.text) - len(pattern.text.rstrip("\\"))) % 2:
            raise QueryError("the pattern ends with an unfinished escape", position=pattern.at)
        return call(node.at, PATTERNS[node.operator], (text, value))

    def lookup(self, node: Operation, name: Name, path: tuple[Navigation, ...], values: Sequence[Literal]) -> Expression:
        """A comparison with lookups: of a reference, `category = 'code:X'`, or of the row itself, `id = 'code:X'`.

        A reference that is null compares as null; a row whose unique field is null is another row than any lookup names.
        """
        if node.operator not in ("eq", "ne", "in"):
            raise QueryError(f"{name.text} is compared with a row: expected =, != or IN", position=node.at)
        target = self.catalog[path[0].target] if path else self.entity
        kinds: dict[str, list[Constant]] = {}
        for value in values:
            kind, text = value.text.split(":", 1) if _is_lookup(value) else ("id", value.text)
            field = _find(target.fields, kind.strip())
            if field is None or not (field.unique or field.name == "id"):
                known = ", ".join(dict.fromkeys(("id", *(field.name for field in target.alternate_keys))))
                raise QueryError(f"{kind!r} is not a lookup of {target.name}: expected one of {known}", position=value.at)
            constant = _typed(Literal(value.at, "text", text) if _is_lookup(value) else value, field)
            kinds.setdefault(field.name, []).append(constant)
            if _is_lookup(value):
                self.lookups[Lookup(target.name, field.name, cast(str, constant.value))] = None
        tests = []
        for kind, constants in kinds.items():
            named, constants = self.named(name, path, target, target.fields[kind], constants)
            if node.operator == "in":
                test = self.member(node.at, named, constants)
            else:
                test = self.compare(node.at, node.operator, named, constants[0])
            tests.append(self.of_row(test, named, path))
        return tests[0] if len(tests) == 1 else Junction(node.at, "bool", "or", tuple(tests))

    def of_row(self, test: Expression, named: Column, path: tuple[Navigation, ...]) -> Expression:
        """The test whether a row is the one that is named by a field, or another one, as a row is whose field is null.

        Rows without the reference never match: for them the test is false, or true if it stands inside `not`.
        """
        if not isinstance(test, Comparison | Membership) or named.field.required or (path and not named.path):
            return test
        test = replace(test, null_is_value=True)
        is_other = isinstance(test, Comparison) and test.operator == "ne"
        if not path or self._is_negated == is_other:
            return test
        missing = IsNull(named.at, "bool", Column(named.at, "int8", (), self.entity.fields[path[0].field]))
        if self._is_negated:
            return Junction(test.at, "bool", "or", (test, missing))
        return Junction(test.at, "bool", "and", (test, Not(missing.at, "bool", missing)))

    def named(
        self, name: Name, path: tuple[Navigation, ...], target: Entity, field: Field, constants: list[Constant]
    ) -> tuple[Column, list[Constant]]:
        """What is compared so that a row is the one that has one of these values in a field, and with what."""
        return column(name.at, self.catalog, self.entity, path, field), constants


def _is_lookup(literal: Literal) -> bool:
    return literal.kind == "text" and ":" in literal.text


def _typed(literal: Literal, field: Field) -> Constant:
    """A literal, read as the type of the field that it is compared with.  Raises QueryError."""
    try:
        match literal.kind:
            case "null":
                return Constant(literal.at, "null", None)
            case "text":
                return Constant(literal.at, *TYPES[field.type].literal(literal.text))
            case "number" if field.type in NUMBERS:
                return Constant(literal.at, *literals.number(literal.text))
            case "number" if field.type == "text" and field.reference:
                return Constant(literal.at, "text", literal.text)
            case "bool" if field.type == "bool":
                return Constant(literal.at, "bool", literals.truth(literal.text))
    except ValueError as error:
        raise QueryError(f"{field.name}: {error}", position=literal.at) from None
    expected = {"bool": "true or false"}.get(field.type, "a number" if field.type in NUMBERS else "a literal in single quotes")
    raise QueryError(f"{field.name} is {TYPE_NAMES[field.type]}: expected {expected}", position=literal.at)


def _find(names: Mapping[str, T], name: str) -> T | None:
    """Find the value of this name; if there is none, of the same name in another case."""
    return names.get(name) or next((value for key, value in names.items() if key.lower() == name.lower()), None)
