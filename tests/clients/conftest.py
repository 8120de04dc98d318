"""The demo company, served in both profiles, for the clients of others; their directory; what SQL says.

`make test-clients` installs the clients that come from npm.  Without them, or without Chromium, their tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.cli import demo
from app.cli.imports import run_import
from app.config import Config
from tests.conftest import Janitor
from tests.service.serving import Service, running

HERE = Path(__file__).resolve().parent
CLIENTS = Path(sys.prefix) / "clients"  # with node_modules
PATIENCE = 300  # seconds for a generator or compiler on a busy machine

Run = Callable[..., str]
Sql = Callable[[str], Any]


@pytest.fixture(scope="session")
def demo_url(server: str) -> Iterator[str]:
    """A database with the demo company."""
    where = psycopg.conninfo.conninfo_to_dict(server)
    address = {"user": str(where["user"]), "host": str(where["host"]), "port": where.get("port") or 5432}
    with Janitor(**address, dbname="clients", template_dbname="bds_template"):
        url = make_conninfo(server, dbname="clients")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select bds.create_company(%s)", (demo.COMPANY,))
        run_import(url, Config(database_url=url), demo.COMPANY, demo.open_document())
        yield url


@pytest.fixture(scope="session")
def service(demo_url: str) -> Iterator[Service]:
    """The demo company as it is served by default."""
    with running(demo_url, company=None) as service:
        yield service


@pytest.fixture(scope="session")
def site() -> Iterator[ThreadingHTTPServer]:
    """A server of another origin, for pages with clients and for node_modules."""

    class Quiet(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=CLIENTS / "run")) as site:
        Thread(target=site.serve_forever, daemon=True).start()
        yield site
        site.shutdown()


@pytest.fixture(scope="session")
def extended(demo_url: str, site: ThreadingHTTPServer) -> Iterator[Service]:
    """The demo company in the extended profile, for pages of the site as well."""
    origin = f"http://127.0.0.1:{site.server_port}"
    with running(demo_url, company=None, odata_extended=True, cors_origins=(origin,)) as service:
        yield service


@pytest.fixture(scope="session")
def sql(demo_url: str) -> Iterator[Sql]:
    """Ask PostgreSQL for one value; for rows as an array of JSON if the query begins with their columns instead of `select`."""
    with psycopg.connect(demo_url, autocommit=True) as connection:

        def ask(query: str) -> Any:
            if not query.startswith("select"):
                query = f"select coalesce(json_agg(row), '[]') from (select {query}) as row"
            row = connection.execute(query.encode()).fetchone()
            assert row is not None and row[0] not in (None, [], 0), "a comparison with nothing proves nothing"
            return row[0]

        yield ask


@pytest.fixture(scope="session")
def place(service: Service) -> Path:
    """A directory from which node finds the packages, with the files of these tests and the service's $metadata in it."""
    packages = json.loads((HERE / "package.json").read_text())["dependencies"]
    if not all((CLIENTS / "node_modules" / name).is_dir() for name in packages):  # none, or those of an earlier list
        pytest.skip("no clients from npm: make test-clients")
    place = CLIENTS / "run"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(HERE, place, ignore=shutil.ignore_patterns("*.py", "__pycache__", "package*.json"))
    (place / "node_modules").symlink_to(CLIENTS / "node_modules")
    (place / "metadata.xml").write_bytes(service.odata("/$metadata").body)
    return place


@pytest.fixture(scope="session")
def run(place: Path) -> Run:
    """Run a program of a package, or with `node` a file, in that directory or one below it; what it printed."""

    def run(program: str, *arguments: str, inside: str = ".") -> str:
        command = ["node"] if program == "node" else [str(CLIENTS / "node_modules" / ".bin" / program)]
        done = subprocess.run([*command, *arguments], cwd=place / inside, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
