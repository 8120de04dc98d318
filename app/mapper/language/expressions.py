"""Turns expressions into functions of one source element, and a block's rules into the members of its records."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from app.mapper.language.functions import ABSENT, COMPARE, FUNCTIONS, NUMBERS, Signature, ValueReader, in_utc, to_text, type_of
from app.mapper.language.locales import Locale, parse_date
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import FunctionCall, LiteralValue, Mapper, MapperExpression, Rule, SourcePath
from app.types import named

Getter = Callable[[Any], Any]  # an element of the source -> a value, None, or ABSENT; raises InvalidValue
Condition = Callable[[Any], bool]
INVALID = "@invalid"  # {"@invalid": message} replaces a value that could not be read
CODE = "@code"  # beside it: the code of the error, if it is another one than of the member
WHERE = "@where"
NO_CONDITION = {INVALID: "expected a condition, got null", CODE: "required"}  # else it would be one of all rows


class Evaluator:
    """Makes getters for the expressions of one mapper; `path_getter` makes the getter of a path."""

    def __init__(self, mapper: Mapper, path_getter: Callable[[str], Getter]) -> None:
        self._text = mapper.text
        self._path_getter = path_getter
        self._locale = Locale.of(mapper.language) if mapper.language else None
        self._reader = ValueReader(self._locale)

    def members(self, rules: tuple[Rule, ...]) -> tuple[tuple[str, Getter], ...]:
        """The record's members with the getters of their values, as the document holds them."""
        return tuple((rule.name, self.rule(rule)) for rule in rules)

    def rule(self, rule: Rule) -> Getter:
        get = self.expression(rule.expression)
        if rule.kind is not None:
            return _lookup(get, rule.kind)
        if rule.name == WHERE:
            return _required(get)
        return self._converted(get, rule)

    def condition(self, expression: MapperExpression | None) -> Condition | None:
        """The condition of a block; null and absent count as false.  Raises InvalidValue where it cannot be evaluated."""
        return None if expression is None else self._condition(self.expression(expression))

    def expression(self, expression: MapperExpression) -> Getter:
        match expression:
            case SourcePath(text=text):
                return self._path_getter(text)
            case LiteralValue(value=value):
                return lambda element: value
        return self._call(expression)

    def _converted(self, get: Getter, rule: Rule) -> Getter:
        """Reads the value as the type of its field, by the mapper's locale if it has one, and formats it for the document."""
        found = type_of(rule.expression, self._text)
        if found == "null":
            return get
        wanted = named(rule.field.type if rule.field is not None and rule.name != "id" else "text")
        if wanted.kind in ("date", "timestamp") and (self._locale or found in ("date", "timestamp")):
            read = self._reader.date if wanted.kind == "date" else self._reader.timestamp
            return _applied(get, lambda value: to_text(read(value)))
        if wanted.is_number and (self._locale or found == "number"):
            number = self._text_reader(rule.expression) if found == "text" else self._reader.number
            return _applied(get, lambda value: to_text(number(value)))
        if found in ("number", "date", "timestamp"):
            return _applied(get, to_text)
        return get

    # Calls.

    def _call(self, call: FunctionCall) -> Getter:
        name, arguments = call.name, [self.expression(argument) for argument in call.arguments]
        if FUNCTIONS[name].work is not None:
            return self._work(FUNCTIONS[name], arguments)
        if name in COMPARE:
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
            case "not":
                condition = self._condition(arguments[0])
                return lambda element: not condition(element)
            case _:  # and, or
                return _junction([self._condition(argument) for argument in arguments], name == "or")

    def _work(self, function: Signature, arguments: list[Getter]) -> Getter:
        """Converts the arguments and calls the function; gives null or ABSENT if an argument is."""
        work, takes = function.work, function.takes
        assert work is not None
        kinds = [takes[min(number, len(takes) - 1)] for number in range(len(arguments))]
        converters = [self._reader.number if kind == NUMBERS else to_text for kind in kinds]
        if len(arguments) == 1:
            convert = converters[0]
            return _applied(arguments[0], lambda value: work(convert(value)))

        def get(element: Any) -> Any:
            values, has_null = [argument(element) for argument in arguments], False
            for value in values:
                if value is ABSENT:
                    return ABSENT
                has_null = has_null or value is None
            return None if has_null else work(*map(operator.call, converters, values))

        return get

    def _text_reader(self, expression: MapperExpression) -> Callable[[Any], Any]:
        """The reader of a number in a text: it may have a decimal point whatever the locale, and first if a function wrote that."""
        return self._reader.plain_or_number if self._writes_point(expression) else self._reader.number_or_plain

    def _writes_point(self, expression: MapperExpression) -> bool:
        """Whether a function puts a point, or a number that it was given, into a text of the source."""
        match expression:
            case FunctionCall(name="concat" | "upper" | "lower" | "trim", arguments=parts):
                return any(self._has_point(part) for part in parts)
            case FunctionCall(name="replace", arguments=(whole, _, new)):
                return self._has_point(whole) or self._has_point(new)
            case FunctionCall(name="default", arguments=choices) | FunctionCall(name="if", arguments=(_, *choices)):
                return any(self._writes_point(choice) for choice in choices)
        return False

    def _has_point(self, part: MapperExpression) -> bool:
        if isinstance(part, LiteralValue):
            return "." in str(part.value)
        return type_of(part, self._text) == "number" or self._writes_point(part)

    def _number_reader(self, call: FunctionCall) -> Callable[[Any], Any]:
        if len(call.arguments) < 2:
            return self._text_reader(call.arguments[0])
        tag = call.arguments[1]
        assert isinstance(tag, LiteralValue)
        return ValueReader(Locale.of(str(tag.value))).number

    def _date_reader(self, call: FunctionCall) -> Callable[[Any], Any]:
        if len(call.arguments) < 2:
            return self._reader.date
        constant = call.arguments[1]
        assert isinstance(constant, LiteralValue)
        pattern = str(constant.value)
        typed = self._reader.timestamp if type_of(call, self._text) == "timestamp" else self._reader.date

        def read(value: Any) -> Any:
            return typed(value if isinstance(value, date) else parse_date(to_text(value), pattern))

        return read

    def _condition(self, get: Getter) -> Callable[[Any], bool]:
        boolean = self._reader.boolean

        def condition(element: Any) -> bool:
            value = get(element)
            return value is not None and value is not ABSENT and boolean(value)

        return condition

    def _comparison(self, call: FunctionCall, left: Getter, right: Getter) -> Getter:
        """Compares two values.  Null equals only null, absent counts as null, and nothing is less or greater than null."""
        compare, sign, convert = COMPARE[call.name], call.name, self._comparable(call)
        number = self._reader.number if convert is to_text and self._may_be_numbers(call) else None

        def get(element: Any) -> bool:
            one, other = left(element), right(element)
            if one is None or one is ABSENT or other is None or other is ABSENT:
                both = (one is None or one is ABSENT) and (other is None or other is ABSENT)
                return both if sign == "=" else not both if sign == "!=" else False
            if number is not None and _is_number(one) and _is_number(other):
                return compare(number(one), number(other))
            return compare(convert(one), convert(other))

        return get

    def _may_be_numbers(self, call: FunctionCall) -> bool:
        """Whether both sides have the types of the source's values; booleans and dates compare as their texts do."""
        return all(type_of(argument, self._text) == "source" for argument in call.arguments)

    def _comparable(self, call: FunctionCall) -> Callable[[Any], Any]:
        """The conversion of both sides, to the more specific type of the two."""
        types = {type_of(argument, self._text) for argument in call.arguments}
        if "number" in types:
            return self._reader.number_or_plain
        if "timestamp" in types:
            return lambda value: in_utc(self._reader.timestamp(value))
        if "date" in types:
            return self._reader.date
        return self._reader.boolean if "bool" in types else to_text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def record_of(members: tuple[tuple[str, Getter], ...], element: Any) -> dict[str, Any]:
    """Make a record of an element; members that the source does not contain are left out."""
    record: dict[str, Any] = {}
    for name, get in members:
        try:
            value = get(element)
        except InvalidValue as error:
            value = {INVALID: str(error)}
        if value is not ABSENT:
            # one notation for a number, here and in lookups and texts that contain it
            record[name] = to_text(value) if type(value) is Decimal else value
    return record


