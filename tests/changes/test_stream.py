"""The stream of changes over HTTP: what it sends, from where, with which filter, and what it refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from app.changes import stream
from tests.changes.following import connect, following
from tests.conftest import Operator
from tests.service.serving import Service, running, wait_until


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("other")
        add(service.operator, 5)
        yield service


def add(operator: Operator, count: int, company: str = "demo", table: str = "units") -> None:
    """Create rows in one transaction."""
    operator.write(
        company,
        f"insert into data.{table} (code, name) select gen_random_uuid(), 'x' from generate_series(1, %s)",
        (count,),
    )


def last(service: Service, company: str = "demo") -> int:
    value: int = service.operator.rows("select last_id from bds.clocks where company_id = %s", (company,))[0][0]
    return value


def test_each_change_is_an_event_with_its_id_and_its_record(service: Service) -> None:
    before = last(service)
    with following(service) as client:
        add(service.operator, 3)
        client.wait(3)
    log = json.loads(service.ask(f"/c/demo/changes?filter=id%3E{before}").body)["data"]
    assert client.events == [(record["id"], record) for record in log]
    assert set(log[0]) == {"id", "entity", "rowId", "operation", "changeSetId", "createdAt"}


def test_the_head_switches_buffers_and_caches_off(service: Service) -> None:
    connection, response = connect(service, headers={"X-API-Key": service.key, "Accept-Encoding": "gzip"})
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert response.headers["Content-Encoding"] is None
    connection.close()
    head = service.ask("/c/demo/changes/stream", "HEAD")
    assert (head.status, head.headers["Content-Type"], head.body) == (200, "text/event-stream", b"")


@pytest.mark.parametrize("how", ["after", "last"])
def test_a_stream_begins_after_the_change_that_is_named(service: Service, how: str) -> None:
    now = last(service)
    for after in (0, 1, now - 1):
        with following(service, **{how: after}) as client:
            client.wait(now - after)
            assert client.ids == list(range(after + 1, now + 1))
    with following(service, **{how: now}) as client:
        add(service.operator, 1)
        client.wait(1)
        assert client.ids == [now + 1]


def test_the_last_event_counts_for_a_browser_that_sends_its_url_again(service: Service) -> None:
    now = last(service)
    with following(service, last=now - 1, after=0) as client:
        client.wait(1)
        assert client.ids == [now]


def test_a_stream_from_now_on_tells_its_position_so_that_a_client_can_resume_before_the_first_event(service: Service) -> None:
    with following(service) as client:
        assert client.known == last(service) and not client.events


def test_a_long_way_to_catch_up_joins_what_is_written_meanwhile(service: Service) -> None:
    add(service.operator, 4000, "other")
    writing = threading.Thread(target=lambda: [add(service.operator, 7, "other") for _ in range(100)])
    key = service.operator.key("other")
    with following(service, "other", after=0, headers={"X-API-Key": key}) as client:
        writing.start()
        writing.join()
        client.wait(4700)
        assert client.ids == list(range(1, 4701))


FILTERS = [
    "entity = 'categories'",
    "operation = 'create' and id > 3",
    "rowId is not null",
    "entity = 'invoices' and entity = 'units'",
    "",
]


def test_filters_of_the_log_filter_streams_live_and_catching_up(service: Service) -> None:
    before = last(service)
    with (
        following(service, filter=FILTERS[0]) as first,
        following(service, filter=FILTERS[1]) as second,
        following(service, filter=FILTERS[2]) as third,
        following(service, filter=FILTERS[3]) as fourth,
        following(service, filter=FILTERS[4]) as fifth,
    ):
        clients = (first, second, third, fourth, fifth)
        for _ in range(3):
            add(service.operator, 2)
            add(service.operator, 1, table="categories")
        service.operator.write("demo", "update data.categories set name = 'y' where company_id = 'demo'")
        fifth.wait(12)
        third.wait(12)
        second.wait(9)
        first.wait(6)
        assert not fourth.events
        live = [client.ids for client in clients]
    for filter, ids in zip(FILTERS, live, strict=True):
        with following(service, filter=filter, after=before) as client:
            client.wait(len(ids))
            assert client.ids == ids


def test_comments_keep_a_quiet_stream_open(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "COMMENT", 0.05)
    with following(service, filter="entity = 'invoices' and entity = 'units'") as client:
        add(service.operator, 1)
        seen = client.comments
        wait_until(lambda: client.comments >= seen + 5)
        assert client.known == last(service), "a filter that matches nothing does not make the client resume from long ago"
        assert not client.events


REFUSED = [
    ({"after": "x"}, {}, 400, "after"),
    ({"after": "-1"}, {}, 400, "after"),
    ({"after": "1.5"}, {}, 400, "after"),
    ({"filter": "entity = 'product'"}, {}, 400, "filter"),
    ({"after": ""}, {}, 400, "after"),
    ({"after": "9" * 101}, {}, 400, "after"),
    ({}, {"Last-Event-ID": "x"}, 400, "Last-Event-ID"),
    ({"after": "4"}, {"Last-Event-ID": "3"}, 400, "after"),
    ({"filter": "id >"}, {}, 400, "filter"),
    ({"filter": "nope = 1"}, {}, 400, "filter"),
    ({"limit": "1"}, {}, 400, "limit"),
    ({"key": "bds_x"}, {}, 400, "key"),
    ({"after": "1000000"}, {}, 410, "after"),
    ({}, {"Last-Event-ID": "1000000"}, 410, "Last-Event-ID"),
    ({"after": "99999999999999999999"}, {}, 410, "after"),
    ({}, {"Last-Event-ID": "99999999999999999999"}, 410, "Last-Event-ID"),
    ({"after": "01000000"}, {}, 410, "after"),
]


@pytest.mark.parametrize(("options", "headers", "status", "target"), REFUSED)
def test_a_request_that_is_refused(
    service: Service, options: dict[str, str], headers: dict[str, str], status: int, target: str
) -> None:
    connection, response = connect(service, headers={"X-API-Key": service.key, **headers}, **options)
    answer = json.loads(response.read())
    assert (response.status, answer["target"]) == (status, target), answer
    assert response.headers["Content-Type"] == "application/problem+json"
    connection.close()


def test_an_option_that_is_given_twice_is_refused(service: Service) -> None:
    assert service.ask("/c/demo/changes/stream?after=1&after=1").status == 400


def test_who_may_not_read_the_company_gets_no_stream(service: Service) -> None:
    hooks = service.operator.key("demo", scopes=("hooks",))
    assert service.ask("/c/demo/changes/stream", authorization=None).status == 401
    assert service.ask("/c/demo/changes/stream", authorization=f"Bearer {hooks}").status == 403
    assert service.ask("/c/other/changes/stream").status == 403
    assert service.ask("/c/none/changes/stream").status == 403
    assert service.ask("/c/other/changes/stream", "HEAD").status == 403


def test_another_method_is_refused(service: Service) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = service.ask("/c/demo/changes/stream", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")


def test_changes_that_are_no_longer_kept_are_gone(service: Service) -> None:
    service.operator.connection.execute("update bds.change_months set first_id = 4 where company_id = 'demo'")
    try:
        for after in (0, 2):
            connection, response = connect(service, after=after)
            assert (response.status, json.loads(response.read())["firstId"]) == (410, 4)
            connection.close()
        with following(service, after=3) as client:
            client.wait(last(service) - 3)
    finally:
        service.operator.connection.execute("update bds.change_months set first_id = 1 where company_id = 'demo'")
