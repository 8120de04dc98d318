"""Prints a condition as the $filter of OData that matches the same rows.

In the filter of /c a comparison with null is unknown, as in SQL; OData's are true or false.  So `not` is carried down to the tests,
and a test of OData that null would pass gets `and ... ne null`:

    not (price > 5 or name like 'A%')  ->  price le 5 and not startswith(name,'A')
    barcode != 'x'                     ->  barcode ne 'x' and barcode ne null
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from app.query.check.functions import PATTERNS, SHOWN
from app.query.check.tree import Call, Column, Comparison, Constant, Expression, IsNull, Junction, Membership, Not, Type
from app.query.parse.nodes import Comparator
from app.query.parse.where import quoted
from app.types import LAST_TIME

INVERSE: dict[str, Comparator] = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


class Unprintable(Exception):
    """OData, as this service has it, has no such condition.

    A pattern with `_`, or with text between two `%` and more; intervals, and the end of a day, of which it shows other values.
    """


def filter_text(condition: Expression) -> str:
    """The condition as text of $filter.  Raises Unprintable."""
    return _print(condition, True)


def _print(node: Expression, wanted: bool) -> str:
    """The condition that the node is true, or false; every operand of `and` and `or` that is one of these has parentheses."""
    match node:
        case Junction(operator=operator, operands=operands):
            return _join(operator if wanted else {"and": "or", "or": "and"}[operator], [_print(each, wanted) for each in operands])
        case Not(operand=operand):
            return _print(operand, not wanted)
        case IsNull(operand=operand):
            return f"{_value(operand)} {'eq' if wanted else 'ne'} null"
        case Constant(value=None):
            return "false"  # unknown is neither true nor false
        case Constant(type="bool", value=str(value)):
            return "true" if (value == "true") is wanted else "false"
        case Comparison():
            return _comparison(node, wanted)
        case Membership(operand=operand, values=values, value_type=type):
            found = f"{_value(operand)} in ({','.join(_literal(type, value) for value in values)})"
            return found if wanted else _known(f"not ({found})", operand, node.null_is_value)
        case Call(function=function, arguments=(text, Constant(type="text", value=str(pattern)))) if function in PATTERNS.values():
            return _pattern(text, pattern, function is PATTERNS["ilike"], wanted)
        case Call() | Column():
            return _value(node) if wanted else f"not {_value(node)}"
    raise Unprintable


def _join(operator: str, parts: Sequence[str]) -> str:
    if operator == "and":  # without the `and ... ne null` that another part has already
        parts = [part for part in parts if not any(other.endswith(f" and {part}") for other in parts)]
    if len(parts) == 1:
        return parts[0]
    return f" {operator} ".join(f"({part})" if _is_junction(part) else part for part in parts)


def _is_junction(text: str) -> bool:
    """Whether a text has `and` or `or` outside of parentheses and quotes."""
    outside, depth = [], 0
    for number, part in enumerate(text.split("'")):
        if number % 2 == 0:
            for character in part:
                depth += {"(": 1, ")": -1}.get(character, 0)
                if not depth:
                    outside.append(character)
    return bool({"and", "or"} & set("".join(outside).split()))


def _comparison(node: Comparison, wanted: bool) -> str:
    left, right = _value(node.left), _value(node.right)
    if node.null_is_value and node.operator not in ("eq", "ne"):
        found = f"{left} {node.operator} {right}"
        return found if wanted else f"not ({found})"
    operator = node.operator if wanted else INVERSE[node.operator]
    return _known(f"{left} {operator} {right}", node.left, node.null_is_value or operator != "ne")


def _known(test: str, operand: Expression, is_done: bool) -> str:
    """The test, and that the operand is not null where null would pass."""
    return test if is_done or not operand.nullable else _join("and", [test, f"{_value(operand)} ne null"])


def _pattern(text: Expression, pattern: str, ignore_case: bool, wanted: bool) -> str:
    """A pattern of LIKE in functions of OData."""
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            parts.append("")
        elif character == "_":
            raise Unprintable
        else:
            parts[-1] += next(characters) if character == "\\" else character
    value = f"tolower({_value(text)})" if ignore_case else _value(text)
    first, *between, last = (parts[0], *parts)[-max(len(parts), 2) :]
    if len(parts) == 1:
        return _known(f"{value} {'eq' if wanted else 'ne'} {_text(first, ignore_case)}", text, wanted)
    inside = [part for part in between if part]
    if inside and (first or last or len(inside) > 1):
        raise Unprintable
    calls = [("contains", each) for each in inside]
    calls += [("startswith", first)] if first else []
    calls += [("endswith", last)] if last else []
    if not calls:
        return f"{_value(text)} ne null" if wanted else "false"
    tests = [f"{'' if wanted else 'not '}{name}({value},{_text(part, ignore_case)})" for name, part in calls]
    if len(calls) > 1:  # they may not overlap
        tests.append(f"length({_value(text)}) {'ge' if wanted else 'lt'} {len(first + last)}")
    return _join("and", tests) if wanted else _known(_join("or", tests), text, False)


def _text(part: str, ignore_case: bool) -> str:
    return f"tolower({quoted(part)})" if ignore_case else quoted(part)


def _value(node: Expression) -> str:
    match node:
        case Column(row=0, field=field) if field.type != "interval":  # of which OData shows those with months as null
            return _name(node)
        case Constant(value=str(value), type=type):
            return _literal(type, value)
        case Call(function=function, arguments=(Column(row=0) as column,)) if function in SHOWN.values():
            return _name(column)
        case Call(function=function, arguments=arguments) if function.name.isalpha() and function not in PATTERNS.values():
            return f"{function.name}({','.join(map(_value, arguments))})"
    raise Unprintable


def _name(column: Column) -> str:
    return "/".join((*(step.name for step in column.path), column.field.name))


def _literal(type: Type, value: str) -> str:
    """A literal of OData; value: in PostgreSQL's notation."""
    if type == "text":
        return quoted(value)
    if type in ("timestamp", "timestamptz"):
        if value.endswith("BC") or value.index("-") > 4:
            raise Unprintable
        return value.replace(" ", "T")
    if type == "time" and value >= LAST_TIME:
        raise Unprintable
    if type == "interval":
        return f"duration'{value}'"
    if type == "bytea":
        return f"binary'{base64.urlsafe_b64encode(bytes.fromhex(value[2:])).decode()}'"
    return value
