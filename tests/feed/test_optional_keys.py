"""Children whose unique field may be null: without it they are linked to rows without it, as children without unique fields are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import prepared
from tests.feed.conftest import Feed, alone, errors
from tests.feed.test_revert_tables import ROW

pytestmark = pytest.mark.slow

TABLES = f"""
create table data.boxes ({ROW}, code text not null, unique (company_id, code));
create table data.parts ({ROW}, box_id bigint not null, code text, serial int, name text, size int,
    unique (company_id, code), unique (company_id, serial),
    foreign key (company_id, box_id) references data.boxes (company_id, id) on delete cascade);
create table data.screws ({ROW}, part_id bigint not null, code text, note text, unique (company_id, code),
    foreign key (company_id, part_id) references data.parts (company_id, id) on delete cascade);
create table data.threads ({ROW}, screw_id bigint not null, note text,
    foreign key (company_id, screw_id) references data.screws (company_id, id) on delete cascade);
create table data.marks ({ROW}, screw_id bigint not null, code text not null, unique (company_id, code),
    foreign key (company_id, screw_id) references data.screws (company_id, id) on delete cascade);
select bds.register('data.boxes');
select bds.register('data.parts', parent => 'box_id');
select bds.register('data.screws', parent => 'part_id');
select bds.register('data.threads', parent => 'screw_id'), bds.register('data.marks', parent => 'screw_id');
"""


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES, of_units)


@pytest.fixture
def boxes(database_url: str) -> Iterator[Feed]:
    yield from alone(database_url)


def box(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**more, "boxes": [{"code": "B", "parts": list(parts)}]}


@pytest.mark.parametrize("mode", ["array", "merge"])
def test_the_same_document_changes_nothing(boxes: Feed, mode: str) -> None:
    screws = [
        {"note": "x", "threads": [{"note": "t"}, {"note": "t"}]}, {"note": "x"}, {"code": None, "note": "y", "marks": [{"code": "M"}]},
        {"code": "S", "note": "z", "threads": [{"note": "u"}]}, {},
    ]  # fmt: skip
    document = box(
        {"name": "p", "size": 1, "screws": screws},
        {"name": "q"},
        {"name": "q"},
        {"code": "P", "name": "p"},
        {"serial": 4},
        **{"@mode": mode},
    )
    assert boxes.good(document) == {
        "boxes": {"created": 1}, "parts": {"created": 5}, "screws": {"created": 5}, "threads": {"created": 3}, "marks": {"created": 1}
    }  # fmt: skip
    before = boxes.stored()
    for _ in range(2):
        report = boxes.good(document)
        assert all(set(each) == {"unchanged"} for each in report.values()), report
    assert boxes.stored() == before
    document["boxes"][0]["parts"].reverse()
    boxes.good(document)
    assert boxes.stored() == before


def test_only_rows_without_any_unique_field_are_linked(boxes: Feed) -> None:
    boxes.good(box({"code": "P", "name": "a"}, {"serial": 1, "name": "a"}, {"name": "b"}))
    [(p, *_), (s, *_), (b, *_)] = boxes.rows("parts", "id")
    assert boxes.good(box({"name": "a"}, {"name": "b"}, **{"@mode": "merge"}))["parts"] == {"created": 1, "unchanged": 1}
    assert [row[1:] for row in boxes.rows("parts", "id", "code", "serial", "name")] == [
        ("P", None, "a"), (None, 1, "a"), (None, None, "b"), (None, None, "a")
    ]  # fmt: skip
    assert boxes.good(box({"name": "b", "size": 2}, {"code": "P"}, {"serial": 1}))["parts"] == {
        "updated": 1, "unchanged": 2, "deleted": 1
    }  # fmt: skip
    assert [id for (id,) in boxes.rows("parts", "id")] == [p, s, b]


def test_a_row_that_a_record_names_by_its_id_is_linked_to_no_other(boxes: Feed) -> None:
    boxes.good(box({"name": "a"}, {"name": "a"}))
    (first,), (second,) = boxes.rows("parts", "id")
    assert boxes.good(box({"name": "a"}, {"id": first, "name": "c"}))["parts"] == {"updated": 1, "unchanged": 1}
    assert boxes.rows("parts", "id", "name") == [(first, "c"), (second, "a")]
    assert boxes.good(box({"id": second, "code": "K"}, {"name": "c"}))["parts"] == {"updated": 1, "unchanged": 1}
    assert boxes.rows("parts", "code") == [(None,), ("K",)]


def test_an_update_or_delete_without_identity_is_refused(boxes: Feed) -> None:
    boxes.good(box({"name": "a"}))
    for operation in ("update", "delete"):
        report = boxes.send(box({"@operation": operation, "name": "a"}))
        assert errors(report) == [("boxes[0].parts[0]", "required")]
    assert boxes.good(box({"@operation": "create", "name": "a"}, **{"@mode": "merge"}))["parts"] == {"created": 1}


def test_records_at_the_top_are_linked_in_the_parent_that_they_name(boxes: Feed) -> None:
    boxes.good(box({"name": "a"}, {"name": "b"}))
    assert boxes.good(parts=[{"box": "code:B", "name": "b"}, {"box": "code:B", "name": "c"}])["parts"] == {
        "created": 1,
        "unchanged": 1,
    }
    report = boxes.send({"@atomic": False, "parts": [{"name": "b"}, {"box": "code:X", "name": "b"}]})
    assert errors(report) == [("parts[0].box", "required"), ("parts[1].box", "lookup_not_found")]
