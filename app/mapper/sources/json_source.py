"""JSON as it arrives: values at the blocks' paths become records, everything else is passed over."""

from __future__ import annotations

from decimal import DecimalException
from typing import Any

import ijson  # type: ignore[import-untyped]

from app.errors import ServiceError
from app.mapper.language import jsonpath
from app.mapper.language.expressions import Compiler, Get
from app.mapper.language.functions import ABSENT, to_text
from app.mapper.language.locales import bounded, shown
from app.mapper.language.problems import Wrong, source_error
from app.mapper.language.tree import Block, Mapper, paths_in
from app.mapper.sources.base import LARGEST_RECORD, Emit, Find, Maker, Refuse, Source
from app.mapper.sources.json_guard import Guard
from app.mapper.sources.json_walker import Exact, Walker

BOM = b"\xef\xbb\xbf"


class JsonSource(Source):
    """Feeds ijson's incremental parser, line by line, so that an error has one."""

    unit = "record"

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        compiler = Compiler(mapper, _value)
        blocks = [(jsonpath.collection(block.path.text), Maker.of(block, compiler, _elements, _refuser)) for block in mapper.blocks]
        self._walker = Walker(blocks, emit)
        self._parser = ijson.basic_parse_coro(self._walker)
        self._guard = Guard()
        self._paths = [block.path.text for block in mapper.blocks]
        self._start: bytes | None = b""  # of the text, until it is known whether it is a byte order mark
        self._line = 1
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Parse; emit the records that end here."""
        if self._start is not None:
            data, self._start = self._start + data, None
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return
            if data.startswith(BOM):
                data, self._offset = data[len(BOM) :], len(BOM)
        found = self._guard.check(data)
        if found:
            at, reason = found
            line = self._line + data.count(b"\n", 0, at)
            raise source_error(reason, line=line, offset=self._offset + at)
        for piece in data.splitlines(keepends=True):
            self._send(piece)
            self._offset += len(piece)
            self._line += piece.endswith(b"\n")
            if self._walker.grow(len(piece)) > LARGEST_RECORD:
                raise source_error(f"a record is larger than {LARGEST_RECORD >> 20} MB", line=self._line, code="invalid_document")

    def finish(self) -> None:
        """There is no more."""
        if self._start:
            self._send(self._start)
        try:
            self._parser.close()
        except ijson.JSONError as error:
            raise self._malformed(error, b"") from None
        if not self._walker.found:
            message = f"none of the mapper's paths is there, expected {', '.join(dict.fromkeys(self._paths))}"
            raise source_error(message, code="invalid_document")

    def _send(self, piece: bytes) -> None:
        try:
            self._parser.send(piece)
        except ijson.JSONError as error:
            raise self._malformed(error, piece) from None
        except DecimalException:
            raise source_error("a number is too large to be held", line=self._line, offset=self._offset) from None
        except StopIteration:
            raise source_error("expected nothing more after the document", line=self._line, offset=self._offset) from None

    def _malformed(self, error: Exception, piece: bytes) -> ServiceError:
        message = error.args[0] if error.args else ""
        reason = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        lines = [line.strip() for line in reason.splitlines() if "(right here)" not in line]
        text = ": ".join(line for line in lines if line)
        return source_error(text, line=self._line, offset=self._offset + _place(reason, piece))


def _place(reason: str, piece: bytes) -> int:
    """Where in a piece the error is: the parser shows 30 bytes before it and some after it, the error in column 40."""
    shown = next((line for line in reason.splitlines()[1:] if "(right here)" not in line), "").encode()
    seen = piece.replace(b"\n", b" ").replace(b"\r", b" ")
    at = seen.find(shown[10:40]) if len(shown) > 40 else -1
    if at >= 0:
        return at + 29
    return next((at - 1 for at in range(min(30, len(seen)), 0, -1) if shown[40 - at : 40] == seen[:at]), 0)


def _plain(value: Any) -> Any:
    """A single value as expressions know it.  Raises Wrong."""
    if isinstance(value, Exact):
        return bounded(value.exact)
    if isinstance(value, (dict, list)):
        raise Wrong(f"expected a single value, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    words = {dict: "an object", list: "an array", type(None): "null"}
    return words.get(type(value)) or (shown(value) if isinstance(value, str) else to_text(value))


def _refuser(block: Block) -> Refuse | None:
    """What finds elements of a block that are no objects, unless its fields read the element itself."""
    paths = {path for rule in block.rules for path in paths_in(rule.expression)}
    if not all(jsonpath.plain(jsonpath.query(path)) for path in paths):
        return None
    return lambda element: None if isinstance(element, dict) else f"expected an object, got {_kind(element)}"


def _value(text: str) -> Get:
    """The getter of a path: what it finds first."""
    query = jsonpath.query(text)
    names = jsonpath.plain(query)
    if names is None:

        def evaluate(element: Any) -> Any:
            found = query.find_one(element)
            return ABSENT if found is None else _plain(found.value)

        return evaluate

    def get(element: Any) -> Any:
        value = _member(element, names)
        return value if value is ABSENT or value.__class__ is str else _plain(value)

    return get


def _member(element: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if not isinstance(element, dict) or name not in element:
            return ABSENT
        element = element[name]
    return element


def _elements(text: str) -> Find:
    """The elements of a block inside a record: where the path leads to an array, the array's."""
    wildcard = text.endswith("[*]")
    path = text.removesuffix("[*]")
    query = jsonpath.query(path) if path else jsonpath.query("$")
    names = jsonpath.plain(query)

    def find(element: Any) -> Any:
        if names is None:
            found = [node.value for node in query.find(element)]
            return [item for value in found for item in (value if isinstance(value, list) else [value])]
        value = _member(element, names)
        if value is ABSENT:
            return ABSENT
        if isinstance(value, dict):
            return list(value.values()) if wildcard else [value]
        return value if isinstance(value, list) else [] if value is None else [value]

    return find
