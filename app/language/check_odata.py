"""OData's conditions and orders: names as they are written, literals of their own types, functions and paths.  Null is a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from app.catalog import Entity, Navigation
from app.errors import QueryError
from app.language import literals
from app.language.check import Checker, call, column, unknown
from app.language.functions import EDM, FUNCTIONS, UNSUPPORTED, accepts
from app.language.functions import cast as cast_function
from app.language.tree import Column, Constant, Expression, Invocation, Literal, Name, Node, Operation, Path
from app.language.unify import TYPE_NAMES

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


class OData(Checker):
    """$filter and $orderby."""

    null_is_value = True

    def check(self, node: Node) -> Expression:
        match node:
            case Literal():
                return _literal(node)
            case Invocation(name="cast"):
                return self.cast(node)
            case Invocation():
                return self.call(node.at, node.name, node.arguments)
        return super().check(node)

    def operation(self, node: Operation) -> Expression:
        if node.operator in COMPARISONS:
            left, right = node.operands
            if node.operator in ("eq", "ne") and _is_null(right):
                return self.compare(node.at, node.operator, self.reference(left), self.check(right))
            if node.operator in ("eq", "ne") and _is_null(left):
                return self.compare(node.at, node.operator, self.check(left), self.reference(right))
            return self.compare(node.at, node.operator, self.check(left), self.check(right))
        if node.operator == "in":
            values = [self.check(value) for value in node.operands[1:]]
            for value in values:
                if not isinstance(value, Constant):
                    raise QueryError("expected a literal", position=value.at)
            return self.member(node.at, self.check(node.operands[0]), cast("list[Constant]", values))
        return self.call(node.at, node.operator, node.operands)

    def path(self, path: Path) -> Column:
        way, entity = self.way(path.names[:-1])
        name = path.names[-1]
        field = entity.fields.get(name.text)
        if field is None:
            if name.text in entity.navigations:
                raise QueryError(f"{name.text} is a navigation property; expected a field of it, or null", position=name.at)
            raise unknown(name, entity)
        return column(path.at, self.catalog, self.entity, way, field)

    def way(self, names: Sequence[Name]) -> tuple[tuple[Navigation, ...], Entity]:
        """The navigations, each to one row, and the entity to which they lead."""
        entity, way = self.entity, []
        for name in names:
            step = entity.navigations.get(name.text)
            if step is None:
                if name.text in entity.fields:
                    raise QueryError(f"{name.text} is no navigation property: nothing follows it", position=name.at)
                raise unknown(name, entity)
            if step.many:
                raise QueryError(f"{name.text} is a collection: expected a path to one row", position=name.at)
            way.append(step)
            entity = self.catalog[step.target]
        return tuple(way), entity

    def reference(self, node: Node) -> Expression:
        """What is compared with null: a reference too, by its foreign key."""
        if isinstance(node, Path):
            way, entity = self.way(node.names[:-1])
            step = entity.navigations.get(node.names[-1].text)
            if step and not step.many:
                return Column(node.at, entity.fields[step.field].type, way, entity.fields[step.field])
        return self.check(node)

    def call(self, at: int, name: str, nodes: Sequence[Node]) -> Expression:
        """A function or arithmetic operator over its operands."""
        if name in UNSUPPORTED or name.startswith("geo."):
            raise QueryError(f"the function {name} is not supported", position=at, code="not_supported")
        if name not in FUNCTIONS:
            raise QueryError(f"there is no function {name}", position=at)
        arguments = tuple(self.check(node) for node in nodes)
        for function in FUNCTIONS[name]:
            if len(function.parameters) == len(arguments) and all(
                accepts(parameter, argument.type) for parameter, argument in zip(function.parameters, arguments, strict=True)
            ):
                _refuse_zero(name, arguments)
                return call(at, function, arguments)
        raise QueryError(_mismatch(name, arguments), position=at)

    def cast(self, node: Invocation) -> Expression:
        """`cast(price, Edm.String)`."""
        if len(node.arguments) == 1:
            raise QueryError("cast of the row itself is not supported", position=node.at, code="not_supported")
        if len(node.arguments) != 2:
            raise QueryError("cast takes a value and a type such as Edm.String", position=node.at)
        value, target = self.check(node.arguments[0]), node.arguments[1]
        if not isinstance(target, Path) or str(target) not in EDM:
            raise QueryError(f"expected one of {', '.join(EDM)}", position=target.at)
        if value.type == "null":
            return Constant(node.at, EDM[str(target)], None)
        function = cast_function(value.type, EDM[str(target)])
        if function is None:
            raise QueryError(f"{TYPE_NAMES[value.type]} cannot be cast to {target}", position=node.at)
        return call(node.at, function, (value,))


def _refuse_zero(name: str, arguments: Sequence[Expression]) -> None:
    if name in ("div", "mod"):
        divisor = arguments[1]
        if isinstance(divisor, Constant) and divisor.value is not None and not float(divisor.value):
            raise QueryError("division by zero", position=divisor.at)


def _mismatch(name: str, arguments: Sequence[Expression]) -> str:
    wanted = " or ".join(f"({', '.join(function.parameters)})" for function in FUNCTIONS[name])
    given = ", ".join(TYPE_NAMES[argument.type] for argument in arguments)
    return f"{name} takes {wanted}, not ({given})"


def _literal(literal: Literal) -> Constant:
    """An OData literal, of its own type."""
    try:
        match literal.kind:
            case "null":
                return Constant(literal.at, "null", None)
            case "number":
                return Constant(literal.at, *literals.number(literal.text.removesuffix("L")))
            case "timestamp":
                return Constant(literal.at, "timestamptz", literals.timestamp(literal.text, strict=True))
            case kind:
                return Constant(literal.at, kind, literals.QUOTED[kind](literal.text))
    except ValueError as wrong:
        raise QueryError(str(wrong), position=literal.at) from None


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.kind == "null"
