"""What a revert leaves in the log: one change of each row, from its old value to its new one, whatever the rows had to pass through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.chance import seeds
from tests.conftest import prepared
from tests.feed.conftest import STAFF, Feed, alone, counts
from tests.feed.test_revert import Changes, content, problems, revert
from tests.feed.test_revert_tables import ROW, change

pytestmark = pytest.mark.slow

BOXES = f"""
create table data.boxes ({ROW}, code varchar(5) not null, place int not null, mark uuid not null, slot bigint, day date,
    unique (company_id, code), unique (company_id, place), unique (company_id, mark), unique (company_id, slot), unique (company_id, day));
select bds.register('data.boxes', singular => 'box');
"""


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, STAFF + BOXES + SHELVES + MOODS + NOTES)


@pytest.fixture
def boxes(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def records(feed: Feed, change_set: str) -> list[tuple[Any, ...]]:
    return feed.ask(
        "select entity, row_id, operation, columns, old from bds.changes where company_id = %s and change_set_id = %s order by id",
        feed.company,
        change_set,
    )


def assert_logged_once(feed: Feed, change_set: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """A change set has one record for each row that it made of one state another, with the values of both; the rows' hashes are right."""
    then, now = ({(entity, row["id"]): row for entity in state for row in state[entity]} for state in (before, after))
    found = [record for record in records(feed, change_set) if record[2] != "update" or record[4]]
    rows = [(entity, row_id) for entity, row_id, *_ in found]
    assert sorted(rows) == sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))
    for entity, row_id, operation, _, old in found:
        key = (entity, row_id)
        assert operation == ("create" if key not in then else "delete" if key not in now else "update")
        if operation == "update":
            assert old == {k: v for k, v in then[key].items() if now[key][k] != v or k in old}, key
        elif operation == "delete":
            assert {k: v for k, v in old.items() if k != "updatedAt"} == {k: v for k, v in then[key].items() if k != "company_id"}
    assert not feed.operator.rows("select * from bds.compare_log(%s)", (feed.company,))


def assert_undone(feed: Feed, change_set: str, start: dict[str, Any] | None = None) -> str:
    """Undo a change set, undo that, and look at the log of both.  Returns the change set of the latter.

    start: the state before the change set, if it is what the first undoing has to give.
    """
    after = content(feed)
    undone = revert(feed, change_set)
    assert undone["state"] == "completed", undone["errors"]
    before = content(feed)
    assert start is None or before == start
    assert_logged_once(feed, undone["importId"], after, before)
    redone = revert(feed, undone["importId"])
    assert redone["state"] == "completed", redone["errors"]
    assert content(feed) == after
    assert_logged_once(feed, redone["importId"], before, after)
    return str(redone["importId"])


