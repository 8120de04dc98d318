"""Fonts for any text: the main one, and for what it lacks those that have it, of the packages first and then of the machine.

Texts are measured and broken here by the widths of their characters, for most of them need nothing more; what has to be shaped
(Arabic, Indic scripts, marks that join) or is in another font is left to the PDF library, line by line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fontTools.ttLib import TTFont
from fpdf import FPDF

MAIN = "NotoSans[wght].ttf"
PACKAGES = ("manimgx_fonts", "noto_cjk_sans_otc")
MACHINE = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts", "/Library/Fonts", "C:/Windows/Fonts")
SUFFIXES = (".ttf", ".otf", ".ttc")
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # for what no font has
EMPTY = ("Cc", "Cf", "Cs", "Mn", "Me")  # categories of characters without a width, or with a meaning for shaping
TAB = "    "

IDEOGRAPHS = "\u2e80-\u2fdf\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
NOT_LAST = "（「『【〔〈《｛［"  # of a line
NOT_FIRST = "）」』】〕〉》｝］、。，．・：；？！ー々ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ…‥゛゜,.:;?!)\\]}%"
IDEOGRAPHIC = re.compile(f"[{IDEOGRAPHS}]")
MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"
UNIT = re.compile(f"[{NOT_LAST}]*(?:[{IDEOGRAPHS}][{MARKS}]*|[^{IDEOGRAPHS}{NOT_LAST}]+)[{NOT_FIRST}]*|.", re.DOTALL)


class Typeface:
    """The fonts that some texts need.  Widths are in em."""

    def __init__(self, texts: Iterable[str]) -> None:
        characters: set[str] = set().union(*map(set, texts))
        main = _font_files()[0]
        glyphs, widths = _metrics(main)
        self._main = main
        self._others: list[Path] = []
        self._widths = {c: widths[glyphs[ord(c)]] for c in characters | {UNKNOWN, " "} if ord(c) in glyphs}
        self._plain = {c for c in self._widths if unicodedata.category(c) not in EMPTY and not unicodedata.combining(c)}
        missing = {c for c in characters - self._widths.keys() if unicodedata.category(c) not in EMPTY and c not in "\t\n\r"}
        for path in _font_files()[1:]:
            if not missing:
                break
            missing -= self._use(path, missing)
        self._missing = str.maketrans(dict.fromkeys(missing, UNKNOWN))

    def _use(self, path: Path, missing: set[str]) -> set[str]:
        """Take a font for the characters of those missing that it has."""
        try:
            glyphs, widths = _metrics(path)
        except Exception:  # a font of the machine may be broken in any way
            return set()
        found = {c for c in missing if ord(c) in glyphs}
        if found:
            self._others.append(path)
            self._widths |= {c: widths[glyphs[ord(c)]] for c in found}
        return found

    def load(self, pdf: FPDF) -> None:
        """Make the fonts known to a document."""
        pdf.add_font("main", fname=self._main)
        for number, path in enumerate(self._others):
            pdf.add_font(f"other{number}", fname=path, collection_font_number=0)
        pdf.set_fallback_fonts([f"other{number}" for number in range(len(self._others))], exact_match=False)

    def size(self, pdf: FPDF, points: float) -> None:
        pdf.set_font("main", size=points)

    # Texts

    def cleaned(self, text: str) -> str:
        """A text of characters that can be drawn."""
        if text.isascii() and text.isprintable():
            return text
        text = unicodedata.normalize("NFC", text)  # marks on their letters, where there are such letters
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", TAB).translate(self._missing)
        return "".join(UNKNOWN if c != "\n" and unicodedata.category(c) == "Cc" else c for c in text)

    def width(self, line: str) -> float:
        widths = self._widths
        try:
            return sum([widths[c] for c in line])
        except KeyError:
            return sum(widths.get(c, 0.0) for c in line)

    def broken(self, text: str, width: float) -> list[str]:
        """The text in lines of at most `width` em, at spaces where it can be."""
        if "\n" not in text and self.width(text) <= width:
            return [text]
        return [line for paragraph in text.split("\n") for line in self._lines(paragraph, width)]

    def _lines(self, text: str, width: float) -> Iterator[str]:
        line, used = "", 0.0
        for number, word in enumerate(text.split(" ")):
            space = " " if number else ""
            for unit in _units(word):
                more = self.width(space + unit)
                if used + more <= width:
                    line, used, space = line + space + unit, used + more, ""
                    continue
                if line:
                    yield line
                *full, line = self._pieces(unit, width)
                yield from full
                used, space = self.width(line), ""
        yield line

    def _pieces(self, word: str, width: float) -> Iterator[str]:
        """A word in pieces that fit, not cut before a mark that belongs to the character before it."""
        piece, used = "", 0.0
        for character in word:
            more = self._widths.get(character, 0.0)
            if piece and used + more > width and unicodedata.category(character) not in EMPTY:
                yield piece
                piece, used = "", 0.0
            piece, used = piece + character, used + more
        yield piece

    # Drawing

    def draw(self, pdf: FPDF, line: str, x: float, y: float, width: float, height: float, right: bool) -> None:
        """A line inside a cell; numbers, and scripts that run so, to the right.  Sizes in mm, of the font's size set last."""
        em = pdf.font_size
        if self._plain.issuperset(line):
            pdf.text(x + max(0.0, width - self.width(line) * em) if right else x, y + em, line)
            return
        pdf.set_xy(x, y)
        self.cell(pdf, line, width, height, "R" if right or runs_left(line) else "L")

    def cell(self, pdf: FPDF, line: str, width: float, height: float, align: str) -> None:
        """A line that may need shaping and other fonts."""
        pdf.set_text_shaping(True)
        pdf.c_margin = 0
        pdf.cell(width, height, line, align=align)
        pdf.set_text_shaping(False)


def _units(word: str) -> list[str]:
    """What of a word stays on one line: in Chinese and Japanese a character, with the punctuation that belongs to it."""
    return UNIT.findall(word) if not word.isascii() and IDEOGRAPHIC.search(word) else [word]


def runs_left(text: str) -> bool:
    """Whether the first character with a direction runs to the left."""
    first = next((d for d in map(unicodedata.bidirectional, text) if d in ("L", "R", "AL")), "L")
    return first != "L"


@cache
def _font_files() -> tuple[Path, ...]:
    """Font files, the main one first."""
    packaged = [path for package in PACKAGES for path in sorted(_folder(package).iterdir()) if path.suffix in SUFFIXES]
    main = next(path for path in packaged if path.name == MAIN)
    upright = [path for path in packaged if path != main and "Italic" not in path.name]
    machine = [
        path for folder in MACHINE for path in sorted(Path(folder).expanduser().rglob("*")) if path.suffix.lower() in SUFFIXES
    ]
    return (main, *upright, *machine)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is among the requirements"
    return Path(spec.origin).parent


def _metrics(path: Path) -> tuple[dict[int, str], dict[str, float]]:
    """Glyphs by code point, and their widths in em; none of a font without outlines."""
    with TTFont(path, fontNumber=0, lazy=True) as font:
        if "glyf" not in font and "CFF " not in font:
            return {}, {}
        em = font["head"].unitsPerEm
        glyphs: dict[int, str] = font.getBestCmap() or {}
        advances = font["hmtx"].metrics
        return glyphs, {name: advances[name][0] / em for name in set(glyphs.values())}
