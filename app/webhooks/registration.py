"""Hooks under /c: register, change, show and delete them, rotate their secrets, send a test, show and retry deliveries.

hook.py checks what a client sends; SQL functions (create_hook and others in schema bds) store it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, LiteralString

from app.database.database import Database
from app.database.listing import listing
from app.database.pool.session import Session
from app.errors import ServiceError
from app.webhooks.hook import Hook, check_address, invalid, read_members
from app.wire.urls import read_id

HOOKS: LiteralString = """
    select bds_service.hook_json(h, s) from bds.hooks h join bds.hook_health s on s.company_id = h.company_id and s.hook_id = h.id
    where h.company_id = %s and h.deleted_at is null
"""
CREATE: LiteralString = """
    select bds.create_hook(%(company)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s, %(disabled)s)
"""
DELIVERIES: LiteralString = """
    from bds.deliveries d join bds.hook_states s on s.company_id = d.company_id and s.hook_id = d.hook_id
    where d.company_id = %s and d.hook_id = %s
"""


async def create(database: Database, company: str, body: bytes) -> dict[str, Any]:
    """Register a hook; returns it with its secret.  Raises ServiceError."""
    given = read_members(body)
    for name in ("entity", "url"):
        if name not in given:
            expected = "an entity's name, or null for all entities" if name == "entity" else "an http or https address"
            raise invalid(name, f"{name} is missing; expected {expected}")
    hook = Hook(**given)
    hook.check(database.catalog)
    await check_address(hook.url, database.config.webhook_allow_private)
    async with database.registration(company) as connection:
        return await _hook(
            connection,
            CREATE,
            parameters(company, hook),
        )


async def update(database: Database, company: str, hook_id: str, body: bytes) -> dict[str, Any]:
    """Change the given members of a hook (RFC 7396); returns the hook.  Raises ServiceError."""
    given = read_members(body)
    if "url" in given:
        await check_address(given["url"], database.config.webhook_allow_private)
    async with database.registration(company) as connection:
        await connection.execute("select bds_service.lock_hook(%s, %s)", (company, id := read_id(hook_id, "hook")))
        stored = await _existing(connection, company, id)
        hook = replace(_stored(stored), **given)
        hook.check(database.catalog)
        return await _hook(
            connection,
            "select bds.update_hook(%(company)s, %(id)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s,"
            " %(disabled)s)",
            parameters(company, hook) | {"id": id},
        )


async def show(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """One hook.  Raises not_found."""
    async with database.registration(company) as connection:
        return await _existing(connection, company, hook_id)


async def delete(database: Database, company: str, hook_id: str) -> None:
    """Delete a hook.  Raises not_found."""
    async with database.registration(company) as connection:
        await connection.execute("select bds.delete_hook(%s, %s)", (company, read_id(hook_id, "hook")))


async def hooks(database: Database, company: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of hooks, newest first."""
    async with database.registration(company) as connection:
        return await listing(
            connection,
            HOOKS + " order by h.number desc limit %s offset %s",
            (company,),
            *page,
        )


async def deliveries(database: Database, company: str, hook_id: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of a hook's deliveries, newest first.  Raises not_found."""
    async with database.registration(company) as connection:
        hook = await _existing(connection, company, hook_id)
        return await listing(
            connection,
            "select bds_service.delivery_json(d, s)" + DELIVERIES + " order by d.number desc limit %s offset %s",
            (company, hook["id"]),
            *page,
        )


async def delivery(database: Database, company: str, hook_id: str, delivery_id: str) -> dict[str, Any]:
    """One delivery of a hook, with the body that is sent.  Raises not_found."""
    named = (company, read_id(hook_id, "hook"), read_id(delivery_id, "delivery"))
    async with database.registration(company) as connection:
        await _existing(connection, company, hook_id)
        query = "select bds_service.delivery_json(d, s), d.body" + DELIVERIES + " and d.id = %s"
        row = await (await connection.execute(query, named)).fetchone()
    if row is None:
        raise ServiceError("not_found", f"the hook has no delivery {delivery_id}")
    return {**row[0], "body": json.loads(row[1])}


async def rotate(database: Database, company: str, hook_id: str, *, revoke: bool) -> dict[str, Any]:
    """Give a hook a new secret; returns it.  revoke: the previous one ends now, otherwise in a day.  Raises not_found."""
    named = (company, read_id(hook_id, "hook"), revoke)
    async with database.registration(company) as connection:
        return {"secret": await _fetch(connection, "select bds.rotate_hook(%s, %s, %s)", named)}


async def test(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """Queue a delivery of a made-up change.  Raises not_found."""
    async with database.registration(company) as connection:
        return {"deliveryId": str(await _fetch(connection, "select bds.test_hook(%s, %s)", (company, read_id(hook_id, "hook"))))}


async def end_rest(database: Database, company: str, hook_id: str) -> None:
    """End the rest of a hook.  Raises not_found, conflict for a hook that does not rest."""
    async with database.registration(company) as connection:
        await connection.execute("select bds_service.end_rest(%s, %s)", (company, read_id(hook_id, "hook")))


async def retry(database: Database, company: str, hook_id: str, delivery_id: str) -> dict[str, Any]:
    """Make a delivery the next one of its hook.  Raises not_found, conflict."""
    named = (company, read_id(hook_id, "hook"), read_id(delivery_id, "delivery"))
    async with database.registration(company) as connection:
        await connection.execute("select bds.retry_delivery(%s, %s, %s)", named)
    return {"deliveryId": named[2]}


def _stored(hook: Mapping[str, Any]) -> Hook:
    columns = hook["columns"]
    return Hook(
        entity=hook["entity"],
        url=hook["url"],
        filter=hook["filter"],
        columns=None if columns is None else tuple(columns),
        allow_in_change_set=hook["allowInChangeSet"],
        disabled=hook["disabled"],
    )


def parameters(company: str, hook: Hook) -> dict[str, Any]:
    """The parameters of CREATE and of the statement that changes a hook."""
    return {
        **{each.name: getattr(hook, each.name) for each in fields(hook)},
        "columns": None if hook.columns is None else list(hook.columns),
        "company": company,
    }


async def _existing(connection: Session, company: str, hook_id: str) -> dict[str, Any]:
    """A hook as stored, read without its lock.  Raises not_found."""
    row = await (await connection.execute(HOOKS + " and h.id = %s", (company, read_id(hook_id, "hook")))).fetchone()
    if row is None:
        raise ServiceError("not_found", f"no such hook: {hook_id}")
    hook: dict[str, Any] = row[0]
    return hook


async def _hook(connection: Session, statement: Any, parameters: Any) -> dict[str, Any]:
    hook: dict[str, Any] = await _fetch(connection, statement, parameters)
    return hook


async def _fetch(connection: Session, statement: Any, parameters: Any) -> Any:
    row = await (await connection.execute(statement, parameters)).fetchone()
    assert row is not None
    return row[0]
