"""Reads a worksheet of an Excel workbook as CSV is read, in a child process (app/mapper/workbook).

A workbook is a zip, which can be read only as a whole: a temporary file keeps it until its end.  The child is killed when the
reading ends in any way, and with this process.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
from collections.abc import Iterable, Iterator

from app.child import POLL, Child, ChildEnded
from app.errors import ServiceError
from app.mapper.language.tree import Mapper
from app.mapper.sources.base import Emit
from app.mapper.sources.table import TableSource
from app.mapper.workbook.frames import Row, Unpacker

log = logging.getLogger("bds.mapper")

CHILDREN = 4  # workbooks that a process reads at once; others wait

_turns = threading.BoundedSemaphore(CHILDREN)


class ExcelSource(TableSource):
    """Keeps the workbook until its end, then reads its rows as the child sends them.  limit: bytes of its content."""

    unit = "row"

    def __init__(self, mapper: Mapper, emit: Emit, limit: int) -> None:
        super().__init__(mapper, emit)
        self._limit = limit
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the source
        self._child: Child | None = None
        self._is_closed = False

    def feed(self, data: bytes) -> None:
        """Keep bytes."""
        self._file.write(data)

    def finish(self) -> Iterable[None]:
        """Read the worksheet; yields after each frame, and while nothing comes, so that the caller can end the reading."""
        while not _turns.acquire(timeout=POLL):
            yield
        try:
            yield from self._read()
        except ChildEnded as error:
            if not (self._is_closed or error.was_killed):
                raise  # a fault of the service, not of the file
            if not self._is_closed:
                log.warning("a workbook could not be read: %s", error)
            raise ServiceError("too_large", "the workbook needs more memory, or time, to be read than it may use") from None
        finally:
            _turns.release()
            self.close()

    def close(self) -> None:
        """End the child, and remove the temporary file.  Any thread may call it."""
        self._is_closed = True
        if self._child is not None:
            self._child.kill()
        self._file.close()

    def _read(self) -> Iterator[None]:
        arguments = {"sheet": self._mapper.sheet, "goes_on": self._mapper.is_exported, "limit": self._limit}
        child = self._child = Child("app.mapper.workbook", self._file, json.dumps(arguments))
        unpacker, begun = Unpacker(), False
        try:
            if self._is_closed:
                child.kill()
            for data in child.blocks():
                for frame in unpacker.feed(data):
                    if frame is not None:
                        self._rows(frame)
                        continue
                    if begun:
                        self._close_records()
                    begun = True
                    self._begin_sheet()
                yield
            self._close_records()
        finally:
            child.close()

    def _begin_sheet(self) -> None:
        self._width, self._mergers = -1, []
        if not self._mapper.header:
            self._open_numbered()

    def _rows(self, frame: list[Row]) -> None:
        for number, row in frame:
            row += [None] * (max(self._width, len(self._columns)) - len(row))  # cells after the last one of a row are empty, too
            self._row(row, number)
