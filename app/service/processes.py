"""Several processes that serve one address: a parent that serves nothing itself starts them, watches them, and ends them.

Each HTTP process listens on the address with SO_REUSEPORT, and the kernel shares connections out among them; one more process
delivers webhooks.  A process that dies is started again, the more often it dies the later.  SIGTERM and SIGINT are passed on; the
parent ends when all have ended.  Should the parent be killed, its processes end by themselves, as by SIGTERM.
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
from dataclasses import dataclass, field
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
from app.service import scratch
from app.service.sockets import free_address
from app.tasks import Stopped, stoppable

log = logging.getLogger("bds.processes")

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0  # seconds before a process that died is started again
STEADY = 30.0  # seconds after which a process that dies is thought to have been well
GRACE = 45.0  # seconds that processes have to end: somewhat longer than they give what runs in them

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # names to prometheus_client where processes leave their measurements for each other

_spawn = multiprocessing.get_context("spawn")


@dataclass(eq=False)
class Child:
    """A place that a process fills: what it runs, and how it has fared."""

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    process: SpawnProcess | None = None
    ready: connection.Connection | None = None  # says something once it serves, and ends with its process
    is_ready: bool = False
    started: float = 0.0
    due: float = 0.0  # when it is to be started
    delay: float = FIRST_DELAY

    def start(self) -> int | None:
        """Start a process; returns its number.  It holds the other end of a pipe, through which it says that it serves."""
        mine, its = _spawn.Pipe()
        self.process = _spawn.Process(target=self.target, args=(its, *self.arguments), name=self.name, daemon=False)
        self.process.start()
        its.close()
        self.ready, self.is_ready, self.started = mine, False, time.monotonic()
        return self.process.pid

    def died(self, now: float) -> None:
        """Plan when to start it again."""
        self.delay = FIRST_DELAY if now - self.started > STEADY else min(self.delay * 2, LONGEST_DELAY)
        self.due = now + self.delay
        if self.ready is not None:
            self.ready.close()
        self.process = self.ready = None


@dataclass
class Parent:
    """Keeps its children running until it is told to stop."""

    children: list[Child]
    announce: Callable[[], None]
    _stop: socket.socket = field(init=False)
    _signalled: bool = False
    _announced: bool = False

    def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit code: 0, or 1 if a process could not start or did not end by itself."""
        with self._signals():
            try:
                for child in self.children:
                    child.start()
                began = True
                while began and not self._signalled:
                    self._wait()
                    began = self._restart()
            except BaseException:
                self._end()  # whatever went wrong: nothing goes on without its parent
                raise
            return self._end() if began else (self._end() or 1)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals wake the parent, and do nothing else."""
        self._stop, woken = socket.socketpair()
        woken.setblocking(False)
        before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        handlers = {each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(before)
            self._stop.close()
            woken.close()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True

    def _wait(self) -> None:
        """Until a process is ready or has died, one is due, or a signal has come."""
        now = time.monotonic()
        due = min((max(0.0, child.due - now) for child in self.children if child.process is None), default=None)
        pipes = [child.ready for child in self.children if child.ready is not None and not child.is_ready]
        sentinels = [child.process.sentinel for child in self.children if child.process is not None]
        connection.wait([self._stop, *pipes, *sentinels], due)
        for child in self.children:
            if child.ready is not None and not child.is_ready and child.ready.poll():
                try:
                    child.ready.recv()
                    child.is_ready = True
                except (EOFError, OSError):
                    pass  # it has died
        if not self._announced and all(child.is_ready for child in self.children):
            self._announced = True
            self.announce()

    def _restart(self) -> bool:
        """Start again what has died.  False if it could not even begin: it has said why."""
        now = time.monotonic()
        for child in self.children:
            if child.process is not None and child.process.exitcode is not None:
                how, pid, began = _ended(child.process.exitcode), child.process.pid, child.is_ready
                _forget(child.process)
                child.died(now)
                if self._signalled:
                    continue
                if not began and not self._announced:
                    log.error("%s (process %d) could not start: %s", child.name, pid, how)
                    return False
                log.error("%s (process %d) died: %s; it is started again in %.1f s", child.name, pid, how, child.delay)
            elif child.process is None and now >= child.due and not self._signalled:
                try:
                    log.warning("%s is started again as process %d", child.name, child.start())
                except OSError as error:  # the machine has no more processes, or memory
                    log.error("%s could not be started: %s", child.name, error)
                    child.died(now)
        return True

    def _end(self) -> int:
        """Tell all to end, and wait; who does not is killed."""
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
            if process.exitcode not in (0, -signal.SIGTERM):  # which was sent before it had begun
                log.error("%s (process %d): %s", process.name, process.pid, _ended(process.exitcode or 0))
                code = 1
        return code


def _ended(code: int) -> str:
    """What an exit code says."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _forget(process: SpawnProcess) -> None:
    """What a dead process has left behind of its measurements of this moment."""
    from prometheus_client import multiprocess

    if process.pid is not None:
        multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]


# The address ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def reserved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """Hold an address that processes are to share; gives it, with a port if 0 was asked for.  Raises OSError if it is taken.

    The socket that holds it does not listen, so it is given no connection.
    """
    family, address = free_address(host, port)  # with SO_REUSEPORT another service would not be noticed
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
        yield held.getsockname()[0], held.getsockname()[1]


# What the processes run -----------------------------------------------------------------------------------------------------------


def serve(config: Config, host: str, port: int, count: int, announce: Callable[[str, int], None], *, worker: bool = True) -> int:
    """Serve with `count` HTTP processes, and one that delivers webhooks unless told not to; returns the exit code.

    Raises OSError if the address is taken, psycopg.Error if the database cannot be reached, ValueError, MigrationError, and
    Stopped if it is told to end while it waits for the database.
    """
    with stoppable(), connections.connect(connections.resolve(config)):  # what is wrong is said once
        pass
    with reserved(host, port) as address, scratch.directory() as directory:
        os.environ[SHARED] = str(directory)
        try:
            children = [Child(f"http {number}", _http, (config, *address, number == 1)) for number in range(1, count + 1)]
            if worker:
                children.append(Child("webhooks", _webhooks, (config,)))
            return Parent(children, lambda: announce(*address)).run()
        finally:
            del os.environ[SHARED]


def _http(ready: connection.Connection, config: Config, host: str, port: int, keeps_house: bool) -> None:
    """One HTTP process; one of them keeps house for all."""
    from app.service import server

    with _told(config, "bds http"):
        server.serve(config, host, port, lambda *_: ready.send(True), worker=False, reuse_port=True, keeps_house=keeps_house)


def _webhooks(ready: connection.Connection, config: Config) -> None:
    """The process that delivers."""
    import uvloop

    from app.service import server

    with _told(config, "bds webhooks"):
        uvloop.run(server.work(config, lambda: ready.send(True), keeps_house=False))


@contextmanager
def _told(config: Config, name: str) -> Iterator[None]:
    """Let `ps -o comm` and `top` show what a process is, and say in a line why it cannot go on."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the parent says when to end
    logs.start(config)
    try:
        with scratch.held(Path(os.environ[SHARED])):
            yield
    except Stopped as stopped:
        log.warning("%s", stopped)
    except (psycopg.Error, PoolTimeout, MigrationError, ValueError, OSError) as error:
        log.error("%s", error)
        sys.exit(1)
