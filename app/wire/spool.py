"""A temporary file for what slow clients have not taken yet of their responses.

A process has one such file.  It is divided into pages: a response takes some, and gives each back when its client has taken the
content.  The file has no name and mode 0600, so nobody else can open it, and it is gone with the process, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush

from app import metrics

log = logging.getLogger("bds.http")

PAGE = 64 << 10  # bytes
RETRY = 1.0  # seconds after which a file that could not be written is tried again


class Spool:
    """The file and its free pages.  limit: bytes that it may have; the file is made when the first page is written.

    One thread reads and writes, in the order of the calls.  So a page can be given back at any time: what was to be done with it is
    done before its next owner writes to it.
    """

    def __init__(self, limit: int) -> None:
        self._most = limit // PAGE
        self._file: int | None = None  # its descriptor
        self._thread = ThreadPoolExecutor(1, "spool")
        self._length = 0  # of the file, in pages
        self._free: list[int] = []  # a heap: the file fills from its start; numbers from `_length` on are obsolete
        self._is_free: set[int] = set()
        self._retry = 0.0
        self._has_failed = False
        self._waiting: set[asyncio.Event] = set()
        metrics.spool_limit.set(self._most * PAGE)

    @property
    def is_full(self) -> bool:
        """Whether a response waits for space."""
        return bool(self._waiting)

    def take(self, wanted: int) -> list[int]:
        """Take up to so many pages; none while the limit is reached or the file cannot be written."""
        pages: list[int] = []
        if time.monotonic() < self._retry:
            return pages
        while len(pages) < wanted:
            if self._free:
                page = heappop(self._free)
                if page >= self._length:
                    continue
                self._is_free.remove(page)
            elif self._length < self._most:
                page, self._length = self._length, self._length + 1
            else:
                break
            pages.append(page)
        metrics.spooled_bytes.inc(len(pages) * PAGE)
        return pages

    def give(self, pages: Sequence[int]) -> None:
        """Give pages back, and free pages at the end of the file to the file system."""
        if not pages:
            return
        metrics.spooled_bytes.dec(len(pages) * PAGE)
        for page in pages:
            heappush(self._free, page)
        self._is_free.update(pages)
        before = self._length
        while self._length - 1 in self._is_free:
            self._length -= 1
            self._is_free.remove(self._length)
        if not self._length:
            self._free.clear()
        if self._length < before:
            self._thread.submit(self._cut, self._length * PAGE)
        for event in self._waiting:
            event.set()

    async def write(self, pages: Sequence[int], data: bytes) -> None:
        """Fill pages.  Raises OSError if the disk is full or fails; no pages are given out for RETRY seconds then."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, pages, data)
        except OSError as error:
            if not self._has_failed:
                log.warning("slow readers hold their connections, because the spool cannot be written: %s", error.strerror)
            self._has_failed, self._retry = True, time.monotonic() + RETRY
            raise
        self._has_failed = False

    async def read(self, page: int) -> bytes:
        """The content of a page.  Raises OSError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, page)

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for an event, which is also set when pages are given back.  The spool is full meanwhile."""
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)

    def _write(self, pages: Sequence[int], data: bytes) -> None:
        if self._file is None:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)
        view = memoryview(data)
        for number, page in enumerate(pages):
            done = 0
            while done < PAGE:
                done += os.pwrite(self._file, view[number * PAGE + done : (number + 1) * PAGE], page * PAGE + done)

    def _read(self, page: int) -> bytes:
        assert self._file is not None  # written
        data = os.pread(self._file, PAGE, page * PAGE)
        if len(data) != PAGE:
            raise OSError(f"expected a page of {PAGE} bytes, got {len(data)}")
        return data

    def _cut(self, length: int) -> None:
        if self._file is not None:
            os.ftruncate(self._file, length)
