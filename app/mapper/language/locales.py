"""Numbers and dates as people of a language write them, by CLDR."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.numbers import format_decimal

from app.mapper.language.problems import Wrong

PLAIN = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
ISO_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?\s*([AaPp])?\.?(?:[Mm]\.?)?\s*(Z|[+-]\d{2}:?\d{2})?")
DATE_PART = re.compile(r"\d+|[^\W\d_]+", re.UNICODE)
APOSTROPHES = "'’"
SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
MINUS = str.maketrans({"\N{MINUS SIGN}": "-", "\u200e": None, "\u200f": None, "\u061c": None})  # and marks of direction
MOST_DIGITS = 1_000  # before the point, or zeros after it
CACHED = 4096  # texts of each kind, which repeat in a source


def plain_number(text: str) -> Decimal:
    """A number with a decimal point.  Raises Wrong."""
    stripped = text.strip()
    if not PLAIN.fullmatch(stripped):
        raise Wrong(f"expected a number, got {shown(text)}")
    return bounded(Decimal(stripped))


def bounded(number: Decimal) -> Decimal:
    """A number that can be written with its digits.  Raises Wrong for one far beyond what any field holds."""
    if abs(number.adjusted()) > MOST_DIGITS:  # of 0E-9999 too
        raise Wrong(f"expected a number of at most {MOST_DIGITS:,} digits")
    return number


def iso_date(text: str) -> date:
    """A date as ISO 8601 writes it; a time after it is left out.  Raises Wrong."""
    try:
        return datetime.fromisoformat(text.strip()).date()
    except ValueError:
        raise Wrong(f"expected a date such as 2026-11-20, got {shown(text)}") from None


@lru_cache(CACHED)
def formatted_date(text: str, pattern: str) -> datetime:
    """A date and time as a strptime pattern says.  Raises Wrong."""
    try:
        return datetime.strptime(text.strip(), pattern)
    except ValueError:
        raise Wrong(f"expected a date as {pattern} says, got {shown(text)}") from None


def written_date(day: date, pattern: str) -> str:
    """A date as a strptime pattern reads it: the year has four digits, which strftime leaves to the machine."""
    return day.strftime(re.sub("%(.)", lambda found: f"{day.year:04}" if found[1] == "Y" else found[0], pattern))


def shown(text: object) -> str:
    """A value as a message quotes it, which is not all of a long one."""
    quoted = repr(text)
    return quoted if len(quoted) <= 60 else quoted[:56] + "...'"


class Language:
    """One language's way to write numbers and dates.  Made once for each tag: Language.of('de')."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._locale = _locale(tag)
        symbols = self._locale.number_symbols[self._locale.default_numbering_system]
        self.decimal, self.group = symbols["decimal"], symbols["group"]
        self._groups = SPACES if self.group in SPACES else APOSTROPHES if self.group in APOSTROPHES else self.group
        group, point = f"[{re.escape(self._groups)}]", re.escape(self.decimal)
        last, others = self._locale.decimal_formats[None].grouping  # 3 and 3, in India 3 and 2
        grouped = rf"\d{{1,{others}}}(?:{group}\d{{{others}}})*{group}\d{{{last}}}"
        self._number = re.compile(rf"[-+]?(?:\d+|{grouped})?(?:{point}\d*)?")
        self._ungroup = str.maketrans({**dict.fromkeys(self._groups), self.decimal: "."})
        self._order = _order(self._locale)
        self._months = _months(self._locale)
        self.number = lru_cache(CACHED)(self._read_number)
        self.date = lru_cache(CACHED)(self._read_date)

    @classmethod
    def of(cls, tag: str) -> Language:
        """The language of a BCP 47 tag.  Raises ValueError if CLDR has none."""
        return _language(tag)

    def _read_number(self, text: str) -> Decimal:
        stripped = text.translate(MINUS).strip()
        if self._number.fullmatch(stripped):
            try:
                return Decimal(stripped.translate(self._ungroup))
            except InvalidOperation:
                pass
        raise Wrong(f"expected a number as {self.tag} writes it, such as {self.write_number(Decimal('1234.5'))}, got {shown(text)}")

    def _read_date(self, text: str) -> date:
        stripped = text.strip()
        iso = ISO_DATE.fullmatch(stripped)
        try:
            year, month, day = (int(part) for part in iso.groups()) if iso else self._parts(stripped)
            return date(year, month, day)
        except ValueError:
            expected = f"a date as {self.tag} writes it, such as {self.write_date(date(2026, 11, 20))}"
            raise Wrong(f"expected {expected}, got {shown(text)}") from None

    def timestamp(self, text: str) -> datetime:
        """A date with its time, if it has one.  Raises Wrong."""
        try:
            return datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        time = next((found for found in TIME.finditer(text) if found.end() == len(text.rstrip())), None)
        day = self.date(text[: time.start()].rstrip(" ,T") if time else text)
        if time is None:
            return datetime(day.year, day.month, day.day)
        hour, minute, second, fraction, half, zone = time.groups()
        hours = int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
        micros = (fraction or "0").ljust(6, "0")
        try:
            return datetime.fromisoformat(f"{day}T{hours:02}:{minute}:{second or '00'}.{micros}{zone or ''}")
        except ValueError:
            raise Wrong(f"expected a date and time, got {shown(text)}") from None

    def _parts(self, text: str) -> tuple[int, int, int]:
        """Year, month and day.  Raises ValueError."""
        words = DATE_PART.findall(text)
        named = [self._months[word.casefold()] for word in words if word.casefold() in self._months]
        numbers = [word for word in words if word.isdecimal()]
        if len(named) == 1 and len(numbers) == 2:
            day, year = numbers if len(numbers[1]) != 2 or self._order != "ymd" else reversed(numbers)
            if len(day) > 2:
                day, year = year, day
            return _year(year), named[0], int(day)
        if len(words) != 3 or len(numbers) != 3:
            raise ValueError
        order = "ymd" if len(numbers[0]) == 4 else self._order
        part = dict(zip(order, numbers, strict=True))
        return _year(part["y"]), int(part["m"]), int(part["d"])

    def write_number(self, number: Decimal) -> str:
        """All of its digits, without grouping."""
        text: str = format_decimal(number, locale=self._locale, decimal_quantization=False, group_separator=False)
        return text

    def write_date(self, day: date) -> str:
        """Day, month and year in the language's order, as numbers; the year has four digits."""
        parts = {"y": f"{day.year:04}", "m": f"{day.month:02}", "d": f"{day.day:02}"}
        return ("-" if self._order == "ymd" else "." if "." in _pattern(self._locale) else "/").join(parts[c] for c in self._order)


