"""How much memory the importing process takes for a document far larger than that, and how much a session of the server takes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.documents import write_everything
from bench.place import BDS, COMPANY, Place
from bench.table import Result, say, timed

TARGET = 200  # MB
PAUSE = 0.1  # seconds between two looks at the memory of sessions

# A small process between: a child's peak begins with what its parent held when it forked.
WATCH = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def measure(place: Place, scale: int) -> Iterator[Result]:
    """The peak of `bds import`, in MB."""
    document = place.directory / "large.json"
    say(f"memory: writing a document at scale {scale}")
    write_everything(document, scale)
    size = document.stat().st_size / 1e6
    say(f"memory: importing {size:.0f} MB")
    with place.database(COMPANY) as url:
        took, most = timed(peak, url, document)
    document.unlink()
    yield Result("feed, memory", "MB", most, note=f"{size:.0f} MB in {took:.0f} s; target < {TARGET}")


def peak(url: str, document: Path, *options: str) -> float:
    """The most memory that `bds import` has held, in MB."""
    command: list[str | Path] = [sys.executable, "-c", WATCH, BDS, "import", document, "--company", COMPANY, *options]
    run = subprocess.run(command, env=os.environ | {"BDS_DATABASE_URL": url}, stdout=subprocess.PIPE, check=True)
    return int(run.stdout) * 1024 / 1e6


@contextmanager
def watched(place: Place) -> Iterator[list[float]]:
    """Gives a list that has the most memory of its own that a session of the server held, in MB, once the block has ended."""
    most, end = [0.0], threading.Event()

    def watch() -> None:
        while not end.wait(PAUSE):
            for session in place.server.children():
                with suppress(psutil.NoSuchProcess):
                    memory = session.memory_info()
                    most[0] = max(most[0], (memory.rss - memory.shared) / 1e6)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        end.set()
        watching.join()
