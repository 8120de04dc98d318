"""Who did something, for people: a key by the name that it was given."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from app.web.site import Visit

PREFIX = "key "
NAMES = "select k.id, k.name from bds.keys_of(%s) k where k.id = any (%s)"


async def named(visit: Visit, actors: Iterable[str]) -> dict[str, str]:
    """What to show for actors as the change log has them: `key 36a6...` is its name, where the visitor may see the key."""
    ids = {actor: key for actor in set(actors) if (key := _key_of(actor))}
    if not ids or visit.identity.email is None:
        return {}
    async with visit.database.service() as connection:
        cursor = await connection.execute(NAMES, (visit.companies, list(ids.values())))
        names = dict(await cursor.fetchall())
    return {actor: f"{PREFIX}{names[key]}" for actor, key in ids.items() if key in names}


def _key_of(actor: str) -> UUID | None:
    try:
        return UUID(actor.removeprefix(PREFIX)) if actor.startswith(PREFIX) else None
    except ValueError:
        return None
