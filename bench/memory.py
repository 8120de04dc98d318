"""How much memory the importing process takes for a document far larger than that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.documents import write_everything
from bench.place import BDS, COMPANY, Place
from bench.table import Result, say, timed

TARGET = 200  # MB

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
