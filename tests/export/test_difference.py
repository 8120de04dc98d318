"""What changed between two versions as a file, in every format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from app.config import Config
from app.database.database import Database
from app.errors import ServiceError
from app.export.output import find_output, write
from app.export.read import open_reader
from app.export.request import read_parameters, read_request, read_whole
from tests.conftest import Operator
from tests.export.exported import send
from tests.export.histories import History, content
from tests.feed.conftest import Feed

pytestmark = pytest.mark.slow


@dataclass
class Exports:
    """Exports of the companies of one database, without a service."""

    url: str
    operator: Operator
    database: Database
    runner: asyncio.Runner
    made: int = 0

    def company(self) -> Feed:
        self.made += 1
        return Feed(self.url, self.database.catalog, self.operator.company(f"c{self.made}"), self.operator)

    def get(self, company: str, entity: str | None, **options: Any) -> bytes:
        given = read_parameters([(name if name in PLAIN else f"${name}", str(value)) for name, value in options.items()])
        return self.runner.run(self._get(company, entity, given))

    async def _get(self, company: str, entity: str | None, given: dict[str, str]) -> bytes:
        catalog = self.database.catalog
        export = read_request(catalog, catalog[entity], company, given) if entity else read_whole(catalog, company, given)
        async with self.database.snapshot(company) as connection:
            output = await find_output(connection, export)
            export, reader = await open_reader(connection, export, 30)
            return b"".join([block async for block in write(export, reader, output)])

    def passed(self, company: str, since: int) -> bool:
        """Whether a unique value has passed between rows that exist at both ends."""
        query = """
            select exists (
                select from bds.entities e, bds.diff(%(company)s, e.name, %(since)s, %(until)s) a, bds.diff(%(company)s, e.name, %(since)s, %(until)s) b
                where a.operation = 'update' and b.operation = 'update' and a.row_id <> b.row_id and a.old ->> 'code' = b.new ->> 'code')
        """
        with self.operator.connection.transaction():
            self.operator.connection.execute("select set_config('bds.company', %s, true)", (company,))
            values = {"company": company, "since": since, "until": self.version(company)}
            return bool(self.operator.connection.execute(query.encode(), values).fetchall()[0][0])

    def version(self, company: str) -> int:
        return int(self.operator.rows("select last_id from bds.clocks where company_id = %s", (company,))[0][0])

    def content(self, company: str) -> Any:
        return content(self.operator, self.database.catalog, company)


PLAIN = ("format", "since", "version", "at", "generation", "mapper", "ids")


@pytest.fixture(scope="module")
def exports(module_database_url: str) -> Iterator[Exports]:
    with asyncio.Runner() as runner, psycopg.connect(module_database_url, autocommit=True) as connection:
        database = runner.run(Database.open(Config(database_url=module_database_url)))
        yield Exports(module_database_url, Operator(connection), database, runner)
        runner.run(database.close())


@pytest.mark.parametrize("seed", range(50))
def test_a_document_of_all_entities_brings_a_copy_from_one_version_to_another(exports: Exports, seed: int) -> None:
    source, copy = exports.company(), exports.company()
    history = History(exports.operator, source.company, seed, fresh=0.5 + (seed % 3) / 4)
    format = "xml" if seed % 2 else "json"
    since = 0
    for steps in (50, 25):
        history.run(steps)
        try:
            document = exports.get(source.company, None, format=format, since=since)
        except ServiceError as error:
            assert error.code == "unwritable" and exports.passed(source.company, since), error
            return
        assert not exports.passed(source.company, since)
        report = copy.send(document) if format == "json" else send(copy, "units", document)
        assert (report["state"], report["errors"]) == ("completed", []), document
        assert exports.content(copy.company) == exports.content(source.company), document
        since = exports.version(source.company)
