"""Login and logout, and how soon sessions end."""

from __future__ import annotations

import http.cookies
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.auth import passwords
from app.auth.login import wrong_login
from app.auth.passwords import hash_password
from tests.auth.client import EMAIL, HASH, PASSWORD, ask, bearer, fresh_address, login, make_user, sign_in
from tests.service.serving import Service, running, wait_until

pytestmark = pytest.mark.slow


def status(service: Service, headers: dict[str, str]) -> int:
    return ask(service, "/c/demo/products", headers=headers).status


def test_a_login_returns_a_token_for_an_hour_and_an_httponly_cookie(service: Service) -> None:
    reply = login(service)
    assert (reply.status, set(reply.json)) == (200, {"token", "expiresAt", "csrf"})
    left = datetime.fromisoformat(reply.json["expiresAt"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    cookie = http.cookies.SimpleCookie(reply.headers["Set-Cookie"])["session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Lax", "/", "")
    assert reply.headers["Cache-Control"] == "no-store"


def test_case_and_spaces_around_an_email_address_do_not_matter(service: Service) -> None:
    assert login(service, " Anna@Example.COM ").status == 200


@pytest.mark.parametrize(
    ("email", "password"),
    [
        (EMAIL, PASSWORD + " "),
        (EMAIL, ""),
        ("nobody@example.com", PASSWORD),
        ("", ""),
        ("a\0b", "\0"),
        ("\ud800", "\ud800"),
        (EMAIL, "x" * 5_000),
    ],
)
def test_wrong_logins_all_have_the_same_answer(service: Service, email: str, password: str) -> None:
    reply = login(service, email, password, fresh_address())
    assert (reply.status, reply.json["code"], reply.json["detail"]) == (401, "unauthorized", wrong_login().message)
    assert "Set-Cookie" not in reply.headers and reply.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("{", "application/json", (400, None)),
        ("[]", "application/json", (400, None)),
        ('{"email": "a@b.c"}', "application/json", (400, "password")),
        ('{"email": 1, "password": "x"}', "application/json", (400, "email")),
        ("email=a&password=b", "application/x-www-form-urlencoded", (415, None)),
        ('{"email": "a", "password": "' + "x" * 70_000 + '"}', "application/json", (413, None)),
    ],
)
def test_a_malformed_login_is_not_a_wrong_login(
    service: Service, body: str, content_type: str, expected: tuple[int, str | None]
) -> None:
    reply = ask(service, "/auth/login", "POST", {"Content-Type": content_type}, body)
    assert (reply.status, reply.json.get("target")) == expected


def test_a_logout_ends_the_cookie_and_the_token_of_its_login_only(service: Service) -> None:
    one, other = sign_in(service), sign_in(service)
    assert [status(service, bearer(one.token)), status(service, one.cookies)] == [200, 200]
    reply = ask(service, "/auth/logout", "POST", bearer(one.token))
    assert reply.status == 204 and "Max-Age=0" in reply.headers["Set-Cookie"]
    assert status(service, bearer(one.token)) == 401
    assert [status(service, one.cookies), status(service, other.cookies), status(service, bearer(other.token))] == [401, 200, 200]


def test_a_key_cannot_log_out(service: Service) -> None:
    assert ask(service, "/auth/logout", "POST", bearer(service.key)).status == 403


def test_a_new_password_ends_every_login_in_every_process(service: Service, module_database_url: str) -> None:
    email = make_user(service, "bea@example.com")
    first, second = sign_in(service, email), sign_in(service, email)
    with second_service(module_database_url) as other_process:
        assert [status(each, bearer(first.token)) for each in (service, other_process)] == [200, 200]
        assert [status(each, second.cookies) for each in (service, other_process)] == [200, 200]
        assert service.operator.rows("select bds.set_password(%s, %s)", (email, hash_password("another horse"))) == [(True,)]
        for each in (service, other_process):
            assert [status(each, bearer(first.token)), status(each, second.cookies)] == [401, 401]
    assert [login(service, email, fresh_address()).status, login(service, email, "another horse").status] == [401, 200]


def test_changing_a_password_needs_the_old_one(service: Service) -> None:
    email = make_user(service, "gil@example.com")
    signed_in = sign_in(service, email)

    def change(headers: dict[str, str], old: str, new: str) -> tuple[int, str | None]:
        reply = ask(service, "/auth/password", "POST", headers, {"password": old, "newPassword": new}, fresh_address())
        return reply.status, reply.json["code"] if reply.body else None

    assert change({}, PASSWORD, "another horse") == (401, "unauthorized")
    assert change(bearer(service.key), PASSWORD, "another horse") == (403, "forbidden")
    assert change(signed_in.cookies, PASSWORD, "another horse") == (403, "csrf_failed")
    assert change(signed_in.browser, "a guess", "another horse") == (401, "unauthorized")
    assert change(signed_in.browser, PASSWORD, "short") == (400, "malformed_request")
    assert status(service, signed_in.cookies) == 200
    assert change(signed_in.browser, PASSWORD, "another horse") == (204, None)
    assert [status(service, signed_in.cookies), status(service, bearer(signed_in.token))] == [401, 401]
    assert login(service, email, "another horse").status == 200


