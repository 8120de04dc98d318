"""A cancel is noticed while a file that is read at its end, as a workbook is, is being read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.errors import ServiceError
from app.feed.run import Import, cancel_import
from tests.feed.conftest import Feed


class LongReading:
    """Yields pieces of a document without end, as a workbook's rows; after the first the import is cancelled."""

    def __init__(self) -> None:
        self.importing: Import | None = None
        self.pieces = 0

    def feed(self, data: bytes) -> bytes:
        return b""

    def finish(self) -> Iterator[bytes]:
        assert self.importing is not None
        yield b'{"units": ['
        while True:
            self.pieces += 1
            assert self.pieces < 10, "the cancel was not noticed"
            yield b'{"code": "%d", "name": "n"},' % self.pieces
            if self.pieces == 1:
                cancel_import(self.importing._url, self.importing.company, str(self.importing.begin()))
                assert self.importing.look_if_cancelled()

    def close(self) -> None:
        pass

    def place(self, collection: str, position: int, child: int | None = None) -> str | None:
        return None


def test_a_cancel_ends_the_reading_of_a_workbook(feed: Feed) -> None:
    reading = LongReading()
    importing = reading.importing = feed.begin(converter=reading)
    with pytest.raises(ServiceError) as ended:
        importing.received()
    importing.fail(ended.value)
    assert ended.value.code == "cancelled" and reading.pieces == 2
    assert feed.ask("select state from bds.imports where company_id = %s", feed.company) == [("cancelled",)]
