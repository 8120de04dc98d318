"""Tables that are registered or altered while an import runs: it works with the model that it began with, or fails as a whole."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.errors import SQLSTATES, ServiceError
from tests.conftest import prepared
from tests.export.exported import UNMAPPED
from tests.feed.conftest import Feed, alone
from tests.feed.test_crash import blocked, holding
from tests.feed.test_http import send as post
from tests.feed.test_registered_tables import ROW
from tests.service.serving import running, wait_until
from tests.upgrade.snapshot import STAGED, run_import, stage

pytestmark = pytest.mark.slow

TABLES = f"""
create table data.boxes ({ROW}, code text not null, note text, size int, unique (company_id, code));
create table data.slips ({ROW}, note text, box_id bigint not null,
    foreign key (company_id, box_id) references data.boxes (company_id, id) on delete cascade);
create table data.gadgets ({ROW}, code text not null, box_id bigint, unique (company_id, code));
select bds.register('data.boxes', singular => 'box');
select bds.register('data.slips', parent => 'box_id', collection => 'slips');
"""
GADGETS = "select bds.register('data.gadgets')"  # without anything to do with boxes
AGAIN = "select bds.register('data.boxes', singular => 'box')"

VIEWS = "select bds.drop_views('boxes')"


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, TABLES)


@pytest.fixture
def feed(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def by_program(feed: Feed, document: dict[str, Any], **options: Any) -> Any:
    return feed.send(document, **options)


def in_sql(feed: Feed, document: dict[str, Any], *, dry_run: bool = False) -> Any:
    with psycopg.connect(feed.url, autocommit=True, application_name="bds in SQL") as connection:
        query = "select bds.import_document(%s, %s, dry_run => %s)"
        [report] = connection.execute(query, (feed.company, Jsonb(document), dry_run)).fetchone() or [None]
        return report


def large_in_sql(feed: Feed, document: dict[str, Any], *, dry_run: bool = False) -> Any:
    return in_sql(feed, {**document, "units": [{"code": "u" * 9, "name": "n" * 600_000}]}, dry_run=dry_run)


IN_SQL = [in_sql, large_in_sql]
DOORS = [by_program, *IN_SQL]
BOXES = {"boxes": [{"code": f"b{i}", "note": "n", "slips": [{"note": "s"}]} for i in range(3)]}


def waiting(feed: Feed, sends: list[Callable[..., Any]]) -> bool:
    """Whether all of these imports wait for the turn."""
    # a small import of the program that waits for its turn for too long begins anew, as a large one
    return (all(send in IN_SQL for send in sends) or feed.staged() > 0) and blocked(feed, len(sends))


def meanwhile(feed: Feed, sends: list[Callable[..., Any]], document: dict[str, Any], *statements: str, **options: Any) -> list[Any]:
    """Send a document in several ways, run statements while all wait for the company's turn, all of it staged; returns reports, or errors."""
    outcomes: dict[int, Any] = {}

    def run(number: int) -> None:
        try:
            outcomes[number] = sends[number](feed, document, **options)
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(sends))]
    with holding(feed, f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')"):
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda number=number: bool(outcomes) or waiting(feed, sends[:number]))
            assert not outcomes
        with psycopg.connect(feed.url, autocommit=True) as dba:
            for statement in statements:
                dba.execute(statement.encode())
    for thread in threads:
        thread.join()
    return [outcomes[number] for number in range(len(sends))]


def test_a_table_that_is_registered_meanwhile_changes_nothing(feed: Feed) -> None:
    document = {**BOXES, "orders": [{"code": "O", "orderDate": "2026-01-01", "items": [{"quantity": 1}]}]}
    for dry_run in (True, False):
        reports = meanwhile(feed, DOORS, document, GADGETS, AGAIN, GADGETS, dry_run=dry_run)
        for report in reports:
            assert not isinstance(report, BaseException), report
            assert (report["state"], report["errorCount"]) == ("completed", 0)
        names = ("boxes", "slips", "orders", "orderItems")
        created = sorted([report["entities"][name]["created"] for name in names] for report in reports)
        # after the first import there are boxes and orders of the codes; slips and items have none
        assert created == [[3, 3, 1, 1]] * 3 if dry_run else [[0, 0, 0, 0], [0, 0, 0, 0], [3, 3, 1, 1]]
    assert feed.ask("select count(*) from data.slips where company_id = %s", feed.company) == [(3,)]
    assert feed.rows("orders", "code") == [("O",)]


