"""A company to import into: the real importer over a real database, and queries about both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from app.database import connections
from app.database.catalog import Catalog
from app.database.pool.writers import Writers
from app.feed.run import Import
from tests.conftest import Operator

_numbers = count(1)

# The same examples in every run, none kept; the machine may be slow, and a test's company serves all of its examples.
settings.register_profile("feed", database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.load_profile("feed")


class Sessions:
    """Sessions for small imports into one database after another, kept as the service keeps them: a fresh one plans everything anew."""

    def __init__(self) -> None:
        self._url = ""
        self._writers = Writers("")

    def of(self, url: str) -> Writers:
        if url != self._url:
            self.end()
            self._url, self._writers = url, Writers(url)
        return self._writers

    def end(self) -> None:
        """An idle session reports what it has read only after ten seconds, or when it ends."""
        self._writers.close()
        self._url = ""


SESSIONS = Sessions()


@dataclass(frozen=True)
class Feed:
    """One company, empty at first."""

    url: str
    catalog: Catalog
    company: str
    operator: Operator

    def begin(self, **options: Any) -> Import:
        feed = Import(self.url, self.catalog, self.company, **options)
        feed.begin()
        return feed

    def send(self, document: Any = None, /, *, chunk: int = 1 << 20, dry_run: bool = False, **collections: Any) -> dict[str, Any]:
        """Import a document (bytes, or a value to encode) or the named collections; returns the report."""
        document = collections if document is None else document
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        feed = Import(self.url, self.catalog, self.company, dry_run=dry_run, writers=SESSIONS.of(self.url).session)
        try:
            for at in range(0, len(data), chunk):
                feed.receive(data[at : at + chunk])
            return feed.run()
        except BaseException as error:
            feed.fail(error)
            raise

    def good(self, document: Any = None, /, **collections: Any) -> dict[str, Any]:
        """The same, and nothing may fail.  Returns the counts by entity, without zeros."""
        report = self.send(document, **collections)
        assert report["state"] == "completed", report["errors"]
        assert not report["errors"]
        return counts(report)

    def rows(self, entity: str, *fields: str, order: str = "id") -> list[tuple[Any, ...]]:
        """The fields of an entity's rows, as the API's views show them."""
        names = ", ".join(f'"{field}"' for field in fields)
        return self.ask(f'select {names} from api."{entity}" order by "{order}"')

    def ask(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.operator.connection.transaction():
            self.operator.connection.execute("select set_config('bds.company', %s, true)", (self.company,))
            return self.operator.rows(query, parameters)

    def write(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.operator.write(self.company, statement, parameters)

    def log(self) -> list[tuple[Any, ...]]:
        """(id, entity, operation, columns) of every change record."""
        return self.ask(
            "select id, entity, operation, array(select unnest(columns) order by 1) from bds.changes where company_id = %s order by id",
            self.company,
        )

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of the company, updatedAt included."""
        return {entity: self.ask(f'select * from api."{entity}" order by id') for entity in self.catalog.entities}

    def staged(self) -> int:
        """The number of staging tables."""
        return int(self.operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace")[0][0])


def counts(report: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The counts of a report by entity, without zeros."""
    return {name: {k: n for k, n in each.items() if n} for name, each in report["entities"].items()}


def errors(report: dict[str, Any]) -> list[tuple[str, str]]:
    """(path, code) of a report's errors, without those of their batches."""
    assert report["errorCount"] == len(report["errors"])
    return [(e["path"], e["code"]) for e in report["errors"] if e["code"] != "batch_failed"]


@pytest.fixture(scope="module")
def companies(module_database_url: str) -> Iterator[Callable[[], Feed]]:
    """Makes companies in the module's database."""
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        with connections.connect(module_database_url) as reader:
            catalog = connections.read_catalog(reader)
        operator = Operator(connection)
        yield lambda: Feed(module_database_url, catalog, operator.company(f"c{next(_numbers)}"), operator)


@pytest.fixture
def feed(companies: Callable[[], Feed]) -> Iterator[Feed]:
    """A company of the test's own; checks that no staging tables stay behind."""
    feed = companies()
    yield feed
    assert feed.staged() == 0


def alone(url: str) -> Iterator[Feed]:
    """The only company of a database, which has the tables of the module's template."""
    with psycopg.connect(url, autocommit=True) as connection:
        with connections.connect(url) as reader:
            catalog = connections.read_catalog(reader)
        operator = Operator(connection)
        yield Feed(url, catalog, operator.company("acme"), operator)


STAFF = """
create table data.teams (
    company_id text collate "C" not null, id bigint not null generated by default as identity, code text collate "C" not null,
    lead_id bigint, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code)
);
create table data.people (
    company_id text collate "C" not null, id bigint not null generated by default as identity, code text collate "C" not null,
    team_id bigint, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code),
    foreign key (company_id, team_id) references data.teams (company_id, id)
);
create table data.badges (
    company_id text collate "C" not null, id bigint not null generated by default as identity, code text collate "C" not null,
    person_id bigint not null, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code),
    foreign key (company_id, person_id) references data.people (company_id, id)
);
alter table data.teams add foreign key (company_id, lead_id) references data.people (company_id, id);
select bds.register('data.badges');
select bds.register('data.teams');
select bds.register('data.people', singular => 'person');
select bds.register('data.teams'), bds.register('data.badges');
"""


@pytest.fixture
def staff(database_url: str) -> Iterator[Feed]:
    """A company with teams that have a lead, people that have a team, and badges of people; the template has STAFF."""
    yield from alone(database_url)
