"""URLs of requests: percent-encoding, paths, queries, the parameters limit and offset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes
from uuid import UUID

from app.errors import ServiceError

MAX_URL = 64 << 10  # bytes of a path with its query
MAX_LIMIT = 10_000  # items of a list, of commands, too
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def decode(text: str, part: str) -> str:
    """Percent-decode a part of a URL.  part: its name, for errors.  Raises malformed_request."""
    if "%" not in text and "\0" not in text and text.isascii():
        return text  # most parts of most requests
    bad = BAD_ESCAPE.search(text)
    if bad:
        raise ServiceError("malformed_request", f"{part}: expected two hexadecimal digits after % at character {bad.start() + 1}")
    try:
        decoded = unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise ServiceError("malformed_request", f"{part}: expected UTF-8") from None
    if "\0" in decoded:
        raise ServiceError("malformed_request", f"{part}: the character U+0000 is not allowed")
    return decoded


def decode_path(path: str) -> list[str]:
    """Return the segments of a raw path; an encoded slash is part of its segment."""
    return [decode(segment, "the path") for segment in path.split("?", 1)[0].split("#", 1)[0].split("/")[1:]]


def decode_query(path: str) -> list[tuple[str, str]]:
    """Return the names and values in the query of a raw path, in order; a plus is a space."""
    query = path.partition("?")[2].split("#", 1)[0]
    pairs = (each.replace("+", " ").partition("=") for each in query.split("&") if each)
    return [(name := decode(key, "the query"), decode(value, name)) for key, _, value in pairs]


def read_id(text: str, what: str) -> str:
    """Return the id of an object, which a path has in any form of a UUID, as PostgreSQL has it.  Raises not_found: no such what."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ServiceError("not_found", f"no such {what}: {text}") from None


def read_page(options: Sequence[tuple[str, str]], limit: int = 100) -> tuple[int, int]:
    """Return the options limit (1 to MAX_LIMIT, else the default) and offset of a list.  Raises malformed_request."""
    page = {"limit": limit, "offset": 0}
    given = set()
    for name, value in options:
        least, most = (1, MAX_LIMIT) if name == "limit" else (0, 10**15)
        if name not in page:
            raise ServiceError("malformed_request", f"expected limit or offset, got {name}", target=name)
        if name in given:
            raise ServiceError("malformed_request", f"{name} is given twice", target=name)
        given.add(name)
        if not (value.isascii() and value.isdigit() and len(value) < 17 and least <= int(value) <= most):
            expected = f"a whole number from {least} to {most:,}"
            raise ServiceError("malformed_request", f"{name}: expected {expected}, got {value!r}", target=name)
        page[name] = int(value)
    return page["limit"], page["offset"]


def read_flag(options: Sequence[tuple[str, str]], name: str) -> bool:
    """Return the only option that a path takes, true or false; false if it is not given.  Raises malformed_request."""
    for given, value in options:
        if given != name or len(options) > 1:
            raise ServiceError("malformed_request", f"expected {name} at most, got {options[-1][0]}", target=options[-1][0])
        if value not in ("true", "false"):
            raise ServiceError("malformed_request", f"{name}: expected true or false, got {value}", target=name)
    return any(value == "true" for _, value in options)


def refuse_options(path: str) -> None:
    """Raises malformed_request if the raw path has a query."""
    for name, _ in decode_query(path):
        raise ServiceError("malformed_request", f"expected no parameters, got {name}", target=name)