def renamed(feed: Feed, table: str, column: str, **codes: str | None) -> str:
    """Give rows, by their codes, other values of a column, which they may take from one another; returns the change set."""
    pairs = list(codes.items())
    ids = [
        feed.ask(f"select id from data.{table} where company_id = %s and code = %s", feed.company, code)[0][0] for code, _ in pairs
    ]
    return change(
        feed,
        *(f"update data.{table} set {column} = 'tmp' || id where id = {id}" for id in ids),
        *(
            f"update data.{table} set {column} = {'null' if value is None else repr(value)} where id = {id}"
            for id, (_, value) in zip(ids, pairs, strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("code", {"A": "B", "B": "A"}),
        ("code", {"A": "B", "B": "C", "C": "A"}),
        ("code", {"A": "B", "B": "C", "C": "X"}),
        ("barcode", {"A": "2", "B": "1"}),
        ("barcode", {"A": "2", "B": "3", "C": "1"}),
        ("barcode", {"A": "2", "B": None}),
        ("barcode", {"A": None, "B": "1", "C": "2"}),
    ],
)
def test_values_that_rows_took_from_one_another_are_one_change_of_each_row(
    feed: Feed, column: str, values: dict[str, str | None]
) -> None:
    feed.good(products=[{"code": c, "name": c, "barcode": str(n)} for n, c in enumerate("ABC", 1)])
    start = content(feed)
    change_set = renamed(feed, "products", column, **values)
    last = assert_undone(feed, change_set)
    revert(feed, last)
    assert content(feed) == start


@pytest.mark.parametrize("seed", seeds(12))
def test_random_changes_are_undone_with_one_change_of_each_row(feed: Feed, seed: int) -> None:
    changes = Changes(feed, seed)
    changes.make(60)
    before = content(feed)
    change_set = changes.make(changes.random.choice((5, 20, 60)))
    if content(feed) != before:
        assert_undone(feed, change_set, start=before)


def test_a_code_that_goes_from_a_row_to_a_new_one_leaves_no_trace_of_another(feed: Feed) -> None:
    feed.good(
        units=[{"code": "U", "name": "old"}],
        products=[{"code": "A", "name": "a", "unit": "code:U", "barcode": "7"}, {"code": "B", "name": "b"}],
    )
    c = f"company_id = '{feed.company}'"
    change_set = change(
        feed,
        f"update data.units set code = 'tmp' where {c}",
        f"insert into data.units (company_id, code, name) values ('{feed.company}', 'U', 'new')",
        f"update data.products p set unit_id = (select max(id) from data.units where {c}) where {c}",
        f"delete from data.units where code = 'tmp' and {c}",
        # of B nothing but a unique value changes, which another row gives up
        f"update data.products set barcode = null where code = 'A' and {c}",
        f"update data.products set barcode = '7' where code = 'B' and {c}",
    )
    assert_undone(feed, change_set)


def test_rows_of_a_circle_come_back_with_one_change_each(staff: Feed) -> None:
    staff.good(
        people=[{"code": "ann", "team": "code:red"}, {"code": "bob"}],
        teams=[{"code": "red", "lead": "code:ann"}, {"code": "blue"}],
    )
    change_set = change(
        staff,
        "update data.teams set lead_id = (select id from data.people where code = 'bob') where code = 'blue'",
        "update data.teams set lead_id = null where code = 'red'",
        "delete from data.people where code = 'ann'",
        "delete from data.teams where code = 'red'",
    )
    last = assert_undone(staff, change_set)
    # a row that stays refers to one that comes back, and nothing else of it changes
    revert(staff, last)
    assert_undone(staff, change(
        staff, "update data.teams set lead_id = null", "delete from data.people where code = 'ann'"
    ))  # fmt: skip


def test_unique_numbers_texts_of_a_length_and_uuids_are_swapped_back(boxes: Feed) -> None:
    rows = "".join(f", ('acme', 'box{n}', {n}, md5('{n}')::uuid, {n}, date '2026-01-01' + {n})" for n in (1, 2, 3))
    boxes.write("insert into data.boxes (company_id, code, place, mark, slot, day) values " + rows[1:])
    change_set = change(
        boxes,
        "update data.boxes set code = 'x' || id, place = place + 100, mark = md5(id || 'x')::uuid, slot = null, day = null",
        "update data.boxes set code = 'box' || mod(id, 3) + 1, place = mod(id, 3) + 1, mark = md5((mod(id, 3) + 1)::text)::uuid,"
        " slot = mod(id, 3) + 1, day = date '2026-01-01' + (mod(id, 3) + 1)::int",
    )
    assert_undone(boxes, change_set)


SHELVES = f"""
create table data.shelves ({ROW}, code text not null check (code ~ '^[A-Z][0-9]{{3}}$'), mail text not null check (mail like '%@%'),
    place smallint not null check (place > 0), slot bigint not null, price numeric(6, 2) not null, day date not null,
    since timestamptz not null, "From" date not null, "to" date not null, check (slot > 0 and price > slot), check ("From" < "to"),
    unique (company_id, code), unique (company_id, mail), unique (company_id, place), unique (company_id, slot),
    unique (company_id, price), unique (company_id, day), unique (company_id, since),
    unique (company_id, "From"), unique (company_id, "to"));
select bds.register('data.shelves', singular => 'shelf');
"""


@pytest.fixture
def shelves(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def fill_shelves(feed: Feed, rows: int) -> None:
    feed.write(
        'insert into data.shelves (company_id, code, mail, place, slot, price, day, since, "From", "to")'
        " select 'acme', 'A10' || n, n || '@b', n, n, n + 9, d + n, d + n, d + n, d + n + 300"
        f" from generate_series(1, {rows}) n, (values (date '2026-01-01')) d (d)"
    )


def test_values_with_checks_and_required_dates_are_swapped_back(shelves: Feed) -> None:
    fill_shelves(shelves, 3)
    values = (
        "code = 'A10' || {n}, mail = {n} || '@b', place = {n}, slot = {n}, price = {n} + 9, day = {d}, since = {d}, \"From\" = {d},"
    )
    values += ' "to" = {d} + 300'
    change_set = change(
        shelves,
        *(
            "update data.shelves set " + values.format(n=n, d=f"(date '2026-01-01' + {n})") + f" where code = 'A10{of}'"
            for of, n in ((1, 9), (2, 1), (3, 2), (9, 3))
        ),
    )
    assert_undone(shelves, change_set)


# Types of unique columns that have few values or rules of their own, two values that are swapped, and one that is free.
TIGHT = {
    "data.initial": ("A1", "B2", "C3"),
    "data.even": ("2", "4", "-8"),
    "numeric(2, 0)": ("99", "-99", "0"),
    "numeric(2, 2)": ("0.99", "-0.99", "0"),
    "numeric": ("1.5", "1e30", "0"),
    "smallint": ("32767", "-32768", "0"),
    "real": ("3.4e38", "-3.4e38", "0"),
    "double precision": ("1.7e308", "-1.7e308", "0"),
    "time": ("00:00", "24:00", "12:00"),
    "date": ("0001-01-01", "9999-12-31", "2000-01-01"),
    "timestamptz": ("0001-01-01 00:00Z", "9999-12-31 23:59:59.999999Z", "2000-01-01 00:00Z"),
    "interval": ("1 day", "-1 mon", "0"),
    "data.mood": ("good", "bad", "fair"),
    "char(2)": ("ab", "cd", "ef"),
    "varchar(3)": ("abc", "def", "ghi"),
    "bytea": ("", r"\\x00", r"\\x01"),
}
MOODS = f"""
create type data.mood as enum ('good', 'bad', 'fair', 'none');
create domain data.initial as text check (value ~ '^[A-Z][0-9]$');
create domain data.even as int check (value % 2 = 0);
create table data.tight ({ROW}, {", ".join(f"v{n} {type} not null, unique (company_id, v{n})" for n, type in enumerate(TIGHT))});
create table data.flags ({ROW}, flag boolean not null, unique (company_id, flag));
create table data.days (
    {ROW}, code varchar(2), day date not null, weight real,
    unique (company_id, code), unique (company_id, day), unique (company_id, weight)
);
select bds.register('data.tight'), bds.register('data.flags'), bds.register('data.days');
"""


def test_values_of_types_with_few_or_ruled_values_are_swapped_back(shelves: Feed) -> None:
    def assign(number: int, template: str) -> str:
        return ", ".join(template.format(n=n, value=f"'{values[number]}'") for n, values in enumerate(TIGHT.values()))

    for number in (0, 1):
        shelves.write(f"insert into data.tight (company_id, {assign(0, 'v{n}')}) values ('acme', {assign(number, '{value}')})")
    [(first,), (second,)] = shelves.ask("select id from data.tight order by id")
    change_set = change(
        shelves,
        *(
            f"update data.tight set {assign(number, 'v{n} = {value}')} where id = {row}"
            for row, number in ((first, 2), (second, 0), (first, 1))
        ),
    )
    assert_undone(shelves, change_set)


def test_each_of_many_rows_that_wait_gets_a_value_of_its_own(shelves: Feed) -> None:
    """Also where it is drawn from few: no date is below or above all others, a code has two characters, a real seven digits."""
    shelves.write("insert into data.days (company_id, day) values ('acme', '0001-01-01'), ('acme', '9999-12-31')")
    shelves.write(
        "insert into data.days (company_id, code, day, weight)"
        " select 'acme', lpad(to_hex(n), 2, '0'), date '2000-01-01' + n, n from generate_series(0, 99) n"
    )
    assert_undone(
        shelves,
        change(
            shelves,
            "update data.days set day = day + 200000, weight = weight + 1000, code = chr(200 + weight::int) where code is not null",
            "update data.days set day = date '2000-01-01' + n, weight = n, code = lpad(to_hex(n), 2, '0')"
            " from (select id as row, (row_number() over (order by id) % 100)::int as n from data.days where code is not null) r"
            " where r.row = id",
        ),
    )


def test_a_swap_that_no_free_value_allows_is_a_conflict(shelves: Feed) -> None:
    shelves.write("insert into data.flags (company_id, flag) values ('acme', true), ('acme', false)")
    change_set = change(
        shelves,
        "delete from data.flags where flag",
        "update data.flags set flag = true",
        "insert into data.flags (company_id, flag) values ('acme', false)",
    )
    report = revert(shelves, change_set)
    assert (report["state"], {each["code"] for each in report["errors"]}) == ("partial", {"conflict"}), report
    assert shelves.ask("select flag from data.flags") == [(True,)]


def test_values_that_leave_no_room_are_refused_by_their_check(shelves: Feed) -> None:
    fill_shelves(shelves, 2)
    change_set = change(
        shelves, *(f"update data.shelves set place = {to} where place = {of}" for of, to in ((1, 3), (2, 1), (3, 2)))
    )
    shelves.operator.connection.execute("alter table data.shelves add constraint low check (place < 3)")
    before = content(shelves)
    assert [code for *_, code in problems(revert(shelves, change_set))] == ["invalid_value", "invalid_value"]
    assert content(shelves) == before


def test_a_parent_and_its_children_are_one_change_of_the_parent(feed: Feed) -> None:
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "note": "old", "items": [{"quantity": 1}, {"quantity": 2}]}])
    change_set = feed.send(orders=[{"code": "O", "note": "new", "items": [{"quantity": 1, "description": "x"}]}])["importId"]
    undone = revert(feed, change_set)["importId"]
    assert [(operation, columns) for entity, _, operation, columns, _ in records(feed, undone) if entity == "orders"] == [
        ("update", ["note", "items"])
    ]


