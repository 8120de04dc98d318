"""What a writer can set, make or nest changes nothing of the log but the context that it names: no setting, temporary object or depth
of triggers decides which records a write leaves, their ids, order, times, columns or values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count, groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator, new_session
from tests.database.test_turn import assert_gapless

pytestmark = pytest.mark.slow

Connect = Callable[..., psycopg.Connection[Any]]

SQL = Path(__file__).parents[2] / "sql"
CONTEXT = {"bds.company", "bds.actor", "bds.change_set"}
# what the code of sql/ reads, so a new setting is tried, too
OWN = {name for file in SQL.rglob("*.sql") for name in re.findall(r"current_setting\('(bds\.\w+)'", file.read_text())} - CONTEXT
LIES = (
    "", "1", "2", "x", "(0,1)", "(4294967294,1)", ",{company}@,", ",{company}@2100-01-01 00:00:00+00,", "1:items", "2:items", "3:items",
    '{"1": {"{company}": 0}, "2": {"{company}": 0}}', '{"2": "items"}',
)  # fmt: skip

BEFORE = (
    "insert into data.units (id, code, name) values (1, 'a', 'A'), (2, 'b', 'B')",
    "insert into data.orders (id, code, order_date) values (1, 'M', '2026-01-01')",
    "insert into data.order_items (id, order_id, quantity) values (1, 1, 1)",
)
# Writes whose records depend on all that the log keeps between statements.  {lie} stands where a statement's own condition runs.
WRITES = (
    "insert into data.units (id, code, name) values (11, 'k', 'K'), (12, 'l', 'L')",
    "update data.units set name = name || '!' where id > 10 {lie}",
    "update data.units set name = name where true {lie}",
    "insert into data.orders (id, code, order_date) values (11, 'O', '2026-01-01'), (12, 'P', '2026-01-01')",
    "insert into data.order_items (id, order_id, quantity) values (11, 1, 5), (12, 11, 1)",
    "update data.order_items set quantity = quantity + 1 where true {lie}",
    "update data.orders set note = 'n' where id = 1 {lie}",
    "delete from data.units where id = 12 {lie}",
    "insert into data.units (id, code, name) values (12, 'l', 'L again'), (1, 'a', 'A2')"
    " on conflict (company_id, id) do update set name = excluded.name",
    "update data.orders set note = note where true {lie}",
    "delete from data.order_items where order_id = 11 {lie}",
)


class Trials:
    """Companies of their own, with the same rows, in which a writer in a new session runs the same writes."""

    def __init__(self, url: str, operator: Operator) -> None:
        self._url = url
        self.operator = operator
        self._numbers = count(1)
        self._unchecked: list[str] = []
        outcome, self.truth = self.run()
        assert outcome is None and len(self.truth) == 22

    def run(
        self,
        inside: str = "",
        session: tuple[str, str] | None = None,
        prepare: str = "",
        way: str = "{statement}",
        writer: psycopg.Connection[Any] | None = None,
    ) -> tuple[str | None, list[Any]]:
        """Run the writes in one transaction; returns the SQLSTATE of an error, and the company's log.

        writer: the session to use, by default a new one.
        """
        company = self.operator.company(f"t{next(self._numbers)}")
        self._unchecked.append(company)
        for statement in BEFORE:
            self.operator.write(company, statement, actor="ben")
        outcome = None
        with nullcontext(writer) if writer else self.session() as writer:
            writer.execute("select set_config('bds.company', %s, false)", (company,))
            writer.execute(prepare.encode())
            if session:
                name, value = session
                writer.execute("select set_config(%s, %s, false)", (name, value.replace("{company}", company)))
            try:
                with writer.transaction():
                    writer.execute("select bds.set_context(%s, 'ann', '11111111-1111-4111-8111-111111111111')", (company,))
                    for statement in WRITES:
                        statement = statement.replace("{lie}", inside).replace("{company}", company)
                        writer.execute(way.replace("{statement}", statement).encode())
            except psycopg.Error as error:
                outcome = error.sqlstate
        return outcome, log(self.operator, company)

    def session(self) -> psycopg.Connection[Any]:
        return new_session(self._url, "bds_writer")

    def check(self) -> None:
        """The logs of all companies since the last check are true."""
        assert_true(self.operator, *self._unchecked)
        self._unchecked.clear()


@pytest.fixture(scope="module")
def all_trials(module_database_url: str) -> Iterator[Trials]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield Trials(module_database_url, Operator(connection))


@pytest.fixture
def trials(all_trials: Trials) -> Iterator[Trials]:
    """Trials whose logs are checked together when the test ends."""
    yield all_trials
    all_trials.check()


def log(operator: Operator, company: str) -> list[Any]:
    """The records; those that one statement may have written in any order in that of their rows."""
    records = operator.rows(
        "select c.entity, c.operation, c.row_id, c.columns, c.old - 'updatedAt', c.actor, c.change_set_id"
        " from bds.changes c where c.company_id = %s order by c.id",
        (company,),
    )
    return [each for _, run in groupby(records, itemgetter(0, 1)) for each in sorted(run, key=itemgetter(2))]


def assert_true(operator: Operator, *companies: str) -> None:
    """The log tells what happened to each row: ids, times and versions rise, and its end is what is there."""
    assert operator.rows("select company_id, kind, entity, examples from bds.compare_log()") == []
    assert operator.rows(
        """
        select c.company_id, c.id
        from (
            select company_id, id, created_at < lag(created_at) over (partition by company_id order by id) as falls
            from bds.changes where company_id = any(%s)
        ) c
        where falls
        """,
        (list(companies),),
    ) == []  # fmt: skip
    assert operator.rows(
        """
        select r.company_id, r.entity, r.row_id, h.version
        from (select distinct company_id, entity, row_id from bds.changes where company_id = any(%s)) r
        cross join lateral (
            select h.version, h.operation, h."row", h.at, lag(h."row") over (order by h.version) as before
            from bds.row_history(r.company_id, r.entity, r.row_id) h
        ) h
        where (h."row" ->> 'updatedAt')::timestamptz <= (h.before ->> 'updatedAt')::timestamptz
            or (h.operation = 'create') <> (h.before is null) or (h.operation = 'delete') <> (h."row" is null)
            or (h."row" ->> 'updatedAt')::timestamptz > h.at
        """,
        (list(companies),),
    ) == []  # fmt: skip


def test_no_setting_of_a_session_changes_its_records(trials: Trials) -> None:
    """A lie is without effect, or its statement fails and leaves nothing; it stands before the statements, or inside their conditions."""
    assert {"bds.turns", "bds.clock", "bds.touching"} <= OWN
    outcomes = set()
    for name, is_inside in product(sorted(OWN), (False, True)):
        with trials.session() as writer:  # of which the first lie finds nothing set and nothing planned
            for lie in LIES:
                inside = f"and set_config('{name}', '{lie}', true) is not null" if is_inside else ""
                outcome, found = trials.run(inside=inside, session=None if is_inside else (name, lie), writer=writer)
                assert found == (trials.truth if outcome is None else trials.truth[: len(found)]), (name, lie, inside)
                assert outcome is None or len(found) == 5, (name, lie, inside)
                outcomes.add(outcome)
    assert outcomes <= {None, "BD004", "40001", "22P02", "0A000"}, outcomes
    assert_gapless(trials.operator)


def test_no_setting_of_postgresql_changes_records(trials: Trials) -> None:
    """Each boolean and each choice that any session may set, but for those that refuse writes, and some texts and numbers."""
    refuse = {
        "default_transaction_read_only", "transaction_read_only", "transaction_isolation", "transaction_deferrable",
        "restrict_nonsystem_relation_kind", "row_security", "exit_on_error", "client_encoding",
    }  # fmt: skip
    values = [("DateStyle", "German"), ("IntervalStyle", "iso_8601"), ("TimeZone", "Asia/Tokyo"), ("extra_float_digits", "-15"),
              ("search_path", "pg_temp, pg_catalog"), ("lc_numeric", "C")]  # fmt: skip
    for name, kind, setting, choices in trials.operator.rows(
        "select name, vartype, setting, enumvals from pg_settings where context = 'user' and vartype in ('bool', 'enum') order by name"
    ):
        if name not in refuse:
            values += [(name, choice) for choice in (choices if kind == "enum" else ("on", "off")) if choice != setting]
    for session in values:
        outcome, found = trials.run(session=session)
        assert (outcome, found) == (None, trials.truth), session
    assert len(values) > 60


# What ends a session, its statements or its waits, or refuses a write, changes no record
ENDING = r"timeout|^transaction_|^default_transaction|seed|^tcp_|^log_|^idle|^client_conn"


def test_no_number_of_postgresql_changes_records(trials: Trials) -> None:
    """All numbers that any session may set, at their least and at their greatest, with a planner that finds everything cheap or dear."""
    numbers = trials.operator.rows(
        "select name, min_val, max_val from pg_settings where context = 'user' and vartype in ('integer', 'real') and name !~ %s",
        (ENDING,),
    )
    assert len(numbers) > 30 and "gin_fuzzy_search_limit" in {name for name, _, _ in numbers}
    for end in (1, 2):
        values = [(each[0], each[end]) for each in numbers if not (end == 2 and each[0] == "temp_buffers")]
        prepare = ";".join(f"select set_config('{name}', '{value}', false)" for name, value in values)
        assert trials.run(prepare=prepare) == (None, trials.truth), end


@pytest.mark.parametrize("prepare", [
    "set row_security = off", "set client_encoding = 'LATIN1'", "set default_transaction_isolation = 'serializable'",
    "set default_transaction_deferrable = on", "set timezone_abbreviations = 'India'", "set default_transaction_isolation = 'repeatable read'",
    "set application_name = 'psql [boss]'", "set role bds_importer", "set session_replication_role = replica",
])  # fmt: skip
def test_what_a_session_may_not_set_or_what_refuses_writes_changes_no_record(trials: Trials, prepare: str) -> None:
    prepare = f"do $do$ begin execute $s${prepare}$s$; exception when insufficient_privilege then null; end $do$"
    if "bds_importer" in prepare or "replica" in prepare:  # those who log in as a writer have no right to it
        prepare = "set session authorization bds_writer;" + prepare
    outcome, found = trials.run(prepare=prepare)
    assert found == (trials.truth if outcome is None else trials.truth[:5]), outcome
    assert outcome in (None, "42501"), outcome


# Objects of the session's own --------------------------------------------------------------------------------------------------------

# A temporary table whose trigger runs a statement: one level deeper, or, fired at the end of the transaction, at the first.
RELAY = """
create temp table relay (statement text);
create function pg_temp.relay() returns trigger language plpgsql as $$ begin execute new.statement; return null; end $$;
create trigger relay after insert on relay for each row execute function pg_temp.relay();
create temp table late (statement text);
create constraint trigger late after insert on late deferrable initially deferred for each row execute function pg_temp.relay();
create function pg_temp.run(statement text) returns boolean language plpgsql as $$ begin execute statement; return true; end $$;
"""
# relations and types whose names the log's functions use, first in the path, where PostgreSQL looks for them first
SHADOWS = """
create temp table change_log (company_id text, id bigint); create temp table clocks (company_id text, last_id bigint);
create temp table units (id bigint, name text); create temp table orders (id bigint);
create temp table old_rows (id bigint); create temp table new_rows (id bigint);
create temp view residents as select 'x' as company_id; create temp view pg_class as select 1 as oid; create temp table fields (name text);
create domain pg_temp.bigint as text; create domain pg_temp.int8 as text; create domain pg_temp.tid as text; create domain pg_temp.uuid as text;
create domain pg_temp.timestamptz as text; create domain pg_temp.jsonb as text; create domain pg_temp.text as varchar(1);
create type pg_temp.operation as enum ('x'); create type pg_temp.entities as (name text);
create function pg_temp.clock_timestamp() returns timestamp with time zone language sql return '2001-01-01'::timestamp with time zone;
create function pg_temp.strpos(a pg_catalog.text, b pg_catalog.text) returns integer language sql return 1;
set search_path = pg_temp, bds, data, pg_catalog;
"""


def test_records_do_not_depend_on_objects_of_the_session_that_are_named_like_those_of_the_log(trials: Trials) -> None:
    assert trials.run(prepare=SHADOWS) == (None, trials.truth)
    assert trials.run(prepare=SHADOWS, way="{statement}; set constraints all deferred") == (None, trials.truth)


# how a statement gets to run: itself, in a block, by triggers one and two levels deeper, at the end, from a condition, from a table
WAYS = {
    "block": "do $do$ begin {statement}; end $do$",
    "relay": "insert into relay values ($s${statement}$s$)",
    "relay of a relay": "insert into relay values ($t$insert into relay values ($s${statement}$s$)$t$)",
    "function": "select pg_temp.run($s${statement}$s$)",
    "cursor": "select pg_temp.run($s${statement}$s$) from generate_series(1, 1) offset 0",
    "late": "insert into late values ($s${statement}$s$); set constraints all immediate; set constraints all deferred",
}


@pytest.mark.parametrize("way", WAYS)
def test_records_do_not_depend_on_the_depth_at_which_their_statement_runs(trials: Trials, way: str) -> None:
    outcome, found = trials.run(prepare=RELAY, way=WAYS[way])
    assert (outcome, found) == (None, trials.truth)
    for lie in ("2:items", "3:items"):  # with what the log sets where it touches parents
        outcome, found = trials.run(prepare=RELAY, way=WAYS[way], session=("bds.touching", lie))
        assert found == (trials.truth if outcome is None else trials.truth[:5]), lie


INNER = {
    "update of the same row": ("name = name || '?'", "update data.units set name = name || '.' where id = 1"),
    "delete of another row": ("name = name || '?'", "delete from data.units where id = 2"),
    "insert": ("name = name || '?'", "insert into data.units (id, code, name) values (3, 'c', 'C')"),
    "insert and delete": (
        "name = name || '?'", "insert into data.units (id, code, name) values (3, 'c', 'C'); delete from data.units where id = 3"),
}  # fmt: skip


@pytest.mark.parametrize("inner", INNER)
def test_what_a_function_writes_while_its_statement_runs_is_in_order(operator: Operator, connect: Connect, inner: str) -> None:
    """A condition of a later row calls a function that writes an earlier one: inside the statement, but not inside a trigger."""
    changes, statement = INNER[inner]
    company = operator.company("acme")
    operator.write(company, "insert into data.units (id, code, name) values (1, 'a', 'A'), (2, 'b', 'B'), (9, 'z', 'Z')")
    writer = connect("bds_writer", company)
    writer.execute(RELAY.encode())
    for _ in range(2):  # the second time, the transaction has logged before
        with writer.transaction():
            writer.execute("select bds.set_context('acme', 'ann')")
            writer.execute("update data.units set name = name || '-' where id = 1")
            writer.execute("update data.units set name = name || '-' where id = 9")  # which a scan of the table finds last
            writer.execute(
                f"update data.units set {changes} where id <> 2 and (id <> 9 or pg_temp.run($s${statement}$s$))".encode()
            )
            writer.execute("delete from data.units where id = 3")
        assert_true(operator, company)
        operator.write(company, "insert into data.units (id, code, name) values (2, 'b', 'B') on conflict do nothing")
    assert_gapless(operator)


def test_a_row_that_is_deleted_and_written_again_meanwhile_is_in_order(operator: Operator, connect: Connect) -> None:
    company = operator.company("acme")
    operator.write(company, "insert into data.units (id, code, name) values (1, 'a', 'A'), (9, 'z', 'Z')")
    writer = connect("bds_writer", company)
    writer.execute(RELAY.encode())
    again = (
        "insert into data.units (id, code, name) values (1, 'a', 'again'); update data.units set name = 'and again' where id = 1"
    )
    with writer.transaction():
        writer.execute("select bds.set_context('acme', 'ann')")
        writer.execute("update data.units set name = 'first'")
        writer.execute(f"delete from data.units where id = 1 or pg_temp.run($s${again}$s$) and id > 9".encode())
    assert_true(operator, company)
    assert [row[1] for row in log(operator, company) if row[2] == 1] == ["create", "update", "delete", "create", "update"]


def test_records_of_others_stay_when_a_row_is_written_twice(operator: Operator, connect: Connect) -> None:
    """A row that is deleted and inserted again under its id, beside a note of a depth: earlier transactions' records keep their place."""
    company = operator.company("acme")
    operator.write(company, "insert into data.products (code, name, price) values ('TEA', 'Tea', 4.5)", actor="anna")
    operator.write(company, "insert into data.units (code, name) values ('KG', 'kilo')", actor="anna")
    operator.write(company, "update data.products set price = 9.99 where code = 'TEA'", actor="ben")
    others = operator.rows("select * from bds.changes order by id")
    writer = connect("bds_writer", company)
    with writer.transaction():
        writer.execute("select bds.set_context('acme', 'mallory')")
        writer.execute("create temp table keep as select * from data.units where code = 'KG'")
        writer.execute(
            "delete from data.units where code = 'KG' and set_config('bds.nested', '{\"1\": {\"acme\": 0}}', true) is not null"
        )
        writer.execute("insert into data.units (id, code, name) select id, code, name from keep")
    assert operator.rows("select * from bds.changes where id <= 3 order by id") == others
    assert [row[1] for row in log(operator, company)[3:]] == ["delete", "create"]
    assert_true(operator, company)


