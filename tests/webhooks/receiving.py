"""A receiver of webhooks on a real socket: it answers as a test asks, and keeps the requests."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.service.serving import wait_until


@dataclass(frozen=True)
class Received:
    """One POST."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float  # time.monotonic()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def changes(self) -> list[int]:
        return [int(change["id"]) for change in self.json["changes"]]


@dataclass
class Receiver:
    """Answers 200, or the `answers` of the path in order (a status, or hang, reset, garbage, ...), the last one forever."""

    port: int
    answers: dict[str, list[Any]] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # that no byte was answered to, by path
    most: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # under way at once, by path
    released: threading.Event = field(default_factory=threading.Event)  # ends hanging answers

    def url(self, path: str = "/ok", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def of(self, path: str) -> list[Received]:
        with self.lock:
            return [request for request in self.requests if request.path == path]

    def changes(self, path: str) -> list[int]:
        return [change for request in self.of(path) for change in request.changes]

    def wait(self, path: str, count: int) -> list[Received]:
        """Wait for `count` requests to a path; returns them."""
        wait_until(lambda: len(self.of(path)) >= count)
        return self.of(path)

    def answer(self, path: str) -> Any:
        with self.lock:
            left = self.answers.get(path, [200])
            return left.pop(0) if len(left) > 1 else left[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver
    used = False  # whether this connection has had an answer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, receiver = self.path, self.receiver
        with receiver.lock:
            receiver.requests.append(Received(path, dict(self.headers), body, time.monotonic()))
            receiver.under_way[path] += 1
            receiver.most[path] = max(receiver.most[path], receiver.under_way[path])
        answer = receiver.answer(path)
        self.consider(answer)
        with receiver.lock:  # before the first byte: a sender that has it may send the next request before this thread runs again
            receiver.under_way[path] -= 1
        try:
            self.behave(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def consider(self, answer: Any) -> None:
        """Wait as long as the answer takes to begin."""
        if answer == "slow":
            time.sleep(0.2)
        elif answer == "hang":
            self.receiver.released.wait(20)

    def behave(self, answer: Any) -> None:
        match answer:
            case int():
                self.reply(answer, b"" if answer == 204 else b"thanks" if answer < 300 else b"no")
            case "hang" | "empty":
                self.close_connection = True
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
            case "tired":  # closes a connection that is reused
                if self.used:
                    self.close_connection = True
                    return
                self.used = True
                self.reply(200, b"thanks")
            case "garbage":
                self.wfile.write(b"this is not HTTP\r\n\r\n")
                self.close_connection = True
            case "slow":
                self.reply(200, b"late")
            case "redirect":
                self.reply(307, b"", Location="/elsewhere")
            case "endless":
                self.reply(200, b"x" * 100_000, **{"Content-Length": str(10**12)})
                self.receiver.released.wait(20)
            case "trickle":  # a good status, and a body that never arrives
                self.reply(200, b"", **{"Content-Length": "10"})
                self.receiver.released.wait(20)
            case "lies":  # declares gzip and sends text; declares more bytes than it sends
                self.reply(200, b"\0\xff not gzip", **{"Content-Encoding": "gzip", "Content-Length": "500"})
                self.close_connection = True
            case "headers":  # without end
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for _ in range(100_000):
                    self.wfile.write(b"X: " + b"y" * 8_000 + b"\r\n")
            case _:
                raise AssertionError(answer)

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *_: Any) -> None:
        pass  # connections that a test has closed


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of the loopback address."""
    receiver = Receiver(0)
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"receiver": receiver}))
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
