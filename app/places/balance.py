"""Balancing places: which companies to move so that every place has its share of bytes and of changes.

A company weighs its share of all bytes plus its share of all recent changes.  Home gives companies away and gets none: it has the
accounts of all.  Places that are being drained are left out, and so are companies that are being moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from app.database.connections import connect
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import cluster

RECENT = 7  # days whose changes count
PAGES = 2_000  # of a table that are looked at to see which companies have its bytes
EVEN = 0.1  # of a place's mean weight, by which two places may differ

TABLES: LiteralString = """
    select t.table_name::text, sum(pg_total_relation_size(p.relid))::bigint, sum(pg_relation_size(p.relid) / 8192)::bigint
    from bds_operation.moved_tables() t
    cross join lateral (select relid from pg_partition_tree(t.table_name) union select t.table_name) p
    group by 1
"""
SHARES: LiteralString = """
    select company_id, sum(pg_column_size(t))::float8 / sum(sum(pg_column_size(t))) over ()::float8
    from {table} t tablesample system ({percent}) group by 1
"""
CHANGES: LiteralString = """
    select r.company_id, count(l.id)
    from bds.residents r
    left join bds.change_log l on l.company_id = r.company_id and l.created_at > now() - make_interval(days => %s)
    group by 1
"""
MOVING: LiteralString = "select company_id from bds.directory where phase is not null"
DRAINING: LiteralString = "select name from bds.places where is_draining"


class Company(NamedTuple):
    """A company, where it is, its bytes, and its changes of the last days."""

    name: str
    place: str
    size: int
    changes: int


@dataclass(frozen=True)
class Step:
    """A company that goes to another place."""

    company: Company
    target: str


def find_moving(urls: dict[str, str]) -> list[str]:
    """The companies that are being moved, or whose move was interrupted."""
    with connect(urls[HOME]) as home:
        return [name for (name,) in home.execute(MOVING)]


def plan(urls: dict[str, str]) -> list[Step]:
    """The moves after which no place has much more than its share; none if that is so already.

    Raises ServiceError: conflict where Citus places companies, or a place does not answer.
    """
    if cluster.is_coordinator(urls[HOME]):
        raise ServiceError("conflict", "Citus decides where companies are: expected bds node rebalance")
    with connect(urls[HOME]) as home:
        draining = {name for (name,) in home.execute(DRAINING)}
    moving = find_moving(urls)
    companies = [company for name in urls for company in _measure(urls[name], name) if company.name not in moving]
    return choose(companies, [name for name in urls if name not in draining])


def choose(companies: Iterable[Company], places: Sequence[str]) -> list[Step]:
    """The moves between `places`: from the heaviest one that has a company of the right weight to the lightest one."""
    here = {company.name: company for company in companies if company.place in places}
    weights = _weigh(list(here.values()))
    load = {place: sum(weights[each.name] for each in here.values() if each.place == place) for place in places}
    takers = [place for place in places if place != HOME]
    steps: list[Step] = []
    while step := _next(here, weights, load, takers):
        load[step.company.place] -= weights[step.company.name]
        load[step.target] += weights[step.company.name]
        del here[step.company.name]  # moves once
        steps.append(step)
    return steps


def _next(here: dict[str, Company], weights: dict[str, float], load: dict[str, float], takers: Sequence[str]) -> Step | None:
    """The next move; None if all is even, or if no company helps."""
    if not takers:
        return None
    target = min(takers, key=lambda place: load[place])
    enough = EVEN * sum(load.values()) / len(load)
    for source in sorted(load, key=lambda place: -load[place]):
        gap = load[source] - load[target]
        if gap <= enough:
            return None
        fitting = [each for each in here.values() if each.place == source and 0 < weights[each.name] < gap]
        if fitting:
            return Step(min(fitting, key=lambda each: (abs(weights[each.name] - gap / 2), each.size)), target)
    return None


def _weigh(companies: Sequence[Company]) -> dict[str, float]:
    size = sum(each.size for each in companies) or 1
    changes = sum(each.changes for each in companies) or 1
    return {each.name: each.size / size + each.changes / changes for each in companies}


def _measure(url: str, place: str) -> list[Company]:
    """The companies of a place.  Raises ServiceError if it does not answer."""
    try:
        with connect(url, "bds_owner") as connection:
            changes = dict(connection.execute(CHANGES, (RECENT,)).fetchall())
            sizes = dict.fromkeys(changes, 0.0)
            for table, size, pages in connection.execute(TABLES).fetchall():
                for name, share in _shares(connection, table, pages):
                    if name in sizes:
                        sizes[name] += size * share
    except psycopg.OperationalError as error:
        raise ServiceError("conflict", f"the place {place} does not answer", target="place") from error
    return [Company(name, place, round(sizes[name]), changes[name]) for name in sorted(changes)]


def _shares(connection: psycopg.Connection[Any], table: LiteralString, pages: int) -> list[tuple[str, float]]:
    """The share of a table's bytes that each company has, by a sample of its pages."""
    percent = min(100.0, 100.0 * PAGES / max(pages, 1))
    statement = sql.SQL(SHARES).format(table=sql.SQL(table), percent=sql.Literal(percent))
    return connection.execute(statement).fetchall()
