"""Streams of changes in a real Chromium: EventSource with the cookie of a session, and the page of changes that follows."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.changes import hub
from tests.changes.test_stream import add, last
from tests.service.serving import Service, wait_until
from tests.web.test_browser import DESK, PATIENCE, chromium  # noqa: F401
from tests.web.visitor import visitor

pytestmark = pytest.mark.processes

COLLECT = """
    (url) => {
        window.came = [];
        window.source = new EventSource(url);
        window.source.onmessage = (event) => came.push([Number(event.lastEventId), JSON.parse(event.data).id]);
        return new Promise((resolve) => { window.source.onopen = () => resolve(); });
    }
"""


class Relay:
    """Passes connections on to the service, and can cut them all; keeps the heads of requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heads: list[str] = []
        self._open: list[socket.socket] = []
        self._lets = threading.Event()
        self._lets.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._lets.is_set():
                    client.close()
                    continue
                server = socket.create_connection((self._service.host, self._service.port))
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other, one is client), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if is_request:
                    self.heads.append(data.decode("latin-1"))
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut all connections and accept none until `mend`."""
        self._lets.clear()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        self._lets.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    @property
    def resumed(self) -> list[int]:
        """The ids with which streams were resumed."""
        heads = [head for head in self.heads if "/changes/stream" in head]
        return [int(found[1]) for head in heads if (found := re.search(r"(?im)^last-event-id: (\d+)", head))]


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of ended sessions and deleted companies end at once; for every test, since a check waits as long as the last one said."""
    monkeypatch.setattr(hub, "CHECK", 0.1)


@pytest.fixture
def relay(service: Service) -> Iterator[Relay]:
    relay = Relay(service)
    yield relay
    relay.close()


@pytest.fixture(scope="module")
def login(service: Service) -> str:
    """The cookie of a session."""
    return visitor(service).headers["Cookie"].partition("=")[2]


@pytest.fixture
def page(chromium: Any, relay: Relay, login: str) -> Iterator[Any]:  # noqa: F811
    """A page of a session, through the relay; fails if a script raises, or if anything is loaded from elsewhere."""
    base = f"http://127.0.0.1:{relay.port}"
    context = chromium.new_context(base_url=base, viewport=DESK)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if "Content Security Policy" in message.text else None)
    page.on("request", lambda sent: None if sent.url.startswith(base) else troubles.append(sent.url))
    context.add_cookies([{"name": "session", "value": login, "url": base}])
    page.goto("/")
    yield page
    context.close()
    assert not troubles


def test_a_browser_receives_events_and_resumes_with_the_last_one(page: Any, relay: Relay, service: Service) -> None:
    before = last(service)
    page.evaluate(COLLECT, "/c/demo/changes/stream")
    add(service.operator, 3)
    wait_until(lambda: page.evaluate("came.length") == 3)
    for _ in range(2):
        relay.cut()
        add(service.operator, 2)
        relay.mend()
        count = last(service) - before
        wait_until(lambda: page.evaluate("came.length") >= count)  # noqa: B023
    expected = list(range(before + 1, last(service) + 1))
    assert page.evaluate("came") == [[id, id] for id in expected]
    assert relay.resumed[-2:] == [before + 3, before + 5]


def test_a_browser_loses_nothing_before_the_first_event(page: Any, relay: Relay, service: Service) -> None:
    before = last(service)
    page.evaluate(COLLECT, "/c/demo/changes/stream")
    wait_until(lambda: bool(page.evaluate("source.readyState === EventSource.OPEN")))
    relay.cut()
    add(service.operator, 2)
    relay.mend()
    wait_until(lambda: page.evaluate("came.length") >= 2)
    assert page.evaluate("came") == [[before + 1] * 2, [before + 2] * 2]
    assert relay.resumed[-1] == before


def shown(page: Any) -> list[int]:
    return [int(id) for id in page.evaluate("[...document.querySelectorAll('#live tbody tr')].map((row) => row.dataset.id)")]


def wait_for_first(page: Any, id: int) -> None:
    page.wait_for_selector(f"#live tbody tr[data-id='{id}']:first-child", timeout=30_000)


