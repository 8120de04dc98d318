"""Past states: a company as of a version, which is a setting of the session as the company is, and the model of the past.

A reader of the views in schema `past` sets the version in one statement and reads in a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from app.database.catalog import Catalog
from app.errors import ServiceError

# The version is given, or found by its time: ids and times rise together, so a binary search over the kept ids finds it.  Rows have
# the columns of the time that is given, or else of the version's: columns change between two changes of a company.  is_whole: the
# version does not split the changes of a transaction.  since: all changes from this time on are kept.
NAME_VERSION: LiteralString = """
    with recursive log as (
        select bds.first_change(%(company)s) as first, coalesce(max(p.last_id), 0) as last
        from bds.positions p where p.company_id = %(company)s
    ),
    search (low, high) as (
        select l.first - 1, case when %(time)s::timestamptz is null then l.first - 1 else l.last end from log l
        union all
        select case when m.is_before then m.id else s.low end, case when m.is_before then s.high else m.id - 1 end
        from search s
        cross join lateral (
            select c.id, c.created_at <= %(time)s::timestamptz as is_before
            from bds.changes c where c.company_id = %(company)s and c.id = (s.low + s.high + 1) / 2
        ) m
        where s.low < s.high
    ),
    found as (
        select coalesce(%(version)s::int8, (select s.low from search s where s.low = s.high limit 1)) as version
    ),
    change as (
        select c.id, c.created_at, c.transaction_id
        from found f join bds.changes c on c.company_id = %(company)s and c.id in (f.version, f.version + 1)
    ),
    named as (
        select f.version, l.first, l.last,
            case when f.version = 0 then '-infinity' else coalesce(
                (select c.created_at from change c where c.id = f.version),
                (select c.created_at - interval '1 microsecond' from change c where c.id = f.version + 1),
                'infinity'
            ) end as at,
            (select count(distinct c.transaction_id) = count(*) from change c) as is_whole,
            (select coalesce(max(e.number), 0) from bds.erasures e where e.company_id = %(company)s) as erasures,
            coalesce(
                (select m.month from bds.change_months m where m.company_id = %(company)s and m.first_id = l.first),
                date_trunc('month', now(), 'UTC')
            ) as since
        from found f cross join log l
    )
    select n.version, n.first, n.last, n.erasures, %(time)s::timestamptz > clock_timestamp(), %(time)s::timestamptz < n.since,
        set_config('bds.version', n.version::text, %(local)s), set_config('bds.version_time', n.at::text, %(local)s),
        set_config('bds.moment', coalesce(%(time)s::timestamptz, n.at)::text, %(local)s),
        set_config('bds.version_is_whole', n.is_whole::text, %(local)s)
    from named n
"""

LAST_VERSION = 2**63 - 2  # the greatest that has a next one


@dataclass(frozen=True, slots=True)
class Moment:
    """A version, or a time in PostgreSQL's notation, from a request.  target: the parameter that gives it."""

    version: int | None = None
    time: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A version of a company.  erasures: the number of its last erasure, which changes past states."""

    version: int
    erasures: int
    target: str | None

    @property
    def state(self) -> str:
        """The state's part of an entity tag."""
        return f"{self.version}.{self.erasures}"


async def name_version(connection: psycopg.AsyncConnection[Any], company: str, moment: Moment) -> Past:
    """Find the version of a moment and set it for the session, which has named the company; in a transaction, until its end.

    Raises ServiceError: not_found for a version or time in the future, gone for one that retention has dropped.
    """
    local = connection.info.transaction_status == TransactionStatus.INTRANS
    return past_of(await (await connection.execute(NAME_VERSION, parameters(company, moment, local=local))).fetchone(), moment)


def parameters(company: str, moment: Moment, *, local: bool) -> dict[str, Any]:
    """The parameters of NAME_VERSION.  local: whether the version is named for the transaction alone."""
    version = None if moment.version is None else min(moment.version, LAST_VERSION)
    return {"company": company, "version": version, "time": moment.time, "local": local}


def past_of(row: tuple[Any, ...] | None, moment: Moment) -> Past:
    """What the row of NAME_VERSION says of a moment.  Raises ServiceError, as name_version does."""
    assert row is not None
    version, first, last, erasures, is_to_come, is_unsure, *_ = row
    if is_to_come:
        raise ServiceError("not_found", "this time is in the future", target=moment.target)
    if version is None:  # the search met a change that retention has just dropped
        raise _gone(first, moment.target)
    if version > last:
        raise ServiceError("not_found", f"version {moment.version} is yet to come: the last one is {last}", target=moment.target)
    # a time before the first kept month may lie before changes that were dropped, although the search ends at the last of them
    if version < first - 1 or (version == first - 1 and first > 1 and is_unsure):
        raise _gone(first, moment.target)
    return Past(version, erasures, moment.target)


async def open_past(connection: psycopg.AsyncConnection[Any], company: str, moment: Moment) -> Past:
    """Set the version of a moment for a transaction that has just begun; no later change is dropped until it ends.

    Its statements join many rows, and the planner does not know how many are rebuilt: if rows are looked for one by one, among all
    that may be related to them, they take minutes.
    """
    await connection.execute("lock table bds.changes in access share mode")
    await connection.execute("set local enable_nestloop = off; set local cursor_tuple_fraction = 1")
    return await name_version(connection, company, moment)


async def require_version_kept(connection: psycopg.AsyncConnection[Any], company: str, past: Past) -> None:
    """Raises ServiceError(gone) if changes after the version were dropped: rows read before may then be wrong."""
    row = await (await connection.execute("select bds.first_change(%s)", (company,))).fetchone()
    assert row is not None
    if past.version < row[0] - 1:
        raise _gone(row[0], past.target)


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
