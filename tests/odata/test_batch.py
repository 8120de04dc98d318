"""$batch of the extended profile: many GETs in one body, in both forms, from one snapshot."""

from __future__ import annotations

import email
import http.client
import json
import re
from collections.abc import Iterator, Sequence
from email import policy
from typing import Any

import psycopg
import pytest

from app.odata import batch
from tests.service.serving import ANSWER, Reply, Service, running

JSON = "application/json"
ROWS = 1200


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        service.operator.company("other")
        for company in ("demo", "other"):
            service.operator.write(
                company,
                f"insert into data.units (company_id, id, code, name, symbol) select '{company}', n, '{company}' || n, repeat('x', 100),"
                f" e'a\\r\\n--batch' from generate_series(1, {ROWS}) n",
            )
        yield service


def post(
    service: Service, body: bytes, type: str, path: str = "/api/odata/demo/$batch", method: str = "POST", **headers: str
) -> Reply:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=ANSWER)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Authorization": service.basic, "Content-Type": type} | named)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def ask(service: Service, *requests: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """The answers to requests in JSON; each gets an id and the method, unless it has them."""
    parts = [{"id": str(number), "method": "GET", **each} for number, each in enumerate(requests)]
    reply = post(service, json.dumps({"requests": parts}).encode(), JSON, **headers)
    assert (reply.status, reply.headers["OData-Version"]) == (200, "4.0"), reply.body
    assert reply.headers["Content-Type"].startswith(JSON)
    return reply.json["responses"]


def multipart(
    service: Service, lines: Sequence[str], end: str = "\r\n", **headers: str
) -> list[tuple[dict[str, str], int, dict[str, str], bytes]]:
    """(outer headers, status, headers, body) of each answer to parts in multipart/mixed."""
    parts = [
        f"--b 1{end}Content-Type: application/http{end}Content-Transfer-Encoding: binary{end}Content-ID: {number}{end}{end}{line}"
        for number, line in enumerate(lines)
    ]
    body = end.join([*parts, f"--b 1--{end}"])
    reply = post(service, body.encode(), 'multipart/mixed; boundary="b 1"', **headers)
    assert reply.status == 200, reply.body
    whole = email.message_from_bytes(
        f"Content-Type: {reply.headers['Content-Type']}\r\n\r\n".encode() + reply.body, policy=policy.HTTP
    )
    found = []
    for part in whole.iter_parts():
        assert part.get_content_type() == "application/http"
        head, _, content = part.get_payload(decode=True).partition(b"\r\n\r\n")
        status, *given = head.decode().split("\r\n")
        found.append((dict(part.items()), int(status.split()[1]), dict(line.split(": ", 1) for line in given), content))
    return found


PATHS = [
    "units?$top=2&$select=code", "units(3)", "units/$count", "units(3)/code", "units(3)/code/$value", "$metadata", "", "units",
    "units?$expand=products($top=1)&$top=3", "units?$count=true&$select=id", "units(3)/products",
]  # fmt: skip


def test_each_part_is_answered_as_it_would_be_alone(service: Service) -> None:
    answers = ask(service, *({"url": path} for path in PATHS))
    for path, part in zip(PATHS, answers, strict=True):
        alone = service.odata(f"/{path}")
        expected = alone.json if alone.headers["Content-Type"].startswith(JSON) else alone.body.decode()
        assert (part["status"], part["body"]) == (alone.status, expected)
        tag = None if alone.headers["Content-Type"].startswith("text/plain") else alone.headers["ETag"]
        assert (part["headers"].get("ETag"), part["headers"]["OData-Version"]) == (tag, "4.0")
    in_parts = multipart(service, [f"GET {path or '/api/odata/demo/'} HTTP/1.1\r\nAccept: */*\r\n\r\n" for path in PATHS])
    for path, (outer, status, headers, body) in zip(PATHS, in_parts, strict=True):
        alone = service.odata(f"/{path}")
        assert (outer["Content-ID"], status, body.rstrip(b"\r\n")) == (str(PATHS.index(path)), 200, alone.body.rstrip(b"\r\n"))
        assert headers["Content-Type"] == alone.headers["Content-Type"]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_lines_of_parts_end_as_they_like(service: Service, end: str) -> None:
    parts = multipart(
        service,
        [
            f"GET units/$count HTTP/1.1{end}{end}",
            f"GET units(1)/id HTTP/1.1{end}Accept: application/json;odata.metadata=none{end}{end}",
        ],
        end,
    )
    assert [(status, body.strip()) for _, status, _, body in parts] == [(200, b"%d" % ROWS), (200, b'{"value":1}')]


def test_urls_are_relative_absolute_or_whole(service: Service) -> None:
    urls = (
        "units/$count",
        "/api/odata/demo/units/$count",
        f"http://{service.host}:{service.port}/api/odata/demo/units/$count",
        "units/$count/",
    )
    assert [part["body"] for part in ask(service, *({"url": url} for url in urls))] == [str(ROWS)] * 4


def test_all_parts_see_one_state_of_the_data(service: Service, module_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is written between two parts, when the first has been read."""
    read = batch.Batch.read

    async def writing(self: Any, connection: Any, part: Any) -> Any:
        answered = await read(self, connection, part)
        with psycopg.connect(module_database_url) as other:
            other.execute("select bds.set_context('demo')")
            other.execute("insert into data.categories (company_id, code, name) values ('demo', gen_random_uuid()::text, 'x')")
        return answered

    monkeypatch.setattr(batch.Batch, "read", writing)
    urls = ("categories/$count", "categories", "categories", "categories/$count")
    one, tagged, same, two = ask(service, *({"url": url} for url in urls))
    assert one["body"] == two["body"] == str(len(tagged["body"]["value"]))
    assert tagged["headers"]["ETag"] == same["headers"]["ETag"]
    assert service.odata("/categories/$count").body.decode() == str(int(one["body"]) + 4)


