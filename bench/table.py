"""Results, and the one table that they make.

A machine is never quiet, so ours and its floor are measured in turns, and what counts is the ratio: the median of the rounds'
ratios, 1.0 where ours is as fast as its floor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

HEADER = ("measure", "ours", "floor", "ratio", "note")


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table.  ours and floor are in `unit`; a measure without a floor has a target in its note."""

    measure: str
    unit: str
    ours: float
    floor: float | None = None
    ratio: float | None = None
    note: str = ""


def rate(measure: str, unit: str, amount: float, ours: Sequence[float], floor: Sequence[float], note: str = "") -> Result:
    """Of rounds that took so many seconds for the same amount."""
    ratio = median(f / o for o, f in zip(ours, floor, strict=True))
    return Result(measure, unit, amount / median(ours), amount / median(floor), ratio, note)


def rates(measure: str, unit: str, ours: Sequence[float], floor: Sequence[float], note: str = "") -> Result:
    """Of rounds that were measured as rates already."""
    ratio = median(o / f for o, f in zip(ours, floor, strict=True))
    return Result(measure, unit, median(ours), median(floor), ratio, note)


def timed(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[float, T]:
    """How many seconds the work takes, and what it returns."""
    started = time.perf_counter()
    result = work(*arguments, **named)
    return time.perf_counter() - started, result


def say(text: str) -> None:
    """What is going on, on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def describe(result: Result) -> str:
    """A result in words, as soon as it is there."""
    ratio = f", {_ratio(result.ratio)} of its floor" if result.ratio else ""
    return f"{result.measure}: {_number(result.ours, result.unit)}{ratio}"


def print_table(results: Sequence[Result]) -> None:
    """Columns that line up, numbers to the right."""
    lines = [HEADER] + [(r.measure, _number(r.ours, r.unit), _number(r.floor, r.unit), _ratio(r.ratio), r.note) for r in results]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEADER))]
    for measure, *numbers, note in lines:
        cells = [measure.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=False)), note]
        print("  ".join(cells).rstrip())


def print_json(results: Sequence[Result]) -> None:
    """The same for a program."""
    print(json.dumps([asdict(r) for r in results], indent=2))


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.{0 if value >= 100 else 1}f} {unit}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
