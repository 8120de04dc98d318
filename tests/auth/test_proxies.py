"""X-Forwarded-* and Forwarded (RFC 7239) count only if they come from a trusted proxy."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from app.config import read_networks
from app.wire.proxies import apply_forwarded

TRUSTED = read_networks("127.0.0.1, 10.0.0.0/8")
HEADERS = [
    # headers, the client's address, scheme and host as the service sees them
    ([], ("127.0.0.1", "http", "service")),
    ([("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-Proto", "https")], ("198.51.100.1", "https", "service")),
    ([("X-Forwarded-Host", "bds.example.com")], ("127.0.0.1", "http", "bds.example.com")),
    ([("X-Forwarded-Proto", "http, https")], ("127.0.0.1", "https", "service")),
    ([("X-Forwarded-Proto", "gopher")], ("127.0.0.1", "http", "service")),
    ([("Forwarded", "for=198.51.100.2;proto=https;host=bds.example.com")], ("198.51.100.2", "https", "bds.example.com")),
    ([("Forwarded", 'For="[2001:db8::17]:4711"; Proto=HTTPS')], ("2001:db8::17", "https", "service")),
    ([("Forwarded", "for=203.0.113.9, for=198.51.100.3"), ("Forwarded", "for=10.1.1.1")], ("198.51.100.3", "http", "service")),
    ([("Forwarded", "for=198.51.100.4, for=unknown")], ("127.0.0.1", "http", "service")),
    ([("Forwarded", "for=_hidden;proto=https")], ("127.0.0.1", "https", "service")),
    ([("Forwarded", 'for="198.51.100.5;proto=https, for=198.51.100.6')], ("127.0.0.1", "http", "service")),
    ([("Forwarded", "nonsense;;=,=")], ("127.0.0.1", "http", "service")),
    ([("Forwarded", 'host="a\\"b"')], ("127.0.0.1", "http", 'a"b')),
    # only one kind counts: the client may have sent the other
    (
        [("X-Forwarded-For", "198.51.100.7"), ("Forwarded", "for=203.0.113.9;proto=https;host=evil")],
        ("198.51.100.7", "http", "service"),
    ),
]


@pytest.mark.parametrize(("headers", "seen"), HEADERS)
def test_headers_of_a_trusted_proxy_count(headers: list[tuple[str, str]], seen: tuple[str, str, str]) -> None:
    request = make_mocked_request("GET", "/", headers=CIMultiDict([("Host", "service"), *headers])).clone(remote="127.0.0.1")
    found = apply_forwarded(request, TRUSTED)
    assert (found.remote, found.scheme, found.host) == seen


@pytest.mark.parametrize("headers", [each for each, _ in HEADERS])
def test_headers_of_other_clients_do_not_count(headers: list[tuple[str, str]]) -> None:
    request = make_mocked_request("GET", "/", headers=CIMultiDict([("Host", "service"), *headers])).clone(remote="192.0.2.1")
    found = apply_forwarded(request, TRUSTED)
    assert (found.remote, found.scheme, found.host) == ("192.0.2.1", "http", "service")
