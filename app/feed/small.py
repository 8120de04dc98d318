"""The import of a small document: staged, compared and written in one transaction of one session.

It is not to be seen before it has ended, and holds a connection while it waits for the company's turn; so it waits for a moment
only.  What it cannot do raises NotSmall, before anything is written, and is then done as any other import.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

import psycopg

from app.feed.converter import Converter, note_places
from app.feed.origin import Origin
from app.feed.staging import Staging

TURN_TIMEOUT = "250ms"  # that it waits for the company's turn
NOT_SMALL = {
    "54000",  # a stored value is too long for the temporary tables
    "55P03",
    "BD003",  # the turn did not come
    "BD004",  # a temporary table of somebody else's is in the way
}

# Each is one round trip; what the inner query does is done before its row passes the condition.
BEGIN = """
    select bds.import_begin(%s, %s, %s, %s, file => %s, mapper => %s)
    from (select set_config('bds.company', %s, true) as company, set_config('lock_timeout', %s, true) as patience offset 0) c
    where c.company is not null and c.patience is not null
"""
RUN = """
    select bds.import_run(%s, %s)
    from (select bds.import_received(%s, %s, %s, %s, %s, %s)::text as done offset 0) r
    where (r.done = '') is not false
"""

Writers = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]  # a session that may write, for a moment


class NotSmall(Exception):
    """The document has to be imported in the way of large ones."""


@contextlib.contextmanager
def small_import(
    writers: Writers, staging: Staging, company: str, dry_run: bool, origin: Origin
) -> Iterator[tuple[psycopg.Connection[Any], UUID]]:
    """Begin an import and stage the document; yields (connection, the import's id) in its transaction, which the block completes.

    Raises NotSmall, also in the block, and psycopg.Error.
    """
    is_begun = False
    try:
        with writers() as connection, connection.transaction():
            is_begun = True
            begin = (company, origin.actor, dry_run, staging.entities, origin.file, origin.mapper, company, TURN_TIMEOUT)
            row = connection.execute(BEGIN, begin).fetchone()
            assert row is not None
            staging.copy_small(connection)
            yield connection, row[0]
    except psycopg.Error as error:
        if error.sqlstate in NOT_SMALL or not is_begun:
            raise NotSmall from error
        raise


def run_small(
    connection: psycopg.Connection[Any], import_id: UUID, staging: Staging, company: str, converter: Converter | None
) -> dict[str, Any]:
    """Compare and write what is staged; returns the report.  Raises psycopg.Error."""
    directives = staging.directives
    received = (company, import_id, directives.atomic, staging.bytes, staging.records, directives.remove_all)
    row = connection.execute(RUN, (company, import_id, *received)).fetchone()
    if converter and note_places(connection, company, import_id, converter):
        row = connection.execute("select bds.import_report(%s, %s)", (company, import_id)).fetchone()
    assert row is not None
    report: dict[str, Any] = row[0]
    return report
