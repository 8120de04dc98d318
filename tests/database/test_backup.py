"""Backup and restore as the README tells it: into another server, which serves on as if nothing had happened."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.database import embedded, migrate
from tests.auth.client import ask, bearer, make_user, sign_in
from tests.conftest import Operator
from tests.database.postgres_tools import run
from tests.database.test_altered_tables import TABLE
from tests.service.serving import running

pytestmark = pytest.mark.processes


@dataclass
class Restored:
    """What a restored database is reached by, and what was in it when it was dumped."""

    url: str
    key: str
    rows: dict[str, list[Any]]


def rows(operator: Operator) -> dict[str, list[Any]]:
    """Whatever a backup must keep."""
    names = [
        name
        for (name,) in operator.rows(
            "select c.oid::regclass::text from pg_class c where c.relnamespace in ('data'::regnamespace, 'bds'::regnamespace)"
            " and c.relkind in ('r', 'p') and not c.relispartition order by 1"
        )
    ]
    found = {name: operator.rows(f"select to_jsonb(t) from {name} t order by 1::text") for name in names}
    found["sequences"] = operator.rows("select schemaname, sequencename, last_value from pg_sequences order by 1, 2")
    found["partitions"] = operator.rows(
        "select inhrelid::regclass::text, pg_get_expr(relpartbound, inhrelid) from pg_inherits join pg_class on oid = inhrelid order by 1"
    )
    found["rights"] = operator.rows(
        "select c.oid::regclass::text, pg_get_userbyid(c.relowner), array(select x::text from unnest(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's'::\"char\" else 'r' end, c.relowner))) x order by 1) from pg_class c"
        " where c.relnamespace::regnamespace::text in ('data', 'bds', 'api') and c.relkind in ('r', 'p', 'v', 'S') order by 1"
    )
    return found


@contextmanager
def another_server() -> Iterator[str]:
    """A PostgreSQL that has never heard of us."""
    directory = Path(tempfile.mkdtemp(prefix="bds-restored-"))
    directory.chmod(0o755)
    try:
        yield embedded.start(directory)
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def restored(module_database_url: str) -> Iterator[Restored]:
    with running(module_database_url) as service:
        for price in (1, 2):
            document = {
                "products": [{"code": f"P{n}", "name": "x", "price": price, "variants": [{"code": f"V{n}"}]} for n in range(50)],
                "customers": [{"code": "C", "name": "c"}],
            }
            assert ask(service, "/api/demo/import", "POST", bearer(service.key), document).status == 200
        make_user(service)
        hook = {"entity": "units", "url": "https://example.com/", "action": "webhook"}
        assert ask(service, "/c/demo/hooks", "POST", bearer(service.key), hook).status == 201
        service.operator.rows("select bds.set_retention('5 years')")
        key = service.key
    roles = run("pg_dumpall", "--roles-only", "--no-role-passwords", "--dbname", module_database_url)
    dump = run("pg_dump", "--format=custom", "--dbname", module_database_url)
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        kept = rows(Operator(connection))
    with another_server() as url:
        run(
            "psql", "--no-psqlrc", "--quiet", "--dbname", url, input=roles
        )  # the role postgres exists already; that error is ignored
        run("pg_restore", "--exit-on-error", "--single-transaction", "--dbname", url, input=dump)
        yield Restored(url, key, kept)


def test_everything_is_there_again(restored: Restored) -> None:
    with psycopg.connect(restored.url, autocommit=True) as connection:
        found = rows(Operator(connection))
    assert found.keys() == restored.rows.keys()
    for name, expected in restored.rows.items():
        assert found[name] == expected, name
    assert len(found["bds.change_log"]) == 151


def test_there_is_nothing_to_migrate(restored: Restored) -> None:
    assert migrate.is_current(restored.url)
    assert migrate.migrate(restored.url) == []


def test_a_transaction_of_the_new_server_is_not_taken_for_one_of_the_old(restored: Restored) -> None:
    """Transactions are numbered by the server: one of the new one gets the number that the company's last writer had in the old one."""
    with psycopg.connect(restored.url, autocommit=True) as connection:
        operator = Operator(connection)
        operator.connection.execute("update bds.clocks set transaction_id = '99999999'::xid8")
        generation = "select g.generation, g.last_common_id from bds.generations g order by g.generation"
        (before,) = operator.rows("select max(generation) from bds.generations")
        found = "select kind, mend from bds.problems where kind = 'restored database'"
        assert operator.rows(found) == [("restored database", "select bds.after_restore()")]
        assert migrate.migrate(restored.url) == []
        assert operator.rows(found) == [] and operator.rows("select transaction_id from bds.clocks") == [(None,)]
        (last,) = operator.rows("select last_id from bds.clocks")
        assert operator.rows(generation)[-2:] == [(before[0], last[0]), (before[0] + 1, None)], (
            "readers may know changes that are gone"
        )
        operator.write("demo", "insert into data.units (code, name) values ('N', 'n')")
        kept = operator.rows("select transaction_id is not null from bds.clocks")
        assert migrate.migrate(restored.url) == []
        assert operator.rows("select transaction_id is not null from bds.clocks") == kept == [(True,)], "its own stay"
        operator.write("demo", "delete from data.units")


