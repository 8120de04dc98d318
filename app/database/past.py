"""Past states: a company as of a version, which is a setting of the session as the company is, and the model of the past.

A reader of the views in schema `past` sets the version in one statement and reads in a later one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from app.database.catalog import Catalog
from app.database.pool.direct import checked, row_of, run_together
from app.database.pool.session import Row, Session, Value, read_row_on
from app.errors import ServiceError

T = TypeVar("T")

# Rows have the columns of the time that is given, or else of the version's: columns change between two changes of a company.
FIND: LiteralString = """
    from bds_service.find_version(%(company)s, %(version)s::int8, %(time)s::timestamptz, %(name)s::text, %(entity)s::text) v
"""
FOUND: LiteralString = """
    v.id, v.first_id, v.last_id, v.erasures, v.is_to_come, v.is_unsure, v.registered_id,
        (select p.generation from bds.company_positions p where p.company_id = %(company)s),
        (select extract(epoch from p.begun_at)::text from bds.company_positions p where p.company_id = %(company)s)
"""
SET_VERSION: LiteralString = """
    set_config('bds.version', v.id::text, %(local)s), set_config('bds.version_time', v.logged_at::text, %(local)s),
    set_config('bds.moment', v.moment::text, %(local)s), set_config('bds.version_is_whole', v.is_whole::text, %(local)s),
    set_config('bds.later', (v.last_id - v.id)::text, %(local)s),
    -- the changes of a row are found by its index alone, not also by the one of their times
    set_config('enable_bitmapscan', 'off', %(local)s)
"""
NAME_VERSION: LiteralString = f"select {FOUND}, {SET_VERSION} {FIND}"
PARAMETERS = ("company", "version", "time", "name", "local", "entity")
# For a statement that is planned once for all versions, and stays when a month of the log fills that was empty.
NAME_STEADILY = (
    f"""
    select json_build_array({FOUND}), {SET_VERSION}, set_config('plan_cache_mode', 'force_generic_plan', %(local)s),
        set_config('enable_seqscan', 'off', %(local)s)
    {FIND}
    """
    % {name: f"${n}" for n, name in enumerate(PARAMETERS, 1)}
).encode()
NAME_SINCE: LiteralString = f"""
    select {FOUND}, set_config('bds.since', v.id::text, %(local)s), set_config('bds.since_time', v.logged_at::text, %(local)s)
    {FIND}
"""

KEPT: LiteralString = "select bds.first_change(%s), set_config('enable_bitmapscan', null, false)"
FIRST = b"select bds.first_change($1)"
RESET: LiteralString = "reset enable_bitmapscan"

GROUP: LiteralString = "select set_config('bds.grouped_after', %s, true)"
# The last of the next rows that have changed, and their number.
CHANGED_ROWS: LiteralString = """
    select max(n.row_id), count(*)
    from (
        select c.row_id
        from past.last_changes(
            current_setting('bds.company'), %s, current_setting('bds.since')::int8, current_setting('bds.since_time')::timestamptz,
            current_setting('bds.version')::int8, current_setting('bds.version_time')::timestamptz
        ) as c
        where c.row_id > %s
        order by c.row_id
        limit %s
    ) as n
"""
FEW = 10_000  # changes between two versions up to which the last one of each row is found in their order
WINDOW = 1_000  # changes that are gone through at first, or four for each record of the page; then four times as many
SHARE = 64  # of the changes that remain, after which the last ones of rows are found at once: in 0.3 us for each change, else in 6

FAR = 10_000  # later changes from which an error tells that they take time
LAST_VERSION = 2**63 - 2  # the greatest that has a next one


@dataclass(frozen=True, slots=True)
class Moment:
    """A version, a time in PostgreSQL's notation or the name of a version, from a request; the last version if it is none of them.

    target: the parameter that gives it.
    """

    version: int | None = None
    time: str | None = None
    target: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A version of a company.

    erasures: the number of its last erasure, which changes past states; later: how many changes have followed.  generation, began:
    the company's present one, and when that began.
    """

    version: int
    erasures: int
    later: int
    target: str | None
    generation: int
    began: str

    @contextmanager
    def timely(self) -> Iterator[None]:
        """Reads as of the version.  Raises ServiceError(busy) where the statement timeout ends one and much has to be undone."""
        try:
            yield
        except psycopg.errors.QueryCanceled:
            if self.later < FAR:
                raise
            message = (
                f"the read took too long: {self.later:,} changes lie between version {self.version} and now. Expected rows by id, a"
                " nearer version, or an export with version= or at=, which may take any time"
            )
            raise ServiceError("busy", message, target=self.target, headers={"Retry-After": "5"}) from None

    def require_kept(self, first: int) -> None:
        """Raises ServiceError(gone) if the log is kept from a later change on."""
        if self.version < first - 1:
            raise _gone(first, self.target)

    @property
    def state(self) -> str:
        """The state's part of an entity tag."""
        return f"{self.generation}.{self.began}.{self.version}.{self.erasures}"


