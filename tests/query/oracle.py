"""A second implementation of OData's expressions: each is made as text together with its value in Python.

It shares no code with the service.  The text has only the parentheses that its operators need, so that precedence is tested too.
Numbers are fractions.  Numbers that PostgreSQL rounds (quotients of decimals) are marked, and a comparison whose result depends on
the rounding is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

from tests.query.samples import Row

Scope = dict[str, Row]  # by name: '' is the row itself, the others are the variables of lambdas
Evaluate = Callable[[Scope], Any]

# Precedence of operators, from the loosest.
OR, AND, EQUALITY, RELATION, SUM, PRODUCT, UNARY, POSTFIX, PRIMARY = range(9)
LEVELS = {
    **{"or": OR, "and": AND, "eq": EQUALITY, "ne": EQUALITY, "gt": RELATION, "ge": RELATION, "lt": RELATION, "le": RELATION},
    **{"add": SUM, "sub": SUM, "mul": PRODUCT, "div": PRODUCT, "mod": PRODUCT},
}

SPACES = "".join(
    map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000))
)


class Undecided(Exception):
    """The result depends on how a quotient is rounded."""


class Rounded(Fraction):
    """A number that PostgreSQL rounds to a decimal."""


@dataclass(frozen=True)
class Sample:
    """An expression: its text, the precedence of its outermost operator, and its value."""

    text: str
    level: int
    evaluate: Evaluate = field(repr=False)

    def inside(self, level: int) -> str:
        """The text as an operand of an operator of this precedence."""
        return self.text if self.level >= level else f"({self.text})"


def constant(text: str, value: Any) -> Sample:
    return Sample(text, PRIMARY, lambda scope: value)


def binary(operator: str, left: Sample, right: Sample, of: Callable[[Any, Any], Any] | None = None) -> Sample:
    level, apply = LEVELS[operator], of or OPERATORS[operator]
    text = f"{left.inside(level)} {operator} {right.inside(level + 1)}"
    return Sample(text, level, lambda scope: apply(left.evaluate(scope), right.evaluate(scope)))


def negation(operand: Sample) -> Sample:
    return Sample(f"not {operand.inside(UNARY)}", UNARY, lambda scope: _strict(lambda x: not x)(operand.evaluate(scope)))


def minus(operand: Sample) -> Sample:
    return Sample(f"- {operand.inside(UNARY)}", UNARY, lambda scope: _strict(lambda x: _like(-x, x))(operand.evaluate(scope)))


def membership(operand: Sample, values: list[Sample]) -> Sample:
    text = f"{operand.inside(POSTFIX)} in ({','.join(value.text for value in values)})"
    return Sample(text, POSTFIX, lambda scope: any(same(operand.evaluate(scope), value.evaluate(scope)) for value in values))


def call(name: str, *arguments: Sample, of: Callable[..., Any] | None = None) -> Sample:
    """A function call; null if an argument is null.  of: the function, unless it is the one of this name."""
    apply = of or FUNCTIONS[name]
    text = f"{name}({','.join(argument.text for argument in arguments)})"
    return Sample(text, PRIMARY, lambda scope: _strict(apply)(*(argument.evaluate(scope) for argument in arguments)))


def casting(operand: Sample, type: str, of: Callable[[Any], Any]) -> Sample:
    return Sample(f"cast({operand.text},Edm.{type})", PRIMARY, lambda scope: _strict(of)(operand.evaluate(scope)))


def path(variable: str, up: int, name: str) -> Sample:
    """A field of the row, or of its parent `up` levels above."""
    text = "/".join([*([variable] if variable else []), *["parent"] * up, name])
    return Sample(text, PRIMARY, lambda scope: _above(scope, variable, up, lambda row: row[name]))


def parentless(variable: str, up: int) -> Sample:
    """The test that a reference is null."""
    text = "/".join([*([variable] if variable else []), *["parent"] * (up + 1)])
    return Sample(f"{text} eq null", EQUALITY, lambda scope: _above(scope, variable, up + 1, lambda row: row) is None)


def children(variable: str, up: int) -> tuple[str, Callable[[Scope], list[Row]]]:
    text = "/".join([*([variable] if variable else []), *["parent"] * up, "children"])
    return text, lambda scope: _above(scope, variable, up, lambda row: row.children) or []


def size(variable: str, up: int) -> Sample:
    text, rows = children(variable, up)
    return Sample(f"{text}/$count", PRIMARY, lambda scope: Fraction(len(rows(scope))))


def quantified(variable: str, up: int, quantifier: str, name: str, condition: Sample) -> Sample:
    text, rows = children(variable, up)
    judge = any if quantifier == "any" else all

    def evaluate(scope: Scope) -> bool:
        return judge([condition.evaluate({**scope, name: row}) is True for row in rows(scope)])

    return Sample(f"{text}/{quantifier}({name}:{condition.text})", PRIMARY, evaluate)


def _above(scope: Scope, variable: str, up: int, value: Callable[[Row], Any]) -> Any:
    row: Row | None = scope[variable]
    for _ in range(up):
        row = row and row.parent
    return None if row is None else value(row)


def _strict(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if None in values else apply(*values)


# Comparison -----------------------------------------------------------------------------------------------------------------------


def compare(left: Any, right: Any) -> int:
    """Compare two values: negative, zero or positive.  A date compares as its midnight."""
    if isinstance(left, date) and isinstance(right, date):
        left, right = _moment(left), _moment(right)
    rounded = isinstance(left, Rounded) or isinstance(right, Rounded)
    if rounded and abs(left - right) <= Fraction(1, 10**6) * max(abs(left), abs(right), 1):
        raise Undecided
    return int(left > right) - int(left < right)


def same(left: Any, right: Any) -> bool:
    """The operator eq: null equals null."""
    if left is None or right is None:
        return left is right
    return compare(left, right) == 0


def _ordered(judge: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: left is not None and right is not None and judge(compare(left, right))


def _moment(day: date) -> datetime:
    return day if isinstance(day, datetime) else datetime.combine(day, time())


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


# Numbers --------------------------------------------------------------------------------------------------------------------------


def _like(result: Fraction, *operands: Fraction) -> Fraction:
    return Rounded(result) if any(isinstance(each, Rounded) for each in operands) else result


def _arithmetic(apply: Callable[[Fraction, Fraction], Fraction]) -> Callable[[Any, Any], Any]:
    return _strict(lambda left, right: _like(apply(left, right), left, right))


def _remainder(left: Fraction, right: Fraction) -> Fraction | None:
    return None if right == 0 else _decided(left) - _decided(right) * trunc(Fraction(left) / right)


def whole_quotient(left: Fraction, right: Fraction) -> Fraction | None:
    return None if right == 0 else Fraction(trunc(Fraction(left) / right))


def quotient(left: Fraction, right: Fraction) -> Fraction | None:
    return None if right == 0 else Rounded(Fraction(left) / right)


def _decided(value: Fraction) -> Fraction:
    if isinstance(value, Rounded):
        raise Undecided
    return value


def _round(value: Fraction) -> Fraction:
    """Round half away from zero."""
    return Fraction(floor(abs(_decided(value)) + Fraction(1, 2)) * (1 if value > 0 else -1))


# Texts ----------------------------------------------------------------------------------------------------------------------------


def _lower(text: str) -> str:
    """Simple case mapping: a character becomes one character."""
    return "".join({"İ": "i"}.get(each, each.lower()) for each in text)


def _upper(text: str) -> str:
    return "".join(each.upper() if len(each.upper()) == 1 else each for each in text)


def _substring(text: str, start: Fraction, length: Fraction | None = None) -> str:
    begin = int(max(start, 0))
    return text[begin:] if length is None else text[begin : begin + int(max(length, 0))]


def to_whole(text: str) -> Fraction | None:
    found = re.fullmatch(r"[-+]?[0-9]+", text)
    return Fraction(int(text)) if found and -(2**63) <= int(text) < 2**63 else None


def to_decimal(text: str) -> Fraction | None:
    return Fraction(text) if re.fullmatch(r"[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?", text) else None


# Time -----------------------------------------------------------------------------------------------------------------------------

PARTS = {"Year": 1, "Month": 2, "Day": 3, "Hour": 4}


def start_of(unit: str, when: date) -> date:
    parts = when.timetuple()[: PARTS[unit]]
    cut = datetime(*(*parts, 1, 1)[: max(len(parts), 3)])  # type: ignore[arg-type]
    return cut if isinstance(when, datetime) else cut.date()


def end_of(unit: str, when: date) -> date:
    """The last tick before the next unit begins."""
    if when.year > 9000:  # computed 400 years earlier, where the calendar is the same: Python has no year 10000
        earlier = end_of(unit, when.replace(year=when.year - 400))
        return earlier.replace(year=earlier.year + 400)
    start, step = _moment(start_of(unit, when)), timedelta(hours=1)
    following = start + step
    while start_of(unit, following) == start:
        step = timedelta(hours=1) if unit in ("Day", "Hour") else timedelta(1)
        following += step
    following = _moment(start_of(unit, following))
    return following - timedelta(microseconds=1) if isinstance(when, datetime) else (following - timedelta(1)).date()


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "or": _either,
    "and": _both,
    "eq": same,
    "ne": lambda left, right: not same(left, right),
    "gt": _ordered(lambda order: order > 0),
    "ge": _ordered(lambda order: order >= 0),
    "lt": _ordered(lambda order: order < 0),
    "le": _ordered(lambda order: order <= 0),
    "add": _arithmetic(lambda left, right: left + right),
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda left, right: left * right),
    "mod": _strict(_remainder),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": lambda text, part: part in text,
    "startswith": lambda text, part: text.startswith(part),
    "endswith": lambda text, part: text.endswith(part),
    "tolower": _lower,
    "toupper": _upper,
    "concat": lambda left, right: left + right,
    "indexof": lambda text, part: Fraction(text.find(part)),
    "length": lambda text: Fraction(len(text)),
    "trim": lambda text: text.strip(SPACES),
    "substring": _substring,
    "round": _round,
    "floor": lambda value: Fraction(floor(_decided(value))),
    "ceiling": lambda value: Fraction(ceil(_decided(value))),
    "year": lambda when: Fraction(when.year),
    "month": lambda when: Fraction(when.month),
    "day": lambda when: Fraction(when.day),
    "quarter": lambda when: Fraction((when.month + 2) // 3),
    "week": lambda when: Fraction(when.isocalendar().week),
    "dayofweek": lambda when: Fraction(when.isoweekday()),
    "hour": lambda when: Fraction(when.hour),
    "minute": lambda when: Fraction(when.minute),
    "second": lambda when: Fraction(when.second),
    "date": lambda when: when.date() if isinstance(when, datetime) else when,
    "time": lambda when: when.time(),
    **{f"startOf{unit}": lambda when, unit=unit: start_of(unit, when) for unit in PARTS},
    **{f"endOf{unit}": lambda when, unit=unit: end_of(unit, when) for unit in PARTS},
}
