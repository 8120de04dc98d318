"""Imports, exports and changes of a service far away, over its HTTP interface: what `--url` does in place of a database.

Errors of the service are ServiceErrors with its code and message; a service that does not answer, or ends an answer early, is an
OSError that names it.  Redirects are not followed, so the key goes to no other host.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from app.cli import stdio
from app.cli.command import argument
from app.config import Config
from app.database.pool.listening import RECONNECT
from app.errors import ERRORS, ServiceError, hint
from app.feed.origin import file_name
from app.formats import begun_by
from app.types import exact_json
from app.types.event_ids import Event

CHUNK = 1 << 20  # bytes sent or read at once
TIMEOUT = 120.0  # seconds without a byte
WATCH = 1.0  # seconds between two checks that standard output has a reader
POLL = 0.2, 2.0  # seconds between two looks at an import: the shortest, the longest
ENDED = ("completed", "partial", "failed", "cancelled")  # states of imports
PROBLEM = ("type", "title", "status", "detail", "code", "message", "target", "headers")  # members of errors; others are passed on
NONE: Mapping[str, str] = {}
ASYNC = {"Prefer": "respond-async"}
UNTYPED = "application/octet-stream"  # which every mapper takes

URL = argument("--url", metavar="URL", help="a service to use in place of a database, such as https://data.example.com")
KEY_FILE = argument("--key-file", metavar="FILE", help="the file with the API key for --url (BDS_KEY)")


def given_service(options: argparse.Namespace, config: Config) -> Remote | None:
    """The service that --url names, None without it.  Raises ValueError, and OSError for the file with the key."""
    if options.url is None:
        return None
    key = Path(options.key_file).read_text(encoding="utf-8").strip() if options.key_file else config.key
    if key is None or not re.fullmatch(r"[\x21-\x7e]+", key):
        raise ValueError("--url: expected an API key in the variable BDS_KEY, or --key-file FILE")
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise ValueError(f"--url: expected a URL such as https://data.example.com, got {options.url!r}")
    return Remote(options.url.rstrip("/"), key)


class Remote:
    """A service, and the key with which it is asked."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self._key = url, key
        self._parts = urlsplit(url)

    @property
    def basic(self) -> Mapping[str, str]:
        """The header with the key that OData accepts."""
        return {"Authorization": "Basic " + base64.b64encode(f"api:{self._key}".encode()).decode()}

    @contextlib.contextmanager
    def ask(
        self,
        method: str,
        path: str,
        body: Iterator[bytes] | None = None,
        headers: Mapping[str, str] = NONE,
        answers: Sequence[int] = (),
    ) -> Iterator[tuple[http.client.HTTPResponse, socket.socket]]:
        """Send a request; the answer and its connection, for the block.

        answers: statuses from 300 on that are answers.  Raises ServiceError for every other one, OSError.
        """
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=TIMEOUT)
        named = {"Authorization": f"Bearer {self._key}", **headers}
        try:
            with self._named_errors():
                connection.connect()
                link = connection.sock  # which the connection forgets if the answer ends it
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it answers before it has read everything
                    connection.request(method, self._parts.path + path, body, named, encode_chunked=body is not None)
                response = connection.getresponse()
                if response.status >= 300 and response.status not in answers:
                    raise _error(self.url, response)
            yield response, link
        finally:
            connection.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Make a failure of the connection an OSError that names the service; errors of files name their file already."""
        try:
            yield
        except http.client.HTTPException as error:
            raise OSError(0, f"it ended its answer early ({type(error).__name__})", self.url) from None
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(error.errno or 0, error.strerror or str(error) or type(error).__name__, self.url) from None

    def get(self, path: str, method: str = "GET", headers: Mapping[str, str] = NONE, body: bytes | None = None) -> Any:
        """The JSON of an answer, None if it has no body."""
        content = self.read(path, method, headers, body)
        return exact_json.loads(content) if content else None

    def read(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] = NONE,
        body: bytes | None = None,
        answers: Sequence[int] = (),
    ) -> bytes:
        """The body of an answer, which is JSON or empty; a stream, which has no end, is not read."""
        sent = None if body is None else iter([body])
        with self.ask(method, path, sent, headers, answers) as (response, _), self._named_errors():
            if response.headers.get_content_type() == "text/event-stream":
                raise ServiceError("not_acceptable", f"expected a path that answers JSON, got {path}")
            return response.read()

    def last_version(self, company: str) -> str:
        """The id of the company's last change."""
        return str(self.get(f"/c/{segment(company)}")["version"])

    # Imports ----------------------------------------------------------------------------------------------------------------------

    def run_import(
        self,
        company: str,
        file: Any,
        name: str | None,
        given: Mapping[str, str],
        show: Callable[[str, int, int, int], None],
        key: str | None,
    ) -> dict[str, Any]:
        """Send a document and wait for the end of its import; returns the report.

        given: parameters of the request; key: with which it is imported once, however often it is sent.
        """
        first: bytes = file.read(CHUNK)

        def blocks() -> Iterator[bytes]:
            block, sent = first, 0
            while block:
                yield block
                sent += len(block)
                show("receiving", sent, 0, 0)
                block = file.read(CHUNK)

        kind = "application/json"
        if "entity" in given:
            kind = begun_by(first, name).read_as[0]
        headers = {"Content-Type": UNTYPED if "mapper" in given else kind, **ASYNC}
        if named := file_name(name):
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(named, safe='')}"
        if key is not None:
            headers["Idempotency-Key"] = key
        path = f"/api/{segment(company)}/import?{urlencode(given)}"
        with self.ask("POST", path, blocks(), headers) as (response, _), self._named_errors():
            report = exact_json.loads(response.read())
        return self._await_end(company, report, show)

    def revert(self, company: str, id: str, given: Mapping[str, str], show: Callable[[str, int, int, int], None]) -> dict[str, Any]:
        """Undo a change set and wait for the end; returns the report."""
        report = self.get(f"/api/{segment(company)}/imports/{segment(id)}/revert?{urlencode(given)}", "POST", ASYNC)
        return self._await_end(company, report, show)

    def go_back(self, company: str, selection: Mapping[str, Any], show: Callable[[str, int, int, int], None]) -> dict[str, Any]:
        """Undo what is selected and wait for the end; returns the report."""
        headers = {**ASYNC, "Content-Type": "application/json"}
        report = self.get(f"/api/{segment(company)}/revert", "POST", headers, exact_json.dumps(selection).encode())
        return self._await_end(company, report, show)

    def _await_end(self, company: str, report: dict[str, Any], show: Callable[[str, int, int, int], None]) -> dict[str, Any]:
        """Look at an import until it has ended; cancel it if the command is interrupted.  An outage does not end it."""
        path, pause, is_away = f"/api/{segment(company)}/imports/{report['importId']}", POLL[0], False
        try:
            while report.get("state") not in ENDED:
                time.sleep(pause)
                pause = min(POLL[1], pause * 1.5)
                try:
                    report, is_away = self.get(path), False
                except (OSError, ServiceError) as error:
                    if not _may_pass(error):
                        raise
                    if not is_away:
                        stdio.message("bds: the service does not answer; waiting for it")
                    is_away = True
                    continue
                progress = report["progress"]
                phase = f"waiting for {progress['waitingFor']}" if progress["waitingFor"] else progress["phase"] or report["state"]
                show(phase, progress["bytes"], progress["records"], progress["done"])
        except KeyboardInterrupt:
            with contextlib.suppress(OSError, ServiceError):
                self.get(path, "DELETE")
            raise
        return report

    # Exports ----------------------------------------------------------------------------------------------------------------------

    def export(
        self, company: str, entity: str, given: Mapping[str, str], out: BinaryIO, show: Callable[[int, int, int], None]
    ) -> None:
        """Write an export.  given: parameters of the request; show: rows so far and in all, both 0, and bytes so far."""
        written = 0
        path = f"/api/{segment(company)}/{segment(entity)}?{urlencode({'export': 'true', **given})}"
        with self.ask("GET", path) as (response, _):
            expected = response.length
            while block := self._read(response):
                out.write(block)
                written += len(block)
                show(0, 0, written)
        if expected is not None and written < expected:
            raise OSError(0, "it ended its answer early", self.url)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        with self._named_errors():
            return response.read(CHUNK)

    # Changes ----------------------------------------------------------------------------------------------------------------------

    def follow(self, company: str, entity: str | None, after: Event | None) -> None:
        """Print records until a signal, or until the reader of standard output has left.  Raises ServiceError, OSError."""
        found = self.get(f"/c/{segment(company)}")
        seen = str(after) if after else found["position"]
        tell_generation(found["generation"])
        known = [each["name"] for each in found["entities"]]
        if entity is not None and entity not in known:
            raise ServiceError("not_found", f"no such entity: {entity}{hint(entity, known)}")
        given = {"filter": f"entity = '{entity}'"} if entity else {}
        has_begun = is_away = False
        while stdio.is_read():
            try:
                for event in self._events(f"/c/{segment(company)}/changes/stream?{urlencode(given | {'after': seen})}"):
                    has_begun, is_away = True, False
                    if event:
                        seen, record = event
                        stdio.write(record + "\n")
            except (OSError, ServiceError) as error:
                if not has_begun or not _may_pass(error):
                    raise
                if not is_away:
                    stdio.message("bds: the service does not answer; waiting for it")
                is_away = True
            time.sleep(RECONNECT)

    def _events(self, path: str) -> Iterator[tuple[str, str] | None]:
        """The events of a stream, ids and records; None for every other line."""
        with self.ask("GET", path) as (response, link):
            closed = threading.Event()
            threading.Thread(target=_end_unread, args=(link, closed), daemon=True).start()
            try:
                id = ""
                while line := self._read_line(response):
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "id":
                        id = value
                    yield (id, value) if name == "data" else None
            finally:
                closed.set()

    def _read_line(self, response: http.client.HTTPResponse) -> bytes:
        with self._named_errors():
            return response.readline()