async def name_version(connection: psycopg.AsyncConnection[Any], company: str, moment: Moment) -> Past:
    """Find the version of a moment and set it for the session, which has named the company; in a transaction, until its end.

    Raises ServiceError: not_found for a version or time in the future and an unknown name, gone for one that retention has dropped.
    """
    return (await _find(connection, NAME_VERSION, company, moment)).kept()


async def name_range(
    connection: psycopg.AsyncConnection[Any], company: str, since: Moment, until: Moment, entities: Sequence[str] = ()
) -> tuple[Past, Past]:
    """Find the versions of two moments and set them for a transaction: the views of a range have what differs.

    entities: what has to be registered at the earlier one.  Raises ServiceError as name_version does, malformed_request for ends in
    the wrong order.
    """
    await connection.execute("lock table bds.changes in access share mode")
    # each row by its index: what is between two versions is little beside the log
    await connection.execute("set local enable_hashjoin = off; set local enable_mergejoin = off")
    begun = {entity: await _find(connection, NAME_SINCE, company, since, entity=entity) for entity in entities or (None,)}
    ended = await _find(connection, NAME_VERSION, company, until)
    earlier, later = next(iter(begun.values())).kept(), ended.kept()
    for entity, found in begun.items():
        if (first := found.registered) is not None:
            message = f"{entity} was not registered at version {earlier.version}: expected {first} or later"
            raise ServiceError("gone", message, target=since.target, firstId=first)
    if earlier.version > later.version:
        message = f"version {earlier.version} comes after version {later.version}: expected the earlier one as {since.target}"
        raise ServiceError("malformed_request", message, target=since.target)
    await connection.execute(GROUP, (str(earlier.version) if is_wide(earlier, later) else "",))
    return earlier, later


def is_wide(earlier: Past, later: Past) -> bool:
    """Whether there are so many changes between two versions that the last ones of rows are found at once."""
    return later.version - earlier.version > FEW


async def in_order(
    connection: psycopg.AsyncConnection[Any], after: int, last: int, wanted: int, read: Callable[[int, int], Awaitable[list[T]]]
) -> list[T]:
    """The first records of a range in the order of their versions, from a transaction that name_range has prepared.

    read: gives those with a version after one up to another, at least as many as are wanted or all.  As long as many changes are
    the last of their rows, they are gone through; rows that change again and again are found by all changes that remain.
    """
    found: list[T] = []
    begin, size = after, max(WINDOW, 4 * wanted)
    while True:
        is_rest = last - begin <= size
        is_grouped = not is_rest and (begin - after) * SHARE > last - begin
        end = last if is_rest or is_grouped else begin + size
        await connection.execute(GROUP, (str(begin) if is_grouped else "",))
        found += await read(begin, end)
        if end == last or len(found) >= wanted:
            return found[:wanted]
        begin, size = end, 4 * size


async def rows_in_order(
    connection: psycopg.AsyncConnection[Any], entity: str, after: int, wanted: int, read: Callable[[int, int], Awaitable[list[T]]]
) -> list[T]:
    """The first records of a range in the order of their rows' ids, as in_order gives those in the order of their versions."""
    found: list[T] = []
    while True:
        row = await (await connection.execute(CHANGED_ROWS, (entity, after, wanted))).fetchone()
        assert row is not None
        end, count = row
        if count:
            found += await read(after, end)
        if count < wanted or len(found) >= wanted:
            return found[:wanted]
        after = end


async def versions_of(connection: psycopg.AsyncConnection[Any], company: str, moments: Sequence[Moment]) -> list[int]:
    """The versions of moments.  Raises ServiceError as name_version does."""
    found = [await _find(connection, f"select {FOUND} {FIND}", company, moment) for moment in moments]
    return [each.kept().version for each in found]


@dataclass(frozen=True, slots=True)
class _Found:
    """What bds_service.find_version says of a moment that is not ahead.

    registered: the first version at which the entity is registered; None if it is at this one.
    """

    moment: Moment
    version: int
    first: int
    last: int
    erasures: int
    is_unsure: bool
    registered: int | None
    generation: int
    began: str

    def kept(self) -> Past:
        """Raises ServiceError(gone) for a version that is no longer kept."""
        # a time before the first kept month may lie before changes that were dropped, although the search ends at the last of them
        if self.version < self.first - 1 or (self.version == self.first - 1 and self.first > 1 and self.is_unsure):
            raise _gone(self.first, self.moment.target)
        return Past(self.version, self.erasures, self.last - self.version, self.moment.target, self.generation, self.began)


async def _find(
    connection: psycopg.AsyncConnection[Any], statement: LiteralString, company: str, moment: Moment, entity: str | None = None
) -> _Found:
    """Raises ServiceError as _read_found does."""
    local = connection.info.transaction_status == TransactionStatus.INTRANS
    row = await (await connection.execute(statement, parameters(company, moment, local=local, entity=entity))).fetchone()
    assert row is not None
    return _read_found(moment, row)


