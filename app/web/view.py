"""Rendering of templates: filters that format values, and the HTTP headers of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from aiohttp import web
from markupsafe import Markup, escape

from app.export.row_formats import shown_decimal
from app.types import exact_json
from app.web.files import asset, guide

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).resolve().parent

# Only scripts, styles and images of this service; no inline ones.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",  # pages must not be readable in the cache after signing out
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
BREAK_POINTS = re.compile(r"(?=[A-Z/.])")
DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
THOUSANDS = re.compile(r"(\d{3})(?=\d)", re.ASCII)
FIGURE_SPACE, POINT_SPACE = "\u2007", "\u2008"  # as wide as a digit, as a point
UNITS = ((60.0, "min"), (3600.0, "h"), (86_400.0, "day"), (30.4 * 86_400, "month"), (365.25 * 86_400, "year"))


def render(template: str, values: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a page made by a template."""
    body = environment().get_template(template).render(values)
    return web.Response(status=status, body=body.encode("utf-8", "replace"), headers={**HEADERS, **(headers or {})})


def timestamp(value: datetime | str | None, none: str = "never", suffix: str = "") -> Markup:
    """Format a time: in UTC to the second, the suffix, and the distance from now; None as `none`."""
    if value is None:
        return Markup("<span class=none>{}</span>").format(none)
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    at = at.astimezone(UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{}{} <span class="hint">{}</span></time>').format(
        at.isoformat().replace("+00:00", "Z"), at.isoformat(" ").removesuffix("+00:00"), shown, suffix, relative(at)
    )


def timestamp_utc(value: datetime | str | None) -> Markup:
    """Format a time for use in a sentence, with "UTC"."""
    return timestamp(value, suffix=" UTC,")


def minute(value: datetime | str) -> str:
    """Format a time to the minute, for headings: "2026-11-23 08:15 UTC"."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def relative(at: datetime, now: datetime | None = None) -> str:
    """Format the distance of a time from now: "3 min ago", "in 2 h"."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    distance = abs(seconds)
    if distance < 60:
        return "just now" if seconds >= 0 else "in a moment"
    size, name = next(unit for unit in reversed(UNITS) if distance >= unit[0])
    count = int(distance / size)
    words = f"{count} {name}{'s' if count > 1 and name not in ('min', 'h') else ''}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def duration(value: timedelta) -> str:
    """Format a duration: "0.4 s", "12 s", "3 min 5 s", "2 h 4 min"."""
    seconds = value.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def number(value: int) -> str:
    """Format a number with thousands separators."""
    return f"{value:,}"


def amount(text: str, places: int = 0) -> str:
    """Format a number's text with thousands separators, and with figure spaces in place of digits behind the point that it lacks.

    A number in scientific notation, and one that is none, such as NaN, stays as it is.
    """
    shown = shown_decimal(text)
    if not DECIMAL.fullmatch(shown):
        return shown
    whole, point, rest = shown.partition(".")
    sign = whole[: whole.startswith("-")]
    padding = (POINT_SPACE if places and not point else "") + FIGURE_SPACE * (places - len(rest))
    # as text: Python reads whole numbers of 4,300 digits at most
    grouped = THOUSANDS.sub(r"\1,", whole.removeprefix("-")[::-1])[::-1]
    return f"{sign}{grouped}{point}{rest}{padding}"


def size(count: int) -> str:
    """Format a number of bytes in bytes, kB, MB, GB or TB."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def value_text(value: Any) -> str:
    """Format a field's value other than None."""
    return value if isinstance(value, str) else exact_json.dumps(value, ensure_ascii=False)


def lines(text: str) -> list[str]:
    return text.split("\n")


def local_url(path: str, **parameters: object) -> str:
    """Return a URL of this service, without parameters that are None or empty; one that is a list comes once for each member."""
    present = {name: value for name, value in parameters.items() if value not in (None, "", [])}
    return quote(path, safe="/") + (f"?{urlencode(present, doseq=True)}" if present else "")


def described_by(*ids: str | None) -> Markup:
    """Return the attribute aria-describedby with the ids that are not None, or nothing."""
    present = " ".join(each for each in ids if each)
    return Markup(' aria-describedby="{}"').format(present) if present else Markup("")


def breakable(text: str) -> Markup:
    """Allow line breaks between the parts of a camel-case name or a path."""
    return Markup("<wbr>").join(escape(part) for part in BREAK_POINTS.split(text))


@cache
def environment() -> Environment:
    """The environment of all templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported late: a service without pages does not need it

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "timestamp": timestamp,
        "timestamp_utc": timestamp_utc,
        "minute": minute,
        "duration": duration,
        "number": number,
        "size": size,
        "amount": amount,
        "value_text": value_text,
        "lines": lines,
        "breakable": breakable,
    }
    made.globals |= {"asset": asset, "local_url": local_url, "described_by": described_by, "has_guide": lambda: bool(guide())}
    return made
