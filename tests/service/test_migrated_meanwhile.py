"""`bds migrate` beside a running service: what a statement uses is replaced while it runs, and no client gets a 500 for that."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from app.database import migrate
from app.errors import REPLACED
from app.feed.run import RUNS
from tests.conftest import Operator
from tests.database.test_migrations import own_sql
from tests.service.serving import PATIENCE, Reply, Service, running, wait_until

pytestmark = pytest.mark.slow

__all__ = ["own_sql"]  # a fixture

DOCUMENT = json.dumps({"units": [{"code": "A", "name": "a"}]})
HOOK = json.dumps({"entity": "units", "url": "https://example.com/hook", "action": "webhook"})
FAIL = """
    create sequence data.calls;
    create function bds_log.fail() returns boolean language plpgsql security definer as $$
    declare
        calls int;
    begin
        if current_setting('transaction_read_only')::boolean then  -- which a lock of the session is not, and it survives an error
            calls := 1 + (select count(*) from pg_locks l where l.locktype = 'advisory' and l.classid = {key});
            perform pg_advisory_lock({key}, calls);
        else
            calls := nextval('data.calls');
        end if;
        if calls <= {times} then
            raise exception using errcode = '{state}', message = 'cache lookup failed for function 7';
        end if;
        return true;
    end
    $$;
"""
BY_INSERTS = """
    create function data.fail_insert() returns trigger language plpgsql security definer as $$
    begin
        perform bds_log.fail();
        return new;
    end
    $$;
    create trigger fails before insert on {table} for each row execute function data.fail_insert()
"""
END = "drop function if exists data.fail_insert cascade; drop function bds_log.fail cascade; drop sequence data.calls"
_keys = count(700)


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    with running(database_url) as service:
        yield service


def send(service: Service, path: str, body: str) -> Reply:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, {"X-API-Key": service.key, "Content-Type": "application/json"})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


@contextmanager
def failing(operator: Operator, table: str, state: str, times: int) -> Iterator[None]:
    """The first inserts into a table fail in a function of the service, as if something had been replaced meanwhile."""
    operator.connection.execute((FAIL.format(key=next(_keys), state=state, times=times) + BY_INSERTS.format(table=table)).encode())
    yield
    operator.connection.execute(END.encode())


@contextmanager
def failing_reads(operator: Operator, state: str, times: int) -> Iterator[None]:
    """The first reads of units fail likewise."""
    [(view,)] = operator.rows("select pg_get_viewdef('api.units'::regclass)")
    operator.connection.execute(FAIL.format(key=next(_keys), state=state, times=times).encode())
    operator.connection.execute(
        f"create or replace view api.units as select * from ({view.rstrip(';')}) v where bds_log.fail()".encode()
    )
    yield
    operator.connection.execute(f"create or replace view api.units as {view}; {END}".encode())


def note_migration(operator: Operator, ago: str) -> None:
    operator.connection.execute(f"update public.bds_migrations set applied_at = now() - interval '{ago}'".encode())


def test_an_import_whose_functions_were_replaced_runs_again(service: Service) -> None:
    """The small way fails, then the run of what is staged, then it is done."""
    note_migration(service.operator, "1 hour")
    for state in sorted(REPLACED):
        with failing(service.operator, "data.units", state, times=RUNS):
            reply = send(service, "/api/demo/import", DOCUMENT)
        assert (reply.status, reply.json["state"]) == (200, "completed"), (state, reply.body)
        service.operator.write("demo", "delete from data.units")


def test_what_goes_on_failing_is_the_migrations_only_during_one(service: Service) -> None:
    for path, body, table in (("/api/demo/import", DOCUMENT, "data.units"), ("/c/demo/hooks", HOOK, "bds.hooks")):
        for ago, expected in (("1 hour", (500, "internal", None)), ("1 second", (503, "busy", "1"))):
            note_migration(service.operator, ago)
            with failing(service.operator, table, "XX000", times=99):
                reply = send(service, path, body)
            assert (reply.status, reply.json["code"], reply.headers["Retry-After"]) == expected
            assert send(service, path, body).status in (200, 201)
            service.operator.write("demo", "delete from data.units")


def test_a_read_is_repeated_once(service: Service) -> None:
    send(service, "/api/demo/import", DOCUMENT)
    note_migration(service.operator, "1 hour")
    for times, state, expected in ((1, "XX000", 200), (1, "42883", 200), (99, "XX000", 500)):
        with failing_reads(service.operator, state, times):
            assert service.ask("/c/demo/units").status == expected
    note_migration(service.operator, "1 second")
    with failing_reads(service.operator, "XX000", 99):
        reply = service.odata("/units")
    assert (reply.status, reply.headers["Retry-After"], reply.json["error"]["code"]) == (503, "1", "busy")


def test_an_import_that_waits_while_bds_migrate_replaces_what_it_will_call_is_done(service: Service, own_sql: Path) -> None:
    """It waits for its company's turn in the former bds.lock_company, which then calls a function that has gone."""
    file = own_sql / "30_change_log" / "10_turn.sql"
    file.write_text(file.read_text().replace("begin_turn(", "start_turn("))
    with ThreadPoolExecutor() as threads, psycopg.connect(service.operator.connection.info.dsn) as writer:
        writer.execute("select bds.set_context('demo'), bds.lock_company('demo')")
        reply = threads.submit(send, service, "/api/demo/import", DOCUMENT)
        wait_until(lambda: service.operator.rows("select from bds.imports where waiting_for is not null"))
        assert "30_change_log" in migrate.migrate(writer.info.dsn)
        writer.rollback()
        assert (reply.result().status, reply.result().json["state"]) == (200, "completed"), reply.result().body


def test_an_entity_is_served_as_soon_as_its_registration_has_committed(database_url: str, operator: Operator) -> None:
    paths = (
        "/c/demo/{}",
        "/api/odata/demo/{}",
        "/c/demo/{}/1/history",
        "/api/demo/{}?format=csv&export=true",
        "/c/demo/{}?since=0",
    )
    with running(database_url) as service:
        for n, path in enumerate(paths):
            # the notification of it is under way, and the process busy with others
            operator.connection.execute(
                f'create table data.late{n} (company_id text collate "C" not null, id bigint not null generated by default as identity,'
                f" updated_at timestamptz not null, primary key (company_id, id)); select bds.register('data.late{n}')".encode()
            )
            with ThreadPoolExecutor(8) as pool:
                replies = list(pool.map(lambda path: service.ask(path).status, [path.format(f"late{n}")] * 8))
            assert set(replies) <= {200, 404 if "history" in path else 200}, path
        with ThreadPoolExecutor(20) as pool:
            unknown = list(pool.map(lambda n: service.ask(f"/c/demo/nothing{n}").status, range(60)))
        assert set(unknown) == {404}
