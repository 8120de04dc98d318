"""Numbers and dates in the notation of a locale (CLDR), and the plain and ISO notations.

Babel's parse_decimal(strict=True) is not used: it refuses a plain space as a group separator, which French files contain.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import groupby

import babel

from app.mapper.language.problems import InvalidValue

PLAIN = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
ISO_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?\s*([AaPp])?\.?(?:[Mm]\.?)?\s*(Z|[+-]\d{2}:?\d{2})?")
UNITS = dict(zip("年月日년월일", "ymdymd", strict=True))  # follow the numbers of a date
JOINERS = "\u180e\u200c\u200d"  # within words
APOSTROPHES = "'’"
SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
MINUS = str.maketrans({"\N{MINUS SIGN}": "-", "\u200e": None, "\u200f": None, "\u061c": None})  # drops direction marks
MAX_DIGITS = 1_000  # before the decimal point, or zeros after it
CACHED = 4096  # texts in each cache; values of a source repeat


def parse_number(text: str) -> Decimal:
    """Parse a number with a decimal point.  Raises InvalidValue."""
    stripped = text.strip()
    if not PLAIN.fullmatch(stripped):
        raise InvalidValue(f"expected a number, got {quoted(text)}")
    return bounded(Decimal(stripped))


def bounded(number: Decimal) -> Decimal:
    """Return the number.  Raises InvalidValue if its digits would be far more than any field holds."""
    if abs(number.adjusted()) > MAX_DIGITS:  # also refuses 0E-9999
        raise InvalidValue(f"expected a number of at most {MAX_DIGITS:,} digits")
    return number


def parse_iso_date(text: str) -> date:
    """Parse an ISO 8601 date; a time after it is ignored.  Raises InvalidValue."""
    try:
        return datetime.fromisoformat(text.strip()).date()
    except ValueError:
        raise InvalidValue(f"expected a date such as 2026-11-20, got {quoted(text)}") from None


@lru_cache(CACHED)
def parse_date(text: str, pattern: str) -> datetime:
    """Parse a date and time by a strptime pattern.  Raises InvalidValue."""
    try:
        return datetime.strptime(text.strip(), pattern)
    except (ValueError, re.error):  # strptime makes a regular expression of the pattern, in which a directive stands once
        raise InvalidValue(f"expected a date in the format {pattern}, got {quoted(text)}") from None


def format_date(day: date, pattern: str) -> str:
    """Format a date by a strptime pattern, as its midnight in UTC.

    %Y gets four digits here; with strftime that depends on the platform.
    """
    return datetime(day.year, day.month, day.day, tzinfo=UTC).strftime(
        re.sub("%(.)", lambda found: f"{day.year:04}" if found[1] == "Y" else found[0], pattern)
    )


def quoted(value: object) -> str:
    """A value for a message, shortened to 60 characters."""
    literal = repr(value)
    return literal if len(literal) <= 60 else literal[:56] + "...'"


class Locale:
    """The number and date notation of a locale.  Locale.of('de') caches one instance for each tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._cldr = _cldr_locale(tag)
        known = self._cldr.number_symbols  # CLDR has none for some numbering systems, such as that of Bengali
        symbols = {**known["latn"], **known.get(self._cldr.default_numbering_system, {})}
        self.decimal, self.group = symbols["decimal"], symbols["group"]
        self._groups = SPACES if self.group in SPACES else APOSTROPHES if self.group in APOSTROPHES else self.group
        group, point = f"[{re.escape(self._groups)}]", re.escape(self.decimal)
        last, others = self._cldr.decimal_formats[None].grouping  # 3 and 3; in India 3 and 2
        grouped = rf"\d{{1,{others}}}(?:{group}\d{{{others}}})*{group}\d{{{last}}}"
        self._number = re.compile(rf"[-+]?(?:\d+|{grouped})?(?:{point}\d*)?")
        self._ungroup = str.maketrans({**dict.fromkeys(self._groups), self.decimal: "."})
        self._order = _order(self._cldr)
        self._year_first = _year_first(self._cldr)
        self._months = _months(self._cldr)
        self._longest = max(map(len, self._months), default=0)
        self.number = lru_cache(CACHED)(self._read_number)
        self.date = lru_cache(CACHED)(self._read_date)

    @classmethod
    def of(cls, tag: str) -> Locale:
        """The locale of a BCP 47 tag.  Raises ValueError if CLDR has none."""
        return _locale(tag)

    def _read_number(self, text: str) -> Decimal:
        stripped = text.translate(MINUS).strip()
        if self._number.fullmatch(stripped):
            try:
                return Decimal(stripped.translate(self._ungroup))
            except InvalidOperation:
                pass
        example = self.write_number(Decimal("1234.5"))
        raise InvalidValue(f"expected a number in the notation of {self.tag}, such as {example}, got {quoted(text)}")

    def _read_date(self, text: str) -> date:
        stripped = text.strip()
        iso = ISO_DATE.fullmatch(stripped)
        try:
            year, month, day = (int(part) for part in iso.groups()) if iso else self._parts(stripped)
            return date(year, month, day)
        except ValueError:
            example = self.write_date(date(2026, 11, 20))
            raise InvalidValue(f"expected a date in the notation of {self.tag}, such as {example}, got {quoted(text)}") from None

    def timestamp(self, text: str) -> datetime:
        """Parse a date with an optional time.  Raises InvalidValue."""
        try:
            return datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        time = next((found for found in TIME.finditer(text) if found.end() == len(text.rstrip())), None)
        day = self.date(text[: time.start()].rstrip(" ,T") if time else text)
        if time is None:
            return datetime(day.year, day.month, day.day)
        hour, minute, second, fraction, half, zone = time.groups()
        if half and int(hour) > 12:
            raise InvalidValue(f"expected a date and time, with an hour of 1 to 12 before AM or PM, got {quoted(text)}")
        hours = int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
        micros = (fraction or "0").ljust(6, "0")
        try:
            return datetime.fromisoformat(f"{day}T{hours:02}:{minute}:{second or '00'}.{micros}{zone or ''}")
        except ValueError:
            raise InvalidValue(f"expected a date and time, got {quoted(text)}") from None

    def _parts(self, text: str) -> tuple[int, int, int]:
        """Return year, month and day.  Raises ValueError."""
        words = _words(text)
        if not UNITS.keys().isdisjoint(words):
            return _by_units(words)
        months, numbers = self._named(words)
        if len(months) == 1 and len(numbers) == 2:
            year, day = numbers if self._year_first else reversed(numbers)
            if len(day) > 2:
                day, year = year, day
            return _year(year), months[0], int(day)
        if len(words) != 3 or len(numbers) != 3:
            raise ValueError
        order = "ymd" if len(numbers[0]) == 4 else self._order
        part = dict(zip(order, numbers, strict=True))
        return _year(part["y"]), int(part["m"]), int(part["d"])

    def _named(self, words: list[str]) -> tuple[list[int], list[str]]:
        """The months whose names are in the words, and the numbers among the other words."""
        months, numbers, at = [], [], 0
        while at < len(words):
            # the longest name first: that of a month may end as another one's
            sizes = range(min(self._longest, len(words) - at), 0, -1)
            size = next((size for size in sizes if tuple(words[at : at + size]) in self._months), 0)
            if size:
                months.append(self._months[tuple(words[at : at + size])])
            elif words[at].isdecimal():
                numbers.append(words[at])
            at += size or 1
        return months, numbers

    def write_number(self, number: Decimal) -> str:
        """Format a number with all its digits, without grouping."""
        whole, _, decimals = f"{number:f}".partition(".")
        decimals = decimals.rstrip("0")
        return f"{whole}{self.decimal}{decimals}" if decimals else whole

    def write_date(self, day: date) -> str:
        """Format a date with numbers in the order of the locale; the year has four digits."""
        parts = {"y": f"{day.year:04}", "m": f"{day.month:02}", "d": f"{day.day:02}"}
        return ("-" if self._order == "ymd" else "." if "." in _pattern(self._cldr) else "/").join(parts[c] for c in self._order)


