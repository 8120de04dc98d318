"""XML documents that are parsed at the same time, with pieces from any thread, keep their names apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.document import Preview, SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from app.mapper.sources.open import open_source

TEXT = "type xml\nunits = '//unit' { code = '@code'  name = './/name' }"
DOCUMENTS, PIECES, RECORDS = 6, 40, 300


@pytest.fixture
def mapper(catalog: Catalog) -> Mapper:
    mapper = read(TEXT, catalog)
    assert isinstance(mapper, Mapper)
    return mapper


def pieces(document: int) -> Iterator[bytes]:
    """A document whose elements and attributes have unique names."""
    yield b"<units>"
    for piece in range(PIECES):
        yield "".join(
            f"<unit code='{document}-{n}'><e{document}x{n} a{document}y{n}='1'><name>{document}n{n}</name></e{document}x{n}></unit>"
            for n in range(piece * RECORDS, (piece + 1) * RECORDS)
        ).encode()
    yield b"</units>"


def test_concurrent_documents_do_not_mix(mapper: Mapper) -> None:
    found: dict[int, list[tuple[str, str]]] = {n: [] for n in range(DOCUMENTS)}

    def source_of(document: int) -> Any:
        return open_source(mapper, lambda _name, record, _line, _inside: found[document].append((record["code"], record["name"])))

    sources = [source_of(n) for n in range(DOCUMENTS)]
    with ThreadPoolExecutor(DOCUMENTS) as threads:
        for step in zip(*map(pieces, range(DOCUMENTS)), strict=True):
            list(threads.map(lambda source, piece: source.feed(piece), sources, step))
        list(threads.map(lambda source: source.finish(), sources))
    for document, records in found.items():
        assert records == [(f"{document}-{n}", f"{document}n{n}") for n in range(PIECES * RECORDS)]


def test_a_document_is_parsed_in_one_thread_of_its_own(mapper: Mapper) -> None:
    seen = set()
    source = open_source(mapper, lambda *_: seen.add(threading.get_ident()))
    for piece in pieces(0):
        caller = threading.Thread(target=source.feed, args=(piece,))
        caller.start()
        caller.join()
    source.finish()
    assert len(seen) == 1
    assert seen != {threading.get_ident()}


def parsing() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("xml")}


@pytest.mark.parametrize("end", ["finished", "malformed at the end", "closed", "closed before it began"])
def test_the_thread_ends_with_the_document(mapper: Mapper, end: str) -> None:
    before = parsing()
    mapped = SourceConverter(mapper)
    if end != "closed before it began":
        mapped.feed(b"<units><unit code='a'/>")
        assert len(parsing() - before) == 1
    if end == "finished":
        mapped.feed(b"</units>")
        b"".join(mapped.finish())
    elif end == "malformed at the end":
        with pytest.raises(ServiceError):
            b"".join(mapped.finish())
    else:
        mapped.close()
    for thread in parsing() - before:
        thread.join(10)
    assert parsing() <= before


def test_the_thread_of_a_preview_ends_before_the_document_does(mapper: Mapper) -> None:
    before = parsing()
    preview = Preview(mapper, 1)
    assert not preview.feed(b"<units><unit code='a'/><unit code='b'/>")
    assert b'"a"' in preview.finish()
    preview.close()
    for thread in parsing() - before:
        thread.join(10)
    assert parsing() <= before
