"""A parent process that starts, watches, replaces and ends its children.

The parent forks them, so that a replacement finds everything imported.  It runs one thread and no event loop, and has no open
connections to the database, so a fork copies nothing that is in use.

Each child has a socket to its parent, its lifeline (app/service/lifeline.py), and gives a sign of life every second.  The parent
counts its own ticks without one, not seconds: after a pause of the whole machine no child looks dead.  A child that was stopped or
whose event loop hangs is killed and replaced.  A child that is told to end is replaced at once, while its work ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from typing import Any

from app.service.lifeline import ENDING, READY, Lifeline

log = logging.getLogger("bds.processes")

TICK = 1.0  # seconds between two counts of missing signs of life
HANG = 8  # ticks without a sign of life after which a process is killed
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0  # seconds before a process that died young is replaced
STEADY = 30.0  # seconds of life after which a process that dies is replaced without delay
GRACE = 45.0  # seconds that processes have to end; longer than what they give their own requests
SIGNALS = (signal.SIGTERM, signal.SIGINT)

_fork = multiprocessing.get_context("fork")


@dataclass(eq=False)
class Slot:
    """A place for one process: what it runs, and when to start the next one.

    listener: the socket on which its processes listen.  The parent keeps it open, so that connections that wait to be accepted
    outlive a process.
    """

    name: str
    target: Callable[..., None]  # takes the lifeline, the listener if there is one, and `arguments`
    arguments: tuple[Any, ...]
    listener: socket.socket | None = None
    current: Process | None = None
    due: float = 0.0  # when to start a process, on the monotonic clock
    delay: float = 0.0

    def schedule(self, now: float, lived: float) -> None:
        """Schedule the next start after a process that lived so many seconds."""
        self.delay = 0.0 if lived > STEADY else min(max(self.delay * 2, FIRST_DELAY), LONGEST_DELAY)
        self.due = now + self.delay


@dataclass(eq=False)
class Process:
    """A child process."""

    slot: Slot
    process: ForkProcess
    lifeline: socket.socket
    started: float
    is_ready: bool = False
    is_killed: bool = False
    missed: int = 0  # ticks since the last sign of life
    ending: float | None = None  # when it said that it ends

    def __str__(self) -> str:
        return f"{self.slot.name} (process {self.process.pid})"

    def hear(self, now: float) -> None:
        """Take what the process has sent."""
        with suppress(OSError):  # nothing to read, or closed
            said = self.lifeline.recv(4096)
            if not said:
                self.lifeline.close()
                return
            self.missed = 0
            self.is_ready = self.is_ready or READY in said
            if ENDING in said and self.ending is None:
                self.ending = now


@dataclass
class Parent:
    """Keeps a process running in each slot until SIGTERM or SIGINT.

    announce: called once, when all processes are ready.  on_end: called with the pid of each process that has ended.
    """

    slots: list[Slot]
    announce: Callable[[], None]
    on_end: Callable[[int], None] = lambda _: None
    _processes: list[Process] = field(default_factory=list)
    _wakeup: tuple[socket.socket, socket.socket] = field(init=False)
    _signalled: bool = False
    _announced: bool = False
    _failed: bool = False
    _tick: float = 0.0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT.  Returns the exit code: 0, or 1 if a process could not start or had to be killed."""
        with self._signals():
            try:
                while not (self._signalled or self._failed):
                    self._start_due()
                    self._watch()
            finally:
                self._end_all()  # no child may outlive its parent
        return int(self._failed)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals wake the parent from its wait, and nothing else."""
        self._wakeup = ours, written = socket.socketpair()
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        handlers = {each: signal.signal(each, self._on_signal) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(before)
            ours.close()
            written.close()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True

    # Starting ---------------------------------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        """Start a process in each slot that is due for one."""
        for slot in self.slots:
            now = time.monotonic()
            if slot.current is None and now >= slot.due:
                try:
                    self._start(slot)
                except OSError as error:  # no more processes, or no memory
                    log.error("%s could not be started: %s", slot.name, error)
                    slot.schedule(now, 0.0)

    def _start(self, slot: Slot) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = _fork.Process(target=self._run_child, args=(slot, ours, theirs), name=slot.name, daemon=False)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child no longer has the parent's handlers
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()
        slot.current = Process(slot, process, ours, time.monotonic())
        self._processes.append(slot.current)
        if self._announced:
            log.info("%s is process %d now", slot.name, process.pid)

    def _run_child(self, slot: Slot, ours: socket.socket, theirs: socket.socket) -> None:
        """What a child runs first: let go of what belongs to the parent and to other children."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent ends the children
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for end in (ours, *self._wakeup, *(each.lifeline for each in self._processes)):
            end.close()
        for other in self.slots:
            if other is not slot and other.listener is not None:
                other.listener.close()
        slot.target(Lifeline(theirs), *([] if slot.listener is None else [slot.listener]), *slot.arguments)

    # Watching ---------------------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Wait for a sign of life, a death, a signal or the next tick, and act on it."""
        now = time.monotonic()
        due = min([self._tick, *(slot.due for slot in self.slots if slot.current is None and not self._signalled)])
        lifelines = [each.lifeline for each in self._processes if each.lifeline.fileno() >= 0]
        connection.wait([self._wakeup[0], *lifelines, *(each.process.sentinel for each in self._processes)], max(0.0, due - now))
        now = time.monotonic()
        for each in self._processes:
            each.hear(now)
        if now >= self._tick:
            self._tick = now + TICK
            for each in self._processes:
                each.missed += 1
        if not self._announced and all(slot.current is not None and slot.current.is_ready for slot in self.slots):
            self._announced = True
            self.announce()
        for each in list(self._processes):
            self._check(each, now)

    def _check(self, each: Process, now: float) -> None:
        """Act on one process: it has died, hangs, ends, or none of them."""
        code = each.process.exitcode
        if code is not None:
            each.hear(now)  # its last words
        if each.ending is not None and each.slot.current is each and not self._signalled:
            log.info("%s ends; it is replaced at once", each)
            each.slot.current, each.slot.due = None, now
        if code is not None:
            self._processes.remove(each)
            self._note_end(each, code, now)
        elif each.ending is None and each.missed > HANG:
            self._kill(each, f"has given no sign of life for {HANG * TICK:.0f} s")
        elif each.ending is not None and now - each.ending > GRACE:
            self._kill(each, f"did not end in {GRACE:.0f} s")

    def _kill(self, each: Process, why: str) -> None:
        if not each.is_killed:
            log.error("%s %s and is killed", each, why)
            each.is_killed = True
            each.process.kill()

    def _note_end(self, each: Process, code: int, now: float) -> None:
        """Log the end of a process and schedule the next start."""
        each.lifeline.close()
        self.on_end(each.process.pid or 0)
        slot, on_purpose = each.slot, code in (0, -signal.SIGTERM)  # a SIGTERM that came before its handler
        if slot.current is each:
            slot.current = None
            slot.schedule(now, now - each.started)
            if not (each.is_ready or self._announced or self._signalled):
                log.error("%s could not start: %s", each, _describe_exit(code))
                self._failed = True
                return
        if on_purpose:
            log.info("%s has ended", each)
        elif self._signalled:
            log.error("%s: %s", each, _describe_exit(code))
            self._failed = True
        else:
            log.error("%s died: %s; it is replaced in %.1f s", each, _describe_exit(code), slot.delay)

    def _end_all(self) -> None:
        """Let all processes end; those that take longer than GRACE, or hang, are killed."""
        self._signalled = True
        for slot in self.slots:
            if slot.listener is not None:
                slot.listener.close()  # so that new connections are refused as soon as its process stops to listen
        deadline = time.monotonic() + GRACE
        for each in self._processes:
            each.process.terminate()
        while self._processes and time.monotonic() < deadline:
            self._watch()
        for each in self._processes:
            self._kill(each, f"did not end in {GRACE:.0f} s")
            each.process.join()
            self._failed = True


def _describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
