"""A pooled connection, and what is known of its session: the company that it has named, the statements that it has prepared."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool

from app.types import exact_json

Value = str | Sequence[str]  # of a parameter: text, or an array of text
Row = list[bytes | None]  # the columns of a row as PostgreSQL sends them, without decoding


class Session(psycopg.AsyncConnection[Any]):
    """A pooled connection, with the company that its session has named.

    statements: the texts of small reads that it has run, with the names under which they are prepared; past_statements: the same of
    reads of past states.
    """

    company: str | None = None
    home: AsyncConnectionPool[Session]  # from which it was taken
    _raw: psycopg.AsyncRawCursor[Any] | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        read_json_exactly(self)
        self.statements: OrderedDict[bytes, bytes] = OrderedDict()
        self.past_statements: OrderedDict[bytes, bytes] = OrderedDict()

    def hang_up(self) -> None:
        """Break the connection, so that what waits for the server fails at once."""
        with contextlib.suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    @property
    def raw(self) -> psycopg.AsyncRawCursor[Any]:
        """A cursor for statements with $1, $2 ...; reused, because making one takes a tenth of a small read."""
        if self._raw is None:
            self._raw = psycopg.AsyncRawCursor(self)
        return self._raw


def read_json_exactly(connection: psycopg.BaseConnection[Any]) -> None:
    """Make a connection read json and jsonb with all digits of their numbers, which psycopg reads as float."""
    set_json_loads(exact_json.loads, connection)


async def read_row_on(connection: Session, text: bytes, values: Sequence[Value], *, prepare: bool = True) -> Row:
    """Run a statement that gives one row, on a connection that is in use for more."""
    await connection.raw.execute(text, values, prepare=None if prepare else False)
    result = connection.raw.pgresult
    assert result is not None
    return [result.get_value(0, column) for column in range(result.nfields)]
