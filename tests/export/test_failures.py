"""A failed export never looks complete; slow and leaving clients hold no connections."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from app.errors import ServiceError
from app.export import to_pdf
from app.export.process import pipe_through
from tests.export.conftest import put_mapper
from tests.export.exported import UNMAPPED
from tests.service.serving import Service, running, wait_until

pytestmark = pytest.mark.processes

ROWS = 60_000
BDS = [sys.executable, "-m", "app.cli"]


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, stall=1.0, spool_max=0) as service:
        service.operator.write(
            "demo",
            "insert into data.units (company_id, code, name) select 'demo', g, repeat(md5(g::text), 10) from generate_series(1, %s) g",
            (ROWS,),
        )
        put_mapper(service, "reverse", "type csv\nunits = 'row' {\n  code = 'Number'\n  name = 'Title'\n}\n")
        put_mapper(
            service, "lossy", "type csv\nunits = 'row' {\n  code = 'Number'\n  name = if('Number' != \"50000\", 'Title')\n}\n"
        )
        put_mapper(service, "template", "type template text/plain\n{% for row in rows %}{{ row.name }}\n{% endfor %}")
        yield service


def exporting(service: Service) -> list[int]:
    """Return the backends that run an export."""
    return [
        pid
        for (pid,) in service.operator.rows(
            "select pid from pg_stat_activity where starts_with(query, 'copy (') and state = 'active' and backend_type = 'client backend'"
        )
    ]


@pytest.mark.parametrize("format", [*(each for each in UNMAPPED if each != "pdf"), "custom&mapper=reverse"])  # a PDF is sent whole
def test_an_export_that_fails_midway_is_cut(service: Service, format: str) -> None:
    with service.connect(receive_buffer=4096) as client:
        request = f"GET /api/demo/units?export=true&format={format} HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\n\r\n"
        client.sendall(request.encode())
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 200 and response.headers["Transfer-Encoding"] == "chunked"
        response.read(1000)
        wait_until(lambda: bool(exporting(service)))
        for pid in exporting(service):
            service.operator.rows("select pg_terminate_backend(%s::int)", (pid,))
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            response.read()
    wait_until(lambda: not exporting(service))
    assert service.ask("/api/demo/units?export=true&format=json&$top=1").status == 200


def test_a_value_that_cannot_be_written_cuts_the_connection_or_is_a_422_before_the_first_byte(service: Service) -> None:
    path = "/api/demo/units?export=true&format=custom&mapper=lossy&$orderby=id"
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        service.ask(path)
    for filter in ("code eq '50000'", "code eq '7' or code eq '50000'"):
        reply = service.ask(f"{path}&$filter={quote(filter)}")
        assert (reply.status, reply.json["code"], reply.json["target"]) == (422, "unwritable", "name")
        assert reply.json["detail"].startswith("units, code 50000: name '")
    assert service.ask(path + "&$filter=" + quote("code eq '7'")).body.startswith(b"Number,Title\r\n7,")


def test_a_text_that_no_cell_holds_cuts_the_connection_later(service: Service) -> None:
    service.operator.write("demo", "update data.units set symbol = repeat('x', 32768) where code = '50000'")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        service.ask("/api/demo/units?export=true&format=excel&$orderby=id")
    service.operator.write("demo", "update data.units set symbol = null where code = '50000'")


@pytest.mark.parametrize("format", ["csv", "excel", "custom&mapper=reverse", "custom&mapper=template"])
def test_a_client_that_leaves_frees_its_connection(service: Service, format: str) -> None:
    request = f"GET /api/demo/units?export=true&format={format} HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\n\r\n"
    for _ in range(4):
        with service.connect(receive_buffer=4096) as client:  # leaves while the service waits for it
            client.sendall(request.encode())
            client.recv(100)
            wait_until(lambda: bool(exporting(service)))
        with service.connect() as client:  # leaves while the service makes the next block
            client.sendall(request.encode())
            for _ in range(10):
                client.recv(4096)
    wait_until(lambda: not exporting(service))


def test_a_client_that_stops_reading_is_cut(service: Service) -> None:
    with service.connect(receive_buffer=4096) as client:
        client.sendall(
            f"GET /api/demo/units?export=true&format=csv HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\n\r\n".encode()
        )
        client.recv(100)
        wait_until(lambda: bool(exporting(service)))
        wait_until(lambda: not exporting(service))  # a second later


def test_an_export_without_a_row_within_the_statement_timeout_is_an_error_unless_it_is_of_the_past(database_url: str) -> None:
    with running(database_url, statement_timeout=1) as service:
        service.operator.write("demo", "insert into data.categories (company_id, code, name) values ('demo', 'a', 'a')")
        ((definition,),) = service.operator.rows("select pg_get_viewdef('api.categories')")
        slow = f"create or replace view api.categories as {definition.rstrip(';')} and pg_sleep(30) is not null"
        service.operator.connection.execute(slow.encode())
        for format in UNMAPPED:
            reply = service.ask(f"/api/demo/categories?export=true&format={format}")
            assert (reply.status, reply.json["code"]) == (503, "busy")
        wait_until(lambda: not exporting(service))
        # of the past, an error tells how much lies between, and an export may take its time
        [(version,)] = service.operator.rows("select last_id from bds.clocks where company_id = 'demo'")
        service.operator.write("demo", "insert into data.units (code, name) select n, n from generate_series(1, 10001) n")
        for view in ("past.categories", "past.categories_unchanged"):
            [(definition,)] = service.operator.rows("select pg_get_viewdef(%s::regclass)", (view,))
            slow = f"create or replace view {view} as select c.* from ({definition.rstrip(';')}) c where pg_sleep(2) is not null"
            service.operator.connection.execute(slow.encode())
        for path in (
            f"/c/demo/categories?version={version}&filter=name%3D'a'",
            f"/api/odata/demo@{version}/categories?$filter=name%20eq%20'a'",
        ):
            reply = service.ask(path)
            assert reply.status == 503 and f"10,001 changes lie between version {version} and now" in reply.body.decode()
        reply = service.ask(f"/api/demo/categories?export=true&format=csv&version={version}")
        assert (reply.status, reply.body.count(b"\n")) == (200, 2)


def test_too_many_rows_for_a_pdf_are_refused_with_their_number(service: Service) -> None:
    reply = service.ask("/api/demo/units?export=true&format=pdf")
    assert (reply.status, reply.json["rows"], reply.json["limit"]) == (400, ROWS, 10_000)
    assert "at most 10,000 rows for a PDF, got 60,000" in reply.json["detail"]
    assert service.ask("/api/demo/units?export=true&format=pdf&$top=3").body.startswith(b"%PDF-")


def test_a_head_request_is_refused_like_a_get_request(service: Service) -> None:
    assert service.ask("/api/demo/units?export=true&format=pdf", "HEAD").status == 400
    assert service.ask("/api/demo/units?export=true&format=pdf&$top=3", "HEAD").status == 200
    for method in ("HEAD", "GET"):
        assert service.ask("/api/demo/products?export=true&format=csv&$expand=variants,orderItems", method).status == 400


def test_a_pdf_holds_no_connection_while_it_is_laid_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    laid_out, started = to_pdf.lay_out, threading.Event()

    async def watched(rows: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
        async with aclosing(laid_out(rows)) as blocks:
            async for block in blocks:
                if not started.is_set():
                    seen.append(len(snapshots(service)))
                    started.set()
                yield block

    monkeypatch.setattr(to_pdf, "lay_out", watched)
    assert service.ask("/api/demo/units?export=true&format=pdf&$top=2000").body.startswith(b"%PDF-")
    assert seen == [0]


def snapshots(service: Service) -> list[tuple[int]]:
    return service.operator.rows(
        "select pid from pg_stat_activity where starts_with(state, 'idle in transaction') and backend_type = 'client backend'"
    )


def test_more_concurrent_pdfs_than_processors_all_succeed(service: Service) -> None:
    path = "/api/demo/units?export=true&format=pdf&$top=20"
    with ThreadPoolExecutor(12) as pool:
        bodies = list(pool.map(lambda _: service.ask(path).body, range(12)))
    assert all(body.startswith(b"%PDF-") and body.rstrip().endswith(b"%%EOF") for body in bodies)


def test_concurrent_exports_are_not_mixed_up(service: Service) -> None:
    paths = [f"/api/demo/units?export=true&format=csv&$select=code&$skip={n}&$top=2000&$orderby=id" for n in range(0, 20_000, 2000)]
    with ThreadPoolExecutor(10) as pool:
        bodies = list(pool.map(lambda path: service.ask(path).body, paths))
    assert b"".join(body.split(b"\n", 1)[1] for body in bodies).split() == [str(n).encode() for n in range(1, 20_001)]


# The command ----------------------------------------------------------------------------------------------------------------------


def bds(url: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"BDS_DATABASE_URL": url}
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen([*BDS, "export", *arguments], env=environment, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_command_writes_what_the_service_sends(service: Service, module_database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "units.csv"
    ended = bds(module_database_url, "units", "--company", "demo", "--format", "csv", "--filter", "id le 5", "-o", str(path))
    assert ended.communicate() == (b"", b"") and ended.returncode == 0
    assert path.read_bytes() == service.ask("/api/demo/units?export=true&format=csv&$filter=id%20le%205").body
    piped = bds(module_database_url, "units", "--company", "demo", "--format", "JSON", "--top", "2", "--orderby", "id desc")
    out, err = piped.communicate()
    assert (piped.returncode, err) == (0, b"")
    assert out == service.ask("/api/demo/units?export=true&format=json&$top=2&$orderby=id%20desc").body


def test_a_link_is_followed_and_a_device_is_not_replaced(service: Service, module_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for path in (tmp_path / "link", Path("/dev/null"), Path("/dev/stdout")):
        ended = bds(module_database_url, "units", "--company", "demo", "--format", "csv", "--top", "1", "-o", str(path))
        out, err = ended.communicate()
        assert (ended.returncode, err, bool(out)) == (0, b"", path.name == "stdout")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes().startswith(b"\xef\xbb\xbfid,")
    assert Path("/dev/null").is_char_device() and Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("units", "--company", "nowhere", "--format", "csv"), 1, b"no such company: 'nowhere'"),
        (("none", "--company", "demo", "--format", "csv"), 1, b"no such entity: none, expected one of units,"),
        (("units", "--company", "demo", "--format", "doc"), 2, b"expected one of json, xml, csv"),
        (("unit", "--company", "demo", "--format", "csv"), 1, b"no such entity: unit, did you mean units?"),
        (("units", "--company", "demo", "--format", "CVS"), 2, b"got 'CVS', did you mean csv?"),
        (("units", "--company", "demo"), 2, b"one of json, xml, csv"),
        (
            ("units", "--company", "demo", "--format", "csv", "--filter", "nope eq 1"),
            1,
            b"$filter: units has no field nope (at character 1)",
        ),
        (("units", "--company", "demo", "--format", "pdf"), 1, b"at most 10,000 rows"),
        (("units", "--company", "demo", "--format", "custom", "--mapper", "lossy"), 1, b"units, code 50000: name '"),
    ],
)
def test_an_error_is_reported_and_leaves_no_file(
    service: Service, module_database_url: str, tmp_path: Path, arguments: tuple[str, ...], code: int, expected: bytes
) -> None:
    ended = bds(module_database_url, *arguments, "-o", str(tmp_path / "out"))
    out, err = ended.communicate()
    assert (ended.returncode, out) == (code, b"") and expected in err and b"Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_the_command_fails_when_its_connection_is_lost(service: Service, module_database_url: str) -> None:
    ended = bds(module_database_url, "units", "--company", "demo", "--format", "csv")
    assert ended.stdout is not None
    ended.stdout.read(10)
    wait_until(lambda: bool(exporting(service)))
    for pid in exporting(service):
        service.operator.rows("select pg_terminate_backend(%s::int)", (pid,))
    ended.communicate()
    assert ended.returncode == 1


# Processes ------------------------------------------------------------------------------------------------------------------------


def test_an_error_of_the_input_ends_the_process() -> None:
    async def feed() -> AsyncGenerator[bytes, None]:
        yield b'{"title": "t", "about": "", "columns": [{"name": "a", "number": false}]}\n["x"]\n'
        raise ServiceError("busy", "the database went away")

    async def run() -> bytes:
        return b"".join([block async for block in pipe_through("app.export.layout", feed())])

    with pytest.raises(ServiceError, match="the database went away"):
        asyncio.run(run())


def test_the_process_ends_when_its_output_is_no_longer_read() -> None:
    async def feed() -> AsyncGenerator[bytes, None]:
        yield b'{"title": "t", "about": "", "columns": [{"name": "a", "number": false}]}\n'
        while True:
            await asyncio.sleep(0.01)
            yield b'["x"]\n'

    async def run() -> None:
        async def read() -> None:
            async for _ in pipe_through("app.export.layout", feed()):
                raise AssertionError("the process gave output before the end of its input")

        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await read()

    asyncio.run(run())
