"""Rows of an export as they come from the database: COPY, read with backpressure and without a step of Python for each row's wait.

The server makes rows as long as they are taken: who reads slowly slows it down, and holds no more than a block in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, generators, pq
from psycopg.waiting import Wait

from app.export import statements
from app.export.forms import LineForm
from app.export.request import Asked
from app.export.shape import Lines
from app.query.sql_parameters import Statement

BLOCK = 256 << 10  # bytes of rows that are handed on together, at most
WORTHWHILE = 64 << 10  # bytes that are handed on when the server has no more for the moment


@dataclass(slots=True)
class Reader:
    """Reads the statements of one export, in one snapshot.

    patience: seconds that each may take to its first rows; on_rows: told how many rows came.
    """

    connection: psycopg.AsyncConnection[Any]
    patience: float
    on_rows: Callable[[int], None] = lambda _: None

    async def rows(self, statement: Statement) -> AsyncGenerator[bytes, None]:
        """The rows of a COPY in blocks, each row with its line end.  Raises TimeoutError if none comes in time, psycopg.Error."""
        pgconn = self.connection.pgconn
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self.patience):
                # COPY takes no parameters
                await stack.enter_async_context(self.connection.cursor().copy(statement.literal(self.connection)))
                block, count, ended = await self.connection.wait(_take(pgconn))
            while block:
                self.on_rows(count)
                yield bytes(block)
                if ended:
                    return
                block, count, ended = await self.connection.wait(_take(pgconn))

    async def lines(self, asked: Asked, form: LineForm, plan: Lines) -> AsyncGenerator[bytes, None]:
        """The lines of an export in a form."""
        if asked.whole:  # sort rows after their joins, instead of finding them one by one in order
            await self.connection.execute("set local enable_nestloop = off")
        async with contextlib.aclosing(self.rows(statements.lines(asked.query, asked.company, form, plan))) as blocks:
            async for block in blocks:
                yield block

    async def one(self, statement: Statement) -> tuple[Any, ...]:
        """The one row of a statement."""
        async with asyncio.timeout(self.patience):
            row = await (await psycopg.AsyncRawCursor(self.connection).execute(statement.text, statement.values)).fetchone()
        assert row is not None  # these statements give one row whatever the data
        return tuple(row)


def _take(pgconn: pq.abc.PGconn) -> Generator[Any, Any, tuple[bytearray, int, bool]]:
    """The rows that are there, waiting for the first ones; how many; whether they are the last.

    psycopg's own generator gives a row at a time: for a million of them twice the time of the whole query.
    """
    block, count, size, take = bytearray(), 0, 0, pgconn.get_copy_data
    while True:
        length, row = take(1)
        if length > 0:
            block += row
            count += 1
            size += length
            if size >= BLOCK:
                return block, count, False
        elif length == 0:
            if size >= WORTHWHILE:
                return block, count, False
            while not (yield Wait.R):
                continue
            pgconn.consume_input()
        else:
            result = (yield from generators.fetch_many(pgconn))[-1]
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
            return block, count, True
