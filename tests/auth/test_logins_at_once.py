"""Logins of one address at the same time: right ones are not refused for one another, wrong ones are no more than they may be."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.auth import passwords, throttle
from app.auth.passwords import Passwords
from app.auth.throttle import AT_ONCE
from tests.auth.client import EMAIL, PASSWORD, ask, bearer, fresh_address, login
from tests.service.serving import PATIENCE, Service, running, wait_until

A_MINUTE = 20


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins wait as long as a slow machine needs for those before them."""
    for each in (throttle, passwords):
        monkeypatch.setattr(each, "PATIENCE", PATIENCE * 6)


class Gate:
    """Holds every password that is compared until it is opened."""

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
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


def counted(service: Service, address: str) -> list[tuple[int, int]]:
    return service.operator.rows("select count, pending from bds.wrong_credentials where address = %s", (address,))


def test_right_logins_are_not_refused_for_one_another(service: Service) -> None:
    address = fresh_address()
    with ThreadPoolExecutor(30) as threads:
        assert Counter(threads.map(lambda _: login(service, source=address).status, range(30))) == {200: 30}
    assert counted(service, address) == [(0, 0)]


def test_right_logins_are_not_refused_for_wrong_ones_that_are_fewer_than_may_be(service: Service) -> None:
    address = fresh_address()
    for _ in range(A_MINUTE - 1):
        assert login(service, password="guess", source=address).status == 401
    with ThreadPoolExecutor(12) as threads:
        assert Counter(threads.map(lambda _: login(service, source=address).status, range(12))) == {200: 12}
    assert counted(service, address) == [(A_MINUTE - 1, 0)]
    assert [login(service, password="guess", source=address).status for _ in range(2)] == [401, 429]


def test_right_and_wrong_logins_at_the_same_time_are_counted_apart_in_all_processes(
    service: Service, module_database_url: str
) -> None:
    address = fresh_address()
    with running(module_database_url, company=None) as beside, ThreadPoolExecutor(32) as threads:
        ask_for = enumerate([PASSWORD, "guess"] * 16)
        answers = threads.map(
            lambda each: (each[1], login((service, beside)[each[0] // 2 % 2], password=each[1], source=address).status), ask_for
        )
        assert Counter(answers) == {(PASSWORD, 200): 16, ("guess", 401): 16}
    assert counted(service, address) == [(16, 0)]


def test_as_many_logins_of_an_address_are_looked_at_as_there_may_be_and_none_of_another_waits(service: Service, gate: Gate) -> None:
    address, guesses = fresh_address(), 5
    with ThreadPoolExecutor(guesses) as threads:
        answers = threads.map(lambda _: login(service, password="guess", source=address).status, range(guesses))
        wait_until(lambda: len(gate.compared) == AT_ONCE)
        assert counted(service, address) == [(0, AT_ONCE)]
        gate.opened.set()
        assert list(answers) == [401] * guesses
    assert counted(service, address) == [(guesses, 0)]


def test_a_login_waits_while_others_hold_the_places_that_are_left(service: Service, module_database_url: str, gate: Gate) -> None:
    address = fresh_address()
    for _ in range(A_MINUTE - 1):
        assert ask(service, "/c/demo/products", headers=bearer("guess"), source=address).status == 401
    with running(module_database_url, company=None) as beside, ThreadPoolExecutor(2) as threads:
        first = threads.submit(login, service, source=address)
        wait_until(lambda: counted(service, address) == [(A_MINUTE - 1, 1)])
        second = threads.submit(login, beside, source=address)
        assert ask(service, "/c/demo/products", headers=bearer(service.key), source=address).status == 200
        assert len(gate.compared) == 1 and not second.done()
        gate.opened.set()
        assert [each.result().status for each in (first, second)] == [200, 200]


def test_a_guess_counts_if_its_client_leaves_before_the_answer(service: Service, gate: Gate) -> None:
    address = fresh_address()
    body = json.dumps({"email": EMAIL, "password": "guess"}).encode()
    head = f"POST /auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with service.connect(source=address) as client:
        client.sendall(head.encode() + body)
        wait_until(lambda: len(gate.compared) == 1)
    assert counted(service, address) == [(0, 1)]
    gate.opened.set()
    wait_until(lambda: counted(service, address) == [(1, 0)])


def test_a_login_that_was_begun_a_minute_ago_changes_nothing_of_today(service: Service) -> None:
    rows = service.operator.rows
    [(began, wait)] = rows("select * from bds.begin_attempt('192.0.2.1', 20)")
    assert wait is None
    rows("update bds.wrong_credentials set first_at = first_at - interval '1 minute' where address = '192.0.2.1' returning 1")
    [(again, _)] = rows("select * from bds.begin_attempt('192.0.2.1', 20)")
    assert again > began
    rows("select bds.end_attempt('192.0.2.1', %s, true)", (began,))
    assert counted(service, "192.0.2.1") == [(0, 1)]
    rows("select bds.end_attempt('192.0.2.1', %s, true)", (again,))
    assert counted(service, "192.0.2.1") == [(1, 0)]
