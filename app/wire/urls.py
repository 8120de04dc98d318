"""URLs as requests send them: percent-encoding, paths, queries, paging parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from app.errors import ServiceError

BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def decode(text: str, what: str) -> str:
    """Percent-decode a piece of a URL.  Raises malformed_request naming `what` it is a piece of."""
    if "%" not in text and "\0" not in text and text.isascii():
        return text  # most are, and a request has a dozen of them
    bad = BAD_ESCAPE.search(text)
    if bad:
        raise ServiceError("malformed_request", f"{what}: expected two hexadecimal digits after % at character {bad.start() + 1}")
    try:
        decoded = unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise ServiceError("malformed_request", f"{what}: expected UTF-8") from None
    if "\0" in decoded:
        raise ServiceError("malformed_request", f"{what}: the character U+0000 is not allowed")
    return decoded


def decode_path(path: str) -> list[str]:
    """The segments of a raw path; an encoded slash is part of its segment."""
    return [decode(segment, "the path") for segment in path.split("?", 1)[0].split("#", 1)[0].split("/")[1:]]


def decode_query(path: str) -> list[tuple[str, str]]:
    """Names and values of a raw path's query, in order; a plus is a space."""
    query = path.partition("?")[2].split("#", 1)[0]
    pairs = (piece.replace("+", " ").partition("=") for piece in query.split("&") if piece)
    return [(name := decode(key, "the query"), decode(value, name)) for key, _, value in pairs]


def page(options: Sequence[tuple[str, str]], limit: int = 100) -> tuple[int, int]:
    """limit (1 to 10,000; `limit` if it is not given) and offset of a list.  Raises malformed_request."""
    found = {"limit": limit, "offset": 0}
    given = set()
    for name, value in options:
        least, most = (1, 10_000) if name == "limit" else (0, 10**15)
        if name not in found:
            raise ServiceError("malformed_request", f"expected limit or offset, got {name}", target=name)
        if name in given:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        given.add(name)
        if not (value.isascii() and value.isdigit() and len(value) < 17 and least <= int(value) <= most):
            expected = f"a whole number from {least} to {most:,}"
            raise ServiceError("malformed_request", f"{name}: expected {expected}, got {value!r}", target=name)
        found[name] = int(value)
    return found["limit"], found["offset"]


def no_options(path: str) -> None:
    """Of a path that takes none: raises malformed_request about the first that a raw path has."""
    for name, _ in decode_query(path):
        raise ServiceError("malformed_request", f"this takes no parameters, got {name}", target=name)
