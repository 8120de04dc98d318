"""The load of `python -m soak.outages`: connections that import and read over HTTP/1.1 without a pause, and note each answer.

A client sends again what got no answer, or one that tells to try again, until it is acknowledged, as a client of the service should.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

ANSWER = 60.0  # seconds for an answer
PAUSE = 0.2  # seconds before a new connection after one that failed
READS = 4  # of so many requests one is a read


@dataclass
class Seen:
    """What all clients saw.

    acknowledged: the codes of each company; times: of each acknowledgement; answers: of statuses, and "no answer".
    """

    acknowledged: dict[str, set[str]] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def pause(self, since: float) -> float:
        """The longest time from a moment on in which nothing was acknowledged, in seconds."""
        times = [since, *sorted(each for each in self.times if each >= since)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def others(self) -> str:
        """The answers that are not 200."""
        return ", ".join(f"{count} x {answer}" for answer, count in sorted(self.answers.items()) if answer != "200") or "200 alone"


class Client:
    """One connection at a time."""

    def __init__(self, name: str, company: str, port: int, key: str, seen: Seen) -> None:
        self._name, self._company, self._port, self._key, self._seen = name, company, port, key, seen
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            code = f"{self._name}-{number}"
            if number % READS == 0:
                await self._until_answered(stop, "GET", f"/c/{self._company}/units?limit=5")
            elif await self._until_answered(
                stop, "POST", f"/api/{self._company}/import", json.dumps({"units": [{"code": code, "name": code}]})
            ):
                self._seen.acknowledged.setdefault(self._company, set()).add(code)
                self._seen.times.append(time.monotonic())
        self._leave()

    async def _until_answered(self, stop: asyncio.Event, method: str, path: str, body: str = "") -> bool:
        """Send a request until it gets a 200; False if the load ends before."""
        while True:
            try:
                status = await asyncio.wait_for(self._ask(method, path, body), ANSWER)
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                self._leave()
                status = f"no answer ({type(error).__name__})"
            self._seen.answers[status] += 1
            if status == "200" or stop.is_set():
                return status == "200"
            await asyncio.sleep(PAUSE)

    async def _ask(self, method: str, path: str, body: str) -> str:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {self._key}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        text = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self._leave()
        status = lines[0].split()[1]
        if status == "200":
            return status
        told = json.loads(text)
        return f"{status} {told['code']}" + ("" if "retry-after" in headers else f" ({told.get('detail') or told})")

    def _leave(self) -> None:
        if self._streams:
            self._streams[1].close()
        self._streams = None


@contextlib.asynccontextmanager
async def proxy(ports: list[int]) -> AsyncIterator[int]:
    """A plain TCP proxy before several servers, which passes a new connection on to the next one that takes it; yields its port."""
    turn = itertools.count()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turn)
        for offset in range(len(ports)):
            try:
                there = await asyncio.open_connection("127.0.0.1", ports[(first + offset) % len(ports)])
            except OSError:
                continue
            with contextlib.suppress(asyncio.CancelledError):  # the load has ended
                await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))
            return
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, backlog=1024)
    async with server:
        yield server.sockets[0].getsockname()[1]
