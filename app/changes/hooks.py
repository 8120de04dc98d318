"""Hooks under /c: registration, test and retry by hand, their deliveries.

What a client sends is checked here, member by member; what the database keeps, and what follows from it, is in sql/60_webhooks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from yarl import URL

from app.addresses import AddressRefused, Resolver, is_literal
from app.catalog import Catalog, Entity
from app.db import Database, Session
from app.errors import ServiceError
from app.language.condition import Condition, compile_any
from app.language.query import about

LONGEST_URL = 2_048
LONGEST_FILTER = 10_000
MOST_COLUMNS = 100
LOOK_UP = 2.0  # seconds that a name may take; one that is not found now may be there when something is sent
URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")  # those of RFC 3986
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# the last label is no number: such a host is an address to some and a name to others
HOST_NAME = re.compile(rf"(?=.{{1,253}}$)(?:{LABEL}\.)*(?![0-9]+\.?$|0[xX]){LABEL}\.?")

MEMBERS = "entity, url, action, filter, columns, allowInChangeSet, disabled"


@dataclass(frozen=True, slots=True)
class Hook:
    """What a client decides about a hook."""

    entity: str | None
    url: str
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    allow_in_change_set: bool = False
    disabled: bool = False

    def compile(self, catalog: Catalog) -> list[Condition] | None:
        """The filter, for each entity that it fits; None without one.  Raises ServiceError about entity, columns or filter."""
        entities = list(catalog.entities.values()) if self.entity is None else [_entity(catalog, self.entity)]
        for name in self.columns or ():
            if not any(name in watchable(entity) for entity in entities):
                where = f"{self.entity} has" if self.entity else "no entity has"
                raise _wrong("columns", f"{where} {'no' if self.entity else 'a'} column {name}")
        if self.filter is None:
            return None
        with about("filter"):
            return compile_any(catalog, self.entity, self.filter)


def watchable(entity: Entity) -> set[str]:
    """The names of columns that a hook may watch: fields, references, child collections."""
    return {*entity.fields, *(step.name for step in entity.navigations.values() if step.child or not step.many)}


async def create(database: Database, company: str, body: bytes) -> dict[str, Any]:
    """Register a hook; returns it with its secret.  Raises ServiceError."""
    given = read_members(body)
    for name in ("entity", "url"):
        if name not in given:
            expected = "an entity's name, or null for all entities" if name == "entity" else "an http or https address"
            raise _wrong(name, f"{name} is missing; expected {expected}")
    hook = Hook(**given)
    filters = hook.compile(database.catalog)
    await check_address(hook.url, database.config.webhook_allow_private)
    async with database.registration(company) as connection:
        return await _hook(
            connection,
            "select bds.create_hook(%(company)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s,"
            " %(disabled)s, %(filters)s, %(version)s)",
            _parameters(company, hook, filters, database.catalog.version),
        )


async def update(database: Database, company: str, hook_id: str, body: bytes) -> dict[str, Any]:
    """Change the members that are given (RFC 7396); returns the hook.  Raises ServiceError."""
    given = read_members(body)
    if "url" in given:
        await check_address(given["url"], database.config.webhook_allow_private)
    catalog = database.catalog
    async with database.registration(company) as connection:
        stored = await _hook(connection, "select bds.hook_json(bds.lock_hook(%s, %s))", (company, _id(hook_id, "hook")))
        hook = replace(_stored(stored), **given)
        return await _hook(
            connection,
            "select bds.update_hook(%(company)s, %(id)s, %(entity)s, %(url)s, %(filter)s, %(columns)s, %(allow_in_change_set)s,"
            " %(disabled)s, %(filters)s, %(version)s)",
            _parameters(company, hook, hook.compile(catalog), catalog.version) | {"id": hook_id},
        )


async def show(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """One hook.  Raises not_found."""
    async with database.registration(company) as connection:
        return await _existing(connection, company, hook_id)


async def delete(database: Database, company: str, hook_id: str) -> None:
    """End a hook.  Raises not_found."""
    async with database.registration(company) as connection:
        await connection.execute("select bds.delete_hook(%s, %s)", (company, _id(hook_id, "hook")))


async def listing(database: Database, company: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of hooks, newest first."""
    limit, offset = page
    async with database.registration(company) as connection:
        cursor = await connection.execute(
            "select bds.hook_json(h) from bds.hooks h where h.company_id = %s and h.deleted_at is null"
            " order by h.number desc limit %s offset %s",
            (company, limit + 1, offset),
        )
        rows = [row[0] for row in await cursor.fetchall()]
    return {"data": rows[:limit], "hasMore": len(rows) > limit}


