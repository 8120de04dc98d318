"""Reads the rows of an export from the database by COPY, with backpressure, and not one row at a time in Python.

PostgreSQL makes rows as fast as they are taken: a slow client slows it down, and no more than a block is held in memory.
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

from app.database.past import Moment, name_range, open_past
from app.export import content
from app.export.request import ExportRequest
from app.export.row_formats import LineFormat
from app.logs import count_rows
from app.query.sql.parameters import Statement

BLOCK = 256 << 10  # bytes from which a block of rows is full
WORTHWHILE = 64 << 10  # bytes from which a block is handed on while the server has no more rows ready


@dataclass(slots=True)
class Reader:
    """Reads the statements of one export in one snapshot.

    timeout: seconds that a statement may take to its first rows, None for any number; on_rows: called with the number of rows in
    each block.
    """

    connection: psycopg.AsyncConnection[Any]
    timeout: float | None
    on_rows: Callable[[int], None] = count_rows

    async def rows(self, statement: Statement) -> AsyncGenerator[bytes, None]:
        """Yield the rows of a COPY in blocks, each row with its line end.

        Raises psycopg.Error, or TimeoutError if no row comes within `timeout`.
        """
        pgconn = self.connection.pgconn
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self.timeout):
                # COPY takes no parameters: they become literals
                await stack.enter_async_context(self.connection.cursor().copy(statement.literal(self.connection)))
                block, count, ended = await self.connection.wait(_next_block(pgconn))
            while block:
                self.on_rows(count)
                yield bytes(block)
                if ended:
                    return
                block, count, ended = await self.connection.wait(_next_block(pgconn))

    async def lines(self, export: ExportRequest, format: LineFormat) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an export in a format, in blocks."""
        if (
            export.reads_all_rows and not export.since
        ):  # hash joins and a sort are faster than an index scan with a probe for each row
            await self.connection.execute("set local enable_nestloop = off")
        async with contextlib.aclosing(self.rows(content.lines(export, format))) as blocks:
            async for block in blocks:
                yield block

    async def one(self, statement: Statement) -> tuple[Any, ...]:
        """Return the one row of a statement that always has one."""
        async with asyncio.timeout(self.timeout):
            row = await (await psycopg.AsyncRawCursor(self.connection).execute(statement.text, statement.values)).fetchone()
        assert row is not None
        return tuple(row)


async def open_reader(
    connection: psycopg.AsyncConnection[Any], export: ExportRequest, timeout: float
) -> tuple[ExportRequest, Reader]:
    """Name the versions of an export in a transaction that has just begun; return the export, and the reader of its rows.

    timeout: seconds that a statement may take to its first rows; those of the past may come after all changes were read.
    Raises ServiceError as name_range, open_past and content.followed do.
    """
    if export.since is None:
        if export.moment:
            await open_past(connection, export.company, export.moment)
        await connection.execute("set local statement_timeout = 0")  # the reader limits the time to the first rows
        return export, Reader(connection, None if export.moment else timeout)
    await name_range(connection, export.company, export.since, export.moment or Moment(), content.entities(export))
    await connection.execute("set local statement_timeout = 0")
    # how many rows differ is not known to the planner: rows that are looked for one by one, among all, would take hours
    await connection.execute("set local enable_nestloop = off; set local enable_hashjoin = on; set local enable_mergejoin = on")
    reader = Reader(connection, None)
    return await content.followed(export, reader), reader


def _next_block(pgconn: pq.abc.PGconn) -> Generator[Any, Any, tuple[bytearray, int, bool]]:
    """Take the rows that have arrived; wait for some if there are none.  Returns (rows, their number, whether they are the last).

    psycopg's own generator yields one row at a time, which for a million rows takes as long again as the query.
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
