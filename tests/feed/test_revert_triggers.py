"""Reverts of tables with triggers and referring tables of their owner: what is wanted is there in the end, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from tests.conftest import not_divided, prepared
from tests.feed.conftest import Feed, alone, counts
from tests.feed.test_revert import content, problems, revert
from tests.feed.test_revert_tables import ROW, alter, change

pytestmark = [pytest.mark.slow, not_divided("foreign keys and triggers of the owner are over whole tables")]

TABLES = f"""
create table data.carts ({ROW}, code text not null, number int, total numeric(9, 2), half numeric generated always as (total / 2) stored,
    note text, unique (company_id, code), unique (company_id, number));
select bds.register('data.carts');
create table data.lines ({ROW}, cart_id bigint not null, quantity numeric(9, 2) not null,
    foreign key (company_id, cart_id) references data.carts (company_id, id) on delete cascade);
select bds.register('data.lines', parent => 'cart_id');
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES, of_units)


@pytest.fixture(scope="module")
def tables(module_database_url: str) -> Iterator[Feed]:
    yield from alone(module_database_url)


@pytest.fixture
def carts(tables: Feed) -> Iterator[Feed]:
    """The only company, with two carts: statements and triggers need not name it."""
    feed = replace(tables, company=tables.operator.company(f"r{next(_numbers)}"))
    change(
        feed,
        "insert into data.carts (id, code, number, total, note) values (1, 'A', 1, 5, 'Old'), (2, 'B', 2, 0, null)",
        "insert into data.lines (id, cart_id, quantity) values (1, 1, 3), (2, 1, 2)",
    )
    yield feed
    tables.operator.delete_company(feed.company)


@contextmanager
def trigger(feed: Feed, when: str, body: str) -> Iterator[None]:
    alter(
        feed,
        f"create function public.own() returns trigger language plpgsql as $$ begin {body} end $$",
        f"create {'constraint ' if 'deferr' in when else ''}trigger own {when} execute function public.own()",
    )
    try:
        yield
    finally:
        alter(feed, "drop function public.own cascade")


def test_a_function_of_a_trigger_without_a_right_is_named_with_what_to_do(carts: Feed) -> None:
    change_set = change(carts, "update data.carts set note = 'New' where code = 'A'")
    alter(carts, "create table public.journal (id bigint)")
    expected = (
        "bds_importer may not do what the function public.own() of a trigger does: make the function security definer, or grant"
        " bds_importer what it needs"
    )
    try:
        with trigger(carts, "after update on data.carts for each row", "insert into public.journal values (new.id); return null;"):
            for work in (lambda: revert(carts, change_set), lambda: carts.send({"carts": [{"code": "A", "note": "Newer"}]})):
                with pytest.raises(psycopg.Error) as caught:
                    work()
                assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("BD004", expected)
            alter(carts, "alter function public.own security definer")
            assert revert(carts, change_set)["state"] == "completed"
    finally:
        alter(carts, "drop table public.journal")


SUMS = """
    if tg_op in ('DELETE', 'UPDATE') then update data.carts set total = total - old.quantity where id = old.cart_id; end if;
    if tg_op in ('INSERT', 'UPDATE') then update data.carts set total = total + new.quantity where id = new.cart_id; end if;
    return null;
"""
LINES = "after insert or update or delete on data.lines"
CHANGES = (
    "insert into data.lines (id, cart_id, quantity) values (3, 1, 5)",
    "update data.lines set quantity = 10 where id = 1",
    "delete from data.lines where id = 2",
    "update data.carts set total = 15, number = 9, note = 'New' where code = 'A'",
    "delete from data.carts where code = 'B'",
    "insert into data.carts (id, code, number, total) values (3, 'C', 1, 1)",
)


