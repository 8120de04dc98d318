"""Compiles expressions to functions of one element of the source, and a block's rules to what makes a record of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from app.mapper.language.functions import ABSENT, COMPARE, COMPARISONS, FUNCTIONS, TEXT_WORK, Reading, calculate, to_text, type_of
from app.mapper.language.locales import Language, formatted_date
from app.mapper.language.problems import Wrong
from app.mapper.language.tree import Call, Constant, Expression, Mapper, Path, Rule

Get = Callable[[Any], Any]  # an element of the source -> a value, None, or ABSENT; raises Wrong
NUMERIC = frozenset(("int2", "int4", "int8", "numeric", "float8"))
INVALID = "@invalid"  # {"@invalid": message} stands where a value could not be read


class Compiler:
    """Compiles for one mapper; `get` makes the getter of a path."""

    def __init__(self, mapper: Mapper, get: Callable[[str], Get]) -> None:
        self._text = mapper.text
        self._get = get
        self._language = Language.of(mapper.language) if mapper.language else None
        self._reading = Reading(self._language)

    def members(self, rules: tuple[Rule, ...]) -> tuple[tuple[str, Get], ...]:
        """For each rule the record's member and what gives its value, ready for the document."""
        return tuple((rule.name, self.rule(rule)) for rule in rules)

    def rule(self, rule: Rule) -> Get:
        get = self.expression(rule.expression)
        if rule.kind is not None:
            return _lookup(get, rule.kind)
        return self._typed(get, rule)

    def expression(self, expression: Expression) -> Get:
        match expression:
            case Path(text=text):
                return self._get(text)
            case Constant(value=value):
                return lambda element: value
        return self._call(expression)

    # The place that a value goes to.

    def _typed(self, get: Get, rule: Rule) -> Get:
        """As the field is read by the mapper's language, if it has one, and written in the document."""
        found = type_of(rule.expression, self._text)
        if found == "null":
            return get
        wanted = rule.field.type if rule.field is not None and rule.name != "id" else "text"
        if wanted in ("date", "timestamptz") and (self._language or found in ("date", "timestamp")):
            read = self._reading.date if wanted == "date" else self._reading.timestamp
            return _applied(get, lambda value: to_text(read(value)))
        if wanted in NUMERIC and (self._language or found == "number"):
            number = self._reading.number_or_plain if found == "text" else self._reading.number  # a text may be made up
            return _applied(get, lambda value: to_text(number(value)))
        if found in ("number", "date", "timestamp"):
            return _applied(get, to_text)
        return get

    # Calls.

    def _call(self, call: Call) -> Get:
        name, arguments = call.name, [self.expression(argument) for argument in call.arguments]
        if name in TEXT_WORK:
            return self._text_work(TEXT_WORK[name], arguments)
        if name in COMPARISONS:
            return self._comparison(call, *arguments)
        match name:
            case "concat":
                return _concat(call, arguments)
            case "number":
                return _applied(arguments[0], self._number_reader(call))
            case "date":
                return _applied(arguments[0], self._date_reader(call))
            case "if":
                return _choice(self._condition(arguments[0]), *arguments[1:])
            case "default":
                first, other = arguments
                return lambda element: other(element) if (value := first(element)) is None or value is ABSENT else value
            case "and" | "or":
                return _junction([self._condition(argument) for argument in arguments], name == "or")
            case "not":
                condition = self._condition(arguments[0])
                return lambda element: not condition(element)
        return self._arithmetic(name, arguments)

    def _text_work(self, work: Callable[..., Any], arguments: list[Get]) -> Get:
        def get(element: Any) -> Any:
            values = [argument(element) for argument in arguments]
            missing = _missing(values)
            return missing if missing is not True else work(*map(to_text, values))

        return get

    def _arithmetic(self, sign: str, arguments: list[Get]) -> Get:
        number = self._reading.number

        def get(element: Any) -> Any:
            values = [argument(element) for argument in arguments]
            missing = _missing(values)
            return missing if missing is not True else calculate(sign, *map(number, values))

        assert FUNCTIONS[sign].gives == "number"
        return get

    def _number_reader(self, call: Call) -> Callable[[Any], Any]:
        if len(call.arguments) < 2:
            return self._reading.number_or_plain
        tag = call.arguments[1]
        assert isinstance(tag, Constant)
        return Reading(Language.of(str(tag.value))).number

    def _date_reader(self, call: Call) -> Callable[[Any], Any]:
        if len(call.arguments) < 2:
            return self._reading.date
        constant = call.arguments[1]
        assert isinstance(constant, Constant)
        pattern, gives = str(constant.value), type_of(call, self._text)

        def read(value: Any) -> Any:
            moment = value if isinstance(value, datetime) else formatted_date(to_text(value), pattern)
            return moment if gives == "timestamp" else moment.date()

        return read

    def _condition(self, get: Get) -> Callable[[Any], bool]:
        truth = self._reading.truth

        def condition(element: Any) -> bool:
            value = get(element)
            return value is not None and value is not ABSENT and truth(value)

        return condition

    def _comparison(self, call: Call, left: Get, right: Get) -> Get:
        """Null equals null alone, and what is absent is null; nothing is less or greater than null."""
        compare, sign, convert = COMPARE[call.name], call.name, self._comparable(call)

        def get(element: Any) -> bool:
            one, other = left(element), right(element)
            if one is None or one is ABSENT or other is None or other is ABSENT:
                both = (one is None or one is ABSENT) and (other is None or other is ABSENT)
                return both if sign == "=" else not both if sign == "!=" else False
            return compare(convert(one), convert(other))

        return get

    def _comparable(self, call: Call) -> Callable[[Any], Any]:
        """Reads both sides as what the more definite one of them is."""
        types = {type_of(argument, self._text) for argument in call.arguments}
        if "number" in types:
            return self._reading.number_or_plain
        if "timestamp" in types:
            return lambda value: self._reading.timestamp(value).replace(tzinfo=None)
        if "date" in types:
            return self._reading.date
        return self._reading.truth if "bool" in types else to_text