def _required(get: Getter) -> Getter:
    """Replaces a condition that is null or absent by its error."""

    def condition(element: Any) -> Any:
        value = get(element)
        return NO_CONDITION if value is None or value is ABSENT else value

    return condition


def _applied(get: Getter, work: Callable[[Any], Any]) -> Getter:
    """Applies `work` to a value that is neither null nor ABSENT."""

    def applied(element: Any) -> Any:
        value = get(element)
        return value if value is None or value is ABSENT else work(value)

    return applied


def _lookup(get: Getter, kind: str) -> Getter:
    prefix = kind + ":"

    def lookup(element: Any) -> Any:
        value = get(element)
        if type(value) is str:
            return prefix + value
        return value if value is None or value is ABSENT else prefix + to_text(value)

    return lookup


def _concat(call: FunctionCall, arguments: list[Getter]) -> Getter:
    """Joins texts.  Null and absent parts are empty; if all parts that are not literals are null or absent, so is the result."""
    fixed = [isinstance(argument, LiteralValue) for argument in call.arguments]

    def concat(element: Any) -> Any:
        values = [argument(element) for argument in arguments]
        given = [value for value, is_fixed in zip(values, fixed, strict=True) if not is_fixed] or values
        if all(value is None or value is ABSENT for value in given):
            return ABSENT if all(value is ABSENT for value in given) else None
        return "".join([to_text(value) for value in values if value is not None and value is not ABSENT])

    return concat


def _choice(condition: Callable[[Any], bool], then: Getter, otherwise: Getter | None = None) -> Getter:
    if otherwise is None:
        return lambda element: then(element) if condition(element) else ABSENT
    other = otherwise
    return lambda element: then(element) if condition(element) else other(element)


def _junction(conditions: list[Callable[[Any], bool]], decisive: bool) -> Getter:
    """`or` (decisive: True) and `and` (decisive: False): the first condition with the decisive result ends the evaluation."""

    def get(element: Any) -> bool:
        return any(condition(element) is decisive for condition in conditions) is decisive

    return get
