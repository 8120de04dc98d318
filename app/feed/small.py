"""The import of a small document: staged, compared and written by one statement of a session that stays.

It is not to be seen before it has ended, and holds a connection while it waits for the company's turn; so it waits for a moment
only.  What it cannot do raises NotSmall, before anything is written, and is then done as any other import.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

import psycopg

from app.errors import REPLACED
from app.feed.converter import Converter, note_positions
from app.feed.heartbeat import Heartbeat
from app.feed.origin import Origin
from app.feed.staging import Staging

TURN_TIMEOUT = "250ms"  # that it waits for the company's turn
NOT_SMALL = {
    *REPLACED,  # besides, an entity has lost a column since the catalog was read, which staging tells of
    "BD002",  # so does it of an entity that is none any more
    "54000",  # a stored value is too long for the temporary tables
    "55P03",
    "BD003",  # the turn did not come
    "BD004",  # a temporary table of somebody else's is in the way
}

# One round trip; what the inner query does is done before its row passes the condition.
RUN = """
    select bds.import_rows(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    from (select set_config('bds.company', %s, true) as company, set_config('lock_timeout', %s, true) as patience offset 0) c
    where c.company is not null and c.patience is not null
"""

Writers = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]  # a session that may write, for a moment


class NotSmall(Exception):
    """The document has to be imported in the way of large ones."""


def import_small(
    writers: Writers,
    heartbeat: Heartbeat,
    staging: Staging,
    company: str,
    dry_run: bool,
    origin: Origin,
    converter: Converter | None,
    claimed_id: UUID | None,
) -> dict[str, Any]:
    """Import what is staged; returns the report.  Raises NotSmall, psycopg.Error."""
    directives = staging.directives
    given = (directives.atomic, directives.remove_all, staging.bytes, staging.records, origin.file, origin.mapper)
    parameters = (company, *staging.small_rows(), origin.actor, dry_run, *given, claimed_id, company, TURN_TIMEOUT)
    is_begun = False
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(writers())
            is_begun = True
            if converter:  # otherwise the statement is the transaction
                stack.enter_context(connection.transaction())
            stack.enter_context(heartbeat.watch(connection))
            report = _report(connection, RUN, parameters)
            if converter and note_positions(connection, company, UUID(report["importId"]), converter):
                report = _report(connection, "select bds.import_report(%s, %s)", (company, report["importId"]))
            return report
    except psycopg.Error as error:
        if error.sqlstate in NOT_SMALL or not is_begun:
            raise NotSmall from error
        raise


def _report(connection: psycopg.Connection[Any], query: str, parameters: tuple[Any, ...]) -> dict[str, Any]:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    report: dict[str, Any] = row[0]
    return report