async def deliveries(database: Database, company: str, hook_id: str, page: tuple[int, int]) -> dict[str, Any]:
    """A page (limit, offset) of a hook's deliveries, newest first.  Raises not_found."""
    limit, offset = page
    async with database.registration(company) as connection:
        await _existing(connection, company, hook_id)
        cursor = await connection.execute(
            "select bds.delivery_json(d) from (select * from bds.deliveries d where d.company_id = %s and d.hook_id = %s"
            " order by d.number desc limit %s offset %s) d",
            (company, hook_id, limit + 1, offset),
        )
        rows = [row[0] for row in await cursor.fetchall()]
    return {"data": rows[:limit], "hasMore": len(rows) > limit}


async def queue(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """What waits for a hook: changes that are collected (`queued`, until `batchAt`), and until when it rests (`restsUntil`)."""
    async with database.registration(company) as connection:
        return await _hook(
            connection,
            "select json_build_object('queued', s.queued, 'batchAt', bds.api_time(s.batch_at),"
            " 'restsUntil', case when s.rests_until > clock_timestamp() then bds.api_time(s.rests_until) end)"
            " from bds.hook_states s where s.company_id = %s and s.hook_id = %s",
            (company, _id(hook_id, "hook")),
        )


async def test(database: Database, company: str, hook_id: str) -> dict[str, Any]:
    """Queue a delivery of a made-up change.  Raises not_found."""
    async with database.registration(company) as connection:
        return {"deliveryId": str(await _fetch(connection, "select bds.test_hook(%s, %s)", (company, _id(hook_id, "hook"))))}


async def retry(database: Database, company: str, hook_id: str, delivery_id: str) -> dict[str, Any]:
    """Send a delivery again that has ended.  Raises not_found, conflict."""
    named = (company, _id(hook_id, "hook"), _id(delivery_id, "delivery"))
    async with database.registration(company) as connection:
        await connection.execute("select bds.retry_delivery(%s, %s, %s)", named)
    return {"deliveryId": str(UUID(delivery_id))}


# What a client sends --------------------------------------------------------------------------------------------------------------


def read_members(body: bytes) -> dict[str, Any]:
    """The members of a registration that are given, as fields of Hook, each of its type.  Raises malformed_request."""
    try:
        document = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ServiceError("malformed_request", "the body is not well-formed JSON") from None
    if not isinstance(document, dict):
        raise ServiceError("malformed_request", "expected a JSON object")
    given: dict[str, Any] = {}
    for name, value in document.items():
        match name:
            case "entity":
                given["entity"] = None if value is None else _text(name, value)
            case "url":
                given["url"] = check_url(value)
            case "action":
                if value != "webhook":
                    raise _wrong(name, "action: expected webhook")
            case "filter":
                given["filter"] = None if value is None or not _text(name, value, LONGEST_FILTER).strip() else value
            case "columns":
                given["columns"] = _columns(value)
            case "allowInChangeSet":
                given["allow_in_change_set"] = _truth(name, value)
            case "disabled":
                given["disabled"] = _truth(name, value)
            case _:
                raise _wrong(name, f"a hook has no member {name} that can be set; expected some of {MEMBERS}")
    return given


def check_url(url: Any) -> str:
    """The url, if something could be sent to it.  Raises malformed_request."""
    text = _text("url", url, LONGEST_URL)
    try:
        parsed = URL(text)
        port = parsed.port
    except ValueError:
        raise _wrong("url", "url: this is no address that can be read") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _wrong("url", "url: expected an http or https address with a host")
    if not URL_CHARACTERS.fullmatch(text):
        what = 'spaces, control characters, letters beyond ASCII and any of "<>\\^`{|}'
        raise _wrong("url", f"url: {what} must be percent-encoded")
    if BAD_ESCAPE.search(text):
        raise _wrong("url", "url: expected two hexadecimal digits after %")
    host = parsed.raw_host or ""
    if "%" in host or not (is_literal(host) or HOST_NAME.fullmatch(host)):
        raise _wrong("url", f"url: its host {host} is neither a name nor an address")
    if not port:
        raise _wrong("url", "url: expected a port from 1 to 65535")
    if parsed.raw_user is not None or parsed.raw_password is not None:
        raise _wrong("url", "url: credentials do not belong into it; deliveries are signed")
    if "#" in text:
        raise _wrong("url", "url: a fragment is never sent")
    return text


async def check_address(url: str, allow_private: bool) -> None:
    """Raises malformed_request if the url leads, as far as one can tell now, to an address that is not public."""
    if allow_private:
        return
    host = URL(url).host or ""
    resolver = Resolver(allow_private)
    try:
        if is_literal(host):
            resolver.check(host, host)
        else:
            async with asyncio.timeout(LOOK_UP):
                await resolver.resolve(host)
    except AddressRefused as refused:
        raise _wrong("url", f"url: {refused}, and nothing is sent there", reason="address_refused") from None
    except (OSError, TimeoutError, UnicodeError):
        pass  # a name that is not known yet; every delivery looks again
    finally:
        await resolver.close()


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object.  Raises malformed_request if one of them is there twice."""
    document: dict[str, Any] = {}
    for name, value in members:
        if name in document:
            raise _wrong(name, f"{name} is given twice")
        document[name] = value
    return document


def _columns(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_COLUMNS or not all(isinstance(name, str) for name in value):
        raise _wrong("columns", f"columns: expected an array of at most {MOST_COLUMNS} column names")
    return tuple(dict.fromkeys(_text("columns", name) for name in value)) or None


def _text(name: str, value: Any, longest: int = 200) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > longest:
        raise _wrong(name, f"{name}: expected a text of at most {longest:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(name, f"{name}: this is not valid Unicode") from None
    return value


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, f"{name}: expected true or false")
    return value


def _entity(catalog: Catalog, name: str) -> Entity:
    if name not in catalog:
        raise ServiceError("unknown_entity", f"there is no entity {name}", target="entity")
    return catalog[name]


def _wrong(target: str, message: str, **more: Any) -> ServiceError:
    return ServiceError("malformed_request", message, target=target, **more)


def _id(text: str, what: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ServiceError("not_found", f"there is no {what} {text}") from None


# What the database is asked -------------------------------------------------------------------------------------------------------


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


def _parameters(company: str, hook: Hook, filters: Sequence[Condition] | None, version: str) -> dict[str, Any]:
    return {
        **{each.name: getattr(hook, each.name) for each in fields(hook)},
        "columns": None if hook.columns is None else list(hook.columns),
        "company": company,
        "filters": None if filters is None else json.dumps([each.members() for each in filters]),
        "version": version,
    }


async def _existing(connection: Session, company: str, hook_id: str) -> dict[str, Any]:
    """A hook as it is, without waiting for whoever changes it.  Raises not_found."""
    cursor = await connection.execute(
        "select bds.hook_json(h) from bds.hooks h where h.company_id = %s and h.id = %s and h.deleted_at is null",
        (company, _id(hook_id, "hook")),
    )
    row = await cursor.fetchone()
    if row is None:
        raise ServiceError("not_found", f"there is no hook {hook_id}")
    hook: dict[str, Any] = row[0]
    return hook


async def _hook(connection: Session, statement: Any, parameters: Any) -> dict[str, Any]:
    hook: dict[str, Any] = await _fetch(connection, statement, parameters)
    return hook


async def _fetch(connection: Session, statement: Any, parameters: Any) -> Any:
    row = await (await connection.execute(statement, parameters)).fetchone()
    assert row is not None
    return row[0]
