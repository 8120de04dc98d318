"""The checker of OData's conditions and sort keys: exact names, literals of their own types, functions, paths and lambdas.

Null is a value: a comparison with it is true or false, never null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from app.database.catalog import Catalog, Entity, Navigation
from app.errors import QueryError, about
from app.query.check.checker import Checker, as_shown, call, column, unknown
from app.query.check.functions import EDM, FUNCTIONS, UNSUPPORTED, accepts
from app.query.check.functions import cast as cast_function
from app.query.check.indexable import indexable
from app.query.check.tree import Column, Constant, Count, Expression, Quantifier, RelatedRows
from app.query.check.types import TYPE_NAMES
from app.query.parse import odata as parse_odata
from app.query.parse.nodes import Alias, AliasOfList, Invocation, Literal, Name, Node, Operation, Path, Quantified, Size
from app.types import LAST_TIME, literals, named

# Each single-valued navigation is a join.  Over a few rows 20 joins take 0.08 s, in a lambda 0.3 s; 60 take 0.3 s and 0.8 s.
MAX_STEPS = 20  # navigations from one row
MAX_ALL_STEPS = 300  # navigations from all rows of a condition, those of lambdas included

# How error messages name the parameters of functions.
PARAMETERS = {str(type): name for type, name in TYPE_NAMES.items()} | {
    "number": "number",
    "integer": "whole number",
    "any": "value",
}
SPELLINGS = {name.lower(): name for name in FUNCTIONS}
COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


@dataclass(frozen=True, slots=True)
class Aliases:
    """Parameter aliases of a request: the texts of their values by name, None where the service refuses aliases.

    unset: those without a value that were asked for so far.
    """

    values: Mapping[str, str] | None = None
    unset: set[str] = field(default_factory=set, compare=False)

    def value(self, alias: Alias) -> Node:
        """The value of an alias, null if it has none.  A literal gets the alias's position.  Raises QueryError."""
        text = self._text(alias)
        if text is None:
            self.unset.add(alias.name)
            return Literal(alias.at, "null", "null")
        with about(alias.name):
            node = parse_odata.parse_filter(text)
            if isinstance(node, Literal):
                read_literal(node)  # raises for a wrong one
                return replace(node, at=alias.at)
            return node

    def list(self, alias: AliasOfList) -> tuple[Node, ...]:
        """The values of an alias that stands for the list of an `in`."""
        text = self._text(alias)
        with about(alias.name):
            return parse_odata.parse_list(text or "")

    def _text(self, alias: Alias | AliasOfList) -> str | None:
        if self.values is None:
            what = f"the parameter alias {alias.name}"
            raise QueryError(f"{what} is not supported", position=alias.at, code="not_supported")
        return self.values.get(alias.name)


