"""Filters of hooks: text that anybody with hooks may store, compiled by the worker alone, and evaluated with the rights of a reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from app.config import Config
from app.database.database import Database
from app.webhooks import worker
from tests.service.serving import wait_until
from tests.webhooks.conftest import DAY, Queue, working
from tests.webhooks.receiving import Receiver

pytestmark = pytest.mark.slow

CREATE = "select bds.create_hook('acme', %s, %s, %s) ->> 'id'"


def create(queue: Queue, filter: str, entity: str | None = "products", url: str = "http://127.0.0.1:9/") -> str:
    """Create a hook as a DBA does; its filter is not compiled."""
    return str(queue.write(CREATE, (entity, url, filter))[0][0])


def test_changes_wait_until_the_filter_is_compiled(queue: Queue) -> None:
    plain = queue.hook()
    filtered = create(queue, "price > 1")
    queue.write("insert into data.products (code, name, price) values ('A', 'a', 1), ('B', 'b', 2)")
    assert queue.route(DAY) == (None, True) and queue.rows("select * from bds_service.companies_behind()") == [("acme",)]
    assert (queue.queued(plain), queue.queued(filtered)) == ([], [])
    queue.compile(filtered)
    assert queue.route(DAY) == (2, False)
    assert (queue.queued(plain), queue.queued(filtered)) == ([1, 2], [2])


def test_a_filter_that_is_changed_waits_again(queue: Queue) -> None:
    hook = queue.hook(filter="price > 1")
    queue.write("select bds.update_hook('acme', %s, 'products', 'http://127.0.0.1:9/', 'price > 2', null, false, false)", (hook,))
    queue.write("insert into data.products (code, name, price) values ('A', 'a', 2), ('B', 'b', 3)")
    assert queue.route(DAY) == (None, True)
    queue.compile(hook)
    queue.route(DAY)
    assert queue.queued(hook) == [2]


@pytest.mark.parametrize("why", ["disabled", "deleted", "of another company"])
def test_nothing_waits_for_a_hook_that_matches_nothing(queue: Queue, why: str) -> None:
    plain = queue.hook()
    queue.operator.company("beta")
    if why == "of another company":
        queue.operator.write("beta", "select bds.create_hook('beta', 'products', 'http://127.0.0.1:9/', 'price > 1')")
    else:
        hook = create(queue, "price > 1")
        change = "bds.delete_hook('acme', h.id)" if why == "deleted" else (
            "bds.update_hook('acme', h.id, h.entity, h.url, h.filter, h.columns, h.allow_in_change_set, true)"
        )  # fmt: skip
        queue.write(f"select {change} from bds.hooks h where h.id = %s", (hook,))
    queue.products("A")
    assert queue.route(DAY) == (1, False) and queue.queued(plain) == [1]


def test_what_was_compiled_from_an_older_text_is_not_stored(queue: Queue) -> None:
    """The hook changes between the worker's reading and its writing."""
    hook = create(queue, "price > 1")
    [(as_of,)] = queue.rows("select updated_at from bds.hooks")
    queue.write("select bds.update_hook('acme', %s, 'units', 'http://127.0.0.1:9/', 'symbol is null', null, false, false)", (hook,))
    queue.rows("select bds_service.refit_hook('acme', %s, %s, '[]', 'v1')", (hook, as_of))
    queue.rows("select bds_service.refit_hook('acme', %s, %s, null, 'v1', 'does not fit')", (hook, as_of))
    assert queue.rows("select entity, filter, catalog_version, problem, disabled from bds.hooks") == [
        ("units", "symbol is null", None, None, False)
    ]


def test_a_blank_filter_is_none_and_a_long_one_is_refused(queue: Queue) -> None:
    create(queue, " \n")
    assert queue.rows("select filter from bds.hooks") == [(None,)]
    with pytest.raises(psycopg.Error) as refused:
        create(queue, "price > 1 and " * 1_000)
    assert refused.value.sqlstate == "BD005"


# Filters -------------------------------------------------------------------------------------------------------------------------

SECRETS = "select string_agg(secret, ' ') from bds.hook_secrets"
ATTACKS = {
    "secrets": f"pg_notify('leak', ({SECRETS})) is not null",
    "secrets in a query of their own": f"pg_notify('leak', query_to_xml($q${SECRETS}$q$, true, true, '')::text) is not null",
    "hooks": "pg_notify('leak', (select string_agg(url, ' ') from bds.hooks)) is not null",
    "the log": "pg_notify('leak', (select string_agg(old::text, ' ') from bds.change_log)) is not null",
    "tables": "pg_notify('leak', (select string_agg(name, ' ') from data.products)) is not null",
    "keys": "pg_notify('leak', (select count(*)::text from bds.api_keys)) is not null",
    "users": "pg_notify('leak', (select string_agg(password_hash, ' ') from bds.users)) is not null",
    "the queue": "query_to_xml('delete from bds.hook_queue', true, true, '') is not null",
    "a large object": "lo_import('/etc/passwd') is not null",
    "a file": "pg_notify('leak', pg_read_file('/etc/passwd')) is not null",
}


