"""Lays HTML out on pages, for templates of the media type application/pdf.

The PDF library understands headings, paragraphs, lists, tables, links, <b>, <i>, <u>, <font>, <hr>, <br> and <pre>; no styles.
Images are left out: the library would read files and addresses that a template names.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib.instancer import instantiateVariableFont
from fpdf import FPDF, TextStyle
from fpdf.html import HTML2FPDF

from app.export.typeface import UNKNOWN, Typeface, packaged_fonts

SIZE, MARGIN = 10, 15  # points, mm
PALE = (96, 104, 114)
BOLD = re.compile(r"<(?:b|strong|h[1-6]|th|dt)\b", re.IGNORECASE)


class Markup(HTML2FPDF):
    """HTML without images."""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "img":
            super().handle_starttag(tag, attrs)


class Document(FPDF):
    """Pages with their numbers."""

    HTML2FPDF_CLASS = Markup

    def footer(self) -> None:
        self.set_y(-MARGIN + 4)
        self.set_font("main", size=8)
        self.set_text_color(*PALE)
        self.cell(0, 4, f"{self.page_no()} / {{nb}}", align="R")


def lay_out(html: str) -> bytes:
    """Return the PDF of a page of HTML.  Raises ValueError for what the library cannot lay out."""
    face = Typeface([html, "0123456789 /•"])
    pdf = Document(format="A4")
    pdf.set_margin(MARGIN)
    pdf.set_lang("en")
    face.load(pdf)
    text, main = face.drawable(html), packaged_fonts()[0]
    with tempfile.NamedTemporaryFile(suffix=".ttf") as bold:
        if BOLD.search(html):
            _bold(main, text).save(bold)
            bold.flush()
        for style in ("B", "I", "BI"):
            pdf.add_font("main", style, fname=Path(bold.name) if style != "I" and BOLD.search(html) else main)
        pdf.set_font("main", size=SIZE)
        pdf.set_text_shaping(face.needs_shaping(text))
        pdf.add_page()
        plain = TextStyle(font_family="main")
        try:
            pdf.write_html(text, font_family="main", tag_styles={"pre": plain, "code": plain})
            return bytes(pdf.output())
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"the HTML of the template cannot be laid out: {error or type(error).__name__}") from None


def _bold(main: Path, text: str) -> TTFont:
    """The bold letters of a text.  Those of the whole font would take seconds to make."""
    font = TTFont(main)
    options = subset.Options(layout_features=[], drop_tables=["GSUB", "GPOS", "GDEF"], notdef_outline=True)
    letters = subset.Subsetter(options)
    letters.populate(text=text + UNKNOWN)
    letters.subset(font)
    return instantiateVariableFont(font, {"wght": 700})
