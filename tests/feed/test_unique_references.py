"""A reference that is unique, as in a table with one row for each product, identifies its row as any other unique field does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from app.database.catalog import Entity
from tests.conftest import prepared
from tests.feed.conftest import Feed, alone, counts, errors
from tests.feed.test_revert_tables import ROW

pytestmark = pytest.mark.slow

TABLES = f"""
create table data.goods ({ROW}, code text not null, unique (company_id, code));
create table data.stocks ({ROW}, good_id bigint not null, amount int, unique (company_id, good_id),
    foreign key (company_id, good_id) references data.goods (company_id, id));
create table data.moves ({ROW}, code text not null, stock_id bigint, unique (company_id, code),
    foreign key (company_id, stock_id) references data.stocks (company_id, id));
create table data.labels ({ROW}, good_id bigint not null, text text, code text, unique (company_id, good_id), unique (company_id, code),
    foreign key (company_id, good_id) references data.goods (company_id, id) on delete cascade);
create table data.lines ({ROW}, good_id bigint not null, place text,
    foreign key (company_id, good_id) references data.goods (company_id, id) on delete cascade);
create table data.seals ({ROW}, line_id bigint not null, text text, unique (company_id, line_id),
    foreign key (company_id, line_id) references data.lines (company_id, id) on delete cascade);
create table data.crews ({ROW}, code text not null, lead_id bigint, name text, unique (company_id, code), unique (company_id, lead_id));
create table data.hands ({ROW}, code text not null, crew_id bigint, unique (company_id, code),
    foreign key (company_id, crew_id) references data.crews (company_id, id));
