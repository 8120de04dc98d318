"""Rewrites conditions into forms that an index on the bare column serves, with the same result for every row.

contains, endswith of a constant      LIKE with an escaped pattern, served by a trigram index
year, date, startOf..., endOf...      a range: year(x) eq 2026 becomes x ge 2026-01-01 and x lt 2027-01-01

All other conditions stay as they are: on years outside 1 to 9998, or on an argument that is not a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

from app.query.check.functions import FIRST_MOMENT, LAST_MOMENT, PATTERNS
from app.query.check.tree import Call, Column, Comparison, Constant, Expression, Junction
from app.query.parse.nodes import FLIPPED, Comparator

PATTERN = {"contains": "%{}%", "endswith": "%{}"}

UNITS = {"year": "Year", "date": "Day", "cast": "Day"}  # to which a function truncates a time
PARTS = {"Year": 1, "Month": 2, "Day": 3, "Hour": 4}  # parts of a time that remain
LONGEST = {"Year": timedelta(366), "Month": timedelta(31), "Day": timedelta(1), "Hour": timedelta(hours=1)}  # length of a unit

READ: dict[str, Callable[[str], datetime]] = {
    "int8": lambda year: datetime(int(year), 1, 1),
    "date": datetime.fromisoformat,
    "timestamptz": lambda moment: datetime.fromisoformat(moment).replace(tzinfo=None),
}


def indexable(node: Expression) -> Expression:
    """Return an equivalent expression that an index serves, or the node itself."""
    match node:
        case Call(function=function, arguments=(text, Constant(type="text", value=str(value)))) if function.name in PATTERN:
            escaped = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            pattern = Constant(node.arguments[1].at, "text", PATTERN[function.name].format(escaped))
            return replace(node, function=PATTERNS["like"], arguments=(text, pattern))
        case Comparison(left=Constant(), right=Call()):
            return _range(replace(node, operator=FLIPPED[node.operator], left=node.right, right=node.left)) or node
        case Comparison(left=Call(), right=Constant()):
            return _range(node) or node
    return node


def _range(node: Comparison) -> Expression | None:
    """Turn a comparison of a function's result with a constant into a range of the function's argument; None if impossible."""
    call, constant = cast(Call, node.left), cast(Constant, node.right)
    if node.operator == "ne" or not node.null_is_value or len(call.arguments) != 1 or constant.value is None:
        return None
    column, name = call.arguments[0], call.function.name
    unit = UNITS.get(name) or name.removeprefix("startOf").removeprefix("endOf")
    wanted = "int8" if name == "year" else call.type
    if not isinstance(column, Column) or column.type not in ("date", "timestamptz") or unit not in PARTS or constant.type != wanted:
        return None
    if name in ("date", "cast") and (column.type, call.type) != ("timestamptz", "date"):
        return None
    try:
        low, high = _bounds(name, unit, READ[wanted](constant.value), timedelta(1) if wanted == "date" else timedelta.resolution)
    except (ValueError, OverflowError):  # outside Python's years 1 to 9999
        return None
    tests = [
        replace(node, operator=operator, left=column, right=Constant(constant.at, column.type, value))
        for operator, value in _tests(node.operator, _written(column, low), _written(column, high), name in UNITS)
    ]
    return tests[0] if len(tests) == 1 else Junction(node.at, "bool", "and", tuple(tests))


def _bounds(name: str, unit: str, constant: datetime, tick: timedelta) -> tuple[datetime, datetime]:
    """The first time for which the function's result is at least the constant, and the first for which it is greater."""
    start = _cut(unit, constant)
    if name.startswith("endOf"):  # one tick before the next unit
        return start, _cut(unit, constant + tick)
    following = _cut(unit, start + LONGEST[unit])
    return start if start == constant else following, following


def _cut(unit: str, moment: datetime) -> datetime:
    """The start of the unit that contains the moment."""
    return datetime(*(*moment.timetuple()[: PARTS[unit]], 1, 1)[: max(PARTS[unit], 3)])  # type: ignore[arg-type]


def _tests(operator: str, low: str, high: str, endless: bool) -> Iterator[tuple[Comparator, str]]:
    """Yield the comparisons that make up the range.

    Unless `endless`, the function gives null outside FIRST_MOMENT to LAST_MOMENT, so the range ends there too.
    """
    if operator in ("eq", "ge", "gt"):
        yield "ge", high if operator == "gt" else low
    elif not endless:
        yield "ge", FIRST_MOMENT
    if operator in ("eq", "le", "lt"):
        yield "lt", low if operator == "lt" else high
    elif not endless:
        yield "le", LAST_MOMENT


def _written(column: Column, moment: datetime) -> str:
    """A bound in PostgreSQL's notation."""
    return moment.date().isoformat() if column.type == "date" else f"{moment.isoformat(sep=' ')}+00:00"
