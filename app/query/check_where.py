"""The checker of the SQL-like filter and sort: names in any case, literals of the field's type, references by lookup.

Null is SQL's unknown, with one exception: `= null` is the same as IS NULL, where SQL would never match a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from app.database.catalog import Field, Navigation
from app.errors import QueryError
from app.query import literals
from app.query.check import Checker, call, column, unknown
from app.query.functions import PATTERNS
from app.query.nodes import Literal, Name, Operation, Path
from app.query.tree import NUMBERS, Column, Constant, Expression, Junction
from app.query.types import TYPE_NAMES

T = TypeVar("T")


class WhereChecker(Checker):
    """Checks the filter and the sort of /c, hooks and @where."""

    null_is_value = False

    def operation(self, node: Operation) -> Expression:
        path, *values = node.operands
        assert isinstance(path, Path)
        name = path.names[0]
        step = _find(self.entity.navigations, name.text)
        if step and not step.many:
            return self.lookup(node, name, step, cast("list[Literal]", values))
        field = self.path(path)
        if node.operator in PATTERNS:
            return self.like(node, field, cast(Literal, values[0]))
        constants = [_typed(cast(Literal, value), field.field) for value in values]
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
                f"{node.operator.upper()} needs a text; {text.field.name} is {TYPE_NAMES[text.type]}", position=node.at
            )
        if pattern.kind != "text":
            raise QueryError("expected a pattern in single quotes", position=pattern.at)
        value = _typed(pattern, text.field)
        if (len(pattern.text) - len(pattern.text.rstrip("\\"))) % 2:
            raise QueryError("the pattern ends with an unfinished escape", position=pattern.at)
        return call(node.at, PATTERNS[node.operator], (text, value))

    def lookup(self, node: Operation, name: Name, step: Navigation, values: Sequence[Literal]) -> Expression:
        """A comparison of a reference: `category = 'code:X'` tests the referenced row, `category = 12` its id."""
        if node.operator not in ("eq", "ne", "in"):
            raise QueryError(f"{name.text} is a reference: expected =, != or IN", position=node.at)
        target = self.catalog[step.target]
        kinds: dict[str, list[Constant]] = {}
        for value in values:
            kind, text = value.text.split(":", 1) if value.kind == "text" and ":" in value.text else ("id", value.text)
            field = _find(target.fields, kind.strip())
            if field is None or not (field.unique or field.name == "id"):
                known = ", ".join(dict.fromkeys(("id", *(field.name for field in target.alternate_keys))))
                raise QueryError(f"{kind!r} is not a lookup of {target.name}: expected one of {known}", position=value.at)
            plain = value if text is value.text else Literal(value.at, "text", text)
            kinds.setdefault(field.name, []).append(_typed(plain, field))
        tests = []
        for kind, constants in kinds.items():
            referred = column(name.at, self.catalog, self.entity, (step,), target.fields[kind])
            if node.operator == "in":
                tests.append(self.member(node.at, referred, constants))
            else:
                tests.append(self.compare(node.at, node.operator, referred, constants[0]))
        return tests[0] if len(tests) == 1 else Junction(node.at, "bool", "or", tuple(tests))


def _typed(literal: Literal, field: Field) -> Constant:
    """A literal, read as the type of the field that it is compared with.  Raises QueryError."""
    try:
        match literal.kind:
            case "null":
                return Constant(literal.at, "null", None)
            case "text":
                return Constant(literal.at, *literals.typed(literal.text, field.type))
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
