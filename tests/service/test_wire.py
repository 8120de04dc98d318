"""The HTTP that all packages share: URLs, entity tags, content codings."""

from __future__ import annotations

import zlib
from asyncio import run

import pytest
from multidict import CIMultiDict

from app.errors import ServiceError
from app.wire.answers import IN_THREAD, GzipEncoder, accepts_gzip, matches, quality, weak_tag
from app.wire.urls import decode_path, decode_query

PATHS = [
    ("/api/odata/demo", ["api", "odata", "demo"]),
    ("/api/odata/demo/", ["api", "odata", "demo", ""]),
    ("/a/products(code='A%2FB')?x=/y", ["a", "products(code='A/B')"]),
    ("/a/%C3%BC+b", ["a", "ü+b"]),
]
QUERIES = [
    ("/a", []),
    ("/a?", []),
    ("/a?x", [("x", "")]),
    ("/a?$filter=a+eq+'b%2Bc'&x=1&&x=2", [("$filter", "a eq 'b+c'"), ("x", "1"), ("x", "2")]),
    ("/a?%24top=5", [("$top", "5")]),
    ("/a?x=a=b?c%26d", [("x", "a=b?c&d")]),
    ("/a?x=%F0%9F%98%80", [("x", "😀")]),
]
BAD = ["/a%", "/a%4", "/a%zz", "/%ff", "/%ed%a0%80", "/%00", "/\udcff"]


@pytest.mark.parametrize(("path", "segments"), PATHS)
def test_paths_are_split_before_they_are_decoded(path: str, segments: list[str]) -> None:
    assert decode_path(path) == segments


@pytest.mark.parametrize(("path", "pairs"), QUERIES)
def test_queries_keep_their_order_and_repeated_names(path: str, pairs: list[tuple[str, str]]) -> None:
    assert decode_query(path) == pairs


@pytest.mark.parametrize("bad", BAD)
def test_a_url_that_cannot_be_decoded_is_malformed(bad: str) -> None:
    for read in (lambda: decode_path(bad), lambda: decode_query("/?x=" + bad), lambda: decode_query("/?" + bad + "=x")):
        with pytest.raises(ServiceError) as error:
            read()
        assert error.value.code == "malformed_request"


TAGS = [
    (None, False),
    ("", False),
    ("*", True),
    (' W/"a" ', True),
    ('"a"', True),
    ('"b", W/"a"', True),
    ('"b,a"', False),
    ("a", False),
]


@pytest.mark.parametrize(("header", "expected"), TAGS)
def test_entity_tags_match_weakly(header: str | None, expected: bool) -> None:
    assert matches(CIMultiDict({} if header is None else {"if-none-match": header}), 'W/"a"') is expected


def test_a_tag_depends_on_all_its_parts() -> None:
    assert len({weak_tag(1, "a"), weak_tag(2, "a"), weak_tag(1, "b"), weak_tag("1", "a")}) == 4


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [("", 1), ("q=0", 0), (";q=0.5", 0.5), ("a=b; Q = 0.123", 0.123), ("q=2", 0), ("q=x", 0), ("q=", 0), ("q=1.000", 1)],
)
def test_quality(parameters: str, expected: float) -> None:
    assert quality(parameters) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("gzip", True),
        ("GZip;q=0.1", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("br, deflate", False),
        ("x-gzip", True),
    ],
)
def test_gzip_is_used_if_the_client_accepts_it(header: str | None, expected: bool) -> None:
    assert accepts_gzip({} if header is None else {"Accept-Encoding": header}) is expected


def test_each_piece_of_gzip_can_be_decoded_when_it_arrives() -> None:
    async def check() -> None:
        gzip, reader = GzipEncoder(), zlib.decompressobj(31)
        for piece in (b"first", b"x" * (IN_THREAD + 1), b"last"):
            assert reader.decompress(await gzip.piece(piece)) == piece
        assert reader.decompress(gzip.end()) == b"" and reader.eof

    run(check())
