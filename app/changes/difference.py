"""The difference of two versions under /c: the rows of an entity that differ, page by page, and how many of each entity.

A page is the next records in the order of the rows' last changes, so a walk reads each change in between once.  Its later end is
fixed by the first page: the answer says which version it is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from app.changes.parameters import by_name, read_limit
from app.changes.rows import DEFAULT_LIMIT, Answer, read_id
from app.database.catalog import Catalog, Entity, Navigation
from app.database.database import Database
from app.database.past import Moment, Past, in_order, is_wide, model_of, name_range, rows_in_order
from app.database.pool.session import Session
from app.database.servers.reads import require_generation, require_position
from app.errors import QueryError, about
from app.query.check.moments import moment_of, read_moment
from app.query.check.query import Query
from app.query.check.tree import Column, Constant, Expression, walk
from app.query.check.where import Lookup, WhereChecker
from app.query.parse import where as parse_where
from app.query.parse.nodes import Name, Node
from app.query.sql.difference import IN_ORDER, ORDERS, Difference, counts, records
from app.query.sql.statements import page
from app.types import exact_json, literals
from app.types.literals import INT8

OPERATIONS = ("create", "update", "delete")
PAGE = ("filter", "sort", "after", "limit")
NOBODY = str(INT8[-1] + 1)  # the id of no row: ids may be negative


class Range:
    """The two ends of a difference, from the parameters of a request.  Raises QueryError, ServiceError."""

    def __init__(self, given: Mapping[str, str]) -> None:
        if "since" not in given:
            raise QueryError("since is missing: expected a version, its name or a time", target="since")
        self.since = read_moment(given["since"], "since")
        self.until = moment_of(given) or Moment()
        require_generation(given.get("generation"))

    @asynccontextmanager
    async def open(self, database: Database, company: str, entity: str | None = None) -> AsyncIterator[tuple[Session, Past, Past]]:
        """A reader's transaction whose views of a range have what differs, and the two versions.  Raises ServiceError."""
        require_position(max(self.since.version or 0, self.until.version or 0))
        async with database.session(company) as connection, connection.transaction():
            yield connection, *await name_range(connection, company, self.since, self.until, [entity] if entity else ())


def read_parameters(params: Sequence[tuple[str, str]], takes: Sequence[str] = ()) -> dict[str, str]:
    """The parameters of a difference by name.  takes: further ones.  Raises QueryError."""
    return by_name(params, ("since", "version", "at", "generation", *takes))


