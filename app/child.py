"""A child interpreter with limits: what may take long, or much memory, runs in a process of its own that can be killed.

The parent starts `python -I -m module` (a fresh interpreter, because a fork of a process with threads would copy their locks) with
an environment that holds no setting.  The module's main begins with `begin`, which sets the limits and ties the process to its
parent, and reports a failure with `fail`.

    command(module), ENVIRONMENT      for asyncio, as app/export/process.py starts children
    Child(module, file)               for a thread: what the module writes, block by block, until kill()
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NoReturn

from app.errors import ServiceError

ENVIRONMENT = {"LANG": "C.UTF-8"}
READ = 256 << 10  # bytes that a parent reads at most at once
POLL = 0.1  # seconds after which a parent that waits for a child looks at other things
PR_SET_PDEATHSIG = 1  # of prctl(2)

# In the parent --------------------------------------------------------------------------------------------------------------------


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module in a child of this process."""
    return (sys.executable, "-I", "-m", module, str(os.getpid()), *arguments)


class Child:
    """A child that reads a file as its standard input.  One thread reads its blocks; any thread may kill it."""

    def __init__(self, module: str, file: IO[bytes], *arguments: str) -> None:
        file.seek(0)
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 a pipe that nobody reads meanwhile would stop the child
        self._process = subprocess.Popen(
            command(module, *arguments), stdin=file, stdout=subprocess.PIPE, stderr=self._report, env=ENVIRONMENT
        )

    def blocks(self) -> Iterator[bytes]:
        """Yield what the child writes, b"" whenever nothing came for POLL seconds.  Raises the child's failure at its end."""
        process = self._process
        assert process.stdout is not None
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        while True:
            if not waiting.poll(POLL * 1000):
                yield b""
                continue
            data = os.read(process.stdout.fileno(), READ)
            if not data:
                break
            yield data
        if code := process.wait():
            self._report.seek(0)
            raise failure(code, self._report.read())

    def kill(self) -> None:
        """End the child, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """End the child, and release what belongs to it."""
        self.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._report.close()


class CpuLimitExceeded(Exception):
    """The system ended a child because it used too much CPU time."""


class ChildEnded(Exception):
    """A child ended without a report: it was killed, its memory did not suffice for one, or it could not start."""

    def __init__(self, code: int, report: bytes) -> None:
        super().__init__(f"the process ended with {code}: {report.decode(errors='replace')[-2000:]}")
        self.was_killed = code < 0 or b"MemoryError" in report


def failure(code: int, report: bytes) -> Exception:
    """Return the exception for a child that ended with an exit code and wrote `report` to standard error."""
    if code == -signal.SIGXCPU:
        return CpuLimitExceeded()
    with contextlib.suppress(ValueError):
        error = json.loads(report.splitlines()[-1] if report else b"")
        if isinstance(error, dict) and "message" in error:
            return ServiceError(error.pop("code", "malformed_request"), **error)
    return ChildEnded(code, report)


# In the child ---------------------------------------------------------------------------------------------------------------------


def begin(*, memory: int | None = None, seconds: int | None = None) -> list[str]:
    """Set the limits of this process (memory: bytes of address space, seconds: of CPU time); returns the module's arguments.

    The process is killed with the thread that has started it.  Interrupts of a terminal are left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent, *arguments = sys.argv[1:]
    with contextlib.suppress(AttributeError):  # Linux has prctl; elsewhere the end of its pipe ends the process
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before
        sys.exit(1)
    limit(memory=memory, seconds=seconds)
    return arguments


def limit(*, memory: int | None = None, seconds: int | None = None) -> None:
    """Set limits of this process, as `begin` does."""
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def fail(message: str, **more: Any) -> NoReturn:
    """Report an error to the parent and end the process.  more: members of the ServiceError; by default it is malformed_request."""
    sys.stderr.write(json.dumps({"message": message, **more}))
    sys.stderr.flush()
    os._exit(1)  # without the end of the interpreter, for which the memory may not suffice