def conflict(error: Any) -> str:
    """The message of an error, which is a conflict, of the database or of the program."""
    if isinstance(error, psycopg.Error):
        assert SQLSTATES.get(error.sqlstate or "") == "conflict", error
        return error.diag.message_primary or ""
    assert isinstance(error, ServiceError) and error.code == "conflict", error
    return error.message


ALTERED = {
    "a column goes": ("alter table data.boxes drop column size cascade", AGAIN),
    "a column comes": ("alter table data.boxes add column color text", AGAIN),
    "a type changes": (VIEWS, "alter table data.boxes alter column size type bigint", AGAIN),
    "another name": ("alter table data.boxes rename column note to remark", AGAIN),
    "a column goes, not registered": ("alter table data.boxes drop column note cascade",),
    "a type changes, not registered": (VIEWS, "alter table data.boxes alter column note type varchar(9)"),
    "no entity any more": ("select bds.unregister('slips')", "drop table data.slips", AGAIN),
}


@pytest.mark.parametrize("change", ALTERED)
def test_an_import_whose_table_is_altered_meanwhile_fails_as_a_whole(feed: Feed, change: str) -> None:
    before = feed.log()
    document = {**BOXES, "@atomic": False, "categories": [{"code": "c", "name": "C"}]}
    messages = [conflict(error) for error in meanwhile(feed, DOORS, document, *ALTERED[change])]
    for message in messages:
        assert re.match("data.(boxes|slips) was altered", message), message
    assert (feed.log(), feed.rows("categories", "code")) == (before, [])
    # an import in SQL that fails leaves nothing of itself
    [(state, errors)] = feed.ask("""
        select i.state, (select array_agg(array[e.code, e.message]) from bds.import_errors e where e.import_id = i.id)
        from bds.imports i where i.company_id = %s
    """, feed.company)  # fmt: skip
    assert (state, errors) == ("failed", [["conflict", messages[DOORS.index(by_program)]]])


@pytest.mark.parametrize("change", ["a column goes", "another name", "no entity any more"])
def test_so_does_one_that_was_read_for_an_older_model(feed: Feed, change: str) -> None:
    """Its program has read the entities before a table was altered; it notices where it stages."""
    for statement in ALTERED[change]:
        feed.operator.connection.execute(statement.encode())
    for rows in (1, 2000):
        with pytest.raises(ServiceError) as caught:
            feed.send(boxes=[{"code": f"b{i}", "size": 1, "note": "n", "slips": [{"note": "s"}]} for i in range(rows)])
        assert re.match("data.(boxes|slips) was altered", conflict(caught.value))
    assert feed.staged() == 0


def test_over_http_the_answer_is_409(feed: Feed) -> None:
    with running(feed.url) as service:

        def over_http(feed: Feed, document: dict[str, Any]) -> Any:
            return post(service, json.dumps(document).encode())

        demo = replace(feed, company="demo")
        [reply] = meanwhile(demo, [over_http], BOXES, "alter table data.boxes add column color text", AGAIN)
        assert (reply.status, reply.json["code"]) == (409, "conflict")
        assert reply.json["detail"].startswith("data.boxes was altered")
        [listed] = service.ask("/api/demo/imports?limit=1").json["data"]
        assert listed["state"] == "failed"
        [error] = service.ask(f"/api/demo/imports/{listed['importId']}/errors").json["data"]
        assert (error["code"], error["message"]) == ("conflict", reply.json["detail"])
        assert demo.rows("boxes", "code") == []
        assert over_http(demo, BOXES).status == 200


READS = [
    "/c/demo/boxes", "/c/demo/boxes/code:b1", "/c/demo/boxes?sort=note", "/c/demo/slips", "/c/demo/boxes/code:b1/history",
    "/c/demo/boxes?version=1", "/c/demo/changes", "/c/demo/changes?filter=entity = 'boxes'", "/c/demo/units",
    "/api/odata/demo/boxes?$filter=note eq 'n'&$expand=slips", "/api/odata/demo/slips?$expand=box", "/api/odata/demo@1/boxes",
    "/api/odata/demo/boxes(code='b1')/note", "/api/odata/demo/$metadata", "/api/odata/demo/boxes?$apply=groupby((note))",
    *(f"/api/demo/boxes?export=true&format={format}" for format in UNMAPPED),
]  # fmt: skip