def tell_generation(generation: int) -> None:
    """Say how to continue after a record, which has its id alone."""
    if generation > 1:
        stdio.message(f"the log is in generation {generation}: to continue after a record, give --after {generation}:ID")


def segment(name: str) -> str:
    """A name as a segment of a path."""
    return quote(name, safe="")


def _end_unread(link: socket.socket, closed: threading.Event) -> None:
    """End a connection once standard output has no reader, even if nothing arrives."""
    while not closed.wait(WATCH):
        if not stdio.is_read():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            return


def _may_pass(error: Exception) -> bool:
    """Whether it may pass: the service is away, not the reader of standard output."""
    if isinstance(error, ServiceError):
        return error.status >= 500
    return not isinstance(error, OSError) or error.filename != stdio.OUTPUT


def _error(url: str, response: http.client.HTTPResponse) -> ServiceError:
    """The error of an answer: that of the service, unless something else has answered."""
    try:
        content = json.loads(response.read(1 << 20))
        content = content.get("error", content)  # OData puts its errors into a member
        code, target = content["code"], content.get("target")
        message = content.get("detail") or content.get("message") or content["title"]
        more = {name: value for name, value in content.items() if name not in PROBLEM}
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message, target, more = None, "", None, {}
    if code not in ERRORS:
        return ServiceError("internal", f"{url} answered {response.status} {response.reason}: expected the address of a service")
    if code == "unauthorized":
        message = f"{url} does not accept the key of BDS_KEY or --key-file: it is unknown, revoked or expired"
    return ServiceError(code, message, target=target, **more)
