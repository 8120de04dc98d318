"""Several processes that serve one address: a parent, which serves nothing itself, starts, watches and ends them.

Each HTTP process listens on the address with SO_REUSEPORT, and the kernel distributes connections among them; one more process
delivers webhooks.  A process that dies is started again, after a delay that grows with each death.  The parent passes on SIGTERM
and SIGINT, and ends when all children have ended.  If the parent is killed, its children end as by SIGTERM.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from app import logs
from app.config import Config
from app.database import connections
from app.database.migrate import MigrationError
from app.service import metrics_directory
from app.service.sockets import resolve_address
from app.tasks import Stopped, stoppable

log = logging.getLogger("bds.processes")

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0  # seconds before a dead process is started again
STEADY = 30.0  # seconds of life after which a death resets the delay
GRACE = 45.0  # seconds that processes have to end; longer than what they give their own requests

METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # the variable by which prometheus_client finds the shared directory

_spawn = multiprocessing.get_context("spawn")


@dataclass(eq=False)
class Child:
    """A slot for a process: what it runs, its current process, and when to start the next one."""

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    process: SpawnProcess | None = None
    ready: connection.Connection | None = None  # a pipe: receives a message when the process serves, closes when it ends
    is_ready: bool = False
    started: float = 0.0
    due: float = 0.0  # when to start it, on the monotonic clock
    delay: float = FIRST_DELAY

    def start(self) -> int | None:
        """Start a process; returns its pid.  The process reports through a pipe when it serves."""
        ours, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=self.target, args=(theirs, *self.arguments), name=self.name, daemon=False)
        self.process.start()
        theirs.close()
        self.ready, self.is_ready, self.started = ours, False, time.monotonic()
        return self.process.pid

    def schedule_restart(self, now: float) -> None:
        """Drop the dead process and schedule the next start."""
        self.delay = FIRST_DELAY if now - self.started > STEADY else min(self.delay * 2, LONGEST_DELAY)
        self.due = now + self.delay
        if self.ready is not None:
            self.ready.close()
        self.process = self.ready = None


@dataclass
class Parent:
    """Keeps its children running until SIGTERM or SIGINT."""

    children: list[Child]
    announce: Callable[[], None]
    _wakeup: socket.socket = field(init=False)
    _signalled: bool = False
    _announced: bool = False

    def run(self) -> int:
        """Run until SIGTERM or SIGINT.  Returns the exit code: 0, or 1 if a process could not start or had to be killed."""
        with self._signals():
            try:
                for child in self.children:
                    child.start()
                began = True
                while began and not self._signalled:
                    self._wait()
                    began = self._restart_dead()
            except BaseException:
                self._end_all()  # no child may outlive its parent
                raise
            return self._end_all() if began else (self._end_all() or 1)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals wake the parent from its wait, and nothing else."""
        self._wakeup, written = socket.socketpair()
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        handlers = {each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(before)
            self._wakeup.close()
            written.close()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True

    def _wait(self) -> None:
        """Wait until a process is ready, has died or is due to start, or a signal arrives."""
        now = time.monotonic()
        due = min((max(0.0, child.due - now) for child in self.children if child.process is None), default=None)
        pipes = [child.ready for child in self.children if child.ready is not None and not child.is_ready]
        sentinels = [child.process.sentinel for child in self.children if child.process is not None]
        connection.wait([self._wakeup, *pipes, *sentinels], due)
        for child in self.children:
            if child.ready is not None and not child.is_ready and child.ready.poll():
                try:
                    child.ready.recv()
                    child.is_ready = True
                except (EOFError, OSError):
                    pass  # the process has died
        if not self._announced and all(child.is_ready for child in self.children):
            self._announced = True
            self.announce()

    def _restart_dead(self) -> bool:
        """Restart dead children.  Returns False if one died before the first start was complete; it has logged the reason."""
        now = time.monotonic()
        for child in self.children:
            if child.process is not None and child.process.exitcode is not None:
                how, pid, began = _describe_exit(child.process.exitcode), child.process.pid, child.is_ready
                _drop_gauges(child.process)
                child.schedule_restart(now)
                if self._signalled:
                    continue
                if not began and not self._announced:
                    log.error("%s (process %d) could not start: %s", child.name, pid, how)
                    return False
                log.error("%s (process %d) died: %s; it is started again in %.1f s", child.name, pid, how, child.delay)
            elif child.process is None and now >= child.due and not self._signalled:
                try:
                    log.warning("%s is started again as process %d", child.name, child.start())
                except OSError as error:  # no more processes, or no memory
                    log.error("%s could not be started: %s", child.name, error)
                    child.schedule_restart(now)
        return True

    def _end_all(self) -> int:
        """Terminate all children, wait GRACE seconds, kill the rest.  Returns the exit code."""
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.terminate()
        deadline, code = time.monotonic() + GRACE, 0
        for process in running:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                log.error("%s (process %d) did not end in %.0f s and is killed", process.name, process.pid, GRACE)
                process.kill()
                process.join()
            if process.exitcode not in (0, -signal.SIGTERM):  # SIGTERM arrived before its handler was installed
                log.error("%s (process %d): %s", process.name, process.pid, _describe_exit(process.exitcode or 0))
                code = 1
        return code


def _describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _drop_gauges(process: SpawnProcess) -> None:
    """Remove the gauges of a dead process from the shared metrics; its counters stay."""
    from prometheus_client import multiprocess

    if process.pid is not None:
        multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]