@lru_cache(64)
def _language(tag: str) -> Language:
    return Language(tag)


def _locale(tag: str) -> Locale:
    try:
        return Locale.parse(tag, sep="-")
    except (ValueError, UnknownLocaleError, TypeError):
        raise ValueError(f"expected a language that CLDR knows, such as de or pt-BR, got {tag!r}") from None


def _pattern(locale: Locale) -> str:
    pattern: str = locale.date_formats["short"].pattern
    return pattern


def _order(locale: Locale) -> str:
    """In which order the language writes year, month and day: "dmy"."""
    letters = re.sub("'[^']*'", "", _pattern(locale)).replace("M", "m").replace("L", "m")
    order = "".join(dict.fromkeys(c for c in letters if c in "ymd"))
    return order if len(order) == 3 else "ymd"


def _months(locale: Locale) -> dict[str, int]:
    """Names and abbreviations of the months, in lower case."""
    names: dict[str, int] = {}
    for context in ("format", "stand-alone"):
        for width in ("wide", "abbreviated"):
            for number, name in locale.months[context][width].items():
                words = [word for word in DATE_PART.findall(name.casefold()) if not word.isdecimal()]
                if len(words) == 1:
                    names.setdefault(words[0], number)
    return names


def _year(digits: str) -> int:
    """Two digits are a year from 1969 to 2068, as in POSIX."""
    year = int(digits)
    return year if len(digits) != 2 else year + (1900 if year >= 69 else 2000)