@pytest.fixture
def heard(queue: Queue, connect: Any) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a role without rights, which listens for what leaks."""
    connection = connect()
    connection.execute("create role listener nologin; set role listener; listen leak")
    yield connection
    connection.execute("reset role; drop role listener")


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_condition_reads_what_a_reader_reads(queue: Queue, heard: psycopg.Connection[Any], attack: str) -> None:
    """Even one that the worker's role has stored, past the compiler."""
    hook = create(queue, "price > 1")
    forged = [{"entity": "products", "joins": "", "condition": ATTACKS[attack], "types": [], "values": []}]
    queue.rows(
        "select bds_service.refit_hook('acme', h.id, h.updated_at, %s, 'v1') from bds.hooks h where h.id = %s",
        (json.dumps(forged), hook),
    )
    queue.products("A")
    with pytest.raises(psycopg.Error) as refused:
        queue.route()
    assert refused.value.sqlstate in ("42501", "0A000")  # the second: a query that writes, where only reading is possible
    assert list(heard.notifies(timeout=0)) == []


def test_a_condition_does_not_change_where_names_are_looked_up(queue: Queue, heard: psycopg.Connection[Any]) -> None:
    """SET in a function outlives the function's own search_path: operators of the session would then run as bds_dispatcher."""
    queue.operator.connection.execute("create schema theirs; grant usage, create on schema theirs to bds_worker")
    queue.worker.execute(f"""
        create function theirs.same(text, text) returns boolean language plpgsql as
            $$ begin perform pg_notify('leak', ({SECRETS})); return $1 operator(pg_catalog.=) $2; end $$;
        create operator theirs.= (leftarg = text, rightarg = text, function = theirs.same);
        grant usage on schema theirs to public
    """)
    hook = create(queue, "price > 1")
    condition = "set_config('search_path', 'theirs, pg_catalog', false) is not null"
    forged = [{"entity": "products", "joins": "", "condition": condition, "types": [], "values": []}]
    queue.rows(
        "select bds_service.refit_hook('acme', h.id, h.updated_at, %s, 'v1') from bds.hooks h where h.id = %s",
        (json.dumps(forged), hook),
    )
    queue.products("A")
    with pytest.raises(psycopg.Error) as refused:
        queue.route()
    assert refused.value.sqlstate == "42501"
    assert list(heard.notifies(timeout=0)) == []
    assert queue.rows("show search_path") == [('"$user", public',)]


def test_a_value_on_which_a_condition_fails_is_not_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    hook = create(queue, "price > 1")
    queue.compile(hook)
    queue.operator.connection.execute("update bds.hook_filters set condition = 't.code::int > 1' where hook_id = %s", (hook,))
    queue.products('hush"hush')

    async def main() -> None:
        database = await Database.open(Config(database_url=queue.url, webhook_window=0.0))
        async with worker.working(database):
            await asyncio.to_thread(wait_until, lambda: "cannot match the hooks of acme" in caplog.text)
        await database.close()

    asyncio.run(main())
    assert "22P02" in caplog.text and "hush" not in caplog.text


