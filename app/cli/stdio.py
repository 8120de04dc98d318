"""The standard streams of a command, any of which may be closed, full or a broken pipe.

A result that cannot be written raises an OSError that names the stream.  Messages go to standard error; a message that cannot be
written is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from app.errors import ServiceError
from app.types import exact_json

INPUT, OUTPUT = "standard input", "standard output"


def fill_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams, so that no file or connection gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the encoding lacks must not fail the whole result
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - print() takes None as standard output


def require_output() -> None:
    """Raise OSError if standard output is closed; called before work that cannot be undone."""
    if sys.stdout is None:
        raise _closed(OUTPUT)


def is_unicode() -> bool:
    """Whether standard output can carry every character.  Raises OSError if it is closed."""
    require_output()
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def columns() -> int | None:
    """The width of the terminal that standard output is; None if it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (AttributeError, OSError, ValueError):  # closed, or not a terminal
        return None


def is_read() -> bool:
    """Whether standard output still has a reader; true unless it is a pipe or socket whose other end was closed."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # not a file
        return True
    return not any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


def write(text: str) -> None:
    """Write a result and flush it.  Raises OSError."""
    require_output()
    with _writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_exact(text: str) -> None:
    """Write a result that is a file or a command for another program: in UTF-8, whatever the locale.  Raises OSError."""
    with binary_output() as out:
        out.write(text.encode())


def write_records(records: Iterable[Any]) -> None:
    """Write results as JSON Lines.  Raises OSError."""
    write("".join(exact_json.dumps(each, ensure_ascii=not is_unicode()) + "\n" for each in records))


def tell_more(kind: str, limit: int) -> None:
    """Say that a list has ended at its limit."""
    message(f"bds: there are more {kind} than the newest {limit:,}; --limit N prints more")


@contextlib.contextmanager
def binary_output() -> Iterator[BinaryIO]:
    """Standard output for bytes.  Raises OSError, also inside."""
    require_output()
    with _writing():
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def output(path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        with binary_output() as standard:
            yield standard
        return
    if Path(path).exists() and not Path(path).is_file():  # a pipe or a device is written as it is
        with Path(path).open("wb") as file:
            yield file
        return
    complete = Path(path).resolve()
    part = Path(f"{complete}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(complete)
    finally:
        part.unlink(missing_ok=True)


def binary_input() -> BinaryIO:
    """Standard input for bytes.  Raises OSError if it is closed."""
    if sys.stdin is None:
        raise _closed(INPUT)
    return sys.stdin.buffer


def read_text(path: str) -> str:
    """The text of a file, or of standard input, in UTF-8.  path: - for standard input.  Raises OSError, ServiceError."""
    content = binary_input().read() if path == "-" else Path(path).read_bytes()
    return decoded(content, INPUT if path == "-" else path)


def decoded(content: bytes, name: str) -> str:
    """Bytes in UTF-8 as text.  name: where they come from, for the error.  Raises ServiceError."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ServiceError("malformed_request", f"{name}: expected UTF-8") from None


def message(text: str, end: str = "\n") -> None:
    """Write a message to standard error, if that is possible."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _redirect_to_null(sys.stderr)


def _closed(name: str) -> OSError:
    return OSError(errno.EBADF, "it is closed", name)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Name the stream in errors, and redirect it to /dev/null, because the interpreter flushes it once more at its end."""
    try:
        yield
    except KeyboardInterrupt:  # while nobody reads: the rest is dropped
        _redirect_to_null(sys.stdout)
        raise
    except OSError as error:
        if error.filename is not None:  # of another file
            raise
        _redirect_to_null(sys.stdout)
        raise OSError(error.errno, error.strerror or str(error), OUTPUT) from None


def _redirect_to_null(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
