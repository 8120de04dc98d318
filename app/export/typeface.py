"""Fonts for any text: a main font, and for characters that it lacks those of the installed packages, then of the machine.

Most texts are measured, wrapped and drawn here by the widths of their characters.  Lines that need shaping (Arabic, Indic scripts,
joining marks) or another font are drawn by the PDF library, which takes longer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fontTools.ttLib import TTFont
from fpdf import FPDF

MAIN = "NotoSans[wght].ttf"
PACKAGES = ("manimgx_fonts", "noto_cjk_sans_otc")
MACHINE = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts", "/Library/Fonts", "C:/Windows/Fonts")
SUFFIXES = (".ttf", ".otf", ".ttc")
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # drawn for a character that no font has
EMPTY = ("Cc", "Cf", "Cs", "Mn", "Me")  # categories of characters that have no width or only direct the shaping
MARKED = ("Mn", "Mc", "Me")  # categories of characters that are placed by another one
TAB = "    "

IDEOGRAPHS = "\u2e80-\u2fdf\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
NOT_LAST = "（「『【〔〈《｛［"  # of a line
NOT_FIRST = "）」』】〕〉》｝］、。，．・：；？！ー々ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ…‥゛゜,.:;?!)\\]}%"
IDEOGRAPHIC = re.compile(f"[{IDEOGRAPHS}]")
MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"
UNIT = re.compile(f"[{NOT_LAST}]*(?:[{IDEOGRAPHS}][{MARKS}]*|[^{IDEOGRAPHS}{NOT_LAST}]+)[{NOT_FIRST}]*|.", re.DOTALL)


class Typeface:
    """The fonts that some texts need.  Widths are in em.

    fonts: files to choose from, the main font first; without them, those of the packages and of the machine.
    """

    def __init__(self, texts: Iterable[str], fonts: Sequence[Path] | None = None) -> None:
        characters: set[str] = set().union(*map(set, texts))
        main, *others = fonts or (*packaged_fonts(), *machine_fonts())
        glyphs, widths = _metrics(main)
        self._main = main
        self._others: list[Path] = []
        self._widths = {c: widths[glyphs[ord(c)]] for c in characters | {UNKNOWN, " "} if ord(c) in glyphs}
        self._plain = {c for c in self._widths if unicodedata.category(c) not in EMPTY and not unicodedata.combining(c)}
        missing = {c for c in characters - self._widths.keys() if unicodedata.category(c) not in EMPTY and c not in "\t\n\r"}
        for path in others:
            if not missing:
                break
            missing -= self._use(path, missing)
        self._missing = str.maketrans(dict.fromkeys(missing, UNKNOWN))

    def _use(self, path: Path, missing: set[str]) -> set[str]:
        """Use a font for the missing characters that it has; return these."""
        try:
            glyphs, widths = _metrics(path)
        except Exception:  # a font of the machine can be damaged in any way
            return set()
        found = {c for c in missing if ord(c) in glyphs}
        if found:
            self._others.append(path)
            self._widths |= {c: widths[glyphs[ord(c)]] for c in found}
        return found

    def load(self, pdf: FPDF) -> None:
        """Add the fonts to a document."""
        pdf.add_font("main", fname=self._main)
        for number, path in enumerate(self._others):
            pdf.add_font(f"other{number}", fname=path, collection_font_number=0)
        pdf.set_fallback_fonts([f"other{number}" for number in range(len(self._others))], exact_match=False)

    def size(self, pdf: FPDF, points: float) -> None:
        pdf.set_font("main", size=points)

    # Texts

    def drawable(self, text: str) -> str:
        """Return the text with UNKNOWN for characters that cannot be drawn."""
        if text.isascii() and text.isprintable():
            return text
        text = unicodedata.normalize("NFC", text)  # a letter and its marks as one character, where Unicode has it
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", TAB).translate(self._missing)
        return "".join(UNKNOWN if c != "\n" and unicodedata.category(c) == "Cc" else c for c in text)

    def needs_shaping(self, text: str) -> bool:
        """Whether characters of the text are joined, combined or written from right to left."""
        return any(unicodedata.bidirectional(c) in ("R", "AL") or unicodedata.category(c) in MARKED for c in set(text))

    def width(self, line: str) -> float:
        widths = self._widths
        try:
            return sum([widths[c] for c in line])
        except KeyError:
            return sum(widths.get(c, 0.0) for c in line)

    def wrap(self, text: str, width: float) -> list[str]:
        """Return the lines of a text, each at most `width` em wide, broken at spaces where possible."""
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
        """Yield a word in pieces that fit; a mark stays with the character before it."""
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
        """Draw a line in a cell, in the font size set last; right-to-left scripts are aligned to the right.  Lengths in mm."""
        em = pdf.font_size
        if self._plain.issuperset(line):
            pdf.text(x + max(0.0, width - self.width(line) * em) if right else x, y + em, line)
            return
        pdf.set_xy(x, y)
        self.cell(pdf, line, width, height, "R" if right or is_right_to_left(line) else "L")

    def cell(self, pdf: FPDF, line: str, width: float, height: float, align: str) -> None:
        """Draw a line that may need shaping and other fonts."""
        pdf.set_text_shaping(True)
        pdf.c_margin = 0
        pdf.cell(width, height, line, align=align)
        pdf.set_text_shaping(False)


def _units(word: str) -> list[str]:
    """Return the parts of a word that stay on one line: in Chinese and Japanese each character, with its punctuation."""
    return UNIT.findall(word) if not word.isascii() and IDEOGRAPHIC.search(word) else [word]


def is_right_to_left(text: str) -> bool:
    """Whether the first character with a direction has this one."""
    first = next((d for d in map(unicodedata.bidirectional, text) if d in ("L", "R", "AL")), "L")
    return first != "L"


@cache
def packaged_fonts() -> tuple[Path, ...]:
    """Return the font files of the installed packages, the main font first."""
    files = [path for package in PACKAGES for path in sorted(_folder(package).iterdir()) if path.suffix in SUFFIXES]
    main = next(path for path in files if path.name == MAIN)
    return (main, *(path for path in files if path != main and "Italic" not in path.name))


@cache
def machine_fonts() -> tuple[Path, ...]:
    """Return the font files of the machine."""
    folders = [Path(folder).expanduser() for folder in MACHINE]
    return tuple(path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is among the requirements"
    return Path(spec.origin).parent


def _metrics(path: Path) -> tuple[dict[int, str], dict[str, float]]:
    """Return the glyphs by code point, and their widths in em; none for a font without outlines."""
    with TTFont(path, fontNumber=0, lazy=True) as font:
        if "glyf" not in font and "CFF " not in font:
            return {}, {}
        em = font["head"].unitsPerEm
        glyphs: dict[int, str] = font.getBestCmap() or {}
        advances = font["hmtx"].metrics
        return glyphs, {name: advances[name][0] / em for name in set(glyphs.values())}
