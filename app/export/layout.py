"""Lays a table out on pages: `python -m app.export.layout` reads lines of JSON, a description and then the rows, and writes a PDF.

Columns get the width that their texts need.  If A4 is too narrow, the paper becomes A4 landscape, then A3 landscape; then long
texts are wrapped.  A table that is still too wide is cut into parts that follow one another; each repeats the first column.

Columns of the description that are `above` stand once above the rows that have the same values there: a parent above its children.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fpdf import FPDF

from app import child
from app.export.typeface import Typeface

SIZE = 7.5  # points of the text
EM = SIZE * 25.4 / 72  # mm
LINE = EM * 1.32  # mm from one line to the next
PAD = 1.3  # mm to the left and right of a cell's text
GAP = 0.8  # mm above and below it
MARGIN, TOP, BOTTOM = 11.0, 21.0, 13.0  # mm
ABOUT_LINES, HEADING_LINES = 4, 6  # at most
CONTINUED = "(continued)"
COMFORTABLE, NARROW, LEAST = 48.0, 22.0, 9.0  # mm of a column: before its texts are wrapped, wrapped, at least
PAPERS = ((210.0, 297.0), (297.0, 210.0), (420.0, 297.0))  # mm
INK, PALE, RULE, SHADE = (27, 31, 36), (96, 104, 114), (214, 219, 225), (241, 243, 246)

Row = list[str]


@dataclass(frozen=True, slots=True)
class PageColumn:
    name: str
    number: bool
    width: float  # mm, with its padding
    index: int  # of its value in a row


@dataclass(frozen=True, slots=True)
class TablePart:
    """Columns that fit beside each other on a page."""

    columns: tuple[PageColumn, ...]
    about: str


def main() -> None:
    child.begin()
    description = json.loads(sys.stdin.buffer.readline())
    rows = [[value if value is not None else "" for value in json.loads(line)] for line in sys.stdin.buffer]
    sys.stdout.buffer.write(render_pdf(description, rows))


def render_pdf(description: dict[str, Any], rows: Sequence[Row]) -> bytes:
    """Return the PDF of a table."""
    names = [column["name"] for column in description["columns"]]
    face = Typeface(_texts(description, names, rows))
    rows = [[face.drawable(text) for text in row] for row in rows]
    above = [n for n, column in enumerate(description["columns"]) if column.get("above")]
    below = [n for n in range(len(names)) if n not in above]
    paper, parts = arrange(face, description["columns"], rows, below)
    headings = [" · ".join(f"{names[n]} {row[n]}" for n in above if row[n]) for row in rows] if above else None
    return Pages(face, paper, description).table(parts, rows, headings)


def _texts(description: dict[str, Any], names: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    yield from (description["title"], description["about"], "·", CONTINUED, *names)
    for row in rows:
        yield from row


# Widths ---------------------------------------------------------------------------------------------------------------------------


def arrange(
    face: Typeface, columns: Sequence[dict[str, Any]], rows: Sequence[Row], shown: Sequence[int] | None = None
) -> tuple[tuple[float, float], list[TablePart]]:
    """Return the size of the paper, and the parts of the table with the widths of their columns.  shown: all by default."""
    shown = range(len(columns)) if shown is None else shown
    natural = [_natural(face, columns[n]["name"], [row[n] for row in rows]) for n in shown]
    for paper in PAPERS:
        available = paper[0] - 2 * MARGIN
        if sum(min(width, COMFORTABLE) for width in natural) <= available:
            return paper, [_part(columns, shown, _fit(natural, available), "")]
    paper = PAPERS[-1]
    available = paper[0] - 2 * MARGIN
    if sum(min(width, NARROW) for width in natural) <= available:
        return paper, [_part(columns, shown, _fit(natural, available), "")]
    groups = _groups([min(width, COMFORTABLE) for width in natural], available)
    parts = []
    for number, group in enumerate(groups, 1):
        widths = _fit([natural[n] for n in group], available)
        first = 1 if number == 1 else group[1] + 1
        parts.append(
            _part(columns, [shown[n] for n in group], widths, f"part {number} of {len(groups)}: columns {first} to {group[-1] + 1}")
        )
    return paper, parts


def _natural(face: Typeface, name: str, texts: Sequence[str]) -> float:
    """Return the width that a column needs to wrap no text, in mm."""
    longest = max((face.width(line) for text in texts for line in text.split("\n")), default=0.0)
    return max(face.width(name), longest, LEAST / EM) * EM + 2 * PAD + 0.1


def _fit(natural: Sequence[float], available: float) -> list[float]:
    """Return widths whose sum is available: all columns above a common limit are cut to it."""
    if sum(natural) <= available:
        return list(natural)
    low, high = 0.0, max(natural)
    for _ in range(40):
        limit = (low + high) / 2
        low, high = (limit, high) if sum(min(width, limit) for width in natural) <= available else (low, limit)
    return [min(width, low) for width in natural]


def _groups(widths: Sequence[float], available: float) -> list[list[int]]:
    """Return groups of columns that fit beside each other, with the first column in each."""
    groups, used = [[0]], widths[0]
    for number, width in enumerate(widths[1:], 1):
        if used + width > available and len(groups[-1]) > 1:
            groups.append([0])
            used = widths[0]
        groups[-1].append(number)
        used += width
    return groups


def _part(columns: Sequence[dict[str, Any]], group: Sequence[int], widths: Sequence[float], about: str) -> TablePart:
    return TablePart(
        tuple(PageColumn(columns[n]["name"], columns[n]["number"], width, n) for n, width in zip(group, widths, strict=True)), about
    )


# Pages ----------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Pages:
    """A PDF under construction."""

    face: Typeface
    paper: tuple[float, float]
    description: dict[str, Any]
    pdf: FPDF = field(init=False)
    y: float = 0.0  # mm, of the top of the next row
    top: float = TOP  # mm, where the table begins on each page
    heading: str = ""  # of the rows that are drawn

    def table(self, parts: Sequence[TablePart], rows: Sequence[Row], headings: Sequence[str] | None = None) -> bytes:
        """Return the PDF of a table.  headings: of each row; it is drawn where it changes, and a row without texts is not."""
        self.pdf = FPDF(format=(min(self.paper), max(self.paper)), orientation="L" if self.paper[0] > self.paper[1] else "P")
        self.pdf.set_auto_page_break(False)
        self.pdf.set_title(self.description["title"])
        self.pdf.set_lang("en")
        self.face.load(self.pdf)
        for part in parts:
            self.heading = ""
            self.start_page(part)
            for number, row in enumerate(rows):
                if headings and headings[number] != self.heading:
                    self.heading = headings[number]
                    self.draw_heading(part, self.heading)
                if not headings or any(row[column.index] for column in part.columns):
                    self.row(part, [row[column.index] for column in part.columns])
        return bytes(self.pdf.output())

    @property
    def bottom(self) -> float:
        return self.paper[1] - BOTTOM

    def start_page(self, part: TablePart) -> None:
        """Start a page with a title, the page's number and the table's header."""
        pdf = self.pdf
        pdf.add_page()
        pdf.set_text_color(*INK)
        self.face.size(pdf, 12)
        pdf.text(MARGIN, 12.5, self.description["title"])
        self.face.size(pdf, SIZE)
        pdf.set_text_color(*PALE)
        pdf.set_xy(MARGIN, 14)
        about = " · ".join(filter(None, (self.description["about"], part.about)))
        width = self.paper[0] - 2 * MARGIN
        lines = self.face.wrap(self.face.drawable(about), width / EM)
        for number, line in enumerate(lines[:ABOUT_LINES]):
            pdf.set_xy(MARGIN, 14 + number * LINE)
            self.face.cell(pdf, line, width, LINE, "L")
        pdf.set_xy(MARGIN, self.paper[1] - 10)
        pdf.cell(self.paper[0] - 2 * MARGIN, LINE, f"{pdf.page_no()} / {{nb}}", align="R")
        self.y = self.top = TOP + (min(len(lines), ABOUT_LINES) - 1) * LINE
        self.header(part)
        if self.heading:
            self.draw_heading(part, f"{self.heading} {CONTINUED}")

    def header(self, part: TablePart) -> None:
        pdf = self.pdf
        lines = [self.face.wrap(column.name, (column.width - 2 * PAD) / EM) for column in part.columns]
        height = max(map(len, lines)) * LINE + 2 * GAP
        pdf.set_fill_color(*SHADE)
        pdf.rect(MARGIN, self.y, sum(column.width for column in part.columns), height, style="F")
        pdf.set_text_color(*INK)
        self.cells(part, lines, 0, max(map(len, lines)))
        self.y += height
        self.rule(part, 0.35)

    def draw_heading(self, part: TablePart, text: str) -> None:
        """Draw what stands above the rows that follow, on a page that has space for it and a row."""
        width = self.paper[0] - 2 * MARGIN
        lines = self.face.wrap(text, (width - 2 * PAD) / EM)[:HEADING_LINES]
        height = len(lines) * LINE + 2 * GAP
        if self.y + height + LINE + 2 * GAP > self.bottom and self.y > self.top + 20:
            self.heading = ""
            self.start_page(part)
            self.heading = text
        self.pdf.set_fill_color(*SHADE)
        self.pdf.rect(MARGIN, self.y + GAP, width, height, style="F")
        self.pdf.set_text_color(*INK)
        for number, line in enumerate(lines):
            self.face.draw(self.pdf, line, MARGIN + PAD, self.y + 2 * GAP + number * LINE, width - 2 * PAD, LINE, False)
        self.y += height + GAP

    def row(self, part: TablePart, texts: Row) -> None:
        """Draw a row: on the next page if this one has too little space, on several if it is higher than a page."""
        lines = [self.face.wrap(t, (c.width - 2 * PAD) / EM) for t, c in zip(texts, part.columns, strict=True)]
        total = max(map(len, lines))
        if self.y + total * LINE + 2 * GAP > self.bottom and self.y > self.top + 20:
            self.start_page(part)
        done = 0
        while done < total:
            fitting = max(1, int((self.bottom - self.y - 2 * GAP) / LINE))
            self.cells(part, lines, done, min(total, done + fitting))
            self.y += min(total - done, fitting) * LINE + 2 * GAP
            done += fitting
            if done < total:
                self.start_page(part)
        self.rule(part, 0.1)

    def cells(self, part: TablePart, lines: Sequence[Sequence[str]], first: int, last: int) -> None:
        """Draw the lines from `first` to before `last` of the cells of a row."""
        x = MARGIN
        for column, each in zip(part.columns, lines, strict=True):
            for number, line in enumerate(each[first:last]):
                y = self.y + GAP + number * LINE
                if line:
                    self.face.draw(self.pdf, line, x + PAD, y, column.width - 2 * PAD, LINE, column.number)
            x += column.width

    def rule(self, part: TablePart, width: float) -> None:
        self.pdf.set_draw_color(*RULE)
        self.pdf.set_line_width(width)
        self.pdf.line(MARGIN, self.y, MARGIN + sum(column.width for column in part.columns), self.y)


if __name__ == "__main__":
    main()