def test_a_batch_reads_the_past(service: Service) -> None:
    service.operator.write("demo", "insert into data.categories (company_id, code, name) values ('demo', 'past', 'as it was')")
    ((version, id),) = service.operator.rows(
        "select max(id), max(row_id) from bds.changes where company_id = 'demo' and entity = 'categories'"
    )
    service.operator.write("demo", "update data.categories set name = 'as it is' where company_id = 'demo' and code = 'past'")
    requests = [
        {"id": str(n), "method": "GET", "url": url}
        for n, url in enumerate((f"categories({id})/name", "categories", "units(0)", "units/$count"))
    ]
    reply = post(
        service, json.dumps({"requests": requests}).encode(), JSON, f"/api/odata/demo@{version}/$batch", Prefer="continue-on-error"
    )
    one, many, missing, counted = reply.json["responses"]
    assert one["body"]["value"] == "as it was" and "as it was" in [row["name"] for row in many["body"]["value"]]
    assert (missing["status"], counted["body"]) == (404, str(ROWS))
    assert post(service, b'{"requests":[]}', JSON, "/api/odata/demo@999999999/$batch").status == 404


def test_a_part_may_be_a_304(service: Service) -> None:
    (first,) = ask(service, {"url": "units(1)"})
    (again,) = ask(service, {"url": "units(1)", "headers": {"If-None-Match": first["headers"]["ETag"]}})
    assert again["status"] == 304 and "body" not in again


FAILING = [
    ({"url": "units(0)"}, 404, "not_found"), ({"url": "nothing"}, 404, "not_found"), ({"url": "units?$top=x"}, 400, "malformed_query"),
    ({"url": "units", "method": "POST"}, 405, "method_not_allowed"), ({"url": "units(1)", "method": "DELETE"}, 405, "method_not_allowed"),
    ({"url": "/api/odata/other/units"}, 400, "malformed_request"), ({"url": "../other/units"}, 400, "malformed_request"),
    ({"url": "/c/demo/units"}, 400, "malformed_request"), ({"url": "units?$filter=code eq 'x'"}, 400, "malformed_request"),
    ({"url": "$batch"}, 501, "not_supported"), ({"url": "units?$skiptoken=NVsieCJd"}, 400, "malformed_query"),
    ({"url": "units", "headers": {"Accept": "text/html"}}, 406, "not_acceptable"), ({"url": "$1/code"}, 404, "not_found"),
    ({"url": f"units?x={'y' * 70_000}"}, 414, "uri_too_long"), ({"url": "units", "dependsOn": ["9"]}, 424, "failed_dependency"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "status", "code"), FAILING, ids=[str(each[0])[:50] for each in FAILING])