def test_an_update_without_a_change_leaves_no_record_in_a_trigger_of_the_writer(operator: Operator, connect: Connect) -> None:
    company = operator.company("acme")
    for statement in BEFORE:
        operator.write(company, statement)
    before, rows = log(operator, company), operator.rows("select * from data.orders")
    writer = connect("bds_writer", company)
    writer.execute(RELAY.encode())
    for touching in ("2:items", "2:forged", "2:", "1:items"):
        try:
            with writer.transaction():
                writer.execute("select bds.set_context('acme', 'mallory'), set_config('bds.touching', %s, true)", (touching,))
                writer.execute("insert into relay values ('update data.orders set note = note')")
        except psycopg.Error as error:
            assert (error.sqlstate, error.diag.message_primary) == ("BD004", "bds.touching was set, which only the change log sets")
    assert (log(operator, company), operator.rows("select * from data.orders")) == (before, rows)


def test_a_registration_runs_its_statements_whatever_its_session_has_set(operator: Operator) -> None:
    operator.company("acme")
    operator.connection.execute("""
        create table data.things (company_id text collate "C" not null, id bigint not null generated by default as identity,
            code text collate "C" not null, updated_at timestamptz not null, primary key (company_id, id))
    """)
    operator.connection.execute("select set_config('bds.noted', 'x', false), set_config('bds.runs', 'false', false)")
    operator.connection.execute("select bds.register('data.things')")
    operator.write("acme", "insert into data.things (id, code) values (1, 'x')")
    assert operator.rows("select entity, row_id, operation from bds.changes") == [("things", 1, "create")]


