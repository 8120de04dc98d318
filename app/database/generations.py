"""Generations of a company, whose log goes on from an earlier state (sql/30_change_log/15_generations.sql).

Whoever keeps a version or the id of an event keeps its generation, and names it in a request: `generation=2`, `2:17`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import LiteralString, NamedTuple

from app.database.pool.session import Session
from app.errors import ServiceError
from app.types.event_ids import Event, read_event

POSITION = "X-BDS-Position"
LAST: LiteralString = "select p.last_id, p.generation from bds.company_positions p where p.company_id = %s"
STATE: LiteralString = """
    select p.generation, p.last_id, bds.first_change(p.company_id), g.generation is not null, g.last_common_id
    from bds.company_positions p
    left join bds.generations g on g.company_id = p.company_id and g.generation = %s
    where p.company_id = %s
"""


class Demand(NamedTuple):
    """What a request says of the log that it knows.  Each with the parameter or header that says it.

    generation: as the client has sent it; event: a change that it has seen.
    """

    generation: str | None = None
    event: Event | None = None
    target: str = "generation"


def read_demand(headers: Mapping[str, str]) -> Demand | None:
    """What the header X-BDS-Position demands: that the answer is not behind a change.  Raises malformed_request."""
    text = headers.get(POSITION)
    if text is None:
        return None
    try:
        return Demand(event=read_event(text), target=POSITION)
    except ValueError as error:
        raise ServiceError("malformed_request", f"{POSITION}: {error}", target=POSITION) from None


async def last_event(connection: Session, company: str) -> Event:
    """A company's last change, with the present generation; 0 in generation 1 for one that is not here."""
    row = await (await connection.execute(LAST, (company,))).fetchone()
    return Event(*row) if row else Event(0)


async def check(connection: Session, company: str, demand: Demand) -> int:
    """Check that the log still has what a client knows of it; returns its last change.

    Raises ServiceError: not_found for a generation that there is not, gone for one that has ended or a change that is gone.
    """
    named = str(demand.event.generation) if demand.event else demand.generation or ""
    asked = int(named) if named.isascii() and named.isdigit() and len(named) < 10 else 0
    row = await (await connection.execute(STATE, (asked, company))).fetchone()
    if row is None:
        return 0
    now, last, first, is_known, common = row
    if not is_known or named != str(asked):
        message = f"there is no generation {named}: the present one is {now}"
        raise ServiceError("not_found", message, target=demand.target)
    if demand.event is None:
        if common is not None:
            message = f"generation {asked} has ended, the present one is {now}: they have the changes up to {common} in common"
            raise _gone(message, demand, first, common)
    elif demand.event.id > (last if common is None else min(last, common)):
        message = f"there is no change {demand.event} any more: the log has gone on from an earlier state"
        if common is None:
            message = f"there is no change {demand.event}: the last one is {Event(last, now)}"
        raise _gone(message, demand, first, last if common is None else common)
    return int(last)


def _gone(message: str, demand: Demand, first: int, common: int) -> ServiceError:
    return ServiceError("gone", message, target=demand.target, firstId=first, lastCommonId=common)
