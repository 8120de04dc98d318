"""Concurrent logins of one address: correct ones do not cause each other's refusal, wrong ones stay within the limit."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.auth.passwords import Passwords
from app.auth.throttle import CONCURRENT_LOGINS
from tests.auth.client import EMAIL, PASSWORD, ask, bearer, fresh_address, login
from tests.service.serving import PATIENCE, Service, running, wait_until

pytestmark = pytest.mark.slow

A_MINUTE = 20


class Barrier:
    """Blocks every comparison of a password until `opened` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared: list[str] = []
        self.opened = threading.Event()
        compare = Passwords._compare

        def wait(passwords: Passwords, password: str, password_hash: str | None) -> bool:
            self.compared.append(password)
            assert self.opened.wait(PATIENCE)
            return compare(passwords, password, password_hash)

        monkeypatch.setattr(Passwords, "_compare", wait)


@pytest.fixture
def barrier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Barrier]:
    barrier = Barrier(monkeypatch)
    yield barrier
    barrier.opened.set()


def counted(service: Service, address: str) -> list[tuple[int, int]]:
    """The wrong credentials and the reserved attempts of an address."""
    return service.operator.rows("select count, pending from bds.wrong_credentials where address = %s", (address,))


def test_concurrent_correct_logins_all_succeed(service: Service) -> None:
    address = fresh_address()
    with ThreadPoolExecutor(30) as threads:
        assert Counter(threads.map(lambda _: login(service, source=address).status, range(30))) == {200: 30}
    assert counted(service, address) == [(0, 0)]


def test_correct_logins_succeed_while_wrong_ones_are_below_the_limit(service: Service) -> None:
    address = fresh_address()
    for _ in range(A_MINUTE - 1):
        assert login(service, password="guess", source=address).status == 401
    with ThreadPoolExecutor(12) as threads:
        assert Counter(threads.map(lambda _: login(service, source=address).status, range(12))) == {200: 12}
    assert counted(service, address) == [(A_MINUTE - 1, 0)]
    assert [login(service, password="guess", source=address).status for _ in range(2)] == [401, 429]


def test_only_wrong_logins_count_among_concurrent_ones_in_two_processes(service: Service, module_database_url: str) -> None:
    address = fresh_address()
    with running(module_database_url, company=None) as other_process, ThreadPoolExecutor(32) as threads:
        ask_for = enumerate([PASSWORD, "guess"] * 16)
        answers = threads.map(
            lambda each: (each[1], login((service, other_process)[each[0] // 2 % 2], password=each[1], source=address).status),
            ask_for,
        )
        assert Counter(answers) == {(PASSWORD, 200): 16, ("guess", 401): 16}
    assert counted(service, address) == [(16, 0)]


def test_a_process_checks_two_logins_of_an_address_at_a_time(service: Service, barrier: Barrier) -> None:
    address, guesses = fresh_address(), 5
    with ThreadPoolExecutor(guesses) as threads:
        answers = threads.map(lambda _: login(service, password="guess", source=address).status, range(guesses))
        wait_until(lambda: len(barrier.compared) == CONCURRENT_LOGINS)
        assert counted(service, address) == [(0, CONCURRENT_LOGINS)]
        barrier.opened.set()
        assert list(answers) == [401] * guesses
    assert counted(service, address) == [(guesses, 0)]


def test_a_login_waits_while_others_have_reserved_the_attempts_that_are_left(
    service: Service, module_database_url: str, barrier: Barrier
) -> None:
    address = fresh_address()
    for _ in range(A_MINUTE - 1):
        assert ask(service, "/c/demo/products", headers=bearer("guess"), source=address).status == 401
    with running(module_database_url, company=None) as other_process, ThreadPoolExecutor(2) as threads:
        first = threads.submit(login, service, source=address)
        wait_until(lambda: counted(service, address) == [(A_MINUTE - 1, 1)])
        second = threads.submit(login, other_process, source=address)
        assert ask(service, "/c/demo/products", headers=bearer(service.key), source=address).status == 200
        assert len(barrier.compared) == 1 and not second.done()
        barrier.opened.set()
        assert [each.result().status for each in (first, second)] == [200, 200]


def test_a_guess_counts_if_its_client_disconnects_before_the_answer(service: Service, barrier: Barrier) -> None:
    address = fresh_address()
    body = json.dumps({"email": EMAIL, "password": "guess"}).encode()
    head = f"POST /auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with service.connect(source=address) as client:
        client.sendall(head.encode() + body)
        wait_until(lambda: len(barrier.compared) == 1)
    assert counted(service, address) == [(0, 1)]
    barrier.opened.set()
    wait_until(lambda: counted(service, address) == [(1, 0)])


def test_the_end_of_a_login_that_began_in_a_past_minute_or_hour_changes_no_count(service: Service) -> None:
    rows, address, email = service.operator.rows, "192.0.2.1", "zoe@example.com"

    def begin() -> tuple[Any, ...]:
        [(minute, hour, wait, _)] = rows("select * from bds_service.begin_attempt(%s, %s, 20, 100)", (address, email))
        assert wait is None
        return minute, hour

    def end(began: tuple[Any, ...], *, was_wrong: bool) -> tuple[tuple[Any, ...], ...]:
        rows("select bds_service.end_attempt(%s, %s, %s, %s, %s)", (address, email, *began, was_wrong))
        [by_email] = rows("select count from bds.wrong_logins where email_hash = sha256(%s::bytea)", (email,))
        return *counted(service, address), by_email

    began = begin()
    rows("update bds.wrong_credentials set first_at = first_at - interval '1 minute' where address = %s returning 1", (address,))
    rows("update bds.wrong_logins set first_at = first_at - interval '1 hour' returning 1")
    again = begin()
    assert again[0] > began[0] and again[1] > began[1]
    assert end(began, was_wrong=True) == ((0, 1), (1,))
    assert end(began, was_wrong=False) == ((0, 1), (1,))
    assert end(again, was_wrong=True) == ((1, 0), (1,))
    assert end(begin(), was_wrong=False) == ((1, 0), (1,))
