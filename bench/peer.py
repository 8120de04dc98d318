"""The same products by dlt (https://dlthub.com), merged through CSV: what a good general loader needs for them.

dlt has an interpreter of its own, made at the first run; without the network, it is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, load, settle
from bench.table import Result, rate, say, timed

ROUNDS = 3
HOME = Path(sys.prefix) / "dlt"
PYTHON = HOME / "bin" / "python"
SCRIPT = Path(__file__).with_name("dlt_load.py")
TARGETS = {"new": 4, "unchanged": 8}


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Rows a second of ours, dlt's as the floor."""
    if not _install():
        say("dlt: skipped, for it cannot be installed")
        return
    say(f"dlt: {rows:,} products")
    basis, products = write_basis(place.directory), write_products(place.directory, rows)
    ours: dict[str, list[float]] = {phase: [] for phase in TARGETS}
    theirs: dict[str, list[float]] = {phase: [] for phase in TARGETS}
    for number in range(ROUNDS):
        with place.database(COMPANY) as url:
            load(url, basis)
            for phase in TARGETS:
                vacuum = phase == "unchanged"  # as autovacuum does before the next night
                settle(url, vacuum=vacuum)
                ours[phase].append(timed(load, url, products.path)[0])
                settle(url, vacuum=vacuum)
                theirs[phase].append(_load(url, products.path, place.directory / f"dlt{number}"))
    for phase, target in TARGETS.items():
        note = f"{products.total:,} rows; floor: dlt's merge through CSV; target >= {target}"
        yield rate(f"feed beside dlt, {phase}", "rows/s", products.total, ours[phase], theirs[phase], note)


def _install() -> bool:
    if PYTHON.exists():
        return True
    made = subprocess.run([sys.executable, "-m", "venv", HOME], capture_output=True, check=False)
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "dlt[postgres]"]
    if made.returncode == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return True
    PYTHON.unlink(missing_ok=True)
    return False


def _load(url: str, document: Path, directory: Path) -> float:
    """Seconds that dlt says its merge has taken.  Raises CalledProcessError if it fails."""
    parts = conninfo_to_dict(url)
    host = quote(str(parts["host"]), safe="")
    port = f":{parts['port']}" if "port" in parts else ""
    address = f"postgresql://{parts['user']}:{parts.get('password', 'none')}@{host}{port}/{parts['dbname']}"
    environment = os.environ | {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    words = [PYTHON, SCRIPT, address, document, directory]
    done = subprocess.run(words, stdout=subprocess.PIPE, env=environment, text=True, check=True)
    return float(done.stdout.split()[-1])