def test_the_page_of_changes_shows_new_rows_as_they_commit(page: Any, service: Service) -> None:
    add(service.operator, 3)
    page.goto("/changes?company=demo&view=single")
    page.wait_for_selector("[data-is=live]")
    page.focus("#live tbody tr:first-child a")
    focused = shown(page)[0]
    for number in (1, 60):
        add(service.operator, number)
        newest = last(service)
        wait_for_first(page, newest)
        assert shown(page) == list(range(newest, max(0, newest - 50), -1))
        if number == 1:
            assert page.evaluate("document.activeElement.closest('tr').dataset.id") == str(focused), "the focus stays in its row"
    assert page.evaluate("document.querySelector('.pager [rel=next]').href").endswith(f"before={newest - 49}&view=single")


def test_the_page_of_change_sets_shows_new_ones_as_they_commit(page: Any, service: Service) -> None:
    page.goto("/changes?company=demo")
    page.wait_for_selector("[data-is=live]")
    add(service.operator, 7)
    newest = last(service)
    row = page.wait_for_selector(f"#live tbody tr[data-id='{newest - 6}-{newest}']:first-child", timeout=30_000)
    assert "7 creates" in row.inner_text()


def test_the_page_of_changes_follows_with_its_filter(page: Any, service: Service) -> None:
    page.goto("/changes?company=demo&entity=categories&filter=id%3E2")
    page.wait_for_selector("[data-is=live]")
    before = shown(page)
    add(service.operator, 1, table="categories")
    newest = last(service)
    add(service.operator, 2)
    wait_for_first(page, newest)
    assert shown(page) == [newest, *before]


def test_an_empty_page_of_changes_gets_its_first_row(page: Any, service: Service) -> None:
    page.goto("/changes?company=demo&operation=delete")
    page.wait_for_selector("[data-is=live]")
    page.wait_for_selector("text=No changes match") if not shown(page) else None
    service.operator.write("demo", "delete from data.units where id = (select max(id) from data.units where company_id = 'demo')")
    wait_for_first(page, last(service))


def test_following_can_be_paused(page: Any, service: Service) -> None:
    add(service.operator, 1)
    page.goto("/changes?company=demo&view=single")
    page.wait_for_selector("[data-is=live]")
    page.click("button:has-text('Pause')")
    page.wait_for_selector("[data-is=paused]")
    before = shown(page)
    wait_until(lambda: not followers(service))
    add(service.operator, 1)
    assert shown(page) == before
    page.click("button:has-text('Resume')")
    wait_for_first(page, last(service))


def test_the_page_of_changes_follows_on_after_its_connection_was_lost(page: Any, relay: Relay, service: Service) -> None:
    page.goto("/changes?company=demo&view=single")
    page.wait_for_selector("[data-is=live]")
    relay.cut()
    page.wait_for_selector("[data-is=waiting]")
    add(service.operator, 1)
    relay.mend()
    wait_for_first(page, last(service))
    page.wait_for_selector("[data-is=live]")


def test_the_page_of_changes_shows_that_its_session_has_ended(page: Any, relay: Relay, service: Service) -> None:
    ended = visitor(service)
    cookie = {"name": "session", "value": ended.headers["Cookie"].partition("=")[2], "url": f"http://127.0.0.1:{relay.port}"}
    page.context.add_cookies([cookie])
    page.goto("/changes?company=demo&view=single")
    page.wait_for_selector("[data-is=live]")
    ended.post("/logout")
    page.wait_for_selector("text=Your session has ended", timeout=30_000)
    assert not page.is_visible("[data-follow]")


def test_the_page_of_changes_of_a_deleted_company_ends_with_a_sentence(page: Any, service: Service) -> None:
    service.operator.company("doomed")
    service.operator.rows("select bds.set_access('anna@example.com', '{demo,second,doomed}', false)")
    page.goto("/changes?company=doomed")
    page.wait_for_selector("[data-is=live]")
    service.operator.rows("select bds.delete_company('doomed')")
    page.wait_for_selector("text=its company was deleted, or your access to it has ended", timeout=60_000)
    assert not page.is_visible("[data-follow]")
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert not asked, "it does not connect again"


def test_an_older_page_does_not_follow(page: Any, service: Service) -> None:
    add(service.operator, 60)
    page.goto("/changes?company=demo&view=single")
    page.click("[rel=next]")
    page.wait_for_selector("[rel=prev]")
    assert not page.query_selector("[data-follow]")


def followers(service: Service) -> int:
    body = service.ask("/metrics", authorization=None).body.decode()
    found = re.search(r"^bds_followers (\S+)$", body, re.MULTILINE)
    return int(float(found[1])) if found else 0
