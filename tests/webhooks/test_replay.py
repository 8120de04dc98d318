"""Replays: which changes a hook is sent again, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import NO_MONTHS, not_divided
from tests.database.aging import age
from tests.service.serving import Reply, running, wait_until
from tests.webhooks.conftest import Queue, working
from tests.webhooks.receiving import Receiver
from tests.webhooks.test_registration import URL, Client

ONE, TWO = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def replay(queue: Queue, hook: str, since: int, until: int, most: int = 100_000) -> tuple[Any, ...]:
    """Replay a range; returns the numbers of changes and deliveries, and up to which version they fit."""
    [found] = queue.write("select * from bds_service.replay_hook('acme', %s, %s, %s, %s)", (hook, since, until, most))
    return found


def last(queue: Queue) -> int:
    [(last,)] = queue.rows("select last_id from bds.clocks where company_id = 'acme'")
    assert isinstance(last, int)
    return last


def sent(queue: Queue) -> Iterator[list[int]]:
    """The changes of each delivery, in the order of sending."""
    while claimed := queue.claim():
        yield [int(change["id"]) for each in claimed for change in each["body"]["changes"]]
        queue.record(*claimed)


def test_changes_that_match_the_hook_as_it_is_now_are_sent(queue: Queue) -> None:
    queue.products("A", "B")  # 1, 2
    queue.write("insert into data.units (code, name) values ('u', 'u')")  # 3
    queue.products("C", change_set=ONE)  # 4
    queue.write("update data.products set price = 20 where code = 'A'")  # 5
    queue.write("update data.products set name = 'b' where code = 'B'")  # 6
    queue.write("delete from data.products where code = 'A'")  # 7
    for members, since, until, expected in (
        ({}, 0, 7, [1, 2, 5, 6, 7]),
        ({}, 1, 5, [2, 5]),
        ({}, 7, 7, []),
        ({"entity": None}, 2, 7, [3, 5, 6, 7]),
        ({"allow_in_change_set": True}, 0, 7, [1, 2, 4, 5, 6, 7]),
        ({"columns": ["price"]}, 4, 7, [5, 7]),
        ({"filter": "price > 10"}, 0, 7, [5, 7]),
        ({"filter": "price < 10"}, 0, 7, [1, 2, 6]),
        ({"entity": None, "filter": "price < 10"}, 0, 7, [1, 2, 6]),
        ({"entity": "categories"}, 0, 7, []),
    ):
        hook = queue.hook(**members)  # type: ignore[arg-type]
        assert replay(queue, hook, since, until)[0] == len(expected), members
        assert [change for each in sent(queue) for change in each] == expected, members
        queue.write("select bds.delete_hook('acme', %s)", (hook,))
    assert queue.operator.rows("select from bds.hook_queue") == []


def test_a_replay_is_in_batches_of_one_change_set_with_new_ids(queue: Queue) -> None:
    hook = queue.hook(allow_in_change_set=True)
    queue.send(*(f"A{n}" for n in range(150)))
    queue.products("B", change_set=ONE)
    queue.products("C", change_set=TWO)
    queue.route()
    first = list(sent(queue))
    ids = {each["id"] for each in queue.deliveries(hook)}
    assert replay(queue, hook, 0, last(queue)) == (152, 4, None)
    assert list(sent(queue)) == first and [len(each) for each in first] == [100, 50, 1, 1]
    again = queue.deliveries(hook)[4:]
    assert [each["changeSetId"] for each in again] == [None, None, ONE, TWO]
    assert len({each["id"] for each in again} - ids) == 4


def test_a_replay_goes_before_all_that_is_not_being_sent(queue: Queue) -> None:
    hook = queue.hook()
    for code in ("A", "B", "C"):
        queue.send(code)
    [running] = queue.claim()
    queue.products("D")
    assert replay(queue, hook, 1, 3)[0] == 2
    assert replay(queue, hook, 2, 3)[0] == 1, "the later one before the earlier one"
    assert queue.claim() == [], "one at a time"
    queue.record(running, status=500)
    queue.route()
    assert list(sent(queue)) == [[3], [2, 3]], "then the first delivery waits for its next attempt"
    queue.due_now(hook)
    assert list(sent(queue)) == [[1], [2], [3], [4]]


def test_a_replay_waits_for_the_end_of_a_rest_and_a_retry_goes_first(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    queue.record(*queue.claim(), status=404)
    queue.operator.connection.execute("update bds.hook_states set rests_until = now() + interval '1 h'")
    replay(queue, hook, 0, 1)
    assert queue.claim() == []
    [failed, replayed] = queue.deliveries(hook)
    queue.write("select bds.retry_delivery('acme', %s, %s)", (hook, failed["id"]))
    [claimed] = queue.claim()
    assert claimed["delivery"] == failed["id"]
    queue.record(claimed)
    assert [each["delivery"] for each in queue.claim()] == [replayed["id"]]


def test_more_changes_than_one_replay_sends_are_counted_up_to_a_version(queue: Queue) -> None:
    hook = queue.hook()
    queue.products("A", "B")
    queue.write("insert into data.units (code, name) values ('u', 'u')")
    queue.products("C", "D")
    assert replay(queue, hook, 0, 5, 3) == (4, 0, 4)
    assert queue.deliveries(hook) == [] and queue.operator.rows("select from bds.hook_queue") == []
    assert replay(queue, hook, 0, 4, 3)[:2] == (3, 1)
    assert replay(queue, hook, 4, 5, 3)[:2] == (1, 1)


@pytest.mark.slow
def test_a_range_of_many_changes_is_matched_in_slices(queue: Queue) -> None:
    hook = queue.hook(filter="price < 2")
    queue.write("insert into data.products (code, name, price) select n, n, mod(n, 3) from generate_series(1, 45000) n")
    assert replay(queue, hook, 100, 45_000)[:2] == (29_933, 300)
    changes = [
        change["id"]
        for (body,) in queue.operator.rows("select body::json from bds.deliveries order by number")
        for change in body["changes"]
    ]
    prices = "select l.id::text from bds.change_log l join data.products p on p.id = l.row_id where l.id > 100 and p.price < 2 order by l.id"
    assert changes == [row[0] for row in queue.operator.rows(prices)]
    assert replay(queue, hook, 0, 45_000, 29_000) == (30_000, 0, 43_500)


def test_a_hook_that_cannot_be_replayed_is_refused(queue: Queue) -> None:
    disabled = queue.hook(disabled=True)
    [(uncompiled,)] = queue.write("select bds.create_hook('acme', 'products', 'http://127.0.0.1:9/', 'price > 1')")
    for hook, state in ((disabled, "BD004"), (uncompiled["id"], "BD003"), (str(uuid4()), "BD002")):
        with pytest.raises(psycopg.Error) as raised:
            replay(queue, hook, 0, 0)
        assert raised.value.sqlstate == state, raised.value


@pytest.fixture(scope="module")
def client(module_database_url: str) -> Iterator[Client]:
    with running(module_database_url) as service:
        service.operator.write("demo", "insert into data.products (code, name, price) select n, n, n from generate_series(1, 5) n")
        service.operator.write("demo", "select bds.name_version('demo', 'third', 3)")
        yield Client(service)


def ask(client: Client, body: Any, hook: str | None = None) -> Reply:
    return client.ask("POST", f"/{hook or client.create(filter='price > 1')['id']}/replay", body)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ({"since": 0}, 4),
        ({"since": "0", "until": 2}, 1),
        ({"since": "third", "generation": 1}, 2),
        ({"since": 1, "until": "third"}, 2),
        ({"since": 5}, 0),
    ],
)
def test_a_range_is_replayed_over_http(client: Client, body: Any, changes: int) -> None:
    reply = ask(client, body)
    assert (reply.status, reply.json) == (202, {"changes": changes, "deliveries": int(changes > 0)})


@pytest.mark.parametrize(
    ("body", "status", "target"),
    [
        (b"{", 400, None),
        ([], 400, None),
        ({}, 400, "since"),
        ({"since": None}, 400, "since"),
        ({"since": True}, 400, "since"),
        ({"since": 1.5}, 400, "since"),
        ({"since": ""}, 400, "since"),
        ({"since": -1}, 400, "since"),
        ({"since": "2026-13-01"}, 400, "since"),
        ({"since": 0, "until": []}, 400, "until"),
        ({"since": 0, "until": None}, 400, "until"),
        ({"since": 0, "generation": None}, 400, "generation"),
        ({"since": 0, "until": "1 2"}, 400, "until"),
        ({"since": 0, "most": 5}, 400, "most"),
        (b'{"since": 0, "since": 1}', 400, "since"),
        ({"since": 3, "until": 2}, 400, "since"),
        ({"since": 0, "generation": 7}, 404, "generation"),
        ({"since": "nobody"}, 404, "since"),
        ({"since": 0, "until": 99}, 404, "until"),
        ({"since": 10**30}, 404, "since"),
        ({"since": 0, "until": "2999-01-01"}, 404, "until"),
    ],
)
def test_a_range_that_is_none_is_refused(client: Client, body: Any, status: int, target: str | None) -> None:
    reply = ask(client, body)
    assert (reply.status, reply.json.get("target")) == (status, target), reply.json


def test_a_hook_that_is_disabled_or_unknown_is_not_replayed(client: Client) -> None:
    assert ask(client, {"since": 0}, client.create(disabled=True)["id"]).status == 409
    for unknown in (str(uuid4()), "x"):
        assert ask(client, {"since": 0}, unknown).status == 404
    reader = client.service.operator.key("demo", scopes=("read",))
    assert client.ask("POST", f"/{client.create()['id']}/replay", {"since": 0}, key=reader).status == 403


def test_the_version_up_to_which_changes_fit_is_answered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.webhooks.replay.MOST", 2)
    hook = client.create(url=URL, filter="price > 1")["id"]
    reply = ask(client, {"since": 0}, hook)
    assert (reply.status, reply.json["code"], reply.json["version"]) == (422, "too_many_changes", 3)
    assert client.ask("GET", f"/{hook}/deliveries").json["data"] == []
    assert ask(client, {"since": 0, "until": 3}, hook).json == {"changes": 2, "deliveries": 1}


@pytest.mark.processes
def test_killed_workers_send_a_whole_replay_in_order_before_what_waited(queue: Queue, receiver: Receiver) -> None:
    receiver.answers["/hook"] = [200, 200, 503, 200, "empty", 200, 200] * 1_000
    queue.products(*(f"A{n}" for n in range(1_000)))
    hook = queue.hook(url=receiver.url("/hook"))
    queue.products(*(f"B{n}" for n in range(150)))
    queue.route()
    queue.operator.rows("select bds_webhooks.make_batches()")
    assert replay(queue, hook, 0, 1_150)[:2] == (1_150, 12)
    expected = [*range(1, 1_151), *range(1_001, 1_151)]
    for kill in range(1, 4):
        with working(queue.url) as worker:
            receiver.wait("/hook", kill * 3)
            worker.kill()
    with working(queue.url):
        wait_until(lambda: set(queue.states(hook)) == {"delivered"})
    found = [request.headers["webhook-id"] for request in receiver.of("/hook")]
    order = list(dict.fromkeys(found))
    assert all(order.index(earlier) <= order.index(later) for earlier, later in pairwise(found)), "in order, again or not"
    bodies = {request.headers["webhook-id"]: request.changes for request in receiver.of("/hook")}
    assert [change for id in order for change in bodies[id]] == expected
    assert receiver.most["/hook"] == 1


@NO_MONTHS
def test_what_the_log_no_longer_has_is_not_replayed(client: Client) -> None:
    operator = client.service.operator
    operator.company("kept")
    for code in ("a", "b", "c"):
        operator.write("kept", "insert into data.units (code, name) values (%s, 'x')", (code,))
    age(operator, "2020_01", "id <= 2 and company_id = 'kept'")
    operator.connection.execute("drop table bds.change_log_2020_01")
    key = operator.key("kept", scopes=("hooks",))
    hook = client.ask("POST", "/c/kept/hooks", {"entity": "units", "url": URL}, key=key).json["id"]
    for since, until in ((0, 3), (1, None), ("2020-01-20", 3), (0, 1), (3, 1)):
        ends = {"since": since} | ({} if until is None else {"until": until})
        reply = client.ask("POST", f"/c/kept/hooks/{hook}/replay", ends, key=key)
        assert (reply.status, reply.json["firstId"]) == (410, 3), (ends, reply.json)
    reply = client.ask("POST", f"/c/kept/hooks/{hook}/replay", {"since": 2}, key=key)
    assert (reply.status, reply.json) == (202, {"changes": 1, "deliveries": 1})


@not_divided("registers a table again")
def test_a_replay_reads_values_under_the_names_that_columns_had(queue: Queue) -> None:
    operator = queue.operator.connection
    operator.execute(
        'create table data.places (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " city text, updated_at timestamptz not null, primary key (company_id, id));"
        " select bds.register('data.places')"
    )
    queue.write("insert into data.places (id, city) values (1, 'Bern')")  # 1
    queue.write("update data.places set city = 'Basel'")  # 2
    queue.write("insert into data.places (id, city) values (2, 'Bern')")  # 3
    queue.write("delete from data.places where id = 2")  # 4
    operator.execute("alter table data.places rename column city to town; select bds.register('data.places')")
    queue.write("update data.places set town = 'Chur'")  # 5
    for members, expected in (
        ({"filter": "town = 'Bern'"}, [1, 3, 4]),
        ({"filter": "town = 'Basel'"}, [2]),
        ({"filter": "town = 'Chur'"}, [5]),
        ({"columns": ["town"]}, [1, 2, 3, 4, 5]),
    ):
        hook = queue.hook("places", **members)
        assert replay(queue, hook, 0, 5)[0] == len(expected), members
        assert [change for each in sent(queue) for change in each] == expected, members
        queue.write("select bds.delete_hook('acme', %s)", (hook,))