def record_of(members: tuple[tuple[str, Get], ...], element: Any) -> dict[str, Any]:
    """The members that the source has for a record."""
    record: dict[str, Any] = {}
    for name, get in members:
        try:
            value = get(element)
        except Wrong as error:
            value = {INVALID: str(error)}
        if value is not ABSENT:
            record[name] = value
    return record


def _missing(values: list[Any]) -> Any:
    """True if nothing is missing; else what is: null or ABSENT."""
    if any(value is ABSENT for value in values):
        return ABSENT
    return None if any(value is None for value in values) else True


def _applied(get: Get, work: Callable[[Any], Any]) -> Get:
    """A function of a value that is there."""

    def applied(element: Any) -> Any:
        value = get(element)
        return value if value is None or value is ABSENT else work(value)

    return applied


def _lookup(get: Get, kind: str) -> Get:
    prefix = kind + ":"

    def lookup(element: Any) -> Any:
        value = get(element)
        if type(value) is str:
            return prefix + value
        return value if value is None or value is ABSENT else prefix + to_text(value)

    return lookup


def _concat(call: Call, arguments: list[Get]) -> Get:
    """Missing parts are empty; without any part that the source has there is nothing."""
    fixed = [isinstance(argument, Constant) for argument in call.arguments]

    def concat(element: Any) -> Any:
        values = [argument(element) for argument in arguments]
        given = [value for value, is_fixed in zip(values, fixed, strict=True) if not is_fixed] or values
        if all(value is None or value is ABSENT for value in given):
            return ABSENT if all(value is ABSENT for value in given) else None
        return "".join([to_text(value) for value in values if value is not None and value is not ABSENT])

    return concat


def _choice(condition: Callable[[Any], bool], then: Get, otherwise: Get | None = None) -> Get:
    if otherwise is None:
        return lambda element: then(element) if condition(element) else ABSENT
    other = otherwise
    return lambda element: then(element) if condition(element) else other(element)


def _junction(conditions: list[Callable[[Any], bool]], wanted: bool) -> Get:
    def get(element: Any) -> bool:
        return any(condition(element) is wanted for condition in conditions) is wanted

    return get
