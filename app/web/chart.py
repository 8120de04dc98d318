"""A chart of changes over time: bars in SVG, and the same figures for whoever reads them as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, log10

WIDTH, HEIGHT, GAP = 12, 100, 2  # units of a bar, of the drawing, between two bars; the page stretches them


@dataclass(frozen=True, slots=True)
class Span:
    """How far back a chart looks, in which steps."""

    name: str
    title: str
    step: str  # what one bar is
    count: int
    form: str  # of a bar's time, for people
    short: str  # of a time below the chart


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
    """What happened in one step of time."""

    since: datetime
    count: int
    label: str
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars as high as their counts, up to `top`."""

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
        """What the lines stand for, from the top."""
        return (self.top, self.top // 2, 0) if self.top > 1 else (self.top, 0)

    @property
    def ends(self) -> tuple[str, str, str]:
        """The times below the first bar, the middle one and the last."""
        bars = self.bars
        first, middle, last = (bar.since.strftime(self.span.short) for bar in (bars[0], bars[len(bars) // 2], bars[-1]))
        return first, middle, last


def bounds(span: Span, now: datetime) -> list[datetime]:
    """Where the steps of a chart that ends now begin, and behind them where the last one ends."""
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


def draw(span: Span, since: Sequence[datetime], counts: Sequence[int]) -> Chart:
    """The chart of the counts of the steps that begin at these times."""
    top = nice(max(counts, default=0))
    bars = []
    for number, (at, count) in enumerate(zip(since, counts, strict=True)):
        height = max(round(count / top * HEIGHT, 2), 1.5) if count else 0.0  # a single change among many can be seen
        bars.append(Bar(at, count, at.strftime(span.form), number * WIDTH + GAP // 2, round(HEIGHT - height, 2), height))
    return Chart(span, tuple(bars), top)


def nice(highest: int) -> int:
    """A round number that is not less, and even if it is more than 1, so that there is a line half way up."""
    if highest <= 2:
        return max(highest, 1)
    size: int = 10 ** int(log10(highest))
    for factor in (1, 2, 3, 4, 5, 6, 8, 10):
        top = ceil(factor * size)
        if top >= highest and top % 2 == 0:
            return top
    return highest + highest % 2
