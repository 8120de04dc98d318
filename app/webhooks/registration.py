"""Hooks under /c: register, change, show and delete them, send a test, list and retry deliveries.

hook.py checks what a client sends; SQL functions (create_hook and others in schema bds) store it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

from app.database.database import Database
from app.database.listing import listing
from app.database.pools import Session
from app.errors import ServiceError
from app.webhooks.hook import Hook, check_address, invalid, read_members


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
            "select bds.create_hook(%(company)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s,"
            " %(disabled)s)",
            _parameters(company, hook),
        )


async def update(database: Database, company: str, hook_id: str, body: bytes) -> dict[str, Any]:
    """Change the given members of a hook (RFC 7396); returns the hook.  Raises ServiceError."""
    given = read_members(body)
    if "url" in given:
        await check_address(given["url"], database.config.webhook_allow_private)
    async with database.registration(company) as connection:
        stored = await _hook(connection, "select bds.hook_json(bds.lock_hook(%s, %s))", (company, _id(hook_id, "hook")))
        hook = replace(_stored(stored), **given)
        hook.check(database.catalog)
        return await _hook(
            connection,
            "select bds.update_hook(%(company)s, %(id)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s,"
            " %(disabled)s)",
            _parameters(company, hook) | {"id": hook_id},
        )


async def show(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """One hook.  Raises not_found."""
    async with database.registration(company) as connection:
        return await _existing(connection, company, hook_id)


async def delete(database: Database, company: str, hook_id: str) -> None:
    """Delete a hook.  Raises not_found."""
    async with database.registration(company) as connection:
        await connection.execute("select bds.delete_hook(%s, %s)", (company, _id(hook_id, "hook")))


async def hooks(database: Database, company: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of hooks, newest first."""
    async with database.registration(company) as connection:
        return await listing(
            connection,
            "select bds.hook_json(h) from bds.hooks h where h.company_id = %s and h.deleted_at is null"
            " order by h.number desc limit %s offset %s",
            (company,),
            *page,
        )


async def deliveries(database: Database, company: str, hook_id: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of a hook's deliveries, newest first.  Raises not_found."""
    async with database.registration(company) as connection:
        await _existing(connection, company, hook_id)
        return await listing(
            connection,
            "select bds.delivery_json(d) from (select * from bds.deliveries d where d.company_id = %s and d.hook_id = %s"
            " order by d.number desc limit %s offset %s) d",
            (company, hook_id),
            *page,
        )


async def queue(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """The queue of a hook: collected changes (`queued`), the end of their window (`batchAt`), and of its rest (`restsUntil`)."""
    async with database.registration(company) as connection:
        return await _hook(
            connection,
            "select json_build_object('queued', s.queued, 'batchAt', bds.api_time(s.batch_at),"
            " 'restsUntil', case when s.rests_until > clock_timestamp() then bds.api_time(s.rests_until) end)"
            " from bds.hook_states s where s.company_id = %s and s.hook_id = %s",
            (company, _id(hook_id, "hook")),
        )


async def test(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """Queue a delivery of an invented change.  Raises not_found."""
    async with database.registration(company) as connection:
        return {"deliveryId": str(await _fetch(connection, "select bds.test_hook(%s, %s)", (company, _id(hook_id, "hook"))))}


async def retry(database: Database, company: str, hook_id: str, delivery_id: str) -> dict[str, Any]:
    """Send a delivery that has ended again.  Raises not_found, conflict."""
    named = (company, _id(hook_id, "hook"), _id(delivery_id, "delivery"))
    async with database.registration(company) as connection:
        await connection.execute("select bds.retry_delivery(%s, %s, %s)", named)
    return {"deliveryId": str(UUID(delivery_id))}


def _id(text: str, what: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ServiceError("not_found", f"no such {what}: {text}") from None


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


def _parameters(company: str, hook: Hook) -> dict[str, Any]:
    return {
        **{each.name: getattr(hook, each.name) for each in fields(hook)},
        "columns": None if hook.columns is None else list(hook.columns),
        "company": company,
    }


async def _existing(connection: Session, company: str, hook_id: str) -> dict[str, Any]:
    """A hook as it is stored, without waiting for a session that changes it.  Raises not_found."""
    cursor = await connection.execute(
        "select bds.hook_json(h) from bds.hooks h where h.company_id = %s and h.id = %s and h.deleted_at is null",
        (company, _id(hook_id, "hook")),
    )
    row = await cursor.fetchone()
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
