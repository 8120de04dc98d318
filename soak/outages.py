"""What clients see of failovers, moves, migrations and restarts: 50 connections import and read while the event happens.

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
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from app.database import migrate
from soak import clusters
from soak.clusters import COMPANIES, OF_WEST, Cluster
from soak.load import Client, Seen, proxy
from tests.service.serving import unused_port, wait_until

CONNECTIONS = 50
BEFORE, AFTER = 3.0, 5.0  # seconds of load before and after the event
NOTICE = 2.0  # seconds after which whoever watches a server acts
BEHIND = 1.0  # seconds of the primary that a standby which is behind, or a recovery, does not have
REQUESTS = int(os.environ.get("SOAK_REQUESTS", "10000"))  # that are sent beside migrations


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


# Events: what happens to a cluster; clients work at its port meanwhile


async def fail_over(place: Cluster, _: Seen) -> None:
    place.kill("primary")
    await asyncio.sleep(NOTICE)
    await promoted(place)


async def fail_over_to_one_behind(place: Cluster, _: Seen) -> None:
    """The standby gets nothing in the primary's last moments."""
    receiver = psutil.Process(place.servers["standby"].query("select pid from pg_stat_wal_receiver"))
    receiver.send_signal(signal.SIGSTOP)
    await asyncio.sleep(BEHIND)
    place.kill("primary")
    receiver.send_signal(signal.SIGCONT)
    await asyncio.sleep(NOTICE)
    await promoted(place)


async def promoted(place: Cluster) -> None:
    await asyncio.to_thread(place.servers["standby"].query, "select pg_promote()")


async def switch_over(place: Cluster, _: Seen) -> None:
    await asyncio.to_thread(place.servers["primary"].stop)
    await promoted(place)


async def lose_the_standby(place: Cluster, _: Seen) -> None:
    await away(place, "standby")


async def lose_a_place(place: Cluster, _: Seen) -> None:
    await away(place, "west")


async def away(place: Cluster, name: str) -> None:
    """A server stops at once, and is started again."""
    await asyncio.to_thread(place.servers[name].stop, "immediate")
    await asyncio.sleep(NOTICE)
    await asyncio.to_thread(place.servers[name].start)


async def recover(place: Cluster, _: Seen) -> None:
    """The server goes back to a point in time, as after a mistake: what was written since is not wanted."""
    primary = place.servers["primary"]
    when = primary.query("select clock_timestamp()::text")
    await asyncio.sleep(BEHIND)
    primary.query("select pg_switch_wal()")
    await asyncio.to_thread(primary.stop)
    await asyncio.to_thread(put_back, primary.directory, place.folder, when)
    await asyncio.to_thread(primary.start)
    await asyncio.to_thread(wait_until, lambda: primary.query("select not pg_is_in_recovery()"))


def put_back(directory: Path, folder: Path, when: str) -> None:
    """Replace a server's files by the base backup, which is to recover to a time from the archive."""
    shutil.rmtree(directory)
    (folder / "base").rename(directory)
    for lock in directory.glob(".s.PGSQL.*.lock"):  # of the server that was copied, whose socket is there
        lock.unlink()
    with (directory / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"restore_command = 'cp {folder}/archive/%f %p'\nrecovery_target_time = '{when}'\n")
        settings.write("recovery_target_action = promote\narchive_mode = off\n")
    (directory / "recovery.signal").touch()
    shutil.chown(directory / "recovery.signal", (directory / "PG_VERSION").owner())


async def move(place: Cluster, _: Seen) -> None:
    """Companies move to another place, and back."""
    for target in ("home", "west"):
        for company in OF_WEST:
            await asyncio.to_thread(place.command, "company", "move", company, "--to", target)


async def drain(place: Cluster, _: Seen) -> None:
    await asyncio.to_thread(place.command, "place", "drain", "west", "--to", "home")


async def migrate_all(place: Cluster, seen: Seen) -> None:
    """Apply every unit of sql/ again, as after an upgrade that changes all functions, until enough requests were sent."""
    while True:
        await asyncio.to_thread(apply_again, place.servers["primary"].url)
        if seen.answers.total() >= REQUESTS:
            return
        await asyncio.sleep(AFTER)


def apply_again(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update public.bds_migrations set checksum = '' where name not like 'migrations/%'")
    migrate.migrate(url)


async def restart_in_turn(place: Cluster, seen: Seen) -> None:
    for port in [*place.services] * 2:
        await asyncio.to_thread(place.end, port)
        await asyncio.to_thread(place.serve, port)
        await asyncio.sleep(1)


@dataclass(frozen=True)
class Event:
    """made: what it happens to; services: how many; loses: whether it may; answers: that clients may get."""

    happens: Callable[[Cluster, Seen], Awaitable[None]]
    made: clusters.Make = clusters.asynchronous
    services: int = 1
    loses: bool = False
    answers: Callable[[str], bool] = "200".__eq__


TOLD = ("200", "503 busy").__contains__  # and to try again, by Retry-After
EVENTS = {
    "synchronous-failover": Event(fail_over, clusters.synchronous, answers=TOLD),
    "asynchronous-failover": Event(fail_over, loses=True, answers=TOLD),
    "failover-to-one-behind": Event(fail_over_to_one_behind, loses=True, answers=TOLD),
    "switchover": Event(switch_over, answers=TOLD),
    "standby-lost": Event(lose_the_standby, clusters.synchronous),
    "replica-lost": Event(lose_the_standby, clusters.replicated),
    "point-in-time-recovery": Event(recover, clusters.archived, loses=True, answers=TOLD),
    "place-lost": Event(lose_a_place, clusters.divided, answers=TOLD),
    "move": Event(move, clusters.divided, answers=TOLD),
    "drain": Event(drain, clusters.divided, answers=TOLD),
    "migration": Event(migrate_all, answers=TOLD),
    "rolling-restart": Event(restart_in_turn, services=2),
}


async def observe(name: str, connections: int = CONNECTIONS) -> bool:
    """Let an event happen under load, and print what was seen; whether it is as it must be."""
    event = EVENTS[name]
    with event.made() as place:
        ports = [unused_port() for _ in range(event.services)]
        for port in ports:
            place.serve(port)
        async with proxy(ports) as port, loaded(place, port, connections) as seen:
            await asyncio.sleep(BEFORE)
            began = time.monotonic()
            await event.happens(place, seen)
            await asyncio.sleep(AFTER)
        lost, twice = place.counts(seen)
        is_right = not ((lost and not event.loses) or twice or not all(map(event.answers, seen.answers)))
        if not is_right:
            print((place.folder / "service.log").read_text(), file=sys.stderr)
        seconds = seen.pause(began)
        total = sum(map(len, seen.acknowledged.values()))
    print(f"| {name} | {total} imports; {seen.others()} | {seconds:.1f} | {lost} | {twice} |", flush=True)
    return is_right


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
