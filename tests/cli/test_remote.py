"""`--url`: import, export and follow against a service far away, as against a database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from app import logs
from app.cli import command, main, remote
from app.formats import READABLE
from tests.cli.terminal import bars, on_terminal
from tests.cli.test_commands import BDS, ROOT
from tests.service.serving import Service, running, unused_port, wait_until

pytestmark = pytest.mark.processes

Command = Callable[..., tuple[int, str, str]]

UNITS = {"units": [{"code": f"U{n:04}", "name": f"unit {n}"} for n in range(1, 501)]}


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("other")
        yield service


@pytest.fixture
def url(service: Service) -> str:
    return f"http://{service.host}:{service.port}"


@pytest.fixture
def bds(service: Service, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command against the service; no database can be reached.

    The service, in this process, would write its request log to the standard error that the command's log has set up.
    """
    monkeypatch.setattr(logs.access, "disabled", True)
    monkeypatch.setenv("BDS_DATABASE_URL", f"postgresql://nobody@127.0.0.1:{unused_port()}/none")
    monkeypatch.setenv("BDS_KEY", service.key)

    def run(*words: str, at: str = url) -> tuple[int, str, str]:
        code = main.main([*words, "--url", at])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def feed(tmp_path: Path) -> Callable[[Any], str]:
    def write(document: Any, name: str = "feed.json") -> str:
        (tmp_path / name).write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        return str(tmp_path / name)

    return write


def test_an_import_is_listed_shown_and_reverted(bds: Command, service: Service, feed: Any) -> None:
    code, out, _ = bds("import", feed(UNITS, "Grüße.json"), "--company", "demo")
    assert code == 0 and out.splitlines()[1].split() == ["units", "500", "0", "0", "0", "0"]
    id = out.split()[-1]
    assert service.operator.rows("select count(*) from data.units where company_id = 'demo'") == [(500,)]
    assert bds("import", "show", id, "--company", "demo")[1] == out
    report = json.loads(bds("import", "show", id, "--company", "demo", "--json")[1])
    assert (report["file"], report["actor"][:4], report["state"]) == ("Grüße.json", "key ", "completed")
    header, first, *_ = bds("import", "list", "--company", "demo")[1].splitlines()
    assert header.split()[:2] == ["id", "state"] and first.split()[:2] == [id, "completed"] and first.split()[-2:] == ["500", "0"]
    code, out, _ = bds("import", "revert", id, "--company", "demo", "--dry-run")
    assert code == 0 and "dry run" in out
    code, out, _ = bds("import", "revert", id, "--company", "demo")
    assert code == 0 and out.splitlines()[1].split() == ["units", "0", "0", "500", "0", "0"]
    assert service.operator.rows("select count(*) from data.units where company_id = 'demo'") == [(0,)]


