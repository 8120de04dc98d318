"""The formats of files, each in one place: what exports write, and what an import with an entity reads back.

The command line, the pages, the OpenAPI description and messages say what an entry says; a test compares docs/export.md with it. To
add a format: an entry here, and a module app/export/to_<name>.py with `write(export, reader)`; where imports read it, its reader in
app/mapper/sources/open.py, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from app import extras
from app.errors import did_you_mean

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    label, purpose: what pages and docs say; is_flat: a table, one line a row; is_binary: nothing for a terminal, and gzip would not
    make it smaller; extra: the extra of the wheel (app/extras.py) without which it cannot be written; read_as: media types of an
    entity's files that an import reads; starts: their first bytes, by which a file
    without a media type is recognized; has_lines_of_records: a record a line, so that rows other than
    its children have no place.
    """

    name: str
    label: str
    purpose: str
    media_type: str
    extension: str
    is_flat: bool = False
    is_binary: bool = False
    has_lines_of_records: bool = False
    extra: str = ""
    aliases: tuple[str, ...] = ()
    read_as: tuple[str, ...] = ()
    starts: bytes = b""


JSON = Format("json", "JSON", "an import document, children included", "application/json", "json")
XML = Format(
    *("xml", "XML", "the same structure, with a schema", "application/xml", "xml"),
    read_as=("application/xml", "text/xml"),
    starts=b"<",
)
CSV = Format(
    *("csv", "CSV", "for spreadsheets and scripts", "text/csv; charset=utf-8; header=present", "csv"),
    is_flat=True,
    read_as=("text/csv", "application/csv"),
)
EXCEL = Format(
    *("excel", "Excel", "a workbook with typed cells", XLSX, "xlsx"),
    is_flat=True,
    is_binary=True,
    extra="excel",
    aliases=("xlsx",),
    read_as=(XLSX,),
    starts=b"PK\x03\x04",
)
PDF = Format(
    *("pdf", "PDF", "for printing, up to 10,000 rows", "application/pdf", "pdf"),
    is_flat=True,
    is_binary=True,
    extra="pdf",
)
HTML = Format("html", "HTML", "one page with one table", "text/html; charset=utf-8", "html", is_flat=True)
PARQUET = Format(
    *("parquet", "Parquet", "typed columns for DuckDB, pandas, Spark", "application/vnd.apache.parquet", "parquet"),
    is_flat=True,
    is_binary=True,
)
JSONL = Format(
    *("jsonl", "JSON Lines", "a record a line, children included", "application/x-ndjson", "jsonl"),
    has_lines_of_records=True,
    aliases=("ndjson",),
    read_as=("application/x-ndjson", "application/jsonl"),
    starts=b"{",
)
CUSTOM = Format("custom", "Mapper", "a template, or an import mapper in reverse", "", "")  # the mapper has a file type of its own
SCHEMA = Format("xsd", "XML Schema", "the schema of the XML of the same query", "application/xml", "xsd")


def _choice(names: Iterable[str]) -> str:
    """Names as people list them: a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}"


# What the name of a file says, as regular expressions that ignore case, which Python and JavaScript read alike (pages.js has them
# from the page); and the content codings of compressed files.
ENDING = r"\.([a-z]+)(\.gz|\.zst)?$"
ENTITY = r"^[a-z]\w*(?=\W)"
CODINGS = {".gz": "gzip", ".zst": "zstd"}

FORMATS = {each.name: each for each in (JSON, XML, CSV, EXCEL, PDF, HTML, PARQUET, JSONL, CUSTOM)}
DOCUMENTS = (JSON, XML)  # of any number of collections
READABLE = tuple(each for each in FORMATS.values() if each.read_as)
READABLE_LABELS = _choice(each.label for each in READABLE)
READABLE_MEDIA_TYPES = _choice(each.read_as[0] for each in READABLE)
EXPECTED = f"expected one of {', '.join((*FORMATS, SCHEMA.name))}"
_NAMED = {name: each for each in (*FORMATS.values(), SCHEMA) for name in (each.name, *each.aliases)}


def find(name: str) -> Format | None:
    """The format of a name or alias, in any case; the schema of XML, too."""
    return _NAMED.get(name.lower())


def not_installed() -> list[str]:
    """The names of the formats that cannot be written for lack of an extra."""
    return [each.name for each in FORMATS.values() if not extras.is_installed(each.extra)]


def unknown(text: str) -> str:
    """The message about a name that no format has."""
    return f"{EXPECTED}, got {text!r}{did_you_mean(text.lower(), _NAMED)}"


def read_as(media_type: str) -> Format | None:
    """The format in which an import reads files of a media type (without parameters)."""
    return next((each for each in READABLE if media_type in each.read_as), None)


def begun_by(start: bytes, name: str | None) -> Format:
    """The format in which an import reads a file that begins with these bytes: CSV unless another one is recognized.

    name: that of the file, which tells the format of a file without anything; else it is JSON Lines, which need nothing.
    """
    text = start.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")
    if not text:
        return (name and of_file(name)) or JSONL
    return next((each for each in READABLE if each.starts and (start if each.is_binary else text).startswith(each.starts)), CSV)


def of_file(name: str) -> Format | None:
    """The format in which an import with an entity reads a file, by the ending of its name; None for any other file."""
    ending = re.search(ENDING, name, re.IGNORECASE)
    return next((each for each in READABLE if ending and ending[1].lower() in (each.extension, *each.aliases)), None)


def entity_of_file(name: str) -> str | None:
    """The word with which a file's name begins, as an export names its file: products.csv, products (1).csv, products-2026.csv."""
    word = re.match(ENTITY, re.split(r"[/\\]", name)[-1], re.ASCII | re.IGNORECASE)
    return word[0] if word else None


def coding_of_file(name: str) -> str:
    """The content coding of a file, by the ending of its name; empty for one that is not compressed."""
    return next((coding for end, coding in CODINGS.items() if name.lower().endswith(end)), "")


def not_a_document(name: str | None) -> str:
    """What was expected of a file that does not begin as an import document does."""
    if name is None or re.search(rf"\.{JSON.extension}(\.\w+)?$", name, re.IGNORECASE):
        return "expected a JSON object"
    kinds = _choice(f"{each.label} (.{each.extension})" for each in (JSON, *READABLE))
    return f"expected a file of {kinds}, or a mapper that reads {name}"
