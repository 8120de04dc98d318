"""What clients see of failovers, migrations and restarts: 50 connections import and read while the event happens.

    python -m soak.outages [EVENT ...]

prints a line for each event.  `lost` are imports that got a 200 and are in no table afterwards, `twice` are changes that are more
than one for an import; `seconds` is the longest time without an acknowledgement.  Exits with 1 if something was lost that the event
must not lose, or if an answer was another one than a 200, or a 503 where that may be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from app.auth.keys import hash_key, make_key
from app.database import embedded, migrate
from soak.load import Client, Seen, proxy
from tests.service.serving import unused_port, wait_until
from tests.service.standbys import Standby, make_standby

COMPANIES = tuple(f"c{n}" for n in range(5))
CONNECTIONS = 50
BEFORE, AFTER = 3.0, 5.0  # seconds of load before and after the event
NOTICE = 2.0  # seconds after which whoever watches the primary promotes the standby
BEHIND = 1.0  # seconds of the primary that a standby which is behind does not have
REQUESTS = int(os.environ.get("SOAK_REQUESTS", "10000"))  # that are sent beside migrations


@dataclass
class Cluster:
    """A primary with its standby, and processes of the service that use whichever takes writes."""

    folder: Path
    primary: Standby
    standby: Standby
    key: str
    services: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return make_conninfo(
            self.primary.url, host=f"{self.primary.sockets},{self.standby.sockets}", target_session_attrs="read-write"
        )

    def serve(self, port: int) -> None:
        """Start a service at a port, and wait until it is ready."""
        with (self.folder / "service.log").open("ab") as log:
            words = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--processes", "1"]
            environment = os.environ | {"BDS_DATABASE_URL": self.url, "BDS_LOG_LEVEL": "warning"}
            self.services[port] = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        with (self.folder / "pids").open("a") as pids:
            pids.write(f"{self.services[port].pid}\n")
        wait_until(lambda: is_ready(port))

    def end(self, port: int) -> int:
        """End the service at a port as an operator does; returns its exit code."""
        self.services[port].terminate()
        return self.services[port].wait(60)

    def kill_primary(self) -> None:
        """Kill all processes of the primary at once."""
        server = psutil.Process(int((self.primary.directory / "postmaster.pid").read_text().split()[0]))
        for process in [server, *server.children()]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def promote(self) -> None:
        self.standby.query("select pg_promote()")


def is_ready(port: int) -> bool:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def cluster(*, synchronous: bool) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="bds-outage-"))
    (folder / "standby").mkdir()
    each: Cluster | None = None
    try:
        url = embedded.start(folder)
        migrate.migrate(url)
        key = make_key()
        with psycopg.connect(url, autocommit=True) as connection:
            for company in COMPANIES:
                connection.execute("select bds.create_company(%s)", (company,))
            connection.execute("select bds.create_key(%s, 'load', %s, null, '{read,import}')", (hash_key(key), list(COMPANIES)))
            standby = make_standby(url, folder / "standby", "standby")
            if synchronous:
                connection.execute("alter system set synchronous_standby_names = 'standby'")
                connection.execute("select pg_reload_conf()")
        each = Cluster(folder, Standby(folder / "postgres", url), standby, key)
        yield each
    finally:
        for process in each.services.values() if each else ():
            process.kill()
            process.wait()
        for directory in (folder / "standby" / "data", folder / "postgres"):
            if (directory / "postmaster.pid").exists():
                with contextlib.suppress(subprocess.CalledProcessError):
                    Standby(directory, "").stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def loaded(place: Cluster, port: int, connections: int) -> AsyncIterator[Seen]:
    """Clients work at a port during the block; yields what they see."""
    seen, stop = Seen(), asyncio.Event()
    clients = [Client(f"k{n}", COMPANIES[n % len(COMPANIES)], port, place.key, seen) for n in range(connections)]
    tasks = [asyncio.create_task(client.run(stop)) for client in clients]
    try:
        yield seen
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def counted(url: str, seen: Seen) -> tuple[int, int]:
    """How many acknowledged imports are lost, and how many were done twice."""
    lost = twice = 0
    with psycopg.connect(url, autocommit=True) as connection:
        for company, codes in seen.acknowledged.items():
            rows = connection.execute("select code from data.units where company_id = %s", (company,)).fetchall()
            lost += len(codes - {code for (code,) in rows})
            (records,) = connection.execute(
                "select count(*) from bds.change_log where company_id = %s and entity = 'units'", (company,)
            ).fetchone() or (0,)
            twice += records - len(rows)
    return lost, twice


# Events: what happens to a cluster; clients work at its port meanwhile


async def fail_over(place: Cluster, _: Seen) -> None:
    place.kill_primary()
    await asyncio.sleep(NOTICE)
    await promoted(place)


async def fail_over_to_one_behind(place: Cluster, _: Seen) -> None:
    """The standby gets nothing in the primary's last moments."""
    receiver = psutil.Process(place.standby.query("select pid from pg_stat_wal_receiver"))
    receiver.send_signal(signal.SIGSTOP)
    await asyncio.sleep(BEHIND)
    place.kill_primary()
    receiver.send_signal(signal.SIGCONT)
    await asyncio.sleep(NOTICE)
    await promoted(place)