class ODataChecker(Checker):
    """Checks $filter, $orderby and keys.

    parameters: the request's parameter aliases; joined: joins that other conditions of the request need.
    """

    null_is_value = True

    def __init__(
        self, catalog: Catalog, entity: Entity, parameters: Aliases = Aliases(), joined: list[object] | None = None
    ) -> None:
        super().__init__(catalog, entity)
        self.parameters = parameters
        self.variables: dict[str, RelatedRows] = {}  # of the enclosing lambdas
        self.paths: dict[int, set[tuple[Navigation, ...]]] = {}  # the joins from each row, by the row's number
        self.joined: list[object] = [] if joined is None else joined  # from all rows
        self.is_alias = False  # inside the value of an alias

    def check(self, node: Node) -> Expression:
        match node:
            case Literal():
                return self.constant(node)
            case Alias():
                return self.alias(node)
            case Invocation() if node.name.lower() == "cast":
                return self.cast(node)
            case Invocation():
                return self.call(node.at, node.name, node.arguments)
            case Quantified():
                return self.quantified(node)
            case Size(path=path):
                return Count(node.at, "int8", self.related(path, "$count"))
        return super().check(node)

    def constant(self, literal: Literal) -> Constant:
        """A literal, as columns with its value are shown.  Raises QueryError."""
        constant = read_literal(literal)
        return replace(constant, value=LAST_TIME) if constant.type == "time" and cast(str, constant.value) > LAST_TIME else constant

    def alias(self, alias: Alias) -> Expression:
        """The value of a parameter alias, which itself has no aliases inside."""
        node = self.parameters.value(alias)
        if self.is_alias:
            raise QueryError("expected a value without parameter aliases", position=alias.at)
        self.is_alias = True
        try:
            with about(None if isinstance(node, Literal) else alias.name):
                return self.check(node)
        finally:
            self.is_alias = False

    def literal_of(self, node: Node) -> Node:
        """The literal that an alias stands for; any other node as it is."""
        value = self.parameters.value(node) if isinstance(node, Alias) else node
        return value if isinstance(value, Literal) else node

    def operation(self, node: Operation) -> Expression:
        if node.operator in COMPARISONS:
            left, right = map(self.literal_of, node.operands)
            if node.operator in ("eq", "ne") and _is_null(right):
                return self.compare(node.at, node.operator, self.reference(left), self.check(right))
            if node.operator in ("eq", "ne") and _is_null(left):
                return self.compare(node.at, node.operator, self.check(left), self.reference(right))
            return self.compare(node.at, node.operator, self.check(left), self.check(right))
        if node.operator == "in":
            listed = node.operands[1:]
            if isinstance(listed[0], AliasOfList):
                listed = self.parameters.list(listed[0])
            values = [self.check(value) for value in listed]
            for value in values:
                if not isinstance(value, Constant):
                    raise QueryError("expected a literal", position=value.at)
            return self.member(node.at, self.check(node.operands[0]), cast("list[Constant]", values))
        return self.call(node.at, node.operator, node.operands)

    def path(self, path: Path) -> Expression:
        row, start, names = self.start(path)
        steps, entity = self.follow(start, names[:-1], row)
        name = names[-1]
        field = entity.fields.get(name.text)
        if field is None:
            if name.text in entity.navigations:
                message = f"{name.text} is a navigation property: expected one of its fields, or a comparison with null"
                raise QueryError(message, position=name.at)
            if str(path) in ("INF", "NaN"):
                raise QueryError(f"the number {name.text} is not supported", position=name.at, code="not_supported")
            raise unknown(name, entity)
        return as_shown(column(path.at, self.catalog, start, steps, field, row))

    def start(self, path: Path) -> tuple[int, Entity, Sequence[Name]]:
        """Find the row at which a path begins: a lambda's variable, or the row itself.

        Returns the row's number, its entity, and the names that remain.
        """
        first, *rest = path.names
        rows = self.variables.get(first.text)
        if rows is None:
            return 0, self.entity, path.names
        if not rest:
            raise QueryError(f"{first.text} is a row: expected a path to one of its fields", position=first.at)
        return rows.number, self.catalog[rows.navigation.target], rest

    def follow(self, entity: Entity, names: Sequence[Name], row: int = 0) -> tuple[tuple[Navigation, ...], Entity]:
        """Follow single-valued navigations from a row of the entity.  Returns them, and the entity to which they lead."""
        path: list[Navigation] = []
        for name in names:
            step = self.step(entity, name)
            if step.many:
                raise QueryError(f"{name.text} is a collection: expected any, all or $count after it", position=name.at)
            path.append(step)
            self.count_join(row, tuple(path), name)
            entity = self.catalog[step.target]
        return tuple(path), entity

    def count_join(self, row: int, path: tuple[Navigation, ...], name: Name) -> None:
        """Count the join of the path's last step, once for each path.  Raises QueryError above the bounds."""
        paths = self.paths.setdefault(row, set())
        if path not in paths:
            paths.add(path)
            self.joined.append(path)
        if len(paths) > MAX_STEPS or len(self.joined) > MAX_ALL_STEPS:
            bound = f"{MAX_STEPS} navigations from one row, {MAX_ALL_STEPS} in all"
            raise QueryError(f"nested too deeply: at most {bound}", position=name.at)

    def step(self, entity: Entity, name: Name) -> Navigation:
        """The navigation of this name.  Raises QueryError."""
        step = entity.navigations.get(name.text)
        if step is None:
            if name.text in entity.fields:
                raise QueryError(f"{name.text} is not a navigation property: nothing can follow it", position=name.at)
            raise unknown(name, entity)
        return step

    def related(self, path: Path, what: str) -> RelatedRows:
        """The rows of the collection at the end of a path.  what: the word after the path, any, all or $count."""
        row, start, names = self.start(path)
        steps, entity = self.follow(start, names[:-1], row)
        step = self.step(entity, names[-1])
        if not step.many:
            raise QueryError(f"{what} needs a collection: {step.name} leads to one row", position=names[-1].at)
        origin = column(path.at, self.catalog, start, steps, entity.fields["id"], row)
        return RelatedRows(origin, step, len(self.variables) + 1)

    def quantified(self, node: Quantified) -> Expression:
        """A lambda.  A path inside that does not begin with its variable begins at the row outside."""
        rows = self.related(node.path, node.quantifier)
        if node.variable is None or node.condition is None:
            return Quantifier(node.at, "bool", node.quantifier, rows, None)
        name = node.variable.text
        if name in self.variables:
            raise QueryError(f"the variable {name} is already used by an enclosing lambda", position=node.variable.at)
        self.variables[name] = rows
        condition = self.condition(node.condition)
        del self.variables[name]
        self.paths.pop(rows.number, None)
        return Quantifier(node.at, "bool", node.quantifier, rows, condition)

    def reference(self, node: Node) -> Expression:
        """The operand of a comparison with null: any expression, or a reference, which stands for its foreign key."""
        if isinstance(node, Path):
            row, start, names = self.start(node)
            steps, entity = self.follow(start, names[:-1], row)
            step = entity.navigations.get(names[-1].text)
            if step and not step.many:
                return Column(node.at, entity.fields[step.field].type, steps, entity.fields[step.field], row)
        return self.check(node)

    def call(self, at: int, name: str, nodes: Sequence[Node]) -> Expression:
        """A function, or an arithmetic operator, with its operands."""
        if name.lower() in UNSUPPORTED or name.lower().startswith("geo."):
            raise QueryError(f"the function {name} is not supported", position=at, code="not_supported")
        if name.lower() not in SPELLINGS:
            raise QueryError(f"no such function: {name}", position=at)
        name = SPELLINGS[name.lower()]
        arguments = tuple(_as_written(node, self.check(node)) for node in map(self.literal_of, nodes))
        for function in FUNCTIONS[name]:
            if len(function.parameters) == len(arguments) and all(
                accepts(parameter, argument.type) for parameter, argument in zip(function.parameters, arguments, strict=True)
            ):
                _refuse_zero(name, arguments)
                return indexable(call(at, function, arguments))
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