def test_the_service_goes_on_where_the_log_ended(restored: Restored) -> None:
    with running(restored.url, company=None) as service:
        key = bearer(restored.key)
        before = ask(service, "/c/demo/changes?sort=-id&limit=1", headers=key).json["data"][0]["id"]
        assert service.ask("/api/odata/demo/products/$count", authorization=_basic(restored.key)).body == b"50"
        assert ask(service, "/c/demo/products", headers=sign_in(service).cookies).status == 200
        document = {"products": [{"code": "P1", "variants": [{"code": "V1", "name": "new"}]}, {"code": "NEW", "name": "new"}]}
        assert ask(service, "/api/demo/import", "POST", key, document).json["state"] == "completed"
        made = ask(service, f"/c/demo/changes?filter=id%20>%20{before}&sort=id", headers=key).json["data"]
        assert [each["id"] for each in made] == list(range(before + 1, before + 1 + len(made))) and len(made) == 3
        history = service.operator.rows(
            "select count(*) from bds.row_history('demo', 'products', (select id from data.products where company_id = 'demo' and code = 'P1'))"
        )
        assert history == [(3,)], "created, given another price, given another variant"
        service.operator.rows("select bds.maintain()")
        assert ask(service, "/c/demo/hooks", headers=key).json["data"][0]["url"] == "https://example.com/"


def _basic(key: str) -> str:
    import base64

    return "Basic " + base64.b64encode(f"api:{key}".encode()).decode()


def test_history_goes_on_under_its_names_in_a_restored_table_that_had_dropped_columns(
    operator: Operator, database_url: str
) -> None:
    operator.company("acme")
    operator.connection.execute(TABLE.replace("code ", "first int, code ").encode())
    operator.connection.execute("select bds.register('data.stores')")
    operator.write("acme", "insert into data.stores (first, code, city, size) values (1, 'a', 'Ulm', 1), (2, 'b', 'Ulm', 1)")
    operator.connection.execute("select bds.drop_column('stores', 'first')")
    operator.write("acme", "update data.stores set city = 'Bonn' where code = 'a'")
    operator.connection.execute("comment on column data.stores.city is 'Where it is'; select bds.drop_column('stores', 'code')")
    history = "select version, \"row\", old from bds.row_history('acme', 'stores', 1)"
    before = operator.rows(history)
    assert operator.rows("select kind, entity, examples from bds.compare_log()") == []
    name = f"{operator.connection.info.dbname}_again"
    operator.connection.execute(f"create database {name} template template0".encode())
    again = make_conninfo(database_url, dbname=name)
    dump = run("pg_dump", "--format=custom", "--dbname", database_url)
    run("pg_restore", "--exit-on-error", "--single-transaction", "--dbname", again, input=dump)
    migrate.migrate(again)
    with psycopg.connect(again, autocommit=True) as connection:
        restored = Operator(connection)
        for _ in range(2):
            assert restored.rows("select kind, entity from bds.compare_log()") == []
            assert restored.rows("select * from bds.problems") == []
            assert restored.rows(history) == before
            restored.connection.execute("select bds.register('data.stores')")
        comments = "select col_description(attrelid, attnum) from pg_attribute where attname = 'city' and attrelid = 'api.stores'::regclass"
        assert restored.rows(comments) == [("Where it is",)]
        restored.connection.execute("alter table data.stores rename city to town; alter table data.stores add code text")
        restored.connection.execute("select bds.register('data.stores')")
        [created, *_] = restored.rows(history)
        assert sorted(created[1]) == ["code (dropped)", "first", "id", "size", "town", "updatedAt"]
