"""Renders a template: `python -m app.export.sandbox` reads what it needs and then rows, JSON on a line each, and writes the text.

The template runs in Jinja2's sandbox, which keeps it from Python, and in a process whose time and memory the system bounds, which
keeps it from the machine.  What is wrong with it is said in a JSON object on standard error.
"""

from __future__ import annotations

import json
import resource
import sys
import traceback
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

WRITE = 64 << 10  # characters that are written together
READERS = {"date": date.fromisoformat, "timestamptz": datetime.fromisoformat, "time": time.fromisoformat, "numeric": Decimal}
ENCODER = msgspec.json.Encoder(decimal_format="number")
TEMPLATE = "<template>"  # the file name that Jinja2 gives a template's lines

Row = dict[str, Any]


class Refused(Exception):
    """The template asked for more than it may have."""


def main() -> None:
    described = json.loads(sys.stdin.buffer.readline())
    seconds, memory = described["seconds"], described["memory"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        render(described)
    except TemplateSyntaxError as error:
        fail(f"line {error.lineno} of the template: {error.message}", error.lineno)
    except MemoryError:
        fail(f"it takes more than {memory >> 20} MB of memory")
    except Refused as error:
        fail(str(error))
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        line = line_of(error)
        where = f"line {line} of the template: " if line else ""
        fail(f"{where}{str(error) or type(error).__name__}", line)


def render(described: dict[str, Any]) -> None:
    """Write what the template gives, in pieces."""
    environment = ImmutableSandboxedEnvironment(
        autoescape=described["escape"],
        undefined=StrictUndefined,
        finalize=lambda value: "" if value is None else value,
        keep_trailing_newline=True,
    )
    environment.policies |= {"json.dumps_function": dumped, "json.dumps_kwargs": {}}
    template = environment.from_string(described["template"])
    names = {
        "rows": rows(described["types"]),
        "entity": described["entity"],
        "company": described["company"],
        "now": datetime.fromisoformat(described["now"]),
    }
    pieces: list[str] = []
    size = written = 0
    for piece in template.generate(names):
        pieces.append(piece)
        size += len(piece)
        if size > WRITE:
            written = write("".join(pieces), written, described["output"])
            pieces, size = [], 0
    write("".join(pieces), written, described["output"])
    sys.stdout.buffer.flush()


def dumped(value: Any, *, indent: int = 0) -> str:
    """A value as `tojson` writes it: decimals with all of their digits, times as in ISO 8601."""
    data = ENCODER.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def write(text: str, written: int, most: int) -> int:
    """Write; returns how many bytes were written so far.  Raises Refused beyond the most."""
    data = text.encode("utf-8", "replace")
    if written + len(data) > most:
        raise Refused(f"it gives more than {most:,} bytes")
    sys.stdout.buffer.write(data)
    return written + len(data)


def rows(types: dict[str, Any]) -> Iterator[Row]:
    """The rows of standard input, one at a time."""
    for line in sys.stdin.buffer:
        yield typed(json.loads(line, parse_float=Decimal), types)


def typed(record: Row, types: dict[str, Any]) -> Row:
    """A record with values of the types named, rows inside it too; what is called category.code stands inside category."""
    row: Row = {}
    for name, value in record.items():
        type = types.get(name)
        if isinstance(type, dict):
            row[name] = [typed(each, type) for each in value]
            continue
        value = read(type, value)
        outer, dot, inner = name.partition(".")
        if not dot:
            row[name] = value
            continue
        if not isinstance(row.get(outer), dict):
            row[outer] = {}
        row[outer][inner] = value
    for name, value in row.items():
        if isinstance(value, dict) and value.get("id") is None and f"{name}.id" in record:
            row[name] = None  # a reference that is not set
    return row


def read(type: str | None, value: Any) -> Any:
    """A value of the type; as it is where there is none for it, as for infinity."""
    if value is None or type not in READERS or isinstance(value, Decimal):
        return value
    try:
        return READERS[type](value)
    except (ValueError, TypeError):
        return value


def line_of(error: BaseException) -> int | None:
    """The line of the template where an error came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == TEMPLATE]
    return lines[-1] if lines else None


def fail(message: str, line: int | None = None) -> None:
    told = {"message": message, "target": "mapper"} | ({"line": line} if line else {})
    sys.stderr.write(json.dumps(told))
    sys.stderr.flush()
    sys.exit(1)


if __name__ == "__main__":
    main()