@pytest.mark.parametrize("change", ALTERED)
def test_what_is_read_before_and_after_a_registration_is_right_or_a_503(feed: Feed, change: str) -> None:
    """What was altered is found in the catalog before it is registered again, or the statement no longer fits."""
    with running(feed.url) as service:
        demo = replace(feed, company="demo")
        assert demo.send(BOXES)["state"] == "completed"
        [(first,)] = demo.ask("select id::text from bds.imports where company_id = 'demo' order by number desc limit 1")

        def ask(path: str) -> int:
            return service.ask(path.replace(" ", "%20"), **(
                {} if "odata" in path else {"authorization": f"Bearer {service.key}"}
            )).status  # fmt: skip

        def reads() -> dict[str, int]:
            return {path: ask(path) for path in READS}

        assert {path: status for path, status in reads().items() if status != 200} == {}
        for statement in ALTERED[change]:
            demo.operator.connection.execute(statement.encode())
            found = reads()
            wrong = {path: status for path, status in found.items() if status not in (200, 400, 404, 503)}
            assert wrong == {}, statement
            assert all(status == 200 for path, status in found.items() if path.endswith(("changes", "units", "$metadata"))), found
        for path in (
            f"/api/demo/imports/{first}/revert?dryRun=true",
            "/api/demo/import?dryRun=true",
            f"/api/demo/imports/{first}/revert",
        ):
            reply = post(service, b"" if "revert" in path else json.dumps(BOXES).encode(), path)
            assert reply.status in (200, 400, 409, 422), (path, reply.body)
            if change.endswith("not registered") and "revert" in path:  # an import that changes nothing is one
                assert (reply.status, reply.json.get("code")) == (409, "conflict"), (path, reply.body)


def test_what_another_release_generates_for_the_same_table_goes_on_with_what_was_staged(feed: Feed) -> None:
    """`bds migrate` makes the functions of imports anew where their templates have changed, and no table."""
    owner = feed.operator.connection
    staged = [stage(owner, feed.company, document) for document in (STAGED, {"boxes": ("code", [("b",)])})]
    with owner.transaction():
        owner.execute("update bds_feed.templates set body = body || ' -- of another release' where result <> 'a table'")
        owner.execute("select bds_feed.install()")
    reports = [run_import(owner, feed.company, import_id) for import_id in staged]
    assert [report["state"] for report in reports] == ["partial", "completed"]
    assert feed.rows("boxes", "code") == [("b",)]


@pytest.mark.parametrize("atomic", ["batch", True])
def test_so_does_a_dry_run_in_every_mode(feed: Feed, atomic: Any) -> None:
    for dry_run in (True, False):
        errors = meanwhile(
            feed, [by_program, in_sql], {**BOXES, "@atomic": atomic}, f"alter table data.boxes add column color{dry_run} text", AGAIN,
            dry_run=dry_run,
        )  # fmt: skip
        assert all(conflict(error) for error in errors)
    assert feed.rows("boxes", "code") == []


def test_registrations_all_the_time_lose_nothing(feed: Feed) -> None:
    """In SQL each entity of a document is staged by statements of its own, between which another session's registration commits."""
    done = threading.Event()

    def register() -> None:
        with psycopg.connect(feed.url, autocommit=True) as dba:
            while not done.is_set():
                dba.execute("alter table data.gadgets add column more int")
                dba.execute(GADGETS)
                dba.execute("alter table data.gadgets drop column more cascade")
                dba.execute(GADGETS)

    thread = threading.Thread(target=register)
    thread.start()
    try:
        for n in range(6):
            document = {
                "categories": [{"code": f"k{n}", "name": "k"}],
                "products": [{"code": f"p{n}-{i}", "name": "x", "variants": [{"code": f"p{n}-{i}v"}]} for i in range(300)],
                "orders": [{"code": f"o{n}-{i}", "orderDate": "2026-01-01", "items": [{"quantity": 1}]} for i in range(100)],
            }
            for send in (in_sql, by_program):
                report = send(feed, document)
                assert (report["state"], report["errorCount"]) == ("completed", 0)
                assert {name: sum(each.values()) for name, each in report["entities"].items()} == {
                    "categories": 1, "products": 300, "productVariants": 300, "orders": 100, "orderItems": 100,
                }  # fmt: skip
    finally:
        done.set()
        thread.join()
    assert (len(feed.rows("products", "code")), len(feed.rows("orderItems", "quantity"))) == (1800, 600)
