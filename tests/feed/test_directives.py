"""@operation, @where and @removeAll."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import ServiceError
from tests.feed.conftest import Feed, counts, errors

pytestmark = pytest.mark.slow


SHOP = """
    with k as (insert into data.categories (code, name) values ('K', 'k') returning id),
        l as (insert into data.categories (code, name, parent_id) select 'L', 'l', id from k returning id)
    insert into data.products (code, name, price, category_id)
        select upper(c), c, n, case when n < 3 then k.id else l.id end from k, l, unnest('{a,b,c,d}'::text[]) with ordinality p (c, n);
    insert into data.customers (code, name, email) values ('C', 'c', 'c@example.com'), ('E', 'e', null);
    insert into data.orders (code, order_date, customer_id)
        select 'O', '2026-01-01', id from data.customers where company_id = '{company}' and code = 'C';
    insert into data.order_items (order_id, product_id) select o.id, p.id
        from data.orders o join data.products p using (company_id) where company_id = '{company}' and p.code in ('A', 'B') order by p.code
"""


@pytest.fixture
def shop(feed: Feed) -> Feed:
    """Two categories, one the parent of the other; products A to D in them; a customer with an order of A and B."""
    feed.write(SHOP.replace("{company}", feed.company))
    return feed


def codes(feed: Feed, entity: str = "products") -> str:
    return "".join(code for (code,) in feed.rows(entity, "code", order="code"))


# @operation -----------------------------------------------------------------------------------------------------------------------


def test_create_update_upsert_and_delete(shop: Feed) -> None:
    report = shop.good(products=[
        {"@operation": "create", "code": "N", "name": "n"},
        {"@operation": "update", "code": "A", "name": "new"},
        {"@operation": "upsert", "code": "B", "name": "new"},
        {"@operation": "delete", "id": "code:C"},
        {"@operation": None, "code": "D", "name": "d"},
    ])  # fmt: skip
    assert report == {"products": {"created": 1, "updated": 2, "deleted": 1, "unchanged": 1}}
    assert shop.rows("products", "code", "name", order="code") == [("A", "new"), ("B", "new"), ("D", "d"), ("N", "n")]


@pytest.mark.parametrize("identity", [{"code": "none"}, {"id": "code:none"}, {"id": 999999999}, {"id": "999999999"}])
def test_a_row_that_is_gone_may_be_deleted_again(shop: Feed, identity: dict[str, Any]) -> None:
    before, log = shop.stored(), shop.log()
    assert shop.good(products=[{"@operation": "delete", **identity}]) == {"products": {"unchanged": 1}}
    if "code" not in str(identity):
        assert shop.good(orderItems=[{"@operation": "delete", **identity}]) == {"orderItems": {"unchanged": 1}}
    assert (shop.stored(), shop.log()) == (before, log)


@pytest.mark.parametrize("yes", [True, "true"])
def test_directives_take_text(shop: Feed, yes: Any) -> None:
    no = "false" if yes == "true" else False
    report = shop.send({"@atomic": no, "units@removeAll": no, "units": [{"code": "U", "name": None}, {"code": "V", "name": "v"}]})
    assert (report["state"], report["atomic"], report["entities"]["units"]["created"]) == ("partial", False, 1)
    assert shop.send({"@atomic": yes, "units": [{"code": "U", "name": None}, {"code": "W", "name": "w"}]})["state"] == "failed"
    assert shop.good({"units@removeAll": yes, "units": [{"code": "X", "name": "x"}]})["units"] == {"created": 1, "deleted": 1}
    shop.good(products=[{"code": "A", "variants@removeAll": no, "variants": [{"code": "A-1"}]}])
    assert shop.good(products=[{"code": "A", "variants@removeAll": yes, "variants": []}])["productVariants"]["deleted"] >= 1


@pytest.mark.parametrize(("record", "error"), [
    ({"@operation": "create", "code": "A", "name": "x"}, ("products[0]", "already_exists")),
    ({"@operation": "create", "id": "code:A", "name": "x"}, ("products[0]", "already_exists")),
    ({"@operation": "update", "code": "none", "name": "x"}, ("products[0]", "not_found")),
    ({"@operation": "update", "name": "x"}, ("products[0]", "required")),
    ({"@operation": "update", "id": 999999999, "name": "x"}, ("products[0].id", "not_found")),
    ({"@operation": "delete", "name": "x"}, ("products[0]", "required")),
    ({"@operation": "delete", "id": "colour:red"}, ("products[0].id", "invalid_value")),
    ({"@operation": "Delete", "code": "A"}, ("products[0].@operation", "invalid_directive")),
    ({"@operation": "remove", "code": "A"}, ("products[0].@operation", "invalid_directive")),
    ({"@operation": True, "code": "A"}, ("products[0].@operation", "invalid_directive")),
    ({"@operation": "update", "code": "A", "name": None}, ("products[0].name", "required")),
    ({"@nothing": "x", "code": "A"}, ("products[0].@nothing", "invalid_directive")),
    ({"variants@present": "t", "code": "A"}, ("products[0].variants@present", "invalid_directive")),
    ({"@parent": "1", "code": "A"}, ("products[0].@parent", "invalid_directive")),
    ({"@where": "code = 'A'", "name": "x"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "code = 'A'", "@operation": "create", "name": "x"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "", "@operation": "update", "name": "x"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "nothing = 1", "@operation": "update", "name": "x"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "code = 'A", "@operation": "delete"}, ("products[0].@where", "invalid_directive")),
    ({"@where": 7, "@operation": "delete"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "code = 'A'", "id": "code:A", "@operation": "update", "name": "x"}, ("products[0].@where", "invalid_directive")),
    ({"@where": "code = 'A'", "@operation": "update", "variants": []}, ("products[0].@where", "invalid_directive")),
    ({"@where": "code = 'A'", "@operation": "update", "price": "dear"}, ("products[0].price", "invalid_value")),
    ({"@where": "code = 'A'", "@operation": "update", "name": None}, ("products[0].name", "required")),
    ({"@where": "code = 'A'", "@operation": "update", "category": "code:none"}, ("products[0].category", "lookup_not_found")),
    ({"@where": "price < 3", "@operation": "update", "code": "Z"}, ("products[0].code", "duplicate_record")),
    ({"@where": "code = 'A'", "@operation": "update", "code": "B"}, ("products[0].code", "already_exists")),
    ({"variants": [{"@where": "code = 'A'", "@operation": "update"}], "code": "A"}, ("products[0].variants[0].@where", "invalid_directive")),
])  # fmt: skip
def test_an_impossible_operation_is_an_error_of_its_record(shop: Feed, record: dict[str, Any], error: tuple[str, str]) -> None:
    before, log = shop.stored(), shop.log()
    report = shop.send({"@atomic": False, "products": [record, {"code": "B", "name": "b"}]})
    assert errors(report) == [error]
    assert report["entities"]["products"]["failed"] == 1
    assert (shop.stored(), shop.log()) == (before, log)


def test_a_delete_uses_only_the_identity(shop: Feed) -> None:
    report = shop.good(products=[{"@operation": "delete", "code": "C", "name": "x", "variants": [{"code": "V", "name": "v"}]}])
    assert report == {"products": {"deleted": 1}}


def test_a_delete_of_a_parent_deletes_its_children(shop: Feed) -> None:
    last = shop.log()[-1][0]
    assert shop.good(orders=[{"@operation": "delete", "code": "O"}]) == {"orders": {"deleted": 1}, "orderItems": {"deleted": 2}}
    assert sorted((entity, operation) for n, entity, operation, _ in shop.log() if n > last) == [
        ("orderItems", "delete"), ("orderItems", "delete"), ("orders", "delete"),
    ]  # fmt: skip


def test_children_have_operations(shop: Feed) -> None:
    items = shop.ask('select id from api."orderItems" order by id')
    report = shop.good(orders=[{"code": "O", "items": [{"id": items[0][0], "@operation": "delete"}, {"product": "code:B", "@operation": "create"},
                                                       {"id": str(items[1][0]), "@operation": "update", "quantity": 5}]}])  # fmt: skip
    assert report == {"orders": {"unchanged": 1}, "orderItems": {"created": 1, "updated": 1, "deleted": 1}}


# Deletes and references ---------------------------------------------------------------------------------------------------------------


def test_a_row_in_use_stays(shop: Feed) -> None:
    before = shop.stored()
    report = shop.send({"@atomic": False, "products": [{"@operation": "delete", "code": "A"}], "customers": [{"@operation": "delete", "code": "C"}],
                        "categories": [{"@operation": "delete", "code": "K"}]})  # fmt: skip
    assert errors(report) == [("categories[0]", "in_use"), ("products[0]", "in_use"), ("customers[0]", "in_use")]
    assert report["state"] == "failed" and shop.stored() == before


def test_deletes_run_in_reverse_order_of_dependency(shop: Feed) -> None:
    report = shop.good({
        "categories": [{"@operation": "delete", "code": "K"}, {"@operation": "delete", "code": "L"}],
        "products": [{"@operation": "delete", "code": code} for code in "ABCD"],
        "customers": [{"@operation": "delete", "code": "C"}],
        "orders": [{"@operation": "delete", "code": "O"}],
    })  # fmt: skip
    assert report == {"categories": {"deleted": 2}, "products": {"deleted": 4}, "customers": {"deleted": 1}, "orders": {"deleted": 1},
                      "orderItems": {"deleted": 2}}  # fmt: skip


def test_a_remaining_child_keeps_its_parent(shop: Feed) -> None:
    """L is in use, so K is: a row that one statement keeps, keeps others."""
    report = shop.send({"@atomic": False, "categories": [{"@operation": "delete", "code": "K"}, {"@operation": "delete", "code": "L"}],
                        "products": [{"code": "A", "category": None}, {"code": "B", "category": None}]})  # fmt: skip
    assert errors(report) == [("categories[0]", "in_use"), ("categories[1]", "in_use")]
    assert counts(report) == {"categories": {"failed": 2}, "products": {"updated": 2}}


def test_upserts_run_before_deletes(shop: Feed) -> None:
    """A reference that the same document removes does not keep its row."""
    report = shop.good(
        {
            "categories": [{"@operation": "delete", "code": "L"}],
            "products": [{"code": "C", "category": "code:K"}, {"code": "D", "category": None}],
        }
    )
    assert report == {"categories": {"deleted": 1}, "products": {"updated": 2}}


def test_what_arrays_and_collections_lack_goes_before_the_rows_that_it_refers_to(shop: Feed) -> None:
    """Order items refer to products, and no longer to those that the same document deletes or leaves out."""
    shop.good(orders=[{"code": "O", "items": [{"product": "code:B"}]}])
    assert shop.good({"orders": [{"code": "O", "items": []}], "products": [{"@operation": "delete", "code": "B"}]}) == {
        "orders": {"unchanged": 1}, "orderItems": {"deleted": 1}, "products": {"deleted": 1},
    }  # fmt: skip
    shop.good(orders=[{"code": "O", "items": [{"product": "code:C"}]}])
    assert shop.good({"orders": [{"code": "O", "items": []}], "products": [{"code": "A"}], "products@removeAll": True}) == {
        "orders": {"unchanged": 1}, "orderItems": {"deleted": 1}, "products": {"unchanged": 1, "deleted": 2},
    }  # fmt: skip


def test_a_failed_delete_fails_the_deletes_of_its_batch_and_no_upsert(shop: Feed) -> None:
    report = shop.send(
        {"products": [{"@operation": "delete", "code": "A"}, {"code": "B", "name": "new"}, {"@operation": "delete", "code": "D"}]}
    )
    assert [(e["path"], e["code"]) for e in report["errors"]] == [("products[0]", "in_use"), ("products[0]", "batch_failed")]
    assert counts(report) == {"products": {"updated": 1, "failed": 2}} and codes(shop) == "ABCD"
    assert report["state"] == "partial"


def test_a_delete_of_nothing_in_a_failed_batch_counts_once(shop: Feed) -> None:
    deletes = [{"code": code, "@operation": "delete"} for code in ("NONE", "A")]
    assert counts(shop.send({"products": deletes})) == {"products": {"failed": 2}}
    assert counts(shop.send({"@atomic": False, "products": deletes})) == {"products": {"unchanged": 1, "failed": 1}}
    assert shop.good(products=deletes[:1]) == {"products": {"unchanged": 1}}


def test_all_or_nothing_includes_deletes(shop: Feed) -> None:
    before, log = shop.stored(), shop.log()
    report = shop.send({"@atomic": True, "products": [{"@operation": "delete", "code": "A"}, {"code": "B", "name": "new"}]})
    assert report["state"] == "failed" and errors(report) == [("products[0]", "in_use")]
    assert (shop.stored(), shop.log()) == (before, log)


@pytest.mark.parametrize(("record", "code", "message"), [
    ({"code": "Z", "name": "z"}, "not_found", "products has no row code:Z to update"),
    ({"barcode": "7", "name": "z"}, "not_found", "products has no row barcode:7 to update"),
    ({"id": "code:Z", "name": "z"}, "not_found", "products has no row code:Z to update"),
    ({"description": "x"}, "required", "expected id or code or barcode of the row to update, or @where"),
    ({"code": None, "description": "x"}, "required", "expected id or code or barcode of the row to update, or @where"),
])  # fmt: skip
def test_an_update_without_its_row_says_which_was_looked_for(shop: Feed, record: dict[str, Any], code: str, message: str) -> None:
    report = shop.send({"@atomic": False, "products": [{"@operation": "update", **record}]})
    assert (code, message) in [(e["code"], e["message"]) for e in report["errors"]], report["errors"]


def test_an_update_of_an_item_that_is_like_no_row_says_so(shop: Feed) -> None:
    item = {"@operation": "update", "product": "code:D", "quantity": 99, "price": 99, "description": "other"}
    report = shop.send({"@atomic": False, "orders": [{"code": "O", "items": [item]}]})
    assert ("not_found", "orderItems has no row like it to update") in [(e["code"], e["message"]) for e in report["errors"]], (
        report["errors"]
    )


# @where -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("condition", "hits"), [
    ("price < 3", "AB"), ("category = 'code:L'", "CD"), ("category = 'code:L' and price > 3", "D"), ("code in ('A', 'D')", "AD"),
    ("code like 'A%'", "A"), ("not code = 'A'", "BCD"), ("description is null", "ABCD"), ("code = '$1'' %(company)s'", ""),
    ("id = 'code:C'", "C"), ("id <> 'code:C' and id != 'code:D'", "AB"), ("id in ('code:A', 'code:D')", "AD"),
    ("not id in ('code:A', 0)", "BCD"), ("id <> 'code:A'", "BCD"), ("CODE = 'A' OR \"name\" = 'b'", "AB"),
])  # fmt: skip
def test_a_condition_selects_rows(shop: Feed, condition: str, hits: str) -> None:
    last = shop.log()[-1][0]
    report = shop.good(products=[{"@operation": "update", "@where": condition, "name": "hit", "price": 9}])
    assert report == {"products": {"updated": len(hits)} if hits else {}}
    assert "".join(code for code, name in shop.rows("products", "code", "name", order="code") if name == "hit") == hits
    assert len([n for n, *_ in shop.log() if n > last]) == len(hits)


@pytest.mark.parametrize("operation", ["update", "delete"])
@pytest.mark.parametrize(("condition", "missing"), [
    ("category = 'code:none'", "categories has no row code:none"), ("id = 'code:none'", "products has no row code:none"),
    ("id <> 'barcode:none'", "products has no row barcode:none"), ("id in ('code:A', 'code:none')", "products has no row code:none"),
    ("price < 0 and id = 'code:none'", "products has no row code:none"), ("category = 'id:0'", "categories has no row id:0"),
    ("category in ('code:L', 'code:none') or category <> 'code:L'", "categories has no row code:none"),
])  # fmt: skip
def test_a_lookup_in_a_condition_that_names_nothing_is_an_error(shop: Feed, operation: str, condition: str, missing: str) -> None:
    before = shop.stored()
    report = shop.send(
        {
            "@atomic": False,
            "products": [{"@operation": operation, "@where": condition, **({"name": "x"} if operation == "update" else {})}],
        }
    )
    assert [(e["path"], e["code"], e["message"]) for e in report["errors"]] == [("products[0].@where", "lookup_not_found", missing)]
    assert report["state"] == "failed" and shop.stored() == before


@pytest.mark.parametrize(
    "condition", ["category = 'code:NEW'", "category = 'code:NEW' and id = 'code:A'", "id = 'code:A' and category <> 'code:none'"]
)
def test_a_failing_condition_leaves_the_other_mass_updates(shop: Feed, condition: str) -> None:
    report = shop.send({"@atomic": False, "products": [
        {"@operation": "update", "@where": "id = 'code:A'", "name": "first"}, {"@operation": "update", "@where": condition, "name": "second"},
        {"@operation": "update", "@where": "id = 'code:B'", "name": "third"},
    ]})  # fmt: skip
    assert errors(report) == [("products[1].@where", "lookup_not_found")]
    assert [name for (name,) in shop.rows("products", "name", order="code")] == ["first", "third", "c", "d"]


def test_a_lookup_in_a_condition_may_name_a_record_of_the_same_document(shop: Feed) -> None:
    report = shop.good({
        "products": [
            {"@operation": "update", "@where": "category = 'code:NEW'", "name": "moved"},
            {"@operation": "delete", "@where": "id = 'code:N2' or category = 'code:NEW' and id = 'code:C'"},
            {"code": "A", "category": "code:NEW"}, {"code": "C", "category": "code:NEW"}, {"code": "N2", "name": "n"},
        ],
        "categories": [{"code": "NEW", "name": "new"}],
    })  # fmt: skip
    assert report["products"]["deleted"] == 2 and report["products"]["created"] == 1
    assert shop.rows("products", "code", "name", order="code")[:2] == [("A", "moved"), ("B", "b")]


def test_mass_updates_see_upserts_and_earlier_mass_updates(shop: Feed) -> None:
    report = shop.good({
        "products": [
            {"@operation": "update", "@where": "price = 100", "price": 200},
            {"@operation": "update", "@where": "price >= 200", "name": "dear"},
            {"code": "N", "name": "n", "price": 100},
        ],
        "categories": [{"code": "M", "name": "m"}, {"@operation": "update", "@where": "name = 'm'", "parent": "code:M2"}, {"code": "M2", "name": "m2"}],
    })  # fmt: skip
    assert report == {"products": {"created": 1, "updated": 2}, "categories": {"created": 2, "updated": 1}}
    assert shop.rows("products", "code", "name", "price", order="code")[-1][1:] == ("dear", 200)


def test_a_mass_update_that_changes_nothing_writes_nothing(shop: Feed) -> None:
    log = shop.log()
    assert shop.good(products=[{"@operation": "update", "@where": "code = 'A'", "name": "a"}]) == {"products": {"unchanged": 1}}
    assert shop.log() == log


def test_a_mass_delete_keeps_only_rows_in_use(shop: Feed) -> None:
    assert shop.good(products=[{"@operation": "delete", "@where": "category = 'code:L'"}]) == {"products": {"deleted": 2}}
    report = shop.send(products=[{"@operation": "delete", "@where": "price > 0"}])
    assert errors(report) == [("products[0]", "in_use")] and codes(shop) == "AB"


def test_a_row_of_a_mass_delete_that_fails_is_deleted_by_the_next_record_that_names_it(shop: Feed) -> None:
    report = shop.send({
        "@atomic": False,
        "products": [{"@operation": "delete", "@where": "code IN ('A', 'C')"}, {"@operation": "delete", "code": "C"},
                     {"@operation": "delete", "@where": "code IN ('B', 'D')"}, {"@operation": "delete", "@where": "code IN ('B', 'C')"}],
    })  # fmt: skip
    assert errors(report) == [("products[0]", "in_use"), ("products[2]", "in_use"), ("products[3]", "in_use")]
    assert counts(report) == {"products": {"deleted": 1, "failed": 3}}
    assert codes(shop) == "ABD"
    again = [{"@operation": "delete", "@where": "code = 'D'"}, {"@operation": "delete", "code": "D"}]
    assert shop.good(products=again) == {"products": {"deleted": 1}}


def test_a_condition_never_matches_rows_of_another_company(shop: Feed, companies: Any) -> None:
    other = companies()
    other.good(products=[{"code": "A", "name": "theirs"}])
    shop.good(products=[{"@operation": "update", "@where": "code = 'A' or code <> 'A'", "name": "mine"}])
    assert other.rows("products", "name") == [("theirs",)]


def test_a_mass_update_that_fails_late_fails_its_batch(shop: Feed) -> None:
    report = shop.send({"products": [
        {"@operation": "update", "@where": "code = 'A'", "name": "first"}, {"@operation": "update", "@where": "code = 'A'", "code": "B"},
        {"code": "C", "name": "upserted"},
    ]})  # fmt: skip
    assert [(e["path"], e["code"]) for e in report["errors"]] == [
        ("products[0]", "batch_failed"),
        ("products[1].code", "already_exists"),
    ]
    assert counts(report) == {"products": {"updated": 1, "failed": 2}}
    assert shop.rows("products", "name", order="code") == [("a",), ("b",), ("upserted",), ("d",)]


# <collection>@removeAll -----------------------------------------------------------------------------------------------------------------


def test_remove_all_removes_the_rows_that_the_collection_lacks(shop: Feed) -> None:
    assert shop.good({"products@removeAll": True, "products": [{"code": "A"}, {"code": "B"}, {"code": "N", "name": "n"}]}) == {
        "products": {"created": 1, "unchanged": 2, "deleted": 2}}  # fmt: skip
    assert codes(shop) == "ABN"


@pytest.mark.parametrize("value", [False, None])
def test_nothing_is_removed_without_remove_all(shop: Feed, value: Any) -> None:
    assert shop.good({"products@removeAll": value, "products": [{"code": "A"}]}) == {"products": {"unchanged": 1}}


def test_remove_all_of_an_empty_collection_removes_every_row(shop: Feed) -> None:
    assert shop.good({"orders": [], "orders@removeAll": True}) == {"orders": {"deleted": 1}, "orderItems": {"deleted": 2}}


def test_rows_that_a_condition_names_are_not_removed(shop: Feed) -> None:
    update = {"@operation": "update", "@where": "code IN ('B', 'C')", "name": "w"}
    shop.good({"orders": [], "orders@removeAll": True, "products": [{"code": "A"}, update], "products@removeAll": True})
    assert codes(shop) == "ABC"
    shop.good({"products": [update], "products@removeAll": True})
    assert shop.rows("products", "code", "name", order="code") == [("B", "w"), ("C", "w")]


def test_a_failed_condition_protects_every_row(shop: Feed) -> None:
    update = {"@operation": "update", "@where": "code IN ('C', 'D')", "code": "X"}
    report = shop.send({"@atomic": False, "products": [{"code": "A"}, update], "products@removeAll": True})
    assert errors(report) == [("products[1].code", "duplicate_record")]
    assert codes(shop) == "ABCD"


def test_a_row_of_a_mass_delete_that_fails_is_not_removed(shop: Feed) -> None:
    delete = {"@operation": "delete", "@where": "code IN ('A', 'C')"}
    report = shop.send({"@atomic": False, "products": [{"code": "B"}, delete], "products@removeAll": True})
    assert errors(report) == [("products[1]", "in_use")]
    assert codes(shop) == "ABC"


def test_an_array_keeps_children_that_a_condition_names(shop: Feed) -> None:
    shop.good(products=[{"code": "A", "variants": [{"code": c, "name": c} for c in "XYZ"]}])
    update = {"@operation": "update", "@where": "code = 'Y'", "name": "w"}
    shop.good({"products": [{"code": "A", "variants": [{"code": "X"}]}], "productVariants": [update]})
    assert codes(shop, "productVariants") == "XY"


def test_rows_in_use_are_not_removed(shop: Feed) -> None:
    report = shop.send({"products": [], "products@removeAll": True, "categories": None, "categories@removeAll": True})
    assert [(e["path"], e["record"], e["code"]) for e in report["errors"]] == [
        ("categories@removeAll", "code:K", "in_use"), ("products@removeAll", "code:A", "in_use"), ("products@removeAll", "code:B", "in_use"),
    ]  # fmt: skip
    assert counts(report) == {"products": {"deleted": 2, "failed": 2}, "categories": {"deleted": 1, "failed": 1}}
    assert report["state"] == "partial" and codes(shop) == "AB" and codes(shop, "categories") == "K"


def test_a_failed_record_protects_its_row(shop: Feed) -> None:
    report = shop.send(
        {"@atomic": False, "products": [{"code": "C", "price": "dear"}, {"code": "A"}, {"code": "B"}], "products@removeAll": True}
    )
    assert errors(report) == [("products[0].price", "invalid_value")] and codes(shop) == "ABC"


@pytest.mark.parametrize("record", [
    {"code": "C", "barcode": "D"}, {"id": "kode:C"}, {"code": ["C"]}, {"kode": "C"},
])  # fmt: skip
def test_a_failed_record_of_unknown_identity_protects_every_row(shop: Feed, record: dict[str, Any]) -> None:
    shop.good(products=[{"code": "D", "barcode": "D"}])
    report = shop.send({"@atomic": False, "products": [{"code": "A"}, {"code": "B"}, record], "products@removeAll": True})
    assert ("products@removeAll", "batch_failed") in [(e["path"], e["code"]) for e in report["errors"]]
    assert codes(shop) == "ABCD" and report["state"] == "partial"


def test_a_failed_collection_removes_nothing(shop: Feed) -> None:
    report = shop.send({"products": [{"code": "A", "name": "new"}, {"code": "B", "name": None}], "products@removeAll": True})
    assert report["state"] == "failed" and codes(shop) == "ABCD"
    assert not any(n["deleted"] for n in report["entities"].values())


def test_remove_all_needs_its_collection(shop: Feed) -> None:
    for document in ({"products@removeAll": True}, {"products@removeAll": False}, {"units": [], "products@removeAll": True}):
        with pytest.raises(ServiceError) as refused:
            shop.send(document)
        assert refused.value.code == "invalid_directive"


# Dry run ------------------------------------------------------------------------------------------------------------------------------


def test_a_dry_run_reports_everything_that_the_real_one_does(shop: Feed) -> None:
    document = {
        "@atomic": False,
        "categories": [{"@operation": "delete", "code": "K"}],
        "products": [{"code": "A", "name": "new"}, {"code": "N"}, {"@operation": "delete", "code": "B"}, {"@operation": "update", "@where": "price = 4", "name": "x"}],
        "products@removeAll": True,
    }  # fmt: skip
    before, log = shop.stored(), shop.log()
    dry = shop.send(document, dry_run=True)
    assert (shop.stored(), shop.log()) == (before, log)
    real = shop.send(document)
    for key in ("state", "entities", "errorCount"):
        assert dry[key] == real[key], key
    assert [(e["path"], e["code"]) for e in dry["errors"]] == [(e["path"], e["code"]) for e in real["errors"]]
    assert {e["code"] for e in real["errors"]} == {"required", "in_use"} and real["state"] == "partial"


def test_a_kept_row_makes_a_removal_partial(shop: Feed) -> None:
    report = shop.send({"categories@removeAll": True, "categories": [{"code": "L", "name": "new"}]})
    assert report["state"] == "partial" and counts(report) == {"categories": {"updated": 1, "failed": 1}}


def test_a_dry_run_reports_batches_failed_by_deletes(shop: Feed) -> None:
    document = {"products": [{"@operation": "delete", "code": "D"}, {"@operation": "delete", "code": "A"}]}
    dry = shop.send(document, dry_run=True)
    real = shop.send(document)
    assert [(e["path"], e["code"]) for e in dry["errors"]] == [(e["path"], e["code"]) for e in real["errors"]]
    assert dry["errorCount"] == real["errorCount"] == 2


def test_a_condition_too_complex_for_postgresql_is_an_error_of_its_record(shop: Feed) -> None:
    report = shop.send({"@atomic": False, "products": [
        {"@operation": "update", "@where": " and ".join(["category!='code:L'"] * 2_000), "name": "x"}, {"code": "B", "name": "new"},
    ]})  # fmt: skip
    assert errors(report) == [("products[0].@where", "invalid_directive")] and counts(report)["products"] == {
        "updated": 1,
        "failed": 1,
    }


def test_a_mass_update_checks_only_the_unique_fields_that_it_changes(shop: Feed) -> None:
    report = shop.good(
        products=[{"code": "A", "barcode": "1"}, {"@operation": "update", "@where": "price > 0", "barcode": None, "name": "z"}]
    )
    assert report["products"]["updated"] == 5