alter table data.crews add foreign key (company_id, lead_id) references data.hands (company_id, id);
select bds.register('data.goods'), bds.register('data.stocks'), bds.register('data.moves');
select bds.register('data.labels', parent => 'good_id'), bds.register('data.lines', parent => 'good_id');
select bds.register('data.seals', parent => 'line_id');
select bds.register('data.crews'), bds.register('data.hands');
select bds.register('data.crews');
"""


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, TABLES, of_units)


@pytest.fixture
def goods(database_url: str) -> Iterator[Feed]:
    """The goods A and B, each with its stock."""
    for feed in alone(database_url):
        feed.good(goods=[{"code": "A"}, {"code": "B"}], stocks=[{"good": "code:A", "amount": 1}, {"good": "code:B", "amount": 2}])
        yield feed


def catalog(feed: Feed) -> Mapping[str, Entity]:
    return feed.catalog.entities


def ids(feed: Feed, entity: str) -> list[int]:
    return [id for (id,) in feed.rows(entity, "id")]


def named(feed: Feed, record: dict[str, Any]) -> dict[str, Any]:
    """The record with {a} replaced by the id of the good A."""
    a = str(ids(feed, "goods")[0])
    return {k: v.replace("{a}", a) if isinstance(v, str) else v for k, v in record.items()}


NAMES: list[dict[str, Any]] = [
    {"good": "code:A"}, {"good": "{a}"}, {"good": "id:{a}"}, {"goodId": "{a}"}, {"id": "good:{a}"}, {"id": "goodId:{a}"},
    {"id": "goodId:{a}", "good": "code:A"},
]  # fmt: skip


class TestARecord:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("operation", ["upsert", "update"])
    def test_updates_the_row_that_it_names(self, goods: Feed, name: dict[str, Any], operation: str) -> None:
        record = named(goods, name) | {"@operation": operation, "amount": 9}
        assert goods.good(stocks=[record]) == {"stocks": {"updated": 1}}
        assert goods.good(stocks=[record]) == {"stocks": {"unchanged": 1}}
        assert goods.rows("stocks", "amount") == [(9,), (2,)]

    @pytest.mark.parametrize("name", NAMES)
    def test_deletes_the_row_that_it_names(self, goods: Feed, name: dict[str, Any]) -> None:
        record = named(goods, name) | {"@operation": "delete"}
        assert goods.good(stocks=[record]) == {"stocks": {"deleted": 1}}
        assert goods.good(stocks=[record]) == {"stocks": {"unchanged": 1}}
        assert goods.rows("stocks", "amount") == [(2,)]

    def test_keeps_its_row_from_removal(self, goods: Feed) -> None:
        first, _ = ids(goods, "stocks")
        document = {"stocks@removeAll": True, "stocks": [{"good": "code:A", "amount": 1}]}
        assert goods.good(document) == {"stocks": {"deleted": 1, "unchanged": 1}}
        assert ids(goods, "stocks") == [first]

    def test_does_not_create_a_row_that_exists(self, goods: Feed) -> None:
        assert errors(goods.send(stocks=[{"@operation": "create", "good": "code:A"}])) == [("stocks[0]", "already_exists")]

    def test_fails_with_a_lookup_that_is_wrong(self, goods: Feed) -> None:
        for good, code in (("code:X", "lookup_not_found"), ("999", "lookup_not_found"), ("X", "invalid_value")):
            assert errors(goods.send(stocks=[{"good": good, "amount": 1}])) == [("stocks[0].good", code)]
        assert errors(goods.send(stocks=[{"@operation": "delete", "good": "X"}])) == [("stocks[0].good", "invalid_value")]

    def test_takes_the_row_of_another_only_by_its_own_lookup(self, goods: Feed) -> None:
        first, _ = ids(goods, "stocks")
        assert errors(goods.send(stocks=[{"id": first, "good": "code:B"}])) == [("stocks[0].good", "already_exists")]
        assert goods.good(goods=[{"code": "C"}], stocks=[{"id": first, "good": "code:C"}])["stocks"] == {"updated": 1}

    def test_names_a_row_that_is_renamed(self, goods: Feed) -> None:
        document = {"goods": [{"id": "code:A", "code": "Z"}], "stocks": [{"good": "code:Z", "amount": 5}]}
        assert goods.good(document) == {"goods": {"updated": 1}, "stocks": {"updated": 1}}
        assert goods.rows("stocks", "amount") == [(5,), (2,)]


class TestANewRow:
    def test_may_refer_to_a_row_of_the_same_document(self, goods: Feed) -> None:
        document = {"stocks": [{"good": "code:C", "amount": 3}], "goods": [{"code": "C"}]}
        assert goods.good(document) == {"goods": {"created": 1}, "stocks": {"created": 1}}
        assert goods.good(document) == {"goods": {"unchanged": 1}, "stocks": {"unchanged": 1}}

    @pytest.mark.parametrize(("code", "path"), [("A", "stocks[1]"), ("C", "stocks[1].good")])
    def test_is_refused_to_a_second_record_with_its_reference(self, goods: Feed, code: str, path: str) -> None:
        stocks = [{"good": f"code:{code}", "amount": 3}, {"good": f"code:{code}", "amount": 4}]
        report = goods.send({"@atomic": False, "goods": [{"code": "C"}], "stocks": stocks})
        assert errors(report) == [(path, "duplicate_record")]

    @pytest.mark.parametrize("kind", ["good", "goodId"])
    def test_gets_the_reference_of_its_own_lookup(self, goods: Feed, kind: str) -> None:
        goods.good(goods=[{"code": "C"}])
        good = ids(goods, "goods")[-1]
        document = {"stocks": [{"id": f"{kind}:{good}", "amount": 3}]}
        assert goods.good(document) == {"stocks": {"created": 1}}
        assert goods.good(document) == {"stocks": {"unchanged": 1}}
        assert goods.rows("stocks", "goodId", "amount")[-1] == (good, 3)
        report = goods.send(stocks=[{"id": f"{kind}:{good + 1}", "amount": 3}])
        assert errors(report) == [("stocks[0]", "lookup_not_found")]

    def test_may_be_named_by_its_reference(self, goods: Feed) -> None:
        good, _ = ids(goods, "goods")
        for kind in ("good", "goodId"):
            goods.good(moves=[{"code": kind, "stock": f"{kind}:{good}"}])
        first, _ = ids(goods, "stocks")
        assert goods.rows("moves", "code", "stockId", order="code") == [("good", first), ("goodId", first)]


class TestAnExport:
    def test_names_rows_by_their_id(self, goods: Feed) -> None:
        # the value of a unique reference is an id, which another company does not have
        named = {name: catalog(goods)[name].identifying_field for name in ("goods", "stocks", "labels", "seals", "crews")}
        assert {name: field and field.name for name, field in named.items()} == {
            "goods": "code", "stocks": None, "labels": None, "seals": None, "crews": "code",
        }  # fmt: skip


class TestAChild:
    def test_is_the_one_of_its_parent(self, goods: Feed) -> None:
        for text, what in (("x", "created"), ("x", "unchanged"), ("y", "updated")):
            document = {"goods": [{"code": "A", "labels": [{"text": text}]}, {"code": "D", "labels": [{"text": "d"}]}]}
            assert goods.good(document)["labels"] == ({what: 2} if what != "updated" else {"updated": 1, "unchanged": 1})
        assert goods.good(goods=[{"code": "A", "labels": []}])["labels"] == {"deleted": 1}
        assert goods.good(labels=[{"good": "code:D", "text": "e"}]) == {"labels": {"updated": 1}}

    def test_may_have_another_unique_field(self, goods: Feed) -> None:
        for _ in range(2):
            goods.good(goods=[{"code": "A", "labels": [{"code": "L", "text": "x"}]}])
        assert goods.good(goods=[{"code": "A", "labels": [{"code": "M"}]}])["labels"] == {"updated": 1}
        report = goods.send(goods=[{"code": "B", "labels": [{"code": "N"}, {"code": "O"}]}])
        assert errors(report) == [("goods[0].labels[1].good", "duplicate_record")]

    def test_is_that_of_a_parent_without_unique_fields(self, goods: Feed) -> None:
        lines = [{"place": "p", "seals": [{"text": "1"}]}, {"place": "q", "seals": [{"text": "2"}]}]
        assert goods.good(goods=[{"code": "A", "lines": lines}])["seals"] == {"created": 2}
        assert goods.good(goods=[{"code": "A", "lines": lines}])["seals"] == {"unchanged": 2}
        assert goods.good(goods=[{"code": "A", "lines": lines[::-1]}])["seals"] == {"unchanged": 2}
        lines[1]["seals"] = [{"text": "3"}]
        assert goods.good(goods=[{"code": "A", "lines": lines}])["seals"] == {"unchanged": 1, "updated": 1}


def test_entities_that_refer_to_one_another_are_matched(goods: Feed) -> None:
    document = {
        "crews": [{"code": "C", "lead": "code:H", "name": "c"}, {"code": "D", "name": "d"}],
        "hands": [{"code": "H", "crew": "code:C"}, {"code": "I", "crew": "code:D"}],
    }
    assert goods.good(document) == {"crews": {"created": 2}, "hands": {"created": 2}}
    assert goods.good(document) == {"crews": {"unchanged": 2}, "hands": {"unchanged": 2}}
    assert goods.good(crews=[{"lead": "code:H", "name": "x"}]) == {"crews": {"updated": 1}}
    assert goods.good(document | {"crews": [{"lead": "code:H", "name": "y"}]})["crews"] == {"updated": 1}
    assert goods.good(crews=[{"code": "C", "lead": None}]) == {"crews": {"updated": 1}}
    report = goods.send({"@atomic": False, "crews": [{"code": "C", "lead": "code:H"}, {"code": "D", "lead": "code:H"}]})
    assert errors(report) == [("crews[1].lead", "duplicate_record")]
    assert counts(report)["crews"] == {"updated": 1, "failed": 1}