@pytest.mark.parametrize(
    ("when", "body"),
    [
        (f"{LINES} for each row", SUMS),
        (f"{LINES} deferrable initially deferred for each row", SUMS),
        (f"{LINES} for each statement", "update data.carts c set total = coalesce("
            "(select sum(l.quantity) from data.lines l where l.cart_id = c.id and l.company_id = c.company_id), 0); return null;"),
        ("before update on data.carts for each row",
            "new.total := (select sum(quantity) from data.lines where cart_id = new.id); return new;"),
        ("after insert on data.carts for each row", "update data.carts set note = 'made', total = 7 where id = new.id; return null;"),
        ("after update on data.carts for each row when (old.number is distinct from new.number)",
            "delete from data.lines where id = 1; return null;"),
        ("after delete on data.lines for each row when (pg_trigger_depth() = 0 and old.quantity = 5)",
            "insert into data.lines (company_id, id, cart_id, quantity) values (old.company_id, old.id, old.cart_id, 6); return null;"),
    ],
    ids=["delta", "deferred", "sum", "before", "after-insert", "deletes-a-row", "puts-a-row-back"],
)  # fmt: skip
@pytest.mark.parametrize("is_older", [True, False], ids=["older", "newer"])
def test_what_a_trigger_has_made_of_the_rows_is_mended(carts: Feed, when: str, body: str, is_older: bool) -> None:
    """is_older: the trigger has fired for the change set, too."""
    before = content(carts)
    change_set = "" if is_older else change(carts, *CHANGES)
    with trigger(carts, when, body):
        change_set = change_set or change(carts, *CHANGES)
        after, log = content(carts), carts.log()
        dry = revert(carts, change_set, dry_run=True)
        assert (dry["state"], content(carts), carts.log()) == ("completed", after, log), dry
        wet = revert(carts, change_set)
    assert (wet["state"], wet["entities"], content(carts)) == ("completed", dry["entities"], before), wet
    assert carts.operator.rows("select kind, entity, examples from bds.compare_log(%s)", (carts.company,)) == []


@pytest.mark.parametrize(
    ("when", "body", "expected"),
    [
        ("before insert or update on data.carts for each row", "new.note := upper(new.note); return new;",
            [("carts.note", "code:A", 'a trigger changes it: expected "Old", found "OLD"')]),
        ("before update on data.carts for each row", "new.total := 7; return new;",
            [("carts.total", "code:A", "a trigger changes it: expected 5.00, found 7.00")]),
        ("before update on data.carts for each row", "old.updated_at := new.updated_at; return old;",
            [("carts.number", "code:A", "a trigger changes it: expected 1, found 9")]),
        ("before update on data.carts for each row when (new.number is distinct from old.number)", "return null;",
            [("carts.number", "code:A", "a trigger changes it: expected 1, found 9")]),
        ("before delete on data.lines for each row", "return null;", [("lines", "id:3", "a trigger keeps the row")]),
        ("before insert on data.lines for each row", "return null;", [("lines", "id:2", "a trigger removes the row")]),
        ("after insert on data.carts for each row", "delete from data.carts where id = new.id; return null;",
            [("carts", "code:B", "a trigger removes the row")]),
        ("after delete on data.lines for each row when (old.quantity >= 5)",
            "insert into data.lines select old.*; return null;", [("lines", "id:3", "a trigger keeps the row")]),
        ("after update on data.carts for each row when (pg_trigger_depth() < 4)",
            "update data.carts set total = total + 1 where id = new.id; return null;",
            [("carts.total", "code:A", "a trigger changes it: expected 5.00, found 9.00")]),
    ],
    ids=["normalises", "constant", "old", "skips", "keeps", "no-insert", "removes", "puts-back", "adds"],
)  # fmt: skip
@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
def test_a_trigger_that_will_not_have_the_wanted_values_makes_the_undo_fail_as_a_whole(
    carts: Feed, when: str, body: str, expected: list[tuple[str, str, str]], force: bool
) -> None:
    change_set = change(carts, *CHANGES)
    if force:
        change(carts, "update data.lines set quantity = 11 where id = 1")
    after, log = content(carts), carts.log()
    with trigger(carts, when, body):
        for dry_run in (True, False):
            report = revert(carts, change_set, dry_run=dry_run, force=force)
            assert (report["state"], report["errorCount"]) == ("failed", len(expected)), report
            assert [
                (e["path"].replace(f"/{e['path'].split('/')[1].split('.')[0]}", ""), e["record"], e["message"])
                for e in report["errors"]
            ] == expected
            assert {e["code"] for e in report["errors"]} == {"conflict"}
            failed = expected[0][0].split(".")[0]
            assert {name: each for name, each in counts(report).items() if each} == {failed: {"failed": len(expected)}}
            assert (content(carts), carts.log()) == (after, log)
    assert revert(carts, change_set, force=force)["state"] == "completed"


