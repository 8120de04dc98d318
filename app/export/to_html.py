"""A page with a table for people: easy on the eye, and with its header again on each sheet of paper."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from html import escape

from app.export.forms import Html
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import Member, plan_lines
from app.query.tree import NUMBERS

WIDE = 8  # columns from which a sheet of paper lies on its side
VERY_WIDE = 14  # and is A3

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


async def write(asked: Asked, reader: Reader, now: datetime) -> AsyncGenerator[bytes, None]:
    """The page.  now: the time it says that it was made at."""
    plan = plan_lines(asked.query)
    yield _head(asked, plan.members, now).encode()
    async for block in reader.lines(asked, Html(), plan):
        yield block
    yield b"</tbody>\n</table>\n</body>\n</html>\n"


def _head(asked: Asked, members: Sequence[Member], now: datetime) -> str:
    title = f"{asked.entity.name} · {asked.company}"
    names = "".join(f'<th scope="col">{escape(member.name)}</th>' for member in members)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}{_paper(members)}{_alignment(members)}</style>\n'
        f"</head>\n<body>\n<h1>{escape(asked.entity.name)}</h1>\n<p>{escape(described(asked, now))}</p>\n"
        f"<table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n"
    )


def described(asked: Asked, now: datetime) -> str:
    """What the table is of, and when."""
    about = asked.entity.description
    return " · ".join([*([about] if about else []), asked.company, f"{now:%Y-%m-%d %H:%M} UTC"])


def _paper(members: Sequence[Member]) -> str:
    size = "A4" if len(members) < WIDE else "A4 landscape" if len(members) < VERY_WIDE else "A3 landscape"
    return PAPER % size


def _alignment(members: Sequence[Member]) -> str:
    """Numbers to the right; none of them, no date and no time is broken."""
    cells = [f"{cell}:nth-child({n})" for n, each in enumerate(members, 1) if is_number(each) for cell in ("th", "td")]
    short = [f"td:nth-child({n})" for n, each in enumerate(members, 1) if each.type != "text"]
    rules = f"{', '.join(cells)} {{ text-align: right; }}\n" if cells else ""
    return rules + (f"{', '.join(short)} {{ white-space: nowrap; }}\n" if short else "")


def is_number(member: Member) -> bool:
    return member.type in NUMBERS and member.lookup is None