def test_a_session_cannot_complete_records_as_an_undo_does(feed: Feed) -> None:
    feed.good(units=[{"code": "A", "name": "a"}, {"code": "B", "name": "b"}])
    own, on = f"where company_id = '{feed.company}'", "select set_config('bds.settling', '1', true)"
    change_set = change(
        feed,
        on,
        f"update data.units set name = 'x' {own} and code = 'A'",
        on,
        f"update data.units set code = 'C' {own} and code = 'A'",
    )
    assert [old for *_, old in records(feed, change_set)] == [{"name": "a"}, {"code": "A"}]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        change(feed, "set local role bds_writer", f"select bds_change_log.settle('{feed.company}', true)")
    assert not feed.operator.rows("select * from bds.compare_log(%s)", (feed.company,))


NOTES = f"""
create table data.notes ({ROW}, code text not null, seen int not null, unique (company_id, code));
select bds.register('data.notes', singular => 'note');
create table data.marks ({ROW}, code text not null, place int, tries int, unique (company_id, code), unique (company_id, place));
select bds.register('data.marks', singular => 'mark');
create function data.note() returns trigger language plpgsql as $$
begin
    insert into data.notes (company_id, code, seen) values (new.company_id, new.code || clock_timestamp(), new.place);
    update data.notes set seen = seen + 1 where company_id = new.company_id and code in ('all', new.code);
    return null;
end $$;
-- only for values that a revert writes last
create trigger note after update on data.marks for each row when (new.place > 0) execute function data.note();
alter table data.marks disable trigger note;
create function data.retry() returns trigger language plpgsql as $$
begin
    update data.marks set tries = coalesce(tries, 0) + 1 where company_id = new.company_id and id <> new.id and place > 0;
    return null;
end $$;
create trigger retry after update on data.marks for each row when (pg_trigger_depth() = 0) execute function data.retry();
alter table data.marks disable trigger retry;
"""


