"""When a stream ends: with its credentials, with its company, when the service stops, when its client does not read."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from app.changes import hub
from tests.auth.client import bearer, make_user, sign_in
from tests.changes.following import Client, connect, following
from tests.changes.test_stream import add, last
from tests.conftest import not_divided
from tests.database.test_companies import dumped, restore
from tests.service.serving import Service, running, wait_until

pytestmark = pytest.mark.processes

SMALL = 4096  # bytes of a client's receive buffer


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch, running(module_database_url, stall=2.0) as service:
        patch.setattr(hub, "CHECK", 0.05)
        service.operator.company("second")
        yield service


ENDS: dict[str, tuple[str, str]] = {
    "the key is revoked": ("key", "select bds.revoke_key(id) from bds.api_keys where companies = '{demo,second}'"),
    "the key expires": ("key", "update bds.api_keys set expires_at = now() + interval '0.2 s' where companies = '{demo,second}'"),
    "the key loses the company": ("key", "update bds.api_keys set companies = '{second}' where companies = '{demo,second}'"),
    "the key loses the scope": ("key", "update bds.api_keys set scopes = '{hooks}' where companies = '{demo,second}'"),
    "the user signs out": ("cookie", "delete from bds.sessions"),
    "the token's session ends": ("token", "delete from bds.sessions"),
    "the password is changed": ("cookie", "select bds.set_password(email, password_hash) from bds.users"),
    "the user loses the company": ("token", "update bds.users set companies = '{second}'"),
    "the user is deleted": ("cookie", "select bds.delete_user('anna@example.com')"),
    "the session expires": ("cookie", "update bds.sessions set expires_at = now()"),
}


@pytest.mark.parametrize("reason", ENDS)
def test_a_stream_ends_when(service: Service, reason: str) -> None:
    kind, statement = ENDS[reason]
    if kind == "key":
        headers = {"X-API-Key": service.operator.key("demo", "second")}
    else:
        service.operator.rows("select bds.delete_user('anna@example.com')")
        make_user(service, "anna@example.com", "demo", "second")
        signed_in = sign_in(service)
        headers = signed_in.cookies if kind == "cookie" else bearer(signed_in.token)
    refused = refusals(service)
    with following(service, headers=headers) as client, following(service) as other:
        add(service.operator, 1)
        client.wait(1)
        service.operator.connection.execute(statement.encode())
        client.wait_for_end()
        add(service.operator, 1)
        other.wait(2)
        assert client.ids == other.ids[:1]
    connection, response = connect(service, headers=headers)
    assert response.status in (401, 403)
    connection.close()
    assert refusals(service) - refused <= 1, "the end of a stream is no guess at a key"


def test_streams_live_on_while_credentials_are_valid(service: Service) -> None:
    """Some hundred looks at the credentials."""
    looked = threading.Event()
    with pytest.MonkeyPatch.context() as patch, following(service) as client:
        patch.setattr(hub, "CHECK", 0.001)
        for _ in range(20):
            add(service.operator, 1)
            looked.wait(0.01)
        client.wait(20)
        assert not client.has_ended


def test_a_deleted_company_ends_its_streams_and_a_new_one_of_its_name_is_followed_from_its_own_beginning(service: Service) -> None:
    service.operator.company("gone")
    key = {"X-API-Key": service.operator.key("gone", "demo")}
    add(service.operator, 3, "gone")
    with pytest.MonkeyPatch.context() as patch, following(service, "gone", headers=key, after=0) as client:
        patch.setattr(hub, "CHECK", 3600)  # so that it is not the key that ends the stream
        client.wait(3)
        service.operator.rows("select bds.delete_company('gone')")
        client.wait_for_end()
    service.operator.company("gone")
    key = {"X-API-Key": service.operator.key("gone")}
    connection, response = connect(service, "gone", headers=key, last=3)
    assert response.status == 410, "its changes have other ids: the client has to read the company anew"
    connection.close()
    with following(service, "gone", headers=key) as client:
        add(service.operator, 2, "gone")
        client.wait(2)
        assert client.ids == [1, 2]


def test_a_client_resumes_after_its_company_was_restored_unless_the_dump_is_older_than_its_last_event(service: Service) -> None:
    service.operator.company("moved")
    key = {"X-API-Key": service.operator.key("moved")}
    add(service.operator, 3, "moved")
    older = dumped(service.operator, "moved")
    with following(service, "moved", headers=key, after=0) as client:
        add(service.operator, 2, "moved")
        client.wait(5)
        newer = dumped(service.operator, "moved")
        service.operator.rows("select bds.delete_company('moved')")
        client.wait_for_end()
    for content, resumed in ((newer, 5), (older, 3)):
        restore(service.operator, content, "moved")
        with following(service, "moved", headers=key, last=resumed) as client:
            add(service.operator, 2, "moved")
            client.wait(2)
            assert client.ids == [resumed + 1, resumed + 2], "the ids go on"
            if content is newer:
                service.operator.rows("select bds.delete_company('moved')")
                client.wait_for_end()
    connection, response = connect(service, "moved", headers=key, last=7)
    answer = json.load(response)
    assert (response.status, answer["code"], answer["target"]) == (410, "gone", "Last-Event-ID")
    assert (answer["firstId"], answer["lastCommonId"]) == (1, 3), "it has to go back to the last change that both have"
    connection.close()


def test_a_client_that_does_not_read_is_cut_while_others_go_on(service: Service) -> None:
    before, cuts = last(service), metric(service, "bds_followers_cut_total")
    with following(service) as other, slow(service) as stopped:
        for _ in range(20):
            add(service.operator, 1000)
        other.wait(20_000)
        wait_until(lambda: metric(service, "bds_followers_cut_total") == cuts + 1)
        assert not other.has_ended
        came = read_rest(stopped)
        assert 0 < len(came) < 20_000
        assert came == list(range(before + 1, before + 1 + len(came)))
    with following(service, last=came[-1]) as client:
        client.wait(20_000 - len(came))
        assert client.ids == list(range(came[-1] + 1, last(service) + 1))


def test_a_client_that_reads_slowly_gets_everything(module_database_url: str) -> None:
    """More than a tail keeps, so that most of it has to be read from the log."""
    with running(module_database_url, company=None) as service:
        before = last(service)
        with slow(service) as client:
            for _ in range(10):
                add(service.operator, 1000)
            came = b""
            while came.count(b"\n\n") < 10_001:
                data = client.recv(10_000)
                assert data
                came += data
        assert ids(came) == list(range(before + 1, before + 10_001))


def test_clients_that_read_nothing_take_little_memory(module_database_url: str) -> None:
    """30 clients with 5 MB of events each."""
    with running(module_database_url, company=None) as service, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(slow(service)) for _ in range(30)]
        before = resident()
        with following(service) as other:
            for _ in range(5):
                add(service.operator, 5_000)
            other.wait(25_000)
            assert resident() - before < 60e6  # of this process, which also has the events of the client that reads
        assert len(clients) == 30


def resident() -> float:
    return float(psutil.Process().memory_info().rss)


def slow(service: Service) -> socket.socket:
    """A stream of which nothing has been read yet but its head, over small buffers."""
    client = service.connect(SMALL)
    client.sendall(f"GET /c/demo/changes/stream HTTP/1.0\r\nX-API-Key: {service.key}\r\n\r\n".encode())
    data = b""
    while b":\n" not in data:
        data += client.recv(1)
    return client


def read_rest(client: socket.socket) -> list[int]:
    """The ids of what can still be read."""
    data = b""
    with contextlib.suppress(OSError):
        while more := client.recv(1 << 20):
            data += more
    return ids(data)


def ids(data: bytes) -> list[int]:
    """Of the whole events in it."""
    return [int(id) for id in re.findall(rb"(?m)^id: (\d+)\ndata: .*}\n\n", data)]


def test_a_stop_of_the_service_ends_streams_at_once(module_database_url: str) -> None:
    with running(module_database_url, company=None) as stopping:
        clients: list[Client] = []
        with following(stopping) as one, following(stopping, after=0, filter="entity = 'units'") as two, slow(stopping):
            add(stopping.operator, 20_000)
            clients += [one, two]
            began = time.monotonic()
            stopping.stop()
            for client in clients:
                client.wait_for_end()
            assert time.monotonic() - began < 5, "requests may take 30 seconds"


def metric(service: Service, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", service.ask("/metrics", authorization=None).body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def refusals(service: Service) -> float:
    return metric(service, "bds_refused_credentials_total")


@not_divided("registers a table")
def test_a_filter_by_an_entity_that_is_unregistered_ends_its_own_stream_alone(service: Service) -> None:
    operator = service.operator.connection
    operator.execute(
        'create table data.tickets (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " code text, updated_at timestamptz not null, primary key (company_id, id));"
        " select bds.register('data.tickets')"
    )
    wait_until(lambda: service.ask("/c/demo/tickets").status == 200)
    filter = "entity = 'tickets'"
    with following(service, filter=filter) as tickets, following(service) as all:
        operator.execute("select bds.unregister('tickets')")
        wait_until(lambda: service.ask("/c/demo/tickets").status == 404)
        with following(service, filter="entity = 'units'") as units:
            add(service.operator, 2)
            all.wait(2)
            units.wait(2)
            tickets.wait_for_end()
    connection, response = connect(service, filter=filter)
    assert response.status == 400
    connection.close()
