"""How long a start takes, and the replacement of a killed process.

The CPU time of a start is measured beside the floor, a Python that only imports the packages without which nothing can be served.
A replacement is measured beside the start of the whole service, both on the clock.  All have bytecode in a folder of the bench, as
an installed package has it: to compile every module at each start would take a third of its time.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from statistics import median

import psutil

from bench.place import BDS, Place
from bench.table import Result, say

ROUNDS = 5
FLOOR = "import psycopg, psycopg_pool, uvloop; from aiohttp import web"
PATIENCE = 60.0  # seconds


def measure(place: Place) -> Iterator[Result]:
    """Milliseconds to the first answer."""
    bytecode = {"PYTHONPYCACHEPREFIX": str(place.directory / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    with place.database() as url:
        environment = os.environ | bytecode | {"BDS_DATABASE_URL": url}
        ours, floor, walls, replacements = [], [], [], []
        _floor(environment)
        with _started(environment, "--processes", "2"):
            pass
        for number in range(ROUNDS):
            say(f"start: round {number + 1}")
            floor.append(_floor(environment))
            with _started(environment) as (process, _, _):
                ours.append(sum(process.cpu_times()[:2]))
            with _started(environment, "--processes", "2") as (parent, port, took):
                walls.append(took)
                replacements.append(_replacement(parent, port))
    yield _times("start, CPU to /readyz", ours, floor, "floor: imports of aiohttp, psycopg and uvloop; target <= 600 ms")
    yield _times("start, replacement of a killed process", replacements, walls, "floor: `bds serve --processes 2` to /readyz")


def _times(measure: str, ours: list[float], floor: list[float], note: str) -> Result:
    ratio = median(f / o for o, f in zip(ours, floor, strict=True))
    return Result(measure, "ms", median(ours) * 1e3, median(floor) * 1e3, ratio, note)


def _floor(environment: Mapping[str, str]) -> float:
    """CPU seconds of the imports."""
    before = os.times()
    subprocess.run([sys.executable, "-c", FLOOR], env=environment, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@contextlib.contextmanager
def _started(environment: Mapping[str, str], *options: str) -> Iterator[tuple[psutil.Process, int, float]]:
    """A service, its port, and the seconds to its first answer."""
    began = time.perf_counter()
    command = [BDS, "serve", "--port", "0", *options]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        try:
            found = next(filter(None, (re.search(r"serving on http://127.0.0.1:(\d+)", line) for line in started.stderr)))
            port = int(found[1])
            _ask(port)
            yield psutil.Process(started.pid), port, time.perf_counter() - began
        finally:
            started.terminate()


def _replacement(parent: psutil.Process, port: int) -> float:
    """Seconds from the death of an HTTP process to the first answer of the one that replaces it."""
    before: set[str] = set()
    while len(before) < 2:
        before.add(_ask(port))
    began = time.perf_counter()
    parent.children()[0].kill()
    while time.perf_counter() < began + PATIENCE:
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            if _ask(port) not in before:
                return time.perf_counter() - began
    raise RuntimeError("the process was not replaced")


def _ask(port: int) -> str:
    """The part of a request's id that names the process that answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"/readyz answered {answer.status}")
        return (answer.headers["X-Request-Id"] or "")[:12]
    finally:
        connection.close()
