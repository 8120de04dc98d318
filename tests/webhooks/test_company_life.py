"""A company that is served is dumped, deleted and restored: clients are told, and go on where they were."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator

import pytest

from app.places import dump
from tests.service.serving import Service, running, wait_until
from tests.webhooks.conftest import working
from tests.webhooks.receiving import Receiver, receiving

pytestmark = pytest.mark.processes


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def feed(service: Service, code: str) -> int:
    """Import a unit over HTTP; returns the status."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
    body = json.dumps({"units": [{"code": code, "name": code}]})
    connection.request("POST", "/api/demo/import", body, {"Authorization": service.basic, "Content-Type": "application/json"})
    return connection.getresponse().status


def test_a_served_company_goes_and_comes_back(database_url: str, receiver: Receiver) -> None:
    with running(database_url) as service, working(database_url):
        operator = service.operator
        operator.write("demo", "select bds.create_hook('demo', 'units', %s, allow_in_change_set => true)", (receiver.url(),))
        assert feed(service, "A") == 200
        assert receiver.wait("/ok", 1)[0].changes == [1]
        wait_until(lambda: operator.rows("select state from bds.deliveries") == [("delivered",)])
        tag = service.odata("/units").headers["ETag"]

        out = io.BytesIO()
        operator.connection.execute("set role bds_owner")
        dump.dump(operator.connection, "demo", out, lambda table, size: None)
        operator.connection.execute("reset role")
        operator.rows("select bds.delete_company('demo')")
        wait_until(lambda: service.odata("/units").status == 401)  # its key has gone with it, as soon as the process is notified
        assert feed(service, "B") == 401

        operator.connection.execute("set role bds_owner")
        dump.restore(operator.connection, io.BytesIO(out.getvalue()), True, lambda table, size: None)
        operator.connection.execute("reset role")
        wait_until(lambda: service.odata("/units").status == 200)
        restored = service.odata("/units", If_None_Match=tag)
        assert restored.status == 200, "a later change can have had the data, and the position, before the company was deleted"
        tag = restored.headers["ETag"]
        assert service.odata("/units", If_None_Match=tag).status == 304
        assert feed(service, "B") == 200
        assert service.odata("/units", If_None_Match=tag).status == 200
        told = [each["id"] for each in receiver.wait("/ok", 2)[1].json["changes"]]
        assert told == ["2:2"], "the next change, of the generation that the restore began, and none twice"
        log = json.loads(service.ask("/c/demo/changes?filter=id%20>%200").body)["data"]
        assert [each["id"] for each in log] == [1, 2]