def test_rows_that_conflict_stay_when_a_trigger_is_mended_and_are_listed_when_it_is_not(carts: Feed) -> None:
    change_set = change(carts, *CHANGES)
    change(carts, "update data.lines set quantity = 11 where id = 1")
    with trigger(carts, f"{LINES} for each row", SUMS):
        report = revert(carts, change_set)
    assert (report["state"], problems(report)) == ("partial", [("lines", "id:1", "conflict")])
    assert carts.ask("select id, quantity from api.lines order by id") == [(1, 11), (2, 2)]
    assert carts.ask("select code, number, total, note from api.carts order by code") == [("A", 1, 5, "Old"), ("B", 2, 0, None)]
    again = change(carts, "update data.carts set note = 'x'", "update data.lines set quantity = 12 where id = 1")
    change(carts, "update data.lines set quantity = 13 where id = 1")
    with trigger(carts, "before update on data.carts for each row", "new.note := 'mine'; return new;"):
        report = revert(carts, again)
    assert (report["state"], problems(report)) == (
        "failed", [("carts.note", "code:A", "conflict"), ("carts.note", "code:B", "conflict"), ("lines", "id:1", "conflict")],
    )  # fmt: skip


def test_what_a_trigger_writes_outside_of_the_undo_stays_as_its_own_change(carts: Feed) -> None:
    """In other rows, and in columns that the change set has not changed."""
    change_set = change(
        carts, "insert into data.lines (id, cart_id, quantity) values (3, 2, 5)", "update data.carts set note = 'x' where id = 1"
    )
    body = "update data.carts set total = total + 1; return null;"
    with trigger(carts, "after delete on data.lines for each statement", body):
        report = revert(carts, change_set)
    assert (report["state"], counts(report)) == ("completed", {"carts": {"updated": 1}, "lines": {"deleted": 1}})
    assert carts.ask("select code, total, note from api.carts order by code") == [("A", 6, "Old"), ("B", 1, None)]
    assert carts.ask(
        "select column_name, old, new from bds.change_values(%s, change_set => %s) where row_id = 2 and column_name = 'total'",
        carts.company, report["changeSetId"],
    ) == [("total", "0.00", "1.00")]  # fmt: skip


CART = "company_id text collate \"C\" not null default 'none', cart_id bigint"
KEY = "foreign key (company_id, cart_id) references data.carts (company_id, id)"
NOTES = f"create table elsewhere.notes ({CART}, note text, {KEY} {{}})"


@pytest.mark.parametrize(
    "statements",
    [
        [NOTES.format("on delete cascade")],
        [NOTES.format("on delete set null (cart_id)")],
        [NOTES.format("on delete set default (cart_id)")],
        [NOTES.format("on delete restrict")],
        [NOTES.format("on delete no action")],
        [NOTES.format("deferrable initially deferred")],
        [
            "create table elsewhere.notes (company_id text collate \"C\", cart_id bigint, code text, note text,"
            " foreign key (company_id, code) references data.carts (company_id, code) on delete cascade)"
        ],
        [
            f"create table elsewhere.notes ({CART}, note text, {KEY} on delete cascade) partition by list (note)",
            "create table elsewhere.notes_1 partition of elsewhere.notes for values in ('precious') partition by list (note)",
            "create table elsewhere.notes_2 partition of elsewhere.notes_1 default",
        ],
        [
            f"create table elsewhere.all_notes ({CART}, note text) partition by list (note)",
            "create table elsewhere.notes partition of elsewhere.all_notes default",
            f"alter table elsewhere.notes add {KEY} on delete cascade",
        ],
        [NOTES.format("on delete cascade"), "alter table elsewhere.notes enable row level security, force row level security"],
        [
            f"create table elsewhere.notes ({CART}, note text, unique (company_id, cart_id), {KEY} on delete cascade)",
            f"create table elsewhere.words ({CART}, foreign key (company_id, cart_id) references elsewhere.notes (company_id, cart_id)"
            " on delete cascade)",
        ],
    ],
    ids=["cascade", "set-null", "set-default", "restrict", "no-action", "deferred", "by-code", "partitions", "partition", "rls", "deep"],
)  # fmt: skip
def test_rows_to_which_a_table_refers_that_is_no_entity_and_that_no_role_of_the_service_may_read_stay(
    carts: Feed, statements: list[str]
) -> None:
    change_set = change(carts, "insert into data.carts (id, code, number) select n, 'N' || n, n from generate_series(3, 9) n")
    row = {"company_id": carts.company, "cart_id": "5", "note": "precious", "code": "N5"}
    alter(
        carts,
        "create role stranger",
        "create schema elsewhere authorization stranger; grant usage on schema data to stranger; grant references on data.carts to stranger",
        "set role stranger",
        *statements,
        "reset role",
    )
    try:
        tables = carts.operator.rows(
            "select oid::regclass::text from pg_class where relnamespace = 'elsewhere'::regnamespace and relkind = 'r' order by oid"
        )
        for (table,) in tables:
            names = {
                name
                for (name,) in carts.operator.rows(
                    "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0", (table,)
                )
            }
            alter(carts, f"insert into {table} ({', '.join(sorted(names & row.keys()))}) values"
                f" ({', '.join(repr(row[name]) for name in sorted(names & row.keys()))})")  # fmt: skip
        kept = [carts.operator.rows(f"select to_jsonb(t) from {table} t") for (table,) in tables]
        for options in ({"dry_run": True}, {"force": True, "dry_run": True}, {}):
            report = revert(carts, change_set, **options)
            assert (report["state"], problems(report)) == ("partial", [("carts", "code:N5", "in_use")])
            assert counts(report) == {"carts": {"deleted": 6, "failed": 1}}
        assert carts.rows("carts", "code") == [("A",), ("B",), ("N5",)]
        assert [carts.operator.rows(f"select to_jsonb(t) from {table} t") for (table,) in tables] == kept
        for (table,) in tables:
            alter(carts, f"truncate {table} cascade")
        assert counts(revert(carts, change_set)) == {"carts": {"deleted": 1, "unchanged": 6}}
    finally:
        alter(carts, "drop owned by stranger cascade", "drop role stranger")


