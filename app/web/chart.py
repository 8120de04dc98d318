"""A bar chart of changes over time, for SVG and for a table with the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, log10

WIDTH, HEIGHT, GAP = 12, 100, 2  # of a bar with its gap, of the drawing, of a gap: in SVG units, scaled by the page


@dataclass(frozen=True, slots=True)
class Span:
    """The period of a chart and its steps."""

    name: str
    title: str
    step: str  # hour, day or month: one bar
    count: int  # bars
    bar_format: str  # of a bar's time, for strftime
    axis_format: str  # of a time below the chart


SPANS = {
    span.name: span
    for span in (
        Span("day", "24 hours", "hour", 24, "%Y-%m-%d %H:00", "%H:00"),
        Span("month", "30 days", "day", 30, "%Y-%m-%d", "%b %-d"),
        Span("year", "12 months", "month", 12, "%Y-%m", "%b %Y"),
    )
}


@dataclass(frozen=True, slots=True)
class Bar:
    """The changes of one step."""

    start: datetime
    count: int
    label: str
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars, and the count `top` that the full height stands for."""

    span: Span
    bars: tuple[Bar, ...]
    top: int

    @property
    def width(self) -> int:
        return len(self.bars) * WIDTH

    @property
    def bar_width(self) -> int:
        return WIDTH - GAP

    @property
    def total(self) -> int:
        return sum(bar.count for bar in self.bars)

    @property
    def ticks(self) -> tuple[int, ...]:
        """The counts of the grid lines, from the top."""
        return (self.top, self.top // 2, 0) if self.top > 1 else (self.top, 0)

    @property
    def axis_labels(self) -> tuple[str, str, str]:
        """The times below the first, the middle and the last bar."""
        bars = self.bars
        first, middle, last = (bar.start.strftime(self.span.axis_format) for bar in (bars[0], bars[len(bars) // 2], bars[-1]))
        return first, middle, last


def bounds(span: Span, now: datetime) -> list[datetime]:
    """Return the start of each step of a chart whose last step contains `now`, and the end of the last step."""
    now = now.astimezone(UTC)
    if span.step == "month":
        months = now.year * 12 + now.month - 1
        numbers = range(months - span.count + 1, months + 2)
        return [datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in numbers]
    if span.step == "day":
        end, step = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1), timedelta(days=1)
    else:
        end, step = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1), timedelta(hours=1)
    return [end - step * back for back in range(span.count, -1, -1)]


def draw(span: Span, starts: Sequence[datetime], counts: Sequence[int]) -> Chart:
    """Return the chart of the counts of the steps with these starts."""
    top = round_up(max(counts, default=0))
    bars = []
    for number, (start, count) in enumerate(zip(starts, counts, strict=True)):
        height = max(round(count / top * HEIGHT, 2), 1.5) if count else 0.0  # so that a single change among many is visible
        bars.append(
            Bar(start, count, start.strftime(span.bar_format), number * WIDTH + GAP // 2, round(HEIGHT - height, 2), height)
        )
    return Chart(span, tuple(bars), top)


def round_up(highest: int) -> int:
    """Return a round number not below `highest`; even if it is above 1, because a grid line stands at half of it."""
    if highest <= 2:
        return max(highest, 1)
    size: int = 10 ** int(log10(highest))
    for factor in (1, 2, 3, 4, 5, 6, 8, 10):
        top = ceil(factor * size)
        if top >= highest and top % 2 == 0:
            return top
    return highest + highest % 2