def _read_found(moment: Moment, row: Sequence[Any]) -> _Found:
    """From the columns of FOUND.  Raises ServiceError: not_found; gone if a change was dropped during the search."""
    version, first, last, erasures, is_to_come, is_unsure, registered, generation, began, *_ = row
    if is_to_come:
        raise ServiceError("not_found", "this time is in the future", target=moment.target)
    if version is None and moment.name is not None:
        raise ServiceError("not_found", f"no version is called {moment.name!r}", target=moment.target)
    if version is None:  # the search met a change that retention has just dropped
        raise _gone(first, moment.target)
    if version > last:
        raise ServiceError("not_found", f"version {moment.version} is yet to come: the last one is {last}", target=moment.target)
    return _Found(moment, version, first, last, erasures, bool(is_unsure), registered, generation or 1, began or "")


def parameters(company: str, moment: Moment, *, local: bool, entity: str | None = None) -> dict[str, Any]:
    """The parameters of NAME_VERSION.  local: whether the version is named for the transaction alone."""
    version = None if moment.version is None else min(moment.version, LAST_VERSION)
    return {"company": company, "version": version, "time": moment.time, "name": moment.name, "local": local, "entity": entity}


async def open_past(connection: psycopg.AsyncConnection[Any], company: str, moment: Moment) -> Past:
    """Set the version of a moment for a transaction that has just begun; no later change is dropped until it ends.

    Its statements join many rows, and the planner does not know how many are rebuilt: if rows are looked for one by one, among all
    that may be related to them, they take minutes.
    """
    await connection.execute("lock table bds.changes in access share mode")
    await connection.execute("set local enable_nestloop = off; set local cursor_tuple_fraction = 1")
    return await name_version(connection, company, moment)


@asynccontextmanager
async def reading_past(connection: psycopg.AsyncConnection[Any], company: str, moment: Moment) -> AsyncIterator[Past]:
    """Reads of a session without a transaction as of the version of a moment.

    Raises ServiceError as name_version does; gone if changes after the version were dropped: rows read before may then be wrong.
    """
    try:  # an error comes after the settings, too
        past = await name_version(connection, company, moment)
        with past.timely():
            yield past
        row = await (await connection.execute(KEPT, (company,))).fetchone()
    except BaseException:
        with suppress(psycopg.Error):
            await connection.execute(RESET)
        raise
    assert row is not None
    past.require_kept(row[0])


async def read_past(
    connection: Session, company: str, moment: Moment, text: bytes, values: Sequence[Value], *, is_steady: bool
) -> Row:
    """Run a statement that gives one row as of the version of a moment, in a session without a transaction.

    is_steady: whether its plan is the same for all versions, as one is that finds rows by their ids: then it is prepared, because
    it takes longer to plan than to run.  Raises psycopg.Error, and ServiceError as reading_past does.
    """
    if is_steady and connection.prepare_threshold is not None and connection.info.transaction_status == TransactionStatus.IDLE:
        return await _read_steadily(connection, company, moment, text, values)
    async with reading_past(connection, company, moment):
        return await read_row_on(connection, text, values, prepare=False)


async def _read_steadily(connection: Session, company: str, moment: Moment, text: bytes, values: Sequence[Value]) -> Row:
    given = parameters(company, moment, local=True)
    named = [None if given[name] is None else str(given[name]) for name in PARAMETERS]
    calls = ((NAME_STEADILY, named), (text, values), (FIRST, (company,)))
    found, result, first = await run_together(connection, calls, connection.past_statements)
    state = row_of(checked(found))[0]
    assert state is not None
    past = _read_found(moment, json.loads(state)).kept()
    with past.timely():
        row = row_of(checked(result))
    kept = row_of(checked(first))[0]
    assert kept is not None
    past.require_kept(int(kept))
    return row


def _gone(first: int, target: str | None) -> ServiceError:
    return ServiceError(
        "gone", f"the log is kept from change {first} on: expected version {first - 1} or later", target=target, firstId=first
    )


def model_of(catalog: Catalog) -> Catalog:
    """The model of past states: the current one, except that only id and updatedAt are required."""
    if not _models or _models[0].version != f"{catalog.version}-past":
        _models[:] = [_model(catalog)]
    return _models[0]


_models: list[Catalog] = []  # the last one that was made


def _model(catalog: Catalog) -> Catalog:
    entities = {
        name: replace(
            entity,
            fields={
                key: replace(field, required=field.required and key in ("id", "updatedAt")) for key, field in entity.fields.items()
            },
            navigations={key: replace(step, required=False) for key, step in entity.navigations.items()},
        )
        for name, entity in catalog.entities.items()
    }
    return replace(catalog, entities=entities, version=f"{catalog.version}-past", is_past=True)