async def promoted(place: Cluster) -> None:
    await asyncio.to_thread(place.promote)
    await asyncio.sleep(AFTER)


async def switch_over(place: Cluster, _: Seen) -> None:
    await asyncio.to_thread(place.primary.stop)
    await promoted(place)


async def lose_the_standby(place: Cluster, _: Seen) -> None:
    await asyncio.to_thread(place.standby.stop, "immediate")
    await asyncio.sleep(NOTICE)
    await asyncio.to_thread(place.standby.start)
    await asyncio.sleep(AFTER)


async def migrate_all(place: Cluster, seen: Seen) -> None:
    """Apply every unit of sql/ again, as after an upgrade that changes all functions, until enough requests were sent."""
    while True:
        await asyncio.to_thread(apply_again, place.primary.url)
        if seen.answers.total() >= REQUESTS:
            return
        await asyncio.sleep(AFTER)


def apply_again(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update public.bds_migrations set checksum = '' where name not like 'migrations/%'")
    migrate.migrate(url)


async def restart_in_turn(place: Cluster, seen: Seen) -> None:
    for port in [*place.services] * 2:
        code = await asyncio.to_thread(place.end, port)
        place.notes.append(f"exit {code}")
        await asyncio.to_thread(place.serve, port)
        await asyncio.sleep(1)


@dataclass(frozen=True)
class Event:
    """happens: what; services: how many; synchronous: whether the standby is; loses: whether it may; answers: that clients may get."""

    happens: Callable[[Cluster, Seen], Awaitable[None]]
    services: int = 1
    synchronous: bool = False
    loses: bool = False
    answers: Callable[[str], bool] = lambda _: True


TOLD = ("200", "503 busy").__contains__  # and to try again, by Retry-After
EVENTS = {
    "synchronous-failover": Event(fail_over, synchronous=True, answers=TOLD),
    "asynchronous-failover": Event(fail_over, loses=True, answers=TOLD),
    "failover-to-one-behind": Event(fail_over_to_one_behind, loses=True, answers=TOLD),
    "switchover": Event(switch_over, answers=TOLD),
    "standby-lost": Event(lose_the_standby, synchronous=True, answers="200".__eq__),
    "migration": Event(migrate_all, answers=TOLD),
    "rolling-restart": Event(restart_in_turn, services=2, answers="200".__eq__),
}


async def observe(name: str, connections: int = CONNECTIONS) -> bool:
    """Let an event happen under load, and print what was seen; whether it is as it must be."""
    event = EVENTS[name]
    with cluster(synchronous=event.synchronous) as place:
        ports = [unused_port() for _ in range(event.services)]
        for port in ports:
            place.serve(port)
        async with proxy(ports) as port, loaded(place, port, connections) as seen:
            await asyncio.sleep(BEFORE)
            began = time.monotonic()
            await event.happens(place, seen)
        lost, twice = counted(place.url, seen)
        seconds = seen.pause(began)
        total = sum(map(len, seen.acknowledged.values()))
    print(f"| {name} | {total} imports; {seen.others()} | {seconds:.1f} | {lost} | {twice} |", flush=True)
    return not ((lost and not event.loses) or twice or not all(map(event.answers, seen.answers)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m soak.outages", description="Print what clients see of events.")
    parser.add_argument("events", nargs="*", choices=[*EVENTS, []], metavar="EVENT", help=f"of {', '.join(EVENTS)}; default: all")
    names = parser.parse_args().events or list(EVENTS)
    print("| event | clients saw | seconds | lost | twice |\n|---|---|---|---|---|")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    results = [asyncio.run(observe(name)) for name in names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
