"""The directory in which the processes of one service share their metrics.

Each process holds a lock on the directory while it lives; the kernel releases the lock however the process ends.  A directory
without a lock was left behind by a killed service, and the next start removes it.
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
def new_directory() -> Iterator[Path]:
    """Make a directory that exists until the block ends."""
    _remove_abandoned()
    path, lock = _make()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a directory.  Raises FileNotFoundError if the directory was removed."""
    lock = _lock(path)
    try:
        yield
    finally:
        os.close(lock)


def _make() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(FileNotFoundError):  # another service that is starting removed it before it was locked
            return path, _lock(path)


def _lock(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits while another process removes it
    if not path.exists():
        os.close(lock)
        raise FileNotFoundError(path)
    return lock


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or not a directory
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
