"""An import has one session while its document arrives without pauses, and none while its client is slow."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from app.feed import heartbeat, idle_connection, run, staging
from tests.feed.conftest import Feed
from tests.service.serving import wait_until

UNITS = [{"code": f"U{n}", "name": "x" * 1000} for n in range(3000)]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions that imports begin: many small blocks are staged, and no sign of life opens one."""
    monkeypatch.setattr(staging, "STAGE_BYTES", 1 << 16)
    monkeypatch.setattr(heartbeat, "HEARTBEAT", 3600)
    begun: list[int] = []
    connect = run.connect_writer

    def counted(*arguments: Any) -> psycopg.Connection[Any]:
        connection = connect(*arguments)
        begun.append(connection.info.backend_pid)
        return connection

    monkeypatch.setattr(run, "connect_writer", counted)
    return begun


def open_sessions(feed: Feed, sessions: list[int]) -> int:
    return int(feed.operator.rows("select count(*) from pg_stat_activity where pid = any (%s)", (sessions,))[0][0])


def test_consecutive_blocks_share_a_session(feed: Feed, sessions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_connection, "IDLE", 3600)
    report = feed.send({"units": UNITS}, chunk=1 << 14)
    assert report["entities"]["units"]["created"] == len(UNITS)
    assert len(sessions) == 1
    wait_until(lambda: open_sessions(feed, sessions) == 0)  # it ends with the import


def test_a_slow_client_holds_no_session(feed: Feed, sessions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_connection, "IDLE", 0)
    importing, document = feed.begin(), json.dumps({"units": UNITS}).encode()
    half = len(document) // 2
    importing.receive(document[:half])
    wait_until(lambda: bool(feed.ask("select from bds.imports where id = %s and records > 0", importing.id)))
    wait_until(lambda: open_sessions(feed, sessions) == 0)
    importing.receive(document[half:])
    assert importing.run()["entities"]["units"]["created"] == len(UNITS)
    assert len(sessions) > 1


def test_a_terminated_session_fails_the_import(feed: Feed, sessions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_connection, "IDLE", 3600)
    importing, document = feed.begin(), json.dumps({"units": UNITS}).encode()
    feed.operator.rows("select pg_terminate_backend(%s::int)", (sessions[0],))
    wait_until(lambda: open_sessions(feed, sessions) == 0)
    with pytest.raises(psycopg.OperationalError) as failed:
        importing.receive(document)
        importing.run()
    importing.fail(failed.value)
    assert feed.ask("select state from bds.imports where id = %s", importing.id) == [("failed",)]
    assert feed.send({"units": UNITS})["entities"]["units"]["created"] == len(UNITS)
