"""The service behind PgBouncer in transaction mode: it works, and no request sees rows of another company."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.config import Config
from app.database.database import Database
from app.database.pool.pooler import PoolerError, shares_processes
from tests.conftest import Operator
from tests.service.serving import Service, running, unused_port, wait_until

COMPANIES = ("acme", "beta", "corner", "delta", "echo")
PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed (Debian: apt-get install pgbouncer)"),
]


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@contextmanager
def pooled(url: str, mode: str, size: int = 3) -> Iterator[str]:
    """A PgBouncer before the database at `url`; yields the connection string through it.  size: its connections to the database."""
    where = conninfo_to_dict(url)
    directory = Path(tempfile.mkdtemp(prefix="bds-pooler-"))
    directory.chmod(0o777)
    port = unused_port()
    (directory / "pgbouncer.ini").write_text(f"""
[databases]
* = host={where["host"]} port={where.get("port") or 5432} user={where["user"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
server_login_retry = 1
max_client_conn = 500
admin_users = postgres
logfile = {directory}/log
""")
    user = (
        "embedded_postgres" if os.geteuid() == 0 else None
    )  # PgBouncer refuses to run as root; this user may read the server's socket
    process = subprocess.Popen(
        [str(PGBOUNCER), str(directory / "pgbouncer.ini")], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    through = make_conninfo(host="127.0.0.1", port=port, dbname=where["dbname"], user=where["user"])
    try:
        wait_until(lambda: _answers(through))
        yield through
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(directory, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def through(database_url: str) -> Iterator[str]:
    with pooled(database_url, "transaction") as url:
        yield url


@contextmanager
def serving(url: str, through: str, **settings: Any) -> Iterator[Service]:
    settings = {"pooler": "transaction", "listen_database_url": url} | settings
    with running(through, operator_url=url, **settings) as service:
        yield service


async def _open(config: Config) -> None:
    await (await Database.open(config)).close()


def opened(**settings: Any) -> None:
    import asyncio

    asyncio.run(_open(Config(**settings)))


def test_a_pooler_that_the_configuration_does_not_name_is_refused(through: str) -> None:
    with pytest.raises(PoolerError, match="BDS_DATABASE_URL leads to a pooler: expected BDS_POOLER=transaction"):
        opened(database_url=through)


def test_a_replica_behind_a_pooler_that_the_configuration_does_not_name_is_refused(database_url: str, through: str) -> None:
    with pytest.raises(PoolerError, match="BDS_READ_DATABASE_URL leads to a pooler"):
        opened(database_url=database_url, read_database_url=through)


def test_a_transaction_pooler_configured_as_a_session_pooler_is_refused(through: str) -> None:
    with pytest.raises(PoolerError, match="gives each transaction another connection: expected BDS_POOLER=transaction"):
        opened(database_url=through, pooler="session")


def test_listening_through_the_pooler_is_refused(through: str) -> None:
    with pytest.raises(ValueError, match="BDS_POOLER=transaction: expected BDS_DATABASE_URL, and BDS_LISTEN_DATABASE_URL"):
        opened(database_url=through, pooler="transaction")
    with pytest.raises(PoolerError, match="BDS_LISTEN_DATABASE_URL leads to a transaction pooler"):
        opened(database_url=through, pooler="transaction", listen_database_url=through)


def test_prepared_statements_that_the_pooler_loses_are_refused(database_url: str, through: str) -> None:
    version = subprocess.run([str(PGBOUNCER), "--version"], capture_output=True, text=True).stdout.split()[1]
    settings = {"database_url": through, "pooler": "transaction", "listen_database_url": database_url}
    if tuple(map(int, version.split(".")[:2])) < (1, 21):
        with pytest.raises(PoolerError, match="loses prepared statements: expected BDS_PREPARED_STATEMENTS=false"):
            opened(**settings, prepared_statements="true")
    opened(**settings, prepared_statements="false")


def test_a_session_pooler_serves_as_the_database_does(database_url: str) -> None:
    with pooled(database_url, "session", size=40) as url, running(url, operator_url=database_url, pooler="session") as service:
        assert service.ask("/c/demo/units").status == 200
        assert service.odata("/units").status == 200
        assert [service.odata("/units/$count").body for _ in range(4)] == [b"0"] * 4


def test_settings_of_a_session_reach_other_clients_of_a_transaction_pooler(through: str, database_url: str) -> None:
    """The reason for BDS_POOLER: two clients of a transaction pooler share a session and its settings."""
    with psycopg.connect(through, autocommit=True) as one, psycopg.connect(through, autocommit=True) as other:
        one.execute("select set_config('bds.company', 'acme', false)")
        assert other.execute("select current_setting('bds.company', true)").fetchone() == ("acme",)


def fill(operator: Operator) -> dict[str, str]:
    """Create companies whose rows hold the company's name; returns their keys."""
    keys = {}
    for company in COMPANIES:
        operator.company(company)
        operator.write(
            company,
            "insert into data.products (company_id, code, name) select %s, %s || g, %s from generate_series(1, 300) g",
            (company, company, company),
        )
        keys[company] = operator.key(company)
    return keys


PATHS = (
    "/api/odata/{company}/products?$top=5&$select=name",
    "/api/odata/{company}/products?$select=name",
    "/api/odata/{company}/products/$count",
    "/c/{company}/products?limit=5",
    "/c/{company}/changes?limit=5",
    "/c/{company}/hooks",
    "/api/{company}/products?format=csv&export=true",
    "/api/{company}/imports",
)


def test_concurrent_requests_see_only_rows_of_their_company(database_url: str, through: str) -> None:
    with serving(database_url, through, pool_size=8) as service:
        keys = fill(service.operator)
        failures: list[str] = []

        def ask(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(40):
                company = chance.choice(COMPANIES)
                path = chance.choice(PATHS).format(company=company)
                reply = service.ask(path, authorization="Basic " + _basic(keys[company]))
                others = [each for each in COMPANIES if each != company and each.encode() in reply.body]
                if reply.status != 200 or others or (path.endswith("$count") and reply.body != b"300"):
                    failures.append(f"{path}: {reply.status}, has {others}: {reply.body[:300]!r}")

        askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert not failures, failures[0]
    # no settings are left in a session of the pooler
    with psycopg.connect(through, autocommit=True) as one:
        row = one.execute(
            "select current_user, coalesce(current_setting('bds.company', true), ''), current_setting('role')"
        ).fetchone()
        assert row == ("postgres", "", "none")


def _basic(key: str) -> str:
    import base64

    return base64.b64encode(f"api:{key}".encode()).decode()


def test_imports_logins_and_hooks_work_through_the_pooler(database_url: str, through: str) -> None:
    from tests.auth.client import ask, bearer, make_user, sign_in

    with serving(database_url, through) as service:
        document = {"units": [{"code": "PCE", "name": "piece"}], "products": [{"code": "A", "name": "a", "unit": "code:PCE"}]}
        report = ask(service, "/api/demo/import", "POST", bearer(service.key), document)
        assert (report.status, report.json["state"]) == (200, "completed"), report.body
        make_user(service)
        signed_in = sign_in(service)
        assert ask(service, "/c/demo/products", headers=signed_in.cookies).json["data"][0]["code"] == "A"
        hook = ask(
            service,
            "/c/demo/hooks",
            "POST",
            signed_in.browser,
            {"entity": "units", "url": "https://192.0.2.1/", "action": "webhook"},
        )
        assert hook.status in (201, 400), hook.body  # addresses for documentation are not public
        service.operator.rows("select bds.revoke_key(id) from bds.api_keys")
        wait_until(lambda: service.ask("/c/demo/units").status == 401)


def test_the_service_returns_with_the_database_behind_the_pooler(database_url: str, through: str) -> None:
    with serving(database_url, through) as service:
        assert service.ask("/c/demo/units").status == 200
        service.operator.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        wait_until(lambda: service.ask("/readyz", authorization=None).status == 200 and service.ask("/c/demo/units").status == 200)


def test_a_session_pooler_is_distinguished_from_a_transaction_pooler(database_url: str, through: str) -> None:
    import asyncio

    with pooled(database_url, "session") as session:
        assert asyncio.run(shares_processes(through))
        assert not asyncio.run(shares_processes(session))
        assert not asyncio.run(shares_processes(database_url))
