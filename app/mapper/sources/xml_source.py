"""XML as it arrives: elements of the blocks' paths become records, everything that lies behind is dropped.

Entities that the document declares are refused (bombs are made of them), external ones are never fetched, and what cannot be
resolved is an error.  The parser's own limits on depth, on one text and on amplification stay on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lxml import etree

from app.errors import ServiceError
from app.mapper.language import xpath
from app.mapper.language.expressions import Compiler, Get
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import Wrong, source_error
from app.mapper.language.tree import Mapper
from app.mapper.language.xpath import Collection
from app.mapper.sources.base import LARGEST_RECORD, Emit, Find, Maker
from app.mapper.sources.decoder import known

SLICE = 256 << 10  # bytes that are parsed before what they completed is dropped
PROLOG = 1 << 20  # bytes in which the root element must begin
PROLOG_STEP = 1 << 10
COUNTED = 65_535  # lines
DECLARED = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff|<\0|\0<|\s*<\?xml[^>]*encoding)")  # a mark, UTF-16, or a declaration


class Node:
    """An element with its children by local name, the first of each, looked up when first asked for."""

    __slots__ = ("_children", "element")

    def __init__(self, element: Any) -> None:
        self.element = element
        self._children: dict[str, Any] | None = None

    def child(self, name: str) -> Any:
        """The first child element of a local name, or None."""
        children = self._children
        if children is None:
            children = self._children = {}
            for each in self.element:
                tag = each.tag
                if tag.__class__ is str:
                    children.setdefault(tag.rpartition("}")[2] if tag[0] == "{" else tag, each)
        return children.get(name)


class XmlSource:
    """Feeds lxml's incremental parser, in a thread of its own.

    The names of a document's elements go to a dictionary of the thread that began to parse it, which is not locked: were two
    documents of one dictionary parsed at once, one would get the other's names, or the process would end.
    """

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        self._emit = emit
        self._thread = ThreadPoolExecutor(1, "xml")
        self._charset = charset  # what the sender says holds where the document itself says nothing
        self._namespaces = mapper.namespaces
        paths = _Paths(mapper.namespaces)
        compiler = Compiler(mapper, paths.value)
        self._blocks = [(xpath.collection(block.path.text), Maker.of(block, compiler, paths.elements)) for block in mapper.blocks]
        self._by_name: dict[str, list[tuple[Collection, Maker]]] = {}
        for each, maker in self._blocks:
            self._by_name.setdefault(each.steps[-1].rpartition(":")[2], []).append((each, maker))
        self._parser: Any = None
        self._waiting = b""  # until the root element begins
        self._encoding: str | None = None  # None: as the document says
        self._prolog: Any = None
        self._root: Any = None
        self._parent: Any = None  # of the element that was matched last
        self._matches: dict[str, list[Maker]] = {}  # by local name, below that parent
        self._open: Any = None  # a record whose end has not come
        self._open_size = 0

    def feed(self, data: bytes) -> None:
        """Parse; emit the records that end here."""
        self._thread.submit(self._parse, data).result()

    def finish(self) -> None:
        """There is no more."""
        try:
            self._thread.submit(self._parse_end).result()
        finally:
            self.close()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    # In the thread.

    def _parse(self, data: bytes) -> None:
        if not data:
            return
        if self._parser is None:
            if self._prolog is None:
                if self._charset and not DECLARED.match(data):
                    self._encoding = known(self._charset)
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
        if self._parser is None:  # the parser may keep a short document until its end
            self._prolog = self._prolog or _new_parser(("start",))
            _close(self._prolog)
            for _, root in self._prolog.read_events():
                self._begin(root)
                break
            _feed(self._parser, self._waiting)
        _close(self._parser)
        self._drain()

    # Until the root element begins.

    def _read_prolog(self, data: bytes) -> bool:
        """Parse in small steps until the root element has begun, then look at what was declared.  Whether it has."""
        for at in range(0, len(data), PROLOG_STEP):
            _feed(self._prolog, data[at : at + PROLOG_STEP])
            for _, root in self._prolog.read_events():
                self._begin(root)
                return True
        if len(self._waiting) > PROLOG:
            raise source_error("the root element does not begin in the first megabyte", code="invalid_document")
        return False

    def _begin(self, root: Any) -> None:
        document = root.getroottree().docinfo
        if document.internalDTD is not None and next(document.internalDTD.iterentities(), None) is not None:
            raise source_error("the document declares entities, which are refused", line=1, code="invalid_document")
        if not any(each.anywhere or self._is(root, each.steps[0]) for each, _ in self._blocks):
            expected = ", ".join(dict.fromkeys(each.steps[0] for each, _ in self._blocks))
            raise source_error(
                f"the root element is {_local(root)}, expected {expected}", line=root.sourceline, code="invalid_document"
            )
        names = {*self._by_name, _local(root)}
        self._parser, self._prolog = _new_parser(("start", "end"), tuple("{*}" + name for name in names), self._encoding), None

    # Records.

    def _drain(self) -> None:
        for event, element in self._parser.read_events():
            parent = element.getparent()
            if event == "start":
                if parent is None:
                    self._root = element
                continue
            if parent is not self._parent or parent is None:
                self._parent, self._matches = parent, {}
            name = _local(element)
            makers = self._matches.get(name)
            if makers is None:
                makers = self._matches[name] = list(self._makers(element))
            for maker in makers:
                self._emit(maker.block.name, maker.make(Node(element)), _line(element), ())

    def _makers(self, element: Any) -> Iterator[Maker]:
        for collection, maker in self._by_name.get(_local(element), ()):
            if self._stands_at(element, collection):
                yield maker

    def _stands_at(self, element: Any, collection: Collection) -> bool:
        """Whether an element is at the end of a collection's path."""
        for step in reversed(collection.steps):
            if element is None or not self._is(element, step):
                return False
            element = element.getparent()
        return collection.anywhere or element is None

    def _is(self, element: Any, step: str) -> bool:
        prefix, colon, name = step.rpartition(":")
        if not colon:
            return _local(element) == name
        uri = self._namespaces.get(prefix)
        return bool(element.tag == f"{{{uri}}}{name}" if uri else element.prefix == prefix and _local(element) == name)

    def _prune(self, size: int) -> None:
        """Drop what is complete: of each open element every child but the last; a record that has begun stays whole."""
        node = self._root
        while node is not None and len(node):
            del node[:-1]
            node = node[-1]
            if node.tag.__class__ is str and next(self._makers(node), None) is not None:
                self._open_size = self._open_size + size if node is self._open else 0
                self._open = node
                if self._open_size > LARGEST_RECORD:
                    message = f"a record is larger than {LARGEST_RECORD >> 20} MB"
                    raise source_error(message, line=node.sourceline, code="invalid_document")
                return
        self._open = None


