"""Texts of cells: read up to what a cell holds, and the table of those that cells share."""

from __future__ import annotations

import os
import re
import tempfile
from array import array
from typing import IO

from app.mapper.language.problems import source_error
from app.mapper.workbook.container import Part
from app.mapper.workbook.frames import LONGEST_CELL, TooLong

ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")  # stands for a character that XML does not hold
LONGEST_RAW = LONGEST_CELL * len("_x0000_")  # characters, if each is escaped
KEPT = 32 << 20  # characters of shared texts that stay in memory
LARGEST = 256 << 20  # bytes of all shared texts

Text = str | TooLong | None


class Collector:
    """Collects the text of a cell from its pieces, and keeps no more of it than a cell holds."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        if self._size <= LONGEST_RAW:
            self._pieces.append(piece)
        self._size += len(piece)

    def take(self) -> Text:
        """Return the text, None if it is empty; begin the next one."""
        pieces, size = self._pieces, self._size
        if not pieces:
            return None
        self._pieces, self._size = [], 0
        if size > LONGEST_RAW:
            return TooLong(size)
        text = pieces[0] if len(pieces) == 1 else "".join(pieces)
        if "_x" in text:
            text = (
                ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
        if len(text) > LONGEST_CELL // 2:
            units = len(text.encode("utf-16-le")) // 2
            if units > LONGEST_CELL:
                return TooLong(units)
        return text or None


class SharedTexts:
    """The texts of a workbook by number: the first ones in memory, the others in a temporary file."""

    def __init__(self) -> None:
        self._kept: list[Text] = []
        self._size = 0  # characters of the kept ones
        self._file: IO[bytes] | None = None
        self._ends = array("Q")  # of the texts in the file
        self._long: dict[int, TooLong] = {}

    def append(self, text: Text) -> None:
        if self._file is None and self._size < KEPT:
            self._kept.append(text)
            self._size += len(text) if isinstance(text, str) else 1
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115 lives as long as the process
        if isinstance(text, TooLong):
            self._long[len(self._ends)] = text
        data = text.encode() if isinstance(text, str) else b""
        self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
        if self._ends[-1] > LARGEST:
            raise source_error(f"the workbook has more than {LARGEST >> 20} MB of texts", code="invalid_document")
        self._file.write(data)

    def __getitem__(self, number: int) -> Text:
        if number < len(self._kept):
            return self._kept[number]
        number -= len(self._kept)
        if number in self._long:
            return self._long[number]
        end, start = self._ends[number], self._ends[number - 1] if number else 0
        assert self._file is not None
        self._file.flush()
        return os.pread(self._file.fileno(), end - start, start).decode() or None


def read_texts(part: Part) -> SharedTexts:
    """Read the table of texts that cells share.  Pronunciations (rPh) are left out."""
    texts, collector = SharedTexts(), Collector()
    spoken = 0

    def start(tag: str, _attributes: dict[str, str]) -> None:
        nonlocal spoken
        if tag == "t":
            part.parser.CharacterDataHandler = None if spoken else collector.add
        elif tag == "rPh":
            spoken += 1

    def end(tag: str) -> None:
        nonlocal spoken
        if tag == "t":
            part.parser.CharacterDataHandler = None
        elif tag == "rPh":
            spoken -= 1
        elif tag == "si":
            texts.append(collector.take())

    part.parse(start, end)
    return texts