def test_no_role_but_the_workers_stores_a_condition(queue: Queue, connect: Any) -> None:
    create(queue, "price > 1")
    for role in ("bds_reader", "bds_writer", "bds_service"):
        for statement in (
            "select bds_service.refit_hook('acme', gen_random_uuid(), now(), '[]', 'v1')",
            "insert into bds.hook_filters select * from bds.hook_filters",
            "select bds_webhooks.match_filters('x', 'acme', 0, 1, now(), '[]')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connect(role, "acme").execute(statement)


def test_statements_that_the_session_has_prepared_are_not_executed(queue: Queue, heard: psycopg.Connection[Any]) -> None:
    """A worker's session may prepare statements under the names that matching uses, which would run as their owner."""
    hook = queue.hook(filter="price > 0")
    queue.products("A")
    queue.route(DAY)
    ours = queue.rows("select name, parameter_types::text[] from pg_prepared_statements where name like 'bds\\_%%'")
    assert len(ours) == 2
    for name, types in ours:
        evil = sql.SQL("deallocate {0}; prepare {0} ({1}) as select null::uuid, pg_notify('leak', ({2}))::text::bigint").format(
            sql.Identifier(name),
            sql.SQL(", ".join(types)),
            sql.SQL(SECRETS),  # type: ignore[arg-type]
        )
        for statement in evil.as_string().split("; "):
            queue.worker.execute(statement.encode())
    queue.products("B")
    queue.route(DAY)
    assert queue.queued(hook) == [1, 2] and list(heard.notifies(timeout=0)) == []


def test_a_filter_is_stored_whatever_the_session_has_set(queue: Queue) -> None:
    queue.operator.connection.execute("set standard_conforming_strings = off")
    for given, stored in (("price < 0", "price < 0"), ("\t \n", None)):
        hook = create(queue, given)
        assert queue.rows("select filter from bds.hooks where id = %s", (hook,)) == [(stored,)]


# The worker ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_hook_made_in_sql_has_its_filter(queue: Queue, receiver: Receiver) -> None:
    """From psql to the receiver: created, changed, misspelt, mended."""
    before = create(queue, "price > 10 and category = 'code:tools'", url=receiver.url("/before"))
    every = create(queue, "name like 'x%'", None, receiver.url("/every"))
    queue.write("insert into data.categories (id, code, name) values (1, 'tools', 'xTools')")
    with working(queue.url):
        queue.write("insert into data.products (code, name, price, category_id) values ('A', 'a', 11, 1), ('B', 'xb', 9, 1)")
        assert [each.changes for each in receiver.wait("/before", 1)] == [[2]]
        wait_until(lambda: receiver.changes("/every") == [1, 3])

        during = create(queue, "price < 5", url=receiver.url("/during"))
        queue.write("update data.products set price = 4 where code = 'B'")
        assert receiver.wait("/during", 1)[0].changes == [4]

        change = "select bds.update_hook('acme', %s, 'products', %s, %s, null, false, %s)"
        queue.write(change, (during, receiver.url("/during"), "price > 100", False))
        queue.write("update data.products set price = 3 where code = 'B'")
        queue.write("update data.products set price = 101 where code = 'A'")
        assert receiver.wait("/during", 2)[1].changes == [6]

        queue.write(change, (during, receiver.url("/during"), "colour = 'red'", False))
        problem = "select problem from bds.hooks where id = %s and disabled"
        wait_until(lambda: queue.rows(problem, (during,)) != [])
        assert "colour" in queue.rows(problem, (during,))[0][0]
        queue.write("update data.products set price = 200 where code = 'A'")
        assert receiver.wait("/before", 3)[2].changes == [7], "the other hooks go on"

        queue.write(change, (during, receiver.url("/during"), "price > 100", False))
        queue.write("update data.products set price = 300 where code = 'A'")
        assert receiver.wait("/during", 3)[2].changes == [8]
    assert queue.rows("select count(*) from bds.hooks where id = any (%s) and problem is null", ([before, every, during],)) == [
        (3,)
    ]


@pytest.mark.processes
def test_nothing_is_lost_while_no_worker_runs(queue: Queue, receiver: Receiver) -> None:
    create(queue, "price > 1", url=receiver.url("/later"))
    for number in range(5):
        queue.write("insert into data.products (code, name, price) values (%s, 'x', %s)", (f"P{number}", number))
    assert queue.route() == (None, True)
    with working(queue.url, BDS_WEBHOOK_WINDOW="0.1"):
        wait_until(lambda: receiver.changes("/later") == [3, 4, 5])


def test_a_filter_that_was_compiled_for_another_model_is_stale(queue: Queue) -> None:
    hook, fresh = queue.hook(filter="price > 1"), create(queue, "price > 2")
    [(version,)] = queue.rows("select catalog_version from bds.hooks where id = %s", (hook,))
    assert [str(row[1]) for row in queue.rows(worker.STALE, (version,))] == [fresh]
    assert {str(row[1]) for row in queue.rows(worker.STALE, ("other",))} == {hook, fresh}


@pytest.mark.processes
def test_a_filter_on_a_column_that_was_just_registered_is_not_a_problem(queue: Queue) -> None:
    """The worker hears of the hook at the same moment as of the model, and must not judge it by the old one."""
    queue.operator.connection.execute(
        'create table data.places (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " updated_at timestamptz not null, primary key (company_id, id)); select bds.register('data.places')"
    )
    compiled = "select bool_and(catalog_version is not null), count(problem) from bds.hooks"
    with working(queue.url):
        for number in range(10):
            with queue.operator.connection.transaction():
                queue.operator.connection.execute(
                    f"alter table data.places add column c{number} text; select bds.register('data.places')".encode()
                )
                create(queue, f"c{number} = 'x'", "places")
            wait_until(lambda: queue.rows(compiled)[0][0])
            assert queue.rows(compiled) == [(True, 0)]