class _Paths:
    """Getters of paths: plain ones without XPath."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._namespaces = namespaces

    def value(self, text: str) -> Get:
        """The path's value: None if the element or attribute is empty, ABSENT if there is none."""
        plain = xpath.plain(text)
        if plain is None:
            return _evaluated(xpath.compile(text, self._namespaces, 1 << 30))
        content = _attribute(plain.attribute) if plain.attribute else _own_text if plain.text_only else _text
        if not plain.steps:
            return lambda node: content(node.element)
        first, *rest = plain.steps

        def get(node: Node) -> Any:
            element = node.child(first)
            for step in rest:
                if element is None:
                    return ABSENT
                element = Node(element).child(step)
            return ABSENT if element is None else content(element)

        return get

    def elements(self, text: str) -> Find:
        """The elements of a block inside a record; ABSENT if the element that should hold them is."""
        plain = xpath.plain(text)
        evaluate = xpath.compile(text, self._namespaces, 1 << 30)

        def find(node: Node) -> Any:
            if plain is not None and len(plain.steps) > 1 and node.child(plain.steps[0]) is None:
                return ABSENT
            found = evaluate(node.element)
            return [Node(each) for each in found if hasattr(each, "tag")] if isinstance(found, list) else []

        return find


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
    except LookupError:  # libxml2 knows fewer than Python
        raise ServiceError("unsupported_media_type", f"expected a charset that XML is read in, got {encoding!r}") from None


def _feed(parser: Any, data: bytes) -> None:
    """Parse the next bytes.  Raises ServiceError at what is not well formed; the parser itself may keep that until its end."""
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
    """The line in which an element begins.  Beyond the 65,535th, libxml2 knows that of the end of the first text behind it."""
    line: int = element.sourceline
    if line < COUNTED:
        return line
    while len(element) and not element.text:
        element = element[0]
    return line - (element.text or element.tail or "").count("\n")


def _local(element: Any) -> str:
    tag: str = element.tag
    return tag.rpartition("}")[2] if tag[0] == "{" else tag


def _text(element: Any) -> Any:
    return (element.text if not len(element) else "".join(element.itertext())) or None


def _own_text(element: Any) -> Any:
    return element.text or None


def _attribute(name: str) -> Get:
    def get(element: Any) -> Any:
        value = element.get(name)
        if value is None:
            value = next((v for k, v in element.attrib.items() if k.rpartition("}")[2] == name), ABSENT)
        return value or (value if value is ABSENT else None)

    return get


def _evaluated(evaluate: Any) -> Get:
    """The string value of what an XPath gives, the first node's of a node set."""

    def get(node: Node) -> Any:
        try:
            found = evaluate(node.element)
        except etree.XPathError as error:
            raise Wrong(f"the path cannot be followed: {error}") from None
        if isinstance(found, list):
            if not found:
                return ABSENT
            found = found[0] if isinstance(found[0], str) else _text(found[0])
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, float):
            return None if found != found else str(int(found)) if found.is_integer() else repr(found)
        return found or None

    return get
