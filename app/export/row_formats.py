"""Row formats: rows as text that PostgreSQL makes, and the SQL that several formats share.

Each row is one line without a line end inside.  So COPY can carry it unchanged: in COPY's CSV format with the quote U+0001 and the
delimiter U+0002, which no format leaves in its text.

  RecordFormat          records with their children inside
    JsonRecords         to_json.py
    TemplateRecords     custom.py
    XmlRecords          to_xml.py
  LineFormat            flat lines
    CsvLines            to_csv.py: columns, which COPY itself quotes
    HtmlLines           to_html.py
    ExcelLines          excel_cells.py
    PdfLines            to_pdf.py
    ParquetLines        to_parquet.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from psycopg.sql import SQL, Composable, Composed, Literal

from app.database.catalog import Navigation
from app.export.shape import ExportField, RecordShape
from app.mapper.exported import FORMULA
from app.types import named

QUOTED = SQL("(format csv)")
PLAIN = SQL("(format csv, quote e'\\x01', delimiter e'\\x02')")

# XML cannot hold the characters of CONTROLS; those of UNSAFE include the line ends, which its readers would change.
CONTROLS = "".join(map(chr, (*range(1, 9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)))
UNSAFE = "[\x01-\x1f\ufffe\uffff]"
LINE_ENDS = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}

SHOWN_DECIMALS = 2  # of a decimal that people read, unless it has more that are not 0


@dataclass(frozen=True, slots=True)
class Head:
    """What a record of a difference says before its fields.

    name: the field and the value by which the row is named, null if it is not; operation: a delete has no more; whole: whether
    children follow the fields, None if they always do.
    """

    name: tuple[ExportField, Composable]
    operation: Composable | None = None
    whole: Composable | None = None


class RecordFormat(Protocol):
    """The SQL of one record as text."""

    @property
    def copy(self) -> SQL:
        """The options of COPY."""
        ...

    @property
    def has_lookups(self) -> bool:
        """Whether references are lookups, code:X; else they are codes alone."""
        ...

    def record(
        self,
        shape: RecordShape,
        columns: Sequence[Composable],
        children: Sequence[tuple[Navigation, Composable]],
        head: Head | None = None,
    ) -> Composable:
        """Return the text of a record.  Each child collection comes as the text of its records, null if it is empty."""
        ...


class LineFormat(Protocol):
    """The SQL of one flat line."""

    copy: SQL  # the options of COPY

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        """Return the output columns of a line."""
        ...


def with_children(head: Head | None, text: Composable) -> Composable:
    """Return the text of a child collection, empty where the head leaves it out."""
    return SQL("case when {} then {} else '' end").format(head.whole, text) if head and head.whole else text


# Values ---------------------------------------------------------------------------------------------------------------------------


def text_of(field: ExportField, column: Composable, *, shown: bool = False) -> Composable:
    """Return the value as text, null if it is null.

    shown: as people read it: a timestamp ends with its seconds, without T and Z; a decimal has two decimals, more if it needs them.
    """
    type = named(field.type)
    if shown and type.kind == "decimal" and (field.column.field.scale or 0) > SHOWN_DECIMALS:
        return SQL("case when scale(trim_scale({0})) > {1} then trim_scale({0}) else round({0}, {1}) end::text").format(
            column, Literal(SHOWN_DECIMALS)
        )
    return SQL(type.shown if shown else type.text).format(column)


def lookup_of(field: ExportField, column: Composable) -> Composable:
    """Return the text of a reference's lookup.  One that may be an id comes as its text (ExportSelect.value)."""
    return column if field.own else SQL("{} || {}").format(Literal(f"{field.lookup}:"), text_of(field, column))


def shown_decimal(text: str) -> str:
    """A decimal as `text_of` shows it, from its text."""
    whole, point, decimals = text.partition(".")
    return text if len(decimals) <= SHOWN_DECIMALS else whole + point + decimals.rstrip("0").ljust(SHOWN_DECIMALS, "0")


def or_empty(field: ExportField, text: Composable) -> Composable:
    """Return the text, or an empty text for null."""
    return SQL("coalesce({}, '')").format(text) if field.nullable else text


def without_formula(text: Composable, pattern: str = FORMULA) -> Composed:
    """Return the text, with ' before a beginning that a spreadsheet would run as a formula, so that an import can remove it."""
    # none is a letter of ASCII, with which most texts begin
    return SQL("""case when ({0} collate "C" < 'A' or {0} collate "C" > 'z') and {0} ~ {1} then '''' || {0} else {0} end""").format(
        text, Literal(f"^{pattern}")
    )


# Text -----------------------------------------------------------------------------------------------------------------------------


def row_column(parts: Sequence[Composable]) -> Composed:
    """Return the one output column of a line, from its parts."""
    return SQL("{} as row").format(concatenated(parts))


def concatenated(parts: Sequence[Composable]) -> Composed:
    return SQL(" || ").join([SQL("({})").format(part) if isinstance(part, Composed) else part for part in parts])


def escaped(text: Composable, line_ends: Mapping[str, str] = LINE_ENDS) -> Composable:
    """Return the text escaped for XML or HTML; characters that XML cannot hold become U+FFFD."""
    plain = with_entities(text)
    return SQL("case when {} ~ {} then {} else {} end").format(text, Literal(UNSAFE), without_controls(plain, line_ends), plain)


def with_entities(text: Composable) -> Composed:
    """Return the text with & < > escaped."""
    return SQL("replace(replace(replace({}, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')").format(text)


def without_controls(text: Composable, line_ends: Mapping[str, str]) -> Composed:
    """Return an escaped text with its line ends written as in `line_ends`, its other control characters as U+FFFD."""
    result = SQL("translate({}, {}, {})").format(text, Literal(CONTROLS), Literal("\ufffd" * len(CONTROLS)))
    for character, reference in line_ends.items():
        result = SQL("replace({}, {}, {})").format(result, Literal(character), Literal(reference))
    return result
