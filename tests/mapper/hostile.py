"""Hostile files, made when they are needed: workbooks, CSV, XML, JSON and compressed bodies that attack their reader.

A large content is one deflated block, repeated: a gigabyte takes a second to make and a megabyte to send.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from app.wire.coding import zstd

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
UNIT = 1 << 20  # bytes of a block that is repeated
HEADER = '<row r="1"><c t="inlineStr"><is><t>code</t></is></c><c t="inlineStr"><is><t>name</t></is></c></row>'
GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
LAUGHS = "<!DOCTYPE l [<!ENTITY a 'ha'>" + "".join(f"<!ENTITY {b} '{'&' + a + ';' * 1}{('&' + a + ';') * 9}'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)) + "]>"  # fmt: skip
OUTSIDE = '<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@dataclass(frozen=True)
class Deflated:
    """A content of any size: before, a unit many times, after."""

    before: bytes
    unit: bytes
    times: int
    after: bytes = b""

    def data(self) -> tuple[bytes, int, int]:
        """The raw deflated stream, the CRC and the size of the content."""
        made = zlib.compressobj(1, zlib.DEFLATED, -15)
        parts = [made.compress(self.before) + made.flush(zlib.Z_FULL_FLUSH)]
        parts.append((made.compress(self.unit) + made.flush(zlib.Z_FULL_FLUSH)) * self.times)
        parts.append(made.compress(self.after) + made.flush())
        crc = zlib.crc32(self.before)
        for _ in range(self.times):
            crc = zlib.crc32(self.unit, crc)
        return b"".join(parts), zlib.crc32(self.after, crc), len(self.before) + len(self.unit) * self.times + len(self.after)

    def gzip(self) -> bytes:
        data, crc, size = self.data()
        return GZIP_HEAD + data + struct.pack("<II", crc, size & 0xFFFFFFFF)

    def zstd(self) -> bytes:
        frames = [zstd.compress(self.unit * min(self.times, 64), 1)] * -(-self.times // 64)
        return zstd.compress(self.before, 1) + b"".join(frames) + zstd.compress(self.after, 1)


def repeated(before: str, unit: str, size: int, after: str = "") -> Deflated:
    """A content of about `size` bytes between two texts."""
    block = (unit * (UNIT // len(unit) + 1)).encode()
    return Deflated(before.encode(), block, size // len(block) + 1, after.encode())


def archive(members: dict[str, str | bytes | Deflated], *, flags: int = 0, method: int = 8) -> bytes:
    """A zip file, whose members are deflated by hand."""
    body, directory = io.BytesIO(), io.BytesIO()
    for name, content in members.items():
        if not isinstance(content, Deflated):
            content = Deflated(content.encode() if isinstance(content, str) else content, b"", 0)
        data, crc, size = content.data()
        common = struct.pack("<HHHHHIIIHH", 20, flags, method, 0, 0x21, crc, len(data), size & 0xFFFFFFFF, len(name), 0)
        directory.write(b"PK\x01\x02\x14\0" + common + struct.pack("<HHHII", 0, 0, 0, 0, body.tell()) + name.encode())
        body.write(b"PK\x03\x04" + common + name.encode() + data)
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), directory.tell(), body.tell(), 0)
    return body.getvalue() + directory.getvalue() + b"PK\x05\x06" + end


def sheet(rows: str, *, header: str = HEADER) -> str:
    return f'<worksheet xmlns="{MAIN}"><sheetData>{header}{rows}</sheetData></worksheet>'


def around(rows: Callable[[str, str], Deflated]) -> Deflated:
    """A worksheet with rows of any size between its ends."""
    before, after = sheet("\0").split("\0")
    return rows(before, after)


def text(value: str) -> str:
    return f'<c t="inlineStr"><is><t>{value}</t></is></c>'


def row(value: str = text("n"), code: str = "A", number: str = "") -> str:
    """A row with a code, and another cell."""
    return f"<row{number}>{text(code)}{value}</row>"


def book(content: str | bytes | Deflated, *, texts: str | Deflated = "", **more: str | bytes | Deflated) -> bytes:
    """A workbook with one worksheet.  more: other content of its parts, by the last part of their names."""
    parts: dict[str, str | bytes | Deflated] = {
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets><sheet name="s" r:id="r0"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(
            ("worksheet", "worksheets/sheet1.xml"), ("styles", "styles.xml"), *([("sharedStrings", "sharedStrings.xml")] if texts else [])
        ),
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": content,
    }  # fmt: skip
    if texts:
        parts["xl/sharedStrings.xml"] = texts if isinstance(texts, Deflated) else f'<sst xmlns="{MAIN}">{texts}</sst>'
    for name in list(parts):
        short = name.rpartition("/")[2].replace(".", "_")
        if short in more:
            parts[name] = more[short]
    return archive(parts)


def relations(*targets: tuple[str, str]) -> str:
    parts = "".join(f'<Relationship Id="r{n}" Type="{RELATIONS}/{kind}" Target="{to}"/>' for n, (kind, to) in enumerate(targets))
    return f'<Relationships xmlns="{PACKAGE}">{parts}</Relationships>'


def zipped(name: str = "a.txt", content: bytes = b"hello", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        made.writestr(name, content)
    return out.getvalue()


def compressed_otherwise(method: int) -> bytes:
    """A good workbook, compressed as no spreadsheet does."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book(sheet(row())))) as good, zipfile.ZipFile(out, "w", method) as made:
        for name in good.namelist():
            made.writestr(name, good.read(name))
    return out.getvalue()


def damaged(data: bytes, at: int, to: bytes = b"\xff") -> bytes:
    at %= len(data)
    return data[:at] + to + data[at + len(to) :]


@dataclass(frozen=True)
class Hostile:
    """A file, where it is sent, and what must come of it: an error's code, or the state of the import."""

    name: str
    expected: str
    make: Callable[[], bytes] = field(repr=False)
    type: str = ""
    path: str = "import?entity=units"
    coding: str = ""
    method: str = "POST"
