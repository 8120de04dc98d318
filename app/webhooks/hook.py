"""A hook as a client describes it: the members of a JSON body, each checked."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

from yarl import URL

from app.database.catalog import Catalog, Entity
from app.errors import QueryError, ServiceError, about, did_you_mean
from app.query.sql.conditions import Condition, compile_any
from app.webhooks.addresses import AddressRefused, Resolver, is_literal

LONGEST_TEXT = 200  # characters
LONGEST_URL = 2_048
LONGEST_FILTER = 10_000
MOST_COLUMNS = 100
RESOLVE_TIMEOUT = 2.0  # seconds for the host name at registration; a name that is not found may exist when something is sent
URL_CHARACTERS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")  # those of RFC 3986
CREDENTIALS = re.compile("[^/?#]*//[^/?#]*@")  # empty ones too
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# the last label is not a number: some programs read such a host as an address, others as a name
HOST_NAME = re.compile(rf"(?=.{{1,253}}$)(?:{LABEL}\.)*(?![0-9]+\.?$|0[xX]){LABEL}\.?")

MEMBERS = "entity, url, action, filter, columns, allowInChangeSet, disabled"


@dataclass(frozen=True, slots=True)
class Hook:
    """The members that a client decides."""

    entity: str | None
    url: str
    filter: str | None = None
    columns: tuple[str, ...] | None = None
    allow_in_change_set: bool = False
    disabled: bool = False

    def check(self, catalog: Catalog) -> None:
        """Raises ServiceError `unknown_entity`, `malformed_request` about the columns, `malformed_query` about the filter."""
        entities = list(catalog.entities.values()) if self.entity is None else [_entity(catalog, self.entity)]
        for name in self.columns or ():
            if not any(name in watchable(entity) for entity in entities):
                raise invalid("columns", f"{self.entity} has no column {name}" if self.entity else f"no entity has a column {name}")
        if self.filter is not None:
            with about("filter"):
                compile_any(catalog, self.entity, self.filter)


def fit(catalog: Catalog, entity: str | None, filter: str) -> tuple[list[Condition], str | None]:
    """The compiled filter of a hook and None, or [] and the reason why the filter no longer fits the catalog."""
    if entity is not None and entity not in catalog:
        return [], f"no such entity: {entity}{did_you_mean(entity, catalog.entities)}"
    try:
        return compile_any(catalog, entity, filter), None
    except QueryError as error:
        return [], f"filter: {error.message}"


def watchable(entity: Entity) -> set[str]:
    """The names of columns that a hook may watch: fields, references, child collections."""
    return {*entity.fields, *(step.name for step in entity.navigations.values() if step.child or not step.many)}


def read_members(body: bytes) -> dict[str, Any]:
    """The members that a body gives, by the names of Hook's fields and of their types.  Raises malformed_request.

    An absent member is absent here too; null is None.
    """
    try:
        document = json.loads(body, object_pairs_hook=distinct)
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
                given["url"] = read_url(value)
            case "action":
                if value != "webhook":
                    raise invalid(name, "action: expected webhook")
            case "filter":
                given["filter"] = None if value is None or not _text(name, value, LONGEST_FILTER).strip() else value
            case "columns":
                given["columns"] = _columns(value)
            case "allowInChangeSet":
                given["allow_in_change_set"] = _boolean(name, value)
            case "disabled":
                given["disabled"] = _boolean(name, value)
            case _:
                raise invalid(name, f"{name} is not a member that can be set; expected some of {MEMBERS}")
    return given


def read_url(value: Any) -> str:
    """A url to which a POST can be sent.  Raises malformed_request."""
    text = _text("url", value, LONGEST_URL)
    try:
        parsed = URL(text)
        port = parsed.port
    except ValueError:
        raise invalid("url", "url: expected an http or https address, with a port from 1 to 65535 if any") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise invalid("url", "url: expected an http or https address with a host")
    if not URL_CHARACTERS.fullmatch(text):
        characters = 'spaces, control characters, letters beyond ASCII and any of "<>\\^`{|}'
        raise invalid("url", f"url: {characters} must be percent-encoded")
    if BAD_ESCAPE.search(text):
        raise invalid("url", "url: expected two hexadecimal digits after %")
    host = parsed.raw_host or ""
    if "%" in host or not (is_literal(host) or HOST_NAME.fullmatch(host)):
        raise invalid("url", f"url: the host {host} is neither a name nor an IP address")
    if not port:
        raise invalid("url", "url: expected a port from 1 to 65535")
    if CREDENTIALS.match(text):
        raise invalid("url", "url: must not contain credentials; deliveries are signed")
    if "#" in text:
        raise invalid("url", "url: must not contain a fragment, which is never sent")
    return text


async def check_address(url: str, allow_private: bool) -> None:
    """Raises malformed_request if the url's host is, or now resolves to, an address that is not public."""
    if allow_private:
        return
    host = URL(url).raw_host or ""  # as a delivery resolves it
    resolver = Resolver(allow_private)
    try:
        if is_literal(host):
            resolver.check(host, host)
        else:
            async with asyncio.timeout(RESOLVE_TIMEOUT):
                await resolver.resolve(host)
    except AddressRefused as refused:
        raise invalid("url", f"url: {refused}", reason="address_refused") from None
    except (OSError, TimeoutError, UnicodeError):
        pass  # the name may exist later; every delivery resolves it again
    finally:
        await resolver.close()


def invalid(target: str, message: str, **more: Any) -> ServiceError:
    """The error malformed_request about a member."""
    return ServiceError("malformed_request", message, target=target, **more)


def distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object.  Raises malformed_request if a name occurs twice."""
    document: dict[str, Any] = {}
    for name, value in members:
        if name in document:
            raise invalid(name, f"{name} is given twice")
        document[name] = value
    return document


def _columns(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_COLUMNS or not all(isinstance(name, str) for name in value):
        raise invalid("columns", f"columns: expected an array of at most {MOST_COLUMNS} column names")
    return tuple(dict.fromkeys(_text("columns", name) for name in value)) or None


def _text(name: str, value: Any, longest: int = LONGEST_TEXT) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > longest:
        raise invalid(name, f"{name}: expected text of at most {longest:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(name, f"{name}: expected valid Unicode, got half of a surrogate pair") from None
    return value


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, f"{name}: expected true or false")
    return value


def _entity(catalog: Catalog, name: str) -> Entity:
    if name not in catalog:
        message = f"no such entity: {name}{did_you_mean(name, catalog.entities)}"
        raise ServiceError("unknown_entity", message, target="entity")
    return catalog[name]