ACTOR_DOORS = [
    "select set_config('bds.actor', %s, true); insert into data.units (code, name) values ('a', 'A')",
    "select set_config('bds.actor', %s, true); select bds.import_document('acme', '{}')",
    "select set_config('bds.actor', %s, true); select bds.put_mapper('acme', 'm', 'csv', '')",
    "select bds.set_context('acme', %s)",
    "select bds.import_begin('acme', %s)",
    "select bds.import_rows('acme', '{}', actor => %s)",
    "select bds.import_document('acme', '{}', %s)",
    "select bds.revert('acme', '0e1b5c9e-9f53-4c9c-8a55-0b9f7c1b2a3d', actor => %s)",
    "select bds.put_mapper('acme', 'm', 'csv', '', %s)",
]


@pytest.mark.parametrize("statements", ACTOR_DOORS)
def test_an_actor_has_at_most_200_characters(operator: Operator, connect: Connect, statements: str) -> None:
    session = connect(None, operator.company("acme"))

    def act(actor: str) -> str:
        with session.transaction(force_rollback=True), psycopg.ClientCursor(session) as cursor:
            try:
                cursor.execute(statements.encode(), (actor,))
            except psycopg.Error as error:
                return f"{error.sqlstate} {error.diag.message_primary}"
        return ""

    assert act("é" * 201) == "BD005 expected an actor of at most 200 characters, got 201"
    assert act("é" * 200) == act("a")
