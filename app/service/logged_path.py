"""The path of a request as the log shows it, with names but no values.

It is the path of the request's route.  A parameter keeps what it holds if that is a company's name, an entity, or the number of
what the service itself has made, such as an import; anything else, a row's id too, is the parameter's name in braces.  A path
below OData's root keeps the model's words.  A path without a route keeps its first segment, if a route begins with that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

from aiohttp import web

from app.database.catalog import Catalog, Entity
from app.query.sql.cache import Cache
from app.wire.routing import find_match
from app.wire.target import ODATA, SLUG, Target

REST = "{...}"
PARAMETER = re.compile(r"\{(\w+)\}")
NUMBER = re.compile(r"[0-9]{1,19}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # of an import, a hook, a delivery, a key, a user
LONG = 200  # characters of a path, beyond which it is not kept
_words: Cache[str] = Cache(1_000)  # a path below OData's root up to its key, by catalog: to read it is a twelfth of a small answer
WORDS = frozenset({"", "$metadata", "$batch", "$all", "$entity", "$count", "$value", "$ref"})


def logged_path(request: web.Request, path: str, target: Target, catalog: Catalog) -> str:
    """The path for the log of a request with a raw path."""
    resource = request.match_info.route.resource
    found = (resource.canonical, request.match_info) if resource else find_match(request.app, path)
    if found is None:
        return _without_route(request.app, path)
    route, names = found
    if not target.is_odata:
        return _filled(route, names, catalog)
    words, parenthesis, key = path.partition("(")
    if "/" in key or words.count("/") < 4 or len(words) > LONG:
        return _odata_path(path, target, catalog)
    shown = _words.get((catalog.version, words), lambda: _odata_path(words, target, catalog))
    return f"{shown}({{key}})" if parenthesis and not shown.endswith(REST) else shown


def _filled(route: str, names: Mapping[str, str], catalog: Catalog) -> str:
    """A route's path with the parameters that hold no values."""
    if not names:
        return route
    kept = {}
    if SLUG.fullmatch(company := names.get("companyId", "")):
        kept["companyId"] = company
    if "entity" not in names:
        kept |= {name: names[name] for name in ("id", "deliveryId") if NUMBER.fullmatch(names.get(name, ""))}
    elif names["entity"] in catalog:  # whose ids are values
        kept["entity"] = names["entity"]
    return _put(route, tuple(kept.items()))


@lru_cache(maxsize=1024)  # in the way of every request
def _put(route: str, kept: tuple[tuple[str, str], ...]) -> str:
    """A route's path with what some of its parameters hold."""
    named = dict(kept)
    return PARAMETER.sub(lambda found: named.get(found[1], found[0]), route)


def _odata_path(path: str, target: Target, catalog: Catalog) -> str:
    """A path below OData's root with the model's names and the standard's words."""
    segments = path.split("/")[4:]
    shown = [ODATA]
    if target.segment:
        version = "@{version}" if "@" in unquote(target.segment) else ""
        shown.append((target.shown_company or "{companyId}") + version)
    entity: Entity | None = None
    for number, segment in enumerate(segments):
        name, parenthesis, _ = (unquote(segment) if "%" in segment else segment).partition("(")
        if number == 0 and name in catalog:
            entity = catalog[name]
        elif entity and name in entity.navigations:
            entity = catalog[entity.navigations[name].target]
        elif name not in WORDS and not (entity and name in entity.fields):
            shown.append(REST)
            break
        shown.append(f"{name}({{key}})" if parenthesis else name)
    return "/".join(shown)


def _without_route(app: web.Application, path: str) -> str:
    first, slash, _ = path.removeprefix("/").partition("/")
    is_known = any(each.canonical.startswith(f"/{first}/") for each in app.router.resources())
    return f"/{first}{slash}{slash and REST}" if is_known else f"/{REST}"
