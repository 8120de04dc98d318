"""The directory in which the processes of a service leave their measurements for each other.

Each of them holds a lock on it for as long as it lives, which the kernel lets go of however a process ends.  What nobody holds was
left behind by a service that was killed, and goes when the next one starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "bds-metrics-"


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A new directory, which is there until the block ends."""
    _remove_left()
    path, lock = _make()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep a directory from being taken for one that was left behind.  Raises FileNotFoundError if it is no more."""
    lock = _hold(path)
    try:
        yield
    finally:
        os.close(lock)


def _make() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(FileNotFoundError):  # a service that starts just now has taken it for one that was left behind
            return path, _hold(path)


def _hold(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits for whoever removes it
    if not path.exists():
        os.close(lock)
        raise FileNotFoundError(path)
    return lock


def _remove_left() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # somebody else's, or no directory
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