# The address ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def reserved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Reserve an address for processes to share; yields (host, port), with a port if 0 was asked for.  Raises OSError if in use.

    The socket that reserves it does not listen, so it receives no connections.
    """
    family, address = resolve_address(host, port)  # checked without SO_REUSEPORT, which would not notice another service
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
        yield held.getsockname()[0], held.getsockname()[1]


# What the children run ------------------------------------------------------------------------------------------------------------


def serve(config: Config, host: str, port: int, count: int, announce: Callable[[str, int], None], *, worker: bool = True) -> int:
    """Serve with `count` HTTP processes, and with one that delivers webhooks if `worker`; returns the exit code.

    Raises OSError if the address is taken, psycopg.Error if the database cannot be reached, ValueError, MigrationError, and
    Stopped if a signal arrives while it waits for the database.
    """
    with stoppable(), connections.connect(connections.resolve(config)):  # a configuration error is reported once, by the parent
        pass
    with reserved(host, port) as address, metrics_directory.new_directory() as directory:
        os.environ[METRICS_VARIABLE] = str(directory)
        try:
            each = replace(config, spool_max=config.spool_max // count)
            children = [Child(f"http {number}", _http, (each, *address, number == 1)) for number in range(1, count + 1)]
            if worker:
                children.append(Child("webhooks", _webhooks, (config,)))
            return Parent(children, lambda: announce(*address)).run()
        finally:
            del os.environ[METRICS_VARIABLE]


def _http(ready: connection.Connection, config: Config, host: str, port: int, maintenance: bool) -> None:
    """One HTTP process; the first one runs maintenance for all."""
    from app.service import server

    with _child_process(config, "bds http"):
        server.serve(config, host, port, lambda *_: ready.send(True), worker=False, reuse_port=True, maintenance=maintenance)


def _webhooks(ready: connection.Connection, config: Config) -> None:
    """The process that delivers webhooks."""
    import uvloop

    from app.service import server

    with _child_process(config, "bds webhooks"):
        uvloop.run(server.run_worker(config, lambda: ready.send(True), maintenance=False))


@contextmanager
def _child_process(config: Config, name: str) -> Iterator[None]:
    """Name the process for `ps -o comm` and `top`, ignore SIGINT, and log in one line an error that ends it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent ends the children
    logs.start(config)
    try:
        with metrics_directory.locked(Path(os.environ[METRICS_VARIABLE])):
            yield
    except Stopped as stopped:
        log.warning("%s", stopped)
    except (psycopg.Error, PoolTimeout, MigrationError, ValueError, OSError) as error:
        log.error("%s", error)
        sys.exit(1)
