"""Waits for locks without stopping others: for one only a moment, then again; and for the lock of the runner itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg

from app.database.roles import MigrationError

log = logging.getLogger("bds.db")

LOCK = 20261120  # advisory lock of the runner
# in which other sessions queue behind a lock that is waited for; before PostgreSQL looks for deadlocks (deadlock_timeout)
LOCK_TIMEOUT = "500 ms"
LOCK_PAUSE = 2.0  # seconds between two tries, in which these sessions go on
LOCK_TRIES = 60
TELLING = 10  # tries, after which to tell who may hold the lock
BUSY = {"55P03", "40P01"}  # SQLSTATEs of a lock that was not given in time, and a deadlock
HOLDER = """
    select l.pid, a.usename, a.application_name
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.granted and a.datname = current_database()
        and (l.classid, l.objid, l.objsubid) = (0, %s::oid, 1)
"""
# A transaction that reads or writes, and how long it has done so
OLDEST = """
    select pid, usename, application_name, date_trunc('second', clock_timestamp() - xact_start)::text
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null and backend_type = 'client backend'
    order by xact_start limit 1
"""


def take_lock(connection: psycopg.Connection[Any]) -> None:
    """Take the runner's lock; while another session holds it, which any session may, wait and tell which."""
    while connection.execute("select pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        if holder := connection.execute(HOLDER, (LOCK,)).fetchone():
            log.warning("waiting for another session that migrates: pid %s, %s, %s", *holder)
            connection.execute("select pg_advisory_lock(%s)", (LOCK,))
            return


def patiently(connection: psycopg.Connection[Any], work: Callable[[], Any], *, force_rollback: bool = False) -> Any:
    """Do the work in a transaction, and again if another session held a lock; returns its result.

    Raises MigrationError after the last try.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            with connection.transaction(force_rollback=force_rollback):
                return work()
        except (MigrationError, psycopg.Error) as error:
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not isinstance(cause, psycopg.Error) or cause.sqlstate not in BUSY:
                raise
            if not left:
                raise MigrationError(f"another session held a lock in each of {LOCK_TRIES} tries, end it first: {error}") from error
        if left % TELLING == 0:
            _tell_oldest(connection, left)
        time.sleep(LOCK_PAUSE)


def _tell_oldest(connection: psycopg.Connection[Any], left: int) -> None:
    """Log which transaction may hold the lock: the oldest."""
    if oldest := connection.execute(OLDEST).fetchone():
        log.warning("another session holds a lock, tries left: %s; the oldest transaction: pid %s, %s, %s, %s", left, *oldest)
