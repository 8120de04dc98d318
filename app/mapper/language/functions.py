"""The functions and operators of expressions: what they take, what they give, and what they do.

Null and what is absent pass through every function but `if`, `default` and the comparisons, so that a value that the source does
not have is no value in the record either.  A function that cannot do its work raises Wrong, which becomes the record's error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from typing import Any, cast

from app.mapper.language.locales import Language, bounded, formatted_date, iso_date, plain_number, shown
from app.mapper.language.problems import Wrong, wrong
from app.mapper.language.tree import Call, Constant, Expression, Path, Type

TEXTS: frozenset[Type] = frozenset(("source", "text", "null"))
NUMBERS: frozenset[Type] = frozenset(("source", "number", "null"))
NUMBER_OR_TEXT: frozenset[Type] = TEXTS | {"number"}
DATES: frozenset[Type] = TEXTS | {"date", "timestamp"}
TRUTHS: frozenset[Type] = frozenset(("source", "bool", "null"))
ANYTHING: frozenset[Type] = frozenset(("source", "text", "number", "date", "timestamp", "bool", "null"))
TIME_DIRECTIVES = tuple("%" + letter for letter in "HIMSfpXcz")


class Absent:
    """What the source does not have at all, as opposed to what is empty there."""

    def __repr__(self) -> str:
        return "absent"

    def __bool__(self) -> bool:
        return False


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Function:
    """takes: the types of each parameter, the last one's for all further arguments; least, most: how many there may be."""

    takes: tuple[frozenset[Type], ...]
    least: int
    most: int
    gives: Type


FUNCTIONS: Mapping[str, Function] = {
    "concat": Function((ANYTHING,), 1, 100, "text"),
    "upper": Function((TEXTS,), 1, 1, "text"),
    "lower": Function((TEXTS,), 1, 1, "text"),
    "trim": Function((TEXTS,), 1, 1, "text"),
    "replace": Function((TEXTS, TEXTS, TEXTS), 3, 3, "text"),
    "number": Function((NUMBER_OR_TEXT, TEXTS), 1, 2, "number"),
    "date": Function((DATES, TEXTS), 1, 2, "date"),
    "if": Function((TRUTHS, ANYTHING, ANYTHING), 2, 3, "text"),
    "default": Function((ANYTHING, ANYTHING), 2, 2, "text"),
    **{sign: Function((NUMBERS, NUMBERS), 2, 2, "number") for sign in "+-*/"},
    **{sign: Function((NUMBERS,), 1, 1, "number") for sign in ("plus", "minus")},
    **{sign: Function((ANYTHING, ANYTHING), 2, 2, "bool") for sign in ("=", "!=", "<", "<=", ">", ">=")},
    **{word: Function((TRUTHS,), 2, 1_000, "bool") for word in ("and", "or")},
    "not": Function((TRUTHS,), 1, 1, "bool"),
}
NAMED = ("concat", "upper", "lower", "trim", "replace", "number", "date", "if", "default")
COMPARISONS = frozenset(("=", "!=", "<", "<=", ">", ">="))


# Types ----------------------------------------------------------------------------------------------------------------------------


def type_of(expression: Expression, text: str) -> Type:
    """The type of an expression.  Raises ServiceError `invalid_mapper` at the part of `text` that does not fit."""
    match expression:
        case Path():
            return "source"
        case Constant(value=value):
            kinds: dict[type, Type] = {str: "text", bool: "bool", Decimal: "number"}
            return "null" if value is None else kinds[type(value)]
    function = FUNCTIONS.get(expression.name)
    if function is None:
        raise wrong(text, expression.at, f"unknown function {expression.name}, expected one of {', '.join(NAMED)}")
    given = len(expression.arguments)
    if not function.least <= given <= function.most:
        expected = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
        plural = "" if function.most == 1 else "s"
        raise wrong(text, expression.at, f"{expression.name}: expected {expected} argument{plural}, got {given}")
    types = [type_of(argument, text) for argument in expression.arguments]
    for number, (argument, found) in enumerate(zip(expression.arguments, types, strict=True)):
        takes = function.takes[min(number, len(function.takes) - 1)]
        if found not in takes:
            raise wrong(text, argument.at, f"{expression.name}: expected {_words(takes)}, got a {found}")
    return _result(expression, types, text)


def _result(call: Call, types: list[Type], text: str) -> Type:
    match call.name:
        case "if":
            return _common(call, types[1], types[2] if len(types) > 2 else "null", text)
        case "default":
            return _common(call, types[0], types[1], text)
        case name if name in COMPARISONS:
            _common(call, types[0], types[1], text)
        case "number" if len(types) > 1:
            _language_of(call, text)
        case "date" if len(types) > 1:
            pattern = _constant(call, 'a strptime format in "double quotes"', text)
            with_time = any(directive in pattern for directive in TIME_DIRECTIVES)
            if not _names_the_year(pattern):
                raise wrong(text, call.arguments[1].at, "date: expected a strptime format that names the year, such as %d.%m.%Y")
            return "timestamp" if with_time else "date"
    return FUNCTIONS[call.name].gives