@lru_cache(64)
def _locale(tag: str) -> Locale:
    return Locale(tag)


def _cldr_locale(tag: str) -> babel.Locale:
    try:
        return babel.Locale.parse(tag, sep="-")
    except (ValueError, babel.UnknownLocaleError, TypeError):
        raise ValueError(f"expected a language tag such as de or pt-BR, got {tag!r}") from None


def _pattern(locale: babel.Locale) -> str:
    pattern: str = locale.date_formats["short"].pattern
    return pattern


def _order(locale: babel.Locale) -> str:
    """The order of year, month and day, such as "dmy"."""
    letters = re.sub("'[^']*'", "", _pattern(locale)).replace("M", "m").replace("L", "m")
    order = "".join(dict.fromkeys(c for c in letters if c in "ymd"))
    return order if len(order) == 3 else "ymd"


def _year_first(locale: babel.Locale) -> bool:
    """Whether the year stands before the day in dates with the month's name, as people write them more often than short ones."""
    patterns = [re.sub("'[^']*'", "", locale.date_formats[width].pattern) for width in ("medium", "long")]
    named = next((each for each in patterns if "MMM" in each or "LLL" in each), None)
    return _order(locale) == "ymd" if named is None else named.index("y") < named.index("d")


def _months(locale: babel.Locale) -> dict[tuple[str, ...], int]:
    """Month numbers by the words of the name and of the abbreviation, in lower case."""
    names: dict[tuple[str, ...], int] = {}
    for context in ("format", "stand-alone"):
        for width in ("wide", "abbreviated"):
            for number, name in locale.months[context][width].items():
                words = tuple(_words(name))
                if words and not words[0].isdecimal():  # a name such as 11月 is read by its unit
                    names.setdefault(words, number)
    return names


def _words(text: str) -> list[str]:
    """The numbers and words of a text, in lower case; a mark, such as a vowel sign, is part of its word."""
    kinds = groupby(unicodedata.normalize("NFC", text).casefold(), _kind)
    return ["".join(characters) for kind, characters in kinds if kind]


def _kind(character: str) -> str:
    """What a character may be part of: a number, a word or neither."""
    if character.isdecimal():
        return "number"
    return "word" if unicodedata.category(character)[0] in "LM" or character in JOINERS else ""


def _by_units(words: list[str]) -> tuple[int, int, int]:
    """Read 2026年11月20日; without an era and with the whole year.  Raises ValueError."""
    part = {UNITS.get(unit): number for number, unit in zip(words[:6:2], words[1:6:2], strict=False)}
    if part.keys() != {"y", "m", "d"} or len(part["y"]) != 4:
        raise ValueError
    return int(part["y"]), int(part["m"]), int(part["d"])


def _year(digits: str) -> int:
    """Parse a year; two digits mean 1969 to 2068, as in POSIX."""
    year = int(digits)
    return year if len(digits) != 2 else year + (1900 if year >= 69 else 2000)