def test_a_part_that_fails_ends_the_answer_unless_it_shall_go_on(
    service: Service, part: dict[str, Any], status: int, code: str
) -> None:
    requests = ({"url": "units/$count"}, part, {"url": "units(1)"})
    for prefer, count in (
        ("", 2),
        ("odata.continue-on-error", 3),
        ("continue-on-error=true", 3),
        ("odata.continue-on-error=false", 2),
    ):
        answers = ask(service, *requests, Prefer=prefer)
        assert (answers[1]["status"], answers[1]["body"]["error"]["code"]) == (status, code), answers[1]
        assert [each["status"] for each in answers] == [200, status, 200][:count]


def test_only_a_part_with_an_object_has_an_entity_tag(service: Service) -> None:
    """UI5 writes the tag into the object; where there is none it would fail, and with it all that the $batch reads."""
    service.operator.write("demo", "insert into data.products (company_id, id, code, name) values ('demo', 1, 'P', 'p')")
    urls = ("units/$count", "units(1)/code/$value", "products(1)/category", "units(1)/code", "units(1)")
    answers = ask(service, *({"url": url} for url in urls))
    service.operator.write("demo", "delete from data.products where company_id = 'demo'")
    assert [(part["status"], "ETag" in part["headers"]) for part in answers] == [
        *((200, False), (200, False), (204, False), (200, True), (200, True)),
    ]


def test_a_part_depends_on_others(service: Service) -> None:
    answers = ask(
        service,
        {"url": "units(1)"},
        {"url": "units(0)"},
        {"url": "units(2)", "dependsOn": ["0"]},
        {"url": "units(2)", "dependsOn": ["0", "1"]},
        Prefer="continue-on-error",
    )
    assert [each["status"] for each in answers] == [200, 404, 200, 424]


def test_a_change_set_is_refused_as_a_whole(service: Service) -> None:
    change_set = "--b 1\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\nPOST units HTTP/1.1\r\n\r\n{}\r\n--c--\r\n--b 1--"
    reply = post(service, change_set.encode(), 'multipart/mixed; boundary="b 1"')
    assert reply.status == 200 and re.findall(rb"HTTP/1.1 (\d+)", reply.body) == [b"405"]


WRONG = [
    (b"", JSON, 400), (b"{}", JSON, 400), (b"[]", JSON, 400), (b'{"requests":1}', JSON, 400), (b'{"requests":[1]}', JSON, 400),
    (b'{"requests":[{"id":"1","url":"units"}]}', JSON, 400), (b'{"requests":[{"id":1,"method":"get","url":"units"}]}', JSON, 400),
    (b'{"requests":[' + b",".join([b'{"id":"1","method":"get","url":"units"}'] * 2) + b"]}", JSON, 400),
    (json.dumps({"requests": [{"id": str(n), "method": "get", "url": "units"} for n in range(101)]}).encode(), JSON, 400),
    (b"[" * 100_000, JSON, 400), (b"{}", "text/plain", 415), (b"--b--", "multipart/mixed", 415), (b"", "multipart/mixed; boundary=b", 400),
    (b"--b\r\nContent-Type: application/http\r\n\r\nGET units HTTP/1.1\r\n", "multipart/mixed; boundary=b", 400),
    (b"--b\r\n\r\nGET units HTTP/1.1\r\n\r\n--b--", "multipart/mixed; boundary=b", 400),
    (b"--b\r\nContent-Type: application/http\r\n\r\nunits\r\n\r\n--b--", "multipart/mixed; boundary=b", 400),
    (b" " * 5_000_000, JSON, 413),
]  # fmt: skip


@pytest.mark.parametrize(("body", "type", "status"), WRONG, ids=range(len(WRONG)))
def test_a_malformed_body_is_an_error(service: Service, body: bytes, type: str, status: int) -> None:
    reply = post(service, body, type)
    assert reply.status == status, reply.body
    assert set(reply.json) == {"error"} and reply.headers["OData-Version"] == "4.0"


def test_an_empty_batch_and_a_hundred_parts(service: Service) -> None:
    assert ask(service) == []
    answers = ask(service, *({"url": f"units({n})?$select=id"} for n in range(1, 101)))
    assert [each["body"]["id"] for each in answers] == list(range(1, 101))