def _names_the_year(pattern: str) -> bool:
    sample = datetime(2004, 1, 1)
    with contextlib.suppress(Wrong, ValueError):
        return formatted_date(sample.strftime(pattern), pattern).year == sample.year
    return False


def _common(call: Call, one: Type, other: Type, text: str) -> Type:
    """The type of what is one of two."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "source" in (one, other):
        return "source"
    if {one, other} == {"date", "timestamp"}:
        return "timestamp"
    raise wrong(text, call.arguments[-1].at, f"{call.name}: expected a {one} as on the other side, got a {other}")


def _constant(call: Call, expected: str, text: str) -> str:
    argument = call.arguments[1]
    if not isinstance(argument, Constant) or not isinstance(argument.value, str):
        raise wrong(text, argument.at, f"{call.name}: expected {expected}")
    return argument.value


def _language_of(call: Call, text: str) -> None:
    tag = _constant(call, 'a language in "double quotes"', text)
    try:
        Language.of(tag)
    except ValueError as error:
        raise wrong(text, call.arguments[1].at, f"number: {error}") from None


def _words(types: frozenset[Type]) -> str:
    return " or ".join(sorted(types - {"source", "null"}))


# What they do ---------------------------------------------------------------------------------------------------------------------


class Reading:
    """How values of the source become numbers, dates and truths; language: the mapper's, if it names one."""

    def __init__(self, language: Language | None) -> None:
        self.language = language

    def number(self, value: Any) -> Any:
        """A Decimal.  Raises Wrong."""
        match value:
            case Decimal():
                return value
            case bool():
                raise Wrong(f"expected a number, got {str(value).lower()}")
            case int():
                return Decimal(value)
            case float():
                return Decimal(str(value))
        return self.language.number(value) if self.language else plain_number(value)

    def number_or_plain(self, value: Any) -> Any:
        """As the language writes it, or else with a decimal point.  Raises Wrong."""
        if self.language and isinstance(value, str):
            with contextlib.suppress(Wrong):
                return self.language.number(value)
            with contextlib.suppress(Wrong):
                return plain_number(value)
        return self.number(value)

    def date(self, value: Any) -> Any:
        """A date.  Raises Wrong."""
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if not isinstance(value, str):
            raise Wrong(f"expected a date, got {shown(value)}")
        return self.language.date(value) if self.language else iso_date(value)

    def timestamp(self, value: Any) -> Any:
        """A date with its time.  Raises Wrong."""
        if isinstance(value, datetime):
            return value
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        if not isinstance(value, str):
            raise Wrong(f"expected a date and time, got {shown(value)}")
        if self.language:
            return self.language.timestamp(value)
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            raise Wrong(f"expected a date and time such as 2026-11-20T08:15:00Z, got {shown(value)}") from None

    def truth(self, value: Any) -> bool:
        """True or false.  Raises Wrong."""
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in ("true", "false"):
            raise Wrong(f"expected true or false, got {shown(value)}")
        return word == "true"


def to_text(value: Any) -> str:
    """A value as the import document writes it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return format(value, "f")
        case datetime():
            return in_utc(value).isoformat()
        case date():
            return value.isoformat()
    return str(value)


def in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def trim(text: str) -> str | None:
    """Without white space at its ends; null if nothing is left."""
    return text.strip() or None


TEXT_WORK: Mapping[str, Callable[..., str | None]] = {
    "upper": str.upper,
    "lower": str.lower,
    "trim": trim,
    "replace": str.replace,
}


def _divide(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise Wrong("division by zero")
    return left / right


_ARITHMETIC: Mapping[str, Callable[..., Decimal]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "plus": lambda operand: operand,
    "minus": lambda operand: -operand,
}


def calculate(sign: str, *operands: Decimal) -> Decimal:
    """Arithmetic with 28 digits.  Raises Wrong."""
    try:
        return bounded(_ARITHMETIC[sign](*operands))
    except DecimalException:
        raise Wrong("the result is no number that can be held") from None


COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: cast(bool, left == right),
    "!=": lambda left, right: cast(bool, left != right),
    "<": lambda left, right: cast(bool, left < right),
    "<=": lambda left, right: cast(bool, left <= right),
    ">": lambda left, right: cast(bool, left > right),
    ">=": lambda left, right: cast(bool, left >= right),
}
