"""Imports that have not ended when the service stops: they complete in time, or fail and report why."""

from __future__ import annotations

import http.client
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from app.feed.run import Import
from app.service import server
from tests.conftest import Operator
from tests.feed.test_http import begin, held, send
from tests.service.serving import PATIENCE, Service, running, wait_until
from tests.service.test_processes import serve

pytestmark = pytest.mark.slow

DOCUMENT = b'{"units": [{"code": "A", "name": "a"}]}'
STOPPED = "the service was stopped before the import had ended; nothing was written"


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    with running(database_url) as service:
        yield service


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports have no time to end when the service stops."""
    monkeypatch.setattr(server, "GRACE", server.REPORT)


def ended(operator: Operator) -> tuple[Any, ...]:
    """The end of the latest import: (state, code, message) of its document error, if any."""
    wait_until(lambda: not operator.rows("select from bds.imports where finished_at is null"))
    [row] = operator.rows(
        "select i.state, e.code, e.message from bds.imports i left join bds.import_errors e"
        " on e.company_id = i.company_id and e.import_id = i.id order by i.number desc limit 1"
    )
    assert operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace") == [(0,)]
    return row


def logged(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_an_import_that_waits_for_its_turn_is_stopped_and_reports_it(
    service: Service, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bds.feed")
    with held(service):
        number = send(service, DOCUMENT, Prefer="respond-async").json["importId"]
        wait_until(lambda: bool(service.operator.rows("select from pg_locks where not granted")))
        service.stop()
        assert ended(service.operator) == ("failed", "aborted", STOPPED)
    wait_until(lambda: logged(caplog, number) == [f"import {number} of demo ended: failed, the service was stopped"])
    assert service.operator.rows("select count(*) from data.units") == [(0,)]


def test_queued_imports_are_stopped(service: Service, at_once: None) -> None:
    with held(service):
        for _ in range(3):
            send(service, DOCUMENT, Prefer="respond-async")
        service.stop()
        wait_until(lambda: not service.operator.rows("select from bds.imports where finished_at is null"))
    assert service.operator.rows("select state, count(*) from bds.imports group by state") == [("failed", 3)]
    assert service.operator.rows("select distinct code, message from bds.import_errors") == [("aborted", STOPPED)]


def test_a_cancelled_import_stays_cancelled(service: Service, at_once: None) -> None:
    with held(service):
        number = send(service, DOCUMENT, Prefer="respond-async").json["importId"]
        wait_until(lambda: bool(service.operator.rows("select from pg_locks where not granted")))
        service.operator.write("demo", "select bds.import_cancel('demo', %s)", (number,))
        service.stop()
        assert ended(service.operator) == ("cancelled", "cancelled", "the import was cancelled")


def test_an_import_that_ends_in_time_is_completed(service: Service) -> None:
    with held(service):
        send(service, DOCUMENT, Prefer="respond-async")
        wait_until(lambda: bool(service.operator.rows("select from pg_locks where not granted")))
        service.stop()
        wait_until(lambda: refuses(service))
    assert ended(service.operator) == ("completed", None, None)


def refuses(service: Service) -> bool:
    try:
        service.connect().close()
    except ConnectionError:
        return True
    return False


def test_an_import_is_stopped_while_its_body_arrives_and_the_client_gets_503(service: Service, at_once: None) -> None:
    with begin(service, 1 << 19, b'{"units": [{"code": "gone", "name": "g"},' + b" " * 70_000) as client:
        wait_until(lambda: bool(service.operator.rows("select from bds.imports where finished_at is null")))
        service.stop()
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, json.loads(response.read())["code"]) == (503, "aborted")
    assert ended(service.operator) == ("failed", "aborted", STOPPED)


def test_a_client_that_waits_for_its_report_gets_503(service: Service, at_once: None) -> None:
    replies: list[Any] = []
    with held(service):
        asking = threading.Thread(target=lambda: replies.append(send(service, DOCUMENT)))
        asking.start()
        wait_until(lambda: bool(service.operator.rows("select from pg_locks where not granted")))
        service.stop()
        asking.join()
    assert (replies[0].status, replies[0].json["code"], replies[0].json["detail"]) == (503, "aborted", STOPPED)
    assert replies[0].json["importId"] and ended(service.operator) == ("failed", "aborted", STOPPED)


@contextmanager
def holding(url: str, company: str) -> Iterator[None]:
    with psycopg.connect(url) as other:
        other.execute("select bds.set_context(%s), bds.lock_company(%s)", (company, company))
        yield
        other.rollback()


def test_sigterm_lets_an_asynchronous_import_end(database_url: str, operator: Operator) -> None:
    operator.company("acme")
    with serve(database_url, operator.key("acme")) as served:
        with holding(database_url, "acme"):
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
            headers = {"X-API-Key": served.key, "Content-Type": "application/json", "Prefer": "respond-async"}
            connection.request("POST", "/api/acme/import", DOCUMENT, headers)
            assert connection.getresponse().status == 202
            wait_until(lambda: bool(operator.rows("select from pg_locks where not granted")))
            served.parent.send_signal(signal.SIGTERM)
            wait_until(lambda: not accepts(served.port))
        assert served.parent.wait(PATIENCE * 3) == 0
    assert ended(operator) == ("completed", None, None)
    assert not any("cancelled" in line for line in served.log)


def accepts(port: int) -> bool:
    try:
        http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE).connect()
    except ConnectionError:
        return False
    return True


# Unexpected errors ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Imports raise an unexpected error: (set when one runs, to be set when it may fail)."""
    running, may_fail = threading.Event(), threading.Event()

    def run(_importing: Import) -> Any:
        running.set()
        assert may_fail.wait(PATIENCE)
        raise ZeroDivisionError

    monkeypatch.setattr(Import, "run", run)
    return running, may_fail


@pytest.fixture
def failing(runs: tuple[threading.Event, threading.Event]) -> Callable[[], None]:
    """Imports raise an unexpected error, once the returned function is called."""
    return runs[1].set


def failure(operator: Operator, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """The log record of the one failed import."""
    wait_until(lambda: operator.rows("select state from bds.imports") == [("failed",)])
    [(number,)] = operator.rows("select id::text from bds.imports")
    assert ended(operator) == ("failed", "internal", f"the service failed; see its log for import {number}")
    wait_until(lambda: bool(logged(caplog, f"import {number} of demo failed")))
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info and record.exc_info[0] is ZeroDivisionError
    return record


def test_an_unexpected_error_is_logged_after_the_client_has_left(
    service: Service, failing: Callable[[], None], runs: tuple[threading.Event, threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    with begin(service, len(DOCUMENT), DOCUMENT):
        assert runs[0].wait(PATIENCE)
    wait_until(lambda: b"\nbds_http_requests_in_progress 1.0" in service.ask("/metrics", authorization=None).body)
    failing()
    failure(service.operator, caplog)


def test_an_unexpected_error_of_an_asynchronous_import_is_logged(
    service: Service, failing: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    assert send(service, DOCUMENT, Prefer="respond-async").status == 202
    failing()
    failure(service.operator, caplog)


def test_an_unexpected_error_is_answered_and_logged_once(
    service: Service, failing: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    failing()
    assert send(service, DOCUMENT).status == 500
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info and record.exc_info[0] is ZeroDivisionError
