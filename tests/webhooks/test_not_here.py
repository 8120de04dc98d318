"""A company that does not live here, since it is being copied here or has departed: workers and maintenance leave its rows alone."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from app.webhooks.worker import HOOKED, STALE
from tests.conftest import NO_MONTHS
from tests.database.aging import age
from tests.webhooks.conftest import Queue

ELSEWHERE = {
    "is being copied here: its clock arrives last": """
        delete from bds.clocks where company_id = 'acme';
        insert into bds.places (name, url) values ('west', 'postgresql://west.example/bds');
        select bds_operation.note_place('acme', 'west', 'west', 'home', 'copying')
    """,
    "has departed": "update bds.clocks set departed_at = now(), transaction_id = null where company_id = 'acme'",
}


EVERYTHING = "select t::text from {table} t where {condition} order by 1"
DONE = {
    "to match": "select * from bds_service.companies_behind()",
    "matched": "select * from bds_service.route_changes('acme', '0 s')",
    "with hooks": HOOKED,
    "to compile": STALE.replace("%s", "'another model'"),
    "to disable": "select * from bds.unfit_hooks",
    "due": "select bds_service.next_due()",
    "claimed": "select * from bds_service.claim_deliveries()",
    "forgotten": "select bds_service.forget_deliveries('1 hour')",
    "behind": "select * from bds_service.backlog(10)",
}
NOTHING = {
    **{"to match": [], "matched": [(0, False)], "with hooks": [], "to compile": [], "to disable": [], "due": [(None,)]},
    **{"claimed": [], "forgotten": [(0,)], "behind": [(0, 0.0, 0, 0, 0)], "compared": [], "problems": []},
}


def fill(queue: Queue) -> None:
    """Rows of every kind that workers and maintenance would change."""
    operator = queue.operator.connection
    [(ended,)] = queue.write("select bds.import_begin('acme')")
    queue.write("select bds.import_fail('acme', %s)", (ended,))
    operator.execute("update bds.imports set finished_at = now() - interval '2 days'")
    queue.write("select bds.import_begin('acme')")
    operator.execute("update bds.imports set heartbeat_at = now() - interval '1 hour' where finished_at is null")
    due, gone, unfit = (queue.hook() for _ in range(3))
    queue.send("A")
    age(queue.operator, "2019_01", "company_id = 'acme'")
    queue.write("select bds.delete_hook('acme', %s)", (gone,))
    operator.execute("update bds.deliveries set finished_at = now() - interval '2 days' where finished_at is not null")
    operator.execute("update bds.hooks set deleted_at = now() - interval '2 days' where id = %s", (gone,))
    operator.execute("update bds.hook_secrets set previous = secret, ends_at = now() - interval '1 day'")
    operator.execute("update bds.hook_states set failures = 3, rests_until = now() + interval '1 hour' where hook_id = %s", (due,))
    queue.products("B")
    queue.route()
    operator.execute("update bds.hooks set entity = 'nothing' where id = %s", (unfit,))
    queue.write("select bds.create_hook('acme', 'products', 'http://127.0.0.1:9/', 'price > 1')")
    queue.products("C")


def contents(queue: Queue) -> dict[str, Any]:
    """The rows of the company, by table."""
    tables = queue.operator.rows("select name, condition from bds_operation.company_tables() where name <> 'bds.clocks'")
    return {
        name: queue.operator.connection.execute(
            EVERYTHING.format(table=name, condition=condition.replace("$1", "'acme'")).encode()
        ).fetchall()
        for name, condition in tables
    }


@pytest.mark.parametrize("state", ELSEWHERE)
@NO_MONTHS
def test_nothing_is_done_for_a_company_that(queue: Queue, state: str) -> None:
    fill(queue)
    queue.operator.connection.execute("select bds.set_retention('1 year')")
    queue.operator.connection.execute(ELSEWHERE[state].encode())
    before = contents(queue)
    assert all(
        before[name] for name in ("bds.hook_queue", "bds.deliveries", "bds.imports", "bds.hook_secrets", "bds.change_months")
    )
    done = {name: queue.operator.rows(query) for name, query in DONE.items()}
    for hook, as_of in queue.operator.rows("select id, updated_at from bds.hooks where filter is not null"):
        queue.rows("select bds_service.refit_hook('acme', %s, %s, '[]', 'v')", (hook, as_of))
    maintained = queue.operator.rows("select step, problem from bds.maintain('1 day', '0 s') where problem is not null")
    done["compared"] = queue.operator.rows("select * from bds.compare_log()")
    done["problems"] = queue.operator.rows("select kind from bds.problems where company_id = 'acme'")
    assert maintained == []
    assert done == NOTHING
    after = contents(queue)
    assert [name for name in before if after[name] != before[name]] == []


WRITES = {
    "makes a hook": "select bds.create_hook('acme', 'products', 'http://127.0.0.1:9/')",
    "changes a hook": "select bds.update_hook('acme', '{hook}', 'units', 'http://127.0.0.1:9/', null, null, false, false)",
    "deletes a hook": "select bds.delete_hook('acme', '{hook}')",
    "tests a hook": "select bds.test_hook('acme', '{hook}')",
    "makes a mapper": "select bds.put_mapper('acme', 'm', 'template', 'x')",
    "deletes a mapper": "select bds.delete_mapper('acme', 'm')",
    "imports": "select bds.import_begin('acme')",
}


@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_lost_of_a_session_that_named_its_company_before_it_departed_and_then(queue: Queue, connect, write: str) -> None:
    hook = queue.hook()
    with connect("bds_operator") as session, pytest.raises(psycopg.Error) as refused, session.transaction():
        session.execute("select bds.set_context('acme')")
        queue.operator.connection.execute("set role bds_owner; select bds_operation.depart('acme'); reset role")
        session.execute(WRITES[write].replace("{hook}", hook).encode())
    assert refused.value.sqlstate == "BD002", "it is told to write where the company is"


def test_a_move_waits_for_a_session_that_has_locked_what_it_will_write(queue: Queue, connect) -> None:
    hook = queue.hook()
    queue.operator.connection.execute("set role bds_owner")
    others = "select cardinality(bds_operation.writers_of_others())"
    with connect("bds_operator") as session, session.transaction():
        session.execute("select bds.set_context('acme')")
        assert queue.operator.rows(others) == [(0,)]
        session.execute("select bds_service.lock_hook('acme', %s)", (hook,))
        assert queue.operator.rows(others) == [(1,)]