def _as_written(node: Node, argument: Expression) -> Expression:
    """In arithmetic a literal with a point, an exponent or the suffix m or d is a decimal, even if it is whole: `5.0 div 2` is 2.5.

    In a comparison it stays whole, so that an index on an integer column serves.
    """
    if isinstance(node, Literal) and node.kind == "number" and isinstance(argument, Constant) and set(node.text) & set(".eEmMdD"):
        return Constant(argument.at, "numeric", argument.value)
    return argument


def _refuse_zero(name: str, arguments: Sequence[Expression]) -> None:
    if name in ("div", "mod"):
        divisor = arguments[1]
        if isinstance(divisor, Constant) and divisor.value is not None and not float(divisor.value):
            raise QueryError("division by zero", position=divisor.at)


def _mismatch(name: str, arguments: Sequence[Expression]) -> str:
    wanted = " or ".join(f"({', '.join(PARAMETERS[each] for each in function.parameters)})" for function in FUNCTIONS[name])
    given = ", ".join(TYPE_NAMES[argument.type] for argument in arguments)
    return f"{name} takes {wanted}, got ({given})"


def read_literal(literal: Literal) -> Constant:
    """A literal, of its own type.  Raises QueryError."""
    try:
        match literal.kind:
            case "null":
                return Constant(literal.at, "null", None)
            case "number":
                return Constant(literal.at, *literals.number(literal.text.rstrip("lLmMdD")))
            case "timestamp":
                return Constant(literal.at, "timestamptz", literals.timestamp(literal.text, strict=True))
            case kind:
                return Constant(literal.at, kind, named(kind).literal(literal.text)[1])
    except ValueError as error:
        raise QueryError(str(error), position=literal.at) from None


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.kind == "null"
