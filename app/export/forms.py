r"""Rows as text that PostgreSQL makes, in the forms of an export.

Each row is one line: a line end inside a value is written so that none is in the text.  COPY can then carry it: its CSV format,
with the quote U+0001 and the delimiter U+0002 that no form leaves in a text, gives a column as it is.

  RecordForm
    Json, Values, Xml     records with children inside
  LineForm
    Csv                   columns, which COPY itself quotes
    Html, Sheet, Display  table rows of two kinds, and an array of texts for whoever lays them out
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from psycopg.sql import SQL, Composable, Composed, Literal

from app.database.catalog import Entity, Navigation
from app.export.shape import Member, Record
from app.query.tree import INTEGERS, NUMBERS

QUOTED = SQL("(format csv)")
PLAIN = SQL("(format csv, quote e'\\x01', delimiter e'\\x02')")

# Characters that XML cannot hold, and with those its readers would change, what needs more than the usual escapes.
CONTROLS = "".join(map(chr, (*range(1, 9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)))
UNSAFE = "[\x01-\x1f\ufffe\uffff]"
LINE_ENDS = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}

# What a spreadsheet takes for the beginning of a formula; all of it sorts before A or after the letters.
FORMULA = "^[=+@\t\r\n＝＋－＠-]"

# Values that PostgreSQL holds and an import document does not.
ENDLESS = "not ({0} >= '0001-01-01' and {0} < '10000-01-01')"
NO_NUMBER = "{} in ('NaN', 'Infinity', '-Infinity')"
UNIMPORTABLE = {"date": ENDLESS, "timestamptz": ENDLESS, "numeric": NO_NUMBER, "float8": NO_NUMBER}

ROW = "\x03"  # stands for the number of a sheet's row
LONGEST_CELL = 32_767  # UTF-16 units
EXACT = 15  # digits of a spreadsheet's number
FORMATS = {"date": 2, "timestamptz": 3, "time": 4}  # a sheet's cell formats


class RecordForm(Protocol):
    """How records with children inside are written."""

    copy: SQL  # COPY's options

    def record(
        self, name: str, record: Record, columns: Sequence[Composable], children: Sequence[tuple[Navigation, Composable]]
    ) -> Composable:
        """The text of a record called `name`; children come as the text of their records, null if there are none."""
        ...


class LineForm(Protocol):
    """How flat rows are written."""

    copy: SQL  # COPY's options

    def columns(self, members: Sequence[Member], columns: Sequence[Composable]) -> Composable:
        """The output columns of a line."""
        ...


class Json:
    """Objects of an import document, each with a comma before it."""

    copy = PLAIN
    importable = True  # values that no import takes are left out, and so left alone

    def record(
        self, name: str, record: Record, columns: Sequence[Composable], children: Sequence[tuple[Navigation, Composable]]
    ) -> Composable:
        parts: list[Composable] = []
        for member, column in zip(record.members, columns, strict=True):
            value = self.value(member, column)
            key = Literal(f',"{member.name}":' if parts else f',{{"{member.name}":')
            text = SQL("{} || {}").format(key, SQL("coalesce({}, 'null')").format(value) if member.nullable else value)
            if parts and self.importable and member.type in UNIMPORTABLE:
                text = SQL("case when {} then '' else {} end").format(SQL(UNIMPORTABLE[member.type]).format(column), text)
            parts.append(text)
        for step, records in children:
            parts.append(SQL("{} || coalesce(substr({}, 2), '') || ']'").format(Literal(f',"{step.name}":['), records))
        return joined([*parts, Literal("}")])

    def value(self, member: Member, column: Composable) -> Composable:
        """The JSON text of a value."""
        if member.lookup:
            return SQL("to_json({} || {})::text").format(Literal(f"{member.lookup}:"), shown(member, column))
        if member.type in INTEGERS or member.type == "bool":
            return SQL("{}::text").format(column)
        if member.type == "timestamptz":
            return SQL("""'"' || {} || '"'""").format(shown(member, column))
        return SQL("to_json({})::text").format(column)


class Values(Json):
    """Objects with every value, and references as the codes they point to."""

    importable = False

    def value(self, member: Member, column: Composable) -> Composable:
        return super().value(replace(member, lookup=None), column)


class Xml:
    """Elements of the shape of an import document."""

    copy = PLAIN

    def record(
        self, name: str, record: Record, columns: Sequence[Composable], children: Sequence[tuple[Navigation, Composable]]
    ) -> Composable:
        parts: list[Composable] = [Literal(f"<{name}>")]
        for member, column in zip(record.members, columns, strict=True):
            text = shown(member, column)
            prefix = f"<{member.name}>" + (f"{member.lookup}:" if member.lookup else "")
            element = joined(
                [Literal(prefix), markup(text) if member.type == "text" else text, Literal(f"</{member.name}>")],
            )
            nil = Literal(f'<{member.name} xsi:nil="true"/>')
            parts.append(SQL("coalesce({}, {})").format(element, nil) if member.nullable else element)
        for step, records in children:
            around = (Literal(f"<{step.name}>"), records, Literal(f"</{step.name}>"))
            parts.append(SQL("{} || coalesce({}, '') || {}").format(*around))
        return joined([*parts, Literal(f"</{name}>")])


class Csv:
    """Columns with the names of the fields; null is nothing, an empty text is quoted."""

    copy = QUOTED

    def columns(self, members: Sequence[Member], columns: Sequence[Composable]) -> Composable:
        return SQL(", ").join(self.value(member, column) for member, column in zip(members, columns, strict=True))

    def value(self, member: Member, column: Composable) -> Composable:
        if member.type == "text":
            return guarded(column)
        # COPY writes the others as they are shown
        return shown(member, column) if member.type in ("bool", "timestamptz") else column


class Html:
    """Rows of a table for people."""

    copy = PLAIN

    def columns(self, members: Sequence[Member], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = [Literal("<tr>")]
        for member, column in zip(members, columns, strict=True):
            text = shown(member, column, people=True)
            text = markup(text, LINE_ENDS | {"\n": "<br>"}) if member.type == "text" else text
            parts += [Literal("<td>"), filled(member, text), Literal("</td>")]
        return row([*parts, Literal("</tr>")])


class Sheet:
    """Rows of a spreadsheet, in cells of their types.  ROW stands for the row's number."""

    copy = PLAIN

    def columns(self, members: Sequence[Member], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = [Literal(f'<row r="{ROW}">')]
        for number, (member, column) in enumerate(zip(members, columns, strict=True)):
            parts.append(filled(member, self.cell(f"{letters(number)}{ROW}", member, column)))
        return row([*parts, Literal("</row>")])

    def cell(self, place: str, member: Member, column: Composable) -> Composable:
        text = SQL("{} || {} || '</t></is></c>'").format(
            Literal(f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">'),
            sheet_text(column) if member.type == "text" else shown(member, column),
        )
        if member.type == "text":
            return text
        if member.type == "bool":
            return SQL("{} || {}::int || '</v></c>'").format(Literal(f'<c r="{place}" t="b"><v>'), column)
        style = f' s="{FORMATS[member.type]}"' if member.type in FORMATS else ""
        number = sheet_number(member, column)
        if number is None:
            return text
        value, fits = number
        start = Literal(f'<c r="{place}"{style}><v>')
        return SQL("case when {} then {} || {} || '</v></c>' else {} end").format(fits, start, value, text)


class Display:
    """A JSON array of texts and nulls."""

    copy = PLAIN

    def columns(self, members: Sequence[Member], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = []
        for member, column in zip(members, columns, strict=True):
            parts += [
                Literal("," if parts else "["),
                SQL("coalesce(to_json({})::text, 'null')").format(shown(member, column, people=True)),
            ]
        return row([*parts, Literal("]")])


# Values ---------------------------------------------------------------------------------------------------------------------------


def shown(member: Member, column: Composable, *, people: bool = False) -> Composable:
    """The text of a value as it is; a time stamp for people has no fractions."""
    if member.type == "text":
        return column
    if member.type != "timestamptz":
        return SQL("{}::text").format(column)
    picture = "YYYY-MM-DD HH24:MI:SS" if people else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
    # to_char knows neither infinity nor what was before the year 1
    return SQL("case when {} then {}::text else to_char({} at time zone 'UTC', {}) end").format(
        SQL(ENDLESS).format(column), column, column, Literal(picture)
    )


def filled(member: Member, text: Composable) -> Composable:
    """The text of a value, or nothing for null."""
    return SQL("coalesce({}, '')").format(text) if member.nullable else text


def row(parts: Sequence[Composable]) -> Composed:
    """The one output column of a line in pieces."""
    return SQL("{} as row").format(joined(parts))


def joined(parts: Sequence[Composable]) -> Composed:
    return SQL(" || ").join([SQL("({})").format(part) if isinstance(part, Composed) else part for part in parts])


def guarded(text: Composable) -> Composed:
    """A text that no spreadsheet runs as a formula."""
    return SQL(
        """case when ({0} collate "C" < 'A' or {0} collate "C" >= '＀') and {0} ~ {1} then '''' || {0} else {0} end"""
    ).format(text, Literal(FORMULA))


def markup(text: Composable, line_ends: Mapping[str, str] = LINE_ENDS) -> Composed:
    """A text with those characters escaped that markup gives a meaning to; what XML cannot hold becomes U+FFFD."""
    escaped = SQL("replace(replace(replace({}, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')").format(text)
    return SQL("case when {} ~ {} then {} else {} end").format(text, Literal(UNSAFE), unusual(escaped, line_ends), escaped)


def unusual(text: Composable, line_ends: Mapping[str, str]) -> Composed:
    """The same of a text that holds control characters."""
    result = SQL("translate({}, {}, {})").format(text, Literal(CONTROLS), Literal("\ufffd" * len(CONTROLS)))
    for character, reference in line_ends.items():
        result = SQL("replace({}, {}, {})").format(result, Literal(character), Literal(reference))
    return result


def sheet_text(text: Composable) -> Composed:
    """A text for a cell: no formula, no longer than a cell may be, what looks like the escapes of cells escaped."""
    # characters outside the basic plane are two units
    cut = SQL(
        "case when octet_length({0}) <= {1} or length({0}) + regexp_count({0}, {2}) <= {1} then {0}"
        " else left({0}, case when {0} ~ {2} then {3} else {4} end) || '…' end"
    ).format(
        text, Literal(LONGEST_CELL), Literal("[\U00010000-\U0010ffff]"), Literal(LONGEST_CELL // 2 - 1), Literal(LONGEST_CELL - 2)
    )
    safe = SQL("(select {} from (select {} as v offset 0) as c)").format(guarded(SQL("c.v")), cut)
    plain = SQL("replace(replace(replace({}, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')")
    escape = SQL("regexp_replace({}, '_(x[0-9A-Fa-f]{{4}}_)', {}, 'g')").format(plain.format(safe), Literal("_x005F_\\1"))
    return SQL("case when octet_length({0}) > {1} or {0} ~ {2} then {3} else {4} end").format(
        text,
        Literal(LONGEST_CELL),
        Literal(UNSAFE + "|_x[0-9A-Fa-f]{4}_"),
        unusual(escape, LINE_ENDS),
        plain.format(guarded(text)),
    )


def sheet_number(member: Member, column: Composable) -> tuple[Composable, Composable] | None:
    """What a spreadsheet calculates with, and whether it holds the value without loss; None if it has no number for the type."""
    since = "{0} >= '1900-03-01' and {0} < {1}"  # before it, a day is counted that never was
    match member.type:
        case "date":
            return SQL("({} - date '1899-12-30')").format(column), SQL(since).format(column, Literal("10000-01-01"))
        case "timestamptz":
            days = "round(extract(epoch from {}) / 86400 + 25569, 9)"  # what comes after is rounded to a day that is no more
            return SQL(days).format(column), SQL(since).format(column, Literal("9999-12-31 23:59:59.9999"))
        case "time":
            return SQL("round(extract(epoch from {}) / 86400, 9)").format(column), SQL("true")
        case "float8":
            return column, SQL("not ({})").format(SQL(NO_NUMBER).format(column))
        case _ if member.type in NUMBERS:
            scale = member.column.field.scale if member.type == "numeric" else 0
            if scale is not None and 0 <= scale < EXACT:
                return column, SQL("{0} > -{1} and {0} < {1}").format(
                    column, Literal(10 ** (EXACT - scale))
                )  # the least has no abs
            return column, SQL("case when abs({0}) < 1e300 then {0}::float8::numeric = {0} else false end").format(column)
    return None


def letters(number: int) -> str:
    """The name of a spreadsheet's column, counted from 0: A, ..., Z, AA, ..."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def singular(name: str) -> str:
    """What one of a collection is called: variants -> variant."""
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def element(entity: Entity, step: Navigation | None) -> str:
    """The name of a record's XML element."""
    return singular(step.name) if step else entity.singular
