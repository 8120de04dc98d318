"""Excel cells: the rows of a worksheet as XML that PostgreSQL makes, with the cell formats that the workbook defines for them."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composable, Composed, Literal

from app.export.row_formats import (
    LINE_ENDS,
    PLAIN,
    UNSAFE,
    or_empty,
    row_column,
    text_of,
    with_entities,
    without_controls,
    without_formula,
)
from app.export.shape import ExportField
from app.mapper.exported import FORMULA
from app.mapper.workbook.frames import LONGEST_CELL
from app.types import TYPES, Cell, named

ROW_MARK = "\x03"  # stands for a row's number, which the workbook fills in
TOO_LONG = "\x04"  # stands for a text that a cell does not hold, before its length
NOT_BARE = f"(?:{FORMULA}|$)"  # an empty text gets a ', too, which tells it from null
EXACT = 15  # digits that a spreadsheet's number keeps


# XlsxWriter numbers cell formats in the order in which cells use them first: 0 is the default's number, 1 the header's.
CELL_FORMATS = [each.excel for each in TYPES.values() if each.excel and each.excel.picture]


def cell_format(field: ExportField) -> Cell | None:
    """The format of a field's cells; None for the default."""
    type = named(field.type)
    return type.excel if type.excel in CELL_FORMATS and (type.kind != "decimal" or field.column.field.scale) else None


class ExcelLines:
    """Rows of a worksheet, in cells of their types, with ROW_MARK for the number of the row."""

    copy = PLAIN

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = [Literal(f'<row r="{ROW_MARK}">')]
        for number, (field, column) in enumerate(zip(fields, columns, strict=True)):
            parts.append(or_empty(field, self.cell(f"{letters(number)}{ROW_MARK}", field, column)))
        return row_column([*parts, Literal("</row>")])

    def cell(self, name: str, field: ExportField, column: Composable) -> Composable:
        """Return a cell: a number where a spreadsheet holds the value exactly, else a text."""
        text = SQL("{} || {} || '</t></is></c>'").format(
            Literal(f'<c r="{name}" t="inlineStr"><is><t xml:space="preserve">'),
            cell_text(column) if field.type == "text" else bounded(text_of(field, column), not_empty(text_of(field, column))),
        )
        if field.type == "text":
            return text
        if field.type == "bool":
            return SQL("{} || {}::int || '</v></c>'").format(Literal(f'<c r="{name}" t="b"><v>'), column)
        number = cell_number(field, column)
        if number is None:
            return text
        value, is_exact = number
        format = cell_format(field)
        style = f' s="{2 + CELL_FORMATS.index(format)}"' if format else ""
        start = Literal(f'<c r="{name}"{style}><v>')
        return SQL("case when {} then {} || {} || '</v></c>' else {} end").format(is_exact, start, value, text)


def cell_text(text: Composable) -> Composed:
    """Return the text of a cell: without a formula, with an escape for what looks like one (_x000D_), or TOO_LONG."""
    safe = SQL("c.v")
    unusual = SQL("regexp_replace({}, '_(?=x[0-9A-Fa-f]{{4}}_)', '_x005F_', 'g')").format(with_entities(safe))
    return SQL(
        "case when octet_length({0}) >= {1} or {0} ~ {2} then (select {3} from (select {4} as v offset 0) as c) else {5} end"
    ).format(
        text,
        Literal(LONGEST_CELL),
        Literal(UNSAFE + "|_x[0-9A-Fa-f]{4}_"),
        bounded(safe, without_controls(unusual, LINE_ENDS)),
        without_formula(text, NOT_BARE),
        with_entities(without_formula(text, NOT_BARE)),
    )


def not_empty(text: Composable) -> Composed:
    """Return the text of a value of another type than text; for an empty one what tells it from null, as for texts."""
    return SQL("case when {0} = '' then {1} else {0} end").format(text, Literal("'"))


def bounded(text: Composable, written: Composable) -> Composed:
    """Return what is written for a text, or TOO_LONG with the text's length if a cell does not hold it."""
    # a character outside the basic plane takes two units
    units = SQL("(length({0}) + regexp_count({0}, {1}))").format(text, Literal("[\U00010000-\U0010ffff]"))
    return SQL("case when octet_length({0}) > {1} and {2} > {1} then {3} || {2} else {4} end").format(
        text, Literal(LONGEST_CELL), units, Literal(TOO_LONG), written
    )


def cell_number(field: ExportField, column: Composable) -> tuple[Composable, Composable] | None:
    """Return the value as a spreadsheet's number, and whether that is exact; None for a type without numbers."""
    type = named(field.type)
    if type.excel is None:
        return None
    exact, scale = type.excel.exact, field.column.field.scale
    if type.kind == "decimal" and scale is not None and 0 <= scale < EXACT:
        exact = f"{{0}} > -{10 ** (EXACT - scale)} and {{0}} < {10 ** (EXACT - scale)}"  # no abs: NaN is greater than any number
    return SQL(type.excel.value).format(column), SQL(exact).format(column)


def letters(number: int) -> str:
    """Return the name of a worksheet's column, counted from 0: A, ..., Z, AA, ..."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name
