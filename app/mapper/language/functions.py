"""The functions and operators of expressions: their types, and what they compute.

A new function is an entry in NAMED.  With a `work` the entry is all: the evaluator converts the arguments and calls it, and a
reverse mapping tries the result as the first argument.  A function that treats null itself, or has another inverse, has a case in
expressions.py or reverse/solve.py.

Null and absent values pass through every function except `concat`, `if`, `default`, the comparisons and the logical operators, so a
value that the source lacks stays absent in the record.  Functions raise InvalidValue, which becomes the record's error.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from typing import Any

from app.mapper.language.locales import Locale, bounded, parse_date, parse_iso_date, parse_number, quoted
from app.mapper.language.problems import InvalidValue, mapper_error
from app.mapper.language.tree import FunctionCall, LiteralValue, MapperExpression, SourcePath, ValueType

TEXTS: frozenset[ValueType] = frozenset(("source", "text", "null"))
NUMBERS: frozenset[ValueType] = frozenset(("source", "number", "null"))
NUMBER_OR_TEXT: frozenset[ValueType] = TEXTS | {"number"}
DATES: frozenset[ValueType] = TEXTS | {"date", "timestamp"}
BOOLEANS: frozenset[ValueType] = frozenset(("source", "bool", "null"))
ANYTHING: frozenset[ValueType] = frozenset(("source", "text", "number", "date", "timestamp", "bool", "null"))
TIME_DIRECTIVES = tuple("%" + letter for letter in "HIMSfpXcz")


class Absent:
    """The value of a path that the source does not contain, as opposed to an empty one."""

    def __repr__(self) -> str:
        return "absent"

    def __bool__(self) -> bool:
        return False


ABSENT = Absent()


# Table of functions ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function, and its work.

    takes: the types of each parameter, those of the last one for all further arguments; least, most: the number of arguments.
    work computes the result; its arguments are neither null nor absent, and converted to Decimal where a parameter takes NUMBERS,
    else to text.  Without it, expressions.py evaluates the function.
    example, about: a call, and what it gives, for the editor.
    """

    takes: tuple[frozenset[ValueType], ...]
    least: int
    most: int
    gives: ValueType
    work: Callable[..., Any] | None = None
    example: str = ""
    about: str = ""


def trim(text: str) -> str | None:
    """Remove white space from both ends; null if nothing is left."""
    return text.strip() or None


def _arithmetic(calculate: Callable[..., Decimal]) -> Callable[..., Decimal]:
    """Arithmetic with 28 digits.  Raises InvalidValue."""

    def work(*operands: Decimal) -> Decimal:
        try:
            return bounded(calculate(*operands))
        except DecimalException:
            raise InvalidValue("the result of the calculation is out of range") from None

    return work