def test_what_a_trigger_writes_in_a_table_that_refers_to_other_rows_keeps_no_row(carts: Feed) -> None:
    change_set = change(
        carts,
        "insert into data.carts (id, code, number) values (3, 'C', 3), (4, 'D', 4)",
        "insert into data.lines (id, cart_id, quantity) values (3, 1, 1), (4, 2, 1)",
    )
    alter(
        carts,
        f"create table data.sums (total int, {CART}, {KEY} on delete cascade)",
        "grant select, update on data.sums to bds_writer",
        f"insert into data.sums select 0, '{carts.company}', n from generate_series(1, 4) n where n <> 4",
    )
    try:
        with trigger(
            carts,
            "after delete on data.lines for each row",
            "update data.sums set total = 1 where cart_id = old.cart_id; return null;",
        ):
            report = revert(carts, change_set)
        assert (report["state"], problems(report)) == ("partial", [("carts", "code:C", "in_use")])
        assert carts.ask("select cart_id, total from data.sums order by 1") == [(1, 1), (2, 1), (3, 0)]
        change_set = change(
            carts,
            "insert into data.carts (id, code, number) values (5, 'E', 5)",
            "insert into data.lines (id, cart_id, quantity) values (5, 1, 1)",
        )
        with trigger(
            carts,
            "after delete on data.lines for each row",
            "update data.sums set total = 2 where cart_id = old.cart_id; return null;",
        ):
            report = revert(carts, change_set)
        assert (report["state"], counts(report)) == ("completed", {"carts": {"deleted": 1}, "lines": {"deleted": 1}})
        assert carts.ask("select cart_id, total from data.sums order by 1") == [(1, 2), (2, 1), (3, 0)]
    finally:
        alter(carts, "drop table data.sums")


@pytest.mark.parametrize("rule", ["cascade", "set null (line_id)"])
def test_a_row_with_which_a_row_would_go_that_is_referred_to_stays_too(carts: Feed, rule: str) -> None:
    change_set = change(
        carts,
        "insert into data.carts (id, code, number) values (3, 'C', 3), (4, 'D', 4)",
        "insert into data.lines (id, cart_id, quantity) values (3, 3, 1), (4, 4, 1)",
    )
    alter(
        carts,
        'create table data.parcels (company_id text collate "C", line_id bigint,'
        f" foreign key (company_id, line_id) references data.lines (company_id, id) on delete {rule})",
        f"insert into data.parcels values ('{carts.company}', 3)",
    )
    try:
        for options in ({"dry_run": True}, {}, {"force": True}):
            report = revert(carts, change_set, **options)
            assert (report["state"], [each["code"] for each in report["errors"]]) == ("partial", ["in_use"] * 2)
            assert carts.ask("select line_id from data.parcels") == [(3,)]
        assert carts.rows("carts", "code") == [("A",), ("B",), ("C",)]
    finally:
        alter(carts, "drop table data.parcels")
