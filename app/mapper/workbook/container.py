"""The zip file of a workbook: its parts as XML, the worksheets by name, and the parts that they refer to.

Only stored and deflated parts are read, in pieces, and at most as many bytes as an import may have.  XML with a document type
declaration is refused, so that no entity is ever expanded.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from app.errors import ServiceError
from app.mapper.language.problems import source_error
from app.mapper.sources.names import listed

PIECE = 64 << 10  # bytes of a part that are read at once
LARGEST_TOKEN = 1 << 20  # bytes of one tag or comment, which the parser would read anew with each piece
DEEPEST = 256  # elements inside each other
ENCRYPTED = 1  # flag of a zip's member
NAMESPACES = (
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
    "http://purl.oclc.org/ooxml/spreadsheetml/main",
    "http://schemas.openxmlformats.org/package/2006/relationships",
)
TAGS = ("workbookPr", "sheet", "Relationship", "numFmt", "cellXfs", "xf", "si", "t", "rPh", "row", "c", "v")
NAMES = {f"{namespace}}}{tag}": tag for namespace in NAMESPACES for tag in TAGS} | {tag: tag for tag in TAGS}

Start = Callable[[str, dict[str, str]], None]
End = Callable[[str], None]


class Part:
    """A part of the workbook."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count
        self.parser: Any = None  # while parse runs: its CharacterDataHandler gets the text

    def parse(self, start: Start, end: End) -> None:
        """Call start and end for the elements that this package reads.  Raises ServiceError, MemoryError."""
        parser = self.parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse
        name_of = NAMES.get
        depth = fed = 0

        def on_start(name: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth > DEEPEST:
                raise source_error(f"the workbook has more than {DEEPEST} elements inside each other", code="invalid_document")
            tag = name_of(name)
            if tag is not None:
                start(tag, attributes)

        def on_end(name: str) -> None:
            nonlocal depth
            depth -= 1
            tag = name_of(name)
            if tag is not None:
                end(tag)

        parser.StartElementHandler, parser.EndElementHandler = on_start, on_end
        try:
            with self._stream as stream:
                while data := stream.read(PIECE):
                    self._count(len(data))
                    parser.Parse(data)
                    fed += len(data)
                    if fed - parser.CurrentByteIndex > LARGEST_TOKEN:
                        raise source_error(
                            f"the workbook has a tag or a comment of more than {LARGEST_TOKEN >> 20} MB", code="invalid_document"
                        )
                parser.Parse(b"", True)
        except expat.ExpatError as error:
            if error.code == expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]:
                raise MemoryError from None
            raise source_error(f"{stream.name}, line {error.lineno}: {expat.ErrorString(error.code)}") from None


def _refuse(*_: Any) -> None:
    raise source_error("the workbook has a document type declaration, which is not allowed", code="invalid_document")


@dataclass(frozen=True, slots=True)
class Sheet:
    name: str
    part: str  # its name in the zip


class Container:
    """An open workbook.  limit: bytes that may be read of it, decompressed."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._zip = ZipFile(file)
        self._limit = limit
        self._left = limit
        self.is_1904 = False
        self.sheets: list[Sheet] = []
        book = next((part for kind, part in self._related("").values() if kind == "officeDocument"), "xl/workbook.xml")
        related = self._related(book)
        parts = dict(reversed(related.values()))  # of each kind the first
        self.texts, self.styles = parts.get("sharedStrings"), parts.get("styles")

        def start(tag: str, attributes: dict[str, str]) -> None:
            if tag == "workbookPr":
                self.is_1904 = attributes.get("date1904") in ("1", "true", "on")
            elif tag == "sheet":
                id = next((value for name, value in attributes.items() if name.endswith("}id")), "")
                kind, part = related.get(id, ("", ""))
                if kind == "worksheet":
                    self.sheets.append(Sheet(attributes.get("name", ""), part))

        self.part(book).parse(start, lambda tag: None)

    def chosen(self, name: str | None, *, goes_on: bool) -> list[Sheet]:
        """Return the sheet of a name, or else the first; goes_on: with those in which an export goes on, `products 2`, ..."""
        if name is not None:
            found = [sheet for sheet in self.sheets if sheet.name == name]
            if not found:
                names = listed(sheet.name for sheet in self.sheets)
                raise source_error(f"the workbook has no worksheet {name}, only {names}", code="invalid_document")
            return found
        if not self.sheets:
            raise source_error("the workbook has no worksheet", code="invalid_document")
        first, *others = self.sheets
        return [first, *(s for number, s in enumerate(others, 2) if goes_on and s.name == f"{first.name} {number}")]

    def part(self, name: str) -> Part:
        """Return a part of the workbook.  Raises ServiceError."""
        try:
            member = self._zip.getinfo(name)
        except KeyError:
            raise source_error(f"expected an Excel workbook (.xlsx), got a zip file without {name}") from None
        if member.flag_bits & ENCRYPTED or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise source_error(f"expected an Excel workbook (.xlsx), got a zip file in which {name} is not plainly deflated")
        return Part(self._zip.open(member), self._count)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ServiceError("too_large", f"the workbook is larger than {self._limit} bytes when it is decompressed")

    def _related(self, name: str) -> dict[str, tuple[str, str]]:
        """The parts to which a part refers, by id: kind and name."""
        folder, base = posixpath.split(name)
        rels = posixpath.join(folder, "_rels", base + ".rels")
        found: dict[str, tuple[str, str]] = {}

        def start(tag: str, attributes: dict[str, str]) -> None:
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                kind = attributes.get("Type", "").rpartition("/")[2]
                target = posixpath.normpath(posixpath.join("/" + folder, attributes.get("Target", "")))
                found[attributes.get("Id", "")] = kind, target.lstrip("/")

        if rels in self._zip.NameToInfo:
            self.part(rels).parse(start, lambda tag: None)
        return found
