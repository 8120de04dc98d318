"""The cell formats of a workbook: which of them make dates, times or durations of numbers."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Any, Literal

from app.mapper.language.problems import source_error
from app.mapper.workbook.container import Part

Kind = Literal["date", "duration"]

DATES = {*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)}  # numbers of formats that need no definition
DURATIONS = {46}
FORMATS = 65_536  # of cells in a workbook
LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.')  # parts of a format that are shown as they stand
DURATION = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
BRACKETS = re.compile(r"\[[^\]]*\]")  # colours, conditions, languages
DATE = re.compile(r"[dmhys]", re.IGNORECASE)
DAY = 86_400_000  # milliseconds
EPOCH, EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
ERROR = "#VALUE!"  # what a spreadsheet shows for a number with a date's format that no date has


def read_styles(part: Part) -> list[Kind | None]:
    """Return what each cell format makes of a number."""
    own: dict[str, Kind | None] = {}
    found: list[Kind | None] = []
    within = False

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal within
        if tag == "numFmt":
            own[attributes.get("numFmtId", "")] = kind_of(attributes.get("formatCode", ""))
        elif tag == "cellXfs":
            within = True
        elif tag == "xf" and within:
            if len(found) >= FORMATS:
                raise source_error(f"the workbook has more than {FORMATS:,} cell formats", code="invalid_document")
            number = attributes.get("numFmtId", "")
            found.append(own[number] if number in own else _built_in(number))

    def end(tag: str) -> None:
        nonlocal within
        within = within and tag != "cellXfs"

    part.parse(start, end)
    return found


def kind_of(code: str) -> Kind | None:
    """Return what a format's code makes of a number."""
    code = LITERAL.sub("", code.partition(";")[0])
    if DURATION.search(code):
        return "duration"
    return "date" if DATE.search(BRACKETS.sub("", code)) and code.lower() != "general" else None


def _built_in(number: str) -> Kind | None:
    value = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    return "date" if value in DATES else "duration" if value in DURATIONS else None


def moment(days: float, kind: Kind, epoch: datetime) -> Any:
    """Return the date, datetime, time, or text of a duration, of a number of days since the epoch."""
    try:
        if kind == "duration":
            return str(timedelta(milliseconds=round(days * DAY)))
        whole, part = divmod(round(days * DAY), DAY)
        clock = timedelta(milliseconds=part)
        if whole == 0 and 0 <= days < 1:
            return (datetime.min + clock).time()
        if 0 < whole < 60 and epoch == EPOCH:  # a spreadsheet counts a 29 February 1900, which did not exist
            whole += 1
        found = epoch + timedelta(days=whole) + clock
    except (OverflowError, ValueError):
        return ERROR
    return found.date() if found.time() == time() else found


def iso_moment(text: str) -> Any:
    """Return the date, datetime or time of a text as in ISO 8601; the text itself if it is none."""
    for read in (date.fromisoformat, time.fromisoformat, datetime.fromisoformat):
        try:
            found = read(text.removesuffix("Z"))
        except ValueError:
            continue
        return found.date() if isinstance(found, datetime) and found.time() == time() else found
    return text
