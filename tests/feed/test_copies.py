"""Records that name several rows, because the owner dropped a key; and what triggers of the owner and settings may not change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import prepared
from tests.feed.conftest import Feed, alone, counts, errors
from tests.feed.test_revert_tables import ROW

TABLES = f"""
create table data.goods ({ROW}, code text not null, unique (company_id, code));
create table data.stocks ({ROW}, good_id bigint not null, amount int, unique (company_id, good_id),
    foreign key (company_id, good_id) references data.goods (company_id, id));
create table data.boxes ({ROW}, code text not null, unique (company_id, code));
create table data.parts ({ROW}, box_id bigint not null, code text, name text, unique (company_id, code),
    foreign key (company_id, box_id) references data.boxes (company_id, id) on delete cascade);
create table data.late ({ROW}, code text not null, x int check (x > 0), y int check (y > 0), unique (company_id, code));
create function data.keep() returns trigger language plpgsql as 'begin return new; end';
create trigger zz before update on data.late for each row execute function data.keep();
create table data.journal (name text not null);
create table data.book ({ROW}, code text not null, name text not null, unique (company_id, code));
create function data.write() returns trigger language plpgsql security definer as
    'begin insert into data.journal values (nullif(new.code, ''bad'')); return new; end';
create trigger a before insert on data.book for each row execute function data.write();
select bds.register('data.goods'), bds.register('data.stocks'), bds.register('data.boxes'), bds.register('data.late'),
    bds.register('data.book');
select bds.register('data.parts', parent => 'box_id');
"""


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES, of_units)


@pytest.fixture
def feed(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def test_a_delete_by_a_reference_that_names_several_rows_is_refused(feed: Feed) -> None:
    feed.good(goods=[{"code": "A"}, {"code": "B"}], stocks=[{"good": "code:A", "amount": 1}, {"good": "code:B", "amount": 2}])
    feed.operator.connection.execute("alter table data.goods drop constraint goods_company_id_code_key")
    feed.write("update data.goods set code = 'A'")
    report = feed.send(stocks=[{"good": "code:A", "@operation": "delete"}])
    assert errors(report) == [("stocks[0].good", "lookup_ambiguous")]
    assert feed.rows("stocks", "amount", order="amount") == [(1,), (2,)]


@pytest.mark.parametrize("record", [{"code": "P", "name": "z"}, {"code": "P", "@operation": "delete"}])
def test_a_record_that_names_several_rows_is_refused_also_beside_linked_ones(feed: Feed, record: dict[str, str]) -> None:
    feed.good(boxes=[{"code": "B", "parts": [{"code": "P", "name": "a"}, {"name": "u"}]}])
    feed.operator.connection.execute("alter table data.parts drop constraint parts_company_id_code_key")
    feed.write(
        "insert into data.parts (company_id, box_id, code, name) select company_id, box_id, 'P', 'c' from data.parts where code = 'P'"
    )
    report = feed.send({"@mode": "merge", "boxes": [{"code": "B", "parts": [record, {"name": "u"}]}]})
    assert [code for _, code in errors(report)] == ["lookup_ambiguous"]
    assert feed.rows("parts", "name", order="name") == [("a",), ("c",), ("u",)]


def test_the_second_stamp_is_no_trigger_of_the_owner(feed: Feed) -> None:
    feed.operator.connection.execute("drop trigger zz on data.late")
    report = feed.send({"@atomic": False, "late": [{"code": "A", "x": -1, "y": -1}]})
    assert errors(report) == [("late[0].x", "invalid_value"), ("late[0].y", "invalid_value")]


def test_a_null_in_another_table_is_not_blamed_on_a_field(feed: Feed) -> None:
    report = feed.send({"@atomic": False, "book": [{"code": "bad", "name": "there"}, {"code": "good", "name": "there"}]})
    assert [path for path, _ in errors(report)] == ["book[0]"]
    assert counts(report) == {"book": {"created": 1, "failed": 1}}


def test_no_setting_of_a_session_changes_what_it_writes(feed: Feed) -> None:
    feed.good(boxes=[{"code": "B"}])
    feed.operator.connection.execute("set bds.unchanged = '1:x'")
    feed.write("update data.boxes set code = code")
    feed.operator.connection.execute("reset bds.unchanged")
