"""The child that reads a workbook: standard input is the file, standard output the frames of its rows."""

from __future__ import annotations

import json
import os
import sys
from zipfile import BadZipFile

from app import child
from app.errors import ServiceError
from app.mapper.workbook.container import Container
from app.mapper.workbook.frames import Row, pack
from app.mapper.workbook.sheet import SheetReader
from app.mapper.workbook.styles import read_styles
from app.mapper.workbook.texts import SharedTexts, read_texts

MEMORY = 320 << 20  # bytes of address space, of which the interpreter takes some 40 MB
FRAME_ROWS, FRAME_SIZE = 1_000, 256 << 10  # rows, and characters, after which a frame is written
WORKBOOK = "expected an Excel workbook (.xlsx)"


def main() -> None:
    (arguments,) = child.begin(memory=MEMORY)
    try:
        read(**json.loads(arguments))
    except ServiceError as error:
        child.fail(error.message, code=error.code, **error.more)
    except MemoryError:
        child.fail(f"the workbook needs more than {MEMORY >> 20} MB of memory to be read", code="too_large")
    except BadZipFile as error:
        reason = "which is a zip file" if str(error) == "File is not a zip file" else f"got a damaged zip file: {error}"
        child.fail(f"{WORKBOOK}, {reason}", code="malformed_document")
    except BrokenPipeError:
        os._exit(1)  # the parent reads no more
    except Exception as error:  # zipfile, zlib and expat raise what a file makes them raise
        child.fail(f"{WORKBOOK}, got a file that cannot be read ({type(error).__name__})", code="malformed_document")


def read(sheet: str | None, goes_on: bool, limit: int) -> None:
    """Write the rows of a sheet.  sheet: its name, None: the first; goes_on: with the sheets of an export that goes on there."""
    book = Container(sys.stdin.buffer, limit)
    chosen = book.chosen(sheet, goes_on=goes_on)
    texts = read_texts(book.part(book.texts)) if book.texts else SharedTexts()
    styles = read_styles(book.part(book.styles)) if book.styles else []
    for each in chosen:
        frames = Frames()
        SheetReader(book.part(each.part), texts, styles, frames.add, is_1904=book.is_1904).read()
        frames.write()


class Frames:
    """Collects the rows of a sheet and writes them in frames."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._size = 0
        sys.stdout.buffer.write(pack(None))

    def add(self, row: Row, size: int) -> None:
        self._rows.append(row)
        self._size += size
        if len(self._rows) >= FRAME_ROWS or self._size >= FRAME_SIZE:
            self.write()

    def write(self) -> None:
        if self._rows:
            sys.stdout.buffer.write(pack(self._rows))
        sys.stdout.buffer.flush()
        self._rows, self._size = [], 0


if __name__ == "__main__":
    main()