def test_the_answer_has_the_form_of_the_request(service: Service) -> None:
    body = json.dumps({"requests": [{"id": "1", "method": "get", "url": "units/$count"}]}).encode()
    parts = b"--b\r\nContent-Type: application/http\r\n\r\nGET units/$count HTTP/1.1\r\n\r\n\r\n--b--\r\n"
    for version in ("4.0", "4.01"):
        for accept in ("", "*/*", "multipart/mixed", JSON, f"{JSON}, multipart/mixed;q=0.1"):
            headers = {"Accept": accept, "OData-MaxVersion": version}
            assert post(service, body, JSON, **headers).headers["Content-Type"].startswith(JSON)
            reply = post(service, parts, "multipart/mixed; boundary=b", **headers)
            assert reply.headers["Content-Type"].startswith("multipart/mixed") and b"HTTP/1.1 200 OK" in reply.body


def test_only_the_company_of_the_key_and_only_post(service: Service) -> None:
    body = b'{"requests":[]}'
    assert post(service, body, JSON, "/api/odata/other/$batch").status == 403
    assert post(service, body, JSON, Authorization="Basic eDp5").status == 401
    for method in ("GET", "HEAD", "DELETE", "FOO"):
        for path in ("/api/odata/demo/$batch", "/api/odata/demo/%24batch/?x=1"):
            refused = post(service, b"", JSON, path, method=method)
            assert (refused.status, refused.headers["Allow"]) == (405, "POST")
            assert method == "HEAD" or "expected POST" in refused.json["error"]["message"]
    assert service.odata("/$batch/x").status == 404
    assert (
        post(service, body, JSON, "/api/odata/demo/$batch/").status
        == post(service, body, JSON, "/api/odata/demo/%24batch").status
        == 200
    )


@pytest.mark.parametrize(
    ("options", "status"),
    [("x=1", 200), ("$format=json", 200), ("generation=1", 200), ("$top=1", 400), ("$filter=", 400), ("%24x=1", 400), ("%zz", 400)],
)
def test_a_batch_takes_the_options_of_a_document(service: Service, options: str, status: int) -> None:
    reply = post(service, b'{"requests":[]}', JSON, f"/api/odata/demo/$batch?{options}")
    assert reply.status == status, reply.body


def test_a_text_may_look_like_a_boundary(service: Service) -> None:
    ((_, status, _, body), (_, _, _, second)) = multipart(
        service, ["GET units(1)/symbol/$value HTTP/1.1\r\n\r\n", "GET units/$count HTTP/1.1\r\n\r\n"]
    )
    assert (status, body.rstrip(b"\r\n"), second.strip()) == (200, b"a\r\n--batch", b"%d" % ROWS)


@pytest.mark.slow
def test_a_late_part_is_a_503_and_the_next_one_is_answered(module_database_url: str, service: Service) -> None:
    with (
        running(module_database_url, company=None, odata_extended=True, statement_timeout=1) as slow,
        psycopg.connect(module_database_url) as other,
    ):
        other.execute("lock table data.units in access exclusive mode")
        body = json.dumps(
            {"requests": [{"id": str(n), "method": "get", "url": url} for n, url in enumerate(("units", "units(1)", "orders"))]}
        ).encode()
        patient = Service(slow.host, slow.port, service.key, service.operator, slow.stop)
        reply = post(patient, body, JSON, Prefer="continue-on-error")
        assert [each["status"] for each in reply.json["responses"]] == [503, 503, 200]
        assert [each["headers"].get("Retry-After") for each in reply.json["responses"]] == ["5", "5", None]


def test_it_is_refused_while_the_profile_is_off(module_database_url: str, service: Service) -> None:
    with running(module_database_url, company=None) as plain:
        off = Service(plain.host, plain.port, service.key, service.operator, plain.stop)
        for method in ("POST", "GET"):
            reply = post(off, b'{"requests":[]}', JSON, method=method)
            assert (reply.status, reply.json["error"]["code"]) == (501, "not_supported")
        container = off.odata("/$metadata", Accept=JSON).json["bds"]["Container"]
        assert container["@Capabilities.BatchSupported"] is False
    assert service.odata("/$metadata", Accept=JSON).json["bds"]["Container"]["@Capabilities.BatchSupported"] is True