def test_the_same_commands_in_the_database(
    service: Service, module_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], feed: Any
) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", module_database_url)
    assert main.main(["import", feed(UNITS), "--company", "other", "--dry-run"]) == 0
    out = capsys.readouterr().out
    id = out.split()[-1]
    assert main.main(["import", "show", id, "--company", "other"]) == 0
    assert capsys.readouterr().out == out
    assert main.main(["import", "list", "--company", "other", "--json"]) == 0
    said = capsys.readouterr()
    listed = json.loads(said.out)  # one line
    assert said.err == ""
    assert main.main(["import", feed(UNITS), "--company", "other", "--dry-run"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(logs.access, "disabled", True)  # as in `bds`
    for url in ([], ["--url", f"http://{service.host}:{service.port}"]):
        monkeypatch.setenv("BDS_KEY", service.operator.key("other"))
        assert main.main(["import", "list", "--company", "other", "--limit", "1", *url]) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == 2, "a header and an import"
        assert said.err == "bds: there are more imports than the newest 1; --limit N prints more\n"
    assert (listed["importId"], listed["dryRun"], "errors" in listed) == (id, True, False)
    for words, message in (
        (("list", "--company", "nowhere"), "no such company: 'nowhere'"),
        (("show", id, "--company", "demo"), f"company demo has no import {id}"),
    ):
        assert main.main(["import", *words]) == command.FAILED
        assert capsys.readouterr().err == f"bds: {message}\n"


def test_formats_and_mappers(
    bds: Command, service: Service, url: str, feed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = service.operator.key("other")
    monkeypatch.setenv("BDS_KEY", key)
    mapper = b"type csv\nunits = 'row' { code = 'Code' name = 'Name' }\n"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "text/plain"}
    urlopen(Request(f"{url}/api/other/mappers/units", mapper, headers, method="PUT")).close()
    source = feed(b"Code,Name\nM1,mapped\n", "units.csv")
    code, out, err = bds("import", source, "--company", "other", "--mapper", "units")
    assert code == 0 and out.splitlines()[1].split()[:2] == ["units", "1"], err
    for format in READABLE:
        name = f"units.{format.extension}"
        code, out, err = bds("export", "units", "--company", "other", "--format", format.name, "--output", str(tmp_path / name))
        assert (code, out) == (0, ""), err
        code, out, err = bds("import", str(tmp_path / name), "--company", "other")
        assert code == 0 and out.splitlines()[1].split() == ["units", "0", "0", "0", "1", "0"], err
    chosen = ("export", "units", "--company", "other", "--format", "csv", "--select", "code,name", "--filter")
    for condition in ("code eq 'M1'", "code = 'M1' AND name LIKE 'm%'"):
        code, out, _ = bds(*chosen, condition)
        assert (code, out.splitlines()) == (0, ["\ufeffcode,name", "M1,mapped"])
    assert bds("export", "units", "--company", "other", "--format", "xsd")[1].startswith("<?xml")


WRONG = [
    (("export", "planets", "--company", "demo", "--format", "csv"), "no such entity: planets"),
    (("export", "units", "--company", "demo", "--format", "csv", "--filter", "x eq 1"), "$filter: "),
    (("import", "show", "00000000-0000-0000-0000-000000000000", "--company", "demo"), "has no import"),
    (("import", "list", "--company", "nowhere"), "no import access to that company"),
    (("export", "units", "--company", "we/ird", "--format", "csv"), "no read access to that company"),
    (("import", "list", "--company", "we/ird"), "no import access to that company"),
    (("follow", "demo", "--entity", "unitz"), "bds: no such entity: unitz, did you mean units?\n"),
    (("follow", "demo", "--after", "999999"), "999999"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_an_error_of_the_service_is_one_line(bds: Command, words: tuple[str, ...], message: str) -> None:
    code, out, err = bds(*words)
    assert (code, out) == (command.FAILED, "") and message in err and err.count("\n") == 1


def test_a_malformed_document_and_failed_records(bds: Command, feed: Any) -> None:
    code, out, err = bds("import", feed(b'{"units": [}'), "--company", "demo")
    assert (code, out) == (command.FAILED, "") and "line 1, column 12" in err
    code, out, _ = bds(
        "import", feed({"@atomic": False, "units": [{"code": "A", "name": "a"}, {"code": "B"}]}), "--company", "demo"
    )
    assert code == command.PARTIAL and "units[1].name (code:B): required: name is required" in out


def test_a_wrong_key_or_address_says_so(
    bds: Command, service: Service, url: str, monkeypatch: pytest.MonkeyPatch, feed: Any
) -> None:
    large = {"units": [{"code": f"U{n:09}", "name": "x" * 100} for n in range(100_000)]}
    for key, message in (
        ("bds_" + "x" * 43, "does not accept the key of BDS_KEY or --key-file"),
        ("", "expected an API key in the variable BDS_KEY"),
        ("a b", "expected an API key"),
    ):
        monkeypatch.setenv("BDS_KEY", key)
        code, out, err = bds("import", feed(large), "--company", "demo")
        assert (code, out) == (command.FAILED, "") and message.lower() in err.lower(), err
    monkeypatch.setenv("BDS_KEY", service.key)
    nowhere = f"http://127.0.0.1:{unused_port()}"
    for at, message in (
        (nowhere, f"{nowhere}: connection refused"), ("ftp://x", "expected a URL such as"), (url + "/nothing/here", "Not found"),
    ):  # fmt: skip
        code, out, err = bds("import", "list", "--company", "demo", at=at)
        assert (code, out) == (command.FAILED, "") and message.lower() in err.lower(), err
    key_file = feed(service.key.encode() + b"\n", "key.txt")
    monkeypatch.delenv("BDS_KEY")
    assert bds("import", "list", "--company", "demo", "--key-file", key_file)[0] == 0
    assert bds("import", "list", "--company", "demo", "--key-file", key_file + "x")[2].endswith("no such file or directory\n")


def test_an_answer_that_ends_early_makes_no_file(bds: Command, tmp_path: Path) -> None:
    """A service that is killed while it sends."""
    for head in (b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer(listener: socket.socket = listener, head: bytes = head) -> None:
                client, _ = listener.accept()
                with client:
                    client.recv(65_536)
                    client.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n5\r\nabcde\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            at = f"http://127.0.0.1:{listener.getsockname()[1]}"
            code, _, err = bds(
                "export", "units", "--company", "demo", "--format", "csv", "--output", str(tmp_path / "x.csv"), at=at
            )
            thread.join()
        assert code == command.FAILED and "ended its answer early" in err and at in err
        assert not list(tmp_path.iterdir())


BUSY = {"code": "busy", "title": "Busy", "status": 503, "detail": "the database did not answer in time"}
OUTAGE: list[tuple[int, Any]] = [(502, "<html>Bad Gateway</html>"), (503, BUSY)]


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ((200, None), 0, ""),
        ((404, {"code": "not_found", "title": "x", "status": 404, "detail": "gone"}), command.FAILED, "bds: gone\n"),
    ],
)
def test_an_import_is_waited_for_while_a_proxy_has_no_service(
    bds: Command, service: Service, feed: Any, monkeypatch: pytest.MonkeyPatch, end: tuple[int, Any], code: int, message: str
) -> None:
    monkeypatch.setattr(remote, "POLL", (0.0, 0.0))
    id = bds("import", feed(UNITS), "--company", "demo", "--dry-run")[1].split()[-1]
    report = json.loads(bds("import", "show", id, "--company", "demo", "--json")[1])
    running = report | {"state": "running"}
    for words in (("import", feed(UNITS), "--company", "demo"), ("import", "revert", id, "--company", "demo"),
                  ("revert", "demo", "--to", "1")):  # fmt: skip
        answers = [(202, running), *OUTAGE, (200, running), *OUTAGE, (end[0], end[1] or report)]
        with answering(answers) as at:
            found, out, err = bds(*words, at=at)
        waited = "bds: the service does not answer; waiting for it\n"
        said = "".join(line for line in err.splitlines(keepends=True) if line.startswith("bds: "))  # without the service's log
        assert (found, said, answers) == (code, waited + waited + message, []), words
        assert (id in out) is (code == 0)


@contextlib.contextmanager
def answering(answers: list[tuple[int, Any]]) -> Iterator[str]:
    """A service that gives these answers one after the other, and takes them from the list."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = 1 if self.headers.get("Transfer-Encoding") else 0
            while size:
                size = int(self.rfile.readline(), 16)
                self.rfile.read(size + 2)
            self.do_GET()

        def do_GET(self) -> None:
            status, content = answers.pop(0)
            body = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_redirect_gets_no_key(bds: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        code, _, err = bds("import", "list", "--company", "demo", at=f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert code == command.FAILED and "answered 302 Found" in err


def test_a_bar_of_a_far_import(service: Service, url: str, feed: Any) -> None:
    environment = {**os.environ, "BDS_DATABASE_URL": "", "BDS_KEY": service.key}
    large = {"units": [{"code": f"U{n:06}", "name": "x" * 100} for n in range(30_000)]}
    code, shown = on_terminal(environment, 80, "import", feed(large), "--company", "demo", "--dry-run", "--url", url)
    seen = [percent for percent, _ in bars(shown)]
    assert code == 0 and seen == sorted(seen) and len(seen) > 1


@contextlib.contextmanager
def following(environment: dict[str, str], *words: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    process = subprocess.Popen(
        [*BDS, "follow", "demo", *words], env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ids: list[int] = []
    assert process.stdout
    thread = threading.Thread(target=lambda: ids.extend(json.loads(line)["id"] for line in process.stdout or ()))
    thread.start()
    try:
        yield process, ids
    finally:
        process.kill()
        process.wait()
        thread.join()


def add(service: Service, code: str) -> int:
    service.operator.write("demo", "insert into data.categories (company_id, code, name) values ('demo', %s, 'x')", (code,))
    return int(service.operator.rows("select max(id) from bds.changes where company_id = 'demo'")[0][0])


def test_follow_prints_what_commits_and_ends_with_a_signal(service: Service, url: str) -> None:
    environment = {**os.environ, "BDS_DATABASE_URL": "", "BDS_KEY": service.key}
    first = add(service, "f1")
    with following(environment, "--after", str(first - 1), "--entity", "categories", "--url", url) as (process, ids):
        wait_until(lambda: ids == [first])
        second = add(service, "f2")
        wait_until(lambda: ids == [first, second])
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_follow_ends_with_its_reader(service: Service, url: str) -> None:
    environment = {**os.environ, "BDS_DATABASE_URL": "", "BDS_KEY": service.key}
    first = add(service, "g1")
    process = subprocess.Popen(
        [*BDS, "follow", "demo", "--after", str(first - 1), "--url", url],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and json.loads(process.stdout.readline())["id"] == first
    process.stdout.close()
    assert process.wait(20) == 0, "though nothing is written"


def test_follow_goes_on_after_an_outage(service: Service, module_database_url: str) -> None:
    port = unused_port()
    environment = {**os.environ, "BDS_DATABASE_URL": module_database_url, "BDS_KEY": service.key}
    serve = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--no-worker"]

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(serve, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert process.stderr and any("serving on" in line for line in process.stderr)
        return process

    first = add(service, "h1")
    served = start()
    with following({**environment, "BDS_DATABASE_URL": ""}, "--after", str(first - 1), "--url", f"http://127.0.0.1:{port}") as (
        process,
        ids,
    ):
        wait_until(lambda: ids == [first])
        served.kill()
        served.communicate()
        assert process.stderr and "waiting for it" in process.stderr.readline()
        second = add(service, "h2")
        served = start()
        try:
            wait_until(lambda: ids == [first, second])
        finally:
            served.kill()
            served.communicate()
