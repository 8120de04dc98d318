"""Reads JSON as it arrives: values at the blocks' paths become records, all others are skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import DecimalException
from typing import Any

import ijson  # type: ignore[import-untyped]

from app.errors import ServiceError
from app.mapper.language import jsonpath
from app.mapper.language.expressions import Evaluator, Getter
from app.mapper.language.functions import ABSENT, to_text
from app.mapper.language.locales import bounded, quoted
from app.mapper.language.problems import InvalidValue, source_error
from app.mapper.language.tree import Block, Mapper, paths_in
from app.mapper.sources.base import LARGEST_RECORD, Emit, FindElements, FindFault, RecordMaker, SourceReader
from app.mapper.sources.json_guard import Guard
from app.mapper.sources.json_walker import ExactNumber, Walker
from app.wire.mending import LONGEST_NUMBER, REFUSED_NUMBER, number_message

BOM = b"\xef\xbb\xbf"


class JsonSource(SourceReader):
    """Feeds ijson's incremental parser line by line, so that errors have a line number."""

    unit = "record"

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        evaluator = Evaluator(mapper, _value)
        blocks = [
            (jsonpath.block_path(block.path.text), RecordMaker.of(block, evaluator, _elements, _fault_finder))
            for block in mapper.blocks
        ]
        self._walker = Walker(blocks, jsonpath.continued(_block_paths(mapper.blocks)), emit)
        self._parser = ijson.basic_parse_coro(self._walker)
        self._guard = Guard()
        self._paths = [block.path.text for block in mapper.blocks]
        self._start: bytes | None = b""  # the first bytes, until they can be told from a byte order mark
        self._line = 1
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Parse bytes; emit the records that they complete."""
        if self._start is not None:
            data, self._start = self._start + data, None
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return
            if data.startswith(BOM):
                data, self._offset = data[len(BOM) :], len(BOM)
        for piece in self._guard.take(data).splitlines(keepends=True):
            self._send(piece)
            self._offset += len(piece)
            self._line += piece.endswith(b"\n")
            if self._walker.grow(len(piece)) > LARGEST_RECORD:
                raise source_error(f"a record is larger than {LARGEST_RECORD >> 20} MB", line=self._line, code="invalid_document")

    def finish(self) -> Iterable[None]:
        """End the document.  Raises ServiceError."""
        if rest := (self._start or b"") + self._guard.finish():
            self._send(rest)
        try:
            self._parser.close()
        except ijson.JSONError as error:
            raise self._malformed(error, b"") from None
        if not self._walker.found:
            message = f"the document has none of the mapper's paths, expected {', '.join(dict.fromkeys(self._paths))}"
            raise source_error(message, code="invalid_document")
        return ()

    def _send(self, piece: bytes) -> None:
        try:
            self._parser.send(piece)
        except ijson.JSONError as error:
            raise self._malformed(error, piece) from None
        except DecimalException:
            raise source_error("a number is out of range", line=self._line, offset=self._offset) from None
        except StopIteration:
            raise source_error("expected the end of the source after the document", line=self._line, offset=self._offset) from None

    def _malformed(self, error: Exception, piece: bytes) -> ServiceError:
        message = error.args[0] if error.args else ""
        reason = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        lines = [line.strip() for line in reason.splitlines() if "(right here)" not in line]
        text = ": ".join(line for line in lines if line)
        return source_error(text, line=self._line, offset=self._offset + _error_offset(reason, piece))


def _error_offset(reason: str, piece: bytes) -> int:
    """The offset of an error in a piece, found by the text that yajl's message shows around it.

    This relies on yajl's undocumented layout: up to 30 bytes before the error, right-aligned to column 40, then some after it.
    tests/mapper/test_json.py fails if the layout changes.
    """
    excerpt = next((line for line in reason.splitlines()[1:] if "(right here)" not in line), "").encode()
    seen = piece.replace(b"\n", b" ").replace(b"\r", b" ")
    at = seen.find(excerpt[10:40]) if len(excerpt) > 40 else -1
    if at >= 0:
        return at + 29
    return next((at - 1 for at in range(min(30, len(seen)), 0, -1) if excerpt[40 - at : 40] == seen[:at]), 0)


def _block_paths(blocks: Iterable[Block]) -> Iterator[str]:
    """The paths of blocks and of those inside."""
    for block in blocks:
        yield block.path.text
        yield from _block_paths(block.children)


def _plain(value: Any) -> Any:
    """Return a single value for expressions.  Raises InvalidValue for an object or an array."""
    if isinstance(value, ExactNumber):
        return bounded(value.exact)
    if isinstance(value, (dict, list)):
        raise InvalidValue(f"expected a single value, got {_kind(value)}")
    if value == REFUSED_NUMBER:
        raise InvalidValue(number_message(LONGEST_NUMBER))
    return value


def _kind(value: Any) -> str:
    words = {dict: "an object", list: "an array", type(None): "null"}
    return words.get(type(value)) or (quoted(value) if isinstance(value, str) else to_text(value))


def _fault_finder(block: Block) -> FindFault | None:
    """Finds elements that are not objects; None if a field of the block reads the element itself."""
    paths = {path.text for rule in block.rules for path in paths_in(rule.expression)}
    if not all(jsonpath.plain(jsonpath.query(path)) for path in paths):
        return None
    return lambda element: None if isinstance(element, dict) else f"expected an object, got {_kind(element)}"


def _value(text: str) -> Getter:
    """The getter of a path; its value is the first that the path finds."""
    query = jsonpath.query(text)
    names = jsonpath.plain(query)
    if names is None:

        def evaluate(element: Any) -> Any:
            found = query.find_one(element)
            return ABSENT if found is None else _plain(found.value)

        return evaluate

    def get(element: Any) -> Any:
        value = _member(element, names)
        return value if value is ABSENT or (value.__class__ is str and value != REFUSED_NUMBER) else _plain(value)

    return get


def _member(element: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if not isinstance(element, dict) or name not in element:
            return ABSENT
        element = element[name]
    return element


def _elements(text: str) -> FindElements:
    """Finds the elements of a nested block; if the path leads to an array, its items.  ABSENT if their container is."""
    wildcard = text.endswith("[*]")
    path = text.removesuffix("[*]")
    query = jsonpath.query(path) if path else jsonpath.query("$")
    names = jsonpath.plain(query)
    container = jsonpath.container(query)
    selects_items = len(container.segments) < len(query.segments)

    def search(element: Any) -> Any:
        found = [node.value for node in query.find(element)]
        if not found and (not selects_items or container.find_one(element) is None):
            return ABSENT
        return [item for value in found for item in _items(value, wildcard, null=[None] if selects_items else [])]

    def find(element: Any) -> Any:
        value = _member(element, names or ())
        return ABSENT if value is ABSENT else _items(value, wildcard, null=[])

    return search if names is None else find


def _items(value: Any, wildcard: bool, null: list[Any]) -> list[Any]:
    """The elements in a value: items of an array, members of an object after [*], else the value itself."""
    match value:
        case list():
            return value
        case dict():
            return list(value.values()) if wildcard else [value]
    return null if value is None else [value]
