"""Templates: how values are written for people, and the headers that a page is sent with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

HERE = Path(__file__).resolve().parent
STATIC = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir()) if path.is_file()}
VERSIONS = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in STATIC.items()}

# Everything a page needs comes from here; nothing runs or is drawn that stands in the page itself.
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
    "Cache-Control": "no-store",  # what was seen is gone after signing out
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
JOINTS = re.compile(r"(?=[A-Z/.])")
STEPS = ((60.0, "min"), (3600.0, "h"), (86_400.0, "day"), (30.4 * 86_400, "month"), (365.25 * 86_400, "year"))


def render(template: str, values: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A page."""
    body = ENVIRONMENT.get_template(template).render(values)
    return web.Response(status=status, body=body.encode("utf-8", "replace"), headers={**HEADERS, **(headers or {})})


def moment(value: datetime | str | None, none: str = "never", ending: str = "") -> Markup:
    """A time: in UTC to the second, and how long ago that is.  none: what stands for no time; ending: stands behind the time."""
    if value is None:
        return Markup("<span class=none>{}</span>").format(none)
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    at = at.astimezone(UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} UTC">{}{} <span class="hint">{}</span></time>').format(
        at.isoformat().replace("+00:00", "Z"), at.isoformat(" ").removesuffix("+00:00"), shown, ending, relative(at)
    )


def instant(value: datetime | str | None) -> Markup:
    """A time within a sentence, which says that it is UTC."""
    return moment(value, ending=" UTC,")


def relative(at: datetime, now: datetime | None = None) -> str:
    """How far a moment is from now, in words: "3 min ago", "in 2 h"."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    distance = abs(seconds)
    if distance < 60:
        return "just now" if seconds >= 0 else "in a moment"
    size, name = next(step for step in reversed(STEPS) if distance >= step[0])
    count = int(distance / size)
    words = f"{count} {name}{'s' if count > 1 and name not in ('min', 'h') else ''}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def number(value: int) -> str:
    """With thousands separators."""
    return f"{value:,}"


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def plain(value: Any) -> str:
    """A field's value as text; what is not there is shown by its template."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def lines(text: str) -> list[str]:
    return text.split("\n")


def asset(name: str) -> str:
    """The URL of a static file, another one whenever its content is."""
    return f"/static/{name}?v={VERSIONS[name]}"


def address(path: str, **parameters: object) -> str:
    """A local URL; parameters that are None or empty are left out."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    return quote(path, safe="/") + (f"?{urlencode(given)}" if given else "")


def describe(*ids: str | None) -> Markup:
    """The attribute that names what describes a control; nothing if nothing does."""
    named = " ".join(each for each in ids if each)
    return Markup(' aria-describedby="{}"').format(named) if named else Markup("")


def breakable(text: str) -> Markup:
    """A name in camel case or a path, that may be broken where its parts meet."""
    return Markup("<wbr>").join(escape(part) for part in JOINTS.split(text))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.filters |= {
    "moment": moment,
    "instant": instant,
    "number": number,
    "size": size,
    "plain": plain,
    "lines": lines,
    "breakable": breakable,
}
ENVIRONMENT.globals |= {"asset": asset, "address": address, "describe": describe}
