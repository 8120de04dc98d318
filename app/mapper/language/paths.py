"""Checks of the paths and encodings in a mapper, for all formats."""

from __future__ import annotations

from lxml import etree

from app.mapper.language import jsonpath, xpath
from app.mapper.language.tree import SourceFormat
from app.mapper.language.xml_blocks import block_paths
from app.mapper.language.xpath import PathError
from app.mapper.sources.encodings import find_encoding

__all__ = ["PathError", "check_children", "check_collection", "check_encoding", "check_value"]

ROW, SAME_ROW = "row", "."


def check_collection(format: SourceFormat, text: str) -> None:
    """Check the path of a top-level block.  Raises PathError."""
    if format == "xml":
        block_paths(text)
    elif format == "json":
        jsonpath.block_path(text)
    elif text != ROW:
        raise PathError(f"expected '{ROW}', the path of each {format} block, got {text!r}")


def check_children(format: SourceFormat, text: str, inside: int) -> int:
    """Check the path of a nested block; return the least number of steps that it leads down.  Raises PathError."""
    if format == "xml":
        plain = xpath.plain(text)
        if plain is not None and plain.attribute:
            raise PathError("expected a path to elements")
        if not isinstance(xpath.compile(text, {}, inside)(etree.Element("sample")), list):
            raise PathError("expected a path to elements")
        return xpath.lowest_level(text, inside) - inside
    if format == "json":
        jsonpath.query(text)
    elif text != SAME_ROW:
        raise PathError(f"expected '{SAME_ROW}' (the same row), the path of each nested {format} block, got {text!r}")
    return 0


def check_value(format: SourceFormat, text: str, inside: int) -> None:
    """Check the path of a field.  Raises PathError."""
    if not text:
        raise PathError("expected a path")
    if format == "xml":
        xpath.compile(text, {}, inside)
    elif format == "json":
        jsonpath.query(text)


def check_encoding(name: str) -> None:
    """Raises ValueError if the encoding is unknown or not for text."""
    try:
        find_encoding(name)
    except (LookupError, ValueError):
        raise ValueError(f"expected an encoding such as utf-8 or windows-1252, got {name!r}") from None
