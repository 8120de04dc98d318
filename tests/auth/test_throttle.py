"""Wrong credentials are throttled per address, and wrong logins per email address, too, in all processes together.

Of the correct ones only logins are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from app.auth.keys import make_key
from app.auth.passwords import Passwords
from app.config import read_networks
from tests.auth.client import EMAIL, PASSWORD, ask, basic, bearer, fresh_address, login, make_user, sign_in
from tests.service.serving import Reply, Service, running

pytestmark = pytest.mark.slow

A_MINUTE = 20
AN_HOUR = 100

WRONG: dict[str, Callable[[Service, str], Reply]] = {
    "a key, Basic, OData": lambda s, a: ask(s, "/api/odata/demo", headers=basic("api", make_key()), source=a),
    "a key, Bearer": lambda s, a: ask(s, "/c/demo/products", headers=bearer(make_key()), source=a),
    "a key, X-API-Key": lambda s, a: ask(s, "/api/demo/imports", headers={"X-API-Key": "guess"}, source=a),
    "a token": lambda s, a: ask(s, "/c/demo/products", headers=bearer("a.b.c"), source=a),
    "a cookie": lambda s, a: ask(s, "/c/demo/products", headers={"Cookie": "session=guess"}, source=a),
    "a login": lambda s, a: login(s, password="guess", source=a),
}


def exhaust(service: Service, address: str) -> None:
    for _ in range(A_MINUTE):
        assert ask(service, "/c/demo/products", headers=bearer("guess"), source=address).status == 401


@pytest.mark.parametrize("kind", WRONG)
def test_from_the_21st_wrong_credentials_in_a_minute_the_answer_is_429(service: Service, kind: str) -> None:
    address = fresh_address()
    answers = [WRONG[kind](service, address) for _ in range(A_MINUTE + 2)]
    assert [each.status for each in answers] == [401] * A_MINUTE + [429, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    error = answers[-1].json
    assert (error["error"] if "OData" in kind else error)["code"] == "too_many_requests"
    assert WRONG[kind](service, fresh_address()).status == 401, "another address"


def test_counting_restarts_after_a_minute(service: Service) -> None:
    address = fresh_address()
    exhaust(service, address)
    assert WRONG["a key, Bearer"](service, address).status == 429
    passed = "update bds.wrong_credentials set first_at = first_at - interval '1 minute' where address = %s returning count"
    assert service.operator.rows(passed, (address,)) == [(A_MINUTE + 1,)]
    assert WRONG["a key, Bearer"](service, address).status == 401
    assert login(service, source=address).status == 200


def test_a_valid_key_token_or_cookie_is_never_refused(service: Service) -> None:
    address, signed_in = fresh_address(), sign_in(service)
    exhaust(service, address)
    for headers in (
        bearer(service.key),
        {"X-API-Key": service.key},
        basic("api", service.key),
        bearer(signed_in.token),
        signed_in.browser,
    ):
        assert ask(service, "/c/demo/products", headers=headers, source=address).status == 200
    assert ask(service, "/api/odata/demo", headers=basic("api", service.key), source=address).status == 200


def test_missing_ended_and_misplaced_credentials_are_not_counted(service: Service) -> None:
    address, signed_in = fresh_address(), sign_in(service)
    ask(service, "/auth/logout", "POST", signed_in.browser)
    for _ in range(A_MINUTE):
        for headers in ({}, signed_in.cookies, bearer(signed_in.token)):
            assert ask(service, "/c/demo/products", headers=headers, source=address).status == 401
        assert ask(service, "/api/odata/demo", headers=bearer(service.key), source=address).status == 401
    assert login(service, source=address).status == 200


def test_a_correct_login_is_not_counted(service: Service) -> None:
    address = fresh_address()
    assert {login(service, source=address).status for _ in range(A_MINUTE + 1)} == {200}


def test_a_throttled_login_is_not_hashed_whether_correct_or_wrong(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    address, hashed = fresh_address(), []
    compare = Passwords._compare
    monkeypatch.setattr(Passwords, "_compare", lambda *given: hashed.append(1) or compare(*given))
    exhaust(service, address)
    assert [login(service, source=address).status, login(service, password="guess", source=address).status] == [429, 429]
    assert hashed == []
    assert (login(service).status, hashed) == (200, [1])


def test_concurrent_wrong_logins_are_limited_like_consecutive_ones(
    service: Service, module_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, hashed = fresh_address(), []
    compare = Passwords._compare
    monkeypatch.setattr(Passwords, "_compare", lambda *given: hashed.append(1) or compare(*given))
    with running(module_database_url, company=None) as second, ThreadPoolExecutor(50) as threads:
        answers = threads.map(lambda n: login((service, second)[n % 2], password="guess", source=address).status, range(50))
        assert Counter(answers) == {401: A_MINUTE, 429: 30}
    assert len(hashed) == A_MINUTE


def test_processes_count_together(service: Service, module_database_url: str) -> None:
    address = fresh_address()
    with running(module_database_url, company=None) as second:
        for _ in range(A_MINUTE // 2):
            assert WRONG["a key, Bearer"](service, address).status == 401
            assert WRONG["a key, Bearer"](second, address).status == 401
        assert [WRONG["a key, Bearer"](each, address).status for each in (service, second)] == [429, 429]


_networks = count()


def guess(service: Service, email: str, times: int) -> None:
    """Count wrong logins with an email address, ten from each of as many networks as it takes, as the service counts them."""
    for number in range(times):
        if number % 10 == 0:
            address = f"198.18.{next(_networks)}.1"
        query = "select minute_began, hour_began from bds_service.begin_attempt(%s, %s, %s, %s)"
        [began] = service.operator.rows(query, (address, email, A_MINUTE, AN_HOUR))
        assert None not in began
        service.operator.rows("select bds_service.end_attempt(%s, %s, %s, %s, true)", (address, email, *began))


@pytest.fixture(scope="module")
def proxied(service: Service, module_database_url: str) -> Iterator[Service]:
    """The service behind a proxy, so that a client can be anywhere."""
    with running(module_database_url, company=None, trusted_proxies=read_networks("127.0.0.0/8")) as proxied:
        yield proxied


def login_from(service: Service, address: str, email: str, password: str = PASSWORD) -> Reply:
    return ask(service, "/auth/login", "POST", {"X-Forwarded-For": address}, {"email": email, "password": password})


@pytest.mark.parametrize("is_known", [True, False], ids=["a user", "nobody"])
def test_after_a_hundred_wrong_logins_with_an_email_address_it_is_refused_everywhere(
    service: Service, proxied: Service, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    email = make_user(service, "ida@example.com") if is_known else "nobody.at.all@example.com"
    guess(service, email.upper(), AN_HOUR - 1)
    assert login_from(proxied, "192.0.2.1", email, "guess").status == 401
    hashed: list[int] = []
    compare = Passwords._compare
    monkeypatch.setattr(Passwords, "_compare", lambda *given: hashed.append(1) or compare(*given))
    for password in (PASSWORD, "guess"):
        reply = login_from(proxied, "192.0.2.2", f" {email.title()} ", password)
        wait = int(reply.headers["Retry-After"])
        assert (reply.status, reply.json["code"]) == (429, "too_many_requests") and 3500 < wait <= 3600
        assert reply.json["detail"] == f"too many wrong logins with this email address; try again in {wait} s"
    assert hashed == []
    assert login(service).status == 200, "of another email address"
    passed = "update bds.wrong_logins set first_at = first_at - interval '1 hour' where count = %s returning 1"
    assert service.operator.rows(passed, (AN_HOUR,)) == [(1,)]
    assert login_from(proxied, "192.0.2.3", email, "guess").status == 401, "the hour has ended"
    assert login_from(proxied, "192.0.2.3", email).status == (200 if is_known else 401)


# where a user has signed in, from where the next login comes, its status while the email address is throttled
NETWORKS = [
    ("192.0.2.17", "192.0.2.200", 200),
    ("192.0.2.17", "192.0.3.17", 429),
    ("2001:db8:1:2::5", "2001:db8:1:2:ffff::9", 200),
    ("2001:db8:1:2::5", "2001:db8:1:3::5", 429),
]


def test_nobody_keeps_a_user_from_signing_in_where_they_have_before(service: Service, proxied: Service) -> None:
    for number, (before, now, status) in enumerate(NETWORKS):
        email = make_user(service, f"kim{number}@example.com")
        assert login_from(proxied, before, email).status == 200
        guess(service, email, AN_HOUR)
        assert (before, now, login_from(proxied, now, email).status) == (before, now, status)
    email = "kim0@example.com"
    assert login_from(proxied, "192.0.2.1", email, "guess").status == 401, "a wrong one is wrong"
    assert login_from(proxied, "203.0.113.1", email).status == 429
    aged = "update bds.login_networks set last_at = last_at - interval '30 days' where user_id = (select user_id from bds_service.password_of(%s)) returning 1"
    assert service.operator.rows(aged, (email,)) == [(1,)]
    assert login_from(proxied, "192.0.2.17", email).status == 429, "30 days ago"
    assert login_from(proxied, "192.0.2.17", "kim1@example.com").status == 200
    assert service.operator.rows("select count(*) from bds.login_networks where last_at < now() - interval '30 days'") == [(0,)]


def test_sessions_tokens_and_keys_go_on_while_logins_with_their_email_address_are_refused(
    service: Service, proxied: Service
) -> None:
    email = make_user(service, "lea@example.com")
    signed_in = sign_in(service, email)
    guess(service, email, AN_HOUR)
    assert login_from(proxied, "192.0.2.9", email).status == 429
    for headers in (bearer(signed_in.token), signed_in.browser, bearer(service.key)):
        assert ask(proxied, "/c/demo/products", headers={**headers, "X-Forwarded-For": "192.0.2.9"}).status == 200


def test_concurrent_logins_from_many_networks_are_counted_like_consecutive_ones(
    service: Service, proxied: Service, module_database_url: str
) -> None:
    email = make_user(service, "mia@example.com")
    guess(service, email, AN_HOUR - 10)
    with (
        running(module_database_url, company=None, trusted_proxies=read_networks("127.0.0.0/8")) as second,
        ThreadPoolExecutor(20) as threads,
    ):
        right = threads.map(lambda n: login_from((proxied, second)[n % 2], f"192.0.{n}.1", email).status, range(5))
        assert set(right) == {200}, "correct ones are not counted"
        answers = threads.map(lambda n: login_from((proxied, second)[n % 2], f"198.19.{n}.1", email, "guess").status, range(20))
        assert Counter(answers) == {401: 10, 429: 10}


FORWARDED: list[tuple[str, list[str], str]] = [
    # trusted proxies, X-Forwarded-For, the counted address of a request from 127.0.0.1
    ("", ["198.51.100.1"], "127.0.0.1/32"),
    ("10.0.0.0/8", ["198.51.100.2"], "127.0.0.1/32"),
    ("127.0.0.1", ["198.51.100.3"], "198.51.100.3/32"),
    ("127.0.0.0/8", ["203.0.113.9, 198.51.100.4"], "198.51.100.4/32"),
    ("127.0.0.1,10.0.0.0/8", ["198.51.100.5, 10.1.1.1"], "198.51.100.5/32"),
    ("127.0.0.1,10.0.0.0/8", ["198.51.100.6", "10.1.1.1"], "198.51.100.6/32"),
    ("127.0.0.1", ["198.51.100.7:4711"], "198.51.100.7/32"),
    ("127.0.0.1", ["[2001:db8:1:2:3:4:5:6]:4711"], "2001:db8:1:2::/64"),
    ("127.0.0.1", ["2001:db8:1:3:ffff::1"], "2001:db8:1:3::/64"),
    ("127.0.0.1", ["::ffff:198.51.100.8"], "198.51.100.8/32"),
    ("127.0.0.1", ["198.51.100.9, unknown"], "127.0.0.1/32"),
    ("127.0.0.1", [], "127.0.0.1/32"),
]


@pytest.mark.parametrize(("trusted", "chain", "counted"), FORWARDED)
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(
    module_database_url: str, service: Service, trusted: str, chain: list[str], counted: str
) -> None:
    service.operator.rows("delete from bds.wrong_credentials returning 1")
    settings: dict[str, Any] = {"trusted_proxies": read_networks(trusted)}
    with running(module_database_url, company=None, **settings) as proxied:
        lines = "".join(f"X-Forwarded-For: {each}\r\n" for each in chain)
        request = f"GET /c/demo/units HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\n{lines}Connection: close\r\n\r\n"
        assert proxied.raw(request.encode()).status == 401
    assert service.operator.rows("select address::text, count from bds.wrong_credentials") == [(counted, 1)]


@pytest.mark.parametrize(("trusted", "secure"), [("127.0.0.1", True), ("10.0.0.1", False)])
def test_the_cookie_is_secure_behind_a_trusted_proxy_with_https(
    module_database_url: str, service: Service, trusted: str, secure: bool
) -> None:
    with running(module_database_url, company=None, trusted_proxies=read_networks(trusted)) as proxied:
        reply = ask(proxied, "/auth/login", "POST", {"X-Forwarded-Proto": "https"}, {"email": EMAIL, "password": PASSWORD})
        context = ask(proxied, "/api/odata/demo", headers={**basic("api", service.key), "X-Forwarded-Proto": "https"})
    assert reply.status == 200 and ("Secure" in reply.headers["Set-Cookie"]) == secure
    assert ("Strict-Transport-Security" in reply.headers, "https://" in context.json["@odata.context"]) == (secure, secure)


def test_each_count_deletes_some_of_those_that_are_past(service: Service) -> None:
    rows = service.operator.rows
    past = """
        select (select count(*) from bds.wrong_credentials where first_at < now() - interval '1 min'),
            (select count(*) from bds.wrong_logins where first_at < now() - interval '1 hour')
    """
    with service.operator.connection.transaction():  # the service's own housekeeping does not see them
        rows(
            "insert into bds.wrong_credentials select ('10.9.8.' || n)::cidr, now() - interval '2 min', 1 from generate_series(1, 15) n returning 1"
        )
        rows(
            "insert into bds.wrong_logins select sha256(int4send(n)), now() - interval '2 h', 1 from generate_series(1, 15) n returning 1"
        )
        rows("select bds_service.count_wrong('198.51.100.1', 20)")
        assert rows(past) == [(5, 5)]
        [began] = rows("select minute_began, hour_began from bds_service.begin_attempt('198.51.100.2', 'a@b.c', 20, 100)")
        rows("select bds_service.end_attempt('198.51.100.2', 'a@b.c', %s, %s, false)", began)
        assert rows(past) == [(0, 0)]
    assert rows("select count from bds.wrong_credentials where address = '198.51.100.1'") == [(1,)], "a count of this minute stays"
