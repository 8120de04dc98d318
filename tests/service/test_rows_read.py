"""Who read what: the line of each request in the log, and /metrics, have the number of rows in its answer, and of its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from app import logs
from app.logs import AccessRecord
from tests.auth.client import ask, make_user, sign_in
from tests.export.exported import UNMAPPED
from tests.service.serving import Service, running, wait_until

ROWS = 250  # units; more than the first block of a stream has
SYMBOLS = 5


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        service.operator.write(
            "demo",
            "insert into data.units (company_id, id, code, name, symbol)"
            f" select 'demo', n, 'U' || n, 'unit', mod(n, {SYMBOLS}) from generate_series(1, {ROWS}) n",
        )
        service.operator.write("demo", "update data.units set name = 'renamed' where id <= 2")
        yield service


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, AccessRecord]:
    """The records of requests by their ids."""
    records: dict[str, AccessRecord] = {}
    monkeypatch.setattr(logs, "write_access", lambda record: records.update({record.id: record}))
    return records


ODATA, EXPORT = "/api/odata/demo", "/api/demo/units?export=true&format="
READS = [
    (f"{ODATA}/units", ROWS),
    (f"{ODATA}/units?$filter=id%20le%2030", 30),
    (f"{ODATA}/units?$top=7&$skip=3&$count=true", 7),
    (f"{ODATA}/units?$filter=id%20lt%200&$top=7", 0),
    (f"{ODATA}/units(3)", 1),
    (f"{ODATA}/units(3)/name", 1),
    (f"{ODATA}/units(3)/code/$value", 1),
    (f"{ODATA}/units(999)", 0),
    (f"{ODATA}/units/$count", 0),
    (f"{ODATA}/units?$apply=groupby((symbol),aggregate($count%20as%20n))", SYMBOLS),
    (f"{ODATA}/units?$apply=aggregate($count%20as%20n)", 1),
    (f"{ODATA}@1/units?$top=9", 1),
    (f"{ODATA}/$metadata", 0),
    ("/c/demo/units?limit=20", 20),
    ("/c/demo/units?limit=20&sort=updatedAt&filter=id%20%3E%202", 20),
    ("/c/demo/units?limit=20&version=5", 5),
    ("/c/demo/units/3", 1),
    ("/c/demo/units/999", 0),
    ("/c/demo/units/1/history", 2),
    ("/c/demo/units?since=0&limit=40", 40),
    ("/c/demo/diff?since=0", 0),
    ("/c/demo/changes?limit=11", 11),
    ("/c/demo/changesets?limit=1", 1),
    ("/c/demo/none-such", 0),
    *((f"{EXPORT}{format}", ROWS) for format in UNMAPPED),
    (f"{EXPORT}csv&since=0&version=6", 6),
    ("/api/demo/diff?since=0&version=6&export=true&format=json", 6),
]


def test_every_read_says_how_many_rows_it_sent(service: Service, written: dict[str, AccessRecord]) -> None:
    found, expected = {}, {}
    for number, (path, rows) in enumerate(READS):
        status = service.ask(path, X_Request_Id=f"r{number}").status
        wait_until(lambda number=number: f"r{number}" in written)
        found[path], expected[path] = (status, written[f"r{number}"].rows), (404 if "999" in path or "none" in path else 200, rows)
    assert found == expected
    assert '"rows": 250, "bytes": ' in str(written["r0"])


GZIP, TAG, HTML = {"Accept-Encoding": "gzip"}, {"If-None-Match": "*"}, {"Accept": "text/html"}
ANSWERS: list[tuple[str, str, int, dict[str, str]]] = [
    # method, path, status, headers
    ("GET", f"{ODATA}/units", 200, {}),
    ("GET", f"{ODATA}/units", 200, GZIP),
    ("GET", f"{ODATA}/units(3)", 200, {}),
    ("GET", f"{ODATA}/units?$top=40", 200, GZIP),
    ("GET", f"{ODATA}/units(3)", 304, TAG),
    ("GET", f"{ODATA}/units(999)", 404, {}),
    ("GET", f"{ODATA}/units?$filter=(", 400, {}),
    ("GET", f"{ODATA}/units", 401, {"Authorization": "Basic eDp5"}),
    ("GET", "/api/odata/other/units", 403, {}),
    ("PATCH", f"{ODATA}/units(3)", 405, {}),
    ("POST", f"{ODATA}/$batch", 400, {"Content-Type": "application/json"}),
    ("GET", "/c/demo/units", 200, {}),
    ("GET", "/c/demo/units/", 308, {}),
    ("GET", "/c/demo/units/999", 404, {}),
    ("PUT", "/c/demo/units/999", 405, {}),
    ("GET", f"{EXPORT}csv", 200, GZIP),
    ("GET", f"{EXPORT}excel", 200, {}),
    ("GET", f"{EXPORT}none", 400, {}),
    ("GET", "/no/such/thing", 404, {}),
    ("GET", "/login", 200, HTML),
    ("GET", "/keys", 403, HTML),
    ("POST", "/api/demo/import", 415, {"Content-Type": "text/none"}),
    ("GET", "/healthz", 200, {}),
    ("GET", "/healthz", 200, {"Expect": "100-continue"}),
    ("DELETE", "/api/demo/versions/none", 404, {}),
]


def test_the_bytes_are_those_of_the_body_that_was_sent(service: Service, written: dict[str, AccessRecord]) -> None:
    heads = [("HEAD", path, status, headers) for method, path, status, headers in ANSWERS if method == "GET"]
    for number, (method, path, status, headers) in enumerate([*ANSWERS, *heads]):
        id = f"b{number}"
        reply = ask(service, path, method, {"Authorization": service.basic, "X-Request-Id": id, **headers})
        wait_until(lambda id=id: id in written)
        assert (reply.status, written[id].status, written[id].size) == (status, status, len(reply.body)), (method, path)
        assert (method == "HEAD" or status in (304, 308)) == (not reply.body), (method, path)


def sent_bytes(service: Service) -> dict[str, float]:
    """The bytes that /metrics counts, by area."""
    text = ask(service, "/metrics").body.decode()
    return {area: float(sum) for area, sum in re.findall(r'(?m)^bds_http_response_bytes_total\{area="(\w+)"\} (\S+)$', text)}


def test_the_metrics_have_the_bytes_of_refusals(service: Service) -> None:
    before = sent_bytes(service)
    refused = service.raw(b"BREW /c/demo/units HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    wrong = service.ask("/c/demo/units/999")
    after = sent_bytes(service)
    assert {area: after[area] - before.get(area, 0) for area in ("none", "changes")} == {
        "none": len(refused.body),
        "changes": len(wrong.body),
    }


def test_what_is_not_sent_is_not_counted(service: Service, written: dict[str, AccessRecord]) -> None:
    for path in (f"{ODATA}/units?$top=7", f"{ODATA}/units", "/c/demo/units?limit=20", "/c/demo/changes?limit=3"):
        tag = service.ask(path).headers["ETag"]
        assert service.ask(path, If_None_Match=tag, X_Request_Id="same").status == 304
        assert service.ask(path, "HEAD", X_Request_Id="head").status == 200
        wait_until(lambda: {"same", "head"} <= {*written})
        assert (written.pop("same").rows, written.pop("head").rows) == (0, 0), path


def test_parts_of_a_batch_and_pages_add_up(service: Service, written: dict[str, AccessRecord]) -> None:
    parts = [
        {"id": str(n), "method": "GET", "url": url}
        for n, (url, _) in enumerate([("units", 0), ("units(1)", 0), ("units?$top=4", 0)])
    ]
    headers = {"Authorization": service.basic, "Content-Type": "application/json", "X-Request-Id": "batch"}
    assert ask(service, f"{ODATA}/$batch", "POST", headers, {"requests": parts}).status == 200
    assert service.ask(f"{ODATA}/units", Prefer="odata.maxpagesize=60", X_Request_Id="page").status == 200
    first = service.ask(f"{ODATA}/units?$filter=id%20gt%20240", Prefer="odata.track-changes", X_Request_Id="first").json
    service.operator.write("demo", "update data.units set name = name || '!' where id > 248")
    link = re.sub("^https?://[^/]*", "", first["@odata.deltaLink"])
    assert service.ask(link, X_Request_Id="delta").status == 200
    wait_until(lambda: {"batch", "page", "first", "delta"} <= {*written})
    assert {id: record.rows for id, record in written.items()} == {"batch": ROWS + 5, "page": 60, "first": 10, "delta": 2}


def test_pages_for_people_and_the_metrics_have_them_too(service: Service, written: dict[str, AccessRecord]) -> None:
    make_user(service)
    headers = {**sign_in(service).browser, "Accept": "text/html"}

    def metric() -> float:
        text = ask(service, "/metrics").body.decode()
        return sum(map(float, re.findall(r'(?m)^bds_http_response_rows_total\{area="pages"\} (\S+)$', text)))

    before = metric()
    for id, path in {
        "rows": "/data/units",
        "row": "/data/units/3",
        "history": "/changes/units/1",
        "log": "/changes?view=single",
    }.items():
        assert (
            ask(service, f"{path}?company=demo".replace("single?", "single&"), headers={**headers, "X-Request-Id": id}).status
            == 200
        )
    wait_until(lambda: {"rows", "row", "history", "log"} <= {*written})
    counted = {id: written[id].rows for id in ("rows", "row", "history", "log")}
    assert counted == {"rows": 50, "row": 1, "history": 2, "log": 50}
    assert metric() - before == sum(counted.values())


def test_a_stream_of_changes_counts_what_it_sends(service: Service, written: dict[str, AccessRecord]) -> None:
    with service.connect() as client:
        head = f"GET /c/demo/changes/stream?after=0 HTTP/1.1\r\nHost: x\r\nX-Request-Id: stream\r\nAuthorization: {service.basic}\r\n\r\n"
        client.sendall(head.encode())
        seen = b""
        while f"id: {ROWS + 2}\n".encode() not in seen:
            seen += client.recv(1 << 16)
        assert json.loads(seen[seen.index(b"data: ") + 6 :].partition(b"\n")[0])["id"] == 1
    wait_until(lambda: "stream" in written)
    assert written["stream"].rows >= ROWS + 2
