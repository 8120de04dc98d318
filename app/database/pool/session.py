"""A pooled connection, and what is known of its session: the company that it has named, the statements that it has prepared."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool

from app.types import exact_json

Value = str | Sequence[str]  # of a parameter: text, or an array of text
Row = list[bytes | None]  # the columns of a row as PostgreSQL sends them, without decoding


PREPARED = 100  # small reads that a session remembers, as many as psycopg
# Reads of the past: two that name the version, and others, whose plans take a megabyte, with many months more.
STEADY = 2 + 8
_numbers = count(1)


class Statements:
    """The statements that a session ran last, at most `most`, and the rule which are prepared: each from its second use on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: OrderedDict[bytes, bytes] = OrderedDict()  # text -> name; empty for one that is not prepared

    def name_of(self, text: bytes) -> tuple[bytes, bool]:
        """The name under which a statement runs now, empty at its first use; and whether it has yet to be prepared."""
        name = self._names.get(text)
        if name is None:
            return b"", False
        return (name, False) if name else (b"bds_%d" % next(_numbers), True)

    def note(self, text: bytes, name: bytes = b"") -> None:
        """Note a use of a statement, and the name under which it is prepared."""
        self._names[text] = name
        self._names.move_to_end(text)

    def prepared(self) -> list[bytes]:
        """The names of those that are prepared."""
        return [name for name in self._names.values() if name]

    def forget(self, text: bytes) -> bytes:
        """Forget a statement.  Returns its name."""
        return self._names.pop(text, b"")

    def drop_surplus(self) -> Iterator[bytes]:
        """Forget those beyond `most` that were not used for the longest time.  Yields the names of prepared ones."""
        while len(self._names) > self._most:
            if name := self._names.popitem(last=False)[1]:
                yield name


class Session(psycopg.AsyncConnection[Any]):
    """A pooled connection, with the company that its session has named.

    statements: small reads that it has run; past_statements: reads of past states.
    """

    company: str | None = None
    home: AsyncConnectionPool[Session]  # from which it was taken
    _raw: psycopg.AsyncRawCursor[Any] | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        read_json_exactly(self)
        self.statements, self.past_statements = Statements(PREPARED), Statements(STEADY)

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