def _divide(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise InvalidValue("division by zero")
    return left / right


NAMED: Mapping[str, Signature] = {
    "concat": Signature((ANYTHING,), 1, 100, "text", None, """concat('a', " ", 'b')""", "the parts as one text"),
    "upper": Signature((TEXTS,), 1, 1, "text", str.upper, "upper('a')", "in upper case"),
    "lower": Signature((TEXTS,), 1, 1, "text", str.lower, "lower('a')", "in lower case"),
    "trim": Signature((TEXTS,), 1, 1, "text", trim, "trim('a')", "without spaces at its ends"),
    "replace": Signature((TEXTS, TEXTS, TEXTS), 3, 3, "text", str.replace, """replace('a', "old", "new")""", "every old replaced"),
    "number": Signature((NUMBER_OR_TEXT, TEXTS), 1, 2, "number", None, """number('a', "de")""", "a number, as in a language"),
    "date": Signature((DATES, TEXTS), 1, 2, "date", None, """date('a', "%d.%m.%Y")""", "a date in a strptime format"),
    "if": Signature((BOOLEANS, ANYTHING, ANYTHING), 2, 3, "text", None, """if('a' = "x", "yes", "no")""", "one of two values"),
    "default": Signature((ANYTHING, ANYTHING), 2, 2, "text", None, """default('a', "none")""", "another value for null or absent"),
}
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FUNCTIONS: Mapping[str, Signature] = {
    **NAMED,
    "+": Signature((NUMBERS, NUMBERS), 2, 2, "number", _arithmetic(operator.add)),
    "-": Signature((NUMBERS, NUMBERS), 2, 2, "number", _arithmetic(operator.sub)),
    "*": Signature((NUMBERS, NUMBERS), 2, 2, "number", _arithmetic(operator.mul)),
    "/": Signature((NUMBERS, NUMBERS), 2, 2, "number", _arithmetic(_divide)),
    "plus": Signature((NUMBERS,), 1, 1, "number", _arithmetic(lambda operand: operand)),
    "minus": Signature((NUMBERS,), 1, 1, "number", _arithmetic(operator.neg)),
    **{sign: Signature((ANYTHING, ANYTHING), 2, 2, "bool") for sign in COMPARE},
    **{word: Signature((BOOLEANS,), 2, 1_000, "bool") for word in ("and", "or")},
    "not": Signature((BOOLEANS,), 1, 1, "bool"),
}


# Types ----------------------------------------------------------------------------------------------------------------------------


def type_of(expression: MapperExpression, text: str) -> ValueType:
    """The type of an expression.  Raises ServiceError `invalid_mapper` at the first part of `text` with a wrong type."""
    match expression:
        case SourcePath():
            return "source"
        case LiteralValue(value=value):
            kinds: dict[type, ValueType] = {str: "text", bool: "bool", Decimal: "number"}
            return "null" if value is None else kinds[type(value)]
    function = FUNCTIONS.get(expression.name)
    if function is None:
        raise mapper_error(text, expression.at, f"unknown function {expression.name}, expected one of {', '.join(NAMED)}")
    given = len(expression.arguments)
    if not function.least <= given <= function.most:
        expected = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
        plural = "" if function.most == 1 else "s"
        raise mapper_error(text, expression.at, f"{expression.name}: expected {expected} argument{plural}, got {given}")
    types = [type_of(argument, text) for argument in expression.arguments]
    for number, (argument, found) in enumerate(zip(expression.arguments, types, strict=True)):
        takes = function.takes[min(number, len(function.takes) - 1)]
        if found not in takes:
            raise mapper_error(text, argument.at, f"{expression.name}: expected {_type_names(takes)}, got a {found}")
    return _result(expression, types, text)


def _result(call: FunctionCall, types: list[ValueType], text: str) -> ValueType:
    match call.name:
        case "if":
            return _common_type(call, types[1], types[2] if len(types) > 2 else "null", text)
        case "default":
            return _common_type(call, types[0], types[1], text)
        case name if name in COMPARE:
            _common_type(call, types[0], types[1], text)
        case "number" if len(types) > 1:
            tag = _constant(call, 'a language in "double quotes"', text)
            try:
                Locale.of(tag)
            except ValueError as error:
                raise mapper_error(text, call.arguments[1].at, f"number: {error}") from None
        case "date" if len(types) > 1:
            pattern = _constant(call, 'a strptime format in "double quotes"', text)
            if not _has_year(pattern):
                message = "date: expected a strptime format with the year, such as %d.%m.%Y, and with each directive once"
                raise mapper_error(text, call.arguments[1].at, message)
            return "timestamp" if any(directive in pattern for directive in TIME_DIRECTIVES) else "date"
    return FUNCTIONS[call.name].gives


def _has_year(pattern: str) -> bool:
    sample = datetime(2004, 1, 1, tzinfo=UTC)
    with contextlib.suppress(InvalidValue, ValueError):
        return parse_date(sample.strftime(pattern), pattern).year == sample.year
    return False


def _common_type(call: FunctionCall, one: ValueType, other: ValueType, text: str) -> ValueType:
    """The type that two arguments have in common.  Raises ServiceError `invalid_mapper`."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if "source" in (one, other):
        return "source"
    if {one, other} == {"date", "timestamp"}:
        return "timestamp"
    message = f"{call.name}: expected a {one} like the other argument, got a {other}"
    raise mapper_error(text, call.arguments[-1].at, message)


def _constant(call: FunctionCall, expected: str, text: str) -> str:
    """The second argument, which must be a text.  Raises ServiceError `invalid_mapper`."""
    argument = call.arguments[1]
    if not isinstance(argument, LiteralValue) or not isinstance(argument.value, str):
        raise mapper_error(text, argument.at, f"{call.name}: expected {expected}")
    return argument.value


def _type_names(types: frozenset[ValueType]) -> str:
    return " or ".join(sorted(types - {"source", "null"}))


# Conversions ----------------------------------------------------------------------------------------------------------------------


class ValueReader:
    """Converts values of the source, by the notation of a locale if there is one.  Its methods raise InvalidValue."""

    def __init__(self, locale: Locale | None) -> None:
        self.locale = locale

    def number(self, value: Any) -> Any:
        """Return a Decimal."""
        match value:
            case Decimal():
                return value
            case bool():
                raise InvalidValue(f"expected a number, got {str(value).lower()}")
            case int():
                return Decimal(value)
            case float():
                return Decimal(str(value))
        if not isinstance(value, str):  # a date or time of a workbook
            raise InvalidValue(f"expected a number, got {quoted(to_text(value))}")
        return self.locale.number(value) if self.locale else parse_number(value)

    def number_or_plain(self, value: Any) -> Any:
        """Return a Decimal, read by the locale or else with a decimal point."""
        if self.locale and isinstance(value, str):
            with contextlib.suppress(InvalidValue):
                return self.locale.number(value)
            with contextlib.suppress(InvalidValue):
                return parse_number(value)
        return self.number(value)

    def plain_or_number(self, value: Any) -> Any:
        """Return a Decimal, read with a decimal point or else by the locale."""
        if isinstance(value, str):
            with contextlib.suppress(InvalidValue):
                return parse_number(value)
        return self.number(value)

    def date(self, value: Any) -> Any:
        """Return a date."""
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if not isinstance(value, str):
            raise InvalidValue(f"expected a date, got {quoted(value)}")
        return self.locale.date(value) if self.locale else parse_iso_date(value)

    def timestamp(self, value: Any) -> Any:
        """Return a datetime."""
        if isinstance(value, datetime):
            return value
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        if not isinstance(value, str):
            raise InvalidValue(f"expected a date and time, got {quoted(value)}")
        if self.locale:
            return self.locale.timestamp(value)
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidValue(f"expected a date and time such as 2026-11-20T08:15:00Z, got {quoted(value)}") from None

    def boolean(self, value: Any) -> bool:
        """Return True for true, False for false."""
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in ("true", "false"):
            raise InvalidValue(f"expected true or false, got {quoted(value)}")
        return word == "true"


def in_utc(moment: datetime) -> datetime:
    """A moment in UTC, without its zone; one without a zone is in UTC.  Raises InvalidValue outside the years 1 to 9999."""
    try:
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except OverflowError:
        raise InvalidValue(f"expected a time of the years 1 to 9999 in UTC, got {quoted(moment.isoformat())}") from None


def to_text(value: Any) -> str:
    """Convert a value to its text in the import document."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            return format(value, "f")
        case datetime():
            return in_utc(value).replace(tzinfo=UTC).isoformat()
        case date():
            return value.isoformat()
    return str(value)
