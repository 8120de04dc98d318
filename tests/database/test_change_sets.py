"""Change sets: their counts are those of the log, whoever has counted, and whenever."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.changes.test_months_under_followers import ATTACH, DETACH
from tests.conftest import NO_MONTHS, Operator
from tests.database.aging import age

FOUND = """
    select coalesce(change_set_id::text, 'changes from ' || first_id), kind, actor, first_id, last_id, first_at, last_at, entities
    from bds.change_sets where company_id = 'acme' order by last_id desc
"""
PAGE = FOUND.replace("bds.change_sets where company_id = 'acme'", "bds_service.change_sets('acme', %s, %s)")
LOG = """
    select coalesce(change_set_id::text, transaction_id::text), change_set_id is null, id, entity, operation, actor, created_at
    from bds.changes where company_id = 'acme' and id >= bds.first_change('acme') order by id
"""
COUNT = "select done, problem from bds.maintain() where step = 'count change sets'"
WORDS = {"create": "created", "update": "updated", "delete": "deleted"}
POOL = [str(UUID(int=n)) for n in (1, 2, 3)]
A, B, _ = POOL


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def acme(operator: Operator) -> Iterator[Operator]:
    operator.company("acme")
    yield operator


def found(operator: Operator) -> list[tuple[Any, ...]]:
    return operator.rows(FOUND)


def of_the_log(operator: Operator) -> list[tuple[Any, ...]]:
    """What bds.change_sets should have, from each record of the log."""
    sets: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *record in operator.rows(LOG):
        sets[key].append(tuple(record))
    imports = {str(id): reverts for id, reverts in operator.rows("select id, reverts from bds.imports where company_id = 'acme'")}
    expected = []
    for key, records in sets.items():
        counts: dict[str, dict[str, int]] = defaultdict(lambda: {"created": 0, "updated": 0, "deleted": 0})
        for _, _, entity, operation, *_ in records:
            counts[entity][WORDS[operation]] += 1
        alone, first, *_, first_at = records[0]
        _, last, *_, actor, last_at = records[-1]
        kind = "session" if key not in imports else "import" if imports[key] is None else "revert"
        expected.append((f"changes from {first}" if alone else key, kind, actor, first, last, first_at, last_at, dict(counts)))
    return sorted(expected, key=lambda each: -each[4])


class History:
    """Random writers of the company acme.  Each step is one of its methods."""

    def __init__(self, operator: Operator, seed: int) -> None:
        self.operator, self.random = operator, Random(seed)
        self.number = 0

    def step(self) -> None:
        steps = [self.sessions] * 4 + [self.small_import] * 2 + [self.large_import, self.revert, self.addition, self.undone]
        self.random.choice([*steps, self.together, self.maintain])()

    def maintain(self) -> None:
        assert self.operator.rows(COUNT)[0][1] is None

    def code(self) -> str:
        self.number += 1
        return f"C{self.number}"

    def context(self, change_set: str | None) -> None:
        actor = self.random.choice(["ann", "ben"])
        self.operator.connection.execute("select bds.set_context('acme', %s, %s)", (actor, change_set))

    def write(self) -> None:
        """A statement over some rows, or none."""
        code, some = self.code(), self.random.randint(1, 6)
        self.operator.connection.execute(self.random.choice([
            f"insert into data.categories (code, name) select '{code}-' || n, 'n' from generate_series(1, {some}) n",
            f"insert into data.products (code, name) select '{code}-' || n, 'n' from generate_series(1, {some}) n",
            f"insert into data.product_variants (code, product_id) select '{code}-' || p.id, p.id from data.products p limit {some}",
            f"update data.products set name = '{code}' where id %% 3 = {some % 3}",
            f"update data.categories set name = '{code}' where id %% 3 = {some % 3}",
            f"delete from data.product_variants where id %% 5 = {some % 5}",
            f"delete from data.categories where id %% 5 = {some % 5}",
        ]).replace("%%", "%").encode())  # fmt: skip

    def sessions(self) -> None:
        with self.operator.connection.transaction():
            for _ in range(self.random.randint(1, 3)):
                self.context(self.random.choice([None, None, *POOL]))
                for _ in range(self.random.randint(1, 3)):
                    self.write()

    def undone(self) -> None:
        with suppress(ZeroDivisionError), self.operator.connection.transaction():
            self.context(self.random.choice([None, *POOL]))
            self.write()
            self.small_import()
            raise ZeroDivisionError

    def small_import(self) -> None:
        products = [
            {"code": self.code(), "name": "p", "variants": [{"code": self.code()} for _ in range(self.random.randint(0, 2))]}
            for _ in range(self.random.randint(0, 3))
        ]
        document = {"products": [*products, {"code": f"C{self.random.randint(1, 40)}", "name": self.code()}]}
        dry = self.random.random() < 0.2
        self.operator.rows("select bds.import_document('acme', %s, 'ann', dry_run => %s)", (json.dumps(document), dry))

    def large_import(self) -> None:
        [(id,)] = self.operator.rows("select bds.import_begin('acme', 'ben')")
        [(table,)] = self.operator.rows("select bds.import_stage('acme', %s, 'categories')", (id,))
        self.operator.connection.execute(
            f"""insert into {table} ("@ordinal", code, name) select n, 'C' || n, 'l{self.code()}' from generate_series(1, 20) n""".encode()
        )
        if self.random.random() < 0.3:  # its change set is a session's first
            self.operator.write("acme", f"insert into data.units (code, name) values ('{self.code()}', 'u')", change_set=str(id))
        self.operator.rows("select bds.import_run('acme', %s)", (id,))

    def revert(self) -> None:
        sets = self.operator.rows("select distinct change_set_id from bds.changes where change_set_id is not null order by 1")
        if sets:
            dry = self.random.random() < 0.2
            self.operator.rows("select bds.revert('acme', %s, dry_run => %s, force => true)", (self.random.choice(sets)[0], dry))

    def addition(self) -> None:
        """A session names the change set of an import."""
        imports = self.operator.rows("select id from bds.imports order by number")
        with self.operator.connection.transaction():
            self.context(str(self.random.choice(imports)[0]) if imports else None)
            self.write()

    def together(self) -> None:
        """One transaction with changes of sessions before, between and after imports."""
        with self.operator.connection.transaction():
            for _ in range(2):
                self.context(self.random.choice([None, *POOL]))
                self.write()
                self.small_import()
                self.write()  # in the import's change set


def check(operator: Operator) -> None:
    expected = of_the_log(operator)
    assert found(operator) == expected
    pages: list[tuple[Any, ...]] = []
    while page := operator.rows(PAGE, (pages[-1][4] if pages else None, 3)):
        pages += page
    assert pages == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_log_whoever_counts_and_whenever(acme: Operator, seed: int) -> None:
    history = History(acme, seed)
    [(id,)] = acme.rows(
        "select bds.import_document('acme', %s) ->> 'importId'", (json.dumps({"units": [{"code": "A", "name": "a"}]}),)
    )
    acme.rows("select bds.revert('acme', %s)", (id,))
    for _ in range(40):
        history.step()
        check(acme)
    history.maintain()
    check(acme)
    assert {kind for _, kind, *_ in found(acme)} == {"import", "revert", "session"}
    assert acme.rows(
        "select upper(p.counted) - c.last_id from bds.change_set_positions p join bds.clocks c using (company_id)"
    ) == [(1,)]


def shrink(operator: Operator, of: str, **numbers: str) -> None:
    """Make a function with smaller numbers: a long transaction then has a few records."""
    [(text,)] = operator.rows("select pg_get_functiondef(%s::regproc)", (f"bds_change_log.{of}",))
    for number, smaller in numbers.items():
        assert number[1:] in text
        text = text.replace(number[1:], smaller)
    operator.connection.execute(text.encode())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_long_transactions_are_not_counted_until_maintenance_and_their_ends_are_right(acme: Operator, seed: int) -> None:
    shrink(acme, "long_transactions", _5000="3")
    shrink(acme, "uncounted_sets", _100000="12", _10000="6")
    shrink(acme, "count_company", _100000="7")
    history, uncounted = History(acme, 100 + seed), 0
    for _ in range(30):
        history.random.choice([history.sessions, history.large_import, history.maintain])()
        sets, expected = found(acme), of_the_log(acme)
        assert [each[:-1] for each in sets] == [each[:-1] for each in expected]
        for each, counted in zip(sets, expected, strict=True):
            assert each[-1] in (None, counted[-1])
            assert each[-1] or each[1] == "session"
            uncounted += each[-1] is None
    assert uncounted
    history.maintain()
    check(acme)


@pytest.mark.slow
def test_counts_are_those_of_the_log_while_writers_and_maintenance_are_at_work(
    acme: Operator, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    def work(number: int) -> None:
        history = History(Operator(connect()), number)
        history.number = 1000 * number  # codes of its own
        for _ in range(25):
            history.random.choice([history.sessions, history.small_import, history.together, history.undone])()

    def maintain() -> None:
        session = connect()
        while not done.is_set():
            assert {problem and problem[:5] for _, problem in session.execute(COUNT.encode())} <= {None, "55P03", "40P01"}

    done, reader = threading.Event(), Operator(connect())
    reader.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with ThreadPoolExecutor() as threads:
        maintenance = threads.submit(maintain)
        writers = [threads.submit(work, number) for number in (1, 2)]
        try:
            while not all(writer.done() for writer in writers):
                with reader.connection.transaction():
                    check(reader)
            for writer in writers:
                writer.result()
        finally:
            done.set()
        maintenance.result()
    check(acme)
    assert acme.rows(COUNT)[0][1] is None
    check(acme)


def test_what_imports_have_noted_is_not_counted_again(acme: Operator) -> None:
    acme.rows("select bds.import_document('acme', %s)", (json.dumps({"units": [{"code": "A", "name": "a"}]}),))
    assert acme.rows("select entities -> 'units', noted_from, noted_to from bds.counted_change_sets") == [
        ({"created": 1, "updated": 0, "deleted": 0}, 1, 1)
    ]
    assert acme.rows(COUNT) == [(1, None)]
    assert acme.rows(COUNT) == [(0, None)]
    check(acme)


def test_a_reader_has_the_change_sets_of_its_company_alone(acme: Operator, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    acme.company("beta")
    acme.write("acme", "insert into data.units (code, name) values ('A', 'a')", change_set=A)
    acme.write("beta", "insert into data.units (code, name) values ('B', 'b')", change_set=B)
    acme.rows(COUNT)
    acme.write("beta", "insert into data.units (code, name) values ('C', 'c')")
    for role in ("bds_reader", "bds_writer"):
        session = connect(role, "acme")
        query = "select company_id, change_set_id::text from bds.change_sets"
        assert session.execute(query.encode()).fetchall() == [("acme", A)]
        with pytest.raises(psycopg.Error) as refused:
            session.execute("select * from bds_service.change_sets('beta')")
        assert refused.value.sqlstate == "BD001"
    assert acme.rows("select company_id, count(*) from bds.change_sets group by 1 order by 1") == [("acme", 1), ("beta", 2)]


@NO_MONTHS
def test_what_is_no_longer_kept_is_not_listed_and_goes_with_its_month(acme: Operator) -> None:
    acme.write("acme", "insert into data.units (code, name) values ('A', 'a')", change_set=A)
    acme.write("acme", "insert into data.units (code, name) values ('B', 'b')", change_set=B)
    acme.write("acme", "insert into data.units (code, name) values ('C', 'c')")
    acme.rows(COUNT)
    acme.connection.execute("update bds.change_months set first_id = 2 where company_id = 'acme'")
    assert [each[0] for each in found(acme)] == ["changes from 3", B]
    acme.connection.execute("update bds.change_months set first_id = 1 where company_id = 'acme'")
    check(acme)  # as if the month had been attached again
    acme.connection.execute("update bds.change_months set first_id = 2 where company_id = 'acme'")
    acme.write("acme", "insert into data.units (code, name) values ('D', 'd')", change_set=A)
    [(set, *_, first, last, _, _, counts), *_] = found(acme)
    assert (set, first, last, counts["units"]["created"]) == (A, 1, 4, 2), "one whose last change is kept is listed whole"


READ = """
    select coalesce(sum(coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0)), 0)::int
    from pg_stat_xact_all_tables t where starts_with(t.relname, 'change_log')
