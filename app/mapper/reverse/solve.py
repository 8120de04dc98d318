"""Expressions run backwards: which values the source's paths must have for an expression to give a value.

Solving is a proposal: whoever asks evaluates the expression on it and compares.  So nothing has to be solved that cannot be, and
nothing wrong can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal, DecimalException
from typing import Any

from app.mapper.language.expressions import Compiler
from app.mapper.language.functions import ABSENT, to_text
from app.mapper.language.locales import Language, written_date
from app.mapper.language.problems import Wrong
from app.mapper.language.tree import Call, Constant, Expression, Mapper, Path, paths_in

Solution = dict[str, Any]  # path -> value; what is there first stays


class Solver:
    """Solves for one mapper.  native: values keep their types (JSON), instead of becoming text."""

    def __init__(self, mapper: Mapper, native: bool) -> None:
        self._native = native
        self._language = Language.of(mapper.language) if mapper.language else None
        self._constants = Compiler(mapper, lambda path: lambda _: ABSENT)

    def solve(self, expression: Expression, value: Any, solution: Solution) -> None:
        """Add to the solution what makes the expression give the value (text, Decimal, date, bool, None)."""
        if isinstance(expression, Path):
            solution.setdefault(expression.text, self._written(value))
        elif isinstance(expression, Call) and value is None:
            for path in paths_in(expression):
                solution.setdefault(path, None)
        elif isinstance(expression, Call):
            self._solve_call(expression, value, solution)

    def _written(self, value: Any) -> Any:
        """A value as the source writes it."""
        if value is None or isinstance(value, str):
            return value
        if self._language and isinstance(value, Decimal):
            return self._language.write_number(value)
        if self._language and type(value) is date:
            return self._language.write_date(value)
        return value if self._native and isinstance(value, (Decimal, bool)) else to_text(value)

    def _solve_call(self, call: Call, value: Any, solution: Solution) -> None:
        first = call.arguments[0]
        match call.name:
            case "upper" | "lower" | "trim":
                self.solve(first, to_text(value), solution)
            case "default" | "plus":
                self.solve(first, value, solution)
            case "minus":
                self.solve(first, -_decimal(value), solution)
            case "replace":
                self.solve(first, self._unreplaced(call, to_text(value)), solution)
            case "number":
                self._solve_number(call, _decimal(value), solution)
            case "date":
                self._solve_date(call, value, solution)
            case "concat":
                self._solve_concat(call, to_text(value), solution)
            case "if":
                self._solve_choice(call, value, solution)
            case "+" | "-" | "*" | "/":
                self._solve_arithmetic(call, _decimal(value), solution)
            case _:
                self._solve_condition(call, value is True or value == "true", solution)

    def _constant(self, expression: Expression) -> Any:
        """The value of an expression without paths; ABSENT if it has some."""
        return ABSENT if any(paths_in(expression)) else self._constants.expression(expression)(None)

    def _unreplaced(self, call: Call, value: str) -> str:
        """One character for another is undone; anything else is left, where it may have been so in the source."""
        old, new = (self._constant(argument) for argument in call.arguments[1:])
        if isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == 1:
            before = value.replace(new, old)
            return before if before.replace(old, new) == value else value
        return value

    def _solve_number(self, call: Call, value: Decimal, solution: Solution) -> None:
        if len(call.arguments) == 1:
            self.solve(call.arguments[0], value, solution)
        else:
            tag = call.arguments[1]
            assert isinstance(tag, Constant)
            self.solve(call.arguments[0], Language.of(str(tag.value)).write_number(value), solution)

    def _solve_date(self, call: Call, value: Any, solution: Solution) -> None:
        if isinstance(value, str):
            value = date.fromisoformat(value[:10])
        if len(call.arguments) == 2:
            pattern = call.arguments[1]
            assert isinstance(pattern, Constant)
            value = written_date(value, str(pattern.value))
        self.solve(call.arguments[0], value, solution)

    def _solve_concat(self, call: Call, value: str, solution: Solution) -> None:
        """Fixed parts divide the value; of parts without one between them the first takes all."""
        waiting: Expression | None = None
        for argument in call.arguments:
            constant = self._constant(argument)
            if constant is ABSENT:
                if waiting is None:
                    waiting = argument
                else:
                    self.solve(argument, None, solution)
                continue
            text = "" if constant is None else to_text(constant)
            before, found, after = value.partition(text) if text else (value, "", "")
            if not found:
                continue
            if waiting is not None:
                self.solve(waiting, before or None, solution)
            waiting, value = None, after
        if waiting is not None:
            self.solve(waiting, value or None, solution)

    def _solve_choice(self, call: Call, value: Any, solution: Solution) -> None:
        condition, then, *rest = call.arguments
        if _equal(self._constant(then), value):
            self._solve_condition(condition, True, solution)
        elif rest and _equal(self._constant(rest[0]), value):
            self._solve_condition(condition, False, solution)
        else:
            open = [branch for branch in (then, *rest) if any(paths_in(branch))]
            if open:
                self.solve(open[0], value, solution)
                self._solve_condition(condition, open[0] is then, solution)

    def _solve_condition(self, condition: Expression, wanted: bool, solution: Solution) -> None:
        if isinstance(condition, Path):
            self.solve(condition, wanted, solution)
            return
        if not isinstance(condition, Call):
            return
        match condition.name:
            case "not":
                self._solve_condition(condition.arguments[0], not wanted, solution)
            case "and" | "or":
                enough = (condition.name == "or") == wanted  # one of them will do
                for argument in condition.arguments[: 1 if enough else None]:
                    self._solve_condition(argument, wanted, solution)
            case "=" | "!=" if (condition.name == "=") == wanted:
                one, other = condition.arguments
                for side, against in ((one, other), (other, one)):
                    constant = self._constant(against)
                    if constant is not ABSENT:
                        self.solve(side, constant, solution)

    def _solve_arithmetic(self, call: Call, value: Decimal, solution: Solution) -> None:
        left, right = call.arguments
        known = {side: self._constant(each) for side, each in (("left", left), ("right", right))}
        try:
            if known["right"] is not ABSENT:
                self.solve(left, _UNDO_LEFT[call.name](value, _decimal(known["right"])), solution)
            elif known["left"] is not ABSENT:
                self.solve(right, _UNDO_RIGHT[call.name](value, _decimal(known["left"])), solution)
        except DecimalException:
            pass


# value = x <sign> known, and value = known <sign> x
_UNDO_LEFT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": lambda value, known: value - known,
    "-": lambda value, known: value + known,
    "*": lambda value, known: value / known,
    "/": lambda value, known: value * known,
}
_UNDO_RIGHT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": lambda value, known: value - known,
    "-": lambda value, known: known - value,
    "*": lambda value, known: value / known,
    "/": lambda value, known: known / value,
}


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except DecimalException:
        raise Wrong(f"expected a number, got {value!r}") from None


def _equal(constant: Any, value: Any) -> bool:
    if constant is ABSENT or constant is None:
        return False
    if isinstance(constant, Decimal) or isinstance(value, Decimal):
        try:
            return Decimal(str(constant)) == Decimal(str(value))
        except DecimalException:
            return False
    return to_text(constant) == to_text(value)