@pytest.mark.parametrize(("meanwhile", "expected"), [("a reset", 401), ("a stronger hash", 204)])
def test_a_change_of_password_replaces_the_one_that_it_was_asked_with(
    service: Service, monkeypatch: pytest.MonkeyPatch, meanwhile: str, expected: int
) -> None:
    email = make_user(service, f"{meanwhile.replace(' ', '-')}@example.com")
    signed_in, hash = sign_in(service, email), passwords.Passwords.hash

    async def hash_meanwhile(given: passwords.Passwords, password: str) -> str:
        if meanwhile == "a reset":
            service.operator.rows("select bds.set_password(%s, %s)", (email, hash_password("by the administrator")))
        else:
            service.operator.connection.execute(
                "update bds.users set password_hash = %s where email = %s", (hash_password(PASSWORD), email)
            )
        return await hash(given, password)

    monkeypatch.setattr(passwords.Passwords, "hash", hash_meanwhile)
    reply = ask(service, "/auth/password", "POST", signed_in.browser, {"password": PASSWORD, "newPassword": "another horse"})
    assert reply.status == expected and status(service, signed_in.cookies) == 401
    right, wrong = ("another horse", "by the administrator")[:: 1 if expected == 204 else -1]
    assert [login(service, email, each, fresh_address()).status for each in (right, wrong)] == [200, 401]


def test_deleting_a_user_ends_their_sessions(service: Service) -> None:
    email = make_user(service, "cleo@example.com")
    signed_in = sign_in(service, email)
    assert status(service, signed_in.cookies) == 200
    assert service.operator.rows("select bds.delete_user(%s)", (email,)) == [(True,)]
    assert status(service, signed_in.cookies) == 401


def test_a_login_verified_before_a_new_password_begins_no_session(service: Service) -> None:
    email = make_user(service, "dora@example.com")
    user, old = service.operator.rows("select user_id, password_hash from bds_service.password_of(%s)", (email,))[0]
    service.operator.rows("select bds.set_password(%s, %s)", (email, hash_password("another horse")))
    assert service.operator.rows("select bds_service.begin_session(%s, %s, '1 h')", (user, old)) == [(None,)]


def test_a_new_password_waits_for_a_concurrent_login_and_ends_its_session(service: Service, module_database_url: str) -> None:
    email = make_user(service, "eva@example.com")
    user, old = service.operator.rows("select user_id, password_hash from bds_service.password_of(%s)", (email,))[0]
    changed: list[Any] = []

    def change() -> None:
        with psycopg.connect(module_database_url, autocommit=True, application_name="changes") as connection:
            changed.append(connection.execute("select bds.set_password(%s, %s)", (email, HASH)).fetchone())

    with psycopg.connect(module_database_url) as slow:
        session = slow.execute("select bds_service.begin_session(%s, %s, '1 h')", (user, old)).fetchone()
        thread = threading.Thread(target=change)
        thread.start()
        wait_until(
            lambda: (
                service.operator.rows(
                    "select 1 from pg_stat_activity where application_name = 'changes' and wait_event_type = 'Lock'"
                )
                == [(1,)]
            )
        )
        slow.commit()
    thread.join()
    assert changed == [(True,)] and session != (None,)
    assert service.operator.rows("select * from bds_service.session(%s, %s)", (*session, user)) == []


def test_a_weaker_hash_is_replaced_at_login(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    import argon2

    monkeypatch.setattr(passwords, "HASHER", argon2.PasswordHasher())
    email, weak = "fay@example.com", argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    service.operator.rows("select bds.create_user(%s, %s, '{demo}')", (email, weak))
    with ThreadPoolExecutor(8) as threads:  # one of them replaces the hash that the others were checked against
        assert {reply.status for reply in threads.map(lambda _: login(service, email), range(8))} == {200}
    assert login(service, email).status == 200
    (kept,) = service.operator.rows("select password_hash from bds_service.password_of(%s)", (email,))[0]
    assert kept != weak and not argon2.PasswordHasher().check_needs_rehash(kept)


def test_a_token_counts_in_every_process_with_the_same_secret(module_database_url: str, service: Service) -> None:
    with second_service(module_database_url, secret="a" * 32) as one, second_service(module_database_url, secret="b" * 32) as other:
        token = sign_in(one).token
        assert [status(one, bearer(token)), status(other, bearer(token)), status(service, bearer(token))] == [200, 401, 401]


def second_service(url: str, **settings: Any) -> Any:
    """A second service on the same database."""
    return running(url, company=None, **settings)


def test_concurrent_requests_for_the_secret_get_the_same_one(service: Service, module_database_url: str) -> None:
    kept: list[str] = []

    def request_secret(number: int) -> None:
        with psycopg.connect(module_database_url, autocommit=True) as connection:
            kept.append(connection.execute("select bds_service.keep_secret('race', %s)", (str(number),)).fetchone()[0])  # type: ignore[index]

    threads = [threading.Thread(target=request_secret, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 12 and len(set(kept)) == 1
