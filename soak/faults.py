"""What goes wrong meanwhile: killed processes and sessions, a killed database, stopped processes; and maintenance beside it."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import psycopg

from soak.ledger import Ledger
from soak.world import World

HANG = 9.0  # seconds; the service replaces a process that gives no sign of life for 8
TERMINATE = """select pg_terminate_backend(pid) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit %s"""
BACKENDS = "select pid from pg_stat_activity where backend_type = 'client backend' and state = 'active' and pid <> pg_backend_pid()"


@dataclass
class Faults:
    world: World
    ledger: Ledger
    rng: random.Random
    quiet: float  # seconds between two faults, at least

    def run(self) -> None:
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill_http, 4), (self.kill_worker, 4), (self.kill_service, 2), (self.terminate_sessions, 5), (self.kill_backend, 1),
            (self.kill_database, 1), (self.stop_http, 2), (self.hang_http, 1), (self.stop_backend, 2), (self.stop_worker, 2),
        ]  # fmt: skip
        # each kind once in random order, then at random
        first = [kind for kind, _ in kinds]
        self.rng.shuffle(first)
        while not self.ledger.stop.wait(self.quiet * self.rng.uniform(1, 2)):
            kind = first.pop() if first else self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            with contextlib.suppress(psutil.Error, psycopg.OperationalError, IndexError):
                kind()
                self.ledger.fault(kind.__name__)

    def kill_http(self) -> None:
        self.rng.choice(self.world.children("bds http")).kill()

    def kill_worker(self) -> None:
        self.rng.choice(self.world.children("bds webhooks")).kill()

    def kill_service(self) -> None:
        """All of it at once, then a new one."""
        parent = self.world.started[-1]
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.world.start_service()
        self.world.wait_until_ready()

    def terminate_sessions(self) -> None:
        with self.world.connect() as connection:
            connection.execute(TERMINATE, (self.rng.randint(1, 8),))

    def kill_backend(self) -> None:
        """PostgreSQL then ends all sessions and recovers."""
        with self.world.connect() as connection:
            pids = [pid for (pid,) in connection.execute(BACKENDS)]
        psutil.Process(self.rng.choice(pids)).kill()

    def kill_database(self) -> None:
        self.world.postmaster.kill()
        self.world.start_database()
        self.world.wait_until_ready()

    def stop_http(self) -> None:
        self._stop(self.rng.choice(self.world.children("bds http")), self.rng.uniform(0.5, 4))

    def stop_worker(self) -> None:
        """For longer than its leases last."""
        self._stop(self.rng.choice(self.world.children("bds webhooks")), self.rng.uniform(2, 6))

    def hang_http(self) -> None:
        self._stop(self.rng.choice(self.world.children("bds http")), HANG)

    def stop_backend(self) -> None:
        with self.world.connect() as connection:
            pids = [pid for (pid,) in connection.execute(BACKENDS)]
        self._stop(psutil.Process(self.rng.choice(pids)), self.rng.uniform(0.2, 2))

    def _stop(self, process: psutil.Process, seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)
        try:
            self.ledger.stop.wait(seconds)
        finally:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)


def maintain(world: World, ledger: Ledger, rng: random.Random) -> None:
    """Housekeeping, as a scheduler of the database would call it."""
    while not ledger.stop.wait(rng.uniform(1, 4)):
        with contextlib.suppress(psycopg.OperationalError), world.connect() as connection:
            began = time.monotonic()
            rows = connection.execute(
                "select step, problem from bds.maintain(compare_age => '10 s') where problem is not null"
            ).fetchall()
            ledger.count("maintenance")
            ledger.figures["longest maintenance, ms"] = max(
                ledger.figures["longest maintenance, ms"], int(1000 * (time.monotonic() - began))
            )
            for step, problem in rows:
                ledger.count(f"maintenance put off: {step}")
                if "lock" not in problem and "deadlock" not in problem:
                    ledger.find(f"maintenance, {step}: {problem}")