@pytest.fixture
def notes(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


@pytest.mark.parametrize("trigger", ["note", "retry"])
def test_what_triggers_of_others_write_meanwhile_has_records_of_its_own(notes: Feed, trigger: str) -> None:
    notes.write("insert into data.marks (company_id, code, place) values ('acme', 'A', 1), ('acme', 'B', 2), ('acme', 'C', 3)")
    notes.write("insert into data.notes (company_id, code, seen) values ('acme', 'all', 0), ('acme', 'A', 0)")
    change_set = change(
        notes,
        "update data.marks set place = -1 where code = 'A'",
        "update data.marks set place = 1 where code = 'B'",
        "update data.marks set place = 2 where code = 'A'",
    )
    last = len(notes.log())
    past = f"select r from bds.rows_at('acme', 'marks', {last}) r union all select r from bds.rows_at('acme', 'notes', {last}) r order by 1"
    before = notes.ask(past)
    notes.operator.connection.execute(f"alter table data.marks enable trigger {trigger}".encode())
    undone = revert(notes, change_set)
    assert (undone["state"], undone["errors"]) == ("completed", [])
    assert notes.rows("marks", "code", "place", order="code") == [("A", 1), ("B", 2), ("C", 3)]
    assert notes.ask("select seen from data.notes where code in ('all', 'A') order by id") == (
        [(2,), (1,)] if trigger == "note" else [(0,), (0,)]
    )
    assert not notes.operator.rows("select * from bds.compare_log('acme')")
    assert notes.ask(past) == before
    for version, row, old in notes.ask(
        """
        select h.version, h.row, h.old || coalesce(lag(h.row) over w, '{}') = coalesce(lag(h.row) over w, '{}')
        from data.marks m cross join bds.row_history('acme', 'marks', m.id) h window w as (partition by m.id order by h.version)
        """
    ):
        assert old is not False, (version, row)


# What others changed, and changed back ----------------------------------------------------------------------------------------------


def imports(feed: Feed) -> list[str]:
    """Three imports into the same rows; returns their change sets."""
    documents: list[dict[str, Any]] = [
        {"products": [{"code": "A", "name": "one", "price": 1}, {"code": "B", "name": "one"}, {"code": "C", "name": "one"}]},
        {
            "products": [
                {"code": "A", "price": 2},
                {"code": "B", "@operation": "delete"},
                {"code": "C", "name": "two", "barcode": "2"},
            ]
        },
        {"products": [{"code": "A", "name": "three"}, {"code": "B", "name": "three"}, {"code": "C", "@operation": "delete"}]},
    ]
    return [feed.send(document)["importId"] for document in documents]


def test_imports_are_undone_newest_first_and_again(feed: Feed) -> None:
    done = imports(feed)
    states = [content(feed)]
    undone = []
    for change_set in reversed(done):
        report = revert(feed, change_set)
        assert report["state"] == "completed", report["errors"]
        undone.append(report["importId"])
        states.append(content(feed))
    assert feed.rows("products", "code") == []
    for change_set in reversed(undone):  # undo of the undo
        states.pop()
        report = revert(feed, change_set)
        assert report["state"] == "completed", report["errors"]
        assert content(feed) == states[-1]
    for change_set in reversed(done):
        report = revert(feed, change_set)
        assert report["state"] == "completed", report["errors"]
    assert feed.rows("products", "code") == []


def test_what_others_changed_back_is_no_conflict_and_what_they_did_not_is(feed: Feed) -> None:
    feed.good(units=[{"code": c, "name": "a"} for c in "ABC"])
    change_set = feed.send(units=[{"code": c, "name": "b"} for c in "ABC"])["importId"]
    for name, symbol in (("x", "s"), ("b", None)):
        feed.good(units=[{"code": "A", "name": name, "symbol": symbol}])
    feed.good(units=[{"code": "B", "symbol": "s"}])
    change(feed, f"update data.units set name = 'other' where code = 'C' and company_id = '{feed.company}'")
    report = revert(feed, change_set)
    assert problems(report) == [("units", "code:B", "conflict"), ("units", "code:C", "conflict")]
    assert feed.rows("units", "name", order="code") == [("a",), ("b",), ("other",)]


def test_a_change_between_those_of_a_change_set_is_a_conflict(feed: Feed) -> None:
    feed.good(units=[{"code": "A", "name": "a"}])
    change_set = str(uuid4())
    for name, mine in (("b", change_set), ("other", str(uuid4())), ("c", change_set)):
        feed.operator.write(
            feed.company, f"update data.units set name = '{name}' where company_id = '{feed.company}'", change_set=mine
        )
    assert problems(revert(feed, change_set)) == [("units", "code:A", "conflict")]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_forced_revert_of_nothing_but_erased_values_is_a_conflict(feed: Feed, dry_run: bool) -> None:
    feed.good(customers=[{"code": c, "name": "n", "email": f"{c}@b", "city": "x"} for c in "AB"])
    change_set = feed.send(customers=[{"code": "A", "email": None}, {"code": "B", "email": None, "city": "y"}])["importId"]
    for (row,) in feed.rows("customers", "id"):
        feed.ask("select bds.erase(%s, 'customers', %s, '{email}')", feed.company, row)
    log = len(feed.log())
    report = revert(feed, change_set, force=True, dry_run=dry_run)
    assert problems(report) == [("customers.email", "code:A", "conflict")]
    assert (report["state"], counts(report)) == ("partial", {"customers": {"updated": 1, "failed": 1}})
    assert len(feed.log()) == log + (not dry_run)