"""


def newest(operator: Operator) -> tuple[Any, int]:
    """The counts of the newest change set, and how many records of the log were read for all."""
    with operator.connection.transaction():
        [(before,)] = operator.rows(READ)
        counts = found(operator)[0][-1]
        [(after,)] = operator.rows(READ)
    return counts, after - before


def test_what_was_counted_is_not_read_again_and_long_transactions_wait_for_maintenance(acme: Operator) -> None:
    acme.write("acme", "insert into data.categories (code, name) values ('A', 'a')")
    [(id,)] = acme.rows("select bds.import_begin('acme')")
    [(table,)] = acme.rows("select bds.import_stage('acme', %s, 'units')", (id,))
    acme.connection.execute(
        f"""insert into {table} ("@ordinal", code, name) select n, 'I' || n, 'i' from generate_series(1, 15000) n""".encode()
    )
    acme.rows("select bds.import_run('acme', %s)", (id,))
    assert newest(acme) == ({"units": {"created": 15000, "updated": 0, "deleted": 0}}, 1)
    acme.write("acme", "update data.units set name = 's'", change_set=A)
    shrink(acme, "uncounted_sets", _100000="14999")
    assert newest(acme)[0] is None, "it is beyond what is counted when asked"
    acme.rows(COUNT)
    assert newest(acme) == ({"units": {"created": 0, "updated": 15000, "deleted": 0}}, 0)
    check(acme)


def test_a_company_that_is_deleted_takes_its_counts_along(acme: Operator) -> None:
    acme.write("acme", "insert into data.units (code, name) values ('A', 'a')")
    acme.rows(COUNT)
    acme.delete_company("acme")
    assert acme.rows("select count(*) from bds.counted_change_sets") == [(0,)]
    assert acme.rows("select count(*) from bds.change_set_positions") == [(0,)]


@NO_MONTHS
def test_a_month_that_was_away_when_changes_were_counted_is_counted_when_it_is_back(acme: Operator) -> None:
    for month, (codes, change_set) in enumerate((("AB", A), ("CD", B), ("EF", A)), 1):
        acme.write(
            "acme",
            "insert into data.units (code, name) select c, 'x' from unnest(%s::text[]) c",
            (list(codes),),
            change_set=change_set,
        )
        age(acme, f"2020_{month:02}", f"id > {2 * month - 2}")
    present = of_the_log(acme)
    for month in (2, 1):
        acme.connection.execute(DETACH.format(month).encode())
        acme.rows(COUNT)
        check(acme)
        acme.connection.execute(ATTACH.format(month, month, month + 1).encode())
        check(acme)
        assert of_the_log(acme) == present
        with acme.connection.transaction():
            for version in range(7):
                acme.rows("select bds.set_version('acme', %s)", (version,))
                assert acme.rows("select past.number_of('units', 6)") == [(version,)], version
    acme.rows(COUNT)
    check(acme)
    assert acme.rows("select counted::text from bds.change_set_positions") == [("{[1,7)}",)]