async def read_difference(database: Database, company: str, entity: Entity, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"data": [records], "hasMore": bool, "since", "version", "generation"}`.  Raises QueryError, ServiceError."""
    given = read_parameters(params, PAGE)
    range = Range(given)
    catalog = model_of(database.catalog)
    asked = _asked(catalog[entity.name], given)
    condition = _Condition(catalog, asked.entity, given.get("filter", ""))
    async with range.open(database, company, entity.name) as (connection, since, until):
        asked = replace(asked, filter=await condition.resolve(connection, company))
        rows = await _page(connection, company, catalog, replace(asked, limit=(asked.limit or 0) + 1), since, until)
    data, more = ",".join(text for _, text in rows[: asked.limit]), len(rows) > (asked.limit or 0)
    ends = _ends(since, until)
    body = f'{{"data":[{data}],"hasMore":{str(more).lower()},{exact_json.dumps(ends)[1:-1]}}}'
    return Answer(body.encode(), f"{since.state} {until.state}", min(len(rows), asked.limit or 0), until.generation)


async def _page(
    connection: Session, company: str, catalog: Catalog, asked: Difference, since: Past, until: Past
) -> list[tuple[int, str]]:
    """Rows of (value of the order, record): one more than are wanted, if there are."""

    async def read(asked: Difference) -> list[tuple[int, str]]:
        return await (await connection.execute(records(catalog, company, asked))).fetchall()

    async def read_part(after: int, upto: int) -> list[tuple[int, str]]:
        return await read(replace(asked, after=after, upto=upto))

    limit, after = asked.limit or 0, INT8[0] if asked.after is None else asked.after
    if asked.order == "version":
        await connection.execute(IN_ORDER)
        return await in_order(connection, max(since.version, after), until.version, limit, read_part)
    if is_wide(since, until):
        return await rows_in_order(connection, asked.entity.name, after, limit, read_part)
    return await read(asked)


async def read_counts(database: Database, company: str, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"since", "version", "generation", "entities": {name: counts}, "notices"}`.  Raises QueryError, ServiceError."""
    range = Range(read_parameters(params))
    entities = list(database.catalog.entities.values())
    async with range.open(database, company) as (connection, since, until):
        known = await _registered(connection, company, since, entities)
        found: dict[str, dict[str, int]] = {each.name: dict.fromkeys(OPERATIONS, 0) for each in entities if each.name in known}
        if found:
            statement = counts([each for each in entities if each.name in known], company)
            for name, operation, count in await (await connection.execute(statement)).fetchall():
                found[name][operation] = count
    shown = {
        name: {"created": each["create"], "updated": each["update"], "deleted": each["delete"]} for name, each in found.items()
    }
    notices = [f"{each.name} was not registered at version {since.version}" for each in entities if each.name not in known]
    body = exact_json.dumps({**_ends(since, until), "entities": shown, "notices": notices}, ensure_ascii=False)
    return Answer(body.encode(), f"{since.state} {until.state}", 0, until.generation)


def _ends(since: Past, until: Past) -> dict[str, int]:
    return {"since": since.version, "version": until.version, "generation": until.generation}


def _asked(entity: Entity, given: Mapping[str, str]) -> Difference:
    """What the parameters of a page ask for, without its filter.  Raises QueryError."""
    order = given.get("sort", "version")
    if order not in ORDERS:
        raise QueryError(f"sort: expected version or rowId, got {order!r}", target="sort")
    after = read_id(given["after"]) if "after" in given else None
    if after is None and "after" in given:
        raise QueryError(f"after: expected the {order} of the last record, got {given['after']!r}", target="after")
    limit = read_limit(given.get("limit"), DEFAULT_LIMIT)
    return Difference(entity, order=order, after=after, limit=limit)


async def _registered(connection: Session, company: str, since: Past, entities: Sequence[Entity]) -> set[str]:
    """The names of the entities that were registered at a version."""
    names = [each.name for each in entities]
    statement = """
        select e.name from unnest(%s::text[]) e (name)
        where (select v.registered_id from bds_service.find_version(%s, %s, entity => e.name) v) is null
    """
    rows = await (await connection.execute(statement, (names, company, since.version))).fetchall()
    return {name for (name,) in rows}


class _Condition:
    """A filter on an entity's own fields, whose lookups mean rows as of the later end.  Raises QueryError."""

    def __init__(self, catalog: Catalog, entity: Entity, text: str) -> None:
        self._catalog, self._entity = catalog, entity
        with about("filter"):
            self._node: Node | None = parse_where.parse_filter(text)
            self._lookups = self._check({})[1] if self._node else {}

    async def resolve(self, connection: Session, company: str) -> Expression | None:
        """The condition, with ids in place of lookups."""
        if self._node is None:
            return None
        ids = {lookup: await self._find(connection, company, lookup) for lookup in self._lookups}
        return self._check(ids)[0]

    def _check(self, ids: Mapping[Lookup, str]) -> tuple[Expression, dict[Lookup, None]]:
        assert self._node is not None
        checker = _RangeChecker(self._catalog, self._entity, ids)
        condition = checker.condition(self._node)
        for part in walk(condition):
            if isinstance(part, Column) and part.field.name == "updatedAt":
                raise QueryError("updatedAt is not compared: a filter cannot name it", position=part.at)
        return condition, checker.lookups

    async def _find(self, connection: Session, company: str, lookup: Lookup) -> str:
        entity = self._catalog[lookup.entity]
        field = entity.fields[lookup.field]
        checker = WhereChecker(self._catalog, entity)
        key = checker.compare(0, "eq", Column(0, field.type, (), field), Constant(0, field.type, lookup.value))
        statement = page(Query(self._catalog, entity, filter=key, single=True, select=(entity.fields["id"],)), company)
        row = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
        return str(json.loads(row[0])["id"]) if row and row[0] else NOBODY


class _RangeChecker(WhereChecker):
    """Checks the filter of a difference.  ids: of the rows that lookups name."""

    def __init__(self, catalog: Catalog, entity: Entity, ids: Mapping[Lookup, str]) -> None:
        super().__init__(catalog, entity)
        self._ids = ids

    def named(
        self, name: Name, path: tuple[Navigation, ...], target: Entity, field: Any, constants: list[Constant]
    ) -> tuple[Column, list[Constant]]:
        own = self.entity.fields[path[0].field if path else "id"]
        if field.name == "id":
            return Column(name.at, own.type, (), own), constants
        ids = [self._ids.get(Lookup(target.name, field.name, str(each.value)), NOBODY) for each in constants]
        return Column(name.at, own.type, (), own), [Constant(0, *literals.number(id)) for id in ids]
