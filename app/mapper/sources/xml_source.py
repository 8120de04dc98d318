"""Reads XML as it arrives: elements at the blocks' paths become records, and parsed elements are dropped.

Documents that declare entities are refused (entity expansion attacks), external entities are never fetched, and an unresolved
entity is an error.  The parser's own limits on depth, text length and amplification stay on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lxml import etree

from app.errors import ServiceError
from app.mapper.language.expressions import Evaluator
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Block, Mapper
from app.mapper.sources.base import LARGEST_RECORD, Emit, RecordMaker
from app.mapper.sources.decoder import require_encoding
from app.mapper.sources.exported_xml import ExportedRecords, check_layout, layout_of
from app.mapper.sources.xml_matcher import XmlMatcher
from app.mapper.sources.xml_values import XmlElement, XmlPaths, local_name

SLICE = 256 << 10  # bytes that are parsed before complete elements are dropped
PROLOG = 1 << 20  # bytes in which the root element must start
PROLOG_STEP = 1 << 10  # bytes
COUNTED = 65_535  # lines; libxml2 keeps the line of an element in 16 bits
# a byte order mark, UTF-16, or a declaration with the encoding
DECLARED = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff|<\0|\0<|\s*<\?xml[^>]*encoding)")

Maker = RecordMaker | ExportedRecords


class XmlSource:
    """Feeds lxml's incremental parser, in a thread of its own.

    libxml2 keeps element names in a dictionary of the thread that starts a document, without a lock.  If two documents shared one
    dictionary and were parsed at once, names would get mixed up or the process would crash.
    """

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        self._emit = emit
        self._thread = ThreadPoolExecutor(1, "xml")
        self._charset = charset  # used only if the document declares no encoding
        paths = XmlPaths(mapper.namespaces)
        evaluator = Evaluator(mapper, paths.value)

        def maker_of(block: Block) -> Maker:
            return ExportedRecords(block) if mapper.is_exported else RecordMaker.of(block, evaluator, paths.elements)

        self._matcher = XmlMatcher([(block.path.text, maker_of(block)) for block in mapper.blocks], mapper.namespaces)
        self._layout = layout_of(mapper.blocks) if mapper.is_exported else None
        self._parser: Any = None
        self._waiting = b""  # the bytes up to the start of the root element
        self._encoding: str | None = None  # None: as the document declares
        self._prolog: Any = None
        self._root: Any = None
        self._open: Any = None  # an incomplete record
        self._open_size = 0  # bytes

    def feed(self, data: bytes) -> None:
        """Parse bytes; emit the records that they complete."""
        self._thread.submit(self._parse, data).result()

    def finish(self) -> Iterable[None]:
        """Parse the rest; emit the last records.  Ends the thread."""
        try:
            self._thread.submit(self._parse_end).result()
        finally:
            self.close()
        return ()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    # Called in the thread.

    def _parse(self, data: bytes) -> None:
        if not data:
            return
        if self._parser is None:
            if self._prolog is None:
                if self._charset and not DECLARED.match(data):
                    self._encoding = require_encoding(self._charset)
                self._prolog = _new_parser(("start",), encoding=self._encoding)
            self._waiting += data
            if not self._read_prolog(data):
                return
            data, self._waiting = self._waiting, b""
        for at in range(0, len(data), SLICE):
            piece = data[at : at + SLICE]
            _feed(self._parser, piece)
            self._drain()
            self._prune(len(piece))

    def _parse_end(self) -> None:
        if self._parser is None:  # the parser may buffer a short document until its end
            self._prolog = self._prolog or _new_parser(("start",))
            _close(self._prolog)
            for _, root in self._prolog.read_events():
                self._begin(root)
                break
            _feed(self._parser, self._waiting)
        _close(self._parser)
        self._drain()

    # The prolog, up to the start of the root element.

    def _read_prolog(self, data: bytes) -> bool:
        """Parse in small steps up to the root element, and check the declarations before it; return whether it has started."""
        for at in range(0, len(data), PROLOG_STEP):
            _feed(self._prolog, data[at : at + PROLOG_STEP])
            for _, root in self._prolog.read_events():
                self._begin(root)
                return True
        if len(self._waiting) > PROLOG:
            raise source_error("the root element does not start within the first megabyte", code="invalid_document")
        return False

    def _begin(self, root: Any) -> None:
        document = root.getroottree().docinfo
        if document.internalDTD is not None and next(document.internalDTD.iterentities(), None) is not None:
            raise source_error("the document declares entities, which are not allowed", line=1, code="invalid_document")
        if expected := self._matcher.roots(root):
            message = f"expected the root element {', '.join(expected)}, got {local_name(root)}"
            raise source_error(message, line=root.sourceline, code="invalid_document")
        names = self._matcher.names
        tags = None if names is None else tuple("{*}" + name for name in {*names, local_name(root)})
        self._parser, self._prolog = _new_parser(("start", "end"), tags, self._encoding), None

    # Records.

    def _drain(self) -> None:
        for event, element in self._parser.read_events():
            if event == "start":
                if element.getparent() is None:
                    self._root = element
                continue
            for maker in self._matcher.find(element):
                if (record := maker.make(XmlElement(element))) is not None:
                    self._emit(maker.block.name, record, _line(element), ())
            self._matcher.ended(element)
        if self._layout is not None and self._root is not None:
            check_layout(self._root, self._layout)

    def _prune(self, size: int) -> None:
        """Drop all but the last child of each open element, down to an incomplete record, which stays whole."""
        self._matcher.forget(self._root)
        node = self._root
        while node is not None and len(node):
            del node[:-1]
            node = node[-1]
            if node.tag.__class__ is str and self._matcher.find(node):
                self._open_size = self._open_size + size if node is self._open else 0
                self._open = node
                if self._open_size > LARGEST_RECORD:
                    message = f"a record is larger than {LARGEST_RECORD >> 20} MB"
                    raise source_error(message, line=node.sourceline, code="invalid_document")
                return
        self._open = None


def _new_parser(events: Any, tag: tuple[str, ...] | None = None, encoding: str | None = None) -> Any:
    try:
        return etree.XMLPullParser(
            events=events,
            tag=tag,
            encoding=encoding,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            dtd_validation=False,
            huge_tree=False,
            recover=False,
            remove_comments=True,
            remove_pis=True,
        )
    except LookupError:  # Python supports more charsets than libxml2
        raise ServiceError("unsupported_media_type", f"expected a charset that the XML parser supports, got {encoding!r}") from None


def _feed(parser: Any, data: bytes) -> None:
    """Parse the next bytes.  Raises ServiceError at a syntax error, also where the parser itself would wait until its end."""
    try:
        parser.feed(data)
    except etree.XMLSyntaxError as error:
        raise _malformed(error.msg, *error.position) from None
    for entry in parser.feed_error_log:
        if entry.level >= etree.ErrorLevels.FATAL or "ENTITY" in entry.type_name:
            raise _malformed(entry.message, entry.line, entry.column)


def _close(parser: Any) -> None:
    try:
        parser.close()
    except etree.XMLSyntaxError as error:
        raise _malformed(error.msg, *error.position) from None


def _malformed(message: str | None, line: int, column: int) -> ServiceError:
    reason = (message or "not well formed").strip().partition(", line ")[0]
    return source_error(reason, line=max(line, 1), column=max(column, 1))


def _line(element: Any) -> int:
    """The line on which an element starts.  Beyond 65,535, libxml2 gives the line on which the first text after the tag ends."""
    line: int = element.sourceline
    if line < COUNTED:
        return line
    while len(element) and not element.text:
        element = element[0]
    return line - (element.text or element.tail or "").count("\n")
