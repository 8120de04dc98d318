"""The catalog of a real database, and a function that maps a source to its import document."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.database import connections
from app.database.catalog import Catalog
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper

Document = dict[str, Any]
Run = Callable[..., Document]


@pytest.fixture(scope="module")
def catalog(module_database_url: str) -> Catalog:
    with connections.connect(module_database_url) as reader:
        return connections.read_catalog(reader)


@pytest.fixture(scope="module")
def run(catalog: Catalog) -> Run:
    """run(mapper's text, source, chunk=bytes at once) -> the whole import document."""

    def run(text: str, source: str | bytes, chunk: int = 1 << 20, charset: str | None = None) -> Document:
        mapper = read(text, catalog)
        assert isinstance(mapper, Mapper)
        mapped = SourceConverter(mapper, charset)
        data = source.encode() if isinstance(source, str) else source
        out = b"".join(mapped.feed(data[at : at + chunk]) for at in range(0, len(data), chunk)) + b"".join(mapped.finish())
        return document(out)

    return run


def document(data: bytes) -> Document:
    """Parse an import document; the arrays of a repeated collection are joined."""

    def merge(pairs: list[tuple[str, Any]]) -> Document:
        merged: Document = {}
        for name, value in pairs:
            merged[name] = merged[name] + value if isinstance(merged.get(name), list) else value
        return merged

    parsed: Document = json.loads(data, object_pairs_hook=merge)
    return parsed
