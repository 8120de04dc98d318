"""Solves expressions: finds values of the source's paths for which an expression gives a value.

A solution is a proposal: proof.py has the mapper read what was written, and compares.  So a function without an inverse may be
solved by a guess.  A path that other fields have determined, or whose default is known, is used as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import date
from decimal import Decimal, DecimalException
from typing import Any

from app.mapper.language.expressions import Evaluator
from app.mapper.language.functions import ABSENT, FUNCTIONS, to_text
from app.mapper.language.locales import Locale, format_date
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import FunctionCall, LiteralValue, Mapper, MapperExpression, SourcePath, paths_in
from app.wire.mending import LONGEST_NUMBER

Solution = dict[str, Any]  # path -> value; the first value of a path wins


class Solver:
    """Solves for one mapper."""

    def __init__(self, mapper: Mapper) -> None:
        self._keeps_types = mapper.format == "json"  # numbers and booleans do not become text
        self._locale = Locale.of(mapper.language) if mapper.language else None
        self._evaluator = Evaluator(mapper, lambda path: lambda solution: solution.get(path, ABSENT))

    def solve(self, expression: MapperExpression, value: Any, solution: Solution) -> None:
        """Add path values for which the expression gives the value (text, Decimal, date, bool, None)."""
        if isinstance(expression, SourcePath):
            solution.setdefault(expression.text, self._written(value))
        elif isinstance(expression, FunctionCall) and value is None:
            for path in paths_in(expression):
                solution.setdefault(path.text, None)
        elif isinstance(expression, FunctionCall):
            self._solve_call(expression, value, solution)

    def _written(self, value: Any) -> Any:
        """Format a value for the source."""
        if value is None or isinstance(value, str):
            return value
        if self._locale and isinstance(value, Decimal):
            return self._locale.write_number(value)
        if self._locale and type(value) is date:
            return self._locale.write_date(value)
        if self._keeps_types and isinstance(value, Decimal):  # as text if the reader takes no number of that length
            return value if len(text := to_text(value)) <= LONGEST_NUMBER else text
        return value if self._keeps_types and isinstance(value, bool) else to_text(value)

    def _solve_call(self, call: FunctionCall, value: Any, solution: Solution) -> None:
        first = call.arguments[0]
        match call.name:
            case "default":
                self.solve(first, value, solution)
            case "minus":
                self.solve(first, -_decimal(value), solution)
            case "replace":
                self.solve(first, self._unreplaced(call, to_text(value), solution), solution)
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
            case name if FUNCTIONS[name].gives == "bool":
                self._solve_condition(call, value is True or value == "true", solution)
            case name:  # such as upper: the result itself may have been the argument
                self.solve(first, value if FUNCTIONS[name].gives == "number" else to_text(value), solution)

    def _known(self, expression: MapperExpression, solution: Solution) -> Any:
        """The value of an expression whose paths are all solved; ABSENT for another one."""
        if any(path.text not in solution for path in paths_in(expression)):
            return ABSENT
        return self._evaluator.expression(expression)(solution)

    def _unreplaced(self, call: FunctionCall, value: str, solution: Solution) -> str:
        """Undo the replacement of one character by another; else return the value, which may have been so in the source."""
        old, new = (self._known(argument, solution) for argument in call.arguments[1:])
        if isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == 1:
            before = value.replace(new, old)
            return before if before.replace(old, new) == value else value
        return value

    def _solve_number(self, call: FunctionCall, value: Decimal, solution: Solution) -> None:
        if len(call.arguments) == 1:
            self.solve(call.arguments[0], value, solution)
        else:
            tag = call.arguments[1]
            assert isinstance(tag, LiteralValue)
            self.solve(call.arguments[0], Locale.of(str(tag.value)).write_number(value), solution)

    def _solve_date(self, call: FunctionCall, value: Any, solution: Solution) -> None:
        if isinstance(value, str):
            value = date.fromisoformat(value[:10])
        if len(call.arguments) == 2:
            pattern = call.arguments[1]
            assert isinstance(pattern, LiteralValue)
            value = format_date(value, str(pattern.value))
        self.solve(call.arguments[0], value, solution)

    def _solve_concat(self, call: FunctionCall, value: str, solution: Solution) -> None:
        """Split the value at known parts; of adjacent other parts the first gets all."""
        waiting: MapperExpression | None = None
        for argument in call.arguments:
            known = self._known(argument, solution)
            if known is ABSENT:
                if waiting is None:
                    waiting = argument
                else:
                    self.solve(argument, None, solution)
                continue
            text = "" if known is None else to_text(known)
            before, found, after = value.partition(text) if text else (value, "", "")
            if not found:
                continue
            if waiting is not None:
                self.solve(waiting, before or None, solution)
            waiting, value = None, after
        if waiting is not None:
            self.solve(waiting, value or None, solution)

    def _solve_choice(self, call: FunctionCall, value: Any, solution: Solution) -> None:
        condition, then, *rest = call.arguments
        if _equal(self._known(then, solution), value):
            self._solve_condition(condition, True, solution)
        elif rest and _equal(self._known(rest[0], solution), value):
            self._solve_condition(condition, False, solution)
        else:
            open = [branch for branch in (then, *rest) if any(paths_in(branch))]
            if open:
                self.solve(open[0], value, solution)
                self._solve_condition(condition, open[0] is then, solution)

    def _solve_condition(self, condition: MapperExpression, wanted: bool, solution: Solution) -> None:
        if isinstance(condition, SourcePath):
            self.solve(condition, wanted, solution)
            return
        if not isinstance(condition, FunctionCall):
            return
        match condition.name:
            case "not":
                self._solve_condition(condition.arguments[0], not wanted, solution)
            case "and" | "or":
                one_suffices = (condition.name == "or") == wanted
                for argument in condition.arguments[: 1 if one_suffices else None]:
                    self._solve_condition(argument, wanted, solution)
            case "=" | "!=" if (condition.name == "=") == wanted:
                one, other = condition.arguments
                for side, against in ((one, other), (other, one)):
                    known = self._known(against, solution)
                    if known is not ABSENT:
                        self.solve(side, known, solution)

    def _solve_arithmetic(self, call: FunctionCall, value: Decimal, solution: Solution) -> None:
        """Solve for one side, if the other one is known: without paths, by other fields, or by its default."""
        left, right = call.arguments
        try:
            if (known := self._number(right, solution)) is not None and _is_open(left, solution):
                self.solve(left, _SOLVE_LEFT[call.name](value, known), solution)
            elif (known := self._number(left, solution)) is not None and _is_open(right, solution):
                self.solve(right, _SOLVE_RIGHT[call.name](value, known), solution)
        except DecimalException:
            pass

    def _number(self, expression: MapperExpression, solution: Solution) -> Decimal | None:
        """The number that an expression gives with the paths that are solved so far; None if it gives none."""
        with contextlib.suppress(InvalidValue):
            found = self._evaluator.expression(FunctionCall(expression.at, "number", (expression,)))(solution)
            return found if isinstance(found, Decimal) else None
        return None


def _is_open(expression: MapperExpression, solution: Solution) -> bool:
    return any(path.text not in solution for path in paths_in(expression))


# value = x <sign> known, and value = known <sign> x
_SOLVE_LEFT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": lambda value, known: value - known,
    "-": lambda value, known: value + known,
    "*": lambda value, known: value / known,
    "/": lambda value, known: value * known,
}
_SOLVE_RIGHT: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": lambda value, known: value - known,
    "-": lambda value, known: known - value,
    "*": lambda value, known: value / known,
    "/": lambda value, known: known / value,
}


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except DecimalException:
        raise InvalidValue(f"expected a number, got {value!r}") from None


def _equal(constant: Any, value: Any) -> bool:
    if constant is ABSENT or constant is None:
        return False
    if isinstance(constant, Decimal) or isinstance(value, Decimal):
        try:
            return Decimal(str(constant)) == Decimal(str(value))
        except DecimalException:
            return False
    return to_text(constant) == to_text(value)
