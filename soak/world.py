"""The processes: a PostgreSQL and the service in a temporary folder on loopback, both of which can be killed and started again."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from app.auth.keys import hash_key, make_key
from app.database import embedded
from tests.service.serving import unused_port

COMPANIES = ("alpha", "beta")
PATIENCE = 90.0  # seconds until the service or the database must be back
ANSWER = 40.0  # seconds for one answer
LOST = (OSError, http.client.HTTPException, psycopg.OperationalError, psycopg.InterfaceError)
PROCESSES = 2
BDS = (sys.executable, "-m", "app.cli")  # this program
LOGIN = "soak_app"  # of the service
WRITER = "soak_writer"  # of SQL writers
SETTINGS = {
    "BDS_WEBHOOK_ALLOW_PRIVATE": "true",
    "BDS_WEBHOOK_WINDOW": "0.5",
    "BDS_WEBHOOK_TIMEOUT": "2",
    "BDS_WEBHOOK_RETRY": "0.3,0.5,0.8,1,1",
    "BDS_WEBHOOK_PENALTY": "1",
    "BDS_WEBHOOK_LEASE": "4",
    "BDS_LOG_FORMAT": "json",
    "BDS_LOG_LEVEL": "warning",
    "PYTHONDONTWRITEBYTECODE": "",
}
LOGINS = f"""
create role {LOGIN} login;
grant bds_reader, bds_writer, bds_service, bds_worker to {LOGIN};
grant connect on database {embedded.DATABASE} to {LOGIN};
create role {WRITER} login;
grant bds_writer to {WRITER};
grant connect on database {embedded.DATABASE} to {WRITER};
"""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class World:
    """Where the service is, and the processes that belong to it.  bds: the command of the program that is started."""

    directory: Path
    url: str
    port: int
    key: str
    bds: Sequence[str] = BDS
    refused: Collection[str] = ("55P03", "40P01")  # SQLSTATEs with which a transaction of a writer may be refused
    started: list[psutil.Process] = field(default_factory=list)
    _starting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def service_url(self) -> str:
        return make_conninfo(self.url, user=LOGIN)

    def connect(self, user: str | None = None, name: str = "soak") -> psycopg.Connection[Any]:
        """A connection as the superuser, or as a login."""
        url = make_conninfo(self.url, user=user) if user else self.url
        return psycopg.connect(url, autocommit=True, application_name=name, connect_timeout=20)

    @contextlib.contextmanager
    def enduring(self) -> Iterator[None]:
        """Work that may end because the database goes away or refuses a transaction, which is done again."""
        try:
            yield
        except LOST:
            pass
        except psycopg.Error as error:
            if error.sqlstate not in self.refused:
                raise

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        timeout: float = ANSWER,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request over a new connection.  Raises OSError or HTTPException if no whole answer comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers={"X-API-Key": self.key, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    @property
    def basic(self) -> str:
        """The header Authorization of requests to OData."""
        return "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()

    @property
    def postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.directory / "postgres" / "postmaster.pid").read_text().split()[0]))

    def start_database(self) -> None:
        """Start PostgreSQL after it was killed."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                embedded.start(self.directory)
                return
            except (OSError, psycopg.Error, subprocess.SubprocessError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `bds` as the superuser."""
        environment = os.environ | {"BDS_DATABASE_URL": self.url}
        command = [*self.bds, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[1])

    def start_service(self, port: int | None = None) -> psutil.Process:
        """Start the service, whose parent is started[-1] from then on.  port: where, instead of at its own."""
        with self._starting, (self.directory / "service.log").open("ab") as log:
            command = [*self.bds, "serve", "--port", str(port or self.port), "--processes", str(PROCESSES)]
            environment = os.environ | SETTINGS | {"BDS_DATABASE_URL": self.service_url}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=Path(__file__).parents[1])
            self.started.append(psutil.Process(process.pid))
            threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
            return self.started[-1]

    def children(self, name: str) -> list[psutil.Process]:
        """Processes of the service by their name: `bds http` or `bds webhooks`."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in self.started[-1].children():
                with contextlib.suppress(OSError, psutil.Error):
                    if Path(f"/proc/{child.pid}/comm").read_text().strip() == name:
                        found.append(child)
        return found

    def wait_until_ready(self) -> float:
        """Seconds until /readyz answers 200.  Raises RuntimeError if it does not."""
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("/readyz", timeout=5).status == 200:
                    return time.monotonic() - began
            time.sleep(0.1)
        raise RuntimeError(
            f"the service is not ready after {PATIENCE:.0f} s: {(self.directory / 'service.log').read_text()[-2000:]}"
        )

    def end(self) -> None:
        """End every process that was started, by its pid."""
        family = set()
        for parent in self.started:
            with contextlib.suppress(psutil.Error):
                family |= {parent, *parent.children(recursive=True)}
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        _, alive = psutil.wait_procs(family, timeout=40)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A running service with two companies; everything is ended and removed afterwards."""
    with prepared() as each:
        each.start_service()
        each.wait_until_ready()
        yield each


@contextlib.contextmanager
def prepared(bds: Sequence[str] = BDS) -> Iterator[World]:
    """As `world`, but the service is not started."""
    directory = Path(tempfile.mkdtemp(prefix="bds-soak-"))
    each: World | None = None
    try:
        key = make_key()
        each = World(directory, embedded.start(directory), unused_port(), key, bds)
        if (done := each.run("migrate")).returncode:
            raise RuntimeError(f"bds migrate: {done.stderr}")
        with each.connect() as connection:
            connection.execute(LOGINS.encode())
            for company in COMPANIES:
                connection.execute("select bds.create_company(%s)", (company,))
            connection.execute(
                "select bds.create_key(%s, 'soak', %s, null, '{read,import,hooks}')", (hash_key(key), list(COMPANIES))
            )
        yield each
    finally:
        if each:
            each.end()
        embedded.stop(directory)
        shutil.rmtree(directory, ignore_errors=True)
