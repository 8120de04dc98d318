"""The standard streams of a command, any of which may be closed, full, or read by nobody any more.

A result that cannot be written is an error of the command that has it: an OSError that names the stream.  What is merely said of
the work goes to standard error, and stops nothing if it cannot be said.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

INPUT, OUTPUT = "standard input", "standard output"


def hold() -> None:
    """Let no file and no connection have the number of a standard stream that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what its encoding lacks must not cost the whole result
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - print() would take None for standard output


def require_output() -> None:
    """Raises OSError if there is no standard output: before work that could not be undone once its result is known."""
    if sys.stdout is None:
        raise _closed(OUTPUT)


def is_unicode() -> bool:
    """Whether standard output can carry every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def put(text: str) -> None:
    """Write a result, at once.  Raises OSError."""
    require_output()
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def binary_output() -> Iterator[BinaryIO]:
    """Standard output for bytes.  Raises OSError, also inside."""
    require_output()
    with _writing():
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def binary_input() -> BinaryIO:
    """Standard input for bytes.  Raises OSError if it is closed."""
    if sys.stdin is None:
        raise _closed(INPUT)
    return sys.stdin.buffer


def say(text: str, end: str = "\n") -> None:
    """Say what is going on, if anybody listens."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def _closed(name: str) -> OSError:
    return OSError(errno.EBADF, "it is closed", name)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Let an error name the stream, which is not written to again: the interpreter would try at its end, and fail once more."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:  # of another file
            raise
        _abandon(sys.stdout)
        raise OSError(error.errno, error.strerror or str(error), OUTPUT) from None


def _abandon(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
