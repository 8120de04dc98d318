"""Renders a template: `python -m app.export.sandbox` reads lines of JSON, a description and the rows, writes text or a PDF.

Jinja2's sandbox keeps the template from the Python objects behind its values; the system limits the CPU time and memory of the
process.  An error in the template is reported as a JSON object on standard error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

import msgspec
from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError

from app import child
from app.export.environment import RowEnvironment, Rows
from app.types import named

HEAD = 1  # line of the mapper's text before the template: its type
WRITE = 64 << 10  # characters from which pieces are written
ENCODER = msgspec.json.Encoder(decimal_format="number")
MARKUP = 2_000_000  # characters of HTML that are laid out as a PDF
TEMPLATE = "<template>"  # the file name in tracebacks that Jinja2 gives a template

Row = dict[str, Any]


class OutputLimitExceeded(Exception):
    """The template wrote more than it may."""


def main() -> None:
    child.begin()
    description = json.loads(sys.stdin.buffer.readline())
    memory = description["memory"]
    child.limit(memory=memory, seconds=description["seconds"])
    try:
        render(description)
    except TemplateSyntaxError as error:
        fail(f"line {error.lineno + HEAD}: {error.message}", error.lineno + HEAD)
    except MemoryError:
        fail(f"the template exceeded its limit of {memory >> 20} MB of memory")
    except OutputLimitExceeded as error:
        fail(str(error))
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        line = line_of(error)
        where = f"line {line}: " if line else ""
        fail(f"{where}{str(error) or type(error).__name__}", line)


def render(description: dict[str, Any]) -> None:
    """Write the rendered template to standard output, in pieces."""
    environment = RowEnvironment(
        autoescape=description["escape"],
        undefined=StrictUndefined,
        finalize=lambda value: "" if value is None else value,
        keep_trailing_newline=True,
    )
    environment.policies |= {"json.dumps_function": to_json, "json.dumps_kwargs": {}}
    template = environment.from_string(description["template"])
    names = {
        "rows": Rows(rows(description["types"])),
        "entity": description["entity"],
        "company": description["company"],
        "now": datetime.fromisoformat(description["now"]),
    }
    if description["pdf"]:
        from app.export.document import lay_out  # imported late: the PDF library is large

        sys.stdout.buffer.write(lay_out(_bounded(template.generate(names))))
        sys.stdout.buffer.flush()
        return
    pieces: list[str] = []
    size = written = 0
    for piece in template.generate(names):
        pieces.append(piece)
        size += len(piece)
        if size > WRITE:
            written = write("".join(pieces), written, description["output"])
            pieces, size = [], 0
    write("".join(pieces), written, description["output"])
    sys.stdout.buffer.flush()


def _bounded(pieces: Iterator[str]) -> str:
    """The whole of a text that is laid out.  Raises OutputLimitExceeded."""
    kept: list[str] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size > MARKUP:
            raise OutputLimitExceeded(f"the template exceeded the limit of {MARKUP:,} characters of a PDF's HTML")
    return "".join(kept)


def to_json(value: Any, *, indent: int = 0) -> str:
    """Return a value as the filter `tojson` writes it: decimals with all their digits, times as in ISO 8601."""
    data = ENCODER.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def write(text: str, written: int, limit: int) -> int:
    """Write text after `written` bytes; return the bytes written so far.  Raises OutputLimitExceeded."""
    data = text.encode("utf-8", "replace")
    if written + len(data) > limit:
        raise OutputLimitExceeded(f"the template exceeded its limit of {limit:,} bytes of output")
    sys.stdout.buffer.write(data)
    return written + len(data)


def rows(types: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows from standard input, one at a time."""
    for line in sys.stdin.buffer:
        yield convert_row(json.loads(line, parse_float=Decimal), types)


def convert_row(record: Row, types: dict[str, Any]) -> Row:
    """Return a record with values of the given types, in its child rows too.  `category.code` becomes `code` inside `category`."""
    row: Row = {}
    for name, value in record.items():
        type = types.get(name)
        if isinstance(type, dict):
            row[name] = [convert_row(each, type) for each in value]
            continue
        value = convert(type, value)
        outer, dot, inner = name.partition(".")
        if not dot:
            row[name] = value
            continue
        if not isinstance(row.get(outer), dict):
            row[outer] = {}
        row[outer][inner] = value
    for name, value in row.items():
        if isinstance(value, dict) and value.get("id") is None and f"{name}.id" in record:
            row[name] = None  # the reference is not set
    return row


def convert(type: str | None, value: Any) -> Any:
    """Return a value in the Python type for its type; unchanged if there is none or it has no such value, as for infinity."""
    read = named(type).python if type else None
    if value is None or read is None or isinstance(value, Decimal):
        return value
    try:
        return read(value)
    except (ValueError, TypeError):
        return value


def line_of(error: BaseException) -> int | None:
    """Return the line of the mapper's text that raised an error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == TEMPLATE and frame.lineno]
    return lines[-1] + HEAD if lines else None


def fail(message: str, line: int | None = None) -> NoReturn:
    """Report an error in the mapper and end the process."""
    child.fail(message, target="mapper", **({"line": line} if line else {}))


if __name__ == "__main__":
    main()
