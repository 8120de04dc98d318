"""Users and keys at the command line."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from app.auth.passwords import hash_password, make_password
from app.cli import stdio
from app.errors import ServiceError

KEYS = """
    select id, name, coalesce(array_to_string(companies, ','), 'all of ' || tenant_id), array_to_string(scopes, ','),
        to_char(created_at, 'YYYY-MM-DD HH24:MI'),
        coalesce(to_char(last_used_at, 'YYYY-MM-DD HH24:MI'), 'never'),
        coalesce(to_char(expires_at, 'YYYY-MM-DD HH24:MI'), 'never'),
        case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'valid' end
    from bds.api_keys
    order by created_at
"""
USERS = """
    select email, array_to_string(companies, ','), case when is_administrator then 'yes' else '' end,
        to_char(created_at, 'YYYY-MM-DD HH24:MI'),
        coalesce(to_char(last_login_at, 'YYYY-MM-DD HH24:MI'), 'never')
    from bds.users
    order by created_at
"""


def create_user(connection: psycopg.Connection[Any], email: str, companies: Sequence[str], administrator: bool) -> str | None:
    """Create a user with the password on standard input.  Returns the password if one was made instead."""
    password, is_new = _read_password()
    connection.execute("select bds.create_user(%s, %s, %s, %s)", (email, hash_password(password), list(companies), administrator))
    return password if is_new else None


def ensure_administrator(connection: psycopg.Connection[Any], email: str, companies: Sequence[str]) -> str:
    """Set a new password, creating the administrator if needed; returns the password."""
    password = make_password()
    hashed = hash_password(password)
    if connection.execute("select bds.set_password(%s, %s)", (email, hashed)).fetchone() != (True,):
        connection.execute("select bds.create_user(%s, %s, %s, true)", (email, hashed, list(companies)))
    return password


def change_password(connection: psycopg.Connection[Any], email: str) -> str | None:
    """Set a user's password; the password and the result are as for create_user.  Raises ServiceError(not_found)."""
    password, is_new = _read_password()
    _require_found(connection.execute("select bds.set_password(%s, %s)", (email, hash_password(password))).fetchone(), email)
    return password if is_new else None


def set_access(connection: psycopg.Connection[Any], email: str, companies: Sequence[str], administrator: bool) -> None:
    """Set a user's companies, and whether it is an administrator.  Raises ServiceError(not_found)."""
    found = connection.execute("select bds.set_access(%s, %s, %s)", (email, list(companies), administrator)).fetchone()
    _require_found(found, email)


def delete_user(connection: psycopg.Connection[Any], email: str) -> None:
    """Delete a user.  Raises ServiceError(not_found)."""
    _require_found(connection.execute("select bds.delete_user(%s)", (email,)).fetchone(), email)


def read_expiry(text: str) -> datetime:
    """A future time: a date or time (UTC without an offset), or a number of days or hours from now (90d, 12h)."""
    span = re.fullmatch(r"([1-9]\d{0,4})([dh])", text)
    if span:
        return datetime.now(UTC) + (timedelta(days=int(span[1])) if span[2] == "d" else timedelta(hours=int(span[1])))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a date, a time, or days or hours such as 90d, got {text!r}") from None
    try:
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"expected a time before the year 10000, got {text!r}") from None
    if moment <= datetime.now(UTC):
        raise argparse.ArgumentTypeError(f"expected a future time, got {text!r}")
    return moment


def _read_password() -> tuple[str, bool]:
    """Return (password, whether it was made): the one on standard input, or a new one if there is none."""
    if sys.stdin is None:
        given = ""
    elif sys.stdin.isatty():
        given = getpass.getpass("password (empty: make one): ")
    else:
        given = stdio.decoded(stdio.binary_input().readline().rstrip(b"\r\n"), f"password on {stdio.INPUT}")
    return (given, False) if given else (make_password(), True)


def _require_found(row: tuple[Any, ...] | None, email: str) -> None:
    if row != (True,):
        raise ServiceError("not_found", f"no such user: {email!r}")
