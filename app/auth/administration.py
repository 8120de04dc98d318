"""Administration of companies and users by administrators.

Every statement carries the administrator's session: the database asks for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.rows import class_row

from app.auth.gate import Identity
from app.auth.passwords import Passwords, make_password
from app.database.caller import tell
from app.database.database import Database
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import administration
from app.tasks import in_daemon
from app.wire.urls import read_id


@dataclass(frozen=True, slots=True)
class User:
    """A user as administrators see it."""

    id: uuid.UUID
    email: str
    companies: list[str]
    is_administrator: bool
    created_at: datetime
    last_login_at: datetime | None


@dataclass(frozen=True, slots=True)
class Company:
    """A company as administrators see it.

    changes, last_at: the number of its changes and the time of the last one; None for a company at another place than home.
    """

    id: str
    tenant_id: str | None
    place: str
    created_at: datetime
    changes: int | None
    last_at: datetime | None
    users: int


OPEN = "select p.name from bds.places p where not p.is_draining"
COMPANIES = """
    select c.id, c.tenant_id, coalesce(d.place, 'home') as place, c.created_at,
        r.last_id as changes, nullif(r.last_updated_at, '-infinity') as last_at,
        (select count(*) from bds.users u where c.id = any (u.companies)) as users
    from bds.companies c
    left join bds.residents r on r.company_id = c.id
    left join bds.directory d on d.company_id = c.id
    order by c.id
    limit %s offset %s
"""
USERS = """
    select u.id, u.email, u.companies, u.is_administrator, u.created_at, u.last_login_at
    from bds.users u
    where %s::uuid is null or u.id = %s
    order by u.email
    limit %s offset %s
"""


async def list_companies(database: Database, limit: int, offset: int) -> tuple[list[Company], bool]:
    """Return a page of all companies, and whether there are more."""
    async with database.service() as connection, connection.cursor(row_factory=class_row(Company)) as cursor:
        await cursor.execute(COMPANIES, (limit + 1, offset))
        found = await cursor.fetchall()
    return found[:limit], len(found) > limit


async def all_companies(database: Database) -> list[str]:
    """Return the ids of all companies."""
    async with database.service() as connection:
        return [id for (id,) in await (await connection.execute("select c.id from bds.companies c order by c.id")).fetchall()]


async def list_users(database: Database, limit: int, offset: int) -> tuple[list[User], bool]:
    """Return a page of all users, and whether there are more."""
    found = await _users(database, None, limit + 1, offset)
    return found[:limit], len(found) > limit


async def find_user(database: Database, id: str) -> User:
    """Return a user.  Raises ServiceError(not_found)."""
    found = await _users(database, read_id(id, "user"), 1, 0)
    if not found:
        raise ServiceError("not_found", f"no such user: {id}")
    return found[0]


async def open_places(database: Database) -> list[str]:
    """Return the places that take companies, home first; only home if there is no other."""
    if len(database.places()) == 1:
        return [HOME]
    async with database.service() as connection:
        names = {name for (name,) in await (await connection.execute(OPEN)).fetchall()}
    return [place.name for place in database.places() if place.name in names and place.problem(database.home) is None]


async def create_company(
    database: Database, identity: Identity, company: str, tenant: str | None, *, place: str | None = None, mine: bool
) -> None:
    """Create a company; mine: the administrator gets access to it.  Raises ServiceError(conflict), psycopg.Error: BD004, BD005."""
    urls, session = database.urls(), identity.session
    await in_daemon(lambda: administration.create_company(urls, company, tenant, place, session=session, is_joined=mine))


async def delete_company(database: Database, identity: Identity, company: str) -> None:
    """Delete everything of a company.  Raises ServiceError(conflict), psycopg.Error: BD002, BD004."""
    urls, session = database.urls(), identity.session
    await in_daemon(lambda: administration.delete_company(urls, company, session=session))


async def create_user(database: Database, identity: Identity, email: str, companies: Sequence[str], *, administrator: bool) -> str:
    """Create a user; return its password.  Raises psycopg.Error: BD002, BD004, BD005."""
    password = make_password()
    values = (email, await Passwords().hash(password), list(companies), administrator)
    await _run(database, identity, "select bds.create_user(%s, %s, %s, %s)", values)
    return password


async def set_access(database: Database, identity: Identity, user: User, companies: Sequence[str], *, administrator: bool) -> None:
    """Set a user's companies, and whether it is an administrator.  Raises ServiceError(conflict), psycopg.Error: BD002, BD005."""
    if user.email == identity.email and not administrator:
        raise ServiceError("conflict", "you cannot end your own administration: another administrator can", target="administrator")
    await _run(database, identity, "select bds.set_access(%s, %s, %s)", (user.email, list(companies), administrator))


async def reset_password(database: Database, identity: Identity, user: User) -> str:
    """Give a user a new password, which is returned; it ends the user's sessions.  Raises ServiceError(conflict)."""
    if user.email == identity.email:
        raise ServiceError("conflict", "change your own password on the page of your account")
    password = make_password()
    await _run(database, identity, "select bds.set_password(%s, %s)", (user.email, await Passwords().hash(password)))
    return password


async def delete_user(database: Database, identity: Identity, user: User) -> None:
    """Delete a user.  Raises ServiceError(conflict)."""
    if user.email == identity.email:
        raise ServiceError("conflict", "you cannot delete yourself: another administrator can")
    await _run(database, identity, "select bds.delete_user(%s)", (user.email,))


async def _users(database: Database, id: str | None, limit: int, offset: int) -> list[User]:
    async with database.service() as connection, connection.cursor(row_factory=class_row(User)) as cursor:
        await cursor.execute(USERS, (id, id, limit, offset))
        return await cursor.fetchall()


async def _run(database: Database, identity: Identity, statement: LiteralString, values: tuple[Any, ...]) -> None:
    """Run a statement at home, as this administrator."""
    async with database.service() as connection, connection.transaction():
        await tell(connection)
        await connection.execute("select set_config('bds.session', %s, true)", (identity.session,))
        await connection.execute(statement, values)
