"""Opens the range of versions of a delta link, which holds only while its company and its entity are what they were."""

from __future__ import annotations

from typing import LiteralString

from psycopg.sql import Literal

from app.database.catalog import Entity
from app.database.past import Moment, Past, name_range
from app.database.pool.session import Session
from app.errors import ServiceError
from app.query.check.delta import Delta, read_mark
from app.query.sql.delta import state

FIRST: LiteralString = "select bds.first_change(%s)"
TARGET = "$deltatoken"


async def open_range(connection: Session, company: str, entity: Entity, delta: Delta) -> tuple[Past, Past]:
    """Name the range of a delta link for a transaction.  Raises ServiceError(gone) for a link that does not hold any more."""
    row = await (await connection.execute(state(entity.name, Literal(company)))).fetchone()
    assert row is not None
    now = read_mark(row[0].encode(), entity)
    if (delta.generation, delta.began) != (now.generation, now.began) or delta.read > now.since:
        first = await (await connection.execute(FIRST, (company,))).fetchone()
        assert first is not None
        raise _gone("the company was restored after this link was made", first[0])
    if delta.registration != now.registration:
        raise _gone(f"{entity.name} was registered again after this link was made", now.since)
    until = Moment(version=delta.until, target=TARGET)
    return await name_range(connection, company, Moment(version=delta.since, target=TARGET), until)


def _gone(reason: str, first: int) -> ServiceError:
    return ServiceError("gone", f"{reason}: expected a read of the whole collection", target=TARGET, firstId=first)
