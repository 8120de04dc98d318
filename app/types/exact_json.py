"""JSON whose numbers keep all of their digits, as PostgreSQL's numeric and its json have them."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf
from typing import Any

LONGEST = 4_000  # digits of an int; Python refuses to convert one of more than 4,300


class Number(Decimal):
    """A number of a JSON text, which `dumps` writes as it stood there."""

    text: str

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def loads(text: str | bytes) -> Any:
    """The value of a JSON text: whole numbers are int up to LONGEST digits, all others Number.  Raises ValueError."""
    return json.loads(text, parse_float=Number, parse_int=_whole)


def plain(value: Any) -> Any:
    """A value that psycopg has read, as JSON of every interface has it: exact numbers, times in UTC, bytes in base64."""
    match value:
        case None | bool() | int() | str() | dict():
            return value
        case list():
            return [plain(each) for each in value]
        case float() | Decimal() if value != value or abs(value) == inf:
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case float():
            return value
        case Decimal():
            return Number(format(value, "f"))
        case datetime() if value.tzinfo:
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
    return str(value)


def _whole(text: str) -> int | Number:
    return int(text) if len(text) <= LONGEST else Number(text)


def dumps(value: Any, *, default: Callable[[Any], Any] | None = None, **options: Any) -> str:
    """A value as JSON, as json.dumps writes it, with Number as a number.  default: as that of json.dumps, for other values."""
    mark = ""

    def write(value: Any) -> Any:
        nonlocal mark
        if isinstance(value, Number):
            mark = mark or secrets.token_hex()  # no text can contain it: json.dumps writes no other as it stands
            return mark + value.text
        if default is None:
            raise TypeError(f"a {type(value).__name__} is not JSON")
        return default(value)

    text = json.dumps(value, default=write, **options)
    return re.sub(f'"{mark}([^"]*)"', r"\1", text) if mark else text
