"""HTML: a page with one table, made to be read and printed: its header is repeated on each sheet of paper."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from html import escape

from psycopg.sql import Composable, Literal

from app.export import content
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import LINE_ENDS, PLAIN, escaped, or_empty, row_column, text_of
from app.export.shape import ExportField
from app.query.check.tree import NUMBERS

LANDSCAPE = 8  # columns from which the paper is in landscape format
A3 = 14  # columns from which it is A3

STYLE = """
:root { color-scheme: light; }
body { margin: 2rem; background: #fff; color: #1b1f24; font: 14px/1.45 system-ui, "Segoe UI", "Noto Sans", sans-serif; }
h1 { margin: 0; font-size: 1.4rem; }
p { margin: .15rem 0 1rem; color: #59636e; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: start; vertical-align: top; overflow-wrap: anywhere; min-width: 3ch; max-width: 60ch; }
td { unicode-bidi: plaintext; }
th { position: sticky; top: 0; background: #f3f5f7; border-bottom: 2px solid #c8d0d8; font-weight: 600; white-space: nowrap; }
td { border-bottom: 1px solid #e4e8ec; }
tbody tr:nth-child(even) { background: #fafbfc; }
@media print {
  body { margin: 0; font-size: 8pt; line-height: 1.3; }
  table { width: 100%; }
  thead { display: table-header-group; }
  th { position: static; white-space: normal; overflow-wrap: normal; }
  th, td { padding: 1.2mm 1.5mm; }
  tr { break-inside: avoid; }
  * { print-color-adjust: exact; }
}
"""
PAPER = """
@page { size: %s; margin: 12mm 10mm 14mm; @bottom-right { content: counter(page) " / " counter(pages); font: 8pt sans-serif; } }
"""


class HtmlLines:
    """Rows of the table."""

    copy = PLAIN

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = [Literal("<tr>")]
        for field, column in zip(fields, columns, strict=True):
            text = text_of(field, column, shown=True)
            text = escaped(text, LINE_ENDS | {"\n": "<br>"}) if field.type == "text" else text
            parts += [Literal("<td>"), or_empty(field, text), Literal("</td>")]
        return row_column([*parts, Literal("</tr>")])


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the page."""
    yield _head(export, content.columns(export).fields).encode()
    async for block in reader.lines(export, HtmlLines()):
        yield block
    yield b"</tbody>\n</table>\n</body>\n</html>\n"


def _head(export: ExportRequest, fields: Sequence[ExportField]) -> str:
    title = f"{export.entity.name} · {export.company}"
    names = "".join(f'<th scope="col">{escape(field.name)}</th>' for field in fields)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}{_paper(fields)}{_alignment(fields)}</style>\n'
        f"</head>\n<body>\n<h1>{escape(export.entity.name)}</h1>\n<p>{escape(subtitle(export))}</p>\n"
        f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n"
    )


def subtitle(export: ExportRequest) -> str:
    """Return the line below the title: the entity's description, the company, the time, and which rows these are."""
    parts = (export.entity.description, export.company, f"{export.now:%Y-%m-%d %H:%M} UTC", export.restriction)
    return " · ".join(part for part in parts if part)


def _paper(fields: Sequence[ExportField]) -> str:
    size = "A4" if len(fields) < LANDSCAPE else "A4 landscape" if len(fields) < A3 else "A3 landscape"
    return PAPER % size


def _alignment(fields: Sequence[ExportField]) -> str:
    """Return the rules that align numbers to the right and keep every value but text on one line."""
    numbers = [f"{cell}:nth-child({n})" for n, field in enumerate(fields, 1) if is_number(field) for cell in ("th", "td")]
    unbroken = [f"td:nth-child({n})" for n, field in enumerate(fields, 1) if field.type != "text"]
    rules = f"{', '.join(numbers)} {{ text-align: right; }}\n" if numbers else ""
    return rules + (f"{', '.join(unbroken)} {{ white-space: nowrap; }}\n" if unbroken else "")


def is_number(field: ExportField) -> bool:
    return field.type in NUMBERS and field.lookup is None
