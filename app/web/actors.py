"""Display names of actors: an API key is shown by its name."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from app.web.page import PageRequest

PREFIX = "key "
NAMES = "select k.id, k.name from bds_service.keys_of(%s) k where k.id = any (%s)"


async def display_names(page: PageRequest, actors: Iterable[str]) -> dict[str, str]:
    """Map actors of the change log (`key 36a6...`) to the names of their keys, as far as the user may see those keys."""
    ids = {actor: key for actor in set(actors) if (key := _key_id(actor))}
    if not ids or page.identity.email is None:
        return {}
    async with page.database.service() as connection:
        cursor = await connection.execute(NAMES, (page.companies, list(ids.values())))
        names = dict(await cursor.fetchall())
    return {actor: f"{PREFIX}{names[key]}" for actor, key in ids.items() if key in names}


def _key_id(actor: str) -> UUID | None:
    try:
        return UUID(actor.removeprefix(PREFIX)) if actor.startswith(PREFIX) else None
    except ValueError:
        return None
