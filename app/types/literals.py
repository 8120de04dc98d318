"""Literals: from a language's notation to PostgreSQL's.  They are checked here so that no cast of a parameter can fail there.

Each reader takes a text and returns the value in PostgreSQL's notation, or raises ValueError with the expected form.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Literal
from uuid import UUID

INT8 = range(-(2**63), 2**63)
INT4 = range(-(2**31), 2**31)  # of the months, and of the days, of an interval
_DAYS, _HOURS = ("".join(f"([-+]?[0-9]+{unit})?" for unit in units) for units in ("YMWD", "HM"))
DURATION_FORM = f"P(?=[-+T0-9]){_DAYS}(T(?=[-+0-9]){_HOURS}([-+]?[0-9]+([.][0-9]{{1,12}})?S)?)?"
LONGEST_PART = 10  # digits of a part of a duration
LEAST_TIME, MOST_TIME = (Decimal(end).scaleb(-6) for end in (INT8[0], INT8[-1]))  # seconds of an interval beside months and days
LARGEST_EXPONENT = 308  # of a number, as in a double: results of arithmetic stay far below the limit of numeric
LEAST_EXPONENT = 324  # the least double is 5e-324
MOST_DIGITS = 1_000
UUID_FORM = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
CYCLE = timedelta(days=146_097)  # 400 years

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,9})?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,12}))?)?", re.ASCII)
_ZONE = re.compile(r"[Zz]|[-+ ](\d\d):?(\d\d)?", re.ASCII)


def number(text: str) -> tuple[Literal["int8", "whole", "numeric"], str]:
    """Return a number with its narrowest type: int8 if it is whole and fits, otherwise whole or numeric."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError("expected a number")
    value = Decimal(text)
    if len(value.as_tuple().digits) > MOST_DIGITS:
        raise ValueError(f"expected a number of at most {MOST_DIGITS:,} digits")
    if value and not -LEAST_EXPONENT <= value.adjusted() <= LARGEST_EXPONENT:
        raise ValueError(f"expected a number of at most {LARGEST_EXPONENT} digits before and {LEAST_EXPONENT} after its point")
    if value == value.to_integral_value():
        whole = int(value)
        return ("int8" if whole in INT8 else "whole"), str(whole)
    return "numeric", format(value, "f")


def whole(text: str) -> tuple[Literal["int8", "whole"], str]:
    type, value = number(text)
    if type == "numeric":
        raise ValueError("expected a whole number")
    return type, value


def day_or_moment(text: str) -> tuple[Literal["date", "timestamptz"], str]:
    """A text longer than a date, compared with a date, is a timestamp."""
    return ("timestamptz", timestamp(text)) if len(text) > len("2026-11-20") else ("date", day(text))


def day(text: str) -> str:
    try:
        if match := _DATE.fullmatch(text):
            return date(*map(int, match.groups())).isoformat()
    except ValueError:
        pass
    raise ValueError("expected a date such as 2026-11-20")


def clock(text: str) -> str:
    if re.fullmatch(r"24:00(:00(\.0{1,12})?)?", text):
        return "24:00:00"
    try:
        return _clock(text).isoformat()
    except ValueError:
        raise ValueError("expected a time such as 08:15:30") from None


def timestamp(text: str, *, strict: bool = False) -> str:
    """Read a timestamp, return it in UTC.

    Unless strict, a date alone means its midnight, the zone may be missing (UTC), and a space may stand for T.  Digits beyond
    microseconds are cut off, not rounded: the database has none, and a reader that continues after such a time then misses no row.
    """
    day, mark, rest = text[:10], text[10:11], text[11:]
    try:
        match = _ZONE.search(rest)
        zone = _offset(match, rest) if match else None
        if (strict and (zone is None or mark not in ("T", "t"))) or mark not in ("T", "t", " ", ""):
            raise ValueError
        moment = _clock(rest[: match.start()] if match else rest) if mark else time()
        days = date(*map(int, _DATE.fullmatch(day).groups()))  # type: ignore[union-attr]
        return _universal(datetime.combine(days, moment, zone or UTC))
    except (ValueError, AttributeError):
        raise ValueError("expected a timestamp such as 2026-11-20T08:15:30Z") from None


def _universal(moment: datetime) -> str:
    """The moment in UTC, which may lie hours outside Python's years 1 to 9999.

    There it is computed 400 years later or earlier, where the calendar is the same.
    """
    try:
        return moment.astimezone(UTC).isoformat(sep=" ")
    except OverflowError:
        early = moment.year == 1
        rest = (moment + (CYCLE if early else -CYCLE)).astimezone(UTC).isoformat(sep=" ")[4:]
        return f"0001{rest} BC" if early else f"10000{rest}"


def _clock(text: str) -> time:
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError
    hour, minute, second, fraction = match.groups()
    return time(int(hour), int(minute), int(second or 0), int((fraction or "0")[:6].ljust(6, "0")))


def _offset(match: re.Match[str], rest: str) -> timezone:
    # a space is a + that the client has not percent-encoded in the URL
    if match.end() != len(rest):
        raise ValueError
    hours, minutes = (int(part or 0) for part in match.groups())
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if match.group().startswith("-") else offset)


def duration(text: str) -> str:
    """Read a duration such as P1DT2H30M, of ISO 8601 as PostgreSQL and as OData write it."""
    sign, rest = re.fullmatch(r"([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    if not re.fullmatch(DURATION_FORM, rest) or len(max(re.findall("[0-9]+", rest), key=len)) > LONGEST_PART:
        raise ValueError("expected a duration such as P1DT2H30M")
    if sign == "-":
        rest = re.sub(r"([-+]?)([0-9]+(?:[.][0-9]+)?)", lambda m: f"{'' if m[1] == '-' else '-'}{m[2]}", rest)
    days, _, clock = rest.partition("T")
    parts = {unit: int(number) for number, unit in re.findall("([-+]?[0-9]+)([YMWD])", days)}
    for unit, size, smaller in (("Y", 12, "M"), ("W", 7, "D")):
        whole = parts.get(unit, 0) * size
        if not (whole in INT4 and whole + parts.get(smaller, 0) in INT4):
            raise ValueError(f"expected a duration of at most {INT4[-1] // 12:,} years and {INT4[-1]:,} days")
    seconds = Decimal(0)
    for number, unit in re.findall("([-+]?[0-9.]+)([HMS])", clock):  # PostgreSQL adds them in this order
        seconds += Decimal(number) * {"H": 3600, "M": 60, "S": 1}[unit]
        if not LEAST_TIME <= seconds <= MOST_TIME:
            raise ValueError(f"expected a duration of at most {MOST_TIME:,} seconds beside its days")
    return rest


def binary(text: str) -> str:
    """Read base64 or base64url, return the bytes in hexadecimal."""
    try:
        return rf"\x{base64.b64decode(text.rstrip('=') + '=' * (-len(text.rstrip('=')) % 4), altchars=b'-_', validate=True).hex()}"
    except ValueError:
        pass
    try:
        return rf"\x{base64.b64decode(text, validate=True).hex()}"
    except ValueError:
        raise ValueError("expected base64") from None


def truth(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower()


def uuid(text: str) -> str:
    if not re.fullmatch(UUID_FORM, text):
        raise ValueError("expected a UUID such as 01234567-89ab-cdef-0123-456789abcdef")
    return str(UUID(text))


def storable(text: str) -> str:
    """Return the text unchanged.  Raises ValueError if PostgreSQL cannot store it."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("expected a text without U+0000 and without lone surrogates")
    return text
